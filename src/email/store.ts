import type { Collection, Store } from '../storage/collection.js';
import type { MailName } from './templates.js';
import type { Outcome } from './transport.js';

/**
 * - `queued`, `sending`: still on its way
 * - `sent`, `written`, `undeliverable`: what the transport made of it
 * - `failed`: given up after the last attempt
 * - `expired`: could not be sent while it was worth sending
 * - `dropped`: not to be sent: what it tells of did not happen, or mails of its kind are switched off
 */
export type MailStatus = 'queued' | 'sending' | Outcome | 'failed' | 'expired' | 'dropped';

/** A change that a mail tells of: it goes out once the number `is` of the user has come to `reaches`. */
export interface After {
  userId: string;
  is: string;
  reaches: number;
}

export interface MailDocument {
  id: string;
  /** What makes two puts the same mail. */
  key: string;
  /** Whose account it is about. An address may be somebody else's tomorrow. */
  userId?: string;
  to: string;
  template: MailName;
  /** Holds working links, therefore absent as soon as the mail is no longer on its way. */
  values?: Record<string, string>;
  security: boolean;
  after?: After;
  /** Worth sending until then. */
  expiresAt: number;
  status: MailStatus;
  /** When to look at it next: to send it, or to take it over from a process that is gone. Absent at the end of its way. */
  dueAt?: number;
  /** Raised by every attempt before it begins; whoever raised it last may say how it went. */
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
