import { defineOptions, resolveOptions } from '../config/options.js';
import { systemRandom } from '../kernel/secrets.js';
import { type BackupProgress, backupStore } from '../storage/backup.js';
import { storeOptions } from './options.js';

/**
 * Copies the store of a program, as its environment names it, into a new file; the program may run meanwhile.
 *
 * @throws ConfigurationError, or an error with a `remedy` when there is nothing to copy or nowhere to put it
 */
export async function backup(
  program: keyof typeof storeOptions,
  file: string,
  onProgress: BackupProgress = () => {},
): Promise<void> {
  const source = { program, given: {}, env: undefined, random: systemRandom };
  // Of the whole configuration a backup needs the store only, so it requires no secret and generates none.
  const { databaseUri } = resolveOptions(
    defineOptions({ databaseUri: storeOptions[program] }),
    source,
  ).values;
  await backupStore(databaseUri, file, onProgress);
}
