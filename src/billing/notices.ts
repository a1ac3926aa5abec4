import { type SubscriptionStatus, toTimestamp } from '../http/schemas.js';
import type { BillingEvent } from './event.js';
import type { SubscriptionDocument } from './store.js';

/** What integrators are told, once what it tells of is stored. */
export interface BillingNotices {
  'subscription.updated': Notice & {
    subscriptionId: string;
    status: SubscriptionStatus;
    plan: string;
    /** Whether this subscription gives access to its plan now; the user may have another one, or a grant. */
    entitled: boolean;
  };
  'invoice.paid': Notice & InvoiceNotice;
  'payment.failed': Notice & InvoiceNotice & { attempt: number; isLastAttempt: boolean };
}

export const BILLING_EVENTS: Record<keyof BillingNotices, true> = {
  'subscription.updated': true,
  'invoice.paid': true,
  'payment.failed': true,
};

interface Notice {
  /** The same for whatever is told twice. */
  id: string;
  /** ISO 8601: when it happened at the provider, where that is known. */
  at: string;
  userId: string;
}

interface InvoiceNotice {
  invoiceId: string;
  subscriptionId?: string;
  /** In the currency's smallest unit. */
  amount?: number;
  currency?: string;
}

export type Emit = <Name extends keyof BillingNotices>(name: Name, notice: BillingNotices[Name]) => void;

/** Something to tell, which is told later. */
export type Telling = (emit: Emit) => void;

export function subscriptionUpdated(
  eventId: string,
  { id: subscriptionId, userId, plan, ...subscription }: SubscriptionDocument,
  { at, entitled }: { at: number; entitled: boolean },
): Telling {
  const status = subscription.status as SubscriptionStatus;
  const notice = { id: eventId, at: toTimestamp(at), userId, subscriptionId, status, plan, entitled };
  return (emit) => emit('subscription.updated', notice);
}

export function invoiceTold(
  event: Pick<BillingEvent, 'id' | 'type'>,
  userId: string,
  invoice: Invoice,
  at: number,
): Telling {
  const { id: invoiceId, subscriptionId, amount, currency, attempt, isLastAttempt } = invoice;
  const notice = {
    id: event.id,
    at: toTimestamp(at),
    userId,
    invoiceId,
    ...(subscriptionId !== undefined && { subscriptionId }),
    ...(amount !== undefined && { amount }),
    ...(currency !== undefined && { currency }),
  };
  return event.type === 'invoice.payment_failed'
    ? (emit) => emit('payment.failed', { ...notice, attempt, isLastAttempt })
    : (emit) => emit('invoice.paid', notice);
}

/** What an event says of its invoice. */
export interface Invoice {
  id: string;
  subscriptionId: string | undefined;
  /** What was paid, or what could not be collected. */
  amount: number | undefined;
  currency: string | undefined;
  attempt: number;
  isLastAttempt: boolean;
}

export function readInvoice({ type, objectId, subscriptionId, object }: BillingEvent): Invoice {
  const numberIn = (field: string) => {
    const value = object[field];
    return typeof value === 'number' && Number.isSafeInteger(value) ? value : undefined;
  };
  const { currency } = object;
  return {
    id: objectId,
    subscriptionId,
    amount: numberIn(type === 'invoice.payment_failed' ? 'amount_due' : 'amount_paid'),
    currency: typeof currency === 'string' && /^[a-z]{3}$/i.test(currency) ? currency : undefined,
    attempt: numberIn('attempt_count') ?? 1,
    isLastAttempt: object['next_payment_attempt'] === null,
  };
}
