import { toTimestamp } from '../../../core/http/schemas.js';
import type { Effect } from '../../../core/ops/commit.js';
import type { EventOf } from '../../../core/ops/events.js';
import type { BillingContext } from '../context.js';
import { isProviderError } from '../errors.js';
import type { BillingEvents } from '../notifications.js';
import type { Projector } from '../projection.js';
import type { Gateway } from '../provider/gateway.js';
import { isFullyRefunded, type PaymentDocument } from '../store.js';
import {
  chargeIdsOf,
  isOutweighed,
  isStub,
  mergeDisputes,
  mergeRefunds,
  type PaymentFact,
  type PaymentFields,
  type PaymentRecorder,
  type RecordedPayment,
} from './payments.js';
import {
  type ChargeReference,
  isRefundFailure,
  type PaymentEvent,
  readCharge,
  readChargeReference,
  readDispute,
  readFailedRefund,
} from './provider-objects.js';

/** Records refunds and disputes, which refer to a charge, with the payment that they are about. */
export type ChargeRecorder = ReturnType<typeof createChargeRecorder>;

type ChargeAtProvider = Partial<NonNullable<Awaited<ReturnType<Gateway['charge']>>>>;

/** @see readChargeReference */
export interface LocatedCharge extends ChargeReference {
  /** Whether the provider did not respond or does not know the charge, whose invoice is therefore unknown. */
  isUnattributed: boolean;
}

