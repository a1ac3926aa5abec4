import { type Clock, DAY, HOUR, MINUTE } from '../../core/kernel/clock.js';
import type { Operator } from '../../core/ops/audit.js';
import type { Page } from '../../core/storage/collection.js';
import type { List, ListQuery } from './lists.js';
import type { Column } from './tables.js';

/** The list of e-mails, which both products have: without their content, which contains links. */

type Status = (typeof STATUSES)[number]['value'];

export interface ListedMail {
  id: string;
  template: string;
  to: string;
  userId: string | null;
  status: Status;
  attempts: number;
  reason: string | null;
  createdAt: string;
  dueAt: string | null;
  endedAt: string | null;
  expiresAt: string;
  canRetry: boolean;
}

export interface Outbox {
  list(query: {
    status?: Status | undefined;
    userId?: string | undefined;
    after: string | undefined;
    limit: number;
  }): Promise<Page<ListedMail>>;
}

const STATUSES = [
  { value: 'failed', label: 'Failed', meaning: 'It was given up. The reason says why.' },
  { value: 'queued', label: 'Queued', meaning: 'It is sent when it is due.' },
  { value: 'sending', label: 'Being sent', meaning: 'An attempt is running.' },
  { value: 'sent', label: 'Sent', meaning: 'A mail server accepted it.' },
  { value: 'expired', label: 'Expired', meaning: 'It could not be sent in time.' },
  { value: 'dropped', label: 'Dropped', meaning: 'The reason says why it is not sent.' },
  { value: 'written', label: 'Written to a file', meaning: 'No mail server is configured.' },
  { value: 'undeliverable', label: 'Not deliverable', meaning: 'No mail server is configured.' },
] as const;

/** What a status means, as a sentence. */
export const meaningOf = (status: Status): string | undefined =>
  STATUSES.find(({ value }) => value === status)?.meaning;

export interface OutboxListOptions extends Outbox {
  /** Queues a failed e-mail again. @throws NOT_FOUND, MAIL_NOT_RETRYABLE */
  retry(id: string, by: Operator): Promise<unknown>;
  /** The ID of the account that a search is about; `undefined` if there is none. */
  resolveUser(search: string): Promise<string | undefined>;
  /** The page of an e-mail, if it has one. */
  mailHref?(mail: ListedMail): string;
  /** The page of the account that an e-mail is about. Without it, the list does not show accounts. */
  userHref?(userId: string): string;
  clock: Clock;
}

/** The definition of the list. */
export function outboxList(options: OutboxListOptions): Omit<List<ListedMail>, 'empty'> {
  const { list, retry, resolveUser, mailHref, userHref, clock } = options;
  const user: Column<ListedMail> = {
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
      { label: 'E-mail', text: ({ template }) => template, ...(mailHref && { href: mailHref }) },
      { label: 'To', text: ({ to }) => to },
      ...(userHref ? [user] : []),
      { label: 'Status', text: ({ status }) => status, kind: 'status' },
      { label: 'Attempts', text: ({ attempts }) => attempts, kind: 'number' },
      { label: 'Reason', text: ({ reason }) => reason },
      { label: 'Age', text: ({ createdAt }) => ageOf(clock.now() - Date.parse(createdAt)), kind: 'number' },
      { label: 'Created', text: ({ createdAt }) => createdAt, kind: 'time' },
    ],
    async read({ search, filters, after, limit }: ListQuery) {
      const query = { status: filters['status'] as Status | undefined, after, limit };
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
