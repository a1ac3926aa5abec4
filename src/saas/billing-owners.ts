import { isOrganizationId } from '../core/http/identity.js';
import type { Change, Collection } from '../core/storage/collection.js';
import { isDisabled, type Users } from './auth/store.js';
import { findUser } from './auth/users/users.js';
import type { BilledRecord, BillingOwner, BillingOwners } from './billing/owners.js';
import type { Organizations } from './organizations/store.js';

/** Adapts the records of users and organizations for billing. */
export function billingOwners(users: Users, organizations: Organizations): BillingOwners {
  const ofUsers = records(users, (user) => {
    const { email, name = '', emailVerified, locale } = user;
    return { email, name, emailVerified, locale, isOpen: !isDisabled(user) };
  });
  const ofOrganizations = records(organizations, ({ billingEmail: email, name, members, deletingAt }) => ({
    email,
    name,
    // An owner names any address.
    emailVerified: false,
    isOpen: deletingAt === undefined,
    members,
  }));
  const recordsOf = (id: string) => (isOrganizationId(id) ? ofOrganizations : ofUsers);
  return {
    find: (id) => recordsOf(id).find(id),
    findByEmail: async (email) => {
      const user = await findUser(users, { email });
      return user && ofUsers.view(user);
    },
    profileChanges: {
      list: async (limit) => [...(await ofUsers.changed(limit)), ...(await ofOrganizations.changed(limit))],
      acknowledge: (id, at) => recordsOf(id).acknowledge(id, at),
    },
    seatChanges: {
      async list(now, limit) {
        const where = { seatsDueAt: { lte: now } };
        const { items } = await organizations.page({ where, sort: 'seatsDueAt', limit });
        return items.map(({ id, members, seatsDueAt = 0 }) => ({ ownerId: id, members, dueAt: seatsDueAt }));
      },
      async acknowledge({ ownerId: id, members, dueAt: seatsDueAt }) {
        await organizations.updateOne({ id, members, seatsDueAt }, { unset: ['seatsDueAt'] });
      },
      async postpone({ ownerId: id, members, dueAt }, seatsDueAt) {
        await organizations.updateOne({ id, members, seatsDueAt: dueAt }, { set: { seatsDueAt } });
      },
    },
    projecting: (owner, { status, plan, held, ...seats }) =>
      recordsOf(owner.id).writing(owner, {
        subscriptionStatus: status,
        subscriptionPlan: plan,
        subscriptionsHeld: held,
        ...seats,
      }),
    locking: (owner) => recordsOf(owner.id).writing(owner),
    granting: (id, grant) => recordsOf(id).granting(id, grant),
  };
}

type Described = Pick<BillingOwner, 'members' | 'email' | 'name' | 'emailVerified' | 'locale' | 'isOpen'>;

function records<T extends BilledRecord>(collection: Collection<T>, describe: (document: T) => Described) {
  /** Only of the fields that both kinds of records have. */
  const documents = collection as unknown as Collection<BilledRecord>;
  const view = (document: T): BillingOwner => {
    const {
      id,
      subscriptionRev: rev = 0,
      subscriptionsHeld: held = [],
      grant,
      deletingAt,
      createdAt,
    } = document;
    const isBeingDeleted = deletingAt !== undefined;
    return { id, rev, ...describe(document), isBeingDeleted, held, createdAt, ...(grant && { grant }) };
  };
  return {
    view,
    async find(id: string): Promise<BillingOwner | null> {
      const found = await documents.findOne({ id });
      return found && view(found as T);
    },
    async changed(limit: number) {
      const where = { profileChangedAt: { gte: 0 } };
      const { items } = await documents.page({ where, sort: 'profileChangedAt', limit });
      return items.map(({ id, profileChangedAt = 0 }) => ({ ownerId: id, changedAt: profileChangedAt }));
    },
    async acknowledge(id: string, profileChangedAt: number): Promise<void> {
      await documents.updateOne({ id, profileChangedAt }, { unset: ['profileChangedAt'] });
    },
    writing({ id, rev }: { id: string; rev?: number }, set: Change<BilledRecord>['set'] = {}) {
      const expected = rev === undefined ? {} : { subscriptionRev: rev === 0 ? null : rev };
      return documents.changing({ id, deletingAt: null, ...expected }, { set, inc: { subscriptionRev: 1 } });
    },
    granting: (id: string, grant: BilledRecord['grant'] | null) =>
      documents.changing({ id, deletingAt: null }, grant ? { set: { grant } } : { unset: ['grant'] }),
  };
}
