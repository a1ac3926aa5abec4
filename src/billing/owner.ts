import type { Clock } from '../kernel/clock.js';
import { nullIfTaken } from '../storage/collection.js';
import type { BillingEvent } from './event.js';
import type { Customers, SubscriptionDocument, Subscriptions } from './store.js';

/**
 * Whose an event is: by the subscription, else by the customer, else by our user's id, which checkout writes on what it
 * makes. Never by an address: whoever types one in at the provider would own another's subscription.
 */
export type OwnerOf = (
  event: Pick<BillingEvent, 'subscriptionId' | 'customerId' | 'metadataUserId'>,
) => Promise<Owner | null>;

export interface Owner {
  userId: string;
  /** Where it was the subscription that told. */
  subscription?: SubscriptionDocument;
}

export interface OwnerDependencies {
  subscriptions: Subscriptions;
  customers: Customers;
  userExists(id: string): Promise<boolean>;
  clock: Clock;
}

export function createOwnerLookup(deps: OwnerDependencies): OwnerOf {
  const { subscriptions, customers, userExists, clock } = deps;
  return async ({ subscriptionId, customerId, metadataUserId }) => {
    const subscription = subscriptionId && (await subscriptions.findOne({ id: subscriptionId }));
    if (subscription) return { userId: subscription.userId, subscription };
    const customer = customerId && (await customers.findOne({ customerId }));
    if (customer) return { userId: customer.id };
    if (metadataUserId === undefined || !(await userExists(metadataUserId))) return null;
    if (customerId !== undefined) {
      // A user who has another customer already keeps it; the subscription is theirs all the same.
      await customers.insert({ id: metadataUserId, customerId, createdAt: clock.now() }).catch(nullIfTaken);
    }
    return { userId: metadataUserId };
  };
}
