import t from 'tap';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { paymentCollection, webhookEventCollection } from '../../../src/saas/billing/store.js';
import { onMongod } from '../../core/storage/mongod.js';
import { type Account, PASSWORD, type SaasApp, storeOf } from '../../kit/app.js';
import { runJobs } from '../../kit/billing.js';
import { subscriptionObject } from '../../kit/stripe-objects.js';
import { waitUntil } from '../../kit/wait.js';
import { eventOf, type Shop, secondProcess, shop, subscriptionEvent } from './kit.js';

/** Invoices, refunds and disputes: their records and notifications. */

const NAMES = [
  'subscription.updated',
  'invoice.paid',
  'invoice.voided',
  'payment.failed',
  'payment.refunded',
  'payment.disputed',
  'payment.dispute_closed',
] as const;

/** Collects the notifications of an application. */
function listen(app: SaasApp): Json[] {
  const received: Json[] = [];
  for (const name of NAMES)
    app.server.fastify.saas.events.on(name, (one) => void received.push({ name, ...one } as Json));
  return received;
}

/** The names of exactly that many notifications, which are emitted after the response. */
async function names(received: readonly Json[], count: number): Promise<unknown[]> {
  await waitUntil('the notifications', () => received.length >= count);
  return received.map(({ name }) => name);
}

async function paymentsOf(app: SaasApp, { accessToken: token }: Account): Promise<Json[]> {
  const { body } = await app.request('GET', '/api/user/export', { token });
  return body.data.billing.payments;
}

/** Permutations in any order. */
function ordersOf<T>(things: T[]): T[][] {
  if (things.length < 2) return [things];
  return things.flatMap((first, index) =>
    ordersOf(things.toSpliced(index, 1)).map((rest) => [first, ...rest]),
  );
}

const invoice = (customer: string, more: Json = {}): Json => ({
  id: 'in_1',
  object: 'invoice',
  customer,
  status: 'paid',
  amount_due: 2900,
  amount_paid: 2900,
  currency: 'eur',
  attempt_count: 1,
  next_payment_attempt: null,
  ...more,
});

const charge = (customer: string, amount_refunded: number, more: Json = {}): Json => ({
  id: 'ch_1',
  object: 'charge',
  customer,
  payment_intent: 'pi_1',
  amount: 2900,
  amount_refunded,
  refunded: amount_refunded === 2900,
  currency: 'eur',
  created: Date.UTC(2040, 0, 1) / 1000,
  ...more,
});

const dispute = (status: string): Json => ({
  id: 'dp_1',
  object: 'dispute',
  charge: 'ch_1',
  payment_intent: 'pi_1',
  amount: 2900,
  currency: 'eur',
  reason: 'fraudulent',
  status,
  created: Date.UTC(2040, 0, 1) / 1000 + 5,
});

/** A paid invoice at the provider, whose API tells which one its charge belongs to. */
function addPayment({ world }: Shop['api'], customer: string): void {
  const subscription = world.subscribe(customer, 'usr', false);
  world.payments.clear();
  world.payments.set('in_1', {
    invoice: 'in_1',
    subscription,
    status: 'paid',
    amount: 2900,
    charge: { id: 'ch_1', intent: 'pi_1', created: world.now },
    refunded: 0,
  });
}

t.test('two events about one payment notify once, however they are delivered', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const received = listen(app);
  const ada = await buyer();
  for (const [index, types] of [
    ['invoice.paid', 'invoice.payment_succeeded'],
    ['invoice.payment_succeeded', 'invoice.paid'],
  ].entries()) {
    const both = types.map((type) => eventOf(type, 1, invoice(ada.customer, { id: `in_${index}` })));
    for (const event of both) t.equal(await deliver(event), 'processed');
  }
  t.same(await names(received, 2), ['invoice.paid', 'invoice.paid']);
  const many = Array.from({ length: 10 }, (_, index) =>
    eventOf(
      index % 2 === 0 ? 'invoice.paid' : 'invoice.payment_succeeded',
      2,
      invoice(ada.customer, { id: 'in_9' }),
    ),
  );
  await Promise.all(many.map(deliver));
  await names(received, 3);
  t.same(
    received.slice(2).map(({ name, invoiceId }) => [name, invoiceId]),
    [['invoice.paid', 'in_9']],
  );
});

