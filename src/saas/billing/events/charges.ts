import { toTimestamp } from '../../../core/http/schemas.js';
import type { Effect } from '../../../core/ops/commit.js';
import type { EventOf } from '../../../core/ops/events.js';
import type { BillingContext } from '../context.js';
import { isProviderError } from '../errors.js';
import type { BillingEvents } from '../notifications.js';
import type { Projector } from '../projection.js';
import { isFullyRefunded, type PaymentDocument } from '../store.js';
import {
  chargeIdsOf,
  isStub,
  mergeDisputes,
  mergeRefund,
  type PaymentFact,
  type PaymentFields,
  type PaymentRecorder,
  type RecordedPayment,
} from './payments.js';
import {
  type ChargeReference,
  type PaymentEvent,
  readCharge,
  readChargeReference,
  readDispute,
} from './provider-objects.js';

/** Records refunds and disputes, which refer to a charge, with the payment that they are about. */
export type ChargeRecorder = ReturnType<typeof createChargeRecorder>;

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

    /** The same with what the provider adds to it. */
    async lookUp(event: PaymentEvent): Promise<LocatedCharge> {
      const reference = readChargeReference(event);
      if (reference.invoiceId !== undefined) return { ...reference, isUnattributed: false };
      if (gateway) await event.beforeCall?.();
      const fetched = await fetchCharge(reference.chargeId);
      const known = Object.entries(reference).filter(([, value]) => value !== undefined);
      if (typeof fetched === 'string') return { ...reference, isUnattributed: true };
      return { ...reference, ...fetched, ...Object.fromEntries(known), isUnattributed: false };
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
      const fact = CHARGE_FACTS[event.type]?.(event, at, { ids, unattributed });
      if (!fact) return null;
      const { payment, isFirst, write } = recorder.record(stored, { id, userId }, event.id, fact);
      const notify = event.type === 'charge.refunded' ? refundEvent : disputeEvent;
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

/** `unattributed`: the fields of a payment whose invoice is unknown because the provider did not respond. */
type ChargeFact = (
  event: PaymentEvent,
  at: number,
  fields: { ids: PaymentFields; unattributed: PaymentFields },
) => PaymentFact;

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
  const { id: disputeId, status, reason, amount: disputedAmount } = readDispute(event, at);
  const isClosed = event.type === 'charge.dispute.closed';
  return eventOf(isClosed ? 'payment.dispute_closed' : 'payment.disputed', {
    ...paymentNotification(event.id, payment, at),
    disputeId,
    status,
    ...(reason !== undefined && { reason }),
    ...(disputedAmount !== undefined && { disputedAmount }),
  });
};
