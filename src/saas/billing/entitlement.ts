import type { SubscriptionStatus, SubscriptionSummary } from '../../core/http/schemas.js';
import { type Clock, DAY } from '../../core/kernel/clock.js';
import { pagesOf } from '../../core/storage/pages.js';
import type { BillingContext, CommitPart } from './context.js';
import type { PastDue } from './options.js';
import { type Plans, UNKNOWN_PLAN } from './plans/plans.js';
import { findPaymentOf, isPaymentOf, type PurchaseDocument } from './purchases.js';
import {
  type HeldSubscription,
  isReturned,
  listSubscriptions,
  type PaymentDocument,
  type SubscriptionDocument,
} from './store.js';
import {
  ACCESS_TERMS,
  type AccessTerms,
  type BillingUser,
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

export function createProjector(
  { users, commitForUser }: BillingContext,
  listHeld: ListHeld,
  reportDuplicates: (userId: string, all: readonly SubscriptionDocument[]) => Promise<CommitPart[]>,
) {
  const projectionOf = (all: HeldSubscription[]): Projection => {
    const { status, plan } = selectShown(all) ?? NO_SUBSCRIPTION;
    return { status, plan, held: all.filter(mayEntitle).map(accessTermsOf) };
  };

  /**
   * The user's record after a change, for the commit of that change: two changes of a user are made one after the other.
   * @param user as read before what the change was derived from
   */
  const projecting = async (user: BillingUser, changed?: HeldChanges): Promise<CommitPart[]> => {
    const all = await listHeld(user.id, changed);
    const withoutPurchases = all.filter(({ isPurchase }) => !isPurchase);
    return [
      users.projecting(user, projectionOf(all)),
      ...(await reportDuplicates(user.id, withoutPurchases)),
    ];
  };

  return {
    projecting,

    /** Writes the record again, for example after a change of the options. */
    project: (userId: string) => commitForUser(userId, (user) => projecting(user)),
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

/** What a commit changes of the documents that give access. */
export interface HeldChanges {
  subscription?: SubscriptionDocument | undefined;
  purchase?: PurchaseDocument | undefined;
  payment?: PaymentDocument | undefined;
}

export function createListHeld({ subscriptions, purchases, payments, plans }: BillingContext) {
  /** @param changed replaces what is stored */
  return async (userId: string, changed: HeldChanges = {}): Promise<HeldSubscription[]> => {
    const { subscription, purchase: bought, payment: paid } = changed;
    const all: HeldSubscription[] = withChanged(await listSubscriptions(subscriptions, userId), subscription);
    if (!plans.hasPurchases) return all;
    const stored: PurchaseDocument[] = [];
    for await (const page of pagesOf(purchases, { where: { userId }, sort: 'at', desc: true }))
      stored.push(...page);
    for (const purchase of withChanged(stored, bought)) {
      if (purchase.status !== 'paid' || !plans.isPurchase(purchase.plan)) continue;
      const payment = paid && isPaymentOf(purchase, paid) ? paid : await findPaymentOf(payments, purchase);
      if (!payment || !isReturned(payment)) all.push(heldPurchase(purchase));
    }
    return all;
  };
}

const withChanged = <T extends { id: string }>(stored: T[], changed: T | undefined): T[] =>
  changed ? [...stored.filter(({ id }) => id !== changed.id), changed] : stored;

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