t.test('a payment that an earlier version recorded does not notify again', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const received = listen(app);
  const ada = await buyer();
  const payments = paymentCollection(await storeOf(t, app));
  const old = { userId: ada.id, amount: 2900, currency: 'eur', attempts: 1, at: app.clock.now() };
  await payments.insert({ id: 'in_1', status: 'paid', ...old });
  await payments.insert({ id: 'in_2', status: 'failed', ...old });
  await deliver(eventOf('invoice.paid', 1, invoice(ada.customer)));
  await deliver(eventOf('charge.refunded', 2, charge(ada.customer, 2900, { invoice: 'in_1' })));
  await deliver(eventOf('invoice.paid', 3, invoice(ada.customer, { id: 'in_2' })));
  t.same(await names(received, 2), ['payment.refunded', 'invoice.paid']);
  t.match(await payments.findOne({ id: 'in_1' }), {
    status: 'paid',
    at: app.clock.now(),
    refundedAmount: 2900,
  });
  t.match(await payments.findOne({ id: 'in_2' }), { status: 'paid' });
});

t.test(
  'a failure notifies and reminds unless its invoice was paid or voided before it arrived',
  async (t) => {
    const { app, deliver, buyer } = await shop(t);
    const received = listen(app);
    const ada = await buyer();
    const failed = (id: string, attempt_count: number) =>
      eventOf(
        'invoice.payment_failed',
        attempt_count,
        invoice(ada.customer, { id, attempt_count, amount_paid: 0 }),
      );
    await deliver(failed('in_1', 1));
    await deliver(failed('in_1', 1));
    await deliver(failed('in_1', 2));
    await deliver(eventOf('invoice.paid', 9, invoice(ada.customer)));
    await deliver(failed('in_1', 3));
    await deliver(
      eventOf('invoice.voided', 9, invoice(ada.customer, { id: 'in_2', status: 'void', amount_paid: 0 })),
    );
    await deliver(failed('in_2', 1));
    await names(received, 4);
    t.same(
      received.map(({ name, attempt }) => [name, attempt]),
      [
        ['payment.failed', 1],
        ['payment.failed', 2],
        ['invoice.paid', undefined],
        ['invoice.voided', undefined],
      ],
    );
    const { mails } = (await app.request('GET', '/api/user/export', { token: ada.accessToken })).body.data;
    t.equal(mails.filter(({ template }: Json) => template === 'payment-failed').length, 2);
    t.match(await paymentsOf(app, ada), [
      { id: 'in_2', status: 'voided', amount: 2900 },
      { id: 'in_1', status: 'paid' },
    ]);
  },
);

t.test('an invoice that was marked as paid outside of the provider counts as paid', async (t) => {
  const { app, deliver, subscription } = await shop(t, { paymentSecretKey: undefined as never });
  const received = listen(app);
  const ada = await app.signUp();
  const object = { id: 'sub_1', customer: 'cus_1', metadata: { userId: ada.id, plan: 'pro' } };
  for (const [index, outside] of [{ paid_out_of_band: true }, {}].entries()) {
    await deliver(subscriptionEvent('updated', 10 * index, { ...object, status: 'past_due' }));
    const more = { id: `in_${index}`, subscription: 'sub_1', amount_paid: 0, ...outside };
    await deliver(eventOf('invoice.paid', 10 * index + 1, invoice('cus_1', more)));
    t.match(await subscription(ada), { status: 'active' });
  }
  await waitUntil('the notifications', () => received.length >= 5);
  const paid = received.filter(({ name }) => name === 'invoice.paid');
  t.match(paid, [{ amount: 2900 }, { amount: 2900 }]);
});

t.test('a voided invoice leaves the status of its subscription to the provider', async (t) => {
  const { app, api, deliver, buyer, subscription } = await shop(t);
  const ada = await buyer();
  const truth = Object.assign(api.world.subscribe(ada.customer, ada.id, true), {
    status: 'past_due',
    trialEnd: null,
  });
  await deliver(subscriptionEvent('created', 0, subscriptionObject(truth)));
  const voided = (id: string, at: number) =>
    eventOf(
      'invoice.voided',
      at,
      invoice(ada.customer, { id, status: 'void', amount_paid: 0, subscription: truth.id }),
    );
  api.fault = () => ({ status: 400, body: '{}' });
  await deliver(voided('in_1', 1));
  t.match(await subscription(ada), { status: 'past_due' }, 'it cannot be asked');
  api.fault = () => undefined;
  truth.status = 'active';
  await runJobs(await secondProcess(t, { app, api }));
  t.match(await subscription(ada), { status: 'active' }, 'it is asked later');
  truth.status = 'past_due';
  await deliver(subscriptionEvent('updated', 60, subscriptionObject(truth)));
  truth.status = 'canceled';
  await deliver(voided('in_2', 61));
  t.match(await subscription(ada), { status: 'canceled' });
});

