import { createHmac } from 'node:crypto';
import { addressBlock, addressNetwork } from '../kernel/addresses.js';
import { type Clock, DAY, HOUR, isRecent, MINUTE, SECOND } from '../kernel/clock.js';
import { AppError } from '../kernel/errors.js';
import type { Expiring } from '../ops/purge.js';
import { KeyedSemaphore } from '../ops/semaphore.js';
import { nullIfTaken, type Store } from '../storage/collection.js';
import type { Counted, Counters, Reservation } from './counters.js';
import { growingDelay, type Limit, leakyBucket } from './limits.js';

/**
 * Guesses at the password of an account, whether or not the account exists. Every guess is counted before it is
 * evaluated; a right one takes back what it counted, and nothing else.
 *
 * Each address block has a counter of its own for each account: ten guesses are free, the next come after 1, 2, 4, … 128
 * minutes and then every 4 hours, which is 22 on the first day and 6 on every further one. So one block keeps nobody out
 * elsewhere.
 *
 * Blocks from which nobody has signed in to the account share its budget: 60 guesses at once and one more every 36
 * minutes, at most 60 + 24 · 60 / 36 = 100 in any 24 hours from however many addresses. One block never spends it, nor
 * does one IPv6 network. A block from which the account has been signed in to does not need it.
 */

const DELAY = { free: 10, first: MINUTE, longest: 4 * HOUR };
const BUDGET = leakyBucket('guesses.account', { burst: 60, interval: 36 * MINUTE });

/** What the blocks of one IPv6 /48 may spend of it, so that one customer with many blocks does not spend it either. */
const NETWORK = leakyBucket('guesses.network', { burst: 20, interval: 2 * HOUR });

/** What is guessed at. Secrets of agents and clients are 256 random bits; nobody guesses one. */
export type SecretKind = 'password' | 'agent' | 'client';

const SOURCES: Record<SecretKind, Limit> = {
  password: growingDelay('guesses.source', DELAY),
  agent: growingDelay('guesses.agent', DELAY),
  client: growingDelay('guesses.client', DELAY),
};

export interface Guess {
  /** The canonical name of the account. */
  account: string;
  ip: string;
  /**
   * By the shape of what is presented, and never by the account. No counter makes a secret of 256 random bits safer, so
   * only failures of that kind are counted and refused; a right one is accepted whatever others did.
   */
  kind?: SecretKind;
  /** What bounds failures at all accounts together. */
  perAddress?: Counted | undefined;
  /** Called where only a budget refuses the guess. Returns the message of the refusal. */
  onBudgetSpent?(): string;
}

export interface Guesses {
  /**
   * Lets `evaluate` judge a guess, which answers `null` for a wrong one. Refusals of passwords are the same for right and
   * wrong ones.
   * @throws RATE_LIMITED without having called `evaluate`, unless the secret is of a kind that nobody guesses
   */
  attempt<T>(guess: Guess, evaluate: () => Promise<T | null>): Promise<T | null>;
  /** The owner of the account proved to be at this address: by registering, or by a link sent to them. */
  trust(account: string, ip: string): Promise<void>;
  /** The same where the account has a new owner or a new password: whoever signed in before may have been somebody else. */
  trustOnly(account: string, ip: string): Promise<void>;
  /** For the purge. */
  sources: Expiring;
}

/** An address block from which an account was signed in to. */
interface KnownSource {
  /** Keyed hash of the account and the address block. */
  id: string;
  /** Keyed hash of the account; absent in documents of older versions. */
  account?: string;
  expiresAt: number;
}

/** How long a source is known after a sign-in, and how often that is written down. */
const TRUST = 30 * DAY;
const RENEWAL = DAY;

/** Guesses of one source that are evaluated at the same time: more than there are threads to hash them. */
const WIDTH = 8;
const QUEUE = 1024;

/** How long reservations are passed on to the next guess: well below the shortest delay, which they hold in advance. */
const HANDOVER = 10 * SECOND;

/** What was reserved for one guess. */
interface Stake {
  reservations: readonly Reservation[];
  madeAt: number;
}

