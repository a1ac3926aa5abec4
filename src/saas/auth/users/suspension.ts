import type { Clock } from '../../../core/kernel/clock.js';
import { type Audit, auditActor, type Operator } from '../../../core/ops/audit.js';
import type { CommitParts } from '../../../core/ops/commit.js';
import type { EventOf } from '../../../core/ops/events.js';
import type { Change } from '../../../core/storage/collection.js';
import { applyChange } from '../../../core/storage/semantics.js';
import type { AuthEvents } from '../events.js';
import { ALL_LINK_FIELDS, type UserDocument, type Users } from '../store.js';
import { findUser, type ManagedUser, type UserKey, userNotFound } from './users.js';

/** Suspension of accounts by the operator. */
export type Suspension = ReturnType<typeof createSuspension>;

export interface SuspensionDependencies {
  users: Users;
  audit: Audit;
  commit: CommitParts;
  event: EventOf<AuthEvents>;
  toManagedUser(user: UserDocument): ManagedUser;
  clock: Clock;
}

export function createSuspension(deps: SuspensionDependencies) {
  const { users, audit, commit, event, toManagedUser, clock } = deps;

  /** Changes the state of an account, unless it already has that state. @throws NOT_FOUND, also during a deletion */
  const change = async (
    by: UserKey,
    isSuspension: boolean,
    update: Change<UserDocument>,
    operator: Operator | undefined,
  ): Promise<ManagedUser> => {
    const user = await findUser(users, by);
    if (!user) throw userNotFound();
    const { id } = user;
    const name = isSuspension ? 'user.suspended' : 'user.unsuspended';
    const { committed } = await commit([
      users.changing({ id, suspendedAt: isSuspension ? null : { gt: 0 }, deletingAt: null }, update),
      isSuspension ? await event('session.revoked', { userId: id, scope: 'global' }) : undefined,
      await event(name, { userId: id }),
      audit.entry({ event: name, subject: id, ...auditActor(operator) }),
    ]);
    const changed = committed ? applyChange(user, update) : await users.findOne({ id });
    if (!changed || changed.deletingAt !== undefined) throw userNotFound();
    return toManagedUser(changed);
  };

  return {
    /**
     * Suspends an account. From the next request on, every process rejects its access and refresh tokens, and a login with
     * the correct password fails with ACCOUNT_SUSPENDED. Its sessions and mailed links stay invalid after `unsuspend`. A
     * repeated call changes nothing.
     * @param operator who does it, for the audit; default: the host or the command line
     * @throws NOT_FOUND
     */
    suspend: (by: UserKey, operator?: Operator): Promise<ManagedUser> =>
      change(
        by,
        true,
        {
          set: { suspendedAt: clock.now() },
          // The new epoch also ends sessions that a concurrent login starts with the user it read before this write.
          inc: { sessionEpoch: 1 },
          unset: [...ALL_LINK_FIELDS, 'usedLink', 'keptSession', 'operatorRole'],
        },
        operator,
      ),

    /** Lifts a suspension; the password stays the same. @throws NOT_FOUND, also during a deletion */
    unsuspend: (by: UserKey, operator?: Operator): Promise<ManagedUser> =>
      change(by, false, { unset: ['suspendedAt'] }, operator),
  };
}
