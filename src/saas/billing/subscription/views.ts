import { type SubscriptionStatus, toTimestamp, toTimestampOrNull } from '../../../core/http/schemas.js';
import { NO_SUBSCRIPTION } from '../entitlement.js';
import type { Holding } from '../holdings.js';
import type { Benefits } from '../plans/plans.js';
import type { HeldView, Subscription } from '../schemas.js';
import type { ItemPrice } from '../store.js';
import type { PlanGrant } from '../users.js';
import type { DescribedSubscription } from './details.js';

/** What users hold, as responses show it. */

type Terms = Omit<
  Subscription,
  keyof DescribedSubscription | 'nextInvoice' | 'releasedChange' | 'granted' | 'features' | 'limits'
>;

/** Of a user who holds nothing. */
export const NO_TERMS: Terms = {
  ...NO_SUBSCRIPTION,
  entitled: false,
  priceId: null,
  quantity: null,
  currentPeriodStart: null,
  currentPeriodEnd: null,
  trialEnd: null,
  cancelAtPeriodEnd: null,
  cancelAt: null,
  canceledAt: null,
  endedAt: null,
  updatedAt: null,
  pauseReason: null,
};

/** A purchase has no end, and a grant is a period. */
export function termsOf({
  status,
  plan,
  entitled,
  startedAt,
  subscription,
  purchase,
  grant,
}: Holding): Terms {
  const own = { status: status as SubscriptionStatus, plan, entitled };
  if (!subscription) {
    const [item] = purchase?.items ?? [];
    return {
      ...NO_TERMS,
      ...own,
      ...(item && { priceId: item.priceId, quantity: item.quantity }),
      ...(purchase && { cancelAtPeriodEnd: false }),
      currentPeriodStart: toTimestamp(startedAt),
      currentPeriodEnd: toTimestampOrNull(grant?.until),
      updatedAt: toTimestamp(startedAt),
    };
  }
  return {
    ...own,
    priceId: subscription.priceId ?? null,
    quantity: subscription.quantity ?? null,
    currentPeriodStart: toTimestampOrNull(subscription.currentPeriodStart),
    currentPeriodEnd: toTimestampOrNull(subscription.currentPeriodEnd),
    trialEnd: toTimestampOrNull(subscription.trialEnd),
    cancelAtPeriodEnd: subscription.cancelAtPeriodEnd,
    cancelAt: toTimestampOrNull(subscription.cancelAt),
    canceledAt: toTimestampOrNull(subscription.canceledAt),
    endedAt: toTimestampOrNull(subscription.endedAt),
    updatedAt: toTimestampOrNull(subscription.updatedAt),
    pauseReason: subscription.pauseReason ?? null,
  };
}

export const grantView = ({ plan, since, until }: PlanGrant) => ({
  plan,
  since: toTimestamp(since),
  until: toTimestampOrNull(until),
});

/** JSON has no infinity: there, null is unlimited. */
export const benefitsView = ({ features, limits }: Benefits) => ({
  features,
  limits: Object.fromEntries(
    Object.entries(limits).map(([name, limit]) => [name, Number.isFinite(limit) ? limit : null]),
  ),
});

export const priceView = ({
  unitAmount,
  currency,
  interval,
  intervalCount,
}: ItemPrice): NonNullable<HeldView['price']> => ({
  amount: unitAmount ?? null,
  currency: currency ?? null,
  interval,
  intervalCount,
});
