import { formatValue } from '../../../core/config/validation-messages.js';
import { invalidFields } from '../../../core/kernel/errors.js';
import { auditActor, changeDetail, type Operator } from '../../../core/ops/audit.js';
import { decideAndCommit } from '../../../core/ops/commit.js';
import type { PresentUser } from '../store.js';
import type { SuspensionDependencies } from './suspension.js';
import { findUser, type ManagedUser, type UserKey, userNotFound } from './users.js';

/** Replaces the roles of a user. */
export type SetRoles = ReturnType<typeof createSetRoles>;

export type SetRolesDependencies = Omit<SuspensionDependencies, 'clock'> & {
  presentUser: PresentUser;
  userRoles?: readonly string[] | undefined;
};

export function createSetRoles({ users, userRoles: known, ...deps }: SetRolesDependencies) {
  return async (by: UserKey, given: readonly string[], operator?: Operator): Promise<ManagedUser> => {
    const unknown = given.find((role) => !known?.includes(role));
    if (!known || unknown !== undefined) {
      const wrong = `has ${formatValue(unknown)}, but the roles of USER_ROLES are: ${known?.join(', ')}`;
      const message = known ? wrong : 'cannot be given without USER_ROLES, which lists them';
      throw invalidFields({ path: 'roles', message });
    }
    const roles = known.filter((role) => given.includes(role));
    return decideAndCommit(deps.commit, async () => {
      const user = await findUser(users, by);
      if (!user || user.deletingAt !== undefined) throw userNotFound();
      const { id, profileVersion = null } = user;
      const changed = { ...user, roles };
      const [before, after] = [user.roles ?? [], roles].map((some) => some.join(', '));
      const result = deps.toManagedUser(changed);
      if (before === after) return { result };
      const detail = changeDetail({ roles: before }, { roles: after });
      const parts = [
        users.changing(
          { id, profileVersion, deletingAt: null },
          { set: { roles }, inc: { profileVersion: 1 } },
        ),
        await deps.event('user.updated', { userId: id, user: deps.presentUser(changed) }),
        deps.audit.entry({ event: 'user.roles-changed', subject: id, ...auditActor(operator), detail }),
      ];
      return { parts, result };
    });
  };
}
