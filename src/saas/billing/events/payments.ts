import { toTimestamp } from '../../../core/http/schemas.js';
import { defined } from '../../../core/kernel/fields.js';
import type { Effect } from '../../../core/ops/commit.js';
import type { EventOf } from '../../../core/ops/events.js';
import type { BillingContext, CommitPart } from '../context.js';
import type { HeldChanges } from '../holdings.js';
import type { BillingEvents } from '../notifications.js';
import { referenceTo } from '../owners.js';
import type { PurchaseDocument } from '../purchases.js';
import { type Dispute, type PaymentDocument, writingRevision } from '../store.js';
import { type InvoiceDetails, type PaymentEvent, readInvoice } from './provider-objects.js';

/**
 * Records payments. The result does not depend on the order of the events: each states a fact, and merging facts is
 * commutative. Of several events about one fact, only the first to be recorded notifies.
 */
export type PaymentRecorder = ReturnType<typeof createPaymentRecorder>;

export type PaymentFields = {
  [K in Exclude<keyof PaymentDocument, 'id' | 'ownerId' | 'reportedBy' | 'rev'>]?:
    | PaymentDocument[K]
    | undefined;
};

/** What an event states about a payment. */
export interface PaymentFact {
  /** Identifies the fact among those of the payment. */
  name: string;
  /** The fields that it changes; null if a stored fact outweighs it. */
  merge(stored: PaymentDocument | null): PaymentFields | null;
}

/** A payment, purchase or refund that an event records, for the commit of the event. */
export interface RecordedPayment {
  parts: CommitPart[];
  /** Whether no event has recorded the fact before, so that this one notifies. */
  isFirst: boolean;
  /** What it changes of the documents that give access. Absent if nothing. */
  held?: HeldChanges;
}

export function createPaymentRecorder({ payments, event: eventOf, clock }: BillingContext) {
  const withFact = (
    stored: PaymentDocument | null,
    { id, ownerId }: Pick<PaymentDocument, 'id' | 'ownerId'>,
    eventId: string,
    fact: PaymentFact,
  ): { payment: PaymentDocument; isFirst: boolean } => {
    const fields = fact.merge(stored);
    if (fields === null && stored) return { payment: stored, isFirst: false };
    const isFirst = stored?.reportedBy[fact.name] === undefined;
    const reportedBy = { ...stored?.reportedBy, ...(isFirst && { [fact.name]: eventId }) };
    const written = { reportedBy, rev: (stored?.rev ?? 0) + 1 };
    const base = stored ?? { id, ownerId, status: 'paid' as const, at: clock.now(), ...written };
    return { payment: { ...base, ...defined({ ...fields, ...written }) }, isFirst };
  };

  /** The refunds and disputes of an invoice that were recorded before it was known. */
  const straysOf = async (invoice: InvoiceDetails, ownerId: string): Promise<PaymentDocument[]> => {
    const strays: PaymentDocument[] = [];
    for (const id of [invoice.paymentIntentId, invoice.chargeId]) {
      const stray = id === undefined || id === invoice.id ? null : await payments.findOne({ id });
      if (stray?.ownerId === ownerId) strays.push(stray);
    }
    return strays;
  };

  const deleting = ({ id, rev }: PaymentDocument) => payments.deleting({ id, rev });

  return {
    /** A payment with a fact, and the write of it. */
    record(
      stored: PaymentDocument | null,
      key: Pick<PaymentDocument, 'id' | 'ownerId'>,
      eventId: string,
      fact: PaymentFact,
    ) {
      const { payment, isFirst } = withFact(stored, key, eventId, fact);
      return { payment, isFirst, write: writingRevision(payments, stored, payment) };
    },

    /** Moves a refund or a dispute to the payment of its invoice. Null if that is the payment of another user. */
    async move(
      stray: PaymentDocument,
      invoiceId: string,
      chargeIds: PaymentFields,
    ): Promise<{ payment: PaymentDocument; parts: CommitPart[] } | null> {
      const stored = await payments.findOne({ id: invoiceId });
      if (stored && stored.ownerId !== stray.ownerId) return null;
      const { recheckAt: _, ...rest } = stray;
      const payment = absorb(stored ?? { ...rest, id: invoiceId, rev: 0 }, stray, chargeIds);
      return { payment, parts: [writingRevision(payments, stored, payment), deleting(stray)] };
    },

    /** Null if the event states no payment. */
    async recordInvoice(event: PaymentEvent, ownerId: string, at: number): Promise<RecordedPayment | null> {
      const invoice = readInvoice(event);
      const fact = INVOICE_FACTS[event.type]?.(invoice, at);
      // An invoice with amount 0, such as that of a trial, is no payment.
      if (!fact || (invoice.amount === 0 && event.type !== 'invoice.payment_failed')) return null;
      const stored = await payments.findOne({ id: invoice.id });
      const { payment: paid, isFirst } = withFact(stored, { id: invoice.id, ownerId }, event.id, fact);
      const strays = await straysOf(invoice, paid.ownerId);
      const payment = strays.reduce((merged, stray) => absorb(merged, stray, chargeIdsOf(invoice)), paid);
      return {
        parts: [
          writingRevision(payments, stored, { ...payment, rev: (stored?.rev ?? 0) + 1 }),
          ...strays.map(deleting),
          isFirst ? await invoiceEvent(eventOf, event, { ownerId, invoice, at }) : undefined,
        ],
        isFirst,
        // What was moved can end the access that a purchase gives.
        ...(strays.length > 0 && { held: { payment } }),
      };
    },

    /** The payment of a one-time purchase; null if nothing was paid. */
    async recordPurchase(
      { paymentId: id, ownerId, amount, currency, at }: PurchaseDocument,
      eventId: string,
    ): Promise<{ payment: PaymentDocument; write: CommitPart } | null> {
      if (amount === 0) return null;
      const stored = await payments.findOne({ id });
      const { payment } = withFact(stored, { id, ownerId }, eventId, {
        name: 'purchased',
        // The event of an invoice, if there is one, describes the payment as well.
        merge: (known) => (known && !isStub(known) ? {} : { status: 'paid', at, amount, currency }),
      });
      return { payment, write: writingRevision(payments, stored, payment) };
    },
  };
}

