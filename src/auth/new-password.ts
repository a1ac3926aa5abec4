import { httpErrors } from '../kernel/errors.js';
import type { PasswordPolicy } from '../passwords/common.js';
import type { Passwords } from '../passwords/hasher.js';

/** What every new password goes through, whichever way it comes. */
export interface NewPasswords {
  /** @throws VALIDATION_ERROR for its length and for characters that are none; `path` names the field */
  check(password: string, path?: string): void;
  /** @throws WEAK_PASSWORD where it is one of the common ones, or what everybody knows of its owner; `path` as above */
  validate(password: string, email: string, path?: string): Promise<void>;
}

export function createNewPasswords({
  passwords,
  passwordPolicy,
  siteName,
}: {
  passwords: Passwords;
  passwordPolicy: PasswordPolicy;
  siteName(): Promise<string>;
}): NewPasswords {
  return {
    check(password, path = 'password') {
      const problem = passwords.problem(password);
      if (problem) throw httpErrors.VALIDATION_ERROR({ details: [{ path, message: problem }] });
    },

    validate: async (password, email, path) =>
      passwordPolicy.validate(password, [email, await siteName()], path),
  };
}
