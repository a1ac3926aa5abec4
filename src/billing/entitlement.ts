import { isDeepStrictEqual } from 'node:util';
import { type SubscriptionStatus, type SubscriptionSummary, toTimestamp } from '../http/schemas.js';
import { type Clock, DAY } from '../kernel/clock.js';
import { type ErrorDetail, httpErrors } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import { selectBest } from './events/subscription-order.js';
import { type Plans, UNKNOWN_PLAN } from './plans/plans.js';
import type { AccessTerms, BillingUsers, Grant, HeldSubscription, SubscriptionDocument } from './store.js';

/**
 * Access to plans through subscriptions and grants. The access terms of the subscriptions are copied to the
 * user's record, so that reading a user needs no further query.
 */

/** How long a past-due subscription keeps access: without limit, for a number of days, or not at all. */
export type PastDue = 'entitled' | 'denied' | number;

export interface EntitlementContext {
  pastDue: PastDue;
  now: number;
}

/** The source of a user's access. */
export type Entitlement<T> = { grant: Grant } | { subscription: T };

/** The summary of a user without subscription and grant. */
export const NO_SUBSCRIPTION = { status: 'none', plan: 'free' } as const;

/** Whether a subscription grants access to its plan at `now`. An unknown status or plan does not. */
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

/** Whether a subscription with this status grants access at some time, under some setting. */
const isEntitlingStatus = (status: string): boolean => ['active', 'trialing', 'past_due'].includes(status);

const mayEntitle = ({ status, plan }: Pick<AccessTerms, 'status' | 'plan'>): boolean =>
  isEntitlingStatus(status) && plan !== UNKNOWN_PLAN;

/** The subscription to show for a user: the best one that may grant access, so that no unknown plan hides it. */
export const selectShown = <T extends AccessTerms>(all: readonly T[]): T | undefined =>
  selectBest(all.filter(mayEntitle)) ?? selectBest(all);

export const isInForce = ({ until }: Grant, now: number): boolean => until === undefined || now < until;

/** The subscription or grant that gives access to `plan`, or to any plan: the newer one if both do. */
export function findEntitlement<T extends AccessTerms>(
  held: readonly T[],
  grant: Grant | undefined,
  { pastDue, now }: EntitlementContext,
  plan?: string,
): Entitlement<T> | null {
  const isRequested = (one: { plan: string }) => plan === undefined || one.plan === plan;
  const subscription = selectBest(held.filter((one) => isRequested(one) && isEntitled(one, pastDue, now)));
  const isGranted = grant !== undefined && isRequested(grant) && isInForce(grant, now);
  if (isGranted && (!subscription || grant.since >= subscription.startedAt)) return { grant };
  return subscription ? { subscription } : null;
}

/** Every plan to which the subscriptions and the grant give access now. */
export function listEntitledPlans(
  subscriptions: readonly SubscriptionDocument[],
  grant: Grant | undefined,
  { pastDue, now }: EntitlementContext,
  configured: Plans['configured'],
): Set<string> {
  const entitled = subscriptions.filter((one) => isEntitled(one, pastDue, now));
  const plans = entitled.flatMap(({ plan, otherPriceIds = [] }) => [
    plan,
    ...otherPriceIds.flatMap((priceId) => configured?.get(priceId) ?? []),
  ]);
  return new Set(grant && isInForce(grant, now) ? [...plans, grant.plan] : plans);
}

export interface Projector {
  /** Writes a user's subscriptions to the user's record. */
  project(userId: string): Promise<void>;
}

/** @param afterwards called with every subscription of a user once the record is written */
/** @param listHeld every subscription of a user, and the purchases that give access */
export function createProjector(
  listHeld: (userId: string) => Promise<HeldSubscription[]>,
  { projection }: Pick<BillingUsers, 'projection'>,
  afterwards: (userId: string, all: SubscriptionDocument[]) => Promise<void>,
): Projector {
  return {
    async project(userId) {
      for (;;) {
        const revision = await projection.revision(userId);
        if (revision === null) return;
        const all = await listHeld(userId);
        const { status, plan } = selectShown(all) ?? NO_SUBSCRIPTION;
        const held = all.filter(mayEntitle).map(accessTermsOf);
        // Written even if nothing differs: a new revision makes writes that are based on older subscriptions fail.
        if (await projection.write(userId, revision, { status, plan, held })) {
          const bought = all.filter(({ isPurchase }) => !isPurchase);
          return afterwards(userId, bought);
        }
      }
    },
  };
}

/** Whether two states of a subscription result in the same user record. */
export const haveSameProjection = (before: SubscriptionDocument, after: SubscriptionDocument): boolean =>
  isDeepStrictEqual(accessTermsOf(before), accessTermsOf(after));

