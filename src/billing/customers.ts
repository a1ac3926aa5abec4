import type { User } from '../http/schemas.js';
import type { Clock } from '../kernel/clock.js';
import { sha256 } from '../kernel/secrets.js';
import { nullIfTaken } from '../storage/collection.js';
import { billingErrors } from './errors.js';
import type { EventProcessor } from './events/processor.js';
import type { Gateway } from './provider/gateway.js';
import type { Customers } from './store.js';

/**
 * The customer of a user at the provider, created for the first purchase. Parallel first purchases create one customer.
 *
 * @param missing a customer that the provider no longer has, to be replaced
 */
export type EnsureCustomer = (
  user: Pick<User, 'id' | 'email'>,
  gateway: Pick<Gateway, 'createCustomer'>,
  missing?: string,
) => Promise<string>;

export interface CustomerDependencies {
  customers: Customers;
  processor: Pick<EventProcessor, 'replayUnmatched'>;
  clock: Clock;
}

export function createEnsureCustomer({ customers, processor, clock }: CustomerDependencies): EnsureCustomer {
  return async ({ id, email }, gateway, missing = '') => {
    if (missing !== '') await customers.deleteOne({ id, customerId: missing });
    const existing = await customers.findOne({ id });
    if (existing) return existing.customerId;
    // The address is part of the key, because the provider rejects a repeated key with different parameters.
    const key = `customer-${id}-${sha256(email + missing).slice(0, 16)}`;
    const { id: customerId } = await gateway.createCustomer({ email, userId: id }, key);
    const customer = { id, customerId, createdAt: clock.now() };
    const inserted = await customers.insert(customer).then(() => customer, nullIfTaken);
    const stored = inserted ?? (await customers.findOne({ id }));
    if (!stored) {
      const cause = new Error('The customer belongs to another user.');
      throw billingErrors.PAYMENT_PROVIDER_ERROR({ cause });
    }
    if (inserted) await processor.replayUnmatched(customerId);
    return stored.customerId;
  };
}
