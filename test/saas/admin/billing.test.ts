import t from 'tap';
import {
  customerCollection,
  paymentEventCollection,
  subscriptionCollection,
} from '../../../src/saas/billing/store.js';
import { auditOf, type SaasApp, SECRETS, storeOf } from '../../kit/app.js';
import { eventOf, insertOrganization, items, shop, subscriptionEvent } from '../billing/kit.js';
import { follow, sendForm, submit } from './kit.js';

/** Subscriptions, payments and events of the payment provider in the admin area. */

const get = (app: SaasApp, path: string) => app.admin('GET', path);
const itemsOf = async (app: SaasApp, path: string) => (await get(app, path)).body.data.items;

const post = (app: SaasApp, path: string, body: object = {}) => app.admin('POST', path, body);

/** Without a customer, as in the specification's example; without an API key, nothing else is known about it. */
const unknownSubscription = (more: object = {}) =>
  subscriptionEvent('created', 0, { id: 'sub_9', status: 'active', ...more });

t.test('the operator lists subscriptions by status, user and ID', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const ada = await buyer();
  const bob = await buyer();
  const priced = { items: items() };
  const events = [
    subscriptionEvent('created', 1, { id: 'sub_1', customer: ada.customer, status: 'active', ...priced }),
    subscriptionEvent('created', 2, { id: 'sub_2', customer: bob.customer, status: 'past_due', ...priced }),
  ];
  for (const event of events) t.equal(await deliver(event), 'processed');
  const ids = async (query: string) =>
    (await itemsOf(app, `/admin/api/subscriptions?${query}`)).map(({ id }: { id: string }) => id).sort();
  t.same(await ids(''), ['sub_1', 'sub_2']);
  t.same(await ids('status=past_due'), ['sub_2']);
  t.same(await ids('status=unpaid'), []);
  t.same(await ids(`q=${ada.id}`), ['sub_1']);
  t.same(await ids(`q=${encodeURIComponent(bob.email.toUpperCase())}`), ['sub_2']);
  t.same(await ids('q=sub_2'), ['sub_2']);
  t.same(await ids('q=nobody@example.test'), []);
  t.equal((await get(app, '/admin/api/subscriptions?status=sold')).status, 400);
  const [first] = await itemsOf(app, '/admin/api/subscriptions?q=sub_1');
  t.match(first, { ownerId: ada.id, email: ada.email, plan: 'pro', status: 'active', dashboardUrl: null });
  const { text } = await get(app, '/admin/subscriptions');
  t.match(text, ada.email);
  t.match(text, 'past_due');
});

t.test(
  'of a subscription that has ended, the operator sees when and why, and no later end of its period',
  async (t) => {
    const { app, deliver, buyer } = await shop(t);
    const { customer, id } = await buyer();
    const [start, end] = [Date.UTC(2040, 0, 1) / 1000, Date.UTC(2040, 0, 31) / 1000];
    const period = { current_period_start: start, current_period_end: end };
    const reason = { cancellation_details: { reason: 'cancellation_requested' } };
    const object = { id: 'sub_1', customer, status: 'canceled', ended_at: start + 60, ...period, ...reason };
    t.equal(await deliver(subscriptionEvent('deleted', 60, object)), 'processed');
    t.match(await itemsOf(app, `/admin/api/subscriptions?q=${id}`), [
      { endedAt: '2040-01-01T00:01:00.000Z', cancellationReason: 'cancellation_requested' },
    ]);
    const { text } = await get(app, '/admin/subscriptions');
    t.match(text, 'datetime="2040-01-01T00:01:00.000Z"');
    t.notMatch(text, '2040-01-31');
  },
);

t.test('the operator lists payments with amounts in their currency', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const { customer, id } = await buyer();
  const invoice = { customer, currency: 'jpy', attempt_count: 1 };
  const paid = eventOf('invoice.paid', 1, { ...invoice, id: 'in_1', amount_paid: 1200, status: 'paid' });
  const failed = eventOf('invoice.payment_failed', 2, {
    ...invoice,
    id: 'in_2',
    currency: 'eur',
    amount_due: 2900,
    status: 'open',
  });
  for (const event of [paid, failed]) await deliver(event);
  const payments = await itemsOf(app, `/admin/api/payments?q=${id}`);
  t.match(payments, [
    { id: 'in_2', status: 'failed', amount: 2900, currency: 'eur' },
    { id: 'in_1', status: 'paid', amount: 1200, currency: 'jpy' },
  ]);
  const { text } = await get(app, '/admin/payments');
  t.match(text, '€29.00');
  t.match(text, '¥1,200');
  t.same(
    (await itemsOf(app, '/admin/api/payments?status=failed')).map(({ id }: { id: string }) => id),
    ['in_2'],
  );
});