/** @param secret keys the hashes of known sources: an address alone has too few possibilities */
export function createGuesses(
  store: Store,
  { counters, clock, secret }: { counters: Counters; clock: Clock; secret: string },
): Guesses {
  const sources = store.collection<KnownSource>('knownSources', {
    indexes: [['expiresAt'], ['account']],
  });
  const lanes = new KeyedSemaphore(WIDTH, QUEUE);
  /** By source: stakes of right guesses, each for a guess that waits. */
  const spare = new Map<string, Stake[]>();

  const accountId = (account: string) =>
    createHmac('sha256', `known sources of accounts ${secret}`).update(account).digest('base64url');
  const sourceId = (account: string, ip: string) =>
    createHmac('sha256', `known sources ${secret}`)
      .update(`${account}\n${addressBlock(ip)}`)
      .digest('base64url');

  /** Until when a source is known; 0 for a stranger. */
  const knownUntil = async (id: string): Promise<number> => {
    const known = await sources.findOne({ id });
    return known && known.expiresAt > clock.now() ? known.expiresAt : 0;
  };

  const trust = async (account: string, ip: string): Promise<void> => {
    const id = sourceId(account, ip);
    const known = { account: accountId(account), expiresAt: clock.now() + TRUST };
    if (await sources.updateOne({ id }, { set: known })) return;
    // Two sign-ins at once write the same.
    await sources.insert({ id, ...known }).catch(nullIfTaken);
  };

  /** Takes over the stake of a right guess before this one, or reserves anew. @throws RATE_LIMITED, OVERLOADED */
  const stakeFor = async (
    id: string,
    failures: readonly Counted[],
    budgets: readonly Counted[],
    onBudgetSpent: Guess['onBudgetSpent'],
  ): Promise<Stake> => {
    const taken = takeSpare(id);
    if (taken) return taken;
    const explain = (error: unknown): never => {
      const isSpent = error instanceof AppError && error.code === 'RATE_LIMITED';
      throw isSpent && onBudgetSpent ? withMessage(error, onBudgetSpent()) : error;
    };
    // First without writing: a flood from many addresses must not cost two writes for each refusal.
    if (budgets.length + failures.length > 1) await counters.check(failures);
    await counters.check(budgets).catch(explain);
    const madeAt = clock.now();
    const reservations: Reservation[] = [];
    try {
      for (const one of failures) reservations.push(await counters.reserve(one));
      for (const one of budgets) reservations.push(await counters.reserve(one).catch(explain));
    } catch (error) {
      await Promise.all(reservations.map((reservation) => reservation.release()));
      throw error;
    }
    return { reservations, madeAt };
  };

  const takeSpare = (id: string): Stake | undefined => {
    const stakes = spare.get(id);
    const stake = stakes?.pop();
    if (stakes?.length === 0) spare.delete(id);
    // A stake that the guess it was meant for did not take stays counted.
    return stake && isRecent(stake.madeAt, { now: clock.now(), within: HANDOVER }) ? stake : undefined;
  };

  /** What is done with the stake of a right guess. */
  const giveBack = async (id: string, stake: Stake): Promise<void> => {
    const isFresh = isRecent(stake.madeAt, { now: clock.now(), within: HANDOVER });
    if (isFresh && lanes.hasWaiting(id)) spare.set(id, [...(spare.get(id) ?? []), stake]);
    else await Promise.all(stake.reservations.map((reservation) => reservation.release()));
  };

  return {
    async attempt<T>(guess: Guess, evaluate: () => Promise<T | null>) {
      const { account, ip, kind = 'password', perAddress } = guess;
      const source = { limit: SOURCES[kind], key: `${account}\n${addressBlock(ip)}`, ip };

      if (kind !== 'password') {
        const found = await evaluate();
        if (found === null) {
          // The address first: past its limit, made-up accounts add no counters.
          if (perAddress) await counters.count(perAddress);
          await counters.count(source);
        }
        return found;
      }

      const id = sourceId(account, ip);
      return lanes.run(id, async () => {
        const until = await knownUntil(id);
        const failures = perAddress ? [source, perAddress] : [source];
        const budgets = until > 0 ? [] : budgetsOf(account, ip);
        const stake = await stakeFor(id, failures, budgets, guess.onBudgetSpent);
        let isWrong = false;
        try {
          const found = await evaluate();
          isWrong = found === null;
          if (isWrong) await Promise.all(stake.reservations.map((reservation) => reservation.confirm()));
          else if (until - clock.now() < TRUST - RENEWAL) await trust(account, ip);
          return found;
        } finally {
          if (!isWrong) await giveBack(id, stake);
        }
      });
    },

    trust,
    async trustOnly(account, ip) {
      await sources.deleteMany({ account: accountId(account) });
      await trust(account, ip);
    },
    sources,
  };
}

/** What a guess from a block that the account does not know spends beside its own counter. */
function budgetsOf(account: string, ip: string): Counted[] {
  const network = addressNetwork(ip);
  const ofAccount = { limit: BUDGET, key: account, ip };
  return network === undefined
    ? [ofAccount]
    : [{ limit: NETWORK, key: `${account}\n${network}`, ip }, ofAccount];
}

const withMessage = ({ code, statusCode, headers }: AppError, message: string): AppError =>
  new AppError(code, statusCode, message, { headers });
