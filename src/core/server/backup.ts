import type { TProperties } from 'typebox';
import { defineOptions, resolveOptions } from '../config/options.js';
import { systemRandom } from '../kernel/secrets.js';
import { type BackupProgress, backupStore } from '../storage/backup.js';
import { storeOptions } from './options.js';

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
  onProgress: BackupProgress = () => {},
): Promise<void> {
  await backupStore(resolveStore(program, {}).values.databaseUri, file, onProgress);
}
