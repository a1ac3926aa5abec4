import { toTimestamp } from '../../../core/http/schemas.js';
import { defined } from '../../../core/kernel/fields.js';
import type { Effect } from '../../../core/ops/commit.js';
import type { EventOf } from '../../../core/ops/events.js';
import type { BillingContext } from '../context.js';
import { isProviderError } from '../errors.js';
import type { BillingEvents } from '../notifications.js';
import { referenceTo } from '../owners.js';
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
  const { payments, event: eventOf, commitForOwner, gateway, clock, log } = context;

  /** The payment that a refund or a dispute is about, as far as it is stored. */
  const findPayment = async ({ invoiceId, paymentIntentId, chargeId }: ChargeReference) => {
    const find = (field: 'id' | 'paymentIntentId' | 'chargeId', value: string | undefined) =>
      value === undefined ? null : payments.findOne({ [field]: value });
    return (
      (await find('id', invoiceId)) ??
      (await find('paymentIntentId', paymentIntentId)) ??
      (await find('id', paymentIntentId)) ??
      (await find('chargeId', chargeId)) ??
      (await find('id', chargeId))
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
      if (typeof fetched === 'string') return { ...reference, isUnattributed: true };
      const { refundedAmount: _, ...ids } = fetched;
      return { ...reference, ...ids, ...defined(reference), isUnattributed: false };
    },

    /** Null if the event states no refund and no dispute. */
    async record(
      event: PaymentEvent,
      ownerId: string,
      located: LocatedCharge,
      at: number,
    ): Promise<RecordedPayment | null> {
      const { invoiceId, paymentIntentId, chargeId, isUnattributed } = located;
      const stored = await findPayment(located);
      const id = stored?.id ?? invoiceId ?? paymentIntentId ?? chargeId ?? event.objectId;
      const ids = chargeIdsOf({ id, paymentIntentId, chargeId });
      const recheckAt = isUnattributed ? clock.now() : undefined;
      const added = stored
        ? ids
        : { status: 'paid' as const, at, currency: readCharge(event).currency, recheckAt, ...ids };
      const refundedAmount = isRefundFailure(event) ? await fetchRefundedAmount(event, chargeId) : undefined;
      const fact = CHARGE_FACTS[event.type]?.(event, at, refundedAmount);
      if (!fact) return null;
      const merge = () => {
        const fields = fact.merge(stored);
        return fields && { ...added, ...fields };
      };
      const { name } = fact;
      const { payment, isFirst, write } = recorder.record(stored, { id, ownerId }, event.id, { name, merge });
      const notification = isFirst ? await chargeEvent(eventOf, event, payment, at) : undefined;
      // A full refund or a lost dispute ends the access that a purchase gives.
      return { parts: [write, notification], isFirst, held: { payment } };
    },

    /** Asks the provider again which invoice a charge belongs to. */
    async attribute({ id, ownerId, chargeId }: PaymentDocument): Promise<'done' | 'missing' | 'unanswered'> {
      const fetched = await fetchCharge(chargeId ?? id);
      if (typeof fetched === 'string') return fetched;
      const { invoiceId = id, paymentIntentId } = fetched;
      await commitForOwner(ownerId, async (user) => {
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

/** What an event states. @param remaining what the provider says is refunded of the charge after a refund has failed */
type ChargeFact = (event: PaymentEvent, at: number, remaining: number | undefined) => PaymentFact | null;

const disputed: ChargeFact = (event, at) => {
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
      return { ...(!stored && { at: dispute.at }), ...mergeDisputes(stored?.disputes, [dispute]) };
    },
  };
};

const CHARGE_FACTS: Partial<Record<string, ChargeFact>> = {
  'charge.dispute.created': disputed,
  'charge.dispute.closed': disputed,
  'charge.dispute.funds_reinstated': disputed,

  'charge.refunded': (event, refundedAt) => {
    const { objectId: chargeId } = event;
    const { refundedAmount, amount, currency, at = refundedAt } = readCharge(event);
    const refunded = { amount: refundedAmount, at: refundedAt };
    return {
      name: `refunded:${chargeId}:${refundedAmount}`,
      merge(stored) {
        const merged = mergeRefunds(stored?.refunds, { [chargeId]: refunded });
        if (merged.refunds?.[chargeId] !== refunded) return null;
        return { ...((!stored || isStub(stored)) && { at, amount, currency }), ...merged };
      },
    };
  },

  'refund.failed': (event, at, remaining) => {
    const { chargeId, amount: failed } = readFailedRefund(event);
    if (chargeId === undefined) return null;
    const name = `refund.failed:${event.objectId}`;
    return {
      name,
      merge(stored) {
        if (stored?.reportedBy[name] !== undefined) return null;
        const before = stored?.refunds?.[chargeId]?.amount ?? 0;
        // Later than the refund, even if it fails within the same second.
        const amount = remaining ?? Math.max(0, before - failed);
        return mergeRefunds(stored?.refunds, { [chargeId]: { amount, at: at + 1 } });
      },
    };
  },
};

function chargeEvent(
  eventOf: EventOf<BillingEvents>,
  event: PaymentEvent,
  payment: PaymentDocument,
  at: number,
): Promise<Effect> {
  const { id: paymentId, ownerId, subscriptionId, amount, currency, refundedAmount = 0 } = payment;
  const about = { ...referenceTo(ownerId), paymentId, ...defined({ subscriptionId, amount, currency }) };
  const notification = { id: event.id, at: toTimestamp(at), ...about };
  if (event.type === 'charge.refunded' || isRefundFailure(event)) {
    const isFullRefund = isFullyRefunded(payment);
    return eventOf('payment.refunded', { ...notification, refundedAmount, isFullRefund });
  }
  const { id: disputeId, status, reason, amount: disputedAmount, closedAt } = readDispute(event, at);
  const dispute = { disputeId, status, ...defined({ reason, disputedAmount }) };
  const name = closedAt === undefined ? 'payment.disputed' : 'payment.dispute_closed';
  return eventOf(name, { ...notification, ...dispute });
}
