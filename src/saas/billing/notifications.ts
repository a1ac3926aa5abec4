import type { ActingProgram } from '../../core/http/identity.js';
import { type Catalogue, longDate } from '../../core/http/messages.js';
import type { SubscriptionStatus } from '../../core/http/schemas.js';
import { type Clock, DAY } from '../../core/kernel/clock.js';
import type { Mail, Outbox } from '../../shared/email/outbox.js';
import { type InvoiceDetails, type PaymentEvent, readInvoice } from './events/provider-objects.js';
import { type Plans, UNKNOWN_PLAN } from './plans/plans.js';
import { asTime, type Json } from './provider/json.js';
import type { SubscriptionDocument } from './store.js';
import type { BillingUser } from './users.js';

/** What integrators receive as events, once the change is stored. */
export interface BillingEvents {
  /** A subscription has another status, plan or end. */
  'subscription.updated': Notification & {
    subscriptionId: string;
    status: SubscriptionStatus;
    plan: string;
    /** Whether this subscription grants access to its plan now; the user may have another one, or a grant. */
    entitled: boolean;
    /** The agent or application that made the change for the user; absent if the provider reports it first. */
    actor?: ActingProgram;
  };
  /** For the operator: the user pays for more than one subscription of a family, the newest first. */
  'subscription.duplicated': Notification & { subscriptionIds: string[]; plans: string[] };
  /** An invoice was paid. */
  'invoice.paid': Notification & InvoiceNotification;
  /** `amount`: what is no longer to be paid. */
  'invoice.voided': Notification & InvoiceNotification;
  /** An invoice could not be paid. */
  'payment.failed': Notification & InvoiceNotification & { attempt: number; isLastAttempt: boolean };
  /** `refundedAmount`: the sum of all refunds of the payment. */
  'payment.refunded': Notification & PaymentNotification & { refundedAmount: number; isFullRefund: boolean };
  /** A one-time purchase was paid. */
  'purchase.completed': Notification & {
    /** The ID of the checkout session. */
    purchaseId: string;
    plan: string;
    /** Empty if the provider did not respond; `GET /billing/purchases` has them later. */
    items: { priceId: string; quantity: number }[];
    amount?: number;
    currency?: string;
  };
  /** The bank of the payer has reversed a payment. */
  'payment.disputed': Notification & PaymentNotification & DisputeNotification;
  /** `status`: the result at the provider, such as `won` or `lost`. */
  'payment.dispute_closed': Notification & PaymentNotification & DisputeNotification;
  /** Reported usage that the provider has not recorded, or perhaps not: see `reason`. */
  'usage.failed': Notification & { meter: string; quantity: number; key: string; reason: string };
}

export const BILLING_EVENTS: Record<keyof BillingEvents, true> = {
  'subscription.updated': true,
  'subscription.duplicated': true,
  'invoice.paid': true,
  'invoice.voided': true,
  'payment.failed': true,
  'purchase.completed': true,
  'payment.refunded': true,
  'payment.disputed': true,
  'payment.dispute_closed': true,
  'usage.failed': true,
};

/** What all notifications have. */
interface Notification {
  /** That of the provider's event, if it reports one. */
  id: string;
  /** ISO 8601: the provider's time, if known. */
  at: string;
  /** Whom it is about. */
  userId: string;
}

/** An invoice of the payment provider. */
interface InvoiceNotification {
  /** At the provider. */
  invoiceId: string;
  /** At the provider; absent for other invoices. */
  subscriptionId?: string;
  /** In the currency's smallest unit. */
  amount?: number;
  /** ISO 4217 in lower case. */
  currency?: string;
}

/** A payment at the payment provider. */
interface PaymentNotification {
  /** The invoice ID; of a payment without an invoice the ID of its payment intent or charge. */
  paymentId: string;
  /** At the provider; absent for other payments. */
  subscriptionId?: string;
  /** Of the payment, in the currency's smallest unit. */
  amount?: number;
  /** ISO 4217 in lower case. */
  currency?: string;
}

