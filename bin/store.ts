import type { AppError } from '../src/core/kernel/errors.js';
import type { Program } from './program.js';
import { fail, sentences } from './terminal.js';

/** The programs, for commands of one of them. */
export const SAAS = { name: 'saas-backend', storeVariable: 'DATABASE_URI' } as const;
export const IDP = { name: 'idp', storeVariable: 'IDP_DATABASE_URI' } as const;

/** For the promise of work on a store: a known error becomes a message and exit code 1. */
export const explaining =
  ({ name, storeVariable }: Pick<Program, 'name' | 'storeVariable'>) =>
  (error: unknown): never => {
    const { name: kind, code, details = [], message } = error as AppError;
    if (kind === 'StoreUnavailable') {
      fail(
        1,
        `${name} cannot use the store that ${storeVariable} names: ${sentences(error as Error)}`,
        'STORE_UNAVAILABLE',
      );
    }
    if (kind !== 'AppError') throw error;
    return fail(
      1,
      [message, ...details.map(({ path, message: reason }) => `  ${path} ${reason}`)].join('\n'),
      code,
    );
  };

/** Runs `work` on what `open` opens, and closes it, with errors as for {@link explaining}. */
export async function withStore<T extends { close(): Promise<void> }, R>(
  program: Pick<Program, 'name' | 'storeVariable'>,
  open: () => Promise<T>,
  work: (opened: T) => Promise<R>,
): Promise<R> {
  let opened: T | undefined;
  try {
    opened = await open();
    return await work(opened);
  } catch (error) {
    return explaining(program)(error);
  } finally {
    await opened?.close();
  }
}
