import type { User } from '../../core/http/schemas.js';

/** The events about accounts that a host application can subscribe to. */
export interface AuthEvents {
  /** An account exists, however it was created: by its user, the host, the command or an import. */
  'user.registered': { userId: string; user: User };
  /** The name, the address, roles or metadata has changed, or the host has changed whether the address counts as verified. */
  'user.updated': { userId: string; user: User };
  /** The user has followed a link sent to the address. */
  'user.verified': { userId: string; user: User };
  /** An operator with one of IMPERSONATION_ROLES acts as the user in a new session. */
  'user.impersonated': { userId: string; operatorId: string; sessionId: string; reason: string };
  /** The operator has suspended the account, or lifted the suspension. */
  'user.suspended': { userId: string };
  /** The operator has lifted the suspension. */
  'user.unsuspended': { userId: string };
  /** The account and its data are deleted. */
  'user.deleted': { userId: string };
  /** Ended: one session (`local`), all but one (`others`), or all of them (`global`). */
  'session.revoked': { userId: string; scope: 'local' | 'others' | 'global'; sessionId?: string };
}

export const AUTH_EVENTS: Record<keyof AuthEvents, true> = {
  'user.registered': true,
  'user.updated': true,
  'user.verified': true,
  'user.impersonated': true,
  'user.suspended': true,
  'user.unsuspended': true,
  'user.deleted': true,
  'session.revoked': true,
};
