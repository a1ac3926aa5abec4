import type { User } from '../http/schemas.js';

/** The events about accounts that a host application can subscribe to. */
export interface AuthEvents {
  'user.registered': { userId: string; user: User };
  /** The user has followed a link sent to the address. */
  'user.verified': { userId: string; user: User };
  /** The operator has suspended the account, or lifted the suspension. */
  'user.suspended': { userId: string };
  'user.unsuspended': { userId: string };
  'user.deleted': { userId: string };
  /** Ended: one session (`local`), all but one (`others`), or all of them (`global`). */
  'session.revoked': { userId: string; scope: 'local' | 'others' | 'global'; sessionId?: string };
}

export const AUTH_EVENTS: Record<keyof AuthEvents, true> = {
  'user.registered': true,
  'user.verified': true,
  'user.suspended': true,
  'user.unsuspended': true,
  'user.deleted': true,
  'session.revoked': true,
};
