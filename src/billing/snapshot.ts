import type { Plans } from './plans.js';
import type { SubscriptionTerms } from './store.js';

/** Reads the provider's subscriptions, of its newest API and of those before 2025-03-31, whole or in part. */

/** Whatever the provider sent: nothing in it is sure. */
export type Json = Record<string, unknown>;

export const objectIn = (value: unknown): Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};

/** A name of the provider's or a short text of the operator's, fit for the store. */
export function nameIn(value: unknown): string | undefined {
  const isName = typeof value === 'string' && value !== '' && value.length <= 255;
  return isName && value.isWellFormed() && !value.includes('\0') ? value : undefined;
}

/** An object's id, whether the provider sent the id or the whole object. */
export const idIn = (value: unknown): string | undefined => nameIn(value) ?? nameIn(objectIn(value)['id']);

/** Epoch seconds as milliseconds. */
export function timeIn(value: unknown): number | undefined {
  const isTime = typeof value === 'number' && Number.isSafeInteger(value) && value > 0 && value < 1e11;
  return isTime ? value * 1000 : undefined;
}

/** A field that the provider said nothing of is absent; one that it emptied is `null`. */
export type Snapshot = { [K in keyof SubscriptionTerms]?: SubscriptionTerms[K] | null };

export function readSnapshot(subscription: Json, plans: Plans): Snapshot {
  const items = itemsIn(subscription);
  const item = boughtItem(items, plans);
  const priceId = idIn(item['price']) ?? idIn(item['plan']) ?? idIn(subscription['plan']);
  const moved = (field: string) => (field in item ? item[field] : subscription[field]);
  const snapshot = {
    status: nameIn(subscription['status']),
    plan: planIn(subscription, { item, priceId }, plans),
    customerId: idIn(subscription['customer']),
    priceId,
    otherPriceIds: otherPricesIn(items, priceId),
    // What is billed by use has none.
    quantity: emptied(
      item['quantity'] ?? subscription['quantity'] ?? ('price' in item ? null : undefined),
      countIn,
    ),
    currentPeriodStart: emptied(moved('current_period_start'), timeIn),
    currentPeriodEnd: emptied(moved('current_period_end'), timeIn),
    trialEnd: emptied(subscription['trial_end'], timeIn),
    cancelAtPeriodEnd: emptied(subscription['cancel_at_period_end'], (flag) => flag === true),
    cancelAt: emptied(subscription['cancel_at'], timeIn),
    canceledAt: emptied(subscription['canceled_at'], timeIn),
    endedAt: emptied(subscription['ended_at'], timeIn),
    startedAt: timeIn(subscription['created']),
  };
  return Object.fromEntries(Object.entries(snapshot).filter(([, value]) => value !== undefined)) as Snapshot;
}

function itemsIn(subscription: Json): Json[] {
  const data = objectIn(subscription['items'])['data'];
  return (Array.isArray(data) ? data : []).map(objectIn);
}

function otherPricesIn(items: Json[], priceId: string | undefined): string[] | null | undefined {
  if (items.length === 0) return undefined;
  const all = new Set(items.flatMap((item) => idIn(item['price']) ?? idIn(item['plan']) ?? []));
  const others = [...all].filter((id) => id !== priceId);
  return others.length > 0 ? others : null;
}

/** Of several items the first that is on our list, else the first. */
function boughtItem(items: Json[], plans: Plans): Json {
  const listed = items.find((item) => plans.configured?.has(idIn(item['price']) ?? ''));
  return listed ?? items[0] ?? {};
}

function planIn(
  subscription: Json,
  { item, priceId }: { item: Json; priceId: string | undefined },
  plans: Plans,
): string | undefined {
  const price = objectIn(item['price']);
  const lookupKey = nameIn(price['lookup_key']);
  const metadataPlan =
    nameIn(objectIn(subscription['metadata'])['plan']) ?? nameIn(objectIn(price['metadata'])['plan']);
  // A body that names neither price nor plan says nothing about it.
  if (priceId === undefined && metadataPlan === undefined) return undefined;
  return plans.of({
    ...(priceId !== undefined && { priceId }),
    ...(lookupKey !== undefined && { lookupKey }),
    ...(metadataPlan !== undefined && { metadataPlan }),
  });
}

const emptied = <T>(value: unknown, read: (value: unknown) => T): T | null | undefined =>
  value === undefined ? undefined : value === null ? null : read(value);

function countIn(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