t.test(
  'the page of an event shows its body, also after its completion, as the provider has it',
  async (t) => {
    const { app, api, deliver, buyer } = await shop(t);
    const { customer } = await buyer();
    const event = subscriptionEvent('created', 1, { id: 'sub_1', customer, status: 'active' });
    await deliver(event);
    const gone = await get(app, `/admin/webhooks/${event.id}`);
    t.equal(gone.status, 200);
    api.world.events.push(event);
    t.match((await get(app, `/admin/webhooks/${event.id}`)).text, 'customer.subscription.created&quot;');
    api.fault = () => ({ status: 500, body: '{}' });
    t.equal((await get(app, `/admin/webhooks/${event.id}`)).status, 200, 'without its body');
    t.equal((await get(app, '/admin/webhooks/evt_none')).status, 404);
    t.equal((await get(app, '/admin/webhooks/%00')).status, 400);
  },
);

t.test('a replayed event is applied again, and its body is not lost by a crash', async (t) => {
  const { app, api, deliver, buyer, subscription } = await shop(t);
  const ada = await buyer();
  const event = subscriptionEvent('created', 1, { id: 'sub_1', customer: ada.customer, status: 'active' });
  await deliver(event);
  const path = `/admin/api/webhooks/${event.id}/replay`;
  t.match((await post(app, path)).body.error, { code: 'EVENT_BODY_UNAVAILABLE' });
  api.world.events.push(event);
  const store = await storeOf(t, app);
  await subscriptionCollection(store).deleteOne({ id: 'sub_1' });
  t.equal((await post(app, path)).status, 200);
  t.match(await subscription(ada), { status: 'active' });
  t.match((await auditOf(store)).at(-1), {
    event: 'webhook.replayed',
    subject: undefined,
    by: SECRETS.adminUsername,
    detail: JSON.stringify({ id: event.id, before: 'processed', after: 'processed' }),
  });
  const events = paymentEventCollection(store);
  t.match(await events.findOne({ id: event.id }), { outcome: 'processed', attempts: 2 });
  await events.updateOne(
    { id: event.id },
    { set: { leaseUntil: app.clock.now() + 30_000 }, unset: ['outcome'] },
  );
  t.match((await post(app, path)).body.error, { code: 'EVENT_IN_PROGRESS' }, 'another worker has it');
});

t.test(
  'an unmatched event is assigned to a user, and so are later events of the same customer',
  async (t) => {
    const { app, deliver, buyer, subscription } = await shop(t);
    const ada = await buyer();
    const event = unknownSubscription({ customer: 'cus_other' });
    const update = subscriptionEvent('updated', 2, {
      id: 'sub_9',
      customer: 'cus_other',
      status: 'past_due',
    });
    t.equal(await deliver(event), 'unmatched');
    t.equal(await deliver(update), 'unmatched');
    const path = `/admin/api/webhooks/${event.id}/assign`;
    const unknown = await post(app, path, { user: 'nobody@example.test' });
    t.match(unknown.body.error, { code: 'VALIDATION_ERROR', details: [{ path: 'user' }] });
    t.equal((await post(app, path)).status, 400);
    t.equal((await post(app, path, { user: ada.email })).status, 200);
    t.match(await subscription(ada), { status: 'past_due' }, 'the other unmatched event was applied as well');
    const later = subscriptionEvent('updated', 3, { id: 'sub_9', customer: 'cus_other', status: 'active' });
    t.equal(await deliver(later), 'processed');
    t.match((await post(app, path, { user: ada.id })).body.error, { code: 'EVENT_ALREADY_MATCHED' });
  },
);

t.test('an unmatched event is assigned to an organization', async (t) => {
  const { app, deliver } = await shop(t);
  const store = await storeOf(t, app);
  await insertOrganization(store, 'org_1');
  const event = unknownSubscription({ customer: 'cus_other' });
  t.equal(await deliver(event), 'unmatched');
  const path = `/admin/api/webhooks/${event.id}/assign`;
  t.equal((await post(app, path, { user: 'org_2' })).status, 404);
  t.equal((await post(app, path, { user: 'org_1' })).status, 200);
  t.equal(await customerCollection(store).count({ id: 'cus_other', ownerId: 'org_1' }), 1);
});

t.test('an event that names no customer is assigned by its subscription', async (t) => {
  const { app, deliver, subscription } = await shop(t, { paymentSecretKey: undefined as never });
  const ada = await app.signUp();
  const event = unknownSubscription();
  t.equal(await deliver(event), 'unmatched');
  t.equal((await post(app, `/admin/api/webhooks/${event.id}/assign`, { user: ada.id })).status, 200);
  t.match(await subscription(ada), { status: 'active' });
});

t.test(
  'the confirmation page of an action keeps what was typed and says what is wrong with it',
  async (t) => {
    const { app, deliver } = await shop(t);
    const event = unknownSubscription();
    await deliver(event);
    const path = `/admin/webhooks/${event.id}/assign`;
    const wrong = await submit(app, path, { user: 'nobody@example.test' });
    t.equal(wrong.status, 400);
    t.match(wrong.text, /role="alert"[\s\S]*value="nobody@example.test"/);
    const { email: user } = await app.signUp();
    const right = await submit(app, path, { user });
    t.equal(right.status, 303);
    t.match((await follow(app, path, right)).text, 'role="status"');
    t.equal((await sendForm(app, path, { user })).status, 403, 'without a token');
  },
);
