import type { Suspension } from '../auth/suspension.js';
import { type ManagedUser, type UserDirectory, type UserKey, userNotFound } from '../auth/users.js';
import type { GivenPlan, Grants } from '../billing/grants.js';

/** `fastify.saas.users`: user management for the host application. */
export interface UserApi extends Pick<UserDirectory, 'find' | 'create'>, Suspension {
  /**
   * Grants a plan in addition to purchased ones, until `until` (Unix time in milliseconds) or until it is revoked.
   * @throws VALIDATION_ERROR, NOT_FOUND
   */
  grant(by: UserKey, given: GivenPlan): Promise<ManagedUser>;
  /** Revokes the granted plan; purchased ones stay. @throws NOT_FOUND */
  revokeGrant(by: UserKey): Promise<ManagedUser>;
}

export interface UserApiDependencies {
  directory: UserDirectory;
  suspension: Suspension;
  grants: Grants;
}

export function createUserApi({ directory, suspension, grants }: UserApiDependencies): Readonly<UserApi> {
  const { find, create } = directory;

  const findExisting = async (by: UserKey): Promise<ManagedUser> => {
    const user = await find(by);
    if (!user) throw userNotFound();
    return user;
  };

  return Object.freeze<UserApi>({
    find,
    create,
    ...suspension,
    async grant(by, given) {
      const { id } = await findExisting(by);
      await grants.grant(id, given);
      return findExisting({ id });
    },
    async revokeGrant(by) {
      const { id } = await findExisting(by);
      await grants.revoke(id);
      return findExisting({ id });
    },
  });
}
