import { toTimestamp, toTimestampOrNull } from '../../core/http/schemas.js';
import { type Clock, DAY } from '../../core/kernel/clock.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { type Audit, auditActor, changeDetail, type Operator } from '../../core/ops/audit.js';
import type { CommitParts } from '../../core/ops/commit.js';
import type { Page } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
import { emailErrors } from './errors.js';
import { type MailQuery, meaningOf, type OutboxListOptions, OutboxMail, outboxList } from './outbox-list.js';
import type { EmailService, MailPreview } from './service.js';
import type { MailDocument, Mails } from './store.js';
import { MAIL_NAMES, type MailName } from './templates.js';
import { DeliveryError, type DeliveryResult } from './transport.js';

/** What the operator sees and does with mails. */
export type MailAdministration = ReturnType<typeof createMailAdministration>;

export interface MailAdministrationDependencies {
  mails: Mails;
  commit: CommitParts;
  service: Pick<EmailService, 'preview' | 'sendTest'>;
  /** Those that the product sends. Default: all. */
  names?: readonly MailName[] | undefined;
  /** The operator's own templates. */
  ownTemplates: readonly string[];
  /** Called after a mail was queued. */
  wake(): void;
  audit: Audit;
  clock: Clock;
}

export function createMailAdministration(deps: MailAdministrationDependencies) {
  const { mails, commit, service, names = MAIL_NAMES, wake, audit, clock } = deps;

  /** @throws NOT_FOUND */
  const known = (name: string): MailName => {
    const found = names.find((one) => one === name);
    if (found === undefined) throw httpErrors.NOT_FOUND();
    return found;
  };

  const read = async (id: string): Promise<MailDocument> => {
    const mail = await mails.findOne({ id });
    if (!mail) throw httpErrors.NOT_FOUND();
    return mail;
  };

  /** @throws NOT_FOUND */
  const find = async (id: string): Promise<OutboxMail> => view(await read(id));

  const outbox = {
    /** The newest first; those in a status by the time when they were completed. @throws VALIDATION_ERROR for an invalid `after` */
    async list({ status, userId, after, limit }: MailQuery): Promise<Page<OutboxMail>> {
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

    /** Queues a failed mail again. @throws NOT_FOUND, MAIL_NOT_RETRYABLE */
    async retry(id: string, by: Operator) {
      const mail = await read(id);
      if (!isRetryable(mail)) throw emailErrors.MAIL_NOT_RETRYABLE();
      const { attempts, userId, expiresAt } = mail;
      const now = clock.now();
      const change = changeDetail({ status: 'failed', attempts }, { status: 'queued', attempts: 0 });
      const subject = userId !== undefined && { subject: userId };
      const { committed } = await commit([
        mails.changing(
          { id, status: 'failed', attempts },
          {
            set: { status: 'queued', dueAt: now, attempts: 0, expiresAt: Math.max(expiresAt, now + DAY) },
            unset: ['endedAt', 'reason'],
          },
        ),
        audit.entry({ event: 'mail.retried', ...subject, ...auditActor(by), detail: `${id} ${change}` }),
      ]);
      if (!committed) throw emailErrors.MAIL_NOT_RETRYABLE();
      wake();
    },
  };

  return {
    /** Of a mail in JSON. */
    schema: OutboxMail,
    /** The list of a console. */
    outboxList: (options: OutboxListOptions) => outboxList(outbox, { ...options, clock }),
    meaningOf,
    find,
    retry: outbox.retry,
    names,
    ownTemplates: deps.ownTemplates,

    /** Renders a mail with sample values. @throws NOT_FOUND */
    preview: async (name: string, locale?: string): Promise<MailPreview> =>
      service.preview(known(name), locale),

    /** Sends a mail with sample values. @throws NOT_FOUND, MAIL_NOT_SENT */
    async sendTest(
      name: string,
      to: string,
      { locale, by }: { locale?: string | undefined; by: Operator },
    ): Promise<DeliveryResult> {
      const template = known(name);
      const result = await service.sendTest(to, template, locale).catch((error: unknown) => {
        if (!(error instanceof DeliveryError)) throw error;
        return error;
      });
      const outcome = result instanceof DeliveryError ? result.message : result;
      const detail = JSON.stringify({ template, to, outcome });
      await audit.record({ event: 'mail.tested', ...auditActor(by), detail });
      if (!(result instanceof DeliveryError)) return result;
      throw emailErrors.MAIL_NOT_SENT({ message: `The test e-mail was not sent: ${result.message}.` });
    },
  };
}

/** The content of a mail with a secret link is deleted with its last attempt. */
const isRetryable = ({ status, content, values }: MailDocument): boolean =>
  status === 'failed' && (content ?? values) !== undefined;

function view(mail: MailDocument): OutboxMail {
  const { id, template, to, userId = null, status, security, attempts, reason = null } = mail;
  return {
    id,
    template,
    to,
    userId,
    status,
    security,
    attempts,
    reason,
    createdAt: toTimestamp(mail.createdAt),
    dueAt: toTimestampOrNull(mail.dueAt),
    endedAt: toTimestampOrNull(mail.endedAt),
    expiresAt: toTimestamp(mail.expiresAt),
    canRetry: isRetryable(mail),
  };
}
