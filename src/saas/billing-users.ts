import type { Change, Where } from '../core/storage/collection.js';
import { isDisabled, type UserDocument, type Users } from './auth/store.js';
import { findUser } from './auth/users/users.js';
import type { BillingUser, BillingUsers } from './billing/users.js';

/** Adapts the users' records for billing. */
export function billingUsers(users: Users): BillingUsers {
  const writing = ({ id, rev }: { id: string; rev?: number }, set: Change<UserDocument>['set'] = {}) => {
    const where: Where<UserDocument> = { id, deletingAt: null };
    if (rev !== undefined) where.subscriptionRev = rev === 0 ? null : rev;
    return users.changing(where, { set, inc: { subscriptionRev: 1 } });
  };
  const view = (user: UserDocument | null): BillingUser | null => {
    if (!user) return null;
    const { id, email, name = '', emailVerified, locale, grant, subscriptionRev: rev = 0, deletingAt } = user;
    const { subscriptionsHeld: held = [], createdAt } = user;
    const isBeingDeleted = deletingAt !== undefined;
    const isOpen = !isDisabled(user);
    const state = { isOpen, isBeingDeleted, held, createdAt };
    return { id, rev, email, name, emailVerified, locale, ...state, ...(grant && { grant }) };
  };
  return {
    find: async (id) => view(await users.findOne({ id })),
    findByEmail: async (email) => view(await findUser(users, { email })),

    profileChanges: {
      async list(limit) {
        const where = { profileChangedAt: { gte: 0 } };
        const { items } = await users.page({ where, sort: 'profileChangedAt', limit });
        return items.map(({ id, profileChangedAt = 0 }) => ({ userId: id, changedAt: profileChangedAt }));
      },
      async acknowledge(id, profileChangedAt) {
        await users.updateOne({ id, profileChangedAt }, { unset: ['profileChangedAt'] });
      },
    },

    projecting: (user, { status, plan, held }) =>
      writing(user, { subscriptionStatus: status, subscriptionPlan: plan, subscriptionsHeld: held }),
    locking: (user) => writing(user),

    granting: (id, grant) =>
      users.changing({ id, deletingAt: null }, grant ? { set: { grant } } : { unset: ['grant'] }),
  };
}
