import type Stripe from 'stripe';
import { defined } from '../../../core/kernel/fields.js';
import { asInteger, asList, asObject, asText, idOf, type Json } from './json.js';

/** The phases of a schedule at the provider, which replaces all of them in an update. */

/** Metered prices have no quantity. */
export interface ScheduledItem {
  priceId: string;
  quantity?: number;
}

type Phase = Stripe.SubscriptionScheduleUpdateParams.Phase;
type Item = Stripe.SubscriptionScheduleUpdateParams.Phase.Item;
type Discount = Stripe.SubscriptionScheduleUpdateParams.Phase.Discount;

/**
 * The present phase of a new schedule until `at`, and then the items.
 * @param at Unix time in milliseconds
 */
export function phasesFor(schedule: Json, items: readonly ScheduledItem[], at: number): Phase[] {
  const [present = {}] = asList(schedule['phases']);
  const boundary = Math.floor(at / 1000);
  const presentItems = asList(present['items']);
  const itemsNow = presentItems.map((item) => itemOf(String(idOf(item['price'])), item['quantity'], item));
  const itemsThen = items.map(({ priceId, quantity }) =>
    itemOf(
      priceId,
      quantity,
      presentItems.find((item) => idOf(item['price']) === priceId),
    ),
  );
  const terms = termsOf(present);
  return [
    defined({
      ...terms,
      items: itemsNow,
      start_date: Number(present['start_date']),
      end_date: boundary,
      trial_end: asInteger(present['trial_end']),
    }),
    { ...terms, items: itemsThen, start_date: boundary, proration_behavior: 'none' },
  ];
}

/** What an update would reset if it did not repeat it. */
function termsOf(phase: Json): Partial<Phase> {
  const days = asInteger(asObject(phase['invoice_settings'])['days_until_due']);
  return defined({
    discounts: discountsOf(phase),
    default_tax_rates: idsOf(phase['default_tax_rates']),
    automatic_tax: { enabled: asObject(phase['automatic_tax'])['enabled'] === true },
    metadata: metadataOf(phase),
    collection_method: asText(phase['collection_method']) as Phase['collection_method'],
    default_payment_method: idOf(phase['default_payment_method']),
    invoice_settings: days === undefined ? undefined : { days_until_due: days },
  });
}

/** @param present the item with the same price, whose terms are kept */
const itemOf = (price: string, quantity: unknown, present: Json = {}): Item =>
  defined({
    price,
    quantity: asInteger(quantity),
    discounts: discountsOf(present),
    tax_rates: idsOf(present['tax_rates']),
    metadata: metadataOf(present),
  });

const idsOf = (value: unknown): string[] =>
  Array.isArray(value) ? value.flatMap((one) => idOf(one) ?? []) : [];

const metadataOf = ({ metadata }: Json) => asObject(metadata) as Record<string, string>;

/** A discount is continued, so that its end stays. */
export const discountsOf = ({ discounts }: Json) =>
  asList(discounts).map(({ discount, coupon, promotion_code }): Discount => {
    const [started, promotion, ofCoupon] = [idOf(discount), idOf(promotion_code), idOf(coupon)];
    if (started !== undefined) return { discount: started };
    return promotion === undefined ? { coupon: ofCoupon ?? '' } : { promotion_code: promotion };
  });
