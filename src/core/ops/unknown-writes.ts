import { type Clock, every, SECOND } from '../kernel/clock.js';
import { StoreUnavailable } from '../storage/collection.js';
import { withoutBudget } from '../storage/request-budget.js';
import type { JobLog } from './jobs.js';

/**
 * Writes of this process that failed without a known outcome: the store may have performed them and the response was
 * lost. They are remembered in memory and settled as soon as the store responds.
 */

/**
 * Finds out whether one of the attempts took effect, and completes or reverts it. False: none has, so far. It may add an
 * attempt of its own to the list.
 */
export type Settle<Attempt> = (attempts: Attempt[]) => Promise<boolean>;

export type UnknownWritesRegistry = ReturnType<typeof createUnknownWrites>;

interface Entry {
  what: string;
  lossMessage: string | undefined;
  attempts: unknown[];
  settle(): Promise<boolean>;
  forget(): void;
  /** When a write that had not taken effect is checked again, because it may still be on its way. */
  recheckAt?: number;
}

/** Keys in memory, of all kinds together; beyond it the oldest is dropped. */
const MAX_KEYS = 10_000;

/** Attempts of one key; further ones are not remembered. */
const MAX_ATTEMPTS = 32;

/** Calls at a time, so that a store that has just recovered is not flooded. */
const MAX_CONCURRENT = 16;

/** Attempts in one line of the log. */
const MAX_LOGGED = 100;

const RECHECK_MS = 30 * SECOND;

export function createUnknownWrites({ clock, log }: { clock: Clock; log: Pick<JobLog, 'error'> }) {
  const entries = new Set<Entry>();
  let stopTimer: (() => void) | undefined;
  let settling: Promise<void> | undefined;
  let isClosed = false;

  const settleEntry = async (entry: Entry): Promise<boolean> => {
    const isSettled = await withoutBudget(entry.settle);
    const { recheckAt } = entry;
    if (isSettled || (recheckAt !== undefined && recheckAt <= clock.now())) entry.forget();
    else entry.recheckAt ??= clock.now() + RECHECK_MS;
    return isSettled;
  };

  const settleDue = async (): Promise<void> => {
    const due = [...entries].filter(({ recheckAt = 0 }) => recheckAt <= clock.now());
    for (let from = 0; from < due.length && !isClosed; from += MAX_CONCURRENT) {
      const results = await Promise.allSettled(due.slice(from, from + MAX_CONCURRENT).map(settleEntry));
      const failures = results.flatMap((result, index) =>
        result.status === 'rejected'
          ? [{ err: result.reason as unknown, entry: due[from + index] as Entry }]
          : [],
      );
      for (const { err, entry } of failures) {
        if (err instanceof StoreUnavailable) continue;
        entry.forget();
        log.error({ err, write: entry.what }, 'the outcome of a write could not be determined');
      }
      // The store does not respond yet; the timer tries again.
      if (failures.some(({ err }) => err instanceof StoreUnavailable)) return;
    }
  };

  /** Settles everything that is due. Resolves early while the store does not respond. */
  const settleAll = (): Promise<void> => {
    settling ??= settleDue().finally(() => {
      settling = undefined;
      if (entries.size > 0) return;
      stopTimer?.();
      stopTimer = undefined;
    });
    return settling;
  };

  /** Logs attempts that are given up, of each kind in one line. */
  const report = (lost: readonly Entry[]): void => {
    for (const message of new Set(lost.map(({ lossMessage }) => lossMessage))) {
      if (message === undefined) continue;
      const attempts = lost
        .filter(({ lossMessage }) => lossMessage === message)
        .flatMap((one) => one.attempts);
      log.error({ count: attempts.length, lost: attempts.slice(0, MAX_LOGGED) }, message);
    }
  };

  const add = (entry: Entry): void => {
    if (isClosed) {
      report([entry]);
      return;
    }
    entries.add(entry);
    const [oldest] = entries;
    if (entries.size > MAX_KEYS && oldest) {
      oldest.forget();
      report([oldest]);
    }
    stopTimer ??= withoutBudget(() => every(clock, SECOND, () => void settleAll()));
  };

  return {
    /** @param lossMessage the log message about attempts that are given up; absent: their loss is harmless */
    track<Attempt>(what: string, settle: Settle<Attempt>, lossMessage?: string) {
      const known = new Map<string, Entry>();
      return {
        /** Remembers an attempt if `error` leaves its outcome open. A key can have several attempts. */
        remember(key: string, attempt: Attempt, error: unknown): void {
          if (error instanceof StoreUnavailable && error.mayHaveTakenEffect) this.retry(key, attempt);
        },
        /** Remembers a write that is repeated until it succeeds, whatever its outcome was. */
        retry(key: string, attempt: Attempt): void {
          const entry = known.get(key);
          if (entry) {
            if (entry.attempts.length < MAX_ATTEMPTS) entry.attempts.push(attempt);
            delete entry.recheckAt;
            return;
          }
          const attempts: Attempt[] = [attempt];
          const added: Entry = {
            what,
            lossMessage,
            attempts,
            settle: () => settle(attempts),
            forget() {
              known.delete(key);
              entries.delete(added);
            },
          };
          known.set(key, added);
          add(added);
        },
        /** Settles a key now. False if the outcome is still open, or there is nothing to settle. @throws StoreUnavailable */
        async settle(key: string): Promise<boolean> {
          const entry = known.get(key);
          return entry !== undefined && (await settleEntry(entry));
        },
        /** Forgets a key whose outcome a later call has shown. */
        forget: (key: string): void => known.get(key)?.forget(),
      };
    },
    settleAll,
    /** Settles what it can and stops. Logs what is lost by that. */
    async close() {
      stopTimer?.();
      stopTimer = undefined;
      if (entries.size > 0) await settleAll();
      isClosed = true;
      report([...entries]);
      entries.clear();
    },
  };
}
