import { invalidFields } from '../../../core/kernel/errors.js';
import { type Audit, auditActor, changeDetail, type Operator } from '../../../core/ops/audit.js';
import { type CommitParts, decideAndCommit } from '../../../core/ops/commit.js';
import type { EventOf } from '../../../core/ops/events.js';
import type { OperatorRole } from '../../../shared/console-kit/roles.js';
import type { AuthEvents } from '../events.js';
import type { Users } from '../store.js';
import { findUser, type UserKey, userNotFound } from './users.js';

/** Gives a user a role in the admin area, or takes it. */
export type SetOperatorRole = ReturnType<typeof createSetOperatorRole>;

export interface SetOperatorRoleDependencies {
  users: Users;
  /** Whether an account has a passkey or a second factor. */
  hasFactor(id: string): Promise<boolean>;
  commit: CommitParts;
  audit: Audit;
  event: EventOf<AuthEvents>;
}

const TOO_WEAK =
  'needs an open account with a confirmed address and a passkey or a second factor, which its user sets up on the account page';

export const createSetOperatorRole =
  ({ users, hasFactor, commit, audit, event }: SetOperatorRoleDependencies) =>
  /**
   * @param role undefined: none
   * @param operator who does it; default: the command line
   * @throws NOT_FOUND; VALIDATION_ERROR for an account that the password or the mailbox of another person could open
   */
  (by: UserKey, role: OperatorRole | undefined, operator?: Operator) =>
    decideAndCommit(commit, async () => {
      const user = await findUser(users, by);
      if (!user || user.deletingAt !== undefined) throw userNotFound();
      const { id, email, emailVerified, sessionEpoch, signInRevision = null, operatorRole = null } = user;
      const result = { id, email, operatorRole: role ?? null };
      if (role === (operatorRole ?? undefined)) return { result };
      if (role !== undefined && (user.suspendedAt !== undefined || !emailVerified || !(await hasFactor(id))))
        throw invalidFields({ path: 'role', message: TOO_WEAK });
      // What removes the factor, or gives the account to a new owner, changes one of them.
      const asRead = { id, emailVerified, sessionEpoch, signInRevision, operatorRole, deletingAt: null };
      const parts = [
        // Sessions that began before might be those of another person, who has renewed them with the password alone.
        users.changing(
          asRead,
          role
            ? { set: { operatorRole: role }, unset: ['keptSession'], inc: { sessionEpoch: 1 } }
            : { unset: ['operatorRole'] },
        ),
        role && (await event('session.revoked', { userId: id, scope: 'global' })),
        audit.entry({
          ...{ event: 'operator.role-changed', subject: id, ...auditActor(operator) },
          detail: changeDetail({ role: operatorRole }, { role: role ?? null }),
        }),
      ];
      return { parts, result };
    });
