/** What SQLite's refusals mean: to try again, to tell the operator, or none of its own. */
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { StoreUnavailable } from './collection.js';

// https://www.sqlite.org/rescode.html, primary codes.
const BUSY = 5;
const PERMISSION = 'Let this user write the file and its folder.';
const LOCKED = 'End the process that holds it locked.';
/** What is not the statement's fault, and what to do about it. */
const REMEDIES = new Map([
  [3, PERMISSION],
  [BUSY, LOCKED],
  [7, 'Give the process more memory.'],
  [8, PERMISSION],
  [10, 'Check the disk.'],
  [11, 'It is damaged: restore the last backup.'],
  [13, 'Free some space on the disk.'],
  [14, PERMISSION],
  [15, LOCKED],
  [26, 'Name another file, or restore the last backup.'],
]);

/** Tries a step again, by timer and with jitter, while another process holds the lock. */
export async function whileBusy<T>(step: () => T, patience: number): Promise<T> {
  const since = performance.now();
  for (let pause = 2; ; pause = Math.min(2 * pause, 64)) {
    try {
      return step();
    } catch (error) {
      if (!isBusy(error) || performance.now() - since > patience) throw failure(error);
    }
    await sleep(pause * (0.5 + Math.random()));
  }
}

/** The error to throw: StoreUnavailable for what the caller cannot help, else the error itself. */
export function failure(error: unknown): unknown {
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
