import { formatValue } from '../../../core/config/validation-messages.js';
import { invalidFields } from '../../../core/kernel/errors.js';
import { type Audit, auditActor, changeDetail, type Operator } from '../../../core/ops/audit.js';
import { type CommitParts, decideAndCommit } from '../../../core/ops/commit.js';
import type { EventOf } from '../../../core/ops/events.js';
import { applyChange } from '../../../core/storage/semantics.js';
import type { AuthEvents } from '../events.js';
import type { PresentUser, UserDocument, Users } from '../store.js';
import { findUser, type ManagedUser, type UserKey, userNotFound } from './users.js';

/** Replaces the roles of a user. */
export type SetRoles = ReturnType<typeof createSetRoles>;

export interface SetRolesDependencies {
  users: Users;
  /** Absent without the option. */
  userRoles: readonly string[] | undefined;
  audit: Audit;
  commit: CommitParts;
  event: EventOf<AuthEvents>;
  presentUser: PresentUser;
  toManagedUser(user: UserDocument): ManagedUser;
}

export function createSetRoles(deps: SetRolesDependencies) {
  const { users, userRoles } = deps;
  return async (by: UserKey, roles: readonly string[], operator?: Operator): Promise<ManagedUser> => {
    const given = requireRoles(roles, userRoles);
    return decideAndCommit(deps.commit, async () => {
      const user = await findUser(users, by);
      if (!user || user.deletingAt !== undefined) throw userNotFound();
      const { id, profileVersion = null } = user;
      const [before = '', after] = [user.roles?.join(', '), given.join(', ')];
      if (before === after) return { result: deps.toManagedUser(user) };
      const change = given.length > 0 ? { set: { roles: given } } : { unset: ['roles' as const] };
      const changed = applyChange(user, change);
      const parts = [
        users.changing({ id, profileVersion, deletingAt: null }, { ...change, inc: { profileVersion: 1 } }),
        await deps.event('user.updated', { userId: id, user: deps.presentUser(changed) }),
        deps.audit.entry({
          ...{ event: 'user.roles-changed', subject: id, ...auditActor(operator) },
          detail: changeDetail({ roles: before }, { roles: after }),
        }),
      ];
      return { parts, result: deps.toManagedUser(changed) };
    });
  };
}

/** The roles without repetitions, in the order of the option. @throws VALIDATION_ERROR */
function requireRoles(given: readonly string[], known: readonly string[] | undefined): string[] {
  const problem = (message: string) => invalidFields({ path: 'roles', message });
  if (!known) throw problem('cannot be given without USER_ROLES, which lists them');
  if (!Array.isArray(given)) throw problem(`must be a list of roles; given: ${formatValue(given)}`);
  const unknown = given.find((role) => !known.includes(role));
  if (unknown !== undefined)
    throw problem(`has ${formatValue(unknown)}, but the roles of USER_ROLES are: ${known.join(', ')}`);
  return known.filter((role) => given.includes(role));
}
