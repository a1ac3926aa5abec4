/** Classifies SQLite's errors: retry, report to the operator, or rethrow. */
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { StoreUnavailable } from '../collection.js';

// https://www.sqlite.org/rescode.html, primary codes.
const BUSY = 5;
const PERMISSION = 'Grant this user write access to the file and its folder.';
const LOCKED = 'Stop the process that holds the lock.';
/** Errors that the statement did not cause, and their remedies. */
const REMEDIES = new Map([
  [3, PERMISSION],
  [BUSY, LOCKED],
  [7, 'Give the process more memory.'],
  [8, PERMISSION],
  [10, 'Check the disk.'],
  [11, 'The file is damaged: restore the last backup.'],
  [13, 'Free up disk space.'],
  [14, PERMISSION],
  [15, LOCKED],
  [26, 'Choose another file, or restore the last backup.'],
]);

/** Retries a step by timer, with jitter, while another process holds the lock. */
export async function retryWhileBusy<T>(step: () => T, lockTimeoutMs: number): Promise<T> {
  const since = performance.now();
  for (let pause = 2; ; pause = Math.min(2 * pause, 64)) {
    try {
      return step();
    } catch (error) {
      if (!isBusy(error) || performance.now() - since > lockTimeoutMs) throw toStoreError(error);
    }
    await sleep(pause * (0.5 + Math.random()));
  }
}

/** Converts errors that the caller did not cause to StoreUnavailable; returns other errors unchanged. */
export function toStoreError(error: unknown): unknown {
  const remedy = REMEDIES.get(primaryCode(error) ?? 0);
  if (remedy === undefined) return error;
  return new StoreUnavailable(`SQLite: ${(error as Error).message}`, { cause: error, remedy });
}

/** Whether another connection held the lock. */
export function isBusy(error: unknown): boolean {
  return primaryCode(error) === BUSY;
}

function primaryCode(error: unknown): number | undefined {
  const code = (error as { errcode?: unknown } | null)?.errcode;
  return typeof code === 'number' ? code & 0xff : undefined;
}
