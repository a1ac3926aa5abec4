import { addressBlock, addressNetwork, EXEMPT_CALLER, isLoopbackAddress } from '../kernel/addresses.js';
import { type Clock, MINUTE } from '../kernel/clock.js';
import { AppError } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import type { Metrics } from '../ops/metrics.js';
import { countEach, countExpired, purgeEach, purgeExpired } from '../ops/purge.js';
import { KeyedSemaphore } from '../ops/semaphore.js';
import { type Store, StoreUnavailable } from '../storage/collection.js';
import { createCounters } from './counters.js';
import { createGuesses, type Guess } from './guesses.js';
import { fixedWindow, type Limit, type Rates } from './limits.js';
import { createRequestCount } from './requests.js';

export type { SecretKind } from './guesses.js';
export { fixedWindow, type Limit } from './limits.js';

/** Rate limits. All errors are 429. */
export type Throttle = ReturnType<typeof createThrottle>;

export interface ThrottleOptions {
  clock: Clock;
  audit: Audit;
  /** Key of the HMACs of known accounts and addresses. */
  secret: string;
  production: boolean;
  /** `true` also limits loopback addresses outside production; `false` turns every limit off. */
  limits?: boolean | undefined;
  /** The numbers of configurable limits; absent: the defaults. */
  rates?: Rates | undefined;
  metrics?: Metrics | undefined;
}

const OPERATOR = fixedWindow('operator', 10, MINUTE);

/** Attempts during an outage of the store. Successful ones count as well, so it exceeds the needs of Prometheus. */
const OPERATOR_IN_OUTAGE = { most: 60, window: MINUTE, blocks: 50_000 };

const REQUESTS = { window: MINUTE, blocks: 50_000 };
const DEFAULT_REQUESTS = 300;

