import t, { type Test } from 'tap';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { type Buyer, eventOf, ordersOf, type Shop, shop } from './kit.js';

/** Money that goes back and forth: failed refunds, appeals, several payments of one invoice, and what is bought beside a subscription. */

const PLANS = {
  pro: { prices: ['price_pro'] },
  lifetime: { prices: ['price_lifetime'], purchase: true, independent: true },
};

/** A user who has bought a plan for ever. */
async function owner(t: Test) {
  const here = await shop(t, { billing: { plans: PLANS } });
  const ada = await here.buyer();
  const { saas } = here.app.server.fastify;
  await here.deliver(eventOf('checkout.session.completed', 0, session(ada)));
  t.ok(await saas.entitles(ada.id, 'lifetime'));
  return {
    ...here,
    ada,
    hasAccess: () => saas.entitles(ada.id, 'lifetime'),
    payments: async (): Promise<Json[]> => (await here.exported(ada)).billing.payments,
  };
}

const session = ({ id, customer }: Buyer, more: Json = {}): Json => ({
  id: 'cs_1',
  object: 'checkout.session',
  mode: 'payment',
  status: 'complete',
  payment_status: 'paid',
  customer,
  client_reference_id: id,
  amount_total: 2900,
  currency: 'eur',
  payment_intent: 'pi_1',
  line_items: { data: [{ quantity: 1, price: { id: 'price_lifetime' } }] },
  ...more,
});

const charge = (customer: string, amount_refunded: number, number = 1, amount = 2900): Json => ({
  id: `ch_${number}`,
  object: 'charge',
  customer,
  payment_intent: `pi_${number}`,
  amount,
  amount_refunded,
  refunded: amount_refunded === amount,
  currency: 'eur',
});

const dispute = (status: string): Json => ({
  id: 'dp_1',
  object: 'dispute',
  charge: 'ch_1',
  payment_intent: 'pi_1',
  amount: 2900,
  currency: 'eur',
  status,
});

/** Answers the lookups of charges and of their invoice. */
function answerCharges(api: Shop['api'], charges: Json[], invoice: string | undefined) {
  const list = invoice === undefined ? [] : [{ id: 'inpay_1', invoice }];
  api.fault = ({ path }) => {
    const found = charges.find(({ id }) => path === `/v1/charges/${id}`);
    const body = found ?? (path === '/v1/invoice_payments' ? { object: 'list', data: list } : undefined);
    return body && { status: 200, body: JSON.stringify(body) };
  };
}

t.test('a refund that fails gives the money record and the access back, in any order', async (t) => {
  for (const isAnswered of [true, false])
    for (const order of ordersOf(['refunded', 'failed'])) {
      const { ada, api, deliver, hasAccess, payments, heard } = await owner(t);
      const received = heard('payment.refunded');
      if (isAnswered) answerCharges(api, [charge(ada.customer, 0)], undefined);
      else api.fault = () => ({ status: 500, body: '{}' });
      const failed = { id: 're_1', object: 'refund', charge: 'ch_1', payment_intent: 'pi_1', amount: 2900 };
      const events: Record<string, Json> = {
        refunded: eventOf('charge.refunded', 1, charge(ada.customer, 2900)),
        failed: eventOf('refund.failed', 1, { ...failed, currency: 'eur', status: 'failed' }),
      };
      for (const [index, name] of order.entries()) {
        t.equal(await deliver(events[name] as Json), 'processed', name);
        if (index === 0) t.equal(await hasAccess(), name === 'failed');
      }
      t.ok(await hasAccess(), `${order} ${isAnswered}`);
      t.match(await payments(), [{ id: 'pi_1', status: 'paid', amount: 2900, refundedAmount: 0 }]);
      t.equal(await deliver(eventOf('refund.failed', 2, { ...failed, status: 'failed' })), 'processed');
      t.match(await payments(), [{ refundedAmount: 0 }], 'a second event about it changes nothing');
      t.match(received.at(-1), { isFullRefund: false, refundedAmount: 0 });
      await deliver(eventOf('charge.refunded', 9, charge(ada.customer, 2900)));
      t.notOk(await hasAccess(), 'the next refund counts');
    }
});

