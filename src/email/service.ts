import { toTimestamp } from '../http/schemas.js';
import { type Clock, DAY } from '../kernel/clock.js';
import { newId, type Random, sha256 } from '../kernel/secrets.js';
import type { Job, JobLog } from '../ops/jobs.js';
import { nullIfTaken } from '../storage/collection.js';
import { firstPagesOf, mapPages } from '../storage/pages.js';
import { createRelay } from './relay.js';
import { isAddress } from './schemas.js';
import type { MailStatus, Mails, SendCondition } from './store.js';
import { checkValues, type MailName, type RenderedMail, sampleValues, type Templates } from './templates.js';
import { DeliveryError, type Message, type Outcome, type Transport } from './transport.js';

/** A mail to be sent. */
export interface Mail {
  /** Identifies the occasion: a second put with the same key replaces a mail that was never attempted, and no other. */
  key: string;
  /** The account that it is about: exported and deleted with it. */
  userId?: string;
  /** One address, as stored: never one that a request has just sent. */
  to: string;
  template: MailName;
  /** The values of the template. A `link` begins with PUBLIC_URL. `siteName` and `siteUrl` are added. */
  values: Record<string, string>;
  /** Whether it is sent even when the operator has switched off notification mails. */
  security: boolean;
  /** For a mail that is put before the change it is about. Without that change it is never sent. */
  sendCondition?: SendCondition;
  /** Epoch milliseconds; a mail that could not be sent until then is dropped. */
  expiresAt: number;
}

/** The outbox of the other domains. */
export interface Outbox {
  /** Resolves when the mail is stored: from then on it survives a crash. */
  put(mail: Mail): Promise<void>;
}

/** A mail as its receiver may see it. */
export interface MailSummary {
  template: MailName;
  to: string;
  status: MailStatus;
  /** ISO 8601, UTC. */
  createdAt: string;
  endedAt?: string;
}

export interface EmailService extends Outbox {
  /** The mails about an account, to any address, the newest first, without their content. */
  listOf(userId: string): AsyncIterable<MailSummary[]>;
  /** Removes all mails about an account, sent or not. */
  deleteOf(userId: string): Promise<void>;
  /** Renders a mail with sample values. */
  preview(name: MailName): Promise<RenderedMail>;
  /** Sends such a sample at once. @throws DeliveryError with a message for the operator */
  sendTest(to: string, name?: MailName): Promise<Outcome>;
  /** Sends queued mails; removes old ones. */
  jobs: { relay: Job; purge: Job };
  close(): Promise<void>;
}

export interface EmailServiceOptions {
  mails: Mails;
  templates: Templates;
  transport: Transport;
  /** Defaults: the name of the site, and `no-reply@` its host. */
  from: { email: string | undefined; name: string | undefined };
  publicUrl: () => string;
  settings: () => Promise<{ siteName: string; emailNotifications: boolean }>;
  /** The current value of a version field of a user; `null` when there is no such user. */
  versionOf: (userId: string, versionField: string) => Promise<number | null>;
  /** Called after a put, so that the relay runs soon. */
  wake: () => void;
  clock: Clock;
  random: Random;
  log: JobLog;
}

const MAX_LISTED = 1000;

/** How long the outcome of a mail is stored. */
const RETENTION_MS = 30 * DAY;

export function createEmail(options: EmailServiceOptions): EmailService {
  const { mails, templates, transport, from, publicUrl, settings, wake, clock, random } = options;

  /** Everything but the recipient. */
  const compose = async (name: MailName, values: Record<string, string>) => {
    const { siteName } = await settings();
    const siteUrl = publicUrl();
    const address = from.email ?? `no-reply@${new URL(siteUrl).hostname}`;
    return {
      template: name,
      from: { name: from.name ?? siteName, address },
      ...templates.render(name, { ...values, siteName, siteUrl }),
    };
  };

  const messageOf = async (mail: Pick<Mail, 'key' | 'to' | 'template' | 'values'>): Promise<Message> => {
    const composed = await compose(mail.template, mail.values);
    const [, host = 'localhost'] = composed.from.address.split('@');
    return { ...composed, to: mail.to, messageId: `<${sha256(mail.key)}@${host}>` };
  };

  return {
    async put({ key, userId, to, template, values, security, sendCondition, expiresAt }) {
      checkValues(template, values);
      if (values['link'] !== undefined) checkLink(values['link'], publicUrl());
      if (!isAddress(to)) throw new TypeError('A mail goes to exactly one address.');
      const now = clock.now();
      const mail = {
        ...(userId && { userId }),
        to,
        template,
        values,
        security,
        ...(sendCondition && { after: storedCondition(sendCondition) }),
        expiresAt,
        status: 'queued' as const,
        dueAt: now,
        createdAt: now,
      };
      const isNew = await mails
        .insert({ id: newId('mail_', clock, random), key, attempts: 0, ...mail })
        .then(() => true, nullIfTaken);
      // An earlier mail of this occasion may have been dropped because its change failed.
      if (!isNew) await mails.updateOne({ key, attempts: 0 }, { set: mail, unset: ['endedAt', 'reason'] });
      wake();
    },

    listOf(userId) {
      const pages = firstPagesOf(mails, { where: { userId }, sort: 'id', desc: true }, MAX_LISTED);
      return mapPages(pages, ({ template, to, status, createdAt, endedAt }) => ({
        template,
        to,
        status,
        createdAt: toTimestamp(createdAt),
        ...(endedAt !== undefined && { endedAt: toTimestamp(endedAt) }),
      }));
    },

    async deleteOf(userId) {
      await mails.deleteMany({ userId });
    },

    async preview(name) {
      const { subject, text, html } = await compose(name, sampleValues(name, publicUrl()));
      return { subject, text, html };
    },

    async sendTest(to, name = 'welcome') {
      if (!isAddress(to)) throw new DeliveryError('this is not one address', true);
      const key = newId('test_', clock, random);
      const message = await messageOf({ key, to, template: name, values: sampleValues(name, publicUrl()) });
      return transport.send(message, new AbortController().signal);
    },

    jobs: {
      relay: { everySeconds: 5, run: createRelay({ ...options, messageOf }) },
      purge: {
        everySeconds: 3600,
        async run() {
          await mails.deleteMany({ endedAt: { lt: clock.now() - RETENTION_MS } });
        },
      },
    },

    close: transport.close,
  };
}

const storedCondition = ({ userId, versionField, minVersion }: SendCondition) => ({
  userId,
  is: versionField,
  reaches: minVersion,
});

/** Links in mails lead to the application only. */
function checkLink(link: string, publicUrl: string): void {
  const [url, base] = [URL.canParse(link) ? new URL(link) : null, new URL(publicUrl)];
  const path = base.pathname.replace(/\/$/, '');
  const isBelow = url?.pathname === path || url?.pathname.startsWith(`${path}/`);
  if (url?.origin !== base.origin || !isBelow || url.username || url.password) {
    throw new TypeError('The link of a mail must begin with PUBLIC_URL.');
  }
}
