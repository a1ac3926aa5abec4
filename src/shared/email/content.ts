import { createEncryption } from '../../core/kernel/encryption.js';
import type { Random } from '../../core/kernel/secrets.js';
import type { MailDocument } from './store.js';

/** The values of mails, which contain links and codes, in the form in which they are stored. */
export type MailContent = ReturnType<typeof createMailContent>;

export interface MailContentOptions {
  /** The current secret first. */
  secrets: readonly string[];
  /** The variable that names a secret of before. */
  previousVariable: string;
  random: Random;
}

export function createMailContent({ secrets, previousVariable, random }: MailContentOptions) {
  const encryption = createEncryption({
    keys: secrets,
    purpose: 'contents of mails',
    unreadable: () =>
      `it was encrypted with a secret that is not configured any more: set ${previousVariable} to that secret until it is sent`,
    random,
  });
  return {
    encrypt: (key: string, values: Record<string, string>): string =>
      encryption.encrypt(key, JSON.stringify(values)),
    /** Undefined if the mail is finished. @throws Error with the remedy if no configured secret has encrypted it */
    decrypt({
      key,
      content,
      values,
    }: Pick<MailDocument, 'key' | 'content' | 'values'>): Record<string, string> | undefined {
      // Commands store the values themselves.
      return content === undefined ? values : JSON.parse(encryption.decrypt(key, content));
    },
  };
}
