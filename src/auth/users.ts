import { DAY } from '../kernel/clock.js';
import { httpErrors } from '../kernel/errors.js';
import { Email, fits, toTimestamp, type User } from '../kernel/schemas.js';
import type { Audit } from '../ops/audit.js';
import { insertUser, type NewUser, type NewUserDependencies } from './new-users.js';
import type { Users, ViewOf } from './store.js';

/** What other domains and the host may know and change of users. */
export interface UserDirectory {
  /** By identifier or e-mail address, upper or lower case; `null` for what is no address of ours. */
  find(by: { id: string } | { email: string }): Promise<User | null>;
  /**
   * Makes an account, whether or not registration is open. The audit names no address: nobody asked over HTTP.
   * @throws VALIDATION_ERROR, WEAK_PASSWORD, EMAIL_TAKEN, OVERLOADED
   */
  create(user: NewUser): Promise<User>;
  /** Changes the display name; an empty one removes it. @throws UNAUTHENTICATED when the user is gone */
  rename(userId: string, name: string): Promise<User>;
  count(): Promise<number>;
  newest(limit: number): Promise<User[]>;
  /** Registrations of each of the last `days` days (UTC), the oldest first. */
  registrations(days: number): Promise<{ date: string; count: number }[]>;
}

export function createUserDirectory(
  deps: NewUserDependencies & { users: Users; audit: Audit; viewOf: ViewOf },
): UserDirectory {
  const { users, viewOf, clock } = deps;
  return {
    async find(by) {
      // Other letters have lower cases of these: a Kelvin sign would find whoever has a k.
      if ('email' in by && !fits(by.email, Email)) return null;
      const user = await users.findOne('id' in by ? { id: by.id } : { email: by.email.toLowerCase() });
      return user && viewOf(user);
    },
    async create(input) {
      const user = await insertUser(input, deps);
      await deps.audit.record({ event: 'user.created', subject: user.id, ip: 'local' });
      return viewOf(user);
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
