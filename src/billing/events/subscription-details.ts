import { asInteger, asObject, asText, asTime, idOf, type Json } from '../provider/json.js';
import type { SubscriptionItem, SubscriptionTerms } from '../store.js';

/** Reads the parts of a subscription that are shown and do not decide on access. */

type Details = Pick<
  SubscriptionTerms,
  'items' | 'pendingUpdate' | 'collectionPause' | 'scheduleId' | 'discountIds'
>;

/** A field that was not sent is absent or undefined; one that was cleared is `null`. */
export function readDetails(subscription: Json): { [K in keyof Details]: Details[K] | null | undefined } {
  const data = asObject(subscription['items'])['data'];
  return {
    items: data === undefined ? undefined : readItems(data),
    pendingUpdate: ifSet(subscription['pending_update'], readPendingUpdate),
    collectionPause: ifSet(subscription['pause_collection'], readPause),
    scheduleId: ifSet(subscription['schedule'], idOf),
    discountIds: readDiscountIds(subscription),
  };
}

const ifSet = <T>(value: unknown, read: (value: unknown) => T): T | null | undefined =>
  value === undefined || value === null ? value : read(value);

const asList = (value: unknown): Json[] => (Array.isArray(value) ? value : []).map(asObject);

/** The items of a subscription, of a pending update or of a phase of a schedule; `null` if there are none. */
function readItems(data: unknown): SubscriptionItem[] | null {
  const items = asList(data).flatMap((item) => {
    // Earlier API versions call a price a plan.
    const priceId = idOf(item['price']) ?? idOf(item['plan']);
    const quantity = asInteger(item['quantity']);
    return priceId === undefined ? [] : [{ priceId, ...(quantity !== undefined && { quantity }) }];
  });
  return items.length > 0 ? items : null;
}

function readPendingUpdate(value: unknown): Details['pendingUpdate'] {
  const update = asObject(value);
  const expiresAt = asTime(update['expires_at']);
  const items = readItems(update['subscription_items']) ?? [];
  return { items, ...(expiresAt !== undefined && { expiresAt }) };
}

function readPause(value: unknown): Details['collectionPause'] {
  const pause = asObject(value);
  const resumesAt = asTime(pause['resumes_at']);
  const behavior = asText(pause['behavior']) ?? 'void';
  return { behavior, ...(resumesAt !== undefined && { resumesAt }) };
}

/** Earlier API versions have a single `discount`. */
function readDiscountIds({ discount, discounts }: Json): string[] | null | undefined {
  if (discount === undefined && discounts === undefined) return undefined;
  const all = [...(Array.isArray(discounts) ? discounts : []), discount];
  const ids = new Set(all.flatMap((one) => idOf(one) ?? []));
  return ids.size > 0 ? [...ids] : null;
}

/** A later change of a subscription. */
export interface ScheduledPhase {
  at: number;
  /** Empty if the subscription ends then. */
  items: SubscriptionItem[];
}

/** The next change of an expanded schedule; null if it changes nothing any more. */
export function readNextPhase(schedule: Json, now: number): ScheduledPhase | null {
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

/** A discount with its coupon. */
export interface DiscountTerms {
  name: string | null;
  /** A number from 0 to 100, possibly with decimals. */
  percentOff: number | null;
  /** In the currency's smallest unit. */
  amountOff: number | null;
  currency: string | null;
  /** Absent: as long as the subscription. */
  endsAt?: number;
}

/** The expanded discounts of a subscription. */
export function readDiscounts(subscription: Json): DiscountTerms[] {
  return asList(subscription['discounts']).map((discount) => {
    const coupon = asObject(asObject(discount['source'])['coupon'] ?? discount['coupon']);
    const percentOff = coupon['percent_off'];
    const endsAt = asTime(discount['end']);
    return {
      name: asText(coupon['name']) ?? null,
      percentOff: typeof percentOff === 'number' ? percentOff : null,
      amountOff: asInteger(coupon['amount_off']) ?? null,
      currency: asText(coupon['currency']) ?? null,
      ...(endsAt !== undefined && { endsAt }),
    };
  });
}

/** An invoice that the provider will create. */
export interface UpcomingInvoice {
  amount: number | null;
  currency: string | null;
  /** When it is charged, or created if the customer pays it later. */
  at: number | null;
}

export function readUpcomingInvoice(invoice: Json): UpcomingInvoice {
  return {
    amount: asInteger(invoice['amount_due']) ?? null,
    currency: asText(invoice['currency']) ?? null,
    at: asTime(invoice['next_payment_attempt']) ?? asTime(invoice['period_end']) ?? null,
  };
}
