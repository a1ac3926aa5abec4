import { type Clock, every, HOUR, SECOND } from '../kernel/clock.js';
import type { JobLog } from '../ops/jobs.js';
import type { Store } from '../storage/collection.js';

/**
 * Processes on several machines share a store, and with it the times in its documents. Each compares its clock with that of the
 * database server, so that two processes whose clocks differ are found by one of them at least.
 */

/** Clocks that NTP adjusts differ by less than a second. */
const MAX_DIFFERENCE_MS = 5 * SECOND;

/** A difference as a sentence without its subject, and what to do; `null` if there is none. */
export async function clockProblem(
  serverTime: () => Promise<number | null>,
  clock: Clock,
  whose = 'database server',
): Promise<{ differenceMs: number; message: string; remedy: string } | null> {
  const before = clock.now();
  const there = await serverTime();
  if (there === null) return null;
  const after = clock.now();
  const differenceMs = there < before ? before - there : Math.min(0, after - there);
  if (Math.abs(differenceMs) <= MAX_DIFFERENCE_MS) return null;
  const direction = differenceMs > 0 ? 'ahead of' : 'behind';
  return {
    differenceMs,
    message: `is ${Math.round(Math.abs(differenceMs) / SECOND)} seconds ${direction} that of the ${whose}`,
    remedy: 'Synchronize the clocks of all machines (NTP): tokens, codes and limits depend on them.',
  };
}

/** Logs a difference at the start and then every hour, until the returned function is called. */
export function watchClock(
  { serverTime }: Pick<Store, 'serverTime'>,
  { clock, log }: { clock: Clock; log: Pick<JobLog, 'warn'> },
): () => void {
  if (!serverTime) return () => undefined;
  const check = () =>
    clockProblem(serverTime, clock).then(
      (problem) => {
        if (!problem) return;
        const { differenceMs, message, remedy } = problem;
        log.warn({ differenceMs }, `the clock of this process ${message}. ${remedy}`);
      },
      (err: unknown) => log.warn({ err }, 'the clock of the database server cannot be read'),
    );
  void check();
  return every(clock, HOUR, () => void check());
}
