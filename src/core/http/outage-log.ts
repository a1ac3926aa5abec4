import type { FastifyBaseLogger } from 'fastify';
import { type Clock, every, SECOND, systemClock } from '../kernel/clock.js';

/**
 * Logs an outage of the store in a few lines. Without it, every request that an outage rejects would log its error, with a stack
 * trace, as fast as clients repeat their requests.
 */
export type OutageLog = ReturnType<typeof createOutageLog>;

/** An outage has ended when no request failed for this time; until then, the failures of each interval are logged. */
export const OUTAGE_INTERVAL_MS = 10 * SECOND;

export function createOutageLog(clock: Clock = systemClock) {
  let isOutage = false;
  let failures = 0;
  let total = 0;

  const begin = (log: FastifyBaseLogger): void => {
    isOutage = true;
    total = 0;
    const stop = every(clock, OUTAGE_INTERVAL_MS, () => {
      total += failures;
      if (failures > 0) {
        log.warn({ failures, total }, 'further requests failed because the store is not available');
      } else {
        log.info({ total }, 'no request fails any more because of the store');
        isOutage = false;
        stop();
      }
      failures = 0;
    });
  };

  return {
    /** Logs the first failure of an outage and counts the following ones. */
    record(log: FastifyBaseLogger, failure: { err: Error; requestId: string }, message: string) {
      if (isOutage) {
        failures++;
        return;
      }
      log.warn(failure, message);
      begin(log);
      total = 1;
    },
  };
}

/** By name, because a host may pass on the error of another copy of this package. */
export function isStoreFailure(error: unknown): error is Error {
  return error instanceof Error && error.name === 'StoreUnavailable';
}
