import type { AuthModule, UsersModule } from './auth/module.js';
import type { OperatedSession } from './auth/users/administration.js';
import type { UserLists } from './auth/users/user-lists.js';
import type { UserChange } from './auth/users/user-update.js';
import { type ManagedUser, type UserDirectory, type UserKey, userNotFound } from './auth/users/users.js';
import type { GivenPlan, Grants } from './billing/grants.js';

/** User management without a server, for the command line. */
export type BasicUserApi = ReturnType<typeof createBasicUserApi>;

/** `fastify.saas.users`: user management for the host application. */
export interface UserApi extends BasicUserApi, UserLists {
  /** As `find`. @throws NOT_FOUND if there is no such user */
  get(by: UserKey): Promise<ManagedUser>;
  /**
   * Changes a user in one write. Of concurrent changes, none is lost.
   * @throws NOT_FOUND, also during a deletion; VALIDATION_ERROR, WEAK_PASSWORD, EMAIL_TAKEN, OVERLOADED
   */
  update(by: UserKey, change: UserChange): Promise<ManagedUser>;
  /**
   * Deletes the account and its data and cancels its subscriptions, as the user can do at `POST /user/delete`.
   * @throws NOT_FOUND; PAYMENT_PROVIDER_ERROR when the subscriptions could not be cancelled yet: the account is closed, and a
   *   background job deletes it after cancelling them
   */
  delete(by: UserKey): Promise<void>;
  /**
   * Exports everything stored about the user except secrets, hashes and counters. Long lists are async iterables of pages.
   * @throws NOT_FOUND
   */
  export(by: UserKey): Promise<Record<string, unknown>>;
  /** Sends a link that sets a new password. @throws NOT_FOUND, VALIDATION_ERROR for a disabled account */
  sendPasswordReset(by: UserKey): Promise<void>;
  /** Sends a link that verifies the address. @throws NOT_FOUND, VALIDATION_ERROR for a disabled account or a verified address */
  sendVerification(by: UserKey): Promise<void>;
  /** The sessions of users. */
  readonly sessions: Readonly<UserSessionApi>;
}

/** `fastify.saas.users.sessions` */
export interface UserSessionApi {
  /** Lists every session that is still stored, the newest first. @throws NOT_FOUND, VALIDATION_ERROR for an invalid `after` */
  list(by: UserKey, page?: { after?: string; limit?: number }): Promise<UserSessionPage>;
  /** Ends one session. @throws NOT_FOUND if the user has no such session, or it has ended */
  revoke(by: UserKey, sessionId: string): Promise<void>;
  /** Ends every session. @throws NOT_FOUND */
  revokeAll(by: UserKey): Promise<void>;
}

/** One page of the sessions of a user. */
export interface UserSessionPage {
  /** Of this page. */
  sessions: OperatedSession[];
  /** The `after` of the next page; null at the end. */
  next: string | null;
}

export interface UserApiDependencies {
  users: UsersModule;
  auth: AuthModule;
  grants: Grants;
}

export function createBasicUserApi({
  users: { directory, suspension, setRoles },
  grants,
}: {
  users: UsersModule;
  grants: Grants;
}) {
  const get = getterOf(directory);
  return {
    /** Finds a user by ID or address; null if there is none. */
    find: directory.find,
    /**
     * Creates an account, even when registration is disabled.
     * @throws VALIDATION_ERROR, WEAK_PASSWORD, EMAIL_TAKEN, OVERLOADED
     */
    create: directory.create,
    /**
     * Suspends an account: its sessions and mailed links end and stay invalid, and a sign-in fails. A repeated call changes nothing.
     * @throws NOT_FOUND
     */
    suspend: suspension.suspend,
    /** Lifts a suspension; the password stays the same. @throws NOT_FOUND, also during a deletion */
    unsuspend: suspension.unsuspend,
    /**
     * Replaces the roles of the user, which take effect at the next request. `[]` removes all of them.
     * @throws NOT_FOUND, also during a deletion; VALIDATION_ERROR for a role that the option `userRoles` does not have
     */
    setRoles: (by: UserKey, roles: readonly string[]): Promise<ManagedUser> => setRoles(by, roles),
    /**
     * Grants a plan in addition to purchased ones, until `until` (Unix time in milliseconds) or until it is revoked.
     * @throws VALIDATION_ERROR, NOT_FOUND
     */
    async grant(by: UserKey, given: GivenPlan): Promise<ManagedUser> {
      const { id } = await get(by);
      await grants.grant(id, given);
      return get({ id });
    },
    /** Revokes the granted plan; purchased ones stay. @throws NOT_FOUND */
    async revokeGrant(by: UserKey): Promise<ManagedUser> {
      const { id } = await get(by);
      await grants.revoke(id);
      return get({ id });
    },
  };
}

export function createUserApi(deps: UserApiDependencies): Readonly<UserApi> {
  const { directory, lists } = deps.users;
  const { administration, deleteByOperator, update } = deps.auth.service;
  const get = getterOf(directory);
  const idOf = async (by: UserKey): Promise<string> => (await get(by)).id;

  return Object.freeze<UserApi>({
    ...createBasicUserApi(deps),
    ...lists,
    get,
    update: async (by, change) => directory.toManagedUser(await update(by, change)),
    delete: async (by) => deleteByOperator(await idOf(by)),
    export: async (by) => deps.auth.exportAccount(await idOf(by)),
    sendPasswordReset: async (by) => administration.sendReset(await idOf(by)),
    sendVerification: async (by) => administration.sendVerification(await idOf(by)),
    sessions: Object.freeze<UserSessionApi>({
      async list(by, { after, limit = 50 } = {}) {
        const { items, next } = await administration.listSessions(await idOf(by), { after, limit });
        return { sessions: items, next };
      },
      revoke: async (by, sessionId) => administration.endSession(await idOf(by), sessionId),
      revokeAll: async (by) => administration.endSessions(await idOf(by)),
    }),
  });
}

/** Returns the user, or throws NOT_FOUND. */
const getterOf =
  ({ find }: UserDirectory): UserApi['get'] =>
  async (by) => {
    const user = await find(by);
    if (!user) throw userNotFound();
    return user;
  };
