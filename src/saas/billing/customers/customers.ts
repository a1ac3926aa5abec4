import type { User } from '../../../core/http/schemas.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import type { Write } from '../../../core/storage/collection.js';
import { allOf } from '../../../core/storage/pages.js';
import type { BillingContext } from '../context.js';
import { billingErrors } from '../errors.js';
import type { Gateway } from '../provider/gateway.js';
import { type CustomerDocument, isTerminal, listSubscriptions } from '../store.js';
import { profileChange } from './profile-sync.js';

/** Which customers at the provider belong to which user. A customer never moves to another user. */
export type CustomerLinks = ReturnType<typeof createCustomerLinks>;

export function createCustomerLinks({
  customers,
  subscriptions,
  commitForUser,
  users,
  clock,
}: BillingContext) {
  /** The user of a customer. */
  const findUser = async (id: string): Promise<string | null> =>
    (await customers.findOne({ id }))?.userId ?? null;

  /** The write that links a customer to a user, for a commit that locks the user. Undefined if the customer belongs to a user already. */
  const linking = async (userId: string, id: string): Promise<Write | undefined> =>
    (await findUser(id)) === null ? customers.inserting({ id, userId, createdAt: clock.now() }) : undefined;

  /** The customers of a user: those with a running subscription first, then the earliest. */
  const all = async (userId: string): Promise<CustomerDocument[]> => {
    const found = await allOf(customers, { where: { userId }, sort: 'createdAt' });
    if (found.length < 2) return found;
    const held = await listSubscriptions(subscriptions, userId);
    const isRunning = ({ id }: CustomerDocument) =>
      held.some(({ customerId, status }) => customerId === id && !isTerminal(status));
    return [...found.filter(isRunning), ...found.filter((one) => !isRunning(one))];
  };

  return {
    findUser,
    linking,
    all,

    /** Does nothing if the customer belongs to a user already, or if the user is being deleted. */
    link: (userId: string, customerId: string): Promise<void> =>
      commitForUser(userId, async (user) => {
        const link = await linking(userId, customerId);
        return link ? [link, users.locking(user)] : null;
      }),

    /** The IDs of `all`. The first one is used for what the user buys next. */
    list: async (userId: string): Promise<string[]> => (await all(userId)).map(({ id }) => id),
  };
}

/**
 * The customer of a user at the provider, created for the first purchase. Parallel first purchases create one customer.
 */
export type EnsureCustomer = ReturnType<typeof createEnsureCustomer>;

export function createEnsureCustomer(
  { customers, users, tryCommit, clock }: BillingContext,
  links: CustomerLinks,
  replayUnmatched: (about: string) => Promise<void>,
) {
  /** @param missing a customer that the provider no longer has, to be replaced */
  return async ({ id: userId }: Pick<User, 'id'>, gateway: Gateway, missing = ''): Promise<string> => {
    if (missing !== '') await customers.deleteOne({ id: missing, userId });
    for (;;) {
      const before = await users.find(userId);
      if (!before || before.isBeingDeleted) throw unusable('The account was deleted meanwhile.');
      const [existing] = await links.list(userId);
      if (existing !== undefined) return existing;
      const { email, name } = before;
      // The profile is part of the key, because the provider rejects a repeated key with different parameters.
      const key = `customer-${userId}-${sha256(email + name + missing).slice(0, 16)}`;
      const { id } = await gateway.createCustomer({ email, name, userId }, key);
      const created = customers.inserting({ id, userId, createdAt: clock.now() });
      if (await tryCommit([created, users.locking(before)])) {
        // A change during the call was made before the user had a customer.
        const after = await users.find(userId);
        if (after?.email !== email || after.name !== name)
          await customers.updateOne({ id }, profileChange(clock.now()));
        await replayUnmatched(id);
        return id;
      }
      const owner = await links.findUser(id);
      if (owner !== null && owner !== userId) throw unusable('The customer belongs to another user.');
    }
  };
}

const unusable = (reason: string) => billingErrors.PAYMENT_PROVIDER_ERROR({ cause: new Error(reason) });
