import { addressBlock, isLoopbackAddress } from '../kernel/addresses.js';
import { type Clock, MINUTE } from '../kernel/clock.js';
import type { AppError } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import { purgeExpired } from '../ops/purge.js';
import { KeyedSemaphore } from '../ops/semaphore.js';
import type { Store } from '../storage/collection.js';
import { createCounters } from './counters.js';
import { createGuesses, type Guess } from './guesses.js';
import { atMost, type Limit } from './limits.js';
import { createRequestCount } from './requests.js';

export type { SecretKind } from './guesses.js';
export { atMost, type Limit } from './limits.js';

/** Everything that is refused with 429 because it comes too often. */
export interface Throttle {
  /** Counts any request, in this process, and answers with its refusal when there were too many. */
  countRequest(ip: string): AppError | undefined;
  /** Counts something that the address block of `ip` may do so often. @throws RATE_LIMITED */
  count(limit: Limit, ip: string): Promise<void>;
  /** Counts something that `key` may do so often, from whatever address. @throws RATE_LIMITED */
  countKey(limit: Limit, key: string, ip: string): Promise<void>;
  /** Counts something that may happen to `key` so often, wherever it is asked for. `false`: too often. */
  tryCountKey(limit: Limit, key: string, ip: string): Promise<boolean>;
  /**
   * Lets `evaluate` judge a guess at the secret of an account; `null` is a wrong one.
   * @param perAddress bounds the failures of the address block at all accounts together
   * @throws RATE_LIMITED, for passwords the same for right and wrong
   */
  attempt<T>(
    guess: Omit<Guess, 'perAddress'> & { perAddress?: Limit },
    evaluate: () => Promise<T | null>,
  ): Promise<T | null>;
  /**
   * The same for the one secret that everybody guesses at, which is bound by address only, so that nobody can keep
   * the operator out.
   */
  attemptAsOperator<T>(ip: string, evaluate: () => Promise<T | null>): Promise<T | null>;
  /** The owner of an account proved to be at this address: by registering, or by a link sent to them. */
  trust(account: string, ip: string): Promise<void>;
  /** The same where the account has a new owner or a new password: whoever signed in before may have been somebody else. */
  trustOnly(account: string, ip: string): Promise<void>;
  /** Removes counters that are over. Answers how many documents. */
  purge(signal: AbortSignal): Promise<number>;
}

export interface ThrottleOptions {
  clock: Clock;
  audit: Audit;
  /** Keys the hashes of what is remembered of people. */
  secret: string;
  production: boolean;
  /** `true` binds this machine outside production, too; `false` lets everything through. */
  limits: boolean | undefined;
}

/** Wrong guesses at the operator's secret. */
const OPERATOR = atMost('operator', 10, MINUTE);

const REQUESTS = { most: 300, window: MINUTE, blocks: 50_000 };

export function createThrottle(store: Store, options: ThrottleOptions): Throttle {
  const { clock, audit, secret, production, limits } = options;
  const counters = createCounters(store, { clock, audit });
  const guesses = createGuesses(store, { counters, clock, secret });
  const countRequest = createRequestCount(REQUESTS, clock);
  const operators = new KeyedSemaphore(1, 1024);
  const purge = async (signal: AbortSignal) => {
    const until = { now: clock.now(), signal };
    return (await purgeExpired(counters.documents, until)) + (await purgeExpired(guesses.sources, until));
  };
  if (limits === false) return { ...UNBOUND, purge };

  /** Volume is no danger on the developer's own machine. */
  const binds = (ip: string): boolean => limits === true || production || !isLoopbackAddress(ip);
  const byBlock = (limit: Limit, ip: string) => ({ limit, key: addressBlock(ip), ip });

  return {
    countRequest: (ip) => (binds(ip) ? countRequest(ip) : undefined),

    async count(limit, ip) {
      if (binds(ip)) await counters.count(byBlock(limit, ip));
    },

    async countKey(limit, key, ip) {
      if (binds(ip)) await counters.count({ limit, key, ip });
    },

    async tryCountKey(limit, key, ip) {
      if (!binds(ip)) return true;
      return counters.count({ limit, key, ip }).then(
        () => true,
        (error: unknown) => {
          if ((error as { code?: unknown }).code === 'RATE_LIMITED') return false;
          throw error;
        },
      );
    },

    attempt({ perAddress, ...guess }, evaluate) {
      const bound = perAddress && binds(guess.ip) ? byBlock(perAddress, guess.ip) : undefined;
      return guesses.attempt({ perAddress: bound, ...guess }, evaluate);
    },

    attemptAsOperator(ip, evaluate) {
      const counted = byBlock(OPERATOR, ip);
      return operators.run(counted.key, async () => {
        await counters.check([counted]);
        const found = await evaluate();
        if (found === null) await counters.count(counted);
        return found;
      });
    },

    trust: guesses.trust,
    trustOnly: guesses.trustOnly,
    purge,
  };
}

const UNBOUND: Omit<Throttle, 'purge'> = {
  countRequest: () => undefined,
  count: async () => undefined,
  countKey: async () => undefined,
  tryCountKey: async () => true,
  attempt: (_guess, evaluate) => evaluate(),
  attemptAsOperator: (_ip, evaluate) => evaluate(),
  trust: async () => undefined,
  trustOnly: async () => undefined,
};
