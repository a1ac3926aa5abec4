import type Stripe from 'stripe';
import { billingErrors } from '../errors.js';
import { causeOf, type ProviderCall, rejectionOf, throwBillingError } from './client.js';
import { asObject, type Json } from './json.js';
import { requireSubscription, respondedAt, withAllItems, withAllLines } from './responses.js';

/** Requests that change a subscription, or show what a change costs. */

/** The item of the main plan with its new price. Metered prices have no quantity. */
export interface ItemChange {
  itemId: string;
  priceId: string;
  quantity?: number;
}

/**
 * - `item`: changes price and quantity; the difference is invoiced at once, and the change is made only if it is paid
 * - `cancel-at-period-end`, `keep`: schedules a cancellation, takes it back
 * - `clear-cancel-at`: takes back a cancellation at a date
 * - `cancel-now`: ends it; usage and prorations that are still open are invoiced
 * - `pause-collection`, `collect`: voids the invoices from now on, collects them again
 * - `resume`: continues a subscription with the status `paused`
 */
export type SubscriptionChange =
  | { kind: 'item'; item: ItemChange }
  | {
      kind:
        | 'cancel-at-period-end'
        | 'keep'
        | 'clear-cancel-at'
        | 'cancel-now'
        | 'pause-collection'
        | 'collect'
        | 'resume';
    };

/** Differences are charged now instead of with the next invoice, and credits reduce the next invoices. */
const PRORATION = 'always_invoice';

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
    onError: change.kind === 'item' ? throwItemError : throwChangeError,
  });
  const object = await withAllItems(call, requireSubscription(response));
  return { object, asOf: respondedAt(response) };
}

function send(
  { subscriptions }: Stripe,
  id: string,
  change: SubscriptionChange,
  options: Stripe.RequestOptions,
): Promise<Stripe.Response<Stripe.Subscription>> {
  switch (change.kind) {
    case 'item':
      return subscriptions.update(
        id,
        {
          items: [itemOf(change.item)],
          proration_behavior: PRORATION,
          payment_behavior: 'error_if_incomplete',
        },
        options,
      );
    case 'cancel-at-period-end':
      return subscriptions.update(id, { cancel_at_period_end: true }, options);
    case 'keep':
      return subscriptions.update(id, { cancel_at_period_end: false }, options);
    case 'clear-cancel-at':
      return subscriptions.update(id, { cancel_at: '' }, options);
    case 'cancel-now':
      return subscriptions.cancel(id, { invoice_now: true }, options);
    case 'pause-collection':
      return subscriptions.update(id, { pause_collection: { behavior: 'void' } }, options);
    case 'collect':
      return subscriptions.update(id, { pause_collection: '' }, options);
    case 'resume':
      return subscriptions.resume(id, {}, options);
  }
}

export async function previewChange(call: ProviderCall, id: string, item: ItemChange): Promise<Json> {
  const preview = await call(
    (stripe) =>
      stripe.invoices.createPreview({
        subscription: id,
        subscription_details: { items: [itemOf(item)], proration_behavior: PRORATION },
      }),
    { onError: throwItemError },
  );
  return withAllLines(call, asObject(preview));
}

interface Item {
  id: string;
  price: string;
  quantity?: number;
}

function itemOf({ itemId, priceId, quantity }: ItemChange): Item {
  const item: Item = { id: itemId, price: priceId };
  if (quantity !== undefined) item.quantity = quantity;
  return item;
}

const CONFIRMATION = /authentication_required|requires_action/;

/** A refusal of a new price or quantity. */
function throwItemError(error: Stripe.errors.StripeError): never {
  const { type, code = '', statusCode } = error;
  if (type === 'StripeCardError' || statusCode === 402) {
    throw billingErrors.PAYMENT_DECLINED({
      cause: causeOf(error),
      ...(CONFIRMATION.test(code) && {
        message:
          'The bank requires a confirmation of the payment, so nothing was changed. Use another payment method.',
      }),
    });
  }
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
