import { type SubscriptionStatus, toTimestamp } from '../../../core/http/schemas.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import type { BillingContext } from '../context.js';
import type { CustomerLinks } from '../customers/customers.js';
import { NO_SUBSCRIPTION, selectEntitlement, selectShown } from '../entitlement.js';
import type { EventProcessor } from '../events/processor.js';
import type { PurchaseRecorder } from '../events/purchase-recorder.js';
import { type Holding, type Holdings, isRunning } from '../holdings.js';
import { ownerIn } from '../owners.js';
import { FREE_PLAN } from '../plans/options.js';
import type { Benefits } from '../plans/plans.js';
import type { Projector } from '../projection.js';
import type { Gateway } from '../provider/gateway.js';
import { asObject, asText, idOf, type Json } from '../provider/json.js';
import type { HeldView, HoldingsView, Subscription } from '../schemas.js';
import { actionsOf } from './change-rules.js';
import { createSubscriptionDetails } from './details.js';
import { createCoalescer, type SubscriptionSync } from './sync.js';
import { benefitsView, grantView, priceView, termsOf } from './views.js';

/** A user's current subscription and access. */
export type SubscriptionService = ReturnType<typeof createSubscriptionService>;

export interface SubscriptionServiceDependencies {
  links: CustomerLinks;
  projector: Projector;
  holdings: Holdings;
  purchaseRecorder: PurchaseRecorder;
  processor: EventProcessor;
  sync: SubscriptionSync;
}

