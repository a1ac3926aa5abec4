import { createHmac } from 'node:crypto';
import { addressBlock, addressNetwork } from '../kernel/addresses.js';
import { type Clock, DAY, HOUR, MINUTE } from '../kernel/clock.js';
import { AppError } from '../kernel/errors.js';
import { KeyedSemaphore } from '../ops/semaphore.js';
import { nullIfTaken, type Store } from '../storage/collection.js';
import type { Counted, Counters, Reservation } from './counters.js';
import { growingDelay, type Limit, leakyBucket } from './limits.js';

/**
 * Limits guesses at passwords, for existing and unknown accounts alike. Every guess is counted before it is evaluated; a
 * correct guess is then removed from the count, and no other guess is.
 */

/**
 * Per account and address block: 22 guesses on the first day and 6 on each further one, so that one block cannot lock the
 * owner out of other blocks.
 */
const DELAY = { free: 10, first: MINUTE, longest: 4 * HOUR };

/**
 * Per account, shared by all unknown blocks (`KnownSource`): at most 60 + 24 · 60 / 36 = 100 guesses in
 * any 24 hours, which one block cannot use up.
 */
const BUDGET = leakyBucket('guesses.account', { burst: 60, interval: 36 * MINUTE });

/** Share of an IPv6 /48 in the budget, so that one customer with many blocks cannot use it up. */
const NETWORK = leakyBucket('guesses.network', { burst: 20, interval: 2 * HOUR });

/**
 * Secrets of agents and clients and API keys are 256 random bits, which cannot be guessed; nor can signatures of passkeys, nor mailed
 * codes, of which each allows a few attempts only.
 */
export type SecretKind = 'password' | 'agent' | 'client' | 'key' | 'passkey' | 'code';

const SOURCES: Record<SecretKind, Limit> = {
  password: growingDelay('guesses.source', DELAY),
  agent: growingDelay('guesses.agent', DELAY),
  client: growingDelay('guesses.client', DELAY),
  key: growingDelay('guesses.key', DELAY),
  passkey: growingDelay('guesses.passkey', DELAY),
  code: growingDelay('guesses.code', DELAY),
};

export interface Guess {
  /** Canonical name of the account. */
  account: string;
  ip: string;
  /**
   * Derived from the format of the secret, never from the account. For secrets other than passwords only failures are
   * counted, and a correct secret is always accepted.
   */
  kind?: SecretKind;
  /** Limits the failures of an address block at all accounts together. */
  perAddress?: Counted | undefined;
  /** Called if only the budget of the account is exhausted. Returns the error message. */
  onBudgetSpent?(): string;
}

export type Guesses = ReturnType<typeof createGuesses>;

/**
 * An address block from which the right password of an account was given, or a mailed link of it was opened. A password that is
 * right need not be guessed, so a suspension, an unverified address or a missing second factor makes no difference; codes of a
 * second factor are guesses at an account of their own.
 */
interface KnownSource {
  /** HMAC of the account and the address block. */
  id: string;
  /** HMAC of the account. */
  account: string;
  expiresAt: number;
}

const TRUST_MS = 30 * DAY;

/** Interval at which sign-ins renew the trust. */
const RENEWAL_MS = DAY;

/** Guesses of one source that are evaluated at a time; more than the number of hashing threads. */
const MAX_CONCURRENT = 8;
const MAX_QUEUE = 1024;

