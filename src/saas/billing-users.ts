import { isDisabled, type Users } from '../auth/store.js';
import type { BillingUsers } from '../billing/users.js';

/** Adapts the users' records for billing. */
export function billingUsers(users: Users): BillingUsers {
  return {
    async find(id) {
      const user = await users.findOne({ id });
      if (!user) return null;
      const { email, name = '', locale, grant } = user;
      return { email, name, locale, isOpen: !isDisabled(user), ...(grant && { grant }) };
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
      async write(userId, revision, { status, plan, held }) {
        const written = await users.updateOne(
          { id: userId, subscriptionRev: revision === 0 ? null : revision },
          {
            set: {
              subscriptionStatus: status,
              subscriptionPlan: plan,
              subscriptionsHeld: { rev: revision + 1, terms: held },
            },
            inc: { subscriptionRev: 1 },
          },
        );
        return written !== null;
      },
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
