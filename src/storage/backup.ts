/** From a store's URI to a copy of the store in one file. */
import { resolve } from 'node:path';
import { StoreUnavailable } from './collection.js';
import { existingFile } from './existing.js';
import { storeUriProblem } from './open.js';

/** How far a copy is, in bytes. It becomes about as large as its source, less what is free there. */
export type BackupProgress = (written: number, source: number) => void;

/**
 * Copies the store that a URI names into a new file, while programs go on writing to it. Every write that was
 * acknowledged before the call is in the copy.
 *
 * @throws StoreUnavailable when there is nothing to copy or nowhere to put it
 */
export async function backupStore(uri: string, file: string, onProgress: BackupProgress): Promise<void> {
  const problem = storeUriProblem(uri);
  if (problem) throw new TypeError(problem);
  if (!uri.startsWith('sqlite:')) {
    const remedy = `Run: mongodump --uri=<URI> --gzip --archive=${file}`;
    throw new StoreUnavailable('MongoDB brings its own tool for backups', { remedy });
  }
  const source = existingFile(uri);
  const { backupSqlite } = await import('./sqlite/backup.js');
  await backupSqlite(source, resolve(file), onProgress);
}
