import type { Customers, Payments, SubscriptionDocument, Subscriptions, WebhookEvents } from './store.js';

/** Removes what is stored of a user. What the provider knows of them stays there. */
export type Forget = (userId: string) => Promise<void>;

/** Removes what came in of a user who was deleted meanwhile. True where there is no such user any more. */
export type ForgetGone = (userId: string) => Promise<boolean>;

export interface ForgetDependencies {
  customers: Customers;
  subscriptions: Subscriptions;
  payments: Payments;
  events: WebhookEvents;
  /** What a user has or had. */
  bought(userId: string): Promise<SubscriptionDocument[]>;
}

export function createForget(deps: ForgetDependencies): Forget {
  const { customers, subscriptions, payments, events, bought } = deps;
  return async (userId) => {
    const [customer, known] = await Promise.all([customers.findOne({ id: userId }), bought(userId)]);
    // Events name people, too. Those that come later find nobody.
    for (const customerId of new Set([customer, ...known].flatMap((one) => one?.customerId ?? []))) {
      await events.deleteMany({ customerId });
    }
    // Some name their subscription alone.
    for (const { id } of known) await events.deleteMany({ subscriptionId: id });
    await subscriptions.deleteMany({ userId });
    await payments.deleteMany({ userId });
    await customers.deleteOne({ id: userId });
  };
}

export function createForgetGone(forget: Forget, userExists: (id: string) => Promise<boolean>): ForgetGone {
  return async (userId) => {
    if (await userExists(userId)) return false;
    await forget(userId);
    return true;
  };
}
