import type Stripe from 'stripe';
import { defined } from '../../../core/kernel/fields.js';
import { billingErrors } from '../errors.js';
import { causeOf, type ProviderCall, rejectionOf, throwBillingError } from './client.js';
import { asObject, type Json } from './json.js';
import { completeUntil, requireSubscription, respondedAt, withAllItems, withAllLines } from './responses.js';
import { phasesFor, type ScheduledItem } from './schedules.js';

/** Requests that change a subscription, or show what a change costs. */

/** An item with its new price. Metered prices have no quantity. */
export interface ItemChange {
  /** Absent for an item that is added. */
  itemId?: string;
  priceId: string;
  quantity?: number;
}

/** How the difference for the rest of a period is charged: now, with the next invoice, or not at all. */
export type Proration = (typeof PRORATIONS)[number];

export const PRORATIONS = ['always_invoice', 'create_prorations', 'none'] as const;

/**
 * - `item`: changes price and quantity; what is invoiced at once must be paid. If the bank wants a confirmation, the change waits for it
 *   as a pending update
 * - `remove-item`: credits the rest of the period
 * - `discount`: adds the discount of a promotion code or a coupon
 * - `trial-end`: ends the trial at another time
 * - `schedule`: the items from the end of the period on
 * - `release`: ends a schedule and what it would have changed
 * - `void`: voids the invoice of a pending update, which ends the update
 * - `cancel-at-period-end`, `keep`: schedules a cancellation, takes it back
 * - `cancel-at`: the same at a date, `clear-cancel-at`: takes it back
 * - `cancel-now`: ends it; usage and prorations that are still open are invoiced
 * - `pause`, `resume`: no periods and no invoices until it is resumed, which starts a period and collects its payment
 * - `collect`: collects invoices again, after the seller has paused that
 */
export type SubscriptionChange =
  | { kind: 'item'; item: ItemChange; proration: Proration }
  | { kind: 'remove-item'; itemId: string; proration: Proration }
  | { kind: 'discount'; discount: { promotion_code: string } | { coupon: string } }
  | { kind: 'trial-end'; at: number }
  | { kind: 'schedule'; items: readonly ScheduledItem[]; at: number }
  | { kind: 'release'; scheduleId: string }
  | { kind: 'void'; invoiceId: string }
  | { kind: 'cancel-at'; at: number }
  | { kind: keyof typeof UPDATES | 'cancel-now' | 'pause' | 'resume' };

/** Changes that are an update with fixed values. */
const UPDATES = {
  'cancel-at-period-end': { cancel_at_period_end: true },
  keep: { cancel_at_period_end: false },
  'clear-cancel-at': { cancel_at: '' },
  collect: { pause_collection: '' },
} satisfies Record<string, Stripe.SubscriptionUpdateParams>;

/** @param timeoutMs of a change, which may include a payment */
export async function changeSubscription(
  call: ProviderCall,
  id: string,
  change: SubscriptionChange,
  timeoutMs: number,
): Promise<{ object: Json; asOf: number }> {
  // A second attempt after half the time would only meet the lock of a payment in progress.
  const options = { timeout: timeoutMs, maxNetworkRetries: 0 };
  const response = await call((stripe) => send(stripe, id, change, options), {
    timeoutMs,
    onError: change.kind === 'item' || change.kind === 'discount' ? throwItemError : throwChangeError,
  });
  const object = await withAllItems(call, requireSubscription(response));
  return { object, asOf: isRead(change) ? completeUntil(response) : respondedAt(response) };
}

/** Whether the changed subscription is read after a change of another object. */
const isRead = ({ kind }: SubscriptionChange): boolean => ['schedule', 'release', 'void'].includes(kind);

