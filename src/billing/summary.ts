import type { SubscriptionStatus, SubscriptionSummary } from '../http/schemas.js';
import type { Clock } from '../kernel/clock.js';
import {
  findEntitlement,
  type Grant,
  mayEntitle,
  type PastDue,
  type SubscriptionTerms,
} from './entitlement.js';
import { NO_SUBSCRIPTION } from './project.js';

/** The part of a user's record that says what the user has. */
export interface SubscriptionRecord {
  id: string;
  subscriptionStatus: string;
  subscriptionRev?: number;
  /** As of the revision that it names. */
  subscriptionsHeld?: { rev: number; terms: SubscriptionTerms[] };
  grant?: Grant;
}

/** `User.subscription` at this moment. Trials, grace periods and grants end without a write to the record. */
export type SummaryOf = (record: SubscriptionRecord) => Promise<SubscriptionSummary>;

export interface SummaryDependencies {
  /** All subscriptions of a user. */
  all(userId: string): Promise<SubscriptionTerms[]>;
  pastDue: PastDue;
  clock: Clock;
}

export function createSummaryOf({ all, pastDue, clock }: SummaryDependencies): SummaryOf {
  /** Earlier versions write the best status only. After such a write the terms are read where they may entitle. */
  const termsOf = ({ id, subscriptionStatus, subscriptionRev, subscriptionsHeld }: SubscriptionRecord) => {
    if (subscriptionsHeld && subscriptionsHeld.rev === subscriptionRev) return subscriptionsHeld.terms;
    return mayEntitle(subscriptionStatus) ? all(id) : [];
  };

  return async (record) => {
    const context = { pastDue, now: clock.now() };
    const entitlement = findEntitlement(await termsOf(record), record.grant, context);
    const status = record.subscriptionStatus as SubscriptionStatus;
    if (!entitlement) return { status, plan: NO_SUBSCRIPTION.plan, entitled: false };
    if ('grant' in entitlement) return { status: 'granted', plan: entitlement.grant.plan, entitled: true };
    const { subscription } = entitlement;
    return { status: subscription.status as SubscriptionStatus, plan: subscription.plan, entitled: true };
  };
}
