import { type Static, Type } from 'typebox';
import { Nullable, Timestamp } from '../../core/http/schemas.js';
import { type Clock, DAY, HOUR, MINUTE } from '../../core/kernel/clock.js';
import type { Operator } from '../../core/ops/audit.js';
import type { Page } from '../../core/storage/collection.js';
import type { List, ListQuery } from '../console-kit/lists.js';
import type { Column } from '../console-kit/tables.js';
import { MAIL_STATUSES, type MailStatus } from './store.js';

/** The list of e-mails, which both consoles have. */

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

export interface MailQuery {
  status?: MailStatus | undefined;
  userId?: string | undefined;
  after: string | undefined;
  limit: number;
}

const STATUSES: readonly { value: MailStatus; label: string; meaning: string }[] = [
  { value: 'failed', label: 'Failed', meaning: 'It was given up. The reason says why.' },
  { value: 'queued', label: 'Queued', meaning: 'It is sent when it is due.' },
  { value: 'sending', label: 'Being sent', meaning: 'An attempt is running.' },
  { value: 'sent', label: 'Sent', meaning: 'A mail server accepted it.' },
  { value: 'expired', label: 'Expired', meaning: 'It could not be sent in time.' },
  { value: 'dropped', label: 'Dropped', meaning: 'The reason says why it is not sent.' },
  { value: 'written', label: 'Written to a file', meaning: 'No mail server is configured.' },
  { value: 'undeliverable', label: 'Not deliverable', meaning: 'No mail server is configured.' },
];

/** What a status means, as a sentence. */
export const meaningOf = (status: MailStatus): string | undefined =>
  STATUSES.find(({ value }) => value === status)?.meaning;

export interface OutboxListOptions {
  /** The ID of the account that a search is about; `undefined` if there is none. */
  resolveUser(search: string): Promise<string | undefined>;
  /** The page of an e-mail, if it has one. */
  mailHref?(mail: OutboxMail): string;
  /** The page of the account that an e-mail is about. Without it, the list does not show accounts. */
  userHref?(userId: string): string;
}

export interface Outbox {
  list(query: MailQuery): Promise<Page<OutboxMail>>;
  retry(id: string, by: Operator): Promise<void>;
}

/** The definition of the list. */
export function outboxList(
  { list, retry }: Outbox,
  { resolveUser, mailHref, userHref, clock }: OutboxListOptions & { clock: Clock },
): Omit<List<OutboxMail>, 'empty'> {
  const user: Column<OutboxMail> = {
    label: 'User',
    text: ({ userId }) => userId,
    href: ({ userId }) => (userId === null ? null : (userHref?.(userId) ?? null)),
    kind: 'code',
  };
  return {
    path: 'mails',
    title: 'E-mails',
    intro: 'Completed e-mails are deleted after 30 days.',
    filters: [{ name: 'status', label: 'Status', options: STATUSES }],
    columns: [
      {
        label: 'E-mail',
        text: ({ template }) => template,
        kind: 'word',
        ...(mailHref && { href: mailHref }),
      },
      { label: 'To', text: ({ to }) => to },
      ...(userHref ? [user] : []),
      { label: 'Status', text: ({ status }) => status, kind: 'status' },
      { label: 'Attempts', text: ({ attempts }) => attempts, kind: 'number' },
      { label: 'Reason', text: ({ reason }) => reason },
      {
        label: 'Age',
        text: ({ createdAt }) => ageOf(clock.now() - Date.parse(createdAt)),
        only: 'csv',
      },
      { label: 'Created', text: ({ createdAt }) => createdAt, kind: 'time' },
    ],
    async read({ search, filters, after, limit }: ListQuery) {
      const query = { status: filters['status'] as MailStatus | undefined, after, limit };
      if (search === undefined) return list(query);
      const userId = await resolveUser(search);
      return userId === undefined ? { items: [], next: null } : list({ ...query, userId });
    },
    bulk: [
      {
        verb: 'retry',
        label: 'Send again',
        button: 'Send all again',
        role: 'support',
        consequences: 'Each e-mail that failed and can be sent again is queued with all its attempts.',
        applies: ({ canRetry }) => canRetry,
        nameOf: ({ template, to }) => `${template} to ${to}`,
        run: ({ id }, _fields, by) => retry(id, by),
      },
    ],
  };
}

function ageOf(milliseconds: number): string {
  if (milliseconds < HOUR) return `${Math.max(0, Math.floor(milliseconds / MINUTE))} min`;
  return milliseconds < DAY ? `${Math.floor(milliseconds / HOUR)} h` : `${Math.floor(milliseconds / DAY)} d`;
}
