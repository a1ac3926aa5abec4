import { type SubscriptionStatus, toTimestamp, type User } from '../http/schemas.js';
import type { Clock } from '../kernel/clock.js';
import { httpErrors } from '../kernel/errors.js';
import { nullIfTaken } from '../storage/collection.js';
import type { DeleteIfUserIsGone } from './account-deletion.js';
import { type DescribedSubscription, NO_DETAILS, type SubscriptionDetails } from './details.js';
import {
  findEntitlement,
  isInForce,
  listEntitledPlans,
  NO_SUBSCRIPTION,
  type PastDue,
  selectShown,
} from './entitlement.js';
import { billingErrors } from './errors.js';
import type { EventProcessor } from './events/processor.js';
import { FREE_PLAN } from './plan-options.js';
import type { Benefits, Plans } from './plans.js';
import type { Gateway } from './provider/gateway.js';
import { asObject, idOf, type Json } from './provider/json.js';
import type { Subscription } from './schemas.js';
import {
  type BillingUsers,
  type Customers,
  type Grant,
  listSubscriptions,
  type SubscriptionDocument,
  type Subscriptions,
} from './store.js';
import { createCoalescer, type SubscriptionSync } from './sync.js';

/** A user's current subscription and access. */
export interface SubscriptionService {
  /**
   * The subscription or grant that gives access; otherwise the best subscription, or none.
   * @param options.withNextInvoice makes a request to the provider, whose failure results in null
   */
  current(userId: string, options?: { withNextInvoice?: boolean }): Promise<Subscription>;
  /**
   * The same after a sync with the provider, for users who return from checkout before the webhook arrives.
   * @throws BILLING_NOT_CONFIGURED, PAYMENT_PROVIDER_ERROR; NOT_FOUND if the session belongs to another user
   */
  sync(user: User, sessionId?: string): Promise<Subscription>;
  /** Whether a subscription or a grant gives access, to `plan` if given. False for unknown users. */
  entitles(userId: string, plan?: string): Promise<boolean>;
  /** Whether one of the user's plans includes the feature. False for unknown users. */
  hasFeature(userId: string, feature: string): Promise<boolean>;
  /** See `Benefits`. Every limit is 0 for unknown users. */
  limits(userId: string): Promise<Record<string, number>>;
}

export interface SubscriptionServiceDependencies {
  customers: Customers;
  subscriptions: Subscriptions;
  users: Pick<BillingUsers, 'find'>;
  processor: Pick<EventProcessor, 'replayUnmatched'>;
  deleteIfUserIsGone: DeleteIfUserIsGone;
  /** Both absent while no API key is configured. */
  gateway: Gateway | undefined;
  sync: SubscriptionSync | undefined;
  plans: Plans;
  details: SubscriptionDetails;
  pastDue: PastDue;
  clock: Clock;
}

