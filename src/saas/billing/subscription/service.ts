import {
  type SubscriptionStatus,
  toTimestamp,
  toTimestampOrNull,
  type User,
} from '../../../core/http/schemas.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import type { BillingContext } from '../context.js';
import type { CustomerLinks } from '../customers/customers.js';
import {
  findEntitlement,
  isInForce,
  type ListHeld,
  listEntitledPlans,
  NO_SUBSCRIPTION,
  type Projector,
  selectShown,
} from '../entitlement.js';
import { billingErrors } from '../errors.js';
import type { EventProcessor } from '../events/processor.js';
import type { PurchaseRecorder } from '../events/purchase-recorder.js';
import { FREE_PLAN } from '../plans/options.js';
import type { Benefits } from '../plans/plans.js';
import type { Gateway } from '../provider/gateway.js';
import { asObject, asText, idOf, type Json } from '../provider/json.js';
import type { Subscription } from '../schemas.js';
import type { SubscriptionDocument } from '../store.js';
import type { PlanGrant } from '../users.js';
import { createSubscriptionDetails, type DescribedSubscription, NO_DETAILS } from './details.js';
import { createCoalescer, type SubscriptionSync } from './sync.js';

/** A user's current subscription and access. */
export type SubscriptionService = ReturnType<typeof createSubscriptionService>;

export interface SubscriptionServiceDependencies {
  links: CustomerLinks;
  projector: Projector;
  listHeld: ListHeld;
  purchaseRecorder: PurchaseRecorder;
  processor: EventProcessor;
  /** Absent while no API key is configured. */
  sync: SubscriptionSync | undefined;
}

