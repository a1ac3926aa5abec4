import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../kernel/clock.js';
import { nullIfTaken } from '../../storage/collection.js';
import { isProviderError } from '../errors.js';
import {
  disputeNotification,
  invoiceNotification,
  type PendingNotification,
  refundNotification,
} from '../notifications.js';
import type { Gateway } from '../provider/gateway.js';
import type { PurchaseDocument } from '../purchases.js';
import type { Dispute, PaymentDocument, Payments } from '../store.js';
import {
  type ChargeReference,
  type InvoiceDetails,
  readCharge,
  readChargeReference,
  readDispute,
  readInvoice,
} from './payment-objects.js';
import type { BillingEvent } from './provider-objects.js';

/**
 * Records invoices, refunds and disputes. The result does not depend on the order of the events: each states a fact, and
 * merging facts is commutative. Of several events about one fact, only the first to be recorded notifies.
 */
export interface PaymentRecorder {
  /** Null if the invoice was recorded by another event, or is already paid or voided. */
  recordInvoice(event: BillingEvent, userId: string, at: number): Promise<PendingNotification | null>;
  /** The payment that a refund or a dispute is about, as far as it is stored. */
  findPayment(reference: ChargeReference): Promise<PaymentDocument | null>;
  /** The same with what the provider adds to it. */
  lookUpCharge(event: BillingEvent): Promise<LocatedCharge>;
  recordCharge(
    event: BillingEvent,
    userId: string,
    charge: LocatedCharge,
    at: number,
  ): Promise<PendingNotification | null>;
  /** Records the payment of a one-time purchase, unless nothing was paid. */
  recordPurchase(purchase: PurchaseDocument, eventId: string): Promise<void>;
  /** Asks the provider again which invoice a charge belongs to. */
  attribute(payment: PaymentDocument): Promise<'done' | 'missing' | 'unanswered'>;
}

/** @see readChargeReference */
export interface LocatedCharge extends ChargeReference {
  /** Whether the provider did not respond or does not know the charge, whose invoice is therefore unknown. */
  isUnattributed: boolean;
}

export interface PaymentRecorderDependencies {
  payments: Payments;
  /** Absent while no API key is configured. */
  gateway: Pick<Gateway, 'charge'> | undefined;
  clock: Clock;
  log: { warn(entry: object, message: string): void };
}

type PaymentFields = Partial<Omit<PaymentDocument, 'id' | 'userId' | 'reportedBy' | 'rev'>>;

/** What an event states about a payment. */
interface PaymentFact {
  /** Identifies the fact among those of the payment. */
  name: string;
  /** The fields that it changes; null if a stored fact outweighs it. */
  merge(stored: PaymentDocument | null): PaymentFields | null;
  /** Whether an earlier version, which did not store the reporting events, has recorded it. */
  isKnown?(stored: PaymentDocument): boolean;
}

