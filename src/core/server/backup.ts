import { defineOptions, resolveOptions } from '../config/options.js';
import { systemRandom } from '../kernel/secrets.js';
import { type BackupProgress, backupStore } from '../storage/backup.js';
import { storeOptions } from './options.js';

/**
 * Copies the store of a program, which may be running, to a new file.
 *
 * @throws ConfigurationError, or an error with a `remedy` if the store does not exist or the file cannot be created
 */
export async function backup(
  program: keyof typeof storeOptions,
  file: string,
  onProgress: BackupProgress = () => {},
): Promise<void> {
  const source = { program, given: {}, env: undefined, random: systemRandom };
  // A backup needs no option except the URI of the store, and must not require or generate secrets.
  const { databaseUri } = resolveOptions(
    defineOptions({ databaseUri: storeOptions[program] }),
    source,
  ).values;
  await backupStore(databaseUri, file, onProgress);
}
