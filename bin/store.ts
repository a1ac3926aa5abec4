import type { AppError } from '../src/core/kernel/errors.js';
import type { Program } from './program.js';
import { fail, sentences } from './terminal.js';

/** Runs `work` on what `open` opens, and closes it. A known error becomes a message and exit code 1. */
export async function withStore<T extends { close(): Promise<void> }>(
  { name, storeVariable }: Program,
  open: () => Promise<T>,
  work: (opened: T) => Promise<void>,
): Promise<void> {
  let opened: T | undefined;
  try {
    opened = await open();
    await work(opened);
  } catch (error) {
    const { name: kind, details = [], message } = error as AppError;
    if (kind === 'StoreUnavailable') {
      fail(1, `${name} cannot use the store that ${storeVariable} names: ${sentences(error as Error)}`);
    }
    if (kind !== 'AppError') throw error;
    fail(1, [message, ...details.map(({ path, message: reason }) => `  ${path} ${reason}`)].join('\n'));
  } finally {
    await opened?.close();
  }
}
