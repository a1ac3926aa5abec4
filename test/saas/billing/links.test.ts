import t from 'tap';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { purchaseCollection } from '../../../src/saas/billing/purchases.js';
import {
  customerCollection,
  paymentCollection,
  paymentEventCollection,
  subscriptionCollection,
} from '../../../src/saas/billing/store.js';
import { type Account, type SaasApp, storeOf } from '../../kit/app.js';
import { waitUntil } from '../../kit/wait.js';
import { eventOf, shop, subscriptionEvent } from './kit.js';

/** Purchases outside of the API's own checkout: which user they belong to, and one-time purchases. */

const sub = (customer: string, more: Json = {}): Json => ({
  id: 'sub_1',
  customer,
  status: 'active',
  items: { data: [{ quantity: 1, price: { id: 'price_pro', lookup_key: 'pro' } }] },
  ...more,
});

const session = (more: Json): Json => ({
  id: 'cs_1',
  object: 'checkout.session',
  mode: 'subscription',
  status: 'complete',
  payment_status: 'paid',
  customer: null,
  client_reference_id: null,
  metadata: {},
  ...more,
});

const paidOnce = (more: Json): Json =>
  session({ mode: 'payment', amount_total: 4900, currency: 'eur', payment_intent: 'pi_1', ...more });

const refund = (customer: string | null, amount_refunded: number): Json => ({
  id: 'ch_1',
  customer,
  payment_intent: 'pi_1',
  amount: 4900,
  amount_refunded,
  currency: 'eur',
  created: Date.UTC(2040, 0, 1) / 1000,
});

const PLANS = {
  plans: { lifetime: { prices: ['price_once'], purchase: true }, pro: { prices: ['price_pro'] } },
};

async function purchasesOf(app: SaasApp, { accessToken: token }: Account): Promise<Json[]> {
  return (await app.request('GET', '/api/billing/purchases', { token })).body.data.purchases;
}

/** The subscription in the user's record. */
const profileOf = async (app: SaasApp, { accessToken: token }: Account): Promise<Json> =>
  (await app.request('GET', '/api/user/profile', { token })).body.data.subscription;

t.test('what names our user links the customer and releases the events waiting for it', async (t) => {
  const { app, deliver, subscription } = await shop(t);
  const customer = (userId?: string) => ({
    id: 'cus_1',
    object: 'customer',
    email: 'person1@example.test',
    metadata: userId === undefined ? {} : { userId },
  });
  t.equal(await deliver(subscriptionEvent('created', 0, sub('cus_1'))), 'unmatched');
  t.equal(await deliver(subscriptionEvent('created', 0, sub('cus_2', { id: 'sub_2' }))), 'unmatched');
  const [ada, eve] = [await app.signUp(), await app.signUp()];
  t.equal(await deliver(eventOf('customer.created', 0, customer())), 'ignored', 'an e-mail address does not');
  t.match(await subscription(ada), { status: 'none' });
  t.equal(await deliver(eventOf('customer.updated', 1, customer(ada.id))), 'processed');
  t.match(await subscription(ada), { status: 'active', plan: 'pro' });
  const ofLink = (reference: string) => {
    const link = session({ customer: 'cus_2', subscription: 'sub_2', client_reference_id: reference });
    return deliver(eventOf('checkout.session.completed', 1, link));
  };
  t.equal(await ofLink('usr_nobody'), 'unmatched');
  t.equal(await ofLink('ünknown id'), 'unmatched');
  t.equal(await ofLink(eve.id), 'processed');
  t.match(await subscription(eve), { status: 'active', plan: 'pro' });
});