/** @param secret key of the HMACs of known sources: plain hashes of addresses could be reversed by enumeration */
export function createGuesses(
  store: Store,
  { counters, clock, secret }: { counters: Counters; clock: Clock; secret: string },
) {
  const sources = store.collection<KnownSource>('knownSources', {
    indexes: [['expiresAt'], ['account']],
    numbers: ['expiresAt'],
  });
  const semaphores = new KeyedSemaphore(MAX_CONCURRENT, MAX_QUEUE);

  const accountId = (account: string) =>
    createHmac('sha256', `known sources of accounts ${secret}`).update(account).digest('base64url');
  const sourceId = (account: string, ip: string) =>
    createHmac('sha256', `known sources ${secret}`)
      .update(`${account}\n${addressBlock(ip)}`)
      .digest('base64url');

  /** End of the trust in a source; 0 for an unknown one. */
  const knownUntil = async (id: string): Promise<number> => {
    const known = await sources.findOne({ id });
    return known && known.expiresAt > clock.now() ? known.expiresAt : 0;
  };

  /** Trusts the address block of the owner, proven by the password, a registration or an e-mailed link. */
  const trust = async (account: string, ip: string): Promise<void> => {
    const id = sourceId(account, ip);
    const known = { account: accountId(account), expiresAt: clock.now() + TRUST_MS };
    if (await sources.updateOne({ id }, { set: known })) return;
    // A concurrent sign-in has inserted the same document.
    await sources.insert({ id, ...known }).catch(nullIfTaken);
  };

  /** @throws RATE_LIMITED, OVERLOADED */
  const reserve = async (
    failures: readonly Counted[],
    budgets: readonly Counted[],
    onBudgetSpent: Guess['onBudgetSpent'],
  ): Promise<readonly Reservation[]> => {
    const explain = (error: unknown): never => {
      const isSpent = error instanceof AppError && error.code === 'RATE_LIMITED';
      throw isSpent && onBudgetSpent ? withMessage(error, onBudgetSpent()) : error;
    };
    // Checked by reading first: a flood from many addresses must not cost two writes per rejection.
    if (budgets.length + failures.length > 1) await counters.check(failures);
    await counters.check(budgets).catch(explain);
    const reservations: Reservation[] = [];
    try {
      for (const one of failures) reservations.push(await counters.reserve(one));
      for (const one of budgets) reservations.push(await counters.reserve(one).catch(explain));
    } catch (error) {
      await Promise.all(reservations.map((reservation) => reservation.release()));
      throw error;
    }
    return reservations;
  };

  return {
    /**
     * Evaluates a guess; `evaluate` returns `null` for a wrong one.
     * @throws RATE_LIMITED, for passwords without calling `evaluate`, so that the error does not reveal whether it was
     * correct
     */
    async attempt<T>(guess: Guess, evaluate: () => Promise<T | null>): Promise<T | null> {
      const { account, ip, kind = 'password', perAddress } = guess;
      const source = { limit: SOURCES[kind], key: `${account}\n${addressBlock(ip)}`, ip };

      if (kind !== 'password') {
        const found = await evaluate();
        if (found === null) {
          // The address is counted first, so that beyond its limit, invented account names create no counters.
          if (perAddress) await counters.count(perAddress);
          await counters.count(source);
        }
        return found;
      }

      const id = sourceId(account, ip);
      return semaphores.run(id, async () => {
        const until = await knownUntil(id);
        const failures = perAddress ? [source, perAddress] : [source];
        const budgets = until > 0 ? [] : budgetsOf(account, ip);
        const reservations = await reserve(failures, budgets, guess.onBudgetSpent);
        let isWrong = false;
        try {
          const found = await evaluate();
          isWrong = found === null;
          if (isWrong) await Promise.all(reservations.map((reservation) => reservation.confirm()));
          else if (until - clock.now() < TRUST_MS - RENEWAL_MS) await trust(account, ip);
          return found;
        } finally {
          if (!isWrong) await Promise.all(reservations.map((reservation) => reservation.release()));
        }
      });
    },

    trust,
    /** The same after a change of the owner or the password, which revokes the trust in all other blocks. */
    async trustOnly(account: string, ip: string) {
      await sources.deleteMany({ account: accountId(account) });
      await trust(account, ip);
    },
    /** Whether the account trusts the address block. */
    isTrusted: async (account: string, ip: string): Promise<boolean> =>
      (await knownUntil(sourceId(account, ip))) > 0,
    /** For the purge. */
    sources,
  };
}

/** The shared budgets of a guess from an unknown block. */
function budgetsOf(account: string, ip: string): Counted[] {
  const network = addressNetwork(ip);
  const ofAccount = { limit: BUDGET, key: account, ip };
  return network === undefined
    ? [ofAccount]
    : [{ limit: NETWORK, key: `${account}\n${network}`, ip }, ofAccount];
}

const withMessage = ({ code, statusCode, headers }: AppError, message: string): AppError =>
  new AppError(code, statusCode, message, { headers });
