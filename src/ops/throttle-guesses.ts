import { createHmac } from 'node:crypto';
import { addressBlock } from '../kernel/addresses.js';
import { type Clock, DAY, MINUTE } from '../kernel/clock.js';
import { Gates } from '../kernel/gate.js';
import { nullIfTaken, type Store } from '../storage/collection.js';
import type { Expiring } from './purge.js';
import { type Counted, type Counters, growingDelay } from './throttle-counters.js';

/**
 * Guesses at the password of an account, whether or not the account exists.
 *
 * All sources from which nobody has signed in to it yet share one counter. Ten guesses are free, the next come after
 * 1, 2, 4, 8 and 16 minutes and then every 20: 15 in the first 1,860 s and (86,400 − 1,860) / 1,200 = 70 in the rest
 * of a day, so 85 from however many addresses, and 72 on every further day. A count is forgotten after a day without
 * a guess, so no day has more. Nobody is locked out for longer than 20 minutes.
 *
 * A source from which the account has been signed in to is not held up by them. Each source has a counter of its own,
 * with the same delays, so that its answers do not tell a stranger from an acquaintance; a success clears it.
 */

const DELAY = { free: 10, first: MINUTE, longest: 20 * MINUTE };
const STRANGERS = growingDelay('guesses', DELAY);
const SOURCE = growingDelay('guesses.source', DELAY);

export interface Guess {
  /** The canonical name of the account. */
  account: string;
  ip: string;
  /**
   * What is presented has the shape of 256 random bits. No counter makes such a secret safer, so nothing is paid
   * beforehand and no other source holds it up; failures are counted as those of any other guess.
   */
  isUnguessable?: boolean;
  /** What bounds failures at all accounts together. */
  perAddress?: Counted | undefined;
}

export interface Guesses {
  /**
   * Lets `evaluate` judge a guess, which answers `null` for a wrong one. Refusals are the same for right and wrong.
   * @throws RATE_LIMITED without having asked `evaluate`
   */
  attempt<T>(guess: Guess, evaluate: () => Promise<T | null>): Promise<T | null>;
  /** The owner of the account proved to be at this address: by registering, or by a link sent to them. */
  trust(account: string, ip: string): Promise<void>;
  /** For the purge. */
  sources: Expiring;
}

/** A source from which an account was signed in to. */
interface KnownSource {
  /** Keyed hash of the account and the address block. */
  id: string;
  expiresAt: number;
}

/** How long a source is known after a sign-in, and how often that is written down. */
const TRUST = 30 * DAY;
const RENEWAL = DAY;

/** Guesses from one known source that are evaluated at the same time: more than there are threads to hash them. */
const WIDTH = 8;
const QUEUE = 1024;

/** @param secret keys the hashes of known sources: an address alone has too few possibilities */
export function createGuesses(
  store: Store,
  { counters, clock, secret }: { counters: Counters; clock: Clock; secret: string },
): Guesses {
  const sources = store.collection<KnownSource>('knownSources', { indexes: [['expiresAt']] });
  const lanes = new Gates(WIDTH, QUEUE);

  const sourceId = (account: string, ip: string) =>
    createHmac('sha256', `known sources ${secret}`)
      .update(`${account}\n${addressBlock(ip)}`)
      .digest('base64url');

  /** Until when a source is known; 0 for a stranger. */
  const knownUntil = async (id: string): Promise<number> => {
    const known = await sources.findOne({ id });
    return known && known.expiresAt > clock.now() ? known.expiresAt : 0;
  };

  const trust = async (id: string): Promise<void> => {
    const expiresAt = clock.now() + TRUST;
    if (await sources.updateOne({ id }, { set: { expiresAt } })) return;
    // Two sign-ins at once know the same.
    await sources.insert({ id, expiresAt }).catch(nullIfTaken);
  };

  /** A wrong guess counts; where meanwhile too many have been wrong, it is answered as if it came after them. */
  const countWrong = async (counted: readonly Counted[]): Promise<void> => {
    for (const one of counted) await counters.pay(one);
  };

  return {
    async attempt<T>({ account, ip, isUnguessable, perAddress }: Guess, evaluate: () => Promise<T | null>) {
      const source = { limit: SOURCE, key: `${account}\n${addressBlock(ip)}`, ip };
      const failures = perAddress ? [source, perAddress] : [source];

      if (isUnguessable) {
        const [found, hasFailed] = await Promise.all([evaluate(), counters.check(failures)]);
        if (found === null) await countWrong(failures);
        else if (hasFailed) await counters.clear(source);
        return found;
      }

      const id = sourceId(account, ip);
      const until = await knownUntil(id);
      if (until > 0) {
        return lanes.run(id, async () => {
          const hasFailed = await counters.check(failures);
          const found = await evaluate();
          if (found === null) await countWrong(failures);
          else {
            if (hasFailed) await counters.clear(source);
            if (until - clock.now() < TRUST - RENEWAL) await trust(id);
          }
          return found;
        });
      }

      const strangers = { limit: STRANGERS, key: account, ip };
      await counters.check([...failures, strangers]);
      const payment = await counters.pay(strangers);
      let isCounted = false;
      try {
        const found = await evaluate();
        isCounted = found === null;
        if (isCounted) await countWrong(failures);
        else await Promise.all([trust(id), counters.clear(source)]);
        return found;
      } finally {
        if (!isCounted) await counters.giveBack(payment);
      }
    },

    trust: (account, ip) => trust(sourceId(account, ip)),
    sources,
  };
}
