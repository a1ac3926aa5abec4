import type { User } from '../../core/http/schemas.js';
import { sha256 } from '../../core/kernel/secrets.js';
import type { EventProof } from '../../core/ops/events.js';

/** The events about accounts that a host application can subscribe to. */
export interface AuthEvents {
  /** An account exists, however it was created: by its user, the host, the command or an import. */
  'user.registered': { userId: string; user: User };
  /** The name, the address or metadata has changed, or the host has changed whether the address counts as verified. */
  'user.updated': { userId: string; user: User };
  /** The user has followed a link sent to the address. */
  'user.verified': { userId: string; user: User };
  /** The operator has suspended the account, or lifted the suspension. */
  'user.suspended': { userId: string };
  /** The operator has lifted the suspension. */
  'user.unsuspended': { userId: string };
  /** The account and its data are deleted. */
  'user.deleted': { userId: string };
  /** Ended: one session (`local`), all but one (`others`), or all of them (`global`). */
  'session.revoked': { userId: string; scope: 'local' | 'others' | 'global'; sessionId?: string };
}

/** The ID of the events of a used link or a changed password, which is the same when the request is repeated. */
export const eventIdOf = ({ usedLinkHash = '' }: { usedLinkHash?: string }): string =>
  `evt_${sha256(`event ${usedLinkHash}`)}`;

/** That the profile has this version. */
export const proofOfProfile = (id: string, profileVersion: number): EventProof => ({
  of: 'user',
  id,
  has: {},
  reaches: { profileVersion },
});

/** That all sessions of earlier epochs have ended but one. */
export const proofOfEpoch = (id: string, sessionEpoch: number, keptSession: string | null): EventProof => ({
  of: 'user',
  id,
  has: { keptSession },
  reaches: { sessionEpoch },
});

/** That a link was used, or a password changed. */
export const proofOfUse = (id: string, usedLinkHash: string): EventProof => ({
  of: 'user',
  id,
  has: { usedLinkHash },
});

export const AUTH_EVENTS: Record<keyof AuthEvents, true> = {
  'user.registered': true,
  'user.updated': true,
  'user.verified': true,
  'user.suspended': true,
  'user.unsuspended': true,
  'user.deleted': true,
  'session.revoked': true,
};
