import { defined } from '../../../core/kernel/fields.js';
import { type Plans, UNKNOWN_PLAN } from '../plans/plans.js';
import { asFlag, asInteger, asList, asObject, asText, asTime, idOf, type Json } from '../provider/json.js';
import type { ItemPrice, SubscriptionItem, SubscriptionTerms } from '../store.js';

/** A subscription as the provider sent it. A field that was not sent is absent; one that was cleared is `null`. */
export type Snapshot = { [K in keyof SubscriptionTerms]?: SubscriptionTerms[K] | null };

/**
 * Reads a whole or partial subscription of the newest API version or of those before 2025-03-31.
 * @param stored what is known of it
 */
export function readSnapshot(subscription: Json, plans: Plans, stored: StoredPlan | null): Snapshot {
  const item = findMainItem(subscription, plans, stored);
  const priceId = priceIdOf(item) ?? idOf(subscription['plan']);
  const sent = asObject(subscription['items'])['data'];
  // Since 2025-03-31 the period is a field of the item.
  const onItem = (field: string) => (field in item ? item[field] : subscription[field]);
  return defined({
    status: asText(subscription['status']),
    ...planOf(subscription, item, plans, stored),
    customerId: idOf(subscription['customer']),
    priceId,
    otherPriceIds: otherPricesOf(subscription, priceId),
    // Metered prices have no quantity.
    quantity: nullable(
      item['quantity'] ?? subscription['quantity'] ?? ('price' in item || 'plan' in item ? null : undefined),
      asCount,
    ),
    currentPeriodStart: nullable(onItem('current_period_start'), asTime),
    currentPeriodEnd: nullable(onItem('current_period_end'), asTime),
    trialEnd: nullable(subscription['trial_end'], asTime),
    cancelAtPeriodEnd: nullable(subscription['cancel_at_period_end'], (flag) => flag === true),
    cancelAt: nullable(subscription['cancel_at'], asTime),
    canceledAt: nullable(subscription['canceled_at'], asTime),
    endedAt: nullable(subscription['ended_at'], asTime),
    cancellationReason: nullable(
      'cancellation_details' in subscription
        ? (asObject(subscription['cancellation_details'])['reason'] ?? null)
        : undefined,
      asText,
    ),
    startedAt: asTime(subscription['created']),
    items: sent === undefined ? undefined : readPricedItems(sent),
    pendingUpdate: nullable(subscription['pending_update'], readPendingUpdate),
    pauseReason: nullable(subscription['status_details'], readPauseReason),
    collectionPause: nullable(subscription['pause_collection'], readPause),
    scheduleId: nullable(subscription['schedule'], idOf),
    discountIds: readDiscountIds(subscription),
    livemode: asFlag(subscription['livemode']),
  });
}

const itemsOf = (subscription: Json): Json[] => asList(asObject(subscription['items'])['data']);

/** What decides on the plan of a subscription that is stored already. */
type StoredPlan = Pick<SubscriptionTerms, 'plan' | 'priceId' | 'isPlanFromMetadata'>;

/**
 * The item of the main plan, beside metered and add-on items; empty if there is none. Of several items the first whose price is configured, else the one that has named the plan so far, else the first
 * whose price names a plan, preferably one that is not metered.
 */
export function findMainItem(subscription: Json, plans: Plans, stored: StoredPlan | null): Json {
  const items = itemsOf(subscription);
  const kept = stored?.plan === UNKNOWN_PLAN ? undefined : stored?.priceId;
  const isNamed = (item: Json) => Object.values(namesIn(priceOf(item))).some((name) => name !== undefined);
  for (const item of items) plans.learn(priceIdOf(item), namesIn(priceOf(item)).lookupKey);
  const isMetered = (item: Json) => asObject(priceOf(item)['recurring'])['usage_type'] === 'metered';
  return (
    items.find((item) => plans.configured?.has(priceIdOf(item) ?? '')) ??
    items.find((item) => kept !== undefined && priceIdOf(item) === kept) ??
    items.find((item) => isNamed(item) && !isMetered(item)) ??
    items.find(isNamed) ??
    items[0] ??
    {}
  );
}

/** Earlier API versions call a price a plan. */
const priceOf = (item: Json): Json => asObject(item['price'] ?? item['plan']);

const priceIdOf = (item: Json): string | undefined => idOf(item['price']) ?? idOf(item['plan']);

/** The plan that a price names itself. */
const namesIn = ({ lookup_key, metadata }: Json) => ({
  lookupKey: asText(lookup_key),
  metadataPlan: asText(asObject(metadata)['plan']),
});

