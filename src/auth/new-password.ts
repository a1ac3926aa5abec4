import { httpErrors } from '../kernel/errors.js';
import type { Origin } from '../kernel/http.js';
import type { Passwords } from '../kernel/passwords.js';
import type { PasswordPolicy } from '../kernel/passwords-common.js';

/** What every new password goes through, whichever way it comes. */
export interface NewPasswords {
  /** @throws VALIDATION_ERROR for its length and for characters that are none; `path` names the field */
  check(password: string, path?: string): void;
  /** Its hash. @throws WEAK_PASSWORD, OVERLOADED */
  hash(password: string, email: string, origin: Pick<Origin, 'isGone'>): Promise<string>;
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

    async hash(password, email, { isGone }) {
      await passwordPolicy.judge(password, [email, await siteName()]);
      return passwords.hash(password, isGone);
    },
  };
}
