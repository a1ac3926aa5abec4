import { type Handler, type ProviderCall, rejected } from './stripe.js';
import { chargeObject, type WorldPayment } from './stripe-objects.js';
import type { World } from './stripe-simulator.js';

/** The charges and refunds of the simulated provider. */

export function refundRoutes(world: World): Record<string, Handler> {
  const paymentOf = (matches: (payment: WorldPayment) => boolean) =>
    [...world.payments.values()].find(matches);
  const listOf = (data: object[]) => ({ object: 'list', url: '/', has_more: false, data });
  /** Idempotency key → the first request and its answer. */
  const made = new Map<string, { params: string; answer: ReturnType<Handler> }>();

  const refund = ({ form }: ProviderCall): ReturnType<Handler> => {
    const payment = paymentOf(({ charge }) => charge?.id === form.get('charge'));
    if (!payment) return null;
    const amount = Number(form.get('amount'));
    if (payment.refunded === payment.amount) return rejected({ code: 'charge_already_refunded' });
    if (amount > payment.amount - payment.refunded) return rejected({ param: 'amount' });
    if (payment.dispute) return rejected({ code: 'charge_disputed' });
    world.refund(payment, amount);
    return {
      id: world.name('re'),
      object: 'refund',
      charge: payment.charge?.id,
      amount,
      status: 'succeeded',
    };
  };

  return {
    'POST /v1/refunds': (call) => {
      const key = String(call.headers['idempotency-key']);
      const params = call.form.toString();
      const known = made.get(key);
      if (known) return known.params === params ? known.answer : rejected({ type: 'idempotency_error' });
      const answer = refund(call);
      made.set(key, { params, answer });
      return answer;
    },
    'GET /v1/charges': ({ query }) => {
      const found = paymentOf(({ charge }) => charge?.intent === query.get('payment_intent'));
      return listOf(found ? [chargeObject(found)] : []);
    },
    'GET /v1/invoice_payments': ({ query }) => {
      const intent = query.get('payment[payment_intent]');
      const found = intent
        ? paymentOf(({ charge }) => charge?.intent === intent)
        : paymentOf(({ invoice, charge }) => charge !== undefined && invoice === query.get('invoice'));
      const payment = { type: 'payment_intent', payment_intent: found?.charge?.intent };
      return listOf(found ? [{ id: 'inpay_1', invoice: found.invoice, payment }] : []);
    },
  };
}
