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
  commitForOwner,
  owners,
  clock,
}: BillingContext) {
  /** The user of a customer. */
  const findUser = async (id: string): Promise<string | null> =>
    (await customers.findOne({ id }))?.ownerId ?? null;

  /** The write that links a customer to a user, for a commit that locks the user. Undefined if the customer belongs to a user already. */
  const linking = async (ownerId: string, id: string): Promise<Write | undefined> =>
    (await findUser(id)) === null ? customers.inserting({ id, ownerId, createdAt: clock.now() }) : undefined;

  /** The customers of a user: those with a running subscription first, then the earliest. */
  const all = async (ownerId: string): Promise<CustomerDocument[]> => {
    const found = await allOf(customers, { where: { ownerId }, sort: 'createdAt' });
    if (found.length < 2) return found;
    const held = await listSubscriptions(subscriptions, ownerId);
    const isRunning = ({ id }: CustomerDocument) =>
      held.some(({ customerId, status }) => customerId === id && !isTerminal(status));
    return [...found.filter(isRunning), ...found.filter((one) => !isRunning(one))];
  };

  return {
    findUser,
    linking,
    all,

    /** Does nothing if the customer belongs to a user already, or if the user is being deleted. */
    link: (ownerId: string, customerId: string): Promise<void> =>
      commitForOwner(ownerId, async (user) => {
        const link = await linking(ownerId, customerId);
        return link ? [link, owners.locking(user)] : null;
      }),

    /** The IDs of `all`. The first one is used for what the user buys next. */
    list: async (ownerId: string): Promise<string[]> => (await all(ownerId)).map(({ id }) => id),
  };
}

/**
 * The customer of a user at the provider, created for the first purchase. Parallel first purchases create one customer.
 */
export type EnsureCustomer = ReturnType<typeof createEnsureCustomer>;

export function createEnsureCustomer(
  { customers, owners, tryCommit, clock }: BillingContext,
  links: CustomerLinks,
  replayUnmatched: (about: string) => Promise<void>,
) {
  /** @param missing a customer that the provider no longer has, to be replaced */
  return async ({ id: ownerId }: Pick<User, 'id'>, gateway: Gateway, missing = ''): Promise<string> => {
    if (missing !== '') await customers.deleteOne({ id: missing, ownerId });
    for (;;) {
      const before = await owners.find(ownerId);
      if (!before || before.isBeingDeleted) throw unusable('The account was deleted meanwhile.');
      const [existing] = await links.list(ownerId);
      if (existing !== undefined) return existing;
      const { email, name } = before;
      // The profile is part of the key, because the provider rejects a repeated key with different parameters.
      const key = `customer-${ownerId}-${sha256(email + name + missing).slice(0, 16)}`;
      const { id } = await gateway.createCustomer({ email, name, ownerId }, key);
      const created = customers.inserting({ id, ownerId, createdAt: clock.now() });
      if (await tryCommit([created, owners.locking(before)])) {
        // A change during the call was made before the user had a customer.
        const after = await owners.find(ownerId);
        if (after?.email !== email || after.name !== name)
          await customers.updateOne({ id }, profileChange(clock.now()));
        await replayUnmatched(id);
        return id;
      }
      const owner = await links.findUser(id);
      if (owner !== null && owner !== ownerId) throw unusable('The customer belongs to another user.');
    }
  };
}

const unusable = (reason: string) => billingErrors.PAYMENT_PROVIDER_ERROR({ cause: new Error(reason) });