export function createSubscriptionService(context: BillingContext, deps: SubscriptionServiceDependencies) {
  const { commitForOwner, gateway, requireGateway, plans, clock, config } = context;
  const { links, projector, holdings, purchaseRecorder, processor, sync } = deps;
  const details = createSubscriptionDetails(context);

  /** What a user holds, which of it is shown as the subscription, and what all of it includes. */
  const read = async (ownerId: string) => {
    const { isKnown, holdings: held } = isIdentifier(ownerId) ? await holdings.list(ownerId) : NOTHING;
    const entitledPlans = new Set(held.flatMap((one) => one.entitledPlans));
    const bought = held.filter(({ grant }) => !grant);
    return {
      held,
      entitlement: selectEntitlement(
        held.filter(({ entitled }) => entitled),
        plans,
      ),
      best: selectShown(bought, plans),
      /** A customer with a grant or a one-time purchase continues to pay for it. */
      billed: selectShown(
        bought.filter(({ subscription }) => subscription),
        plans,
      ),
      entitledPlans,
      benefits: plans.benefitsOf(isKnown ? [FREE_PLAN, ...entitledPlans] : []),
    };
  };

  /**
   * What gives access in the form of a subscription; otherwise the best subscription, or none.
   * @param options.withNextInvoice makes a request to the provider, whose failure results in null
   */
  const current = async (
    ownerId: string,
    { withNextInvoice = false }: { withNextInvoice?: boolean } = {},
  ): Promise<Subscription> => {
    const { held, entitlement, best, billed, benefits } = await read(ownerId);
    const shown = entitlement ?? best;
    const [described, nextInvoice] = await Promise.all([
      details.describe(shown?.subscription),
      withNextInvoice && billed?.subscription ? details.nextInvoice(billed.subscription) : null,
    ]);
    const grant = held.find((one) => one.grant)?.grant;
    return {
      ...termsOf(shown),
      ...described,
      ...(withNextInvoice && { nextInvoice }),
      granted: grant ? grantView(grant) : null,
      ...benefitsView(benefits),
    };
  };

  const heldView = async (held: Holding): Promise<HeldView> => {
    const { id, family, subscription, purchase, plan, startedAt } = held;
    const [item] = subscription?.items ?? [];
    const described = await details.describe(subscription);
    const state = {
      allowPause: config.billingAllowPause === true,
      hasChange: described.scheduledChange !== null,
    };
    return {
      id,
      kind: subscription ? 'subscription' : purchase ? 'purchase' : 'grant',
      family: family ?? null,
      name: plans.nameOf(plan),
      startedAt: toTimestamp(startedAt),
      price: item?.price ? priceView(item.price) : null,
      ...termsOf(held),
      ...described,
      actions: gateway ? actionsOf(held, state) : [],
    };
  };

  const benefitsOf = async (ownerId: string): Promise<Benefits> => (await read(ownerId)).benefits;

  /** Links the customer of a checkout session, and records a one-time purchase. */
  const applySession = async (session: Json | null, ownerId: string): Promise<void> => {
    // The response for the session of another owner is the same as for an unknown one.
    if (!session || ownerOf(session) !== ownerId)
      throw httpErrors.NOT_FOUND({ message: 'The checkout session was not found.' });
    const customerId = idOf(session['customer']);
    const linked = customerId === undefined ? null : await links.findUser(customerId);
    if (linked !== null && linked !== ownerId) return;
    if (customerId !== undefined) await links.link(ownerId, customerId);
    if (session['status'] !== 'complete') return;
    const source = { ownerId, eventId: `refresh:${session['id']}`, at: clock.now() };
    await commitForOwner(ownerId, async (user) => {
      const recorded = await purchaseRecorder.record(session, source);
      return recorded && [...recorded.parts, ...(await projector.projecting(user, recorded.held))];
    });
  };

  const findCustomers = async (from: Gateway, ownerId: string): Promise<string[]> => {
    const stored = await links.list(ownerId);
    if (stored.length > 0) return stored;
    for (const customerId of await searchAtATime(ownerId, () => from.customersOf(ownerId)))
      await links.link(ownerId, customerId);
    return links.list(ownerId);
  };

  const sessionAtATime = createCoalescer<Json | null>();
  const searchAtATime = createCoalescer<string[]>();

  return {
    current,
    scheduledChange: details.scheduledChangeOf,

    /** What a user holds: what gives access first, then what may, then what has ended. */
    async holdings(ownerId: string): Promise<HoldingsView> {
      const { held, entitlement, best, benefits } = await read(ownerId);
      const order = (one: Holding) => (one.entitled ? 0 : isRunning(one) ? 1 : 2);
      const sorted = held.toSorted((a, b) => order(a) - order(b) || b.startedAt - a.startedAt);
      const { status } = entitlement ?? best ?? NO_SUBSCRIPTION;
      return {
        status: status as SubscriptionStatus,
        plan: entitlement?.plan ?? NO_SUBSCRIPTION.plan,
        entitled: entitlement !== undefined,
        holdings: await Promise.all(sorted.map(heldView)),
        ...benefitsView(benefits),
      };
    },

    /**
     * The same after a sync with the provider, for users who return from checkout before the webhook arrives.
     * @throws BILLING_NOT_CONFIGURED, PAYMENT_PROVIDER_ERROR; NOT_FOUND if the session belongs to another owner
     */
    async sync(ownerId: string, sessionId?: string): Promise<Subscription> {
      const gateway = requireGateway();
      if (sessionId !== undefined) {
        const session = await sessionAtATime(sessionId, () => gateway.checkoutSession(sessionId));
        await applySession(session, ownerId);
      }
      const customerIds = await findCustomers(gateway, ownerId);
      if (customerIds.length > 0) await sync.syncCustomers(customerIds, ownerId);
      for (const customerId of customerIds) await processor.replayUnmatched(customerId);
      return current(ownerId);
    },

    /** Whether a subscription or a grant gives access, to `plan` if given. False for unknown users. */
    async entitles(ownerId: string, plan?: string): Promise<boolean> {
      const { entitledPlans } = await read(ownerId);
      return plan === undefined ? entitledPlans.size > 0 : entitledPlans.has(plan);
    },

    /** Whether one of the user's plans includes the feature. False for unknown users. */
    hasFeature: async (ownerId: string, feature: string): Promise<boolean> =>
      (await benefitsOf(ownerId)).features.includes(feature),
    features: async (ownerId: string): Promise<readonly string[]> => (await benefitsOf(ownerId)).features,
    /** See `Benefits`. Every limit is 0 for unknown users. */
    limits: async (ownerId: string): Promise<Record<string, number>> => (await benefitsOf(ownerId)).limits,
  };
}

/** The owner of a session: by the metadata, which only the seller writes, else by the reference that the buyer chose. */
function ownerOf(session: Json): string | undefined {
  const metadata = [session['metadata'], asObject(session['customer'])['metadata']].map(asObject);
  const [ownerId] = metadata.flatMap((one) => ownerIn(one) ?? []);
  return ownerId ?? asText(session['client_reference_id']);
}

/** What a user who does not exist holds. */
const NOTHING = { isKnown: false, holdings: [] };

/** The store rejects filters with other values. */
const isIdentifier = (value: unknown): boolean =>
  typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value);
