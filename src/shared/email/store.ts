import type { Collection, Store } from '../../core/storage/collection.js';
import type { MailName } from './templates.js';

/**
 * - `queued`, `sending`: not sent yet
 * - `sent`, `written`, `undeliverable`: the result of the transport
 * - `failed`: the last attempt failed
 * - `expired`: could not be sent before `expiresAt`
 * - `dropped`: not sent, because notification mails are disabled
 */
export const MAIL_STATUSES = [
  'queued',
  'sending',
  'sent',
  'written',
  'undeliverable',
  'failed',
  'expired',
  'dropped',
] as const;
export type MailStatus = (typeof MAIL_STATUSES)[number];

export interface MailDocument {
  id: string;
  /** Idempotency key: unique among all mails. */
  key: string;
  /** The account that the mail is about; its address may belong to another account later. */
  userId?: string;
  to: string;
  template: MailName;
  /**
   * The encrypted values of the template. Removed when the mail is finished; without a secret link, a failed mail keeps it, so
   * that it can be sent again.
   */
  content?: string;
  /** Instead of `content` in a mail of a command, which does not know the secrets of the server. */
  values?: Record<string, string>;
  /** The language of the recipient; absent if unknown. */
  locale?: string;
  security: boolean;
  /** Unix time in milliseconds after which the mail is not sent. */
  expiresAt: number;
  status: MailStatus;
  /** When to attempt it next, or to take it over from a process that has ended. Absent once the mail is finished. */
  dueAt?: number;
  /** Incremented before every attempt; only the latest attempt may store its result. */
  attempts: number;
  /** Why the last attempt failed or the mail was dropped. */
  reason?: string;
  createdAt: number;
  endedAt?: number;
}

export type Mails = Collection<MailDocument>;

export function mailCollection(store: Store): Mails {
  return store.collection<MailDocument>('mails', {
    unique: ['key'],
    indexes: [['dueAt'], ['endedAt'], ['status', 'endedAt'], ['userId', 'id']],
    numbers: ['dueAt', 'endedAt', 'attempts'],
  });
}
