/** Backup of a store to one file. */
import { resolve } from 'node:path';
import { StoreUnavailable } from './collection.js';
import { engineOf } from './engines.js';
import { existingFile } from './existing.js';
import type { BackupProgress } from './sqlite/backup.js';

export type { BackupProgress };

const TOOLS = {
  MongoDB: 'mongodump --uri=<URI> --gzip --archive=',
  PostgreSQL: 'pg_dump --dbname=<URI without schema> --schema=<schema> --format=custom --file=',
};

/**
 * Copies a store, which may be in use, to a new file. The copy contains every write acknowledged before the call.
 *
 * @throws StoreUnavailable if the store does not exist or the file cannot be created
 */
export async function backupStore(uri: string, file: string, onProgress: BackupProgress): Promise<void> {
  const { name } = engineOf(uri);
  if (name !== 'SQLite') {
    const remedy = `Run: ${TOOLS[name]}${file}`;
    throw new StoreUnavailable(`${name} brings its own tool for backups`, { remedy });
  }
  const source = existingFile(uri);
  const { backupSqlite } = await import('./sqlite/backup.js');
  await backupSqlite(source, resolve(file), onProgress);
}
