import { referenceTo } from '../../src/saas/billing/owners.js';
import type { Json } from '../../src/saas/billing/provider/json.js';

/** The objects of the simulated payment provider, in the formats of four API versions. */

/** The newest API version, the one that moved periods to items, and two before it. */
export const VERSIONS = ['2026-10-28.endive', '2025-03-31.basil', '2024-06-20', '2023-10-16'] as const;

export type Version = (typeof VERSIONS)[number];

/** Whether a version is at least another one; versions begin with their date. */
const isSince = (version: Version, first: Version): boolean => version >= first;

export interface WorldSubscription {
  id: string;
  customer: string;
  userId: string;
  /** Whether its metadata has the user's ID. */
  isSigned: boolean;
  version: Version;
  status: string;
  created: number;
  price: string;
  quantity: number;
  periodStart: number;
  periodEnd: number;
  trialEnd: number | null;
  cancelAtPeriodEnd: boolean;
  cancelAt: number | null;
  canceledAt: number | null;
  endedAt: number | null;
  /** Payment attempts for the open invoice. */
  attempts: number;
  /** An invoice that could not be collected. */
  openInvoice: string | null;
  /** Items beside the main one, with a period of their own if `periodEnd` is set. */
  addOns?: { id: string; price: string; quantity?: number; periodEnd?: number }[];
  /** A discount that applies to all items. */
  discount?: string | null;
  /** The payment method of its customer. */
  card?: Json;
  /** Since when the collection of payments is paused, in which way. */
  pauseBehavior?: string | null;
  /** Why the status is `paused`; default: a trial has ended without a payment method. */
  pauseReason?: string | null;
  /** Default: flexible. */
  billingMode?: 'classic';
  schedule?: string | null;
  /** A change that is applied once its invoice, the newest one, is paid. */
  pendingUpdate?: { expiresAt: number; item: Json } | null;
  latestInvoice?: { id: string; status: string } | null;
}

/** An invoice with an amount, and the charge that paid it. */
export interface WorldPayment {
  invoice: string;
  subscription: WorldSubscription;
  status: 'paid' | 'failed' | 'voided';
  amount: number;
  /** Absent while it is not paid, or if it was paid outside of the provider. */
  charge?: { id: string; intent: string; created: number };
  refunded: number;
  dispute?: { id: string; status: string; created: number };
}

export const PRICES: Record<string, { lookupKey: string; amount: number }> = {
  price_basic: { lookupKey: 'basic', amount: 900 },
  price_pro: { lookupKey: 'pro', amount: 2900 },
};

/** A subscription in the format of its API version. */
export function subscriptionObject(subscription: WorldSubscription): Json {
  const { id, customer, userId, isSigned, version, status, created, price, quantity } = subscription;
  const items = itemObjects(subscription);
  const isNew = isSince(version, '2025-03-31.basil');
  return {
    id,
    object: 'subscription',
    customer,
    status,
    created,
    livemode: false,
    metadata: isSigned ? referenceTo(userId) : {},
    items: { object: 'list', has_more: items.length > 10, data: items.slice(0, 10) },
    ...(!isNew && { ...periodOf(subscription), plan: planObject(price), quantity }),
    ...discountFields(subscription),
    trial_end: subscription.trialEnd,
    cancel_at_period_end: subscription.cancelAtPeriodEnd,
    cancel_at: subscription.cancelAt,
    canceled_at: subscription.canceledAt,
    ended_at: subscription.endedAt,
    currency: 'eur',
    pause_collection: subscription.pauseBehavior ? { behavior: subscription.pauseBehavior } : null,
    ...laterFields(subscription),
  };
}

function laterFields(subscription: WorldSubscription): Json {
  const {
    status,
    pauseReason,
    billingMode = 'flexible',
    schedule,
    pendingUpdate,
    latestInvoice,
  } = subscription;
  const pause = { type: pauseReason ?? 'trial_end_without_payment_method' };
  return {
    billing_mode: { type: billingMode },
    status_details: { paused: status === 'paused' ? { type: 'subscription', subscription: pause } : null },
    schedule: schedule ?? null,
    latest_invoice: latestInvoice?.id ?? null,
    pending_update: pendingUpdate
      ? { expires_at: pendingUpdate.expiresAt, subscription_items: [pendingUpdate.item] }
      : null,
  };
}

