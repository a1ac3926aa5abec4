import { asInteger, asObject, asText, asTime, idOf, type Json } from '../provider/json.js';
import type { Dispute } from '../store.js';
import type { BillingEvent } from './provider-objects.js';

/** Reads the invoices, charges and disputes of events, in the format of every API version. */

/** The invoice of an event. */
export interface InvoiceDetails {
  id: string;
  subscriptionId: string | undefined;
  /** The amount that was paid, or that was to be collected. */
  amount: number | undefined;
  currency: string | undefined;
  attempt: number;
  isLastAttempt: boolean;
  /** The payment that collected it. Absent since API version 2025-03-31, unless its payments are included. */
  paymentIntentId: string | undefined;
  chargeId: string | undefined;
}

export function readInvoice(event: BillingEvent): InvoiceDetails {
  const { type, objectId, subscriptionId, object } = event;
  const isPaid = type === 'invoice.paid' || type === 'invoice.payment_succeeded';
  return {
    id: objectId,
    subscriptionId,
    amount: isPaid ? paidAmountOf(event) : asInteger(object['amount_due']),
    currency: asCurrency(object['currency']),
    attempt: asInteger(object['attempt_count']) ?? 1,
    isLastAttempt: object['next_payment_attempt'] === null,
    ...paymentOf(object),
  };
}

/** The amount of a paid invoice. One that was marked as paid outside of the provider may have no paid amount. */
export function paidAmountOf({ type, object }: Pick<BillingEvent, 'type' | 'object'>): number | undefined {
  const paid = asInteger(object['amount_paid']);
  const isOutside =
    object['paid_out_of_band'] === true || (type === 'invoice.paid' && object['status'] === 'paid');
  return paid === 0 && isOutside ? (asInteger(object['amount_due']) ?? paid) : paid;
}

function paymentOf(invoice: Json): Pick<InvoiceDetails, 'paymentIntentId' | 'chargeId'> {
  const payments = asObject(invoice['payments'])['data'];
  const paid = (Array.isArray(payments) ? payments : []).map(asObject).find(isPaidPayment);
  const payment = asObject(paid?.['payment']);
  return {
    paymentIntentId: idOf(invoice['payment_intent']) ?? idOf(payment['payment_intent']),
    chargeId: idOf(invoice['charge']) ?? idOf(payment['charge']),
  };
}

const isPaidPayment = ({ status }: Json): boolean => status === 'paid';

/** What identifies the payment that a refund or a dispute is about. */
export interface ChargeReference {
  chargeId: string | undefined;
  paymentIntentId: string | undefined;
  /** Absent since API version 2025-03-31. */
  invoiceId: string | undefined;
  customerId: string | undefined;
}

export function readChargeReference({ type, objectId, object }: BillingEvent): ChargeReference {
  const isRefund = type === 'charge.refunded';
  const charge = isRefund ? object : asObject(object['charge']);
  return {
    chargeId: isRefund ? objectId : idOf(object['charge']),
    paymentIntentId: idOf(object['payment_intent']) ?? idOf(charge['payment_intent']),
    invoiceId: idOf(charge['invoice']),
    customerId: idOf(charge['customer']),
  };
}

/** The amounts of a charge. */
export interface ChargeDetails {
  amount: number | undefined;
  currency: string | undefined;
  refundedAmount: number;
  /** When it was made. */
  at: number | undefined;
}

export function readCharge({ object }: BillingEvent): ChargeDetails {
  const amount = asInteger(object['amount']);
  const isFull = object['refunded'] === true;
  return {
    amount,
    currency: asCurrency(object['currency']),
    refundedAmount: asInteger(object['amount_refunded']) ?? (isFull ? (amount ?? 0) : 0),
    at: asTime(object['created']),
  };
}

export function readDispute({ type, objectId, object }: BillingEvent, at: number): Dispute {
  const reason = asText(object['reason']);
  const amount = asInteger(object['amount']);
  return {
    id: objectId,
    status: asText(object['status']) ?? (type === 'charge.dispute.closed' ? 'closed' : 'needs_response'),
    ...(reason !== undefined && { reason }),
    ...(amount !== undefined && { amount }),
    at: asTime(object['created']) ?? at,
    ...(type === 'charge.dispute.closed' && { closedAt: at }),
  };
}

export const asCurrency = (value: unknown): string | undefined =>
  typeof value === 'string' && /^[a-z]{3}$/i.test(value) ? value : undefined;