/** A payment with the refunds and disputes of another record of it. */
const absorb = (
  payment: PaymentDocument,
  stray: PaymentDocument,
  chargeIds: PaymentFields,
): PaymentDocument => ({
  ...payment,
  ...defined({ ...chargeIds, ...mergeRefunds(payment.refunds, stray.refunds) }),
  ...mergeDisputes(payment.disputes, stray.disputes),
  reportedBy: { ...stray.reportedBy, ...payment.reportedBy },
  rev: payment.rev + 1,
});

const isPaid = (stored: PaymentDocument | null): boolean => stored?.status === 'paid';

/** The IDs by which refunds and disputes refer to a payment, unless one is its own ID. */
export const chargeIdsOf = ({
  id,
  paymentIntentId,
  chargeId,
}: Pick<InvoiceDetails, 'id' | 'paymentIntentId' | 'chargeId'>) => ({
  paymentIntentId: paymentIntentId === id ? undefined : paymentIntentId,
  chargeId: chargeId === id ? undefined : chargeId,
});

const fieldsOf = (invoice: InvoiceDetails) => {
  const { subscriptionId, amount, currency, attempt: attempts } = invoice;
  return { subscriptionId, amount, currency, attempts, ...chargeIdsOf(invoice) };
};

/** The time of a fact is that of its earliest event, in whichever order they arrive. */
const earliest = (stored: PaymentDocument | null, fact: string, at: number): number =>
  stored?.reportedBy[fact] === undefined ? at : Math.min(stored.at, at);

const paid = (invoice: InvoiceDetails, at: number): PaymentFact => ({
  name: 'paid',
  merge: (stored) => ({ ...fieldsOf(invoice), status: 'paid', at: earliest(stored, 'paid', at) }),
});

type InvoiceFact = (invoice: InvoiceDetails, at: number) => PaymentFact;

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

type Refunds = PaymentDocument['refunds'];

/** Of each charge the newer total; of two in the same second, the larger one. */
export function mergeRefunds(stored: Refunds = {}, others: Refunds = {}): PaymentFields {
  const refunds = { ...stored };
  for (const [charge, other] of Object.entries(others)) {
    const known = refunds[charge];
    if (!known || other.at > known.at || (other.at === known.at && other.amount > known.amount))
      refunds[charge] = other;
  }
  const all = Object.values(refunds);
  if (all.length === 0) return {};
  const refundedAmount = all.reduce((sum, { amount }) => sum + amount, 0);
  return { refunds, refundedAmount, refundedAt: Math.max(...all.map(({ at }) => at)) };
}

/** By ID; a closed dispute replaces an open one, and the result of an appeal replaces the earlier result. */
export function mergeDisputes(
  stored: readonly Dispute[] = [],
  others: readonly Dispute[] = [],
): Pick<PaymentDocument, 'disputes'> {
  const merged = new Map(stored.map((dispute) => [dispute.id, dispute]));
  for (const dispute of others)
    if (!isOutweighed(dispute, merged.get(dispute.id))) merged.set(dispute.id, dispute);
  const disputes = [...merged.values()].sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
  return disputes.length > 0 ? { disputes } : {};
}

/** Whether a dispute was closed after what is stated about it. */
export const isOutweighed = ({ closedAt = 0 }: Dispute, known: Dispute | undefined): boolean =>
  (known?.closedAt ?? 0) > closedAt;

function invoiceEvent(
  eventOf: EventOf<BillingEvents>,
  { id, type }: PaymentEvent,
  { ownerId, invoice, at }: { ownerId: string; invoice: InvoiceDetails; at: number },
): Promise<Effect> {
  const { id: invoiceId, subscriptionId, amount, currency, attempt, isLastAttempt } = invoice;
  const notification = {
    id,
    at: toTimestamp(at),
    ...referenceTo(ownerId),
    invoiceId,
    ...defined({ subscriptionId, amount, currency }),
  };
  if (type === 'invoice.payment_failed')
    return eventOf('payment.failed', { ...notification, attempt, isLastAttempt });
  return eventOf(type === 'invoice.voided' ? 'invoice.voided' : 'invoice.paid', notification);
}
