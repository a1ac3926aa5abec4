import { type Localized, longDate, message } from '../../core/http/messages.js';
import type { AppError } from '../../core/kernel/errors.js';
import type { HeldView, Invoice, Plan, QuotaView } from '../billing/schemas.js';

/** What users hold, plans, limits and invoices, in sentences. */

export const isTrialPaused = ({ status, pauseReason }: HeldView): boolean =>
  status === 'paused' && pauseReason !== 'pause_requested';

/** When a subscription can be changed instead of now. */
export const laterText = (held: HeldView | undefined): Localized | undefined =>
  held?.currentPeriodEnd && !held.cancelAt && !held.cancelAtPeriodEnd
    ? message('user-billing-change.later', { when: dateText(held.currentPeriodEnd) })
    : undefined;

/** Whether it is a subscription of which an add-on can be a part. */
export const isMainPlan = ({ family, actions }: HeldView): boolean =>
  family === 'plans' && actions.includes('change');

export const discountText = ({ discounts }: HeldView): Localized | undefined => {
  const [discount] = discounts ?? [];
  return (
    discount && message('user-billing.discount', { name: discount.name ?? `${discount.percentOff ?? ''} %` })
  );
};

/** The sentences of errors that have one. */
const PROBLEMS: Readonly<Record<string, Localized>> = {
  PAYMENT_METHOD_REQUIRED: message('user-billing.trial-paused'),
  PAYMENT_DECLINED: message('user-billing.problems.PAYMENT_DECLINED'),
  PROMOTION_NOT_VALID: message('user-billing.problems.PROMOTION_NOT_VALID'),
  RATE_LIMITED: message('user-billing.problems.RATE_LIMITED'),
  ALREADY_SUBSCRIBED: message('user-billing.problems.ALREADY_SUBSCRIBED'),
  CURRENCY_MISMATCH: message('user-billing.problems.CURRENCY_MISMATCH'),
  PRICE_NOT_ALLOWED: message('user-billing.problems.PRICE_NOT_ALLOWED'),
  SUBSCRIPTION_NOT_CHANGEABLE: message('user-billing.problems.SUBSCRIPTION_NOT_CHANGEABLE'),
};

/** Why an order was refused; without a sentence of its own, that it cannot be fulfilled or that the provider fails. */
export function problemOf({ code, statusCode, details }: AppError): Localized {
  if (details?.[0]?.path === 'quantity') return message('user-billing.problems.quantity');
  const isRefusal = statusCode < 500;
  const other = isRefusal
    ? message('user-billing.problems.SUBSCRIPTION_NOT_CHANGEABLE')
    : message('user-billing.problems.PAYMENT_PROVIDER_ERROR');
  return PROBLEMS[code] ?? other;
}

export const dateText = (timestamp: string): Localized => longDate(Date.parse(timestamp));

export const nameOf = ({ name, plan }: Plan): string => name ?? plan;

/** How something that the user holds stands, in a sentence. */
export function stateOf(one: HeldView): Localized {
  const { kind, status, entitled, trialEnd, collectionPause, ...held } = one;
  const { currentPeriodEnd, cancelAt, cancelAtPeriodEnd, family } = held;
  const end = cancelAt ?? (cancelAtPeriodEnd ? currentPeriodEnd : null);
  if (kind === 'purchase') return message('user-billing.bought');
  if (kind === 'grant')
    return currentPeriodEnd === null
      ? message('user-billing.granted')
      : message('user-billing.ends', { when: dateText(currentPeriodEnd) });
  if (status === 'incomplete') return message('user-billing.incomplete');
  if (status === 'past_due' || status === 'unpaid') return message('user-billing.past-due');
  if (status === 'paused')
    return message(isTrialPaused(one) ? 'user-billing.trial-paused' : 'user-billing.on-hold');
  if (end !== null) return message('user-billing.ends', { when: dateText(end) });
  if (collectionPause) return message('user-billing.paused');
  if (status === 'trialing' && trialEnd !== null)
    return message('user-billing.trial', { when: dateText(trialEnd) });
  if (currentPeriodEnd !== null) return message('user-billing.renews', { when: dateText(currentPeriodEnd) });
  return message(entitled || family === null ? 'user-billing.active' : 'user-billing.no-access');
}

/** A change that is scheduled. */
export function scheduledText(
  { scheduledChange }: HeldView,
  nameOfPlan: (plan: string) => string,
): Localized | undefined {
  if (!scheduledChange) return undefined;
  const { reason, at, items } = scheduledChange;
  if (reason === 'pending_payment') return message('user-billing.change-unpaid');
  if (at === null || items.length === 0) return undefined;
  const [{ plan, priceId }] = items as [HeldView['items'][number]];
  return message('user-billing.changes', { plan: nameOfPlan(plan ?? priceId), when: dateText(at) });
}

/** `per month`, `every 3 months`. */
export function intervalText({
  interval,
  intervalCount,
}: Pick<Plan, 'interval' | 'intervalCount'>): Localized {
  if (interval === null) return message('user-billing.once');
  return (catalogue) => {
    const count = intervalCount ?? 1;
    const format = { style: 'unit', unit: interval, unitDisplay: 'long' } as const;
    const parts = new Intl.NumberFormat(catalogue.locale, format).formatToParts(count);
    // `per month` instead of `per 1 month`.
    const named = count === 1 ? parts.filter(({ type }) => type === 'unit') : parts;
    return catalogue.text('user-billing.every', { period: named.map(({ value }) => value).join('') });
  };
}

/** How much of a limit is used, in a sentence. */
export function viewOfLimit({ name, limit, used, credits, resetsAt }: QuotaView) {
  const values = { used: String(used), limit: String(limit) };
  return {
    name,
    text: limit === null ? message('user-billing.used', values) : message('user-billing.used-of', values),
    credits: credits > 0 && message('user-billing.credits', { count: String(credits) }),
    resets: resetsAt !== null && message('user-billing.resets', { when: dateText(resetsAt) }),
  };
}

export const viewOfInvoice = ({ number, status, createdAt, url }: Invoice) => ({
  number: number ?? '',
  date: dateText(createdAt),
  isPaid: status === 'paid',
  isOpen: status === 'open',
  url,
});
