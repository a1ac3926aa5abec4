import { idpSchema } from './idp-options.js';
import { defineOptions, resolveOptions } from './kernel/options.js';
import { systemRandom } from './kernel/secrets.js';
import { saasSchema } from './saas-options.js';
import { type BackupProgress, backupStore } from './storage/backup.js';

/** The store's URI is all that a backup asks of a configuration: it needs no secret, and makes none up. */
const storeOf = {
  'saas-backend': defineOptions({ databaseUri: saasSchema.properties.databaseUri }),
  idp: defineOptions({ databaseUri: idpSchema.properties.databaseUri }),
};

/**
 * Copies the store of a program, as its environment names it, into a new file; the program may run meanwhile.
 *
 * @throws ConfigurationError, or an error with a `remedy` when there is nothing to copy or nowhere to put it
 */
export async function backup(
  program: keyof typeof storeOf,
  file: string,
  onProgress: BackupProgress = () => {},
): Promise<void> {
  const source = { program, given: {}, env: undefined, random: systemRandom };
  const { databaseUri } = resolveOptions(storeOf[program], source).values;
  await backupStore(databaseUri, file, onProgress);
}
