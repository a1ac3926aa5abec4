import { invalidFields } from '../../../core/kernel/errors.js';
import { billingErrors } from '../errors.js';
import type { Holding } from '../holdings.js';
import { asInteger, asList, asObject, asText, asTime, type Json } from '../provider/json.js';
import { HELD_ACTIONS, type HeldView } from '../schemas.js';
import { isTerminal } from '../store.js';
import { readPauseReason } from './snapshot.js';

/** Which changes the state of a subscription at the provider permits, and which orders are valid. */

export const statusOf = (subscription: Json): string => asText(subscription['status']) ?? '';

/** When the period of the main item ends; 0 if it is unknown. */
export const periodEndOf = (subscription: Json, mainItem: Json): number =>
  asTime(mainItem['current_period_end'] ?? subscription['current_period_end']) ?? 0;

/** Newer versions of the provider's API schedule a cancellation at the end of the period by its date. */
export function endsWithPeriod(subscription: Json, mainItem: Json): boolean {
  const cancelAt = asTime(subscription['cancel_at']);
  const isDated = cancelAt !== undefined && cancelAt <= periodEndOf(subscription, mainItem);
  return subscription['cancel_at_period_end'] === true || isDated;
}

/** Whether the items have periods of their own, the earliest of which the provider takes for the end of the period. */
export function hasMixedPeriods(subscription: Json): boolean {
  const items = asList(asObject(subscription['items'])['data']);
  return new Set(items.map((item) => item['current_period_end'])).size > 1;
}

export const isFlexible = (subscription: Json): boolean =>
  asObject(subscription['billing_mode'])['type'] === 'flexible';

/** Whether it was paused because a trial ended without a payment method, as every pause before 2026 was. */
export const isTrialPause = (reason: string | null | undefined): boolean =>
  (reason ?? TRIAL_PAUSE) === TRIAL_PAUSE;

const TRIAL_PAUSE = 'trial_end_without_payment_method';

export const isCollectionPaused = (subscription: Json): boolean =>
  asText(asObject(subscription['pause_collection'])['behavior']) !== undefined;

/** With these statuses, a subscription can be changed or paused. */
export const CHANGEABLE = ['active', 'trialing', 'past_due'];

/** With these, it can end with its period, or be resumed. */
export const CANCELLABLE_LATER = [...CHANGEABLE, 'unpaid', 'paused'];

/** What can be done with what is stored about a subscription; nothing with purchases and grants. */
export function actionsOf(
  { subscription, family }: Holding,
  { allowPause, hasChange }: { allowPause: boolean; hasChange: boolean },
): HeldView['actions'] {
  if (!subscription || isTerminal(subscription.status)) return [];
  const { status, cancelAtPeriodEnd, cancelAt, collectionPause } = subscription;
  const ends = cancelAtPeriodEnd || cancelAt !== undefined;
  const isPaused = collectionPause !== undefined || status === 'paused';
  const isOwn = family !== undefined;
  const actions: Record<HeldView['actions'][number], boolean> = {
    change: isOwn && CHANGEABLE.includes(status) && !isPaused,
    undo_change: hasChange,
    cancel: CANCELLABLE_LATER.includes(status) && !ends,
    cancel_now: true,
    resume: CANCELLABLE_LATER.includes(status) && (ends || isPaused),
    pause: isOwn && allowPause && CHANGEABLE.includes(status) && !isPaused,
    pay: ['incomplete', 'past_due', 'unpaid'].includes(status),
  };
  return HELD_ACTIONS.filter((action) => actions[action]);
}

/** What operators can do with a subscription, as the admin area names it. */
export const OPERATOR_ACTIONS = [
  'change-plan',
  'extend-trial',
  'coupon',
  'cancel',
  'resume',
  'cancel-now',
] as const;

/** The same as `actionsOf` for operators, who can do more. */
export function operatorActionsOf(held: Holding): (typeof OPERATOR_ACTIONS)[number][] {
  const own = new Set(actionsOf(held, { allowPause: false, hasChange: false }));
  const { status = '', discountIds = [] } = held.subscription ?? {};
  const actions = {
    'change-plan': own.has('change'),
    'extend-trial': status === 'trialing',
    coupon: CANCELLABLE_LATER.includes(status) && discountIds.length === 0,
    cancel: own.has('cancel'),
    resume: own.has('resume'),
    'cancel-now': own.has('cancel_now'),
  };
  return OPERATOR_ACTIONS.filter((action) => actions[action]);
}

/** @throws SUBSCRIPTION_NOT_CHANGEABLE */
export function requireStatus(subscription: Json, allowed: readonly string[]): void {
  const status = statusOf(subscription);
  if (allowed.includes(status)) return;
  if (status === 'paused' && isTrialPause(readPauseReason(subscription['status_details'])))
    throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({ message: TRIAL_PAUSED });
  throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({
    message: REMEDIES[status] ?? `A subscription with the status ${status} cannot be changed in this way.`,
  });
}

/** Invoices of a subscription whose collection is paused are void, so a more expensive plan would cost nothing. */
export function requireChangeable(subscription: Json): void {
  requireStatus(subscription, CHANGEABLE);
  if (isCollectionPaused(subscription)) throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({ message: PAUSED });
}

const ENDED = 'The subscription has ended. Start a new one at checkout.';

const TRIAL_PAUSED =
  'The trial ended without a payment method. Add one in the customer portal, then resume the subscription.';

const PAUSED = 'The subscription is paused. Resume it first.';

const REMEDIES: Record<string, string> = {
  incomplete: 'The first payment is not complete. Complete it, or cancel the subscription now.',
  unpaid: 'Pay the open invoices first, in the customer portal.',
  paused: PAUSED,
  canceled: ENDED,
  incomplete_expired: ENDED,
};

/** As in the schema of checkout. */
const MAX_QUANTITY = 1_000_000;

/** Validates at run time, because callers on the server may not use TypeScript. */
export function requireOrder({ priceId, quantity }: { priceId: unknown; quantity?: unknown }): void {
  if (asText(priceId) === undefined)
    throw invalidFields({ path: 'priceId', message: 'must be the id of a price' });
  if (quantity !== undefined) requireQuantity(asInteger(quantity) ?? 0);
}

/** @throws VALIDATION_ERROR if the plan is not sold in this quantity */
export function requireQuantity(
  quantity: number,
  { min = 1, max = MAX_QUANTITY }: { min?: number; max?: number } = {},
): void {
  if (quantity < min || quantity > max)
    throw invalidFields({ path: 'quantity', message: `must be an integer from ${min} to ${max}` });
}

/** @throws PRICE_NOT_ALLOWED, CURRENCY_MISMATCH */
export function requireSellable(price: Json | null, subscription: Json): void {
  const isSold = price && price['active'] !== false && price['recurring'] != null;
  if (!isSold) throw billingErrors.PRICE_NOT_ALLOWED();
  const currency = asText(subscription['currency']);
  const offered = [price['currency'], ...Object.keys(asObject(price['currency_options']))];
  if (currency !== undefined && !offered.includes(currency)) throw billingErrors.CURRENCY_MISMATCH();
}
