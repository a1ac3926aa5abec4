import type { Change, Where } from '../core/storage/collection.js';
import { isDisabled, type UserDocument, type Users } from './auth/store.js';
import type { BillingUsers, Projection } from './billing/users.js';

/** The condition and the change of a projection. */
function projectionWrite(
  id: string,
  revision: number,
  { status, plan, held }: Projection,
): [Where<UserDocument>, Change<UserDocument>] {
  return [
    { id, subscriptionRev: revision === 0 ? null : revision },
    {
      set: {
        subscriptionStatus: status,
        subscriptionPlan: plan,
        subscriptionsHeld: { rev: revision + 1, terms: held },
      },
      inc: { subscriptionRev: 1 },
    },
  ];
}

/** Adapts the users' records for billing. */
export function billingUsers(users: Users): BillingUsers {
  return {
    async find(id) {
      const user = await users.findOne({ id });
      if (!user) return null;
      const { email, name = '', emailVerified, locale, grant } = user;
      return { email, name, emailVerified, locale, isOpen: !isDisabled(user), ...(grant && { grant }) };
    },

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

    projection: {
      async revision(userId) {
        const user = await users.findOne({ id: userId });
        return user && (user.subscriptionRev ?? 0);
      },
      write: (...projected) => users.changeOne(...projectionWrite(...projected)),
      writing: (...projected) => users.changing(...projectionWrite(...projected)),
    },

    grants: {
      async write(id, grant) {
        const before = await users.findOne({ id });
        const change = grant ? { set: { grant } } : { unset: ['grant' as const] };
        const written = before && (await users.updateOne({ id, deletingAt: null }, change));
        return written && { before: before.grant };
      },
    },
  };
}
