import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { auditActor, type Operator } from '../../core/ops/audit.js';
import { decideAndCommit } from '../../core/ops/commit.js';
import type { BillingContext } from './context.js';
import { billingErrors } from './errors.js';
import type { RefundOfCharge } from './provider/refunds.js';

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

const NO_CHARGE =
  'The payment provider has no charge of this payment, for example because it was paid outside of it. Return the money in the same way.';

const REFUNDED_MEANWHILE =
  'Another amount of this payment was refunded meanwhile. Load the page of the customer again, and refund what is left.';

export function createRefunds({ payments, audit, commit, requireGateway }: BillingContext) {
  return {
    /**
     * Refunds a payment or a part of it. Like every change it states the result, so that a repeated one has no further effect.
     * @throws NOT_FOUND, VALIDATION_ERROR, VERSION_CONFLICT, REFUND_REFUSED, PAYMENT_PROVIDER_ERROR
     */
    async refund(id: string, order: RefundOrder, operator: Operator): Promise<void> {
      const { refundedAmount: before, reason = 'requested_by_customer' } = order;
      const gateway = requireGateway();
      const payment = await payments.findOne({ id });
      if (payment?.status !== 'paid') throw httpErrors.NOT_FOUND();
      const charge = await gateway.chargeOf(payment);
      if (!charge) throw billingErrors.REFUND_REFUSED({ message: NO_CHARGE });
      const amount = order.amount ?? charge.amount - before;
      const after = before + amount;
      if (amount < 1 || after > charge.amount)
        throw invalidFields({ path: 'amount', message: 'must not be more than what is left of the payment' });
      const change = `${before}-${after}`;
      if (charge.refundedAmount !== after) {
        if (charge.refundedAmount !== before)
          throw httpErrors.VERSION_CONFLICT({ message: REFUNDED_MEANWHILE });
        await gateway.refund({ charge: charge.id, amount, reason }, `refund-${charge.id}-${change}`);
      }
      const detail = `${id} ${amount} ${payment.currency ?? ''} ${reason}`;
      const about = { event: 'payment.refunded', subject: payment.ownerId, ...auditActor(operator), detail };
      // Of the same request in two processes, one records it, also after a crash of the other.
      await decideAndCommit(commit, async () => {
        const stored = await payments.findOne({ id });
        if (!stored || stored.operatorRefund === change) return { result: undefined };
        const { rev } = stored;
        const noted = payments.changing({ id, rev }, { set: { operatorRefund: change }, inc: { rev: 1 } });
        return { parts: [noted, audit.entry(about)], result: undefined };
      });
    },
  };
}
