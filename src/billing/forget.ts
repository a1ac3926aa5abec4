import type { Projector } from './project.js';
import type { Customers, Payments, Subscriptions, WebhookEvents } from './store.js';

/** Removes what is stored of a user. What the provider knows of them stays there. */
export type Forget = (userId: string) => Promise<void>;

/** Removes what came in of a user who was deleted meanwhile. True where there is no such user any more. */
export type ForgetGone = (userId: string) => Promise<boolean>;

export interface ForgetDependencies {
  customers: Customers;
  subscriptions: Subscriptions;
  payments: Payments;
  events: WebhookEvents;
  projector: Pick<Projector, 'all'>;
}

export function createForget(deps: ForgetDependencies): Forget {
  const { customers, subscriptions, payments, events, projector } = deps;
  return async (userId) => {
    const customer = await customers.findOne({ id: userId });
    const bought = await projector.all(userId);
    const theirs = [customer?.customerId, ...bought.flatMap((one) => [one.customerId, one.id])];
    const about = theirs.filter((id) => id !== undefined);
    // Events name people, too. Those that come later find nobody.
    if (about.length > 0) await events.deleteMany({ about: { in: about } });
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
