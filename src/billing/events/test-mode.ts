import { type Customers, listSubscriptions, type Subscriptions } from '../store.js';
import type { BillingEvent } from './provider-objects.js';

/**
 * Keeps events of the provider's test mode away from live data: anyone with access to the test mode can create them
 * without a payment, for any user. Events of live mode, and events that state no mode, are always applied.
 */

/** Whether an event of test mode is about a live subscription, or about a user who has one. */
export type ConcernsLiveData = (event: BillingEvent) => Promise<boolean>;

export interface LiveDataDependencies {
  subscriptions: Subscriptions;
  customers: Customers;
}

/** For keys that state no mode, and for servers without a key. */
export function createLiveDataCheck({ subscriptions, customers }: LiveDataDependencies): ConcernsLiveData {
  const userOf = async ({
    customerId,
    metadataUserId,
    referenceUserId,
  }: BillingEvent): Promise<string | undefined> => {
    const customer = customerId === undefined ? null : await customers.findOne({ customerId });
    return customer?.id ?? metadataUserId ?? referenceUserId;
  };

  return async (event) => {
    if (event.livemode !== false) return false;
    const { subscriptionId: id } = event;
    const subscription = id === undefined ? null : await subscriptions.findOne({ id });
    if (subscription?.livemode !== undefined) return subscription.livemode;
    const userId = subscription?.userId ?? (await userOf(event));
    if (userId === undefined) return false;
    const all = await listSubscriptions(subscriptions, userId);
    return all.some(({ livemode }) => livemode === true);
  };
}
