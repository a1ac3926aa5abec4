/** Backup of a store to one file. */
import { resolve } from 'node:path';
import { StoreUnavailable } from './collection.js';
import { existingFile } from './existing.js';
import { storeUriProblem } from './open.js';
import type { BackupProgress } from './sqlite/backup.js';

export type { BackupProgress };

/**
 * Copies a store, which may be in use, to a new file. The copy contains every write acknowledged before the call.
 *
 * @throws StoreUnavailable if the store does not exist or the file cannot be created
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