export function createChargeRecorder(
  context: BillingContext,
  { recorder, projector }: { recorder: PaymentRecorder; projector: Projector },
) {
  const { payments, event: eventOf, commitForUser, gateway, clock, log } = context;

  /** The payment that a refund or a dispute is about, as far as it is stored. */
  const findPayment = async (reference: ChargeReference): Promise<PaymentDocument | null> => {
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

  /** What the provider knows about a charge. */
  const fetchCharge = async (
    chargeId: string | undefined,
  ): Promise<ChargeAtProvider | 'missing' | 'unanswered'> => {
    if (!gateway || chargeId === undefined) return {};
    try {
      return (await gateway.charge(chargeId)) ?? 'missing';
    } catch (err) {
      if (!isProviderError(err)) throw err;
      log.warn({ err, charge: chargeId }, 'a charge could not be fetched from the payment provider');
      return 'unanswered';
    }
  };

  /** What remains refunded of a charge after a refund has failed; undefined if the provider does not tell. */
  const fetchRefundedAmount = async (event: PaymentEvent, chargeId: string | undefined) => {
    if (gateway) await event.beforeCall?.();
    const fetched = await fetchCharge(chargeId);
    return typeof fetched === 'string' ? undefined : fetched.refundedAmount;
  };

  return {
    findPayment,

    /** The same with what the provider adds to it. */
    async lookUp(event: PaymentEvent): Promise<LocatedCharge> {
      const reference = readChargeReference(event);
      if (reference.invoiceId !== undefined) return { ...reference, isUnattributed: false };
      if (gateway) await event.beforeCall?.();
      const fetched = await fetchCharge(reference.chargeId);
      const known = Object.entries(reference).filter(([, value]) => value !== undefined);
      if (typeof fetched === 'string') return { ...reference, isUnattributed: true };
      const { refundedAmount: _, ...ids } = fetched;
      return { ...reference, ...ids, ...Object.fromEntries(known), isUnattributed: false };
    },

    /** Null if the event states no refund and no dispute. */
    async record(
      event: PaymentEvent,
      userId: string,
      located: LocatedCharge,
      at: number,
    ): Promise<RecordedPayment | null> {
      const { invoiceId, paymentIntentId, chargeId, isUnattributed } = located;
      const stored = await findPayment(located);
      const id = stored?.id ?? invoiceId ?? paymentIntentId ?? chargeId ?? event.objectId;
      const ids = chargeIdsOf({ id, paymentIntentId, chargeId });
      const unattributed = isUnattributed ? { recheckAt: clock.now() } : {};
      const refundedAmount = isRefundFailure(event) ? await fetchRefundedAmount(event, chargeId) : undefined;
      const fact = CHARGE_FACTS[event.type]?.(event, at, { ids, unattributed, refundedAmount });
      if (!fact) return null;
      const { payment, isFirst, write } = recorder.record(stored, { id, userId }, event.id, fact);
      const isRefund = event.type === 'charge.refunded' || isRefundFailure(event);
      const notify = isRefund ? refundEvent : disputeEvent;
      const notification = isFirst ? await notify(eventOf, event, payment, at) : undefined;
      // A full refund or a lost dispute ends the access that a purchase gives.
      return { parts: [write, notification], isFirst, held: { payment } };
    },

    /** Asks the provider again which invoice a charge belongs to. */
    async attribute({ id, userId, chargeId }: PaymentDocument): Promise<'done' | 'missing' | 'unanswered'> {
      const fetched = await fetchCharge(chargeId ?? id);
      if (typeof fetched === 'string') return fetched;
      const { invoiceId = id, paymentIntentId } = fetched;
      await commitForUser(userId, async (user) => {
        const payment = await payments.findOne({ id });
        if (!payment) return null;
        const ids = chargeIdsOf({ id: invoiceId, paymentIntentId, chargeId: payment.chargeId });
        const moved = invoiceId === id ? null : await recorder.move(payment, invoiceId, ids);
        return moved
          ? [...moved.parts, ...(await projector.projecting(user, { payment: moved.payment }))]
          : [payments.changing({ id, rev: payment.rev }, { unset: ['recheckAt'], inc: { rev: 1 } })];
      });
      return 'done';
    },
  };
}

interface ChargeFields {
  ids: PaymentFields;
  /** The fields of a payment whose invoice is unknown because the provider did not respond. */
  unattributed: PaymentFields;
  /** What the provider says is refunded of the charge. */
  refundedAmount: number | undefined;
}

type ChargeFact = (event: PaymentEvent, at: number, fields: ChargeFields) => PaymentFact | null;

const disputed: ChargeFact = (event, at, { ids, unattributed }) => {
  const dispute = readDispute(event, at);
  const isClosed = dispute.closedAt !== undefined;
  // Funds come back with the result, or with that of an appeal.
  if (event.type === 'charge.dispute.funds_reinstated' && !isClosed) return null;
  return {
    name: isClosed ? `dispute.closed:${dispute.id}:${dispute.status}` : `dispute.created:${dispute.id}`,
    merge(stored) {
      // A dispute that is closed stays closed, even if its beginning arrives later.
      const known = stored?.disputes?.find(({ id }) => id === dispute.id);
      if (isOutweighed(dispute, known)) return null;
      const { currency } = readCharge(event);
      return {
        ...(!stored && { status: 'paid', at: dispute.at, ...(currency && { currency }), ...unattributed }),
        ...ids,
        ...mergeDisputes(stored?.disputes ?? [], [dispute]),
      };
    },
  };
};

const CHARGE_FACTS: Partial<Record<string, ChargeFact>> = {
  'charge.dispute.created': disputed,
  'charge.dispute.closed': disputed,
  'charge.dispute.funds_reinstated': disputed,

  'charge.refunded': (event, refundedAt, { ids, unattributed }) => {
    const { objectId: chargeId } = event;
    const { refundedAmount, amount, currency, at = refundedAt } = readCharge(event);
    const refunded = { amount: refundedAmount, at: refundedAt };
    return {
      name: `refunded:${chargeId}:${refundedAmount}`,
      merge(stored) {
        const merged = mergeRefunds(stored?.refunds, { [chargeId]: refunded });
        if (merged.refunds?.[chargeId] !== refunded) return null;
        const charge = { at, ...(amount !== undefined && { amount }), ...(currency && { currency }) };
        return {
          ...(!stored && { status: 'paid', ...unattributed }),
          ...((!stored || isStub(stored)) && charge),
          ...ids,
          ...merged,
        };
      },
    };
  },

  'refund.failed': (event, at, { ids, unattributed, refundedAmount }) => {
    const { chargeId, amount: failed, currency } = readFailedRefund(event);
    if (chargeId === undefined) return null;
    const name = `refund.failed:${event.objectId}`;
    return {
      name,
      merge(stored) {
        if (stored?.reportedBy[name] !== undefined) return null;
        const before = stored?.refunds?.[chargeId]?.amount ?? 0;
        // Later than the refund, even if it fails within the same second.
        const amount = refundedAmount ?? Math.max(0, before - failed);
        return {
          ...(!stored && { status: 'paid', at, ...(currency && { currency }), ...unattributed }),
          ...ids,
          ...mergeRefunds(stored?.refunds, { [chargeId]: { amount, at: at + 1 } }),
        };
      },
    };
  },
};

function paymentNotification(eventId: string, payment: PaymentDocument, at: number) {
  const { id: paymentId, userId, subscriptionId, amount, currency } = payment;
  return {
    id: eventId,
    at: toTimestamp(at),
    userId,
    paymentId,
    ...(subscriptionId !== undefined && { subscriptionId }),
    ...(amount !== undefined && { amount }),
    ...(currency !== undefined && { currency }),
  };
}

type ChargeEvent = (
  eventOf: EventOf<BillingEvents>,
  event: PaymentEvent,
  payment: PaymentDocument,
  at: number,
) => Promise<Effect>;

const refundEvent: ChargeEvent = (eventOf, { id }, payment, at) => {
  const { refundedAmount = 0 } = payment;
  const isFullRefund = isFullyRefunded(payment);
  return eventOf('payment.refunded', {
    ...paymentNotification(id, payment, at),
    refundedAmount,
    isFullRefund,
  });
};

const disputeEvent: ChargeEvent = (eventOf, event, payment, at) => {
  const { id: disputeId, status, reason, amount: disputedAmount, closedAt } = readDispute(event, at);
  return eventOf(closedAt !== undefined ? 'payment.dispute_closed' : 'payment.disputed', {
    ...paymentNotification(event.id, payment, at),
    disputeId,
    status,
    ...(reason !== undefined && { reason }),
    ...(disputedAmount !== undefined && { disputedAmount }),
  });
};
