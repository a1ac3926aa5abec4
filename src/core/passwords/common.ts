import { readFile } from 'node:fs/promises';
import { defineErrors } from '../kernel/errors.js';
import { packageFile } from '../kernel/package-files.js';
import { PASSWORD_PROBLEMS } from './problems.js';

/** Rejects common passwords and those derived from the account. */

export const passwordErrors = defineErrors({
  WEAK_PASSWORD: [422, 'This password is too easy to guess. Choose a different one.'],
});

export type PasswordPolicy = ReturnType<typeof createPasswordPolicy>;

/** @param warn logs a message, which never contains the password */
export function createPasswordPolicy(production: boolean, warn: (message: string) => void) {
  return {
    /**
     * Validates a new password.
     *
     * @param own words that are easy to guess: the e-mail address, its local part, the handle, the name of the site
     * @param path the field of the request
     * @throws WEAK_PASSWORD in production; otherwise logs a warning
     */
    async validate(password: string, own: readonly string[], path: string = 'password') {
      const reason = await weakness(password, own);
      if (reason === null) return;
      if (!production) {
        warn(`A new password ${reason}. Production rejects it.`);
        return;
      }
      throw passwordErrors.WEAK_PASSWORD({ details: [{ path, message: reason }] });
    },
  };
}

async function weakness(password: string, own: readonly string[]): Promise<string | null> {
  const plain = normalize(password);
  const known = own.flatMap((name) => [name, name.replace(/@[^@]*$/, '')]).map(normalize);
  if (known.includes(plain)) return PASSWORD_PROBLEMS.personal;
  common ??= readCommon().catch((error: unknown) => {
    common = undefined;
    throw error;
  });
  return (await common).has(plain) ? PASSWORD_PROBLEMS.common : null;
}

/** Read when the first new password is validated. */
let common: Promise<ReadonlySet<string>> | undefined;

async function readCommon(): Promise<ReadonlySet<string>> {
  const text = await readFile(packageFile('src/core/passwords/common-passwords.txt'), 'utf8');
  // The licence notice ends with the first empty line.
  return new Set(text.slice(text.indexOf('\n\n') + 2).split('\n'));
}

const normalize = (text: string): string => text.normalize('NFC').toLowerCase();
