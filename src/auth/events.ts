import type { User } from '../http/schemas.js';

/** What integrators hear of accounts. */
export interface AuthEvents {
  'user.registered': { userId: string; user: User };
  /** The address is theirs: they followed a link that was sent to it. */
  'user.verified': { userId: string; user: User };
  /** The operator has suspended the account, or lifted the suspension. */
  'user.suspended': { userId: string };
  'user.unsuspended': { userId: string };
  'user.deleted': { userId: string };
  /** One session has ended (`local`), all but one (`others`), or all of them (`global`). */
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
