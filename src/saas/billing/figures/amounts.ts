import type { ItemPrice, SubscriptionDocument } from '../store.js';

/**
 * What a subscription adds to the monthly recurring revenue (MRR), by the rules of Stripe's Billing analytics: status
 * `active` or `past_due`, without metered prices, trials and taxes. Discounts are not subtracted, because events name
 * them without their amount. The rules for operators are in docs/saas/admin.md.
 */

/** Amounts per month in the smallest unit of each currency. */
export type Amounts = Record<string, number>;

const PAYING_STATUSES: ReadonlySet<string> = new Set(['active', 'past_due']);

/** An integer per currency, and whether the amount of an item is unknown. */
export function monthlyRevenueOf({ status, items }: Pick<SubscriptionDocument, 'status' | 'items'>) {
  if (!PAYING_STATUSES.has(status)) return { amounts: {} as Amounts, isIncomplete: false };
  const billed = items.filter(({ price }) => price?.isMetered !== true);
  const amounts: Amounts = {};
  for (const { price, quantity = 1 } of billed) {
    const { unitAmount, currency } = price ?? {};
    if (price === undefined || unitAmount === undefined || currency === undefined) continue;
    amounts[currency] = (amounts[currency] ?? 0) + unitAmount * quantity * periodsPerMonth(price);
  }
  return {
    amounts: Object.fromEntries(
      Object.entries(amounts).flatMap(([currency, amount]) => {
        const rounded = Math.round(amount);
        return rounded === 0 ? [] : [[currency, rounded]];
      }),
    ),
    isIncomplete: items.length === 0 || billed.some(({ price }) => price?.unitAmount === undefined),
  };
}

const MONTHS_PER_YEAR = 12;

/** Periods of each interval in a year. */
const PERIODS_PER_YEAR: Record<string, number> = { day: 365, week: 365 / 7, month: 12, year: 1 };

const periodsPerMonth = ({ interval, intervalCount }: ItemPrice): number =>
  (PERIODS_PER_YEAR[interval] ?? MONTHS_PER_YEAR) / MONTHS_PER_YEAR / intervalCount;
