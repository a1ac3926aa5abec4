import type Stripe from 'stripe';
import { billingErrors } from '../errors.js';
import type { PaymentDocument } from '../store.js';
import { causeOf, isFinal, type ProviderCall, retryIdempotently, throwBillingError } from './client.js';
import { asInteger, asObject, asText, idOf } from './json.js';
import { requireList, retrieve } from './responses.js';

/** Charges of payments, and their refunds. */

/** Why operators refund, as the provider names it. */
export const REFUND_REASONS = ['requested_by_customer', 'duplicate', 'fraudulent'] as const;

export interface RefundOfCharge {
  charge: string;
  /** In the currency's smallest unit. */
  amount: number;
  reason: (typeof REFUND_REASONS)[number];
}

/** Attempts to pay an invoice; the last one has succeeded. */
const MAX_ATTEMPTS = 100;

export const createProviderRefunds = (call: ProviderCall) => ({
  /** The charge that paid, with what was refunded of it. Null if the provider has none, as of what was paid elsewhere. */
  async chargeOf({ id, chargeId, paymentIntentId }: PaymentDocument) {
    const known = chargeId ?? (id.startsWith('ch_') ? id : undefined);
    const find = async () => {
      if (known !== undefined) return retrieve(call, known, ({ charges }) => charges.retrieve(known));
      const payment_intent = paymentIntentId ?? (id.startsWith('pi_') ? id : await intentOf(call, id));
      if (payment_intent === undefined) return undefined;
      const all = await call(({ charges }) => charges.list({ payment_intent, limit: MAX_ATTEMPTS }));
      return requireList(all).find(({ status }) => status === 'succeeded');
    };
    const charge = asObject(await find());
    const [chargedId, amount] = [asText(charge['id']), asInteger(charge['amount'])];
    if (chargedId === undefined || amount === undefined) return null;
    return { id: chargedId, amount, refundedAmount: asInteger(charge['amount_refunded']) ?? 0 };
  },

  /** The same key refunds once. @throws REFUND_REFUSED */
  async refund(refund: RefundOfCharge, idempotencyKey: string): Promise<void> {
    await call(
      (stripe) =>
        retryIdempotently(idempotencyKey, (key) => stripe.refunds.create(refund, { idempotencyKey: key })),
      { onError: throwRefundError },
    );
  },
});

/** The payment intent that paid an invoice. */
async function intentOf(call: ProviderCall, invoice: string): Promise<string | undefined> {
  if (!invoice.startsWith('in_')) return undefined;
  const list = await call(({ invoicePayments }) => invoicePayments.list({ invoice, status: 'paid' }));
  return requireList(list)
    .map(({ payment }) => idOf(asObject(payment)['payment_intent']))
    .find((id) => id !== undefined);
}

const REFUSALS: Record<string, string> = {
  charge_already_refunded: 'The payment is refunded already.',
  charge_disputed: 'The customer disputes this payment, so that it cannot be refunded: the bank decides.',
  balance_insufficient: 'The balance at the payment provider does not cover the refund.',
};

function throwRefundError(error: Stripe.errors.StripeError): never {
  if (!isFinal(error)) return throwBillingError(error);
  const message = REFUSALS[error.code ?? ''];
  throw billingErrors.REFUND_REFUSED({ ...(message && { message }), cause: causeOf(error) });
}
