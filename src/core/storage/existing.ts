/** Looks up the file of a store without creating it. */
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { StoreUnavailable } from './collection.js';
import { rejectFolder } from './sqlite/file.js';

const MEMORY = 'sqlite::memory:';

/** The file of a SQLite URI; `null` for a store in memory or at a server. */
export const fileOf = (uri: string): string | null =>
  uri.startsWith('sqlite:') && uri !== MEMORY ? resolve(uri.slice('sqlite:'.length)) : null;

/** The file of a SQLite URI. @throws StoreUnavailable if it does not exist */
export function existingFile(uri: string): string {
  const file = fileOf(uri);
  if (file === null) {
    const remedy = 'Use a SQLite file.';
    throw new StoreUnavailable('an in-memory store is lost when its program stops', { remedy });
  }
  rejectFolder(file);
  let why = '';
  try {
    if (statSync(file).isFile()) return file;
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (!['ENOENT', 'ENOTDIR'].includes(code)) why = ` (${code})`;
  }
  const remedy = 'Use an existing store file, or start the program once to create it.';
  throw new StoreUnavailable(`there is no file ${file}${why}`, { remedy });
}

/** @throws StoreUnavailable if the URI names a SQLite file that does not exist. Servers report a missing database themselves. */
export function requireExisting(uri: string): void {
  if (uri.startsWith('sqlite:')) existingFile(uri);
}

/** The file that opening a store would create; `null` if it would create none. */
export function missingFile(uri: string): string | null {
  const file = fileOf(uri);
  try {
    return file === null || statSync(file, { throwIfNoEntry: false }) ? null : file;
  } catch {
    // Opening the store reports the error.
    return null;
  }
}

/** Where the file of a backup's time is, beside the database. */
const backupRecordOf = (file: string): string => `${file}-backup`;

/** Records when a backup was finished, for the metrics of the server. @throws if the folder is not writable */
export const recordBackup = (file: string, at: number): void =>
  writeFileSync(backupRecordOf(file), `${JSON.stringify({ finishedAt: at })}\n`);

/** When the last backup of a store was finished, as Unix time in milliseconds; `undefined` if none is recorded. */
export function lastBackup(uri: string): number | undefined {
  const file = fileOf(uri);
  try {
    return file === null ? undefined : JSON.parse(readFileSync(backupRecordOf(file), 'utf8')).finishedAt;
  } catch {
    // There was no backup, or the file is being written.
    return undefined;
  }
}
