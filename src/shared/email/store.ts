import type { Collection, Store } from '../../core/storage/collection.js';
import type { MailName } from './templates.js';

/**
 * - `queued`, `sending`: not sent yet
 * - `sent`, `written`, `undeliverable`: the result of the transport
 * - `failed`: the last attempt failed
 * - `expired`: could not be sent before `expiresAt`
 * - `dropped`: not sent, because its change was not stored or notification mails are disabled
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

/**
 * The condition of a mail that is enqueued before the change it reports: it is sent once `versionField` of the user is at
 * least `minVersion`.
 */
export interface SendCondition {
  userId: string;
  versionField: string;
  minVersion: number;
}

export interface MailDocument {
  id: string;
  /** Idempotency key: unique among all mails. */
  key: string;
  /** The account that the mail is about; its address may belong to another account later. */
  userId?: string;
  to: string;
  /** The name of a mail that the previous version knows, too. */
  template: MailName;
  /** The mail, if only this version knows it; processes of the previous version send `template` instead. */
  variant?: MailName;
  /**
   * The encrypted values of the template. Removed when the mail is finished; without a secret link, a failed mail keeps it, so
   * that it can be sent again.
   */
  content?: string;
  /** Instead of `content` in a mail of the previous version or of a command. */
  values?: Record<string, string>;
  /** The language of the recipient; absent if unknown. */
  locale?: string;
  security: boolean;
  /** The `SendCondition`, under the field names of earlier versions. */
  after?: { userId: string; is: string; reaches: number };
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

/** The mail that a document stands for. */
export const nameOf = ({ template, variant }: Pick<MailDocument, 'template' | 'variant'>): MailName =>
  variant ?? template;

/** Mails that the previous version does not know, with those that it sends instead during an upgrade. */
const FALLBACKS: { [K in MailName]?: MailName } = { 'confirm-address-change': 'verify-email' };

/** The fields of a document that say which mail it is. */
export function namedAs(name: MailName): Pick<MailDocument, 'template' | 'variant'> {
  const template = FALLBACKS[name];
  return template === undefined ? { template: name } : { template, variant: name };
}

export type Mails = Collection<MailDocument>;

export function mailCollection(store: Store): Mails {
  return store.collection<MailDocument>('mails', {
    unique: ['key'],
    indexes: [['dueAt'], ['endedAt'], ['status', 'endedAt'], ['userId', 'id']],
    fields: ['attempts'],
  });
}