export function createSubscriptionService(context: BillingContext, deps: SubscriptionServiceDependencies) {
  const { users, commitForUser, gateway, plans, pastDue, clock } = context;
  const { links, projector, listHeld, purchaseRecorder, processor, sync } = deps;
  const details = createSubscriptionDetails(context);

  const rules = () => ({ pastDue, now: clock.now() });
  const sourcesOf = async (userId: string) => {
    const [all, user] = await Promise.all([listHeld(userId), users.find(userId)]);
    const entitledPlans = listEntitledPlans(all, user?.grant, rules(), plans.configured);
    const benefits = plans.benefitsOf(user ? [FREE_PLAN, ...entitledPlans] : []);
    return { all, grant: user?.grant, entitledPlans, benefits };
  };

  /**
   * The subscription or grant that gives access; otherwise the best subscription, or none.
   * @param options.withNextInvoice makes a request to the provider, whose failure results in null
   */
  const current = async (
    userId: string,
    { withNextInvoice = false }: { withNextInvoice?: boolean } = {},
  ): Promise<Subscription> => {
    const { all, grant, benefits } = await sourcesOf(userId);
    const entitlement = findEntitlement(all, grant, rules());
    const isGranted = entitlement !== null && 'grant' in entitlement;
    const best = entitlement && 'subscription' in entitlement ? entitlement.subscription : selectShown(all);
    const shown = isGranted ? undefined : best;
    const billed = best?.isPurchase ? selectShown(all.filter(({ isPurchase }) => !isPurchase)) : best;
    const [described, nextInvoice] = await Promise.all([
      shown ? details.describe(shown) : NO_DETAILS,
      // A customer with a grant or a one-time purchase continues to pay.
      withNextInvoice && billed ? details.nextInvoice(billed) : null,
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

  /** Links the customer of a checkout session, and records a one-time purchase. */
  const applySession = async (session: Json | null, userId: string): Promise<void> => {
    // The response for the session of another user is the same as for an unknown one.
    if (!session || userOf(session) !== userId)
      throw httpErrors.NOT_FOUND({ message: 'The checkout session was not found.' });
    const customerId = idOf(session['customer']);
    const linked = customerId === undefined ? null : await links.findUser(customerId);
    if (linked !== null && linked !== userId) return;
    if (customerId !== undefined) await links.link(userId, customerId);
    if (session['status'] !== 'complete') return;
    const source = { userId, eventId: `refresh:${session['id']}`, at: clock.now() };
    await commitForUser(userId, async (user) => {
      const recorded = await purchaseRecorder.record(session, source);
      return recorded && [...recorded.parts, ...(await projector.projecting(user, recorded.held))];
    });
  };

  const findCustomers = async (from: Gateway, userId: string): Promise<string[]> => {
    const stored = await links.list(userId);
    if (stored.length > 0) return stored;
    for (const customerId of await searchAtATime(userId, () => from.customersOf(userId)))
      await links.link(userId, customerId);
    return links.list(userId);
  };

  const sessionAtATime = createCoalescer<Json | null>();
  const searchAtATime = createCoalescer<string[]>();

  return {
    current,

    /**
     * The same after a sync with the provider, for users who return from checkout before the webhook arrives.
     * @throws BILLING_NOT_CONFIGURED, PAYMENT_PROVIDER_ERROR; NOT_FOUND if the session belongs to another user
     */
    async sync(user: User, sessionId?: string): Promise<Subscription> {
      if (!gateway || !sync) throw billingErrors.BILLING_NOT_CONFIGURED();
      if (sessionId !== undefined) {
        const session = await sessionAtATime(sessionId, () => gateway.checkoutSession(sessionId));
        await applySession(session, user.id);
      }
      const customerIds = await findCustomers(gateway, user.id);
      if (customerIds.length > 0) await sync.syncCustomers(customerIds, user.id);
      for (const customerId of customerIds) await processor.replayUnmatched(customerId);
      return current(user.id);
    },

    /** Whether a subscription or a grant gives access, to `plan` if given. False for unknown users. */
    async entitles(userId: string, plan?: string): Promise<boolean> {
      if (!isIdentifier(userId)) return false;
      const { entitledPlans } = await sourcesOf(userId);
      return plan === undefined ? entitledPlans.size > 0 : entitledPlans.has(plan);
    },

    /** Whether one of the user's plans includes the feature. False for unknown users. */
    hasFeature: async (userId: string, feature: string): Promise<boolean> =>
      (await benefitsOf(userId)).features.includes(feature),
    /** See `Benefits`. Every limit is 0 for unknown users. */
    limits: async (userId: string): Promise<Record<string, number>> => (await benefitsOf(userId)).limits,
  };
}

/** The user of a session: by the metadata, which only the seller writes, else by the reference that the buyer chose. */
function userOf(session: Json): string | undefined {
  const metadata = [session['metadata'], asObject(session['customer'])['metadata']].map(asObject);
  const [userId] = metadata.flatMap(({ userId }) => asText(userId) ?? []);
  return userId ?? asText(session['client_reference_id']);
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

const grantView = ({ plan, since, until }: PlanGrant) => ({
  plan,
  since: toTimestamp(since),
  until: toTimestampOrNull(until),
});

/** JSON has no infinity: there, null is unlimited. */
const benefitsView = ({ features, limits }: Benefits) => ({
  features,
  limits: Object.fromEntries(
    Object.entries(limits).map(([name, limit]) => [name, Number.isFinite(limit) ? limit : null]),
  ),
});

function grantedSubscription({ plan, since, until }: PlanGrant): SubscriptionView {
  return {
    ...NONE,
    status: 'granted',
    plan,
    entitled: true,
    currentPeriodStart: toTimestamp(since),
    currentPeriodEnd: toTimestampOrNull(until),
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
    currentPeriodStart: toTimestampOrNull(subscription.currentPeriodStart),
    currentPeriodEnd: toTimestampOrNull(subscription.currentPeriodEnd),
    trialEnd: toTimestampOrNull(subscription.trialEnd),
    cancelAtPeriodEnd: subscription.cancelAtPeriodEnd,
    cancelAt: toTimestampOrNull(subscription.cancelAt),
    canceledAt: toTimestampOrNull(subscription.canceledAt),
    endedAt: toTimestampOrNull(subscription.endedAt),
    updatedAt: toTimestampOrNull(subscription.updatedAt),
  };
}