function otherPricesOf(subscription: Json, priceId: string | undefined): string[] | null | undefined {
  const items = itemsOf(subscription);
  if (items.length === 0) return undefined;
  const all = new Set(items.flatMap((item) => priceIdOf(item) ?? []));
  const others = [...all].filter((id) => id !== priceId);
  return others.length > 0 ? others : null;
}

/**
 * The plan; unchanged while the price is, unless the price is configured or the plan came from metadata: a lookup key
 * moves to the successor of a price, and a price that is no longer sold leaves the configuration.
 */
function planOf(
  subscription: Json,
  item: Json,
  plans: Plans,
  stored: StoredPlan | null,
): Pick<Snapshot, 'plan' | 'isPlanFromMetadata'> {
  const named = namesIn(priceOf(item));
  const metadataPlan = asText(asObject(subscription['metadata'])['plan']) ?? named.metadataPlan;
  const sent = priceIdOf(item) ?? idOf(subscription['plan']);
  // A partial body without price and plan leaves the plan unchanged.
  if (sent === undefined && metadataPlan === undefined) return {};
  const priceId = sent ?? stored?.priceId;
  const isConfigured = plans.configured?.has(priceId ?? '') === true;
  const isFromMetadata = !isConfigured && named.lookupKey === undefined && metadataPlan !== undefined;
  const isKept = stored?.priceId !== undefined && stored.priceId === priceId && stored.plan !== UNKNOWN_PLAN;
  if (isKept && !isConfigured && !(isFromMetadata && stored.isPlanFromMetadata)) {
    return isFromMetadata && metadataPlan === stored.plan ? { isPlanFromMetadata: true } : {};
  }
  const plan = plans.planOfPurchase(defined({ lookupKey: named.lookupKey, priceId, metadataPlan }));
  return { plan, isPlanFromMetadata: isFromMetadata || null };
}

const nullable = <T>(value: unknown, read: (value: unknown) => T): T | null | undefined =>
  value === undefined || value === null ? value : read(value);

function asCount(value: unknown): number | undefined {
  const count = asInteger(value);
  return count !== undefined && count >= 0 ? count : undefined;
}

/** The items of a subscription, of a pending update or of a phase of a schedule; `null` if there are none. */
export function readItems(data: unknown): SubscriptionItem[] | null {
  const items = asList(data).flatMap(readItem);
  return items.length > 0 ? items : null;
}

function readItem(item: Json): SubscriptionItem[] {
  const priceId = priceIdOf(item);
  return priceId === undefined ? [] : [defined({ priceId, quantity: asInteger(item['quantity']) })];
}

/** The items of a subscription with what they cost. */
function readPricedItems(data: unknown): SubscriptionItem[] | null {
  const items = asList(data).flatMap((item) =>
    readItem(item).map((read) => defined({ ...read, price: readPrice(priceOf(item)) })),
  );
  return items.length > 0 ? items : null;
}

function readPrice(price: Json): ItemPrice | undefined {
  // A plan has these fields itself.
  const recurring = asObject(price['recurring'] ?? price);
  const interval = asText(recurring['interval']);
  if (interval === undefined) return undefined;
  const currency = asText(price['currency']);
  return defined({
    interval,
    intervalCount: asInteger(recurring['interval_count']) || 1,
    // Fractions of the smallest unit are only in the decimal amount.
    unitAmount:
      asInteger(price['unit_amount'] ?? price['amount']) ??
      asDecimal(price['unit_amount_decimal'] ?? price['amount_decimal']),
    currency: /^[a-z]{3}$/.test(currency ?? '') ? currency : undefined,
    isMetered: recurring['usage_type'] === 'metered' ? (true as const) : undefined,
  });
}

function asDecimal(value: unknown): number | undefined {
  const text = asText(value);
  return text !== undefined && /^\d{1,12}(\.\d{1,12})?$/.test(text) ? Number(text) : undefined;
}

function readPendingUpdate(value: unknown) {
  const { subscription_items, expires_at } = asObject(value);
  return defined({ items: readItems(subscription_items) ?? [], expiresAt: asTime(expires_at) });
}

export const readPauseReason = (details: unknown): string | null =>
  asText(asObject(asObject(asObject(details)['paused'])['subscription'])['type']) ?? null;

function readPause(value: unknown) {
  const { behavior, resumes_at } = asObject(value);
  return defined({ behavior: asText(behavior) ?? 'void', resumesAt: asTime(resumes_at) });
}

/** Earlier API versions have a single `discount`. */
function readDiscountIds({ discount, discounts }: Json): string[] | null | undefined {
  if (discount === undefined && discounts === undefined) return undefined;
  const all = [...(Array.isArray(discounts) ? discounts : []), discount];
  const ids = new Set(all.flatMap((one) => idOf(one) ?? []));
  return ids.size > 0 ? [...ids] : null;
}
