import { type Localized, message } from '../http/messages.js';
import type { AppError } from '../kernel/errors.js';

/** Characters are Unicode code points of the normalized password (NFC): four emoji are not eight characters. */
export const PASSWORD_LENGTH = { minCharacters: 8, maxBytes: 1024 };

/**
 * What can be wrong with a new password, as the end of an English sentence for clients of the API. On pages, each has a
 * sentence in the message catalogue: `password.<name>`.
 */
export const PASSWORD_PROBLEMS = {
  unreadable: 'contains characters that are not valid Unicode',
  short: `must be at least ${PASSWORD_LENGTH.minCharacters} characters long`,
  long: `must be at most ${PASSWORD_LENGTH.maxBytes} bytes long, which are fewer characters in some scripts`,
  personal: 'is the e-mail address, the handle or the name of the site',
  common: 'is one of the most common passwords',
  generated: 'must not begin with agp_',
  missing: 'is required: the current password of the account or a new one',
} as const;

/** Why a password was rejected, for the field of a page. Empty if the error has another cause. */
export function passwordSentences({ details = [] }: AppError): Localized[] {
  const problems = Object.entries(PASSWORD_PROBLEMS);
  return details.flatMap((detail) => {
    const [name] = problems.find(([, text]) => text === detail.message) ?? [];
    return name === undefined ? [] : message(`password.${name}`);
  });
}