export function createPaymentRecorder(deps: PaymentRecorderDependencies): PaymentRecorder {
  const { payments, gateway, clock, log } = deps;

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
      const isKnown = stored !== null && stored.rev === undefined && fact.isKnown?.(stored) === true;
      const reporter = stored?.reportedBy?.[fact.name] ?? (isKnown ? EARLIER_VERSION : eventId);
      const base = stored ?? { id, userId, status: 'paid' as const, at: clock.now() };
      const reportedBy = { ...stored?.reportedBy, [fact.name]: reporter };
      const payment = withFields(base, { ...fields, reportedBy, rev: (stored?.rev ?? 0) + 1 });
      if (await write(stored, payment)) return { payment, isReporter: reporter === eventId };
    }
  };

  /** Writes if the revision is still the one that was read. Skips a write that would only increment it. */
  const write = async (stored: PaymentDocument | null, payment: PaymentDocument): Promise<boolean> => {
    if (!stored)
      return payments
        .insert(payment)
        .then(() => true, nullIfTaken)
        .then(Boolean);
    if (isDeepStrictEqual({ ...payment, rev: stored.rev }, stored)) return true;
    const { id, ...set } = payment;
    const unset = stored.recheckAt !== undefined && payment.recheckAt === undefined;
    const change = { set, ...(unset && { unset: ['recheckAt' as const] }) };
    return (await payments.updateOne({ id, rev: stored.rev ?? null }, change)) !== null;
  };

  const findPayment: PaymentRecorder['findPayment'] = async (reference) => {
    const { invoiceId, paymentIntentId, chargeId } = reference;
    return (
      (invoiceId !== undefined ? await payments.findOne({ id: invoiceId }) : null) ??
      (paymentIntentId !== undefined
        ? ((await payments.findOne({ paymentIntentId })) ?? (await payments.findOne({ id: paymentIntentId })))
        : null) ??
      (chargeId !== undefined
        ? ((await payments.findOne({ chargeId })) ?? (await payments.findOne({ id: chargeId })))
        : null)
    );
  };

  /**
   * Moves refunds and disputes to the payment of their invoice. They were recorded before it was known which invoice
   * they belong to.
   */
  const absorb = async (strayId: string, id: string, chargeIds: PaymentFields): Promise<void> => {
    for (;;) {
      const stray = await payments.findOne({ id: strayId });
      const stored = await payments.findOne({ id });
      if (!stray || stray.id === id || (stored && stored.userId !== stray.userId)) return;
      const { rev: _, recheckAt: __, ...rest } = stray;
      const merged = withFields(stored ?? { ...rest, id }, {
        ...chargeIds,
        ...(stored && mergeRefund(stored, stray)),
        ...mergeDisputes(stored?.disputes ?? [], stray.disputes ?? []),
        reportedBy: { ...stray.reportedBy, ...stored?.reportedBy },
        rev: (stored?.rev ?? 0) + 1,
      });
      if (!(await write(stored, merged))) continue;
      if (await payments.deleteOne({ id: strayId, rev: stray.rev ?? null })) return;
    }
  };

  /** What the provider knows about a charge. */
  const fetchCharge = async (chargeId: string | undefined) => {
    if (!gateway || chargeId === undefined) return {};
    try {
      return (await gateway.charge(chargeId)) ?? 'missing';
    } catch (err) {
      if (!isProviderError(err)) throw err;
      log.warn({ err, charge: chargeId }, 'a charge could not be fetched from the payment provider');
      return 'unanswered';
    }
  };

  return {
    findPayment,

    async recordInvoice(event, userId, at) {
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

    async lookUpCharge(event) {
      const reference = readChargeReference(event);
      if (reference.invoiceId !== undefined) return { ...reference, isUnattributed: false };
      const fetched = await fetchCharge(reference.chargeId);
      const known = Object.entries(reference).filter(([, value]) => value !== undefined);
      if (typeof fetched === 'string') return { ...reference, isUnattributed: true };
      return { ...reference, ...fetched, ...Object.fromEntries(known), isUnattributed: false };
    },

    async recordCharge(event, userId, located, at) {
      const { invoiceId, paymentIntentId, chargeId, isUnattributed } = located;
      const stored = await findPayment(located);
      const id = stored?.id ?? invoiceId ?? paymentIntentId ?? chargeId ?? event.objectId;
      const ids = chargeIdsOf({ id, paymentIntentId, chargeId });
      const unattributed = isUnattributed ? { recheckAt: clock.now() } : {};
      const fact = CHARGE_FACTS[event.type]?.(event, at, { ids, unattributed });
      if (!fact) return null;
      const { payment, isReporter } = await record({ id, userId }, event.id, fact);
      // The event of the invoice may have stored these IDs after they were looked up.
      const invoice = paymentIntentId !== undefined && (await payments.findOne({ paymentIntentId }));
      if (invoice) await absorb(id, invoice.id, {});
      if (!isReporter) return null;
      return event.type === 'charge.refunded'
        ? refundNotification(event.id, payment, at)
        : disputeNotification(event, payment, readDispute(event, at), at);
    },

    async recordPurchase({ paymentId, userId, amount, currency, at }, eventId) {
      if (amount === 0) return;
      const payment = { at, ...(amount !== undefined && { amount }), ...(currency && { currency }) };
      await record({ id: paymentId, userId }, eventId, {
        name: 'purchased',
        // The event of an invoice, if there is one, describes the payment as well.
        merge: (stored) => (stored && !isStub(stored) ? {} : { status: 'paid', ...payment }),
      });
    },

    async attribute(payment) {
      const fetched = await fetchCharge(payment.chargeId ?? payment.id);
      if (typeof fetched === 'string') return fetched;
      if (fetched.invoiceId !== undefined && fetched.invoiceId !== payment.id) {
        const { invoiceId: id, paymentIntentId } = fetched;
        await absorb(payment.id, id, chargeIdsOf({ id, paymentIntentId, chargeId: payment.chargeId }));
      } else {
        const { recheckAt: _, ...rest } = payment;
        await write(payment, { ...rest, rev: (payment.rev ?? 0) + 1 });
      }
      return 'done';
    },
  };
}

