import { toTimestampOrNull } from '../../../core/http/schemas.js';
import type { BillingContext } from '../context.js';
import type { Gateway } from '../provider/gateway.js';
import { asInteger, asLink, asList, asObject, asText, asTime, type Json } from '../provider/json.js';
import { createResponseCache } from '../provider/response-cache.js';
import type { NextInvoice, Subscription } from '../schemas.js';
import { isTerminal, type SubscriptionDocument, type SubscriptionItem } from '../store.js';
import { readNextPhase } from './schedules.js';

/**
 * What is shown about a subscription beyond its access. Most of it is stored; schedules, discounts and the next invoice
 * are fetched from the provider, because events contain only their IDs.
 */
export type SubscriptionDetails = ReturnType<typeof createSubscriptionDetails>;

export type DescribedSubscription = Pick<
  Subscription,
  'items' | 'scheduledChange' | 'collectionPause' | 'discounts' | 'paymentUrl'
>;

const NO_DETAILS: DescribedSubscription = {
  items: [],
  scheduledChange: null,
  collectionPause: null,
  discounts: [],
  paymentUrl: null,
};

export function createSubscriptionDetails({ gateway, plans, clock, log }: BillingContext) {
  const expanded = createResponseCache<Json | null>(clock);
  const upcoming = createResponseCache<Json | null>(clock);

  /** Null instead of a failure. The key contains the revision, so that a change is visible at once. */
  const fetchIfAvailable = async (
    cache: typeof expanded,
    { id, rev }: SubscriptionDocument,
    what: string,
    fetch: (from: Gateway) => Promise<Json | null>,
  ): Promise<Json | null> => {
    if (!gateway) return null;
    try {
      return await cache(`${id} ${rev}`, () => fetch(gateway));
    } catch (err) {
      log.warn({ err, subscription: id }, `${what} could not be fetched from the payment provider`);
      return null;
    }
  };

  const fetchExpanded = (subscription: SubscriptionDocument) =>
    fetchIfAvailable(expanded, subscription, 'the details of a subscription', (from) =>
      from.expandedSubscription(subscription.id),
    );

  const planOfItem = (priceId: string, { priceId: main, plan }: SubscriptionDocument): string | null =>
    priceId === main ? plan : (plans.configured?.get(priceId) ?? null);

  const itemViews = (items: readonly SubscriptionItem[], subscription: SubscriptionDocument) =>
    items.map(({ priceId, quantity }) => ({
      priceId,
      plan: planOfItem(priceId, subscription),
      quantity: quantity ?? null,
    }));

  const scheduledChangeOf = (
    subscription: SubscriptionDocument,
    schedule: Json,
  ): Subscription['scheduledChange'] => {
    const { pendingUpdate } = subscription;
    if (pendingUpdate) {
      const items = itemViews(pendingUpdate.items, subscription);
      return {
        reason: 'pending_payment',
        at: null,
        expiresAt: toTimestampOrNull(pendingUpdate.expiresAt),
        items,
      };
    }
    const next = readNextPhase(schedule, clock.now());
    if (!next) return null;
    const items = itemViews(next.items, subscription);
    return { reason: 'schedule', at: toTimestampOrNull(next.at), expiresAt: null, items };
  };

  return {
    scheduledChangeOf,

    /**
     * Makes a request to the provider only for a subscription with a schedule, a discount or a payment that is open. Never fails because
     * of it. Of a purchase and a grant there is nothing to describe.
     */
    async describe(subscription: SubscriptionDocument | undefined): Promise<DescribedSubscription> {
      if (!subscription) return NO_DETAILS;
      const { status, collectionPause: pause, scheduleId, discountIds, pendingUpdate } = subscription;
      const awaitsPayment = pendingUpdate !== undefined || AWAITING_PAYMENT.includes(status);
      const hasMore = scheduleId !== undefined || discountIds !== undefined || awaitsPayment;
      const object = hasMore && !isTerminal(status) ? await fetchExpanded(subscription) : null;
      return {
        items: itemViews(subscription.items, subscription),
        scheduledChange: scheduledChangeOf(subscription, asObject(object?.['schedule'])),
        collectionPause: pause
          ? { behavior: pause.behavior, resumesAt: toTimestampOrNull(pause.resumesAt) }
          : null,
        discounts: discountIds && !isTerminal(status) ? object && readDiscounts(object) : [],
        paymentUrl: awaitsPayment ? paymentUrlOf(object) : null,
      };
    },

    /** Null if there is none, or if the provider does not respond. */
    async nextInvoice(subscription: SubscriptionDocument): Promise<NextInvoice | null> {
      if (isTerminal(subscription.status)) return null;
      const invoice = await fetchIfAvailable(upcoming, subscription, 'the next invoice', (from) =>
        from.upcomingInvoice(subscription.id),
      );
      return invoice && readNextInvoice(invoice);
    },
  };
}

/** With these statuses, an invoice may be open that the user can pay. */
const AWAITING_PAYMENT = ['incomplete', 'past_due', 'unpaid', 'paused'];

/** The page of the newest invoice of an expanded subscription, if that is open. */
function paymentUrlOf(subscription: Json | null): string | null {
  const invoice = asObject(subscription?.['latest_invoice']);
  return invoice['status'] === 'open' ? asLink(invoice['hosted_invoice_url']) : null;
}

/** The expanded discounts of a subscription. */
function readDiscounts(subscription: Json): NonNullable<Subscription['discounts']> {
  return asList(subscription['discounts']).map((discount) => {
    const coupon = asObject(asObject(discount['source'])['coupon'] ?? discount['coupon']);
    const percentOff = coupon['percent_off'];
    return {
      name: asText(coupon['name']) ?? null,
      percentOff: typeof percentOff === 'number' ? percentOff : null,
      amountOff: asInteger(coupon['amount_off']) ?? null,
      currency: asText(coupon['currency']) ?? null,
      endsAt: toTimestampOrNull(asTime(discount['end'])),
    };
  });
}

const readNextInvoice = (invoice: Json): NextInvoice => ({
  amount: asInteger(invoice['amount_due']) ?? null,
  currency: asText(invoice['currency']) ?? null,
  date: toTimestampOrNull(asTime(invoice['next_payment_attempt']) ?? asTime(invoice['period_end'])),
});
