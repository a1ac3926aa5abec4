import { type Static, Type } from 'typebox';
import { Timestamp, toTimestamp } from '../../core/http/schemas.js';
import { type Clock, DAY } from '../../core/kernel/clock.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { type Audit, changeDetail, madeBy, type Operator } from '../../core/ops/audit.js';
import type { Page } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
import { emailErrors } from './errors.js';
import type { EmailService } from './service.js';
import { MAIL_STATUSES, type MailDocument, type MailStatus, type Mails, nameOf } from './store.js';
import { MAIL_NAMES, type MailName, type RenderedMail } from './templates.js';
import { DeliveryError, type DeliveryResult } from './transport.js';

const Nullable = <T extends ReturnType<typeof Type.String>>(schema: T) => Type.Union([schema, Type.Null()]);

/** A mail as the operator sees it: without its content, which contains links. */
export const OutboxMail = Type.Object({
  id: Type.String(),
  template: Type.String(),
  to: Type.String(),
  userId: Nullable(Type.String()),
  status: Type.Enum(MAIL_STATUSES),
  /** Whether it is sent even if notification mails are disabled. */
  security: Type.Boolean(),
  attempts: Type.Integer(),
  /** Why the last attempt failed, or why it was not sent. */
  reason: Nullable(Type.String()),
  createdAt: Timestamp,
  dueAt: Nullable(Timestamp),
  endedAt: Nullable(Timestamp),
  expiresAt: Timestamp,
  canRetry: Type.Boolean(),
});
export type OutboxMail = Static<typeof OutboxMail>;

/** What the operator sees and does with mails. */
export interface MailAdministration {
  /** The newest first; those in a status by the time when they were completed. @throws VALIDATION_ERROR for an invalid `after` */
  list(query: MailQuery): Promise<Page<OutboxMail>>;
  /** @throws NOT_FOUND */
  find(id: string): Promise<OutboxMail>;
  /** Queues a failed mail again. @throws NOT_FOUND, MAIL_NOT_RETRYABLE */
  retry(id: string, by: Operator): Promise<void>;
  names: readonly MailName[];
  /** Renders a mail with sample values. @throws NOT_FOUND */
  preview(name: string): Promise<RenderedMail>;
  /** Sends a mail with sample values. @throws NOT_FOUND, MAIL_NOT_SENT */
  sendTest(name: string, to: string, by: Operator): Promise<DeliveryResult>;
}

export interface MailQuery {
  status?: MailStatus | undefined;
  userId?: string | undefined;
  after: string | undefined;
  limit: number;
}

export interface MailAdministrationDependencies {
  mails: Mails;
  service: Pick<EmailService, 'preview' | 'sendTest'>;
  /** Called after a mail was queued. */
  wake(): void;
  audit: Audit;
  clock: Clock;
}

export function createMailAdministration(deps: MailAdministrationDependencies): MailAdministration {
  const { mails, service, wake, audit, clock } = deps;

  const read = async (id: string): Promise<MailDocument> => {
    const mail = await mails.findOne({ id });
    if (!mail) throw httpErrors.NOT_FOUND();
    return mail;
  };

  return {
    async list({ status, userId, after, limit }) {
      const query = { desc: true, after, limit } as const;
      if (userId === undefined) {
        const list = status ? ({ where: { status }, sort: 'endedAt' } as const) : ({ sort: 'id' } as const);
        const { items, next } = await readPage(mails, { ...query, ...list });
        return { items: items.map(view), next };
      }
      // The few mails of a user are read by one index only, so that a database cannot choose that of the status.
      const { items, next } = await readPage(mails, { ...query, where: { userId }, sort: 'id' });
      return { items: items.filter((mail) => (status ?? mail.status) === mail.status).map(view), next };
    },

    find: async (id) => view(await read(id)),

    async retry(id, by) {
      const mail = await read(id);
      if (!isRetryable(mail)) throw emailErrors.MAIL_NOT_RETRYABLE();
      const { attempts, userId, expiresAt } = mail;
      const now = clock.now();
      const queued = await mails.updateOne(
        { id, status: 'failed', attempts },
        {
          set: { status: 'queued', dueAt: now, attempts: 0, expiresAt: Math.max(expiresAt, now + DAY) },
          unset: ['endedAt', 'reason'],
        },
      );
      if (!queued) throw emailErrors.MAIL_NOT_RETRYABLE();
      const change = changeDetail({ status: 'failed', attempts }, { status: 'queued', attempts: 0 });
      const subject = userId !== undefined && { subject: userId };
      await audit.record({ event: 'mail.retried', ...subject, ...madeBy(by), detail: `${id} ${change}` });
      wake();
    },

    names: MAIL_NAMES,

    preview: async (name) => service.preview(known(name)),

    async sendTest(name, to, by) {
      const template = known(name);
      const result = await service.sendTest(to, template).catch((error: unknown) => {
        if (!(error instanceof DeliveryError)) throw error;
        return error;
      });
      const outcome = result instanceof DeliveryError ? result.message : result;
      const detail = JSON.stringify({ template, to, outcome });
      await audit.record({ event: 'mail.tested', ...madeBy(by), detail });
      if (!(result instanceof DeliveryError)) return result;
      throw emailErrors.MAIL_NOT_SENT({ message: `The test e-mail was not sent: ${result.message}.` });
    },
  };
}

/** @throws NOT_FOUND */
function known(name: string): MailName {
  const found = MAIL_NAMES.find((one) => one === name);
  if (found === undefined) throw httpErrors.NOT_FOUND();
  return found;
}

/** The content of a mail with a secret link is deleted with its last attempt. */
const isRetryable = ({ status, content, values }: MailDocument): boolean =>
  status === 'failed' && (content ?? values) !== undefined;

function view(mail: MailDocument): OutboxMail {
  const { id, to, userId = null, status, security, attempts, reason = null } = mail;
  const time = (at: number | undefined) => (at === undefined ? null : toTimestamp(at));
  return {
    id,
    template: nameOf(mail),
    to,
    userId,
    status,
    security,
    attempts,
    reason,
    createdAt: toTimestamp(mail.createdAt),
    dueAt: time(mail.dueAt),
    endedAt: time(mail.endedAt),
    expiresAt: toTimestamp(mail.expiresAt),
    canRetry: isRetryable(mail),
  };
}
