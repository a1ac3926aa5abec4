import { type SubscriptionStatus, toTimestamp, toTimestampOrNull } from '../../../core/http/schemas.js';
import { NO_SUBSCRIPTION } from '../entitlement.js';
import type { Holding } from '../holdings.js';
import type { PlanGrant } from '../owners.js';
import type { Benefits } from '../plans/plans.js';
import type { ItemPrice } from '../store.js';

/** What users hold, as responses show it. */

/** The terms of what is held, if anything. A purchase has no end, and a grant is a period. */
export function termsOf(held: Holding | undefined) {
  const { subscription, purchase, grant, startedAt } = held ?? {};
  const item = subscription ?? purchase?.items[0];
  const period = subscription ?? {
    currentPeriodStart: startedAt,
    currentPeriodEnd: grant?.until,
    updatedAt: startedAt,
  };
  return {
    status: (held?.status ?? NO_SUBSCRIPTION.status) as SubscriptionStatus,
    plan: held?.plan ?? NO_SUBSCRIPTION.plan,
    entitled: held?.entitled ?? false,
    priceId: item?.priceId ?? null,
    quantity: item?.quantity ?? null,
    currentPeriodStart: toTimestampOrNull(period.currentPeriodStart),
    currentPeriodEnd: toTimestampOrNull(period.currentPeriodEnd),
    trialEnd: toTimestampOrNull(subscription?.trialEnd),
    cancelAtPeriodEnd: purchase ? false : (subscription?.cancelAtPeriodEnd ?? null),
    cancelAt: toTimestampOrNull(subscription?.cancelAt),
    canceledAt: toTimestampOrNull(subscription?.canceledAt),
    endedAt: toTimestampOrNull(subscription?.endedAt),
    updatedAt: toTimestampOrNull(period.updatedAt),
    pauseReason: subscription?.pauseReason ?? null,
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

export const priceView = ({ unitAmount, currency, ...period }: ItemPrice) => ({
  amount: unitAmount ?? null,
  currency: currency ?? null,
  interval: period.interval,
  intervalCount: period.intervalCount,
});