t.test('refunds and disputes have the same result in any order, in every API version', async (t) => {
  for (const isOld of [true, false]) {
    const reference = isOld ? { charge: 'ch_1', payment_intent: 'pi_1' } : {};
    const results = new Set<string>();
    const kinds = ['paid', 'refund', 'rest', 'disputed', 'closed'];
    for (const order of ordersOf(kinds).filter((_, index) => index % 7 === 0)) {
      const { app, api, deliver, buyer } = await shop(t);
      const ada = await buyer();
      if (!isOld) addPayment(api, ada.customer);
      const events: Record<string, Json> = {
        paid: eventOf('invoice.paid', 1, invoice(ada.customer, { subscription: 'sub_1', ...reference })),
        refund: eventOf('charge.refunded', 3, charge(ada.customer, 900, isOld ? { invoice: 'in_1' } : {})),
        rest: eventOf('charge.refunded', 4, charge(ada.customer, 2900, isOld ? { invoice: 'in_1' } : {})),
        disputed: eventOf('charge.dispute.created', 5, dispute('needs_response')),
        closed: eventOf('charge.dispute.closed', 6, dispute('lost')),
      };
      for (const kind of order) await deliver(events[kind] as Json);
      app.clock.advance(1000);
      await runJobs(await secondProcess(t, { app, api }));
      t.equal(await webhookEventCollection(await storeOf(t, app)).count({ outcome: 'unmatched' }), 0);
      results.add(JSON.stringify(await paymentsOf(app, ada)).replaceAll(ada.id, 'usr'));
      await app.close();
    }
    t.equal(results.size, 1, [...results].join('\n'));
    t.match(JSON.parse([...results][0] ?? '[]'), [
      {
        id: 'in_1',
        status: 'paid',
        amount: 2900,
        at: '2040-01-01T00:00:01.000Z',
        refundedAmount: 2900,
        refundedAt: '2040-01-01T00:00:04.000Z',
        disputes: [
          { id: 'dp_1', status: 'lost', reason: 'fraudulent', closedAt: '2040-01-01T00:00:06.000Z' },
        ],
      },
    ]);
  }
});

t.test('a refund and a dispute notify once, with the sum and the result', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const received = listen(app);
  const ada = await buyer();
  await deliver(
    eventOf('invoice.paid', 1, invoice(ada.customer, { charge: 'ch_1', payment_intent: 'pi_1' })),
  );
  const twice = async (type: string, at: number, object: Json) => {
    await deliver(eventOf(type, at, object));
    await deliver(eventOf(type, at, object));
  };
  await twice('charge.refunded', 2, charge(ada.customer, 900));
  await twice('charge.dispute.created', 3, dispute('needs_response'));
  await twice('charge.dispute.closed', 4, dispute('won'));
  await twice('charge.refunded', 5, charge(ada.customer, 2900));
  await deliver(eventOf('charge.refunded', 2, charge(ada.customer, 900)));
  await names(received, 5);
  const common = { userId: ada.id, paymentId: 'in_1', amount: 2900, currency: 'eur' };
  t.match(received.slice(1), [
    { name: 'payment.refunded', ...common, refundedAmount: 900, isFullRefund: false },
    {
      name: 'payment.disputed',
      ...common,
      disputeId: 'dp_1',
      status: 'needs_response',
      disputedAmount: 2900,
    },
    { name: 'payment.dispute_closed', ...common, disputeId: 'dp_1', status: 'won', reason: 'fraudulent' },
    { name: 'payment.refunded', ...common, refundedAmount: 2900, isFullRefund: true },
  ]);
  t.equal(received.length, 5);
});

t.test(
  'a refund whose invoice is unknown is recorded, and assigned when the provider responds',
  async (t) => {
    const { app, api, deliver, buyer } = await shop(t);
    const received = listen(app);
    const ada = await buyer();
    addPayment(api, ada.customer);
    api.fault = () => ({ status: 500, body: '{}' });
    t.equal(await deliver(eventOf('charge.refunded', 2, charge(ada.customer, 900))), 'processed');
    t.equal(await deliver(eventOf('charge.dispute.created', 3, dispute('needs_response'))), 'processed');
    t.match(await paymentsOf(app, ada), [{ id: 'pi_1', status: 'paid', amount: 2900, refundedAmount: 900 }]);
    await deliver(eventOf('invoice.paid', 1, invoice(ada.customer)));
    t.equal((await paymentsOf(app, ada)).length, 2);
    api.fault = () => undefined;
    const background = await secondProcess(t, { app, api });
    await runJobs(background);
    const all = await paymentsOf(app, ada);
    t.equal(all.length, 1);
    t.match(all, [{ id: 'in_1', refundedAmount: 900, disputes: [{ id: 'dp_1' }] }]);
    t.same(await names(received, 3), ['payment.refunded', 'payment.disputed', 'invoice.paid']);
    const calls = api.calls.length;
    app.clock.advance(3_600_000);
    await runJobs(background);
    t.equal(api.calls.length, calls, 'it is not asked again');
  },
);

