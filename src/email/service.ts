import { toTimestamp } from '../http/schemas.js';
import { type Clock, DAY } from '../kernel/clock.js';
import { newId, type Random, sha256 } from '../kernel/secrets.js';
import type { Job, JobLog } from '../ops/jobs.js';
import { nullIfTaken } from '../storage/collection.js';
import { firstPagesOf, mapPages } from '../storage/pages.js';
import { createRelay } from './relay.js';
import { isAddress } from './schemas.js';
import type { After, MailStatus, Mails } from './store.js';
import { checkValues, type MailName, type RenderedMail, sampleValues, type Templates } from './templates.js';
import { DeliveryError, type Message, type Outcome, type Transport } from './transport.js';

/** A mail to be sent. */
export interface Mail {
  /** Names the occasion: a second put with the same key replaces a mail that was never attempted, and changes no other. */
  key: string;
  /** Whose account it is about: theirs to export, and gone with them. */
  userId?: string;
  /** One address, as stored: never what a request has just brought. */
  to: string;
  template: MailName;
  /** What the template asks for. A `link` begins with PUBLIC_URL. `siteName` and `siteUrl` are added. */
  values: Record<string, string>;
  /** Whether it goes out even when the operator has switched mails off. */
  security: boolean;
  /** Put before the change it tells of, it goes out once the change is true, and never when that does not happen. */
  after?: After;
  /** Epoch milliseconds; a mail that could not be sent until then is dropped. */
  expiresAt: number;
}

/** Where the other domains leave their mails. */
export interface Outbox {
  /** Resolves when the mail is stored: from then on it survives everything but the store. */
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
  /** What was and is sent about an account, to whichever address, the newest first, without its content. */
  listOf(userId: string): AsyncIterable<MailSummary[]>;
  /** Removes all mails about an account, sent or not. */
  forget(userId: string): Promise<void>;
  /** A mail with sample values, as it would look now. */
  preview(name: MailName): Promise<RenderedMail>;
  /** Sends such a sample at once. @throws DeliveryError saying in words fit for the operator what went wrong */
  sendTest(to: string, name?: MailName): Promise<Outcome>;
  /** What sends the mails, and what forgets those that have long been at their end. */
  jobs: { relay: Job; purge: Job };
  close(): Promise<void>;
}

export interface EmailServiceOptions {
  mails: Mails;
  templates: Templates;
  transport: Transport;
  /** The name is the site's where it is absent, the address `no-reply@` and the host of the site. */
  from: { email: string | undefined; name: string | undefined };
  publicUrl: () => string;
  settings: () => Promise<{ siteName: string; emailNotifications: boolean }>;
  /** Whether the change has come true, may yet, or never will. */
  holds: (after: After) => Promise<'yes' | 'not-yet' | 'never'>;
  /** Called after a put, to have the relay run soon. */
  nudge: () => void;
  clock: Clock;
  random: Random;
  log: JobLog;
}

const MOST_LISTED = 1000;

/** How long the store tells what became of a mail. */
const KEPT = 30 * DAY;

export function createEmail(options: EmailServiceOptions): EmailService {
  const { mails, templates, transport, from, publicUrl, settings, nudge, clock, random } = options;

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
    async put({ key, userId, to, template, values, security, after, expiresAt }) {
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
        ...(after && { after }),
        expiresAt,
        status: 'queued' as const,
        dueAt: now,
        createdAt: now,
      };
      const isNew = await mails
        .insert({ id: newId('mail_', clock, random), key, attempts: 0, ...mail })
        .then(() => true, nullIfTaken);
      // What was announced before did not happen, or not yet, and the mail may have been dropped for it.
      if (!isNew) await mails.updateOne({ key, attempts: 0 }, { set: mail, unset: ['endedAt', 'reason'] });
      nudge();
    },

    listOf(userId) {
      const pages = firstPagesOf(mails, { where: { userId }, sort: 'id', desc: true }, MOST_LISTED);
      return mapPages(pages, ({ template, to, status, createdAt, endedAt }) => ({
        template,
        to,
        status,
        createdAt: toTimestamp(createdAt),
        ...(endedAt !== undefined && { endedAt: toTimestamp(endedAt) }),
      }));
    },

    async forget(userId) {
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
          await mails.deleteMany({ endedAt: { lt: clock.now() - KEPT } });
        },
      },
    },

    close: transport.close,
  };
}

/** Mails lead to the application and nowhere else. */
function checkLink(link: string, publicUrl: string): void {
  const [url, base] = [URL.canParse(link) ? new URL(link) : null, new URL(publicUrl)];
  const path = base.pathname.replace(/\/$/, '');
  const isBelow = url?.pathname === path || url?.pathname.startsWith(`${path}/`);
  if (url?.origin !== base.origin || !isBelow || url.username || url.password) {
    throw new TypeError('The link of a mail must begin with PUBLIC_URL.');
  }
}
