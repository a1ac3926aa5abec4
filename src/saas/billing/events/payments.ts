import { toTimestamp } from '../../../core/http/schemas.js';
import type { BillingContext } from '../context.js';
import type { Projector } from '../entitlement.js';
import type { PendingNotification } from '../notifications.js';
import type { PurchaseDocument } from '../purchases.js';
import { type Dispute, type PaymentDocument, writeRevision } from '../store.js';
import { type InvoiceDetails, type PaymentEvent, readInvoice } from './provider-objects.js';

/**
 * Records payments. The result does not depend on the order of the events: each states a fact, and merging facts is
 * commutative. Of several events about one fact, only the first to be recorded notifies.
 */
export type PaymentRecorder = ReturnType<typeof createPaymentRecorder>;

export type PaymentFields = Partial<Omit<PaymentDocument, 'id' | 'userId' | 'reportedBy' | 'rev'>>;

/** What an event states about a payment. */
export interface PaymentFact {
  /** Identifies the fact among those of the payment. */
  name: string;
  /** The fields that it changes; null if a stored fact outweighs it. */
  merge(stored: PaymentDocument | null): PaymentFields | null;
}

export function createPaymentRecorder({ payments, clock }: BillingContext, projector: Projector) {
  /** Stores a fact. `isReporter`: whether this event is the one that notifies about it. */
  const record = async (
    { id, userId }: Pick<PaymentDocument, 'id' | 'userId'>,
    eventId: string,
    fact: PaymentFact,
  ): Promise<{ payment: PaymentDocument; isReporter: boolean }> => {
    for (;;) {
      const stored = await payments.findOne({ id });
      const fields = fact.merge(stored);
      if (fields === null && stored) return { payment: stored, isReporter: false };
      const reporter = stored?.reportedBy[fact.name] ?? eventId;
      const reportedBy = { ...stored?.reportedBy, [fact.name]: reporter };
      const written = { reportedBy, rev: (stored?.rev ?? 0) + 1 };
      const base = stored ?? { id, userId, status: 'paid' as const, at: clock.now(), ...written };
      const payment = withFields(base, { ...fields, ...written });
      if (await writeRevision(payments, stored, payment))
        return { payment, isReporter: reporter === eventId };
    }
  };

  /**
   * Moves refunds and disputes to the payment of their invoice. They were recorded before it was known which invoice
   * they belong to.
   */
  const absorb = async (strayId: string, id: string, chargeIds: PaymentFields) => {
    for (;;) {
      const stray = await payments.findOne({ id: strayId });
      const stored = await payments.findOne({ id });
      if (!stray || stray.id === id || (stored && stored.userId !== stray.userId)) return;
      const { recheckAt: _, ...rest } = stray;
      const merged = withFields(stored ?? { ...rest, id }, {
        ...chargeIds,
        ...(stored && mergeRefund(stored, stray)),
        ...mergeDisputes(stored?.disputes ?? [], stray.disputes ?? []),
        reportedBy: { ...stray.reportedBy, ...stored?.reportedBy },
        rev: (stored?.rev ?? 0) + 1,
      });
      if (!(await writeRevision(payments, stored, merged))) continue;
      // What was moved can end the access that a purchase gives.
      await projector.project(merged.userId);
      if (await payments.deleteOne({ id: strayId, rev: stray.rev })) return;
    }
  };

  return {
    record,
    absorb,

    /** Null if the invoice was recorded by another event, or is already paid or voided. */
    async recordInvoice(
      event: PaymentEvent,
      userId: string,
      at: number,
    ): Promise<PendingNotification | null> {
      const invoice = readInvoice(event);
      const fact = INVOICE_FACTS[event.type]?.(invoice, at, event.id);
      // An invoice with amount 0, such as that of a trial, is no payment.
      if (!fact || (invoice.amount === 0 && event.type !== 'invoice.payment_failed')) return null;
      const { isReporter } = await record({ id: invoice.id, userId }, event.id, fact);
      const { paymentIntentId, chargeId } = invoice;
      for (const strayId of [paymentIntentId, chargeId])
        if (strayId !== undefined) await absorb(strayId, invoice.id, chargeIdsOf(invoice));
      return isReporter ? invoiceNotification(event, userId, invoice, at) : null;
    },

    /** Records the payment of a one-time purchase, unless nothing was paid. */
    async recordPurchase({ paymentId, userId, amount, currency, at }: PurchaseDocument, eventId: string) {
      if (amount === 0) return;
      const payment = { at, ...(amount !== undefined && { amount }), ...(currency && { currency }) };
      await record({ id: paymentId, userId }, eventId, {
        name: 'purchased',
        // The event of an invoice, if there is one, describes the payment as well.
        merge: (stored) => (stored && !isStub(stored) ? {} : { status: 'paid', ...payment }),
      });
    },
  };
}