/** A dispute at the payment provider. */
interface DisputeNotification {
  /** At the provider. */
  disputeId: string;
  /** As at the provider. */
  status: string;
  /** As at the provider. */
  reason?: string;
  /** In the currency's smallest unit. */
  disputedAmount?: number;
}

export type BillingOutbox = Pick<Outbox, 'mail'>;

/** How long after the event a mail is still sent. */
const MAIL_LIFETIME_MS = 3 * DAY;

/**
 * The mail for an event, for the commit of the event. Its key identifies the fact instead of the event, so that several events of one
 * fact queue one mail.
 */
export function createMailFor({
  plans,
  outbox,
  returnUrl,
  clock,
}: {
  plans: Plans;
  outbox: BillingOutbox;
  returnUrl(): string;
  clock: Clock;
}) {
  return (event: PaymentEvent, user: BillingUser, subscription: SubscriptionDocument | undefined) => {
    const mail = mailContent(event);
    if (!mail) return undefined;
    const plan = subscription?.plan === UNKNOWN_PLAN ? undefined : subscription?.plan;
    return outbox.mail({
      ...mail,
      userId: user.id,
      to: user.email,
      locale: user.locale,
      values: {
        ...mail.values,
        email: user.email,
        link: returnUrl(),
        ...(plan !== undefined && { plan: plans.nameOf(plan) }),
        // As in mails about accounts: a stranger may have registered the address with an advertisement as the name.
        ...(user.name !== '' && user.emailVerified && { name: user.name }),
      },
      security: false,
      expiresAt: (event.created ?? clock.now()) + MAIL_LIFETIME_MS,
    });
  };
}

type MailContent = Pick<Mail, 'key' | 'template' | 'values'>;

/** Null for all other events, such as `customer.subscription.updated`. */
export function mailContent(event: PaymentEvent): MailContent | null {
  switch (event.type) {
    case 'invoice.payment_failed':
      return paymentFailedMail(readInvoice(event));
    case 'customer.subscription.deleted':
      return {
        key: `subscription-canceled:${event.objectId}`,
        template: 'subscription-canceled',
        values: {},
      };
    case 'customer.subscription.trial_will_end': {
      const end = asTime(event.object['trial_end']);
      // The mail announces a charge, but a subscription that ends with its trial is not charged.
      if (end === undefined || endsBy(event.object, end)) return null;
      const values = { endsOn: longDate(end) };
      return { key: `trial-ending:${event.objectId}:${end}`, template: 'trial-ending', values };
    }
    default:
      return null;
  }
}

/** Whether a subscription is cancelled with effect by `end`. */
function endsBy({ cancel_at_period_end: isCancelled, cancel_at: time }: Json, end: number): boolean {
  const cancelAt = asTime(time);
  return isCancelled === true || (cancelAt !== undefined && cancelAt <= end);
}

/** Only the first and the last failed attempt queue a mail. */
function paymentFailedMail({
  id,
  attempt,
  isLastAttempt,
  amount,
  currency,
}: InvoiceDetails): MailContent | null {
  if (attempt > 1 && !isLastAttempt) return null;
  const key = `payment-failed:${id}:${attempt > 1 ? 'last' : 'first'}`;
  const isKnown = amount !== undefined && currency !== undefined;
  const values = isKnown ? { amount: ({ locale }: Catalogue) => formatAmount(amount, currency, locale) } : {};
  return { key, template: 'payment-failed', values };
}

/** @param amount in the currency's smallest unit, which the provider defines differently from Unicode for some */
export function formatAmount(amount: number, currency: string, locale = 'en'): string {
  const code = currency.toUpperCase();
  const digits = ZERO_DECIMAL.has(code) ? 0 : THREE_DECIMAL.has(code) ? 3 : 2;
  const format = { style: 'currency', currency: code, minimumFractionDigits: digits } as const;
  return new Intl.NumberFormat(locale, { ...format, maximumFractionDigits: digits }).format(
    amount / 10 ** digits,
  );
}

/** https://docs.stripe.com/currencies#minor-units */
const ZERO_DECIMAL = new Set('BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF'.split(' '));
const THREE_DECIMAL = new Set('BHD JOD KWD OMR TND'.split(' '));