t.test('a dispute stays closed when an older record of it is assigned to its invoice', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const ada = await buyer();
  const ids = { charge: 'ch_1', payment_intent: 'pi_1' };
  await deliver(eventOf('invoice.paid', 1, invoice(ada.customer, ids)));
  await deliver(eventOf('charge.dispute.closed', 3, dispute('won')));
  // Left by a process that recorded the dispute while another one recorded the invoice.
  const at = app.clock.now();
  await paymentCollection(await storeOf(t, app)).insert({
    id: 'pi_1',
    userId: ada.id,
    status: 'paid',
    at,
    disputes: [{ id: 'dp_1', status: 'needs_response', at }],
    reportedBy: { 'disputed:dp_1': 'evt_2' },
    rev: 1,
  });
  await deliver(eventOf('invoice.payment_succeeded', 1, invoice(ada.customer, ids)));
  const payments = await paymentsOf(app, ada);
  t.match(payments, [{ id: 'in_1', disputes: [{ id: 'dp_1', status: 'won' }] }]);
  t.equal(payments.length, 1);
});

t.test('events about refunds and disputes are deleted with the account', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const ada = await buyer();
  await deliver(
    eventOf('invoice.paid', 1, invoice(ada.customer, { charge: 'ch_1', payment_intent: 'pi_1' })),
  );
  await deliver(eventOf('charge.dispute.created', 3, dispute('needs_response')));
  const store = await storeOf(t, app);
  t.equal(await webhookEventCollection(store).count(), 2);
  const { accessToken: token } = ada;
  await app.request('POST', '/api/user/delete', { token, body: { password: PASSWORD } });
  t.equal(await webhookEventCollection(store).count(), 0);
  t.equal(await paymentCollection(store).count(), 0);
});

t.test('several events about one change of a subscription notify once', async (t) => {
  const { app, api, deliver, buyer, subscription } = await shop(t);
  const received = listen(app);
  const ada = await buyer();
  const truth = Object.assign(api.world.subscribe(ada.customer, ada.id, true), {
    status: 'trialing',
    trialEnd: null,
  });
  const tell = (what: string, at: number) => subscriptionEvent(what, at, subscriptionObject(truth));
  await deliver(tell('created', 0));
  truth.status = 'paused';
  await Promise.all([tell('paused', 1), tell('updated', 1), tell('updated', 2)].map(deliver));
  t.match(await subscription(ada), { status: 'paused', entitled: false });
  truth.status = 'active';
  await deliver(tell('resumed', 3));
  await deliver(tell('updated', 3));
  t.match(await subscription(ada), { status: 'active', entitled: true });
  truth.quantity = 90;
  await deliver(tell('pending_update_applied', 4));
  await deliver(tell('updated', 5));
  await deliver(tell('pending_update_expired', 6));
  t.match(await subscription(ada), { quantity: 90 });
  await names(received, 4);
  t.same(
    received.map(({ status }) => status),
    ['trialing', 'paused', 'active', 'active'],
  );
});

await onMongod((server) => {
  t.test('on MongoDB, concurrent events about one payment notify once', async (t) => {
    const { app, deliver, buyer } = await shop(t, { databaseUri: server.fresh(t) });
    const received = listen(app);
    const ada = await buyer();
    const events = Array.from({ length: 12 }, (_, index) =>
      index % 3 === 0
        ? eventOf('charge.refunded', 2, charge(ada.customer, 2900, { invoice: 'in_1' }))
        : eventOf(index % 3 === 1 ? 'invoice.paid' : 'invoice.payment_succeeded', 1, invoice(ada.customer)),
    );
    t.same(new Set(await Promise.all(events.map(deliver))), new Set(['processed']));
    t.same((await names(received, 2)).sort(), ['invoice.paid', 'payment.refunded']);
    t.match(await paymentsOf(app, ada), [{ id: 'in_1', status: 'paid', refundedAmount: 2900 }]);
  });
});
