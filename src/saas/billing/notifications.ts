import type { ActingProgram } from '../../core/http/identity.js';
import type { SubscriptionStatus } from '../../core/http/schemas.js';
import type { Outbox } from '../../shared/email/outbox.js';
import type { OwnerReference } from './owners.js';

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
  /** `refundedAmount`: the sum of all refunds of the payment, which is lower again after a refund that has failed. */
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

/** What all notifications have: whom they are about, and more. */
type Notification = OwnerReference & {
  /** That of the provider's event, if it reports one. */
  id: string;
  /** ISO 8601: the provider's time, if known. */
  at: string;
};

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

/** The e-mails about payments, as the option `billingMails` names them. */
export const BILLING_MAILS = [
  'receipt',
  'renewal',
  'trial-ending',
  'card-expiring',
  'payment-action',
  'payment-failed',
  'subscription-canceled',
] as const;
export type BillingMail = (typeof BILLING_MAILS)[number];

export type BillingOutbox = Pick<Outbox, 'mail'>;
