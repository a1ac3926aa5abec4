import type { Clock } from '../kernel/clock.js';
import type { Audit } from '../ops/audit.js';
import type { Emit } from '../ops/events.js';
import type { Change } from '../storage/collection.js';
import type { AuthEvents } from './events.js';
import { ALL_LINKS, type UserDocument, type Users } from './store.js';
import { findUser, type ManagedUser, noSuchUser, type UserKey } from './users.js';

/** Suspension of accounts by the operator. */
export interface Suspension {
  /**
   * Suspends an account: from its next request on, in every process, its access and refresh tokens are refused, and a
   * login with the right password is answered with ACCOUNT_SUSPENDED. Its sessions and mailed links end, and none of
   * them works again after `unsuspend`. A second call changes nothing.
   * @throws NOT_FOUND
   */
  suspend(by: UserKey): Promise<ManagedUser>;
  /** Lifts a suspension: the user signs in with the same password. @throws NOT_FOUND, also during a deletion */
  unsuspend(by: UserKey): Promise<ManagedUser>;
}

export interface SuspensionDependencies {
  users: Users;
  audit: Audit;
  emit: Emit<AuthEvents>;
  view(user: UserDocument): Promise<ManagedUser>;
  clock: Clock;
}

export function createSuspension(deps: SuspensionDependencies): Suspension {
  const { users, audit, emit, view, clock } = deps;

  /** Changes the account unless it is in the wanted state already; `null` then. */
  const change = async (
    user: UserDocument,
    wanted: 'suspended' | 'open',
    update: Change<UserDocument>,
  ): Promise<UserDocument | null> => {
    const { id } = user;
    const isSuspended = wanted === 'suspended' ? null : { gt: 0 };
    const changed = await users.updateOne({ id, suspendedAt: isSuspended, deletingAt: null }, update);
    if (!changed) return null;
    const event = wanted === 'suspended' ? 'user.suspended' : 'user.unsuspended';
    await audit.record({ event, subject: id, ip: 'local' });
    if (wanted === 'suspended') emit('session.revoked', { userId: id, scope: 'global' });
    emit(event, { userId: id });
    return changed;
  };

  const current = async ({ id }: UserDocument): Promise<UserDocument> => {
    const user = await users.findOne({ id });
    if (!user || user.deletingAt !== undefined) throw noSuchUser();
    return user;
  };

  return {
    async suspend(by) {
      const user = await findUser(users, by);
      if (!user) throw noSuchUser();
      const changed = await change(user, 'suspended', {
        set: { suspendedAt: clock.now() },
        // Also of sessions that a login or a refresh is about to begin with what it read before this write.
        inc: { sessionEpoch: 1 },
        unset: [...ALL_LINKS, 'keptSession'],
      });
      return view(changed ?? (await current(user)));
    },

    async unsuspend(by) {
      const user = await findUser(users, by);
      if (!user) throw noSuchUser();
      const changed = await change(user, 'open', { unset: ['suspendedAt'] });
      return view(changed ?? (await current(user)));
    },
  };
}