export function createSubscriptionService(deps: SubscriptionServiceDependencies): SubscriptionService {
  const { customers, subscriptions, users, processor, gateway, sync, plans, details, pastDue, clock } = deps;

  const context = () => ({ pastDue, now: clock.now() });
  const sourcesOf = async (userId: string) => {
    const [all, user] = await Promise.all([listSubscriptions(subscriptions, userId), users.find(userId)]);
    const entitledPlans = listEntitledPlans(all, user?.grant, context(), plans.configured);
    const benefits = plans.benefitsOf(user ? [FREE_PLAN, ...entitledPlans] : []);
    return { all, grant: user?.grant, entitledPlans, benefits };
  };

  const current: SubscriptionService['current'] = async (userId, { withNextInvoice = false } = {}) => {
    const { all, grant, benefits } = await sourcesOf(userId);
    const entitlement = findEntitlement(all, grant, context());
    const isGranted = entitlement !== null && 'grant' in entitlement;
    const best = entitlement && 'subscription' in entitlement ? entitlement.subscription : selectShown(all);
    const shown = isGranted ? undefined : best;
    const [described, nextInvoice] = await Promise.all([
      shown ? details.describe(shown) : NO_DETAILS,
      // A customer with a grant continues to pay.
      withNextInvoice && best ? details.nextInvoice(best) : null,
    ]);
    const terms = shown ? subscriptionView(shown, entitlement !== null) : NONE;
    return {
      ...(isGranted ? grantedSubscription(entitlement.grant) : terms),
      ...described,
      ...(withNextInvoice && { nextInvoice }),
      granted: grant && isInForce(grant, clock.now()) ? grantView(grant) : null,
      ...benefitsView(benefits),
    };
  };

  const benefitsOf = async (userId: string): Promise<Benefits> =>
    isIdentifier(userId) ? (await sourcesOf(userId)).benefits : plans.benefitsOf([]);

  /** The customer of a checkout session of the user. */
  const customerOf = (session: Json | null, user: User): string | undefined => {
    const { userId } = asObject(session?.['metadata']);
    const isOwn = session && session['client_reference_id'] === user.id && userId === user.id;
    // The response for the session of another user is the same as for an unknown one.
    if (!isOwn) throw httpErrors.NOT_FOUND({ message: 'The checkout session was not found.' });
    return idOf(session['customer']);
  };

  const sessionAtATime = createCoalescer<Json | null>();

  return {
    current,

    async sync(user, sessionId) {
      if (!gateway || !sync) throw billingErrors.BILLING_NOT_CONFIGURED();
      if (sessionId !== undefined) {
        const session = await sessionAtATime(sessionId, () => gateway.checkoutSession(sessionId));
        const customerId = customerOf(session, user);
        if (customerId !== undefined) {
          await customers.insert({ id: user.id, customerId, createdAt: clock.now() }).catch(nullIfTaken);
          await deps.deleteIfUserIsGone(user.id);
        }
      }
      const customer = await customers.findOne({ id: user.id });
      if (customer) {
        await sync.syncCustomer(customer.customerId, user.id);
        await processor.replayUnmatched(customer.customerId);
      }
      return current(user.id);
    },

    async entitles(userId, plan) {
      if (!isIdentifier(userId)) return false;
      const { entitledPlans } = await sourcesOf(userId);
      return plan === undefined ? entitledPlans.size > 0 : entitledPlans.has(plan);
    },

    hasFeature: async (userId, feature) => (await benefitsOf(userId)).features.includes(feature),
    limits: async (userId) => (await benefitsOf(userId)).limits,
  };
}

/** The store rejects filters with other values. */
const isIdentifier = (value: unknown): boolean =>
  typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value);

type SubscriptionView = Omit<
  Subscription,
  keyof DescribedSubscription | 'nextInvoice' | 'granted' | 'features' | 'limits'
>;

const NONE: SubscriptionView = {
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

const time = (milliseconds: number | undefined) =>
  milliseconds === undefined ? null : toTimestamp(milliseconds);

const grantView = ({ plan, since, until }: Grant) => ({
  plan,
  since: toTimestamp(since),
  until: time(until),
});

/** JSON has no infinity: there, null is unlimited. */
const benefitsView = ({ features, limits }: Benefits) => ({
  features,
  limits: Object.fromEntries(
    Object.entries(limits).map(([name, limit]) => [name, Number.isFinite(limit) ? limit : null]),
  ),
});

function grantedSubscription({ plan, since, until }: Grant): SubscriptionView {
  return {
    ...NONE,
    status: 'granted',
    plan,
    entitled: true,
    currentPeriodStart: toTimestamp(since),
    currentPeriodEnd: time(until),
    updatedAt: toTimestamp(since),
  };
}

function subscriptionView(subscription: SubscriptionDocument, entitled: boolean): SubscriptionView {
  return {
    status: subscription.status as SubscriptionStatus,
    plan: subscription.plan,
    entitled,
    priceId: subscription.priceId ?? null,
    quantity: subscription.quantity ?? null,
    currentPeriodStart: time(subscription.currentPeriodStart),
    currentPeriodEnd: time(subscription.currentPeriodEnd),
    trialEnd: time(subscription.trialEnd),
    cancelAtPeriodEnd: subscription.cancelAtPeriodEnd,
    cancelAt: time(subscription.cancelAt),
    canceledAt: time(subscription.canceledAt),
    endedAt: time(subscription.endedAt),
    updatedAt: time(subscription.updatedAt),
  };
}