/** Without fields that are undefined, which the store rejects. */
function withFields(base: PaymentDocument, fields: Partial<PaymentDocument>): PaymentDocument {
  const known = Object.entries(fields).filter(([, value]) => value !== undefined);
  return { ...base, ...Object.fromEntries(known) };
}

/** Reported a fact before reporters were stored. */
const EARLIER_VERSION = 'earlier-version';

const isPaid = (stored: PaymentDocument | null): boolean => stored?.status === 'paid';

/** The IDs by which refunds and disputes refer to a payment, unless one is its own ID. */
function chargeIdsOf({
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
  stored?.reportedBy?.[fact] === undefined ? at : Math.min(stored.at, at);

const paid = (invoice: InvoiceDetails, at: number): PaymentFact => ({
  name: 'paid',
  merge: (stored) =>
    stored && isPaid(stored) && stored.rev === undefined
      ? chargeIdsOf(invoice)
      : { ...fieldsOf(invoice), status: 'paid', at: earliest(stored, 'paid', at) },
  isKnown: isPaid,
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
    isKnown: ({ attempts = 0 }) => attempts >= invoice.attempt,
  }),

  'invoice.voided': (invoice, at) => ({
    name: 'voided',
    merge: (stored) =>
      isPaid(stored) ? null : { ...fieldsOf(invoice), status: 'voided', at: earliest(stored, 'voided', at) },
  }),
};

/** `unattributed`: the fields of a payment whose invoice is unknown because the provider did not respond. */
type ChargeFact = (
  event: BillingEvent,
  at: number,
  fields: { ids: PaymentFields; unattributed: PaymentFields },
) => PaymentFact;

/** Whether only refunds and disputes are known of a payment. */
const isStub = ({ rev, reportedBy = {} }: PaymentDocument): boolean =>
  rev !== undefined && !Object.keys(reportedBy).some((fact) => /^(paid|failed|voided|purchased)/.test(fact));

const disputed: ChargeFact = (event, at, { ids, unattributed }) => ({
  name: `${event.type.slice('charge.'.length)}:${event.objectId}`,
  merge(stored) {
    const dispute = readDispute(event, at);
    const known = stored?.disputes?.find(({ id }) => id === dispute.id);
    // A dispute that is closed stays closed, even if its beginning arrives later.
    if (known?.closedAt !== undefined && dispute.closedAt === undefined) return null;
    const { currency } = readCharge(event);
    return {
      ...(!stored && { status: 'paid', at: dispute.at, ...(currency && { currency }), ...unattributed }),
      ...ids,
      ...mergeDisputes(stored?.disputes ?? [], [dispute]),
    };
  },
});

const CHARGE_FACTS: Partial<Record<string, ChargeFact>> = {
  'charge.dispute.created': disputed,
  'charge.dispute.closed': disputed,

  'charge.refunded': (event, refundedAt, { ids, unattributed }) => {
    const { refundedAmount, amount, currency, at = refundedAt } = readCharge(event);
    return {
      name: `refunded:${refundedAmount}`,
      merge(stored) {
        const refund = mergeRefund(stored ?? {}, { refundedAmount, refundedAt });
        if (refund.refundedAmount !== refundedAmount) return null;
        const charge = { at, ...(amount !== undefined && { amount }), ...(currency && { currency }) };
        return {
          ...(!stored && { status: 'paid', ...unattributed }),
          ...((!stored || isStub(stored)) && charge),
          ...ids,
          ...refund,
        };
      },
    };
  },
};

type Refund = Pick<PaymentFields, 'refundedAmount' | 'refundedAt'>;

/** The newer total; of two in the same second, the larger one. A failed refund reduces the total. */
function mergeRefund(stored: Refund, { refundedAmount, refundedAt }: Refund): Refund {
  if (refundedAmount === undefined || refundedAt === undefined) return {};
  const { refundedAmount: amount = -1, refundedAt: time = -1 } = stored;
  const isNewer = refundedAt > time || (refundedAt === time && refundedAmount > amount);
  return isNewer ? { refundedAmount, refundedAt } : { refundedAmount: amount, refundedAt: time };
}

/** By ID; a closed dispute replaces an open one. */
function mergeDisputes(stored: readonly Dispute[], others: readonly Dispute[]): PaymentFields {
  const merged = new Map(stored.map((dispute) => [dispute.id, dispute]));
  for (const dispute of others)
    if (merged.get(dispute.id)?.closedAt === undefined) merged.set(dispute.id, dispute);
  const disputes = [...merged.values()].sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
  return disputes.length > 0 ? { disputes } : {};
}