t.test('a dispute that is won on appeal gives the access back, in any order', async (t) => {
  for (const appeal of ['charge.dispute.closed', 'charge.dispute.funds_reinstated'])
    for (const order of ordersOf(['lost', 'won'])) {
      const { deliver, hasAccess, payments, heard } = await owner(t);
      const received = heard('payment.dispute_closed');
      const events: Record<string, Json> = {
        lost: eventOf('charge.dispute.closed', 5, dispute('lost')),
        won: eventOf(appeal, 99, dispute('won')),
      };
      for (const name of order) await deliver(events[name] as Json);
      t.ok(await hasAccess(), `${appeal} ${order}`);
      t.match(await payments(), [{ disputes: [{ id: 'dp_1', status: 'won' }] }]);
      await deliver(eventOf(appeal, 100, dispute('won')));
      t.match(received.at(-1), { disputeId: 'dp_1' });
      t.equal(received.filter(({ status }) => status === 'won').length, 1, 'its result notifies once');
    }
  const { deliver, hasAccess } = await owner(t);
  await deliver(eventOf('charge.dispute.closed', 5, dispute('lost')));
  await deliver(eventOf('charge.dispute.funds_reinstated', 6, dispute('lost')));
  t.notOk(await hasAccess(), 'a part of the funds is no result');
});

t.test('refunds of several payments of one invoice add up, in any order', async (t) => {
  const results = new Set<string>();
  for (const order of ordersOf(['paid', 'first', 'more', 'second'])) {
    const { api, deliver, buyer, exported } = await shop(t);
    const ada = await buyer();
    const { customer } = ada;
    answerCharges(api, [charge(customer, 0, 1, 900), charge(customer, 0, 2, 2000)], 'in_1');
    const invoice = { id: 'in_1', object: 'invoice', customer, status: 'paid', amount_paid: 2900 };
    const events: Record<string, Json> = {
      paid: eventOf('invoice.paid', 1, { ...invoice, amount_due: 2900, currency: 'eur', attempt_count: 1 }),
      first: eventOf('charge.refunded', 2, charge(customer, 300, 1, 900)),
      more: eventOf('charge.refunded', 3, charge(customer, 900, 1, 900)),
      second: eventOf('charge.refunded', 4, charge(customer, 500, 2, 2000)),
    };
    for (const name of order) await deliver(events[name] as Json);
    const payments: Json[] = (await exported(ada)).billing.payments;
    results.add(
      JSON.stringify(payments.map(({ id, amount, refundedAmount }) => [id, amount, refundedAmount])),
    );
  }
  t.same([...results], ['[["in_1",2900,1400]]']);
});

t.test(
  'what a checkout of a subscription sells once is a purchase, whose refund is that of the invoice',
  async (t) => {
    const { app, api, deliver, buyer, exported } = await shop(t, { billing: { plans: PLANS } });
    const ada = await buyer();
    const once = {
      id: 'li_1',
      quantity: 2,
      amount_total: 5000,
      price: { id: 'price_lifetime', recurring: null },
    };
    const monthly = {
      id: 'li_2',
      quantity: 1,
      amount_total: 2900,
      price: { id: 'price_pro', recurring: {} },
    };
    api.lineItems.set('cs_both', [monthly, once]);
    api.lineItems.set('cs_plain', [monthly]);
    const {
      line_items: _,
      payment_intent: __,
      ...sold
    } = session(ada, { mode: 'subscription', amount_total: 7900 });
    const completed = (id: string, invoice: string) =>
      eventOf('checkout.session.completed', 1, { ...sold, id, invoice, subscription: 'sub_1' });
    const both = completed('cs_both', 'in_1');
    api.fault = () => ({ status: 500, body: '{}' });
    t.equal(await deliver(both), 'PAYMENT_PROVIDER_ERROR', 'the provider delivers it again');
    api.fault = () => undefined;
    t.equal(await deliver(both), 'processed');
    t.equal(await deliver(completed('cs_plain', 'in_2')), 'processed');
    const { purchases, payments } = (await exported(ada)).billing;
    t.match(purchases, [
      { id: 'cs_both', plan: 'lifetime', amount: 5000, items: [{ priceId: 'price_lifetime', quantity: 2 }] },
    ]);
    t.equal(purchases.length, 1);
    t.same(payments, [], 'the invoice records the payment');
    const hasAccess = () => app.server.fastify.saas.entitles(ada.id, 'lifetime');
    t.ok(await hasAccess());
    const paid = { id: 'in_1', object: 'invoice', customer: ada.customer, status: 'paid', amount_paid: 7900 };
    await deliver(
      eventOf('invoice.paid', 2, { ...paid, currency: 'eur', charge: 'ch_1', payment_intent: 'pi_1' }),
    );
    await deliver(eventOf('charge.refunded', 3, charge(ada.customer, 7900, 1, 7900)));
    t.notOk(await hasAccess());
  },
);