t.test('a reference links no customer of another user and moves no link', async (t) => {
  const { app, deliver, buyer, subscription, leave } = await shop(t);
  const [ada, eve] = [await buyer(), await app.signUp()];
  const forged = session({ customer: ada.customer, client_reference_id: eve.id });
  t.equal(await deliver(eventOf('checkout.session.completed', 1, forged)), 'processed');
  const store = await storeOf(t, app);
  t.equal(await customerCollection(store).count({ ownerId: eve.id }), 0);
  t.match(await customerCollection(store).findOne({ id: ada.customer }), { ownerId: ada.id });

  // Eve pays with the ID of Ada, who has a customer: Ada keeps that customer and receives the subscription.
  const gift = session({ id: 'cs_2', customer: 'cus_eve', client_reference_id: ada.id });
  t.equal(await deliver(eventOf('checkout.session.completed', 2, gift)), 'processed');
  t.equal(await deliver(subscriptionEvent('created', 2, sub('cus_eve'))), 'processed');
  t.match(await subscription(ada), { status: 'active' });
  t.match(await subscription(eve), { status: 'none' });
  t.match(await customerCollection(store).findOne({ id: ada.customer }), { ownerId: ada.id });
  t.match(await customerCollection(store).findOne({ id: 'cus_eve' }), { ownerId: ada.id });
  const again = session({ id: 'cs_3', customer: 'cus_eve', client_reference_id: eve.id });
  await deliver(eventOf('checkout.session.completed', 3, again));
  t.match(await customerCollection(store).findOne({ id: 'cus_eve' }), { ownerId: ada.id });
  t.equal(await customerCollection(store).count({ ownerId: eve.id }), 0);

  await leave(ada);
  t.equal(await customerCollection(store).count(), 0);
  t.equal(await paymentEventCollection(store).count({ about: 'cus_eve' }), 0);
});

t.test('a sync and a deletion reach every linked customer, however many there are', async (t) => {
  const { app, buyer, subscribe, subscription, leave, post } = await shop(t);
  const ada = await buyer();
  const store = await storeOf(t, app);
  const linked = customerCollection(store);
  const ids = Array.from({ length: 30 }, (_, index) => `cus_more_${String(index).padStart(2, '0')}`);
  for (const id of ids) await linked.insert({ id, ownerId: ada.id, createdAt: 1 });
  const truths = ids.map((customer) => subscribe({ ...ada, customer }, { isSigned: false }));
  t.equal((await post(ada, '/billing/sync')).status, 200);
  t.equal(await subscriptionCollection(store).count({ ownerId: ada.id }), ids.length);
  t.match(await subscription(ada), { entitled: true });

  // Deletion must not depend on the subscriptions that were stored.
  await subscriptionCollection(store).deleteMany({ ownerId: ada.id });
  t.equal((await leave(ada)).status, 200);
  t.same(new Set(truths.map(({ status }) => status)), new Set(['canceled']));
});

t.test(
  'of several customers the one with a running subscription is used, and the invoices of all are listed',
  async (t) => {
    const { app, api, buyer, buy, subscribe, post } = await shop(t);
    const ada = await buyer();
    await customerCollection(await storeOf(t, app)).insert({ id: 'cus_2', ownerId: ada.id, createdAt: 2 });
    const running = subscribe({ ...ada, customer: 'cus_2' }, { price: 'price_pro' });
    const created = api.world.now;
    for (const [index, customer] of [ada.customer, 'cus_2'].entries())
      api.invoices.push({ id: `in_${index}`, customer, status: 'paid', created: created + index });
    t.equal((await post(ada, '/billing/sync')).status, 200);
    const { body } = await app.request('GET', '/api/billing/invoices', { token: ada.accessToken });
    t.same(
      body.data.map(({ id }: Json) => id),
      ['in_1', 'in_0'],
    );
    const customerOf = (path: string) =>
      api.calls.findLast((call) => call.path === path)?.form.get('customer');
    await post(ada, '/billing/create-portal-session', {});
    t.equal(customerOf('/v1/billing_portal/sessions'), 'cus_2');
    await buy(ada, { mode: 'setup' });
    t.equal(customerOf('/v1/checkout/sessions'), 'cus_2');
    Object.assign(running, { status: 'canceled' });
    await post(ada, '/billing/sync');
    await post(ada, '/billing/create-portal-session', {});
    t.equal(customerOf('/v1/billing_portal/sessions'), 'cus_2', 'none is running: the first one');
  },
);

