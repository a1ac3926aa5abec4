import type { Clock } from '../kernel/clock.js';
import { httpErrors } from '../kernel/errors.js';
import { toTimestamp, type User } from '../kernel/schemas.js';
import { nullIfTaken } from '../storage/collection.js';
import { createCoalescer } from './coalesce.js';
import { isEntitled, type PastDue } from './entitlement.js';
import { billingErrors } from './errors.js';
import type { ForgetGone } from './forget.js';
import type { Gateway } from './gateway.js';
import type { Processor } from './process.js';
import { NO_SUBSCRIPTION, type Projector } from './project.js';
import type { Refresh } from './refresh.js';
import type { Subscription } from './schemas.js';
import { idIn, type Json, objectIn } from './snapshot.js';
import { bestOf } from './status.js';
import type { Customers, SubscriptionDocument } from './store.js';

/** What a user has, and what it entitles them to. */
export interface SubscriptionService {
  /** The subscription that speaks for the user, or none; `entitled` is true where any of theirs entitles. */
  current(userId: string): Promise<Subscription>;
  /**
   * The same after a look at the provider: for the moment between the return from checkout and the webhook.
   * @throws BILLING_NOT_CONFIGURED, PAYMENT_PROVIDER_ERROR, NOT_FOUND for a session that is not the user's
   */
  sync(user: User, sessionId?: string): Promise<Subscription>;
  /** Whether any subscription of the user entitles, to `plan` where one is named. */
  entitles(userId: string, plan?: string): Promise<boolean>;
}

export interface SubscriptionDependencies {
  customers: Customers;
  projector: Projector;
  processor: Processor;
  forgetGone: ForgetGone;
  /** Both absent while no key is configured. */
  gateway: Gateway | undefined;
  refresh: Refresh | undefined;
  pastDue: PastDue;
  clock: Clock;
}

export function createSubscriptionService(deps: SubscriptionDependencies): SubscriptionService {
  const { customers, projector, processor, gateway, refresh, pastDue, clock } = deps;

  const doEntitle = (bought: SubscriptionDocument[], plan?: string): boolean =>
    bought.some(
      (held) => (plan === undefined || held.plan === plan) && isEntitled(held, pastDue, clock.now()),
    );

  const current = async (userId: string): Promise<Subscription> => {
    const bought = await projector.all(userId);
    const best = bestOf(bought);
    // As the guard has it: a subscription that speaks for the user need not be the one that entitles.
    return best ? subscriptionView(best, doEntitle(bought)) : NONE;
  };

  /** The customer that a session of the user's names. */
  const customerIn = (session: Json | null, user: User): string | undefined => {
    const { userId } = objectIn(session?.['metadata']);
    const isTheirs = session && session['client_reference_id'] === user.id && userId === user.id;
    // Somebody else's session is as unknown as one that never was.
    if (!isTheirs) throw httpErrors.NOT_FOUND({ message: 'There is no such checkout session.' });
    return idIn(session['customer']);
  };

  const sessionOnce = createCoalescer<Json | null>();

  return {
    current,

    async sync(user, sessionId) {
      if (!gateway || !refresh) throw billingErrors.BILLING_NOT_CONFIGURED();
      if (sessionId !== undefined) {
        const session = await sessionOnce(sessionId, () => gateway.checkoutSession(sessionId));
        const customerId = customerIn(session, user);
        if (customerId !== undefined) {
          await customers.insert({ id: user.id, customerId, createdAt: clock.now() }).catch(nullIfTaken);
          await deps.forgetGone(user.id);
        }
      }
      const customer = await customers.findOne({ id: user.id });
      if (customer) {
        await refresh.allOf(customer.customerId, user.id);
        await processor.replay(customer.customerId);
      }
      return current(user.id);
    },

    entitles: async (userId, plan) => doEntitle(await projector.all(userId), plan),
  };
}

const NONE: Subscription = {
  ...NO_SUBSCRIPTION,
  entitled: false,
  priceId: null,
  quantity: null,
  currentPeriodStart: null,
  currentPeriodEnd: null,
  trialEnd: null,
  cancelAtPeriodEnd: null,
  cancelAt: null,
  canceledAt: null,
  endedAt: null,
  updatedAt: null,
};

/** A subscription as clients see it. */
function subscriptionView(held: SubscriptionDocument, entitled: boolean): Subscription {
  const time = (milliseconds: number | undefined) =>
    milliseconds === undefined ? null : toTimestamp(milliseconds);
  return {
    status: held.status,
    plan: held.plan,
    entitled,
    priceId: held.priceId ?? null,
    quantity: held.quantity ?? null,
    currentPeriodStart: time(held.currentPeriodStart),
    currentPeriodEnd: time(held.currentPeriodEnd),
    trialEnd: time(held.trialEnd),
    cancelAtPeriodEnd: held.cancelAtPeriodEnd,
    cancelAt: time(held.cancelAt),
    canceledAt: time(held.canceledAt),
    endedAt: time(held.endedAt),
    updatedAt: time(held.updatedAt),
  };
}
