import type { Suspension } from '../auth/suspension.js';
import { type ManagedUser, noSuchUser, type UserDirectory, type UserKey } from '../auth/users.js';
import type { GivenPlan, Grants } from '../billing/grants.js';

/** Users, for the operator's own code: `fastify.saas.users`. */
export interface UserApi extends Pick<UserDirectory, 'find' | 'create'>, Suspension {
  /**
   * Gives a user a plan, beside whatever they have bought, until `until` (epoch milliseconds) or until it is revoked.
   * @throws VALIDATION_ERROR, NOT_FOUND
   */
  grant(by: UserKey, given: GivenPlan): Promise<ManagedUser>;
  /** Takes back what `grant` gave, and nothing that was bought. @throws NOT_FOUND */
  revokeGrant(by: UserKey): Promise<ManagedUser>;
}

export interface UserApiDependencies {
  directory: UserDirectory;
  suspension: Suspension;
  grants: Grants;
}

export function createUserApi({ directory, suspension, grants }: UserApiDependencies): Readonly<UserApi> {
  const { find, create } = directory;

  const found = async (by: UserKey): Promise<ManagedUser> => {
    const user = await find(by);
    if (!user) throw noSuchUser();
    return user;
  };

  return Object.freeze<UserApi>({
    find,
    create,
    ...suspension,
    async grant(by, given) {
      const { id } = await found(by);
      await grants.grant(id, given);
      return found({ id });
    },
    async revokeGrant(by) {
      const { id } = await found(by);
      await grants.revoke(id);
      return found({ id });
    },
  });
}
