import { DAY } from '../kernel/clock.js';
import { UNKNOWN_PLAN } from './plans.js';
import { bestOf } from './status.js';
import type { SubscriptionDocument } from './store.js';

/** How long a failing payment keeps what was bought: for good, for so many days, or not at all. */
export type PastDue = 'entitled' | 'denied' | number;

/** The part of a subscription that decides on access. */
export type SubscriptionTerms = Pick<
  SubscriptionDocument,
  'id' | 'status' | 'plan' | 'startedAt' | 'trialEnd' | 'pastDueSince'
>;

/** A plan that the operator gave to a user. Times in epoch milliseconds. */
export interface Grant {
  plan: string;
  since: number;
  /** Absent: until the grant is revoked. */
  until?: number;
}

/** What access is decided by beside the subscriptions themselves. */
export interface EntitlementContext {
  pastDue: PastDue;
  now: number;
}

/** What gives a user access. */
export type Entitlement<T> = { grant: Grant } | { subscription: T };

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

/** Whether a subscription with this status may entitle at some time, under some setting. */
export const mayEntitle = (status: string): boolean => ['active', 'trialing', 'past_due'].includes(status);

export const isInForce = ({ until }: Grant, now: number): boolean => until === undefined || now < until;

/** What gives access to `plan`, or to any plan. Of a subscription and a grant it is the newer one. */
export function findEntitlement<T extends SubscriptionTerms>(
  held: readonly T[],
  grant: Grant | undefined,
  { pastDue, now }: EntitlementContext,
  plan?: string,
): Entitlement<T> | null {
  const isAsked = (one: { plan: string }) => plan === undefined || one.plan === plan;
  const subscription = bestOf(held.filter((one) => isAsked(one) && isEntitled(one, pastDue, now)));
  const isGranted = grant !== undefined && isAsked(grant) && isInForce(grant, now);
  if (isGranted && (!subscription || grant.since >= subscription.startedAt)) return { grant };
  return subscription ? { subscription } : null;
}