export function createThrottle(store: Store, options: ThrottleOptions) {
  const { clock, audit, secret, production, limits, rates } = options;
  const countRefusal = options.metrics?.counter({
    name: 'throttle_refusals_total',
    help: 'Requests and attempts that a rate limit has rejected.',
    labels: ['limit'],
    initial: [{ limit: 'requests' }],
  });
  const onRefusal = countRefusal && ((limit: string) => countRefusal({ limit }));
  const counters = createCounters(store, { clock, audit, onRefusal });
  const guesses = createGuesses(store, { counters, clock, secret });
  const requests = { ...REQUESTS, most: rates?.requests ?? DEFAULT_REQUESTS };
  const countRequest = createRequestCount(requests, clock);
  const countByKey = createRequestCount(requests, clock, (key) => key);
  const countInOutage = createRequestCount(OPERATOR_IN_OUTAGE, clock);
  const operators = new KeyedSemaphore(1, 1024);
  const isOff = limits === false;

  /** Loopback addresses are exempt during development. */
  const isLimited = (ip: string): boolean =>
    !isOff && (limits === true || production || !isLoopbackAddress(ip));
  /** Whether limits per address apply. */
  const isAddressLimited = (ip: string): boolean => ip !== EXEMPT_CALLER && isLimited(ip);
  /** By name: derived once for each limit. */
  const configured = new Map<string, Limit>();
  const configuredLimit = (limit: Limit): Limit => {
    if (!rates || !limit.at) return limit;
    const known = configured.get(limit.name) ?? limit.at(rates);
    configured.set(limit.name, known);
    return known;
  };
  const byBlock = (limit: Limit, ip: string) => ({
    limit: configuredLimit(limit),
    key: addressBlock(ip),
    ip,
  });

  /** As `attempt` for the operator's secret, limited by address only, so that attackers cannot lock the operator out. */
  const attemptAsOperator = <T>(ip: string, evaluate: () => Promise<T | null>): Promise<T | null> => {
    if (isOff) return evaluate();
    const counted = byBlock(OPERATOR, ip);
    return operators.run(counted.key, async () => {
      await counters.check([counted]);
      const found = await evaluate();
      if (found === null) await counters.count(counted);
      return found;
    });
  };

  return {
    /** Counts a request in this process and returns an error if it exceeds the limit. */
    countRequest(ip: string): AppError | undefined {
      const rejection = isAddressLimited(ip) ? countRequest(ip) : undefined;
      if (rejection) onRefusal?.('requests');
      return rejection;
    },

    /** The same for the requests of an agent for a person, or with an API key, from any address. */
    countRequestOf(key: string, ip: string): AppError | undefined {
      const rejection = isLimited(ip) ? countByKey(key) : undefined;
      if (rejection) onRefusal?.('requests');
      return rejection;
    },

    /** Counts an event of the address block of `ip` and, if it leads to e-mails, of its IPv6 /48. @throws RATE_LIMITED */
    async count(limit: Limit, ip: string): Promise<void> {
      if (!isAddressLimited(ip)) return;
      const counted = byBlock(limit, ip);
      await counters.count(counted);
      // Afterwards, so that what a block is refused does not use up the share of others.
      const { ofNetwork } = counted.limit;
      const network = ofNetwork && addressNetwork(ip);
      if (network) await counters.count({ limit: ofNetwork, key: network, ip });
    },

    /** Counts an event of `key`, from any address. @throws RATE_LIMITED */
    async countKey(limit: Limit, key: string, ip: string): Promise<void> {
      if (isLimited(ip)) await counters.count({ limit, key, ip });
    },

    /** As `countKey`, but returns `false` instead of throwing RATE_LIMITED. */
    async tryCountKey(limit: Limit, key: string, ip: string): Promise<boolean> {
      if (!isLimited(ip)) return true;
      return counters.count({ limit, key, ip }).then(
        () => true,
        (error: unknown) => {
          if ((error as { code?: unknown }).code === 'RATE_LIMITED') return false;
          throw error;
        },
      );
    },

    /**
     * Evaluates a guess at the secret of an account; `evaluate` returns `null` for a wrong one.
     * @param guess.perAddress limits the failures of the address block at all accounts together
     * @throws RATE_LIMITED, for passwords whether or not the password is correct
     */
    attempt<T>(
      { perAddress, ...guess }: Omit<Guess, 'perAddress'> & { perAddress?: Limit },
      evaluate: () => Promise<T | null>,
    ): Promise<T | null> {
      if (isOff) return evaluate();
      const bound = perAddress && isAddressLimited(guess.ip) ? byBlock(perAddress, guess.ip) : undefined;
      return guesses.attempt({ perAddress: bound, ...guess }, evaluate);
    },

    attemptAsOperator,

    /** The same for a route that has to respond while the store fails: attempts are then limited in this process. */
    async attemptAsOperatorInOutage<T>(ip: string, evaluate: () => Promise<T | null>): Promise<T | null> {
      if (isOff) return evaluate();
      try {
        return await attemptAsOperator(ip, evaluate);
      } catch (error) {
        const hasNoTurn = error instanceof AppError && error.code === 'OVERLOADED';
        if (!hasNoTurn && !(error instanceof StoreUnavailable)) throw error;
      }
      const rejection = countInOutage(ip);
      if (rejection) {
        onRefusal?.(OPERATOR.name);
        throw rejection;
      }
      return evaluate();
    },

    /** Trusts the address block of the owner, proven by a registration or an e-mailed link; a right password does it in `attempt`. */
    async trust(account: string, ip: string): Promise<void> {
      if (!isOff) await guesses.trust(account, ip);
    },

    /** The same after a change of the owner or the password, which revokes the trust in all other blocks. */
    async trustOnly(account: string, ip: string): Promise<void> {
      if (!isOff) await guesses.trustOnly(account, ip);
    },

    /** Whether the account trusts the address block: its password or a mailed link of it was used there within 30 days. */
    isTrusted: async (account: string, ip: string): Promise<boolean> =>
      !isOff && (await guesses.isTrusted(account, ip)),

    /** Deletes expired counters. */
    purge(signal: AbortSignal) {
      const until = { now: clock.now(), signal };
      return purgeEach([
        () => purgeExpired(counters.documents, until),
        () => purgeExpired(guesses.sources, until),
      ]);
    },

    /** Counts them, up to `limit` of each kind. */
    countExpired: (limit: number) =>
      countEach(
        [counters.documents, guesses.sources].map((documents) => countExpired(documents, clock.now(), limit)),
      ),
  };
}