/** Without fields that are undefined, which the store rejects. */
function withFields(base: PaymentDocument, fields: Partial<PaymentDocument>): PaymentDocument {
  const known = Object.entries(fields).filter(([, value]) => value !== undefined);
  return { ...base, ...Object.fromEntries(known) };
}

const isPaid = (stored: PaymentDocument | null): boolean => stored?.status === 'paid';

/** The IDs by which refunds and disputes refer to a payment, unless one is its own ID. */
export function chargeIdsOf({
  id,
  paymentIntentId,
  chargeId,
}: Pick<InvoiceDetails, 'id' | 'paymentIntentId' | 'chargeId'>): PaymentFields {
  return {
    ...(paymentIntentId !== undefined && paymentIntentId !== id && { paymentIntentId }),
    ...(chargeId !== undefined && chargeId !== id && { chargeId }),
  };
}

const fieldsOf = (invoice: InvoiceDetails) => ({
  ...(invoice.subscriptionId !== undefined && { subscriptionId: invoice.subscriptionId }),
  ...(invoice.amount !== undefined && { amount: invoice.amount }),
  ...(invoice.currency !== undefined && { currency: invoice.currency }),
  attempts: invoice.attempt,
  ...chargeIdsOf(invoice),
});

/** The time of a fact is that of its earliest event, in whichever order they arrive. */
const earliest = (stored: PaymentDocument | null, fact: string, at: number): number =>
  stored?.reportedBy[fact] === undefined ? at : Math.min(stored.at, at);

const paid = (invoice: InvoiceDetails, at: number): PaymentFact => ({
  name: 'paid',
  merge: (stored) => ({ ...fieldsOf(invoice), status: 'paid', at: earliest(stored, 'paid', at) }),
});

type InvoiceFact = (invoice: InvoiceDetails, at: number, eventId: string) => PaymentFact;

const INVOICE_FACTS: Partial<Record<string, InvoiceFact>> = {
  'invoice.paid': paid,
  'invoice.payment_succeeded': paid,

  'invoice.payment_failed': (invoice, at) => ({
    name: `failed:${invoice.attempt}`,
    merge(stored) {
      // A paid or voided invoice stays so, however late an earlier failure arrives.
      if (stored && stored.status !== 'failed') return null;
      const attempts = Math.max(stored?.attempts ?? 0, invoice.attempt);
      return stored && stored.at > at
        ? { attempts }
        : { ...fieldsOf(invoice), status: 'failed', at, attempts };
    },
  }),

  'invoice.voided': (invoice, at) => ({
    name: 'voided',
    merge: (stored) =>
      isPaid(stored) ? null : { ...fieldsOf(invoice), status: 'voided', at: earliest(stored, 'voided', at) },
  }),
};

/** Whether only refunds and disputes are known of a payment. */
export const isStub = ({ reportedBy }: PaymentDocument): boolean =>
  !Object.keys(reportedBy).some((fact) => /^(paid|failed|voided|purchased)/.test(fact));

type Refund = Pick<PaymentFields, 'refundedAmount' | 'refundedAt'>;

/** The newer total; of two in the same second, the larger one. A failed refund reduces the total. */
export function mergeRefund(stored: Refund, { refundedAmount, refundedAt }: Refund): Refund {
  if (refundedAmount === undefined || refundedAt === undefined) return {};
  const { refundedAmount: amount = -1, refundedAt: time = -1 } = stored;
  const isNewer = refundedAt > time || (refundedAt === time && refundedAmount > amount);
  return isNewer ? { refundedAmount, refundedAt } : { refundedAmount: amount, refundedAt: time };
}

/** By ID; a closed dispute replaces an open one. */
export function mergeDisputes(stored: readonly Dispute[], others: readonly Dispute[]): PaymentFields {
  const merged = new Map(stored.map((dispute) => [dispute.id, dispute]));
  for (const dispute of others)
    if (merged.get(dispute.id)?.closedAt === undefined) merged.set(dispute.id, dispute);
  const disputes = [...merged.values()].sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
  return disputes.length > 0 ? { disputes } : {};
}

function invoiceNotification(
  event: Pick<PaymentEvent, 'id' | 'type'>,
  userId: string,
  invoice: InvoiceDetails,
  at: number,
): PendingNotification {
  const { id: invoiceId, subscriptionId, amount, currency, attempt, isLastAttempt } = invoice;
  const notification = {
    id: event.id,
    at: toTimestamp(at),
    userId,
    invoiceId,
    ...(subscriptionId !== undefined && { subscriptionId }),
    ...(amount !== undefined && { amount }),
    ...(currency !== undefined && { currency }),
  };
  if (event.type === 'invoice.payment_failed')
    return (emit) => emit('payment.failed', { ...notification, attempt, isLastAttempt });
  const name = event.type === 'invoice.voided' ? 'invoice.voided' : 'invoice.paid';
  return (emit) => emit(name, notification);
}
