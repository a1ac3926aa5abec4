import type { Messages } from '../../core/http/messages.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { DAY, timesOf } from '../../core/kernel/clock.js';
import { newId, sha256 } from '../../core/kernel/secrets.js';
import type { Job, JobLog } from '../../core/ops/jobs.js';
import { createPurge } from '../../core/ops/purge.js';
import { firstPagesOf, mapPages } from '../../core/storage/pages.js';
import type { MailContent } from './content.js';
import { createOutbox, type OutboxOptions } from './outbox.js';
import { createRelay, type UnfinishedMail } from './relay.js';
import { isEmailAddress } from './schemas.js';
import type { MailStatus } from './store.js';
import { type MailName, type RenderedMail, sampleValues, type Templates } from './templates.js';
import { DeliveryError, type DeliveryResult, type Message, type Transport } from './transport.js';

/** A mail as shown to the account that it is about. */
export interface MailSummary {
  template: MailName;
  to: string;
  status: MailStatus;
  /** ISO 8601, UTC. */
  createdAt: string;
  endedAt?: string;
}

/** A mail as its reader sees it. */
export interface MailPreview extends RenderedMail {
  /** The name and the address of the sender. */
  from: string;
}

export type EmailService = ReturnType<typeof createEmailService>;

export interface EmailServiceOptions extends OutboxOptions {
  content: MailContent;
  templates: Templates;
  messages: Messages;
  transport: Transport;
  /** The default name is the name of the site, the default address `no-reply@` its host. */
  from: { email: string | undefined; name: string | undefined };
  /** Where replies go, if not to the sender. */
  replyTo?: string | undefined;
  settings: () => Promise<{ siteName: string; emailNotifications: boolean }>;
  log: JobLog;
}

const MAX_LISTED = 1000;

type FailedStatus = 'failed' | 'undeliverable' | 'expired';

/** How long finished mails are stored. */
const RETENTION_MS = 30 * DAY;

export function createEmailService(options: EmailServiceOptions) {
  const { mails, templates, messages, transport, from, replyTo, publicUrl, settings } = options;
  const { clock, random, log } = options;
  const outbox = createOutbox(options);

  /** Composes a message without its recipient. */
  const compose = async (name: MailName, values: Record<string, string>, locale?: string) => {
    const { siteName } = await settings();
    const siteUrl = publicUrl();
    const address = from.email ?? `no-reply@${new URL(siteUrl).hostname}`;
    return {
      template: name,
      from: { name: from.name ?? siteName, address },
      ...(replyTo !== undefined && { replyTo }),
      ...templates.render(name, { ...values, siteName, siteUrl }, messages.catalogue(locale)),
    };
  };

  const composeMessage = async (
    mail: Pick<UnfinishedMail, 'key' | 'to' | 'template' | 'values' | 'locale'>,
  ): Promise<Message> => {
    const composed = await compose(mail.template, mail.values, mail.locale);
    const [, host = 'localhost'] = composed.from.address.split('@');
    return { ...composed, to: mail.to, messageId: `<${sha256(mail.key)}@${host}>` };
  };

  const samplesOf = (name: MailName, locale?: string) =>
    sampleValues(name, publicUrl(), messages.catalogue(locale));

  /** The mails that have been stored long enough. */
  const ended = () => ({ endedAt: { lt: clock.now() - RETENTION_MS } });

  return {
    ...outbox,

    /** Lists the mails about an account, newest first, without their content. */
    listByUser(userId: string): AsyncIterable<MailSummary[]> {
      const pages = firstPagesOf(mails, { where: { userId }, sort: 'id', desc: true }, MAX_LISTED);
      return mapPages(pages, ({ template, to, status, createdAt, endedAt }) => ({
        template,
        to,
        status,
        createdAt: toTimestamp(createdAt),
        ...(endedAt !== undefined && { endedAt: toTimestamp(endedAt) }),
      }));
    },

    /** Renders a mail with sample values. @param locale default: that of readers whose own language is not available */
    async preview(name: MailName, locale?: string): Promise<MailPreview> {
      const { from, subject, text, html } = await compose(name, samplesOf(name, locale), locale);
      return { from: `${from.name} <${from.address}>`, subject, text, html };
    },

    /** Sends a mail with sample values immediately. @throws DeliveryError with a message for the operator */
    async sendTest(to: string, name: MailName = 'welcome', locale?: string): Promise<DeliveryResult> {
      if (!isEmailAddress(to)) throw new DeliveryError('this is not one address', true);
      const key = newId('test_', clock, random);
      const message = await composeMessage({
        key,
        to,
        template: name,
        values: samplesOf(name, locale),
        ...(locale !== undefined && { locale }),
      });
      return transport.send(message, new AbortController().signal);
    },

    /** Counts the mails that could not be sent on each day (ISO 8601 dates, UTC), each up to `limit`. */
    async countFailures(days: readonly string[], limit: number): Promise<Record<FailedStatus, number[]>> {
      const countDays = (status: FailedStatus) =>
        Promise.all(days.map((day) => mails.count({ status, endedAt: timesOf(day) }, limit)));
      const [failed, undeliverable, expired] = await Promise.all([
        countDays('failed'),
        countDays('undeliverable'),
        countDays('expired'),
      ]);
      return { failed, undeliverable, expired };
    },

    /** `relay` sends queued mails, `purge` deletes old ones. */
    jobs: {
      relay: { everySeconds: 5, run: createRelay({ ...options, composeMessage }) },
      purge: createPurge(mails, { where: ended, sort: 'endedAt' }),
    } satisfies { relay: Job; purge: Job },

    /** Logs a mail server that does not accept the connection. Never rejects. */
    async checkServer() {
      await transport.verify?.().catch((error: unknown) => {
        if (!(error instanceof DeliveryError)) throw error;
        log.warn({ reason: error.message }, 'the mail server does not accept e-mails');
      });
    },

    close: transport.close,
  };
}
