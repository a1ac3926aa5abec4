/** Creates the file of a store, or checks whether it can be created. */
import { closeSync, existsSync, mkdirSync, openSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { StoreUnavailable } from '../collection.js';
import { tryCreation } from './trial.js';

/** Creates the file with mode 0600, which SQLite copies to its log and shared memory. @throws StoreUnavailable */
export function createDatabaseFile(file: string): void {
  rejectFolder(file);
  try {
    create(file);
  } catch (error) {
    throw cannotCreate(file, error);
  }
}

/**
 * Checks whether {@link createDatabaseFile} would succeed for a missing file, without creating it.
 *
 * @throws StoreUnavailable
 */
export function tryDatabaseFile(file: string): void {
  rejectFolder(file);
  try {
    tryCreation(file, create);
  } catch (error) {
    throw cannotCreate(file, error);
  }
}

function create(file: string): void {
  createFolder(dirname(file));
  try {
    // Exclusive creation only: closing any descriptor of a file drops all POSIX locks of this process on it.
    closeSync(openSync(file, 'ax', 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/** Node's `recursive` option never returns if mkdir fails with ENOENT although the parent exists, as in /proc. */
function createFolder(folder: string): void {
  if (existsSync(folder)) return;
  createFolder(dirname(folder));
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    // Another process was first.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/** The error of SQLite would not name the reason. @throws StoreUnavailable */
export function rejectFolder(file: string): void {
  if (!isFolder(file)) return;
  const remedy = `Choose a file in it, like sqlite:${join(file, 'app.db')}.`;
  throw new StoreUnavailable(`${file} is a folder`, { remedy });
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    // Creating or opening the file reports the error.
    return false;
  }
}

function cannotCreate(file: string, cause: unknown): StoreUnavailable {
  const remedy = 'Choose a file in a folder where this user can write.';
  return new StoreUnavailable(`cannot create ${file}: ${(cause as NodeJS.ErrnoException).code}`, {
    cause,
    remedy,
  });
}
