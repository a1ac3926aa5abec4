import { DAY } from '../kernel/clock.js';
import { UNKNOWN_PLAN } from './plans.js';
import type { SubscriptionDocument } from './store.js';

/** How long a failing payment keeps what was bought: for good, for so many days, or not at all. */
export type PastDue = 'entitled' | 'denied' | number;

/** Whether a subscription entitles to its plan at `now`. What is not known to entitle does not. */
export function isEntitled(
  subscription: Pick<SubscriptionDocument, 'status' | 'plan' | 'trialEnd' | 'pastDueSince'>,
  pastDue: PastDue,
  now: number,
): boolean {
  const { status, plan, trialEnd, pastDueSince = 0 } = subscription;
  if (plan === UNKNOWN_PLAN) return false;
  switch (status) {
    case 'active':
      return true;
    case 'trialing':
      return trialEnd === undefined || now < trialEnd;
    case 'past_due':
      return typeof pastDue === 'number' ? now < pastDueSince + pastDue * DAY : pastDue === 'entitled';
    default:
      return false;
  }
}
