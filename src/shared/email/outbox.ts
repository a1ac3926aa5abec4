import type { Localized, Messages } from '../../core/http/messages.js';
import type { Clock } from '../../core/kernel/clock.js';
import { newId, type Random } from '../../core/kernel/secrets.js';
import { type Effect, effectOf } from '../../core/ops/commit.js';
import type { MailContent } from './content.js';
import { isEmailAddress } from './schemas.js';
import type { Mails } from './store.js';
import { hasSecretLink, localizeMailValues, type MailName, validateValues } from './templates.js';

/** A mail to be sent. */
export interface Mail {
  /** Idempotency key: a mail with the key of another one is not enqueued. */
  key: string;
  /** The account that the mail is about; the mail is exported and deleted with it. */
  userId?: string;
  /** One address, as stored in the account and never directly from a request. */
  to: string;
  template: MailName;
  /** The values of the template. A `link` begins with PUBLIC_URL, and `invoiceLink` is the payment provider's. `siteName` and `siteUrl` are added. */
  values: Record<string, string | Localized>;
  /** The language of the recipient, if known. */
  locale?: string | undefined;
  /** Whether the mail is sent even when the operator has disabled notification mails. */
  security: boolean;
  /** Unix time in milliseconds. A mail that could not be sent by then expires. */
  expiresAt: number;
}

/** How other domains send mails. */
export type Outbox = ReturnType<typeof createOutbox>;

export interface OutboxOptions {
  mails: Mails;
  /** Absent in commands, which do not know the secrets of the server and enqueue no mail with a secret link. */
  content?: MailContent;
  messages: Pick<Messages, 'catalogue'>;
  publicUrl: () => string;
  /** Called after a commit with a mail, so that the relay runs soon. */
  wake: () => void;
  clock: Clock;
  random: Random;
}

export function createOutbox(options: OutboxOptions) {
  const { mails, content, messages, publicUrl, wake, clock, random } = options;
  return {
    /** A mail about a change, for the commit of that change. @throws TypeError for a mail that must not be sent */
    mail({ values: given, locale, ...mail }: Mail): Effect {
      const { key, to, template } = mail;
      const values = localizeMailValues(given, messages.catalogue(locale));
      validateValues(template, values);
      if (values['link'] !== undefined) validateLink(values['link'], publicUrl());
      if (values['invoiceLink'] !== undefined && !/^https:\/\//.test(values['invoiceLink']))
        throw new TypeError('The page of an invoice is at an https address.');
      if (!isEmailAddress(to)) throw new TypeError('A mail goes to exactly one address.');
      if (!content && hasSecretLink(template))
        throw new TypeError(`The link of '${template}' needs encryption.`);
      const now = clock.now();
      const write = mails.ensuring({
        id: newId('mail_', clock, random),
        ...mail,
        ...(content ? { content: content.encrypt(key, values) } : { values }),
        ...(locale !== undefined && { locale }),
        status: 'queued',
        attempts: 0,
        dueAt: now,
        createdAt: now,
      });
      return effectOf(write, wake);
    },

    /** Deletes all mails about an account, sent or not. */
    async deleteByUser(userId: string) {
      await mails.deleteMany({ userId });
    },
  };
}

/** Mails may only link to the application itself. */
function validateLink(link: string, publicUrl: string): void {
  const [url, base] = [URL.canParse(link) ? new URL(link) : null, new URL(publicUrl)];
  const path = base.pathname.replace(/\/$/, '');
  const isBelow = url?.pathname === path || url?.pathname.startsWith(`${path}/`);
  if (url?.origin !== base.origin || !isBelow || url.username || url.password) {
    throw new TypeError('The link of a mail must begin with PUBLIC_URL.');
  }
}
