import { isDeepStrictEqual } from 'node:util';
import type { Plans } from '../plans/plans.js';
import { asList, asObject, asTime, idOf, type Json } from '../provider/json.js';
import { discountsOf } from '../provider/schedules.js';
import type { SubscriptionItem } from '../store.js';
import { periodEndOf } from './change-rules.js';
import { readItems } from './snapshot.js';

/** What a schedule of the provider changes later, and whether a user may undo it. */

/** A later change of a subscription. */
export interface ScheduledPhase {
  at: number;
  /** Empty if the subscription ends then. */
  items: SubscriptionItem[];
}

/** The next change of a schedule; null if it changes nothing any more. */
export function readNextPhase(schedule: Json, now: number): ScheduledPhase | null {
  const [next] = laterPhases(schedule, now);
  if (next) return { at: asTime(next['start_date']) ?? 0, items: readItems(next['items']) ?? [] };
  const end = asTime(asList(schedule['phases']).at(-1)?.['end_date']);
  return schedule['end_behavior'] === 'cancel' && end !== undefined && end > now
    ? { at: end, items: [] }
    : null;
}

const laterPhases = (schedule: Json, now: number): Json[] =>
  asList(schedule['phases']).filter((phase) => (asTime(phase['start_date']) ?? 0) > now);

/**
 * Whether the expanded schedule of a subscription is a change that the user could order, such as one made in the customer portal: to other
 * prices for sale, at the end of the period. Anything else, such as a lower price for some months, is an agreement with the seller.
 */
export function isOrderedByUser(
  subscription: Json,
  mainItem: Json,
  { plans, now }: { plans: Plans; now: number },
): boolean {
  const schedule = asObject(subscription['schedule']);
  const later = laterPhases(schedule, now);
  const [next] = later;
  if (schedule['end_behavior'] === 'cancel' || asList(schedule['pause_schedules']).length > 0) return false;
  if (!next) return true;
  const present = asList(schedule['phases']).findLast((phase) => (asTime(phase['start_date']) ?? 0) <= now);
  const held = pricesOf(asObject(subscription['items'])['data']);
  return (
    later.length === 1 &&
    (asTime(next['start_date']) ?? 0) <= periodEndOf(subscription, mainItem) &&
    plans.isForSale(idOf(mainItem['price']) ?? '') &&
    pricesOf(next['items']).every((price) => plans.isForSale(price) || held.includes(price)) &&
    asList(next['add_invoice_items']).length === 0 &&
    isDeepStrictEqual(discountsOf(next), discountsOf(present ?? {}))
  );
}

const pricesOf = (items: unknown): string[] => (readItems(items) ?? []).map(({ priceId }) => priceId);
