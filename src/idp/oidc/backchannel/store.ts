import type { Collection, Store } from '../../../core/storage/collection.js';

/**
 * A client that received tokens in the session of a user, and that is to be notified when that session ends. It is the
 * delivery as well: one update makes all clients of a session due.
 */
export interface LogoutNoticeDocument {
  /** Of `sid` and `clientId`. */
  id: string;
  clientId: string;
  sub: string;
  /** The session as the client knows it. */
  sid: string;
  /** The session that continues it after another sign-in of the same user in the browser. */
  session: string;
  /** `epoch` of the principal in the first of these sessions. */
  epoch?: number;
  /** When neither the session nor what was issued in it can be used any more: they end without a notice. */
  expiresAt: number;
  /** When to send it next, or to take it over from a process that has ended. Absent until the end of the session. */
  dueAt?: number;
  /** Incremented before every attempt; only the latest attempt may store its result. */
  attempts: number;
  /** When the first attempt failed. With it and without `dueAt`, the notice was given up. */
  failingSince?: number;
  /** Why the latest attempt failed. */
  lastFailure?: string;
  /** Of an agent whose request was decided, instead of a logout: what it gets, sealed. The request is its session. */
  ping?: string;
}

export type LogoutNotices = Collection<LogoutNoticeDocument>;

export function logoutNoticeCollection(store: Store): LogoutNotices {
  return store.collection<LogoutNoticeDocument>('logout_notices', {
    indexes: [['session'], ['sub'], ['dueAt'], ['expiresAt'], ['failingSince']],
    fields: ['clientId'],
    numbers: ['dueAt', 'expiresAt', 'failingSince', 'attempts', 'epoch'],
  });
}

/**
 * Sessions that have ended, stored in the commit of their end. The job makes their notices due, of which there is any number, and
 * deletes it.
 */
export interface EndedSessionsDocument {
  id: string;
  /** One session. */
  session?: string;
  /** The session that continues it: the applications are notified when that ends. */
  continuedBy?: string;
  /** Or all sessions of a principal before this `epoch`. */
  sub?: string;
  epoch?: number;
}

export type EndedSessions = Collection<EndedSessionsDocument>;

export const endedSessionsCollection = (store: Store): EndedSessions =>
  store.collection<EndedSessionsDocument>('endedSessions');
