import type { Localized, Messages } from '../../core/http/messages.js';
import type { Clock } from '../../core/kernel/clock.js';
import { newId, type Random } from '../../core/kernel/secrets.js';
import { type Effect, effectOf } from '../../core/ops/commit.js';
import { nullIfTaken } from '../../core/storage/collection.js';
import type { MailContent } from './content.js';
import { isEmailAddress } from './schemas.js';
import type { Mails, SendCondition } from './store.js';
import { hasSecretLink, localizeMailValues, type MailName, validateValues } from './templates.js';

/** A mail to be sent. */
export interface Mail {
  /** Idempotency key: a second `put` replaces the mail if it was never attempted, and is ignored otherwise. */
  key: string;
  /** The account that the mail is about; the mail is exported and deleted with it. */
  userId?: string;
  /** One address, as stored in the account and never directly from a request. */
  to: string;
  template: MailName;
  /** The values of the template. A `link` begins with PUBLIC_URL. `siteName` and `siteUrl` are added. */
  values: Record<string, string | Localized>;
  /** The language of the recipient, if known. */
  locale?: string | undefined;
  /** Whether the mail is sent even when the operator has disabled notification mails. */
  security: boolean;
  /** For a mail that is enqueued before the change it reports: it is never sent without that change. */
  sendCondition?: SendCondition;
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
  /** Called after `put`, so that the relay runs soon. */
  wake: () => void;
  clock: Clock;
  random: Random;
}

export function createOutbox(options: OutboxOptions) {
  const { mails, content, messages, publicUrl, wake, clock, random } = options;
  const documentOf = ({
    key,
    userId,
    to,
    template,
    locale,
    security,
    sendCondition,
    expiresAt,
    ...mailed
  }: Mail) => {
    const values = localizeMailValues(mailed.values, messages.catalogue(locale));
    validateValues(template, values);
    if (values['link'] !== undefined) validateLink(values['link'], publicUrl());
    if (!isEmailAddress(to)) throw new TypeError('A mail goes to exactly one address.');
    if (!content && hasSecretLink(template))
      throw new TypeError(`The link of '${template}' needs encryption.`);
    const now = clock.now();
    return {
      ...(userId && { userId }),
      to,
      template,
      ...(content ? { content: content.encrypt(key, values) } : { values }),
      ...(locale !== undefined && { locale }),
      security,
      ...(sendCondition && { sendCondition }),
      expiresAt,
      status: 'queued' as const,
      dueAt: now,
      createdAt: now,
    };
  };
  return {
    /** A mail about a change, for the commit of that change. It is enqueued once: one with the same key stays as it is. */
    mail(mail: Mail): Effect {
      const id = newId('mail_', clock, random);
      const write = mails.ensuring({ id, key: mail.key, attempts: 0, ...documentOf(mail) });
      return effectOf(write, wake);
    },

    /** Enqueues a mail. It survives a crash once the promise resolves. */
    async put(given: Mail) {
      const { key } = given;
      const mail = documentOf(given);
      const isInserted = await mails
        .insert({ id: newId('mail_', clock, random), key, attempts: 0, ...mail })
        .then(() => true, nullIfTaken);
      // A mail with the same key may have been dropped because its change failed.
      if (!isInserted)
        await mails.updateOne(
          { key, attempts: 0 },
          { set: mail, unset: ['endedAt', 'reason', content ? 'values' : 'content'] },
        );
      wake();
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