t.test('a sync finds customers by their metadata, and by the session of a Payment Link', async (t) => {
  const { app, api, subscribe, post } = await shop(t);
  const [ada, eve] = [await app.signUp(), await app.signUp()];
  const sync = (account: Account, body?: object) => post(account, '/billing/sync', body);
  subscribe({ ...ada, customer: 'cus_found' }, { isSigned: false });
  t.match((await sync(ada)).body.data, { status: 'none' });
  (api.customers as Map<string, Json>).set('by hand', { id: 'cus_found', metadata: { userId: ada.id } });
  t.match((await sync(ada)).body.data, { status: 'active', entitled: true });

  subscribe({ ...eve, customer: 'cus_link' }, { isSigned: false });
  const link = session({ id: 'cs_link', customer: 'cus_link', client_reference_id: eve.id });
  api.sessions.set('cs_link', link);
  t.equal((await sync(ada, { sessionId: 'cs_link' })).status, 404);
  t.match((await sync(eve, { sessionId: 'cs_link' })).body.data, { status: 'active' });
  const theirs = session({ id: 'cs_theirs', customer: 'cus_found', client_reference_id: eve.id });
  api.sessions.set('cs_theirs', theirs);
  const denied = await sync(eve, { sessionId: 'cs_theirs' });
  t.equal(denied.status, 404, 'its customer belongs to another user');
  t.match(await customerCollection(await storeOf(t, app)).findOne({ id: 'cus_found' }), { ownerId: ada.id });
  api.fault = ({ path }) => (path.includes('search') ? { status: 500, body: '{}' } : undefined);
  t.equal((await sync(await app.signUp())).status, 502);
});

t.test('a one-time purchase is recorded, listed, exported and deleted', async (t) => {
  const { app, api, deliver, buyer, subscription, heard, exported, leave } = await shop(t, {
    billing: PLANS,
  });
  const received = heard('purchase.completed');
  const ada = await buyer();
  api.lineItems.set('cs_1', [{ quantity: 1, price: { id: 'price_once', lookup_key: null } }]);
  const paid = paidOnce({ customer: ada.customer });
  t.equal(await deliver(eventOf('checkout.session.completed', 1, paid)), 'processed');
  t.equal(await deliver(eventOf('checkout.session.completed', 1, paid)), 'processed', 'under another ID');
  t.same(await purchasesOf(app, ada), [
    {
      id: 'cs_1',
      status: 'paid',
      plan: 'lifetime',
      items: [{ priceId: 'price_once', quantity: 1 }],
      amount: 4900,
      currency: 'eur',
      refundedAmount: 0,
      refundableAmount: 4900,
      purchasedAt: '2040-01-01T00:00:01.000Z',
    },
  ]);
  await waitUntil('the notification', () => received.length > 0);
  t.equal(received.length, 1);
  t.match(received, [
    { purchaseId: 'cs_1', userId: ada.id, plan: 'lifetime', amount: 4900, currency: 'eur' },
  ]);
  t.match(await subscription(ada), {
    status: 'active',
    plan: 'lifetime',
    entitled: true,
    priceId: 'price_once',
  });
  t.ok(await app.server.fastify.saas.entitles(ada.id, 'lifetime'));
  const profile = () => profileOf(app, ada);
  t.same(await profile(), { status: 'active', plan: 'lifetime', entitled: true });

  await deliver(eventOf('charge.refunded', 2, refund(ada.customer, 900)));
  t.match(await purchasesOf(app, ada), [{ status: 'paid', refundedAmount: 900, refundableAmount: 4000 }]);
  t.match(await profile(), { entitled: true });
  await deliver(eventOf('charge.refunded', 3, refund(ada.customer, 4900)));
  t.match(await purchasesOf(app, ada), [{ status: 'refunded', refundedAmount: 4900, refundableAmount: 0 }]);
  t.same(await profile(), { status: 'none', plan: 'free', entitled: false });
  t.notOk(await app.server.fastify.saas.entitles(ada.id));

  const { purchases, payments } = (await exported(ada)).billing;
  t.match(purchases, [{ id: 'cs_1', status: 'refunded' }]);
  t.match(payments, [{ id: 'pi_1', refundedAmount: 4900 }]);
  await leave(ada);
  const store = await storeOf(t, app);
  t.equal(await purchaseCollection(store).count(), 0);
  t.equal(await paymentCollection(store).count(), 0);
  t.equal(await paymentEventCollection(store).count(), 0);
});

const disputeOf = (intent: string, status: string): Json => ({
  id: `dp_${intent}`,
  object: 'dispute',
  charge: `ch_${intent}`,
  payment_intent: intent,
  // The exchange rate has changed since.
  amount: 4700,
  currency: 'eur',
  status,
});

