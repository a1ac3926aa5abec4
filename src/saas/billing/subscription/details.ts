import { toTimestampOrNull } from '../../../core/http/schemas.js';
import type { BillingContext } from '../context.js';
import { asInteger, asList, asObject, asText, asTime, type Json } from '../provider/json.js';
import { createResponseCache } from '../provider/response-cache.js';
import type { NextInvoice, Subscription } from '../schemas.js';
import { isTerminal, type SubscriptionDocument, type SubscriptionItem } from '../store.js';
import { readItems } from './snapshot.js';

/**
 * What is shown about a subscription beyond its access. Most of it is stored; schedules, discounts and the next invoice
 * are fetched from the provider, because events contain only their IDs.
 */
export type SubscriptionDetails = ReturnType<typeof createSubscriptionDetails>;

export type DescribedSubscription = Pick<
  Subscription,
  'items' | 'scheduledChange' | 'collectionPause' | 'discounts'
>;

/** Of a user without a subscription. */
export const NO_DETAILS: DescribedSubscription = {
  items: [],
  scheduledChange: null,
  collectionPause: null,
  discounts: [],
};

export function createSubscriptionDetails({ gateway, plans, clock, log }: BillingContext) {
  const expanded = createResponseCache<Json | null>(clock);
  const upcoming = createResponseCache<Json | null>(clock);

  /** Null instead of a failure. The key contains the revision, so that a change is visible at once. */
  const fetchIfAvailable = async <T>(
    { id, rev }: SubscriptionDocument,
    what: string,
    fetch: (key: string) => Promise<T | null>,
  ): Promise<T | null> => {
    try {
      return await fetch(`${id} ${rev}`);
    } catch (err) {
      log.warn({ err, subscription: id }, `${what} could not be fetched from the payment provider`);
      return null;
    }
  };

  const fetchExpanded = (subscription: SubscriptionDocument) =>
    fetchIfAvailable(subscription, 'the details of a subscription', async (key) =>
      gateway ? expanded(key, () => gateway.expandedSubscription(subscription.id)) : null,
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
    next: ScheduledPhase | null,
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
    if (!next) return null;
    const items = itemViews(next.items, subscription);
    return { reason: 'schedule', at: toTimestampOrNull(next.at), expiresAt: null, items };
  };

  return {
    /** Makes a request to the provider only for a subscription with a schedule or a discount. Never fails because of it. */
    async describe(subscription: SubscriptionDocument): Promise<DescribedSubscription> {
      const { status, collectionPause: pause, scheduleId, discountIds } = subscription;
      const isNeeded = !isTerminal(status) && (scheduleId !== undefined || discountIds !== undefined);
      const object = isNeeded ? await fetchExpanded(subscription) : null;
      return {
        items: itemViews(subscription.items, subscription),
        scheduledChange: scheduledChangeOf(
          subscription,
          object && readNextPhase(asObject(object['schedule']), clock.now()),
        ),
        collectionPause: pause
          ? { behavior: pause.behavior, resumesAt: toTimestampOrNull(pause.resumesAt) }
          : null,
        discounts: isNeeded ? object && readDiscounts(object) : [],
      };
    },

    /** Null if there is none, or if the provider does not respond. */
    async nextInvoice(subscription: SubscriptionDocument): Promise<NextInvoice | null> {
      if (isTerminal(subscription.status)) return null;
      const invoice = await fetchIfAvailable(subscription, 'the next invoice', async (key) =>
        gateway ? upcoming(key, () => gateway.upcomingInvoice(subscription.id)) : null,
      );
      return invoice && readNextInvoice(invoice);
    },
  };
}

/** A later change of a subscription. */
interface ScheduledPhase {
  at: number;
  /** Empty if the subscription ends then. */
  items: SubscriptionItem[];
}

/** The next change of an expanded schedule; null if it changes nothing any more. */
function readNextPhase(schedule: Json, now: number): ScheduledPhase | null {
  const phases = asList(schedule['phases']);
  for (const phase of phases) {
    const at = asTime(phase['start_date']);
    if (at !== undefined && at > now) return { at, items: readItems(phase['items']) ?? [] };
  }
  const end = asTime(phases.at(-1)?.['end_date']);
  return schedule['end_behavior'] === 'cancel' && end !== undefined && end > now
    ? { at: end, items: [] }
    : null;
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