const periodOf = ({ periodStart, periodEnd }: WorldSubscription): Json => ({
  current_period_start: periodStart,
  current_period_end: periodEnd,
});

/** All items, of which the subscription contains ten. */
export function itemObjects(subscription: WorldSubscription): Json[] {
  const { id, version, price, quantity, addOns = [] } = subscription;
  const period = isSince(version, '2025-03-31.basil') ? periodOf(subscription) : {};
  const main = {
    id: `si_${id.slice(4)}`,
    object: 'subscription_item',
    quantity,
    ...period,
    ...(!isSince(version, '2026-10-28.endive') && { plan: planObject(price) }),
    price: {
      id: price,
      object: 'price',
      lookup_key: PRICES[price]?.lookupKey ?? null,
      unit_amount: PRICES[price]?.amount ?? null,
      recurring: { interval: 'month', interval_count: 1 },
      metadata: {},
    },
  };
  const others = addOns.map((addOn) => ({
    id: addOn.id,
    object: 'subscription_item',
    quantity: addOn.quantity ?? 1,
    ...period,
    ...(addOn.periodEnd && { current_period_end: addOn.periodEnd }),
    price: { id: addOn.price, object: 'price', lookup_key: null, metadata: {} },
  }));
  return [main, ...others];
}

/** What prices were before, which versions before 2026 still send beside the price. */
const planObject = (price: string): Json => ({
  id: price,
  object: 'plan',
  amount: PRICES[price]?.amount ?? null,
  interval: 'month',
  metadata: {},
});

/** Several discounts are possible since 2024; the single one was removed in 2025-03-31. */
export function discountFields({ version, discount = null }: WorldSubscription): Json {
  return {
    ...(isSince(version, '2024-06-20') && { discounts: discount === null ? [] : [discount] }),
    ...(!isSince(version, '2025-03-31.basil') && {
      discount: discount === null ? null : { id: discount, object: 'discount', coupon: { id: 'SPRING' } },
    }),
  };
}

/** An invoice in the format of its API version. */
export function invoiceObject(
  { invoice: id, subscription: sold, status, amount, charge }: WorldPayment,
  {
    attempts,
    isLast,
    isOutside = false,
    now,
  }: { attempts: number; isLast: boolean; isOutside?: boolean; now: number },
): Json {
  const { id: subscription, customer, userId, isSigned, version } = sold;
  const details = { subscription, metadata: isSigned ? referenceTo(userId) : {} };
  const isPaid = status === 'paid';
  return {
    id,
    object: 'invoice',
    customer,
    created: now,
    currency: 'eur',
    status: status === 'failed' ? 'open' : status === 'voided' ? 'void' : status,
    amount_due: amount,
    amount_paid: isPaid && !isOutside ? amount : 0,
    attempt_count: attempts,
    next_payment_attempt: isPaid || isLast ? null : now + 86_400,
    ...(!isSince(version, '2025-03-31.basil')
      ? {
          subscription,
          subscription_details: { metadata: details.metadata },
          paid: isPaid,
          charge: charge?.id ?? null,
          payment_intent: charge?.intent ?? null,
          paid_out_of_band: isOutside,
        }
      : { parent: { type: 'subscription_details', subscription_details: details } }),
  };
}

/** The charge of a payment in the format of its API version. */
export function chargeObject({ subscription, invoice, amount, charge, refunded }: WorldPayment): Json {
  return {
    id: charge?.id,
    object: 'charge',
    status: 'succeeded',
    customer: subscription.customer,
    payment_intent: charge?.intent,
    created: charge?.created,
    currency: 'eur',
    amount,
    amount_refunded: refunded,
    refunded: refunded === amount,
    metadata: {},
    ...(!isSince(subscription.version, '2025-03-31.basil') && { invoice }),
  };
}

export function disputeObject({ amount, charge, dispute }: WorldPayment): Json {
  return {
    ...dispute,
    object: 'dispute',
    charge: charge?.id,
    payment_intent: charge?.intent,
    currency: 'eur',
    amount,
    reason: 'fraudulent',
    metadata: {},
  };
}