t.test('a lost dispute ends the access of a one-time purchase, before and after its payment', async (t) => {
  const { app, api, deliver, buyer, subscription, heard, runJobs } = await shop(t, { billing: PLANS });
  const received = heard('payment.dispute_closed');
  for (const status of ['won', 'warning_closed', 'lost'])
    for (const isEarly of [false, true]) {
      const ada = await buyer();
      const name = `${status}_${isEarly}`;
      const [id, intent] = [`cs_${name}`, `pi_${name}`];
      api.lineItems.set(id, [{ quantity: 1, price: { id: 'price_once' } }]);
      const paid = paidOnce({ id, customer: ada.customer, payment_intent: intent });
      const purchase = eventOf('checkout.session.completed', 1, paid);
      const closed = eventOf('charge.dispute.closed', 3, disputeOf(intent, status));
      for (const event of isEarly ? [closed, purchase] : [purchase, closed]) await deliver(event);
      if (isEarly) await runJobs(PLANS);
      const isKept = status !== 'lost';
      t.match(await subscription(ada), { entitled: isKept }, name);
      t.equal(await app.server.fastify.saas.entitles(ada.id, 'lifetime'), isKept, name);
      const expected = isKept
        ? { status: 'paid', refundableAmount: 4900 }
        : { status: 'refunded', refundableAmount: 0 };
      t.match(await purchasesOf(app, ada), [{ ...expected, refundedAmount: 0 }], name);
    }
  await waitUntil('the notifications', () => received.length >= 3);
  t.match(new Set(received.map(({ status }) => status)), new Set(['won', 'warning_closed', 'lost']));
});

t.test('a lost dispute ends the access once it is assigned to the invoice of the purchase', async (t) => {
  const { app, api, deliver, buyer } = await shop(t, { billing: PLANS });
  const ada = await buyer();
  const profile = () => profileOf(app, ada);
  api.lineItems.set('cs_1', [{ quantity: 1, price: { id: 'price_once' } }]);
  const paid = paidOnce({ customer: ada.customer, payment_intent: null, invoice: 'in_1' });
  await deliver(eventOf('checkout.session.completed', 1, paid));
  const { customer } = ada;
  api.fault = () => ({ status: 500, body: '{}' });
  await deliver(
    eventOf('charge.dispute.closed', 3, { ...disputeOf('pi_1', 'lost'), charge: { id: 'ch_1', customer } }),
  );
  t.match(await profile(), { status: 'active', entitled: true });
  const invoice = { id: 'in_1', customer, payment_intent: 'pi_1', amount_paid: 4900, currency: 'eur' };
  await deliver(eventOf('invoice.paid', 2, invoice));
  t.match(await profile(), { status: 'none', entitled: false });
  t.match(await purchasesOf(app, ada), [{ status: 'refunded' }]);
});

t.test('a lost dispute about a subscription leaves the status to the provider', async (t) => {
  const { app, deliver, buyer, subscription } = await shop(t);
  const ada = await buyer();
  await deliver(subscriptionEvent('created', 0, sub(ada.customer)));
  const invoice = { id: 'in_1', customer: ada.customer, subscription: 'sub_1', payment_intent: 'pi_1' };
  await deliver(eventOf('invoice.paid', 1, { ...invoice, amount_paid: 4900, currency: 'eur' }));
  await deliver(eventOf('charge.dispute.closed', 3, disputeOf('pi_1', 'lost')));
  t.match(await subscription(ada), { status: 'active', entitled: true });
  await deliver(subscriptionEvent('deleted', 4, sub(ada.customer, { status: 'canceled' })));
  t.match(await subscription(ada), { status: 'canceled', entitled: false });
  t.ok(await app.server.fastify.saas.entitles(ada.id).then((entitled) => !entitled));
});

t.test('a refund that arrives before its purchase ends in the same state', async (t) => {
  const { app, api, deliver, buyer, subscription, runJobs } = await shop(t, { billing: PLANS });
  for (const isKnown of [true, false]) {
    const ada = await buyer();
    const customer = isKnown ? ada.customer : null;
    const id = `cs_${isKnown}`;
    const intent = `pi_${isKnown}`;
    api.lineItems.set(id, [{ quantity: 2, price: { id: 'price_once' } }]);
    const early = { ...refund(customer, 4900), id: `ch_${isKnown}`, payment_intent: intent };
    t.equal(await deliver(eventOf('charge.refunded', 2, early)), isKnown ? 'processed' : 'unmatched');
    const paid = paidOnce({ id, customer, client_reference_id: ada.id, payment_intent: intent });
    t.equal(await deliver(eventOf('checkout.session.completed', 1, paid)), 'processed');
    await runJobs();
    t.match(await purchasesOf(app, ada), [{ id, status: 'refunded', refundedAmount: 4900 }]);
    t.match(await subscription(ada), { status: 'none', entitled: false });
  }
});

