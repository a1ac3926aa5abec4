import { Email, fits, toTimestamp, type User } from '../http/schemas.js';
import { DAY } from '../kernel/clock.js';
import { httpErrors } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import { insertUser, type NewUser, type NewUserDependencies } from './new-users.js';
import type { UserDocument, Users, ViewOf } from './store.js';

/** Names a user: by identifier, or by e-mail address in upper or lower case. */
export type UserKey = { id: string } | { email: string };

/** A user as the operator's code sees it. */
export interface ManagedUser extends User {
  /** ISO 8601; null while the account is open. */
  suspendedAt: string | null;
  /** The plan that the operator gave, also when `until` has passed; null without one. */
  granted: { plan: string; since: string; until: string | null } | null;
}

export const noSuchUser = () => httpErrors.NOT_FOUND({ message: 'The user was not found.' });

/** `null` also for what is no address of ours. */
export async function findUser(users: Pick<Users, 'findOne'>, by: UserKey): Promise<UserDocument | null> {
  if ('id' in by) return users.findOne({ id: by.id });
  // Other letters have lower cases of these: a Kelvin sign would find whoever has a k.
  return fits(by.email, Email) ? users.findOne({ email: by.email.toLowerCase() }) : null;
}

/** What other domains and the host may know and change of users. */
export interface UserDirectory {
  find(by: UserKey): Promise<ManagedUser | null>;
  /**
   * Makes an account, whether or not registration is open. The audit names no address: nobody asked over HTTP.
   * @throws VALIDATION_ERROR, WEAK_PASSWORD, EMAIL_TAKEN, OVERLOADED
   */
  create(user: NewUser): Promise<ManagedUser>;
  /** Changes the display name; an empty one removes it. @throws UNAUTHENTICATED when the user is gone */
  rename(userId: string, name: string): Promise<User>;
  count(): Promise<number>;
  /** As the operator's code sees it. */
  view(user: UserDocument): Promise<ManagedUser>;
  newest(limit: number): Promise<User[]>;
  /** Registrations of each of the last `days` days (UTC), the oldest first. */
  registrations(days: number): Promise<{ date: string; count: number }[]>;
}

export function createUserDirectory(
  deps: NewUserDependencies & { users: Users; audit: Audit; viewOf: ViewOf },
): UserDirectory {
  const { users, viewOf, clock } = deps;
  const time = (at: number | undefined) => (at === undefined ? null : toTimestamp(at));
  const view = async (user: UserDocument): Promise<ManagedUser> => ({
    ...(await viewOf(user)),
    suspendedAt: time(user.suspendedAt),
    granted: user.grant
      ? { plan: user.grant.plan, since: toTimestamp(user.grant.since), until: time(user.grant.until) }
      : null,
  });
  return {
    view,
    async find(by) {
      const user = await findUser(users, by);
      return user && view(user);
    },
    async create(input) {
      const user = await insertUser(input, deps);
      await deps.audit.record({ event: 'user.created', subject: user.id, ip: 'local' });
      return view(user);
    },
    async rename(id, name) {
      const user = await users.updateOne({ id }, name === '' ? { unset: ['name'] } : { set: { name } });
      if (!user) throw httpErrors.UNAUTHENTICATED();
      return viewOf(user);
    },
    count: () => users.count(),
    async newest(limit) {
      const { items } = await users.page({ sort: 'createdAt', desc: true, limit });
      return Promise.all(items.map(viewOf));
    },
    async registrations(days) {
      const today = Math.floor(clock.now() / DAY);
      const starts = Array.from({ length: days }, (_, index) => (today - days + 1 + index) * DAY);
      const counts = await Promise.all(
        starts.map((start) => users.count({ createdAt: { gte: start, lt: start + DAY } })),
      );
      return starts.map((start, index) => ({
        date: toTimestamp(start).slice(0, 10),
        count: counts[index] ?? 0,
      }));
    },
  };
}