function accessTermsOf(subscription: SubscriptionDocument): AccessTerms {
  const { id, status, plan, startedAt, trialEnd, pastDueSince } = subscription;
  return {
    id,
    status,
    plan,
    startedAt,
    ...(trialEnd !== undefined && { trialEnd }),
    ...(pastDueSince !== undefined && { pastDueSince }),
  };
}

/** The part of a user's record that billing writes. */
export interface SubscriptionRecord {
  id: string;
  subscriptionStatus: string;
  subscriptionRev?: number;
  /** As of the `subscriptionRev` in `rev`. */
  subscriptionsHeld?: { rev: number; terms: AccessTerms[] };
  grant?: Grant;
}

/** `User.subscription` at this moment. Trials, grace periods and grants end without a write to the record. */
export type SummaryOf = (record: SubscriptionRecord) => Promise<SubscriptionSummary>;

export interface SummaryDependencies {
  listHeld(userId: string): Promise<AccessTerms[]>;
  pastDue: PastDue;
  clock: Clock;
}

export function createSummaryOf(deps: SummaryDependencies): SummaryOf {
  /** Earlier versions write the best status only: after such a write, the subscriptions are read instead. */
  const termsOf = ({ id, subscriptionStatus, subscriptionRev, subscriptionsHeld }: SubscriptionRecord) => {
    if (subscriptionsHeld && subscriptionsHeld.rev === subscriptionRev) return subscriptionsHeld.terms;
    return isEntitlingStatus(subscriptionStatus) ? deps.listHeld(id) : [];
  };

  return async (record) => {
    const context = { pastDue: deps.pastDue, now: deps.clock.now() };
    const entitlement = findEntitlement(await termsOf(record), record.grant, context);
    const status = record.subscriptionStatus as SubscriptionStatus;
    if (!entitlement) return { status, plan: NO_SUBSCRIPTION.plan, entitled: false };
    if ('grant' in entitlement) return { status: 'granted', plan: entitlement.grant.plan, entitled: true };
    const { subscription } = entitlement;
    return { status: subscription.status as SubscriptionStatus, plan: subscription.plan, entitled: true };
  };
}

/** Plans that the operator gives to users, with or without a payment provider. */
export interface Grants {
  /** Replaces an earlier grant. @throws VALIDATION_ERROR, NOT_FOUND */
  grant(userId: string, given: GivenPlan): Promise<void>;
  /** Does nothing without a grant. @throws NOT_FOUND */
  revoke(userId: string): Promise<void>;
}

export interface GivenPlan {
  plan: string;
  /** Unix time in milliseconds, in the future. Default: until it is revoked. */
  until?: number;
}

export interface GrantDependencies {
  users: Pick<BillingUsers, 'grants'>;
  audit: Audit;
  clock: Clock;
}

/** As in BILLING_PRICES. */
const PLAN = /^[\w .-]{1,100}$/;

export function createGrants({ users, audit, clock }: GrantDependencies): Grants {
  const write = async (userId: string, grant: Grant | null) => {
    const written = await users.grants.write(userId, grant);
    if (!written) throw httpErrors.NOT_FOUND({ message: 'The user was not found.' });
    return written;
  };

  return {
    async grant(userId, given) {
      const now = clock.now();
      const details = problemsOf(given, now);
      if (details.length > 0) throw httpErrors.VALIDATION_ERROR({ details });
      const { plan, until } = given;
      await write(userId, { plan, since: now, ...(until !== undefined && { until }) });
      const detail = until === undefined ? plan : `${plan} until ${toTimestamp(until)}`;
      await audit.record({ event: 'plan.granted', subject: userId, ip: 'local', detail });
    },

    async revoke(userId) {
      const { before } = await write(userId, null);
      if (!before) return;
      await audit.record({ event: 'plan.revoked', subject: userId, ip: 'local', detail: before.plan });
    },
  };
}

/** Validates at run time, because callers may not use TypeScript. */
function problemsOf({ plan, until }: { plan?: unknown; until?: unknown }, now: number): ErrorDetail[] {
  const problems: ErrorDetail[] = [];
  const isPlan = typeof plan === 'string' && PLAN.test(plan) && plan.trim() === plan;
  if (!isPlan) {
    problems.push({
      path: 'plan',
      message: 'must be the name of a plan: letters, digits, spaces, dots and hyphens, as in pro',
    });
  } else if (plan === NO_SUBSCRIPTION.plan || plan === UNKNOWN_PLAN) {
    problems.push({ path: 'plan', message: `must not be ${plan}, which does not grant access` });
  }
  const isTime = Number.isSafeInteger(until) && (until as number) <= MAX_DATE_MS;
  if (until !== undefined && !(isTime && (until as number) > now)) {
    problems.push({ path: 'until', message: 'must be a time in the future, as Unix time in milliseconds' });
  }
  return problems;
}

/** The latest time that a Date can represent. */
const MAX_DATE_MS = 8_640_000_000_000_000;