async function send(
  { subscriptions, subscriptionSchedules, invoices }: Stripe,
  id: string,
  change: SubscriptionChange,
  options: Stripe.RequestOptions,
): Promise<Stripe.Response<Stripe.Subscription>> {
  switch (change.kind) {
    case 'item': {
      const params = { items: [itemOf(change.item)], proration_behavior: change.proration };
      const update = (payment_behavior: 'error_if_incomplete' | 'pending_if_incomplete') =>
        subscriptions.update(id, { ...params, payment_behavior }, options);
      return update('error_if_incomplete').catch((error: Stripe.errors.StripeError) => {
        if (!needsConfirmation(error)) throw error;
        return update('pending_if_incomplete');
      });
    }
    case 'remove-item': {
      const items = [{ id: change.itemId, deleted: true }];
      return subscriptions.update(id, { items, proration_behavior: change.proration }, options);
    }
    case 'discount':
      return subscriptions.update(id, { discounts: [change.discount] }, options);
    case 'trial-end': {
      const trial = { trial_end: Math.floor(change.at / 1000), proration_behavior: 'none' } as const;
      return subscriptions.update(id, trial, options);
    }
    case 'schedule': {
      const schedule = await subscriptionSchedules.create({ from_subscription: id }, options);
      const phases = phasesFor(asObject(schedule), change.items, change.at);
      await subscriptionSchedules.update(schedule.id, { end_behavior: 'release', phases }, options);
      return subscriptions.retrieve(id, { expand: ['schedule'] }, options);
    }
    case 'release':
      await subscriptionSchedules.release(change.scheduleId, {}, options);
      return subscriptions.retrieve(id, undefined, options);
    case 'void':
      await invoices.voidInvoice(change.invoiceId, {}, options);
      return subscriptions.retrieve(id, undefined, options);
    case 'cancel-at':
      // Other items may be paid for longer, of which nothing is refunded.
      return subscriptions.update(
        id,
        { cancel_at: Math.floor(change.at / 1000), proration_behavior: 'none' },
        options,
      );
    case 'cancel-now':
      return subscriptions.cancel(id, { invoice_now: true }, options);
    case 'pause':
      return subscriptions.pause(id, { type: 'subscription' }, options);
    case 'resume':
      return subscriptions.resume(id, { payment_behavior: 'resume_on_payment_success' }, options);
    default:
      return subscriptions.update(id, UPDATES[change.kind], options);
  }
}

export async function previewChange(
  call: ProviderCall,
  id: string,
  item: ItemChange,
  proration: Proration,
): Promise<Json> {
  const preview = await call(
    (stripe) =>
      stripe.invoices.createPreview({
        subscription: id,
        subscription_details: { items: [itemOf(item)], proration_behavior: proration },
      }),
    { onError: throwItemError },
  );
  return withAllLines(call, asObject(preview));
}

const itemOf = ({ itemId, priceId, quantity }: ItemChange) =>
  defined({ id: itemId, price: priceId, quantity });

/** Whether the bank wants the user to confirm the payment. */
const needsConfirmation = ({ code = '', statusCode }: Stripe.errors.StripeError): boolean =>
  statusCode === 402 && /authentication_required|requires_action/.test(code);

/** A refusal of a new price or quantity. */
function throwItemError(error: Stripe.errors.StripeError): never {
  if (error.type === 'StripeCardError' || error.statusCode === 402)
    throw billingErrors.PAYMENT_DECLINED({ cause: causeOf(error) });
  if (!isRefusal(error)) return throwBillingError(error);
  if (/currenc/i.test(error.message)) throw billingErrors.CURRENCY_MISMATCH({ cause: causeOf(error) });
  if (rejectionOf(error) !== 'PAYMENT_PROVIDER_ERROR') return throwBillingError(error);
  throw billingErrors.PRICE_NOT_ALLOWED({
    message: 'The subscription cannot change to this price. Choose another one.',
    cause: causeOf(error),
  });
}

/** A refusal of any other change. */
function throwChangeError(error: Stripe.errors.StripeError): never {
  if (error.type === 'StripeCardError') throw billingErrors.PAYMENT_DECLINED({ cause: causeOf(error) });
  if (!isRefusal(error)) return throwBillingError(error);
  throw billingErrors.SUBSCRIPTION_NOT_CHANGEABLE({ cause: causeOf(error) });
}

/** Whether the provider rejects this request, in contrast to a failure or a missing subscription. */
const isRefusal = ({ type, statusCode }: Stripe.errors.StripeError): boolean =>
  type === 'StripeInvalidRequestError' && statusCode === 400;
