import { isDeepStrictEqual } from 'node:util';
import { writeAmount } from '../../core/kernel/currencies.js';
import { AppError, httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { auditActor, type Operator } from '../../core/ops/audit.js';
import { type Decision, decideAndCommit } from '../../core/ops/commit.js';
import type { BillingContext } from './context.js';
import { billingErrors } from './errors.js';
import type { RefundOfCharge } from './provider/refunds.js';
import type { OperatorRefund, PaymentDocument } from './store.js';

/**
 * Refunds by operators. The provider makes them, and its event `charge.refunded` records the amount here, as of a refund in its dashboard;
 * a refund itself writes its audit record only.
 */
export type Refunds = ReturnType<typeof createRefunds>;

/** Amounts in the currency's smallest unit. */
export interface RefundOrder {
  /** Default: what is left. */
  amount?: number;
  /** What was refunded before, as the operator has seen it: it tells a second refund from a repeated request. */
  refundedAmount: number;
  reason?: RefundOfCharge['reason'];
}

interface Begun {
  payment: PaymentDocument;
  charge: string;
  /** What is refunded. */
  amount: number;
  /** Whether the provider has made it already. */
  isMade: boolean;
  claim: OperatorRefund;
}

const NO_CHARGE =
  'The payment provider has no charge of this payment, for example because it was paid outside of it. Return the money in the same way.';

const REFUNDED_MEANWHILE =
  'Another amount of this payment was refunded meanwhile. Load the page of the customer again, and refund what is left.';

const begunAlready = (refund: string) =>
  `Another refund of this payment has begun, and whether the payment provider has made it is not known: ${refund}. Send that one again, with the same amount and reason.`;

export function createRefunds({ payments, audit, commit, requireGateway }: BillingContext) {
  /**
   * Claims the refund in the store, so that two operators cannot refund different amounts of what both have seen. A repeated
   * request finds its claim, and with it the key by which the provider refunds once.
   */
  const begin = (id: string, order: RefundOrder, reason: RefundOfCharge['reason']) => {
    const decide = async (): Promise<Decision<Begun>> => {
      const payment = await payments.findOne({ id });
      if (payment?.status !== 'paid') throw httpErrors.NOT_FOUND();
      // Read after the payment: what is recorded there, the provider knows.
      const charge = await requireGateway().chargeOf(payment);
      if (!charge) throw billingErrors.REFUND_REFUSED({ message: NO_CHARGE });
      const { refundedAmount = 0, refunds = {}, operatorRefund: claimed, rev } = payment;
      const ofOthers = refundedAmount - (refunds[charge.id]?.amount ?? 0);
      const from = order.refundedAmount - ofOthers;
      const to = from + (order.amount ?? charge.amount - from);
      if (to <= from || to > charge.amount)
        throw invalidFields({ path: 'amount', message: 'must not be more than what is left of the payment' });
      const change = { charge: charge.id, from, to, reason };
      const isSame = claimed && isDeepStrictEqual(change, claimed.change);
      const result = { payment, charge: charge.id, amount: to - from, isMade: charge.refundedAmount === to };
      // A refund that is recorded, but no longer part of the charge, has failed: it can be made again.
      if (isSame && (result.isMade || !claimed.isRecorded)) return { result: { ...result, claim: claimed } };
      if (charge.refundedAmount !== from) {
        // The same request in another process may have claimed and made it since the payment was read.
        if ((await payments.findOne({ id }))?.rev !== rev) return decide();
        throw httpErrors.VERSION_CONFLICT({ message: REFUNDED_MEANWHILE });
      }
      if (claimed && !claimed.isRecorded && claimed.change.from === from) {
        const amount = writeAmount(claimed.change.to - from, payment.currency ?? null);
        const message = begunAlready(`${amount}, ${claimed.change.reason}`);
        throw httpErrors.VERSION_CONFLICT({ message });
      }
      const claim = { change, key: `refund-${charge.id}-${rev}`, isRecorded: false };
      const parts = [payments.changing({ id, rev }, { set: { operatorRefund: claim }, inc: { rev: 1 } })];
      return { parts, result: { ...result, claim } };
    };
    return decideAndCommit(commit, decide);
  };

  /** Ends a claim that is not recorded yet. @param entry of the audit; absent if the provider has refused the refund */
  const end = (id: string, key: string, entry?: Parameters<typeof audit.entry>[0]): Promise<void> =>
    decideAndCommit(commit, async () => {
      const stored = await payments.findOne({ id });
      const claim = stored?.operatorRefund;
      if (!stored || claim?.key !== key || claim.isRecorded) return { result: undefined };
      const change = entry
        ? { set: { operatorRefund: { ...claim, isRecorded: true } } }
        : { unset: ['operatorRefund' as const] };
      const ended = payments.changing({ id, rev: stored.rev }, { ...change, inc: { rev: 1 } });
      return { parts: [ended, ...(entry ? [audit.entry(entry)] : [])], result: undefined };
    });

  return {
    /**
     * Refunds a payment or a part of it. Like every change it states the result, so that a repeated one has no further effect.
     * @throws NOT_FOUND, VALIDATION_ERROR, VERSION_CONFLICT, REFUND_REFUSED, PAYMENT_PROVIDER_ERROR
     */
    async refund(id: string, order: RefundOrder, operator: Operator): Promise<void> {
      const { reason = 'requested_by_customer' } = order;
      const { payment, charge, amount, isMade, claim } = await begin(id, order, reason);
      try {
        if (!isMade) await requireGateway().refund({ charge, amount, reason }, claim.key);
      } catch (error) {
        if (error instanceof AppError && error.code === 'REFUND_REFUSED') await end(id, claim.key);
        throw error;
      }
      const detail = `${id} ${amount} ${payment.currency ?? ''} ${reason}`;
      const about = { event: 'payment.refunded', subject: payment.ownerId, ...auditActor(operator), detail };
      await end(id, claim.key, about);
    },
  };
}
