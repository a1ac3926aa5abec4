import type { SubscriptionStatus, SubscriptionSummary } from '../../core/http/schemas.js';
import { type Clock, DAY } from '../../core/kernel/clock.js';
import type { Write } from '../../core/storage/collection.js';
import { pagesOf } from '../../core/storage/pages.js';
import type { BillingContext } from './context.js';
import type { PastDue } from './options.js';
import { type Plans, UNKNOWN_PLAN } from './plans/plans.js';
import { findPaymentOf, type PurchaseDocument } from './purchases.js';
import { type HeldSubscription, isReturned, listSubscriptions, type SubscriptionDocument } from './store.js';
import {
  ACCESS_TERMS,
  type AccessTerms,
  type BillingUsers,
  type PlanGrant,
  type Projection,
} from './users.js';

/**
 * Access to plans through subscriptions and grants. The access terms of the subscriptions are copied to the
 * user's record, so that reading a user needs no further query.
 */

/** The source of a user's access. */
type Entitlement<T> = { grant: PlanGrant } | { subscription: T };

/** The summary of a user without subscription and grant. */
export const NO_SUBSCRIPTION = { status: 'none', plan: 'free' } as const;

/** Whether a subscription grants access to its plan at `now`. An unknown status or plan does not. */
export function isEntitled(
  {
    status,
    plan,
    trialEnd,
    pastDueSince = 0,
  }: Pick<SubscriptionDocument, 'status' | 'plan' | 'trialEnd' | 'pastDueSince'>,
  pastDue: PastDue,
  now: number,
): boolean {
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

/** Whether a subscription grants access at some time, under some setting. */
const mayEntitle = ({ status, plan }: AccessTerms): boolean =>
  ['active', 'trialing', 'past_due'].includes(status) && plan !== UNKNOWN_PLAN;

/** The subscription to show for a user: the best one that may grant access, so that no unknown plan hides it. */
export const selectShown = <T extends AccessTerms>(all: readonly T[]): T | undefined =>
  selectBest(all.filter(mayEntitle)) ?? selectBest(all);

export const isInForce = ({ until }: PlanGrant, now: number): boolean => until === undefined || now < until;

/** The subscription or grant that gives access to `plan`, or to any plan: the newer one if both do. */
export function findEntitlement<T extends AccessTerms>(
  held: readonly T[],
  grant: PlanGrant | undefined,
  { pastDue, now }: { pastDue: PastDue; now: number },
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
  grant: PlanGrant | undefined,
  { pastDue, now }: { pastDue: PastDue; now: number },
  configured: Plans['configured'],
): Set<string> {
  const entitled = subscriptions.filter((one) => isEntitled(one, pastDue, now));
  const plans = entitled.flatMap(({ plan, otherPriceIds = [] }) => [
    plan,
    ...otherPriceIds.flatMap((priceId) => configured?.get(priceId) ?? []),
  ]);
  return new Set(grant && isInForce(grant, now) ? [...plans, grant.plan] : plans);
}

export type Projector = ReturnType<typeof createProjector>;

/** @param report called with every subscription of a user, before or after the record is written */
export function createProjector(
  listHeld: ListHeld,
  { projection }: BillingUsers,
  report: (userId: string, all: SubscriptionDocument[]) => Promise<void>,
) {
  const projectionOf = (all: HeldSubscription[]): Projection => {
    const { status, plan } = selectShown(all) ?? NO_SUBSCRIPTION;
    return { status, plan, held: all.filter(mayEntitle).map(accessTermsOf) };
  };
  const withoutPurchases = (all: HeldSubscription[]) => all.filter(({ isPurchase }) => !isPurchase);

  return {
    /** Writes a user's subscriptions to the user's record. */
    async project(userId: string) {
      for (;;) {
        const revision = await projection.revision(userId);
        if (revision === null) return;
        const all = await listHeld(userId);
        // Written even if nothing differs: a new revision makes writes that are based on older subscriptions fail.
        if (await projection.write(userId, revision, projectionOf(all)))
          return report(userId, withoutPurchases(all));
      }
    },

    /**
     * The write of the record that is made together with that of one subscription. Null if the user does not exist. It cannot be made
     * if the record was written meanwhile, which every other write of a subscription does after it.
     */
    async projecting(changed: SubscriptionDocument): Promise<Write | null> {
      const { id, userId } = changed;
      const revision = await projection.revision(userId);
      if (revision === null) return null;
      const all = (await listHeld(userId)).map((one) => (one.id === id ? changed : one));
      // Before the write, after which nothing repeats it.
      await report(userId, withoutPurchases(all));
      return projection.writing(userId, revision, projectionOf(all));
    },
  };
}

/** Whether two states of a subscription result in the same user record. */
export const haveSameProjection = (before: SubscriptionDocument, after: SubscriptionDocument): boolean =>
  ACCESS_TERMS.every((name) => before[name] === after[name]);

const accessTermsOf = ({
  id,
  status,
  plan,
  startedAt,
  trialEnd,
  pastDueSince,
}: SubscriptionDocument): AccessTerms => ({
  id,
  status,
  plan,
  startedAt,
  ...(trialEnd !== undefined && { trialEnd }),
  ...(pastDueSince !== undefined && { pastDueSince }),
});

/** The part of a user's record that billing writes. */
export interface SubscriptionRecord {
  id: string;
  subscriptionStatus: string;
  /** Absent before the first. */
  subscriptionsHeld?: AccessTerms[];
  grant?: PlanGrant;
}

/** `User.subscription` at this moment. Trials, grace periods and grants end without a write to the record. */
export function createSummaryOf({ pastDue, clock }: { pastDue: PastDue; clock: Clock }) {
  return ({ subscriptionStatus, subscriptionsHeld = [], grant }: SubscriptionRecord): SubscriptionSummary => {
    const entitlement = findEntitlement(subscriptionsHeld, grant, { pastDue, now: clock.now() });
    const status = subscriptionStatus as SubscriptionStatus;
    if (!entitlement) return { status, plan: NO_SUBSCRIPTION.plan, entitled: false };
    if ('grant' in entitlement) return { status: 'granted', plan: entitlement.grant.plan, entitled: true };
    const { subscription } = entitlement;
    return { status: subscription.status as SubscriptionStatus, plan: subscription.plan, entitled: true };
  };
}

/** From the most to the least valuable for a user. An unknown status ranks last. */
const BEST_FIRST = [
  'active',
  'trialing',
  'past_due',
  'unpaid',
  'paused',
  'incomplete',
  'canceled',
  'incomplete_expired',
];

type Rankable = Pick<SubscriptionDocument, 'id' | 'status' | 'startedAt'>;

/** The subscription that is shown for a user: the best status and, among equal ones, the newest. */
export function selectBest<T extends Rankable>(subscriptions: readonly T[]): T | undefined {
  return subscriptions.toSorted(
    (a, b) => rankOf(b) - rankOf(a) || b.startedAt - a.startedAt || (b.id > a.id ? 1 : b.id < a.id ? -1 : 0),
  )[0];
}

function rankOf({ status }: Rankable): number {
  const rank = BEST_FIRST.indexOf(status);
  return rank < 0 ? 0 : BEST_FIRST.length - rank;
}

/** Every subscription of a user, and as active ones the paid purchases of plans that are sold once. */
export type ListHeld = ReturnType<typeof createListHeld>;

export function createListHeld({ subscriptions, purchases, payments, plans }: BillingContext) {
  return async (userId: string): Promise<HeldSubscription[]> => {
    const all: HeldSubscription[] = await listSubscriptions(subscriptions, userId);
    if (!plans.hasPurchases) return all;
    for await (const page of pagesOf(purchases, { where: { userId }, sort: 'at', desc: true })) {
      for (const purchase of page) {
        if (purchase.status !== 'paid' || !plans.isPurchase(purchase.plan)) continue;
        const payment = await findPaymentOf(payments, purchase);
        if (!payment || !isReturned(payment)) all.push(heldPurchase(purchase));
      }
    }
    return all;
  };
}

/** A purchase as a subscription without an end. */
function heldPurchase({ id, userId, plan, items, at, rev, createdAt }: PurchaseDocument): HeldSubscription {
  const [item] = items;
  return {
    id,
    userId,
    isPurchase: true,
    status: 'active',
    plan,
    ...item,
    items: items.slice(0, 1),
    cancelAtPeriodEnd: false,
    startedAt: at,
    currentPeriodStart: at,
    at,
    statusAt: at,
    heardAt: at,
    rev,
    createdAt,
    updatedAt: at,
  };
}
