import type { Collection, Store } from '../storage/collection.js';
import type { MailName } from './templates.js';
import type { Outcome } from './transport.js';

/**
 * - `queued`, `sending`: not sent yet
 * - `sent`, `written`, `undeliverable`: the outcome at the transport
 * - `failed`: the last attempt failed
 * - `expired`: could not be sent before `expiresAt`
 * - `dropped`: not sent, because its change was not stored or its kind of mail is switched off
 */
export type MailStatus = 'queued' | 'sending' | Outcome | 'failed' | 'expired' | 'dropped';

/**
 * A mail about a change that is stored after it: it is sent once `versionField` of the user is at least `minVersion`.
 * Until then the change may still fail.
 */
export interface SendCondition {
  userId: string;
  versionField: string;
  minVersion: number;
}

export interface MailDocument {
  id: string;
  /** Identifies the occasion: a second put with the same key is the same mail. */
  key: string;
  /** The account that it is about. An address may belong to another account later. */
  userId?: string;
  to: string;
  template: MailName;
  /** Holds working links, so it is removed as soon as the mail has its outcome. */
  values?: Record<string, string>;
  security: boolean;
  /** The `SendCondition`, under the names that earlier versions stored. */
  after?: { userId: string; is: string; reaches: number };
  /** Not sent after this time. */
  expiresAt: number;
  status: MailStatus;
  /** When to process it next: to send it, or to take it over from a process that has ended. Absent once it has its outcome. */
  dueAt?: number;
  /** Raised before every attempt; only the attempt that raised it last may store its outcome. */
  attempts: number;
  /** Why the last attempt failed or why it was dropped. */
  reason?: string;
  createdAt: number;
  endedAt?: number;
}

export type Mails = Collection<MailDocument>;

export function mailCollection(store: Store): Mails {
  return store.collection<MailDocument>('mails', {
    unique: ['key'],
    indexes: [['dueAt'], ['endedAt'], ['userId', 'id']],
    fields: ['attempts', 'status'],
  });
}
