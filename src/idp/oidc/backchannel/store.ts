import type { Clock } from '../../../core/kernel/clock.js';
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
  /** `epoch` of the principal in that session. */
  epoch?: number;
  /** When neither the session nor what was issued in it can be used any more: they end without a notice. */
  expiresAt: number;
  /** When to send it next, or to take it over from a process that has ended. Absent while the session continues. */
  dueAt?: number;
  /** When the session was about to end. */
  announcedAt?: number;
  /** Incremented before every attempt; only the latest attempt may store its result. */
  attempts: number;
  /** When the first attempt failed. With it and without `dueAt`, the notice was given up. */
  failingSince?: number;
  /** Why the latest attempt failed. */
  lastFailure?: string;
}

export type LogoutNotices = Collection<LogoutNoticeDocument>;

export function logoutNoticeCollection(store: Store): LogoutNotices {
  return store.collection<LogoutNoticeDocument>('logout_notices', {
    indexes: [['session'], ['sub'], ['dueAt'], ['expiresAt'], ['failingSince']],
    fields: ['clientId'],
    numbers: ['dueAt', 'expiresAt', 'failingSince', 'attempts'],
  });
}

/**
 * Runs a change that ends sessions. Makes their notices due before: after a crash in between, the job finds that the sessions
 * continue, and waits again. A repeated announcement counts anew, because the job may be about to give up the earlier one.
 */
export async function announceEnd<T>(
  of: { sub: string } | { session: string },
  change: () => Promise<T>,
  { notices, clock, wake }: { notices: Pick<LogoutNotices, 'updateMany'>; clock: Clock; wake(): void },
): Promise<T> {
  const now = clock.now();
  const due = await notices.updateMany({ ...of, attempts: 0 }, { set: { dueAt: now, announcedAt: now } });
  const result = await change();
  if (due > 0) wake();
  return result;
}
