import { readFile } from 'node:fs/promises';
import { defineErrors } from '../kernel/errors.js';

/** Passwords that everybody tries first. */

export const passwordErrors = defineErrors({
  WEAK_PASSWORD: [422, 'This password is too easy to guess. Choose a different one.'],
});

export interface PasswordPolicy {
  /**
   * Judges a new password.
   *
   * @param own what others know of its owner: the address or handle, the name of the site; the part of an address
   *   before the @ counts, too
   * @param path the field that it came in
   * @throws WEAK_PASSWORD in production; elsewhere the log says what production would do
   */
  validate(password: string, own: readonly string[], path?: string): Promise<void>;
}

/** @param warn writes to the log; it never gets the password */
export function createPasswordPolicy(production: boolean, warn: (message: string) => void): PasswordPolicy {
  return {
    async validate(password, own, path = 'password') {
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
  const plain = folded(password);
  const known = own.flatMap((name) => [name, name.replace(/@[^@]*$/, '')]).map(folded);
  if (known.includes(plain)) return 'is the e-mail address, the handle or the name of the site';
  common ??= readCommon().catch((error: unknown) => {
    common = undefined;
    throw error;
  });
  return (await common).has(plain) ? 'is one of the most common passwords' : null;
}

/** Read when the first password is chosen: a server that nobody registers at does without. */
let common: Promise<ReadonlySet<string>> | undefined;

async function readCommon(): Promise<ReadonlySet<string>> {
  const text = await readFile(new URL('../../../lists/common-passwords.txt', import.meta.url), 'utf8');
  // The notice of its origin ends with the first empty line.
  return new Set(text.slice(text.indexOf('\n\n') + 2).split('\n'));
}

const folded = (text: string): string => text.normalize('NFC').toLowerCase();
