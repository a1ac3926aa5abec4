import type { User } from '../../../core/http/schemas.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import type { Write } from '../../../core/storage/collection.js';
import { pagesOf } from '../../../core/storage/pages.js';
import type { BillingContext } from '../context.js';
import { billingErrors } from '../errors.js';
import type { Gateway } from '../provider/gateway.js';
import { profileChange } from './profile-sync.js';

/** Which customer at the provider belongs to which user. A link never moves to another user. */
export type CustomerLinks = ReturnType<typeof createCustomerLinks>;

export function createCustomerLinks({
  customers,
  linkedCustomers,
  users,
  commitForUser,
  clock,
}: BillingContext) {
  /** The user of a customer. */
  const findUser = async (customerId: string): Promise<string | null> =>
    (await customers.findOne({ customerId }))?.id ??
    (await linkedCustomers.findOne({ id: customerId }))?.userId ??
    null;

  /** The write that links a customer to a user, for a commit that locks the user. Undefined if the customer belongs to a user already. */
  const linking = async (userId: string, customerId: string): Promise<Write | undefined> => {
    if ((await findUser(customerId)) !== null) return undefined;
    const createdAt = clock.now();
    return (await customers.findOne({ id: userId }))
      ? linkedCustomers.inserting({ id: customerId, userId, createdAt })
      : customers.inserting({ id: userId, customerId, createdAt });
  };

  return {
    findUser,
    linking,

    /** Does nothing if the customer belongs to a user already, or if the user is being deleted. */
    link: (userId: string, customerId: string): Promise<void> =>
      commitForUser(userId, async (user) => {
        const link = await linking(userId, customerId);
        return link ? [link, users.locking(user)] : null;
      }),

    /** Every customer of a user; the one for the next checkout first. */
    async list(userId: string): Promise<string[]> {
      const own = await customers.findOne({ id: userId });
      const found = own ? [own.customerId] : [];
      for await (const page of pagesOf(linkedCustomers, { where: { userId }, sort: 'userId' }))
        found.push(...page.map(({ id }) => id));
      return found;
    },
  };
}

/**
 * The customer of a user at the provider, created for the first purchase. Parallel first purchases create one customer.
 */
export type EnsureCustomer = ReturnType<typeof createEnsureCustomer>;

export function createEnsureCustomer(
  { customers, users, tryCommit, clock }: BillingContext,
  replayUnmatched: (about: string) => Promise<void>,
) {
  const profileOf = async ({ id, email }: Pick<User, 'id' | 'email'>) =>
    (await users.find(id)) ?? { email, name: '' };

  /** @param missing a customer that the provider no longer has, to be replaced */
  return async (user: Pick<User, 'id' | 'email'>, gateway: Gateway, missing = ''): Promise<string> => {
    const { id } = user;
    if (missing !== '') await customers.deleteOne({ id, customerId: missing });
    const existing = await customers.findOne({ id });
    if (existing) return existing.customerId;
    const { email, name } = await profileOf(user);
    // The profile is part of the key, because the provider rejects a repeated key with different parameters.
    const key = `customer-${id}-${sha256(email + name + missing).slice(0, 16)}`;
    const { id: customerId } = await gateway.createCustomer({ email, name, userId: id }, key);
    const customer = { id, customerId, createdAt: clock.now() };
    const isInserted = await tryCommit([customers.inserting(customer), users.locking({ id })]);
    const stored = isInserted ? customer : await customers.findOne({ id });
    if (!stored) {
      const cause = new Error('The customer belongs to another user, or the account was deleted meanwhile.');
      throw billingErrors.PAYMENT_PROVIDER_ERROR({ cause });
    }
    const current = await profileOf(user);
    // A change during the call was made before the user had a customer.
    if (current.email !== email || current.name !== name) {
      await customers.updateOne({ id }, profileChange(clock.now()));
    }
    if (isInserted) await replayUnmatched(customerId);
    return stored.customerId;
  };
}
