import type { SubscriptionStatus, SubscriptionSummary } from '../../core/http/schemas.js';
import { type Clock, DAY } from '../../core/kernel/clock.js';
import { isLiveKey, type PastDue } from './options.js';
import type { BilledRecord, PlanGrant } from './owners.js';
import { MAIN_FAMILY, type Plans, UNKNOWN_PLAN } from './plans/plans.js';

/**
 * Which of the things that users hold give access, and which of them is shown.
 */

/** What decides whether something gives access to its plan. */
export interface EntitlementTerms {
  /** Of a subscription; `active` for a purchase, `granted` for a grant. */
  status: string;
  plan: string;
  startedAt: number;
  trialEnd?: number | undefined;
  pastDueSince?: number | undefined;
  /** The end of a grant. */
  until?: number | undefined;
}

/** The summary of a user without subscription and grant. */
export const NO_SUBSCRIPTION = { status: 'none', plan: 'free' } as const;

/** Whether a subscription, a purchase or a grant gives access to its plan at `now`. An unknown status or plan does not. */
export function isEntitled(
  { status, plan, trialEnd, pastDueSince = 0, until }: Omit<EntitlementTerms, 'startedAt'>,
  pastDue: PastDue,
  now: number,
): boolean {
  if (plan === UNKNOWN_PLAN) return false;
  switch (status) {
    case 'active':
      return true;
    case 'granted':
      return until === undefined || now < until;
    case 'trialing':
      return trialEnd === undefined || now < trialEnd;
    case 'past_due':
      return typeof pastDue === 'number' ? now < pastDueSince + pastDue * DAY : pastDue === 'entitled';
    default:
      return false;
  }
}

/**
 * Whether what was bought counts: what was bought in the provider's test mode gives nothing under a live key, with which it does not exist.
 * @param key the API key
 */
export const createModeCheck = (key: string | undefined) => {
  const isLive = isLiveKey(key);
  return ({ livemode }: { livemode?: boolean | undefined }): boolean => !(isLive && livemode === false);
};

/** Whether a subscription grants access at some time, under some setting. */
export const mayEntitle = ({ status, plan }: Pick<EntitlementTerms, 'status' | 'plan'>): boolean =>
  ['active', 'trialing', 'past_due'].includes(status) && plan !== UNKNOWN_PLAN;

/**
 * What gives a user access: the best subscription or purchase, or the grant if that is newer. Plans that users have one at a time come
 * before independent ones, such as add-ons. Undefined if nothing does.
 * @param entitled what gives access
 */
export function selectEntitlement<T extends EntitlementTerms>(
  entitled: readonly T[],
  plans: Pick<Plans, 'familyOf'>,
): T | undefined {
  const among = mainFirst(entitled, plans);
  const grant = among.find(({ status }) => status === 'granted');
  const bought = selectBest(among.filter((one) => one !== grant));
  return grant && (!bought || grant.startedAt >= bought.startedAt) ? grant : bought;
}

/** What is shown of what a user has bought: the best that may give access, so that no unknown plan hides it. */
export const selectShown = <T extends EntitlementTerms>(
  bought: readonly T[],
  plans: Pick<Plans, 'familyOf'>,
): T | undefined => selectBest(mainFirst(bought.filter(mayEntitle), plans)) ?? selectBest(bought);

/** Those of the main family; all if there are none. */
function mainFirst<T extends EntitlementTerms>(all: readonly T[], plans: Pick<Plans, 'familyOf'>) {
  const main = all.filter(({ plan }) => plans.familyOf(plan) === MAIN_FAMILY);
  return main.length > 0 ? main : all;
}

/** A grant in the form of a subscription. */
export const grantTerms = ({ plan, since, until }: PlanGrant): EntitlementTerms => ({
  status: 'granted',
  plan,
  startedAt: since,
  until,
});

/** `User.subscription` at this moment. Trials, grace periods and grants end without a write to the record. */
export function createSummaryOf({
  pastDue,
  plans,
  counts,
  clock,
}: {
  pastDue: PastDue;
  counts: ReturnType<typeof createModeCheck>;
  plans: Pick<Plans, 'familyOf'>;
  clock: Clock;
}) {
  return ({
    subscriptionStatus,
    subscriptionsHeld = [],
    grant,
  }: Pick<BilledRecord, 'subscriptionStatus' | 'subscriptionsHeld' | 'grant'>): SubscriptionSummary => {
    const bought: EntitlementTerms[] = subscriptionsHeld.filter(counts);
    const held = grant ? [...bought, grantTerms(grant)] : bought;
    const now = clock.now();
    const found = selectEntitlement(
      held.filter((one) => isEntitled(one, pastDue, now)),
      plans,
    );
    return found
      ? { status: found.status as SubscriptionStatus, plan: found.plan, entitled: true }
      : { status: subscriptionStatus as SubscriptionStatus, plan: NO_SUBSCRIPTION.plan, entitled: false };
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

/** The best status and, among equal ones, the newest. */
export function selectBest<T extends EntitlementTerms & { id?: string }>(all: readonly T[]): T | undefined {
  return all.toSorted(
    (a, b) => rankOf(b) - rankOf(a) || b.startedAt - a.startedAt || ((b.id ?? '') > (a.id ?? '') ? 1 : -1),
  )[0];
}

function rankOf({ status }: EntitlementTerms): number {
  const rank = BEST_FIRST.indexOf(status);
  return rank < 0 ? 0 : BEST_FIRST.length - rank;
}
