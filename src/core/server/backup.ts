import { resolve } from 'node:path';
import type { TProperties } from 'typebox';
import { defineOptions, resolveOptions } from '../config/options.js';
import { systemClock } from '../kernel/clock.js';
import { systemRandom } from '../kernel/secrets.js';
import { StoreUnavailable } from '../storage/collection.js';
import { engineOf } from '../storage/engines.js';
import { existingFile, recordBackup } from '../storage/existing.js';
import type { BackupProgress } from '../storage/sqlite/backup.js';
import { storeOptions } from './options.js';

const TOOLS = {
  MongoDB: 'mongodump --uri=<URI> --gzip --archive=',
  PostgreSQL: 'pg_dump --dbname=<URI without schema> --schema=<schema> --format=custom --file=',
};

/**
 * The store of a program, and other options that its command needs: no secret is required or generated.
 *
 * @throws ConfigurationError
 */
export const resolveStore = <P extends TProperties>(program: keyof typeof storeOptions, more: P) =>
  resolveOptions(defineOptions({ databaseUri: storeOptions[program], ...more }), {
    program,
    given: {},
    env: undefined,
    random: systemRandom,
  });

/**
 * Copies the store of a program, which may be running, to a new file.
 *
 * @throws ConfigurationError, or an error with a `remedy` if the store does not exist or the file cannot be created
 */
export async function backup(
  program: keyof typeof storeOptions,
  file: string,
  { onProgress, onWarning }: { onProgress: BackupProgress; onWarning: (message: string) => void },
): Promise<void> {
  const { databaseUri: uri } = resolveStore(program, {}).values;
  const { name } = engineOf(uri);
  if (name !== 'SQLite') {
    const remedy = `Run: ${TOOLS[name]}${file}`;
    throw new StoreUnavailable(`${name} brings its own tool for backups`, { remedy });
  }
  const source = existingFile(uri);
  const { backupSqlite } = await import('../storage/sqlite/backup.js');
  await backupSqlite(source, resolve(file), onProgress);
  try {
    recordBackup(source, systemClock.now());
  } catch (error) {
    onWarning(
      `The backup is complete, but its time cannot be recorded beside ${source}: ${(error as Error).message}`,
    );
  }
}