t.test('a payment that is confirmed later completes its purchase, in any order', async (t) => {
  const { app, api, deliver, buyer, heard } = await shop(t, { billing: PLANS });
  const received = heard('purchase.completed');
  for (const [result, isLate] of [
    ['succeeded', false],
    ['succeeded', true],
    ['failed', false],
    ['failed', true],
  ] as const) {
    const ada = await buyer();
    const id = `cs_${result}_${isLate}`;
    api.lineItems.set(id, [{ quantity: 1, price: { id: 'price_once' } }]);
    const base = { id, customer: ada.customer, payment_intent: `pi_${id}` };
    const events = [
      eventOf('checkout.session.completed', 1, paidOnce({ ...base, payment_status: 'unpaid' })),
      eventOf(
        `checkout.session.async_payment_${result}`,
        5,
        paidOnce({ ...base, payment_status: result === 'failed' ? 'unpaid' : 'paid' }),
      ),
    ];
    const [first, second] = isLate ? events.toReversed() : events;
    await deliver(first as Json);
    if (!isLate) t.match(await purchasesOf(app, ada), [{ status: 'pending', refundableAmount: 0 }]);
    await deliver(second as Json);
    const status = result === 'failed' ? 'failed' : 'paid';
    t.match(await purchasesOf(app, ada), [{ status, purchasedAt: '2040-01-01T00:00:05.000Z' }]);
    t.equal(await app.server.fastify.saas.entitles(ada.id, 'lifetime'), result === 'succeeded');
  }
  await waitUntil('the notifications', () => received.length >= 2);
  t.equal(received.length, 2);
});

t.test(
  'items that could not be fetched are fetched later; a sync records a purchase before its event',
  async (t) => {
    const { app, api, deliver, buyer, post, runJobs } = await shop(t, { billing: PLANS });
    const ada = await buyer();
    api.lineItems.set('cs_1', [{ quantity: 1, price: { id: 'price_once' } }]);
    api.sessions.set('cs_1', paidOnce({ customer: ada.customer, client_reference_id: ada.id }));
    api.fault = ({ path }) => (path.endsWith('line_items') ? { status: 500, body: '{}' } : undefined);
    t.equal((await post(ada, '/billing/sync', { sessionId: 'cs_1' })).status, 200);
    t.match(await purchasesOf(app, ada), [{ status: 'paid', plan: null, items: [], amount: 4900 }]);
    t.equal(
      await deliver(eventOf('checkout.session.completed', 1, paidOnce({ customer: ada.customer }))),
      'processed',
    );
    api.fault = () => undefined;
    await runJobs();
    t.match(await purchasesOf(app, ada), [{ items: [{ priceId: 'price_once', quantity: 1 }] }]);
  },
);

t.test('purchases are listed a page at a time, to their user only', async (t) => {
  const { app } = await shop(t);
  const [ada, eve] = [await app.signUp(), await app.signUp()];
  const purchases = purchaseCollection(await storeOf(t, app));
  for (let number = 0; number < 101; number++) {
    const common = { ownerId: ada.id, status: 'pending' as const, plan: 'unknown', rev: 1 };
    const id = `cs_${number}`;
    await purchases.insert({ id, paymentId: id, items: [], ...common, at: 1000 + number, createdAt: 1 });
  }
  const page = async (account: Account, query = '') => {
    const { accessToken: token } = account;
    return (await app.request('GET', `/api/billing/purchases${query}`, { token })).body;
  };
  const { data } = await page(ada);
  t.equal(data.purchases.length, 100);
  t.equal(data.purchases[0].id, 'cs_100');
  const rest = await page(ada, `?after=${encodeURIComponent(data.next)}`);
  t.match(rest.data, { purchases: [{ id: 'cs_0' }], next: null });
  t.equal((await page(ada, '?after=x')).error.code, 'VALIDATION_ERROR');
  t.same((await page(eve)).data, { purchases: [], next: null });
});
