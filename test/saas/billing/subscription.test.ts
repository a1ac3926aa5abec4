import fastify from 'fastify';
import t from 'tap';
import { DAY, SECOND } from '../../../src/core/kernel/clock.js';
import { saasBackend } from '../../../src/index.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { isEntitled } from '../../../src/saas/billing/entitlement.js';
import { formatAmount } from '../../../src/saas/billing/notifications.js';
import { createCatalog } from '../../../src/saas/billing/plans/catalog.js';
import { createPlans } from '../../../src/saas/billing/plans/plans.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import {
  customerCollection,
  paymentCollection,
  subscriptionCollection,
  webhookEventCollection,
} from '../../../src/saas/billing/store.js';
import { PASSWORD, type SaasApp, SECRETS, storeOf, testOptions } from '../../kit/app.js';
import { runJobs } from '../../kit/billing.js';
import { fakeClock } from '../../kit/clock.js';
import { storedValues } from '../../kit/mail.js';
import type { ProviderCall } from '../../kit/stripe.js';
import { subscriptionObject, VERSIONS } from '../../kit/stripe-objects.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { holdNext, invoiceEvent, KEY, secondProcess, shop, signUpAt, subscriptionEvent } from './kit.js';

/** Items in the provider's format. */
const items = (price = 'price_pro', lookup_key: string | null = 'pro') => ({
  data: [{ quantity: 1, price: { id: price, lookup_key }, current_period_end: 2_209_000_000 }],
});

/** Permutations in any order. */
function ordersOf<T>(things: T[]): T[][] {
  if (things.length < 2) return [things];
  return things.flatMap((first, index) =>
    ordersOf(things.toSpliced(index, 1)).map((rest) => [first, ...rest]),
  );
}

const rowOf = async (t: Parameters<typeof storeOf>[0], app: SaasApp, id: string) =>
  subscriptionCollection(await storeOf(t, app)).findOne({ id });

interface Mail {
  id: string;
  key: string;
  to: string;
  template: string;
  values: Record<string, string>;
}

/** The e-mails in the outbox, optionally of one kind. */
async function mailsOf(t: Parameters<typeof storeOf>[0], app: SaasApp, template?: string): Promise<Mail[]> {
  const mails = (await storeOf(t, app)).collection<Mail>('mails', {
    unique: ['key'],
    indexes: [['dueAt' as never], ['endedAt' as never]],
    fields: ['attempts' as never, 'status' as never],
  });
  const { items: all } = await mails.page({ sort: 'id', limit: 50 });
  return all
    .map((mail) => ({ ...mail, values: storedValues(mail, SECRETS.jwtRefreshSecret) }))
    .filter((mail) => template === undefined || mail.template === template);
}

t.test('a subscription is followed from checkout to its end', async (t) => {
  const { app, api, deliver, buyer, subscription } = await shop(t);
  const { world } = api;
  const ada = await buyer();
  t.same(await subscription(ada), {
    status: 'none',
    plan: 'free',
    entitled: false,
    ...Object.fromEntries(
      'priceId quantity currentPeriodStart currentPeriodEnd trialEnd cancelAtPeriodEnd cancelAt canceledAt endedAt updatedAt'
        .split(' ')
        .map((name) => [name, null]),
    ),
    items: [],
    scheduledChange: null,
    collectionPause: null,
    discounts: [],
    granted: null,
    features: [],
    limits: {},
  });
  for (const version of VERSIONS) {
    const bought = world.subscribe(ada.customer, ada.id, false);
    Object.assign(bought, { version, status: 'active', price: 'price_pro', quantity: 3, trialEnd: null });
    const object = subscriptionObject(bought);
    t.equal(await deliver(subscriptionEvent('created', 0, object)), 'processed');
    t.same(await subscription(ada), {
      status: 'active',
      plan: 'pro',
      entitled: true,
      priceId: 'price_pro',
      quantity: 3,
      currentPeriodStart: '2040-01-01T00:00:00.000Z',
      currentPeriodEnd: '2040-01-31T00:00:00.000Z',
      trialEnd: null,
      cancelAtPeriodEnd: false,
      cancelAt: null,
      canceledAt: null,
      endedAt: null,
      updatedAt: '2040-01-01T00:00:00.000Z',
      items: [{ priceId: 'price_pro', plan: 'pro', quantity: 3 }],
      scheduledChange: null,
      collectionPause: null,
      discounts: [],
      granted: null,
      features: [],
      limits: {},
    });
    const me = async () => (await app.request('GET', '/api/auth/me', { token: ada.accessToken })).body.data;
    t.same((await me()).user.subscription, { status: 'active', plan: 'pro', entitled: true });
    const ended = { ...object, status: 'canceled', ended_at: world.now + 5, canceled_at: world.now + 5 };
    t.equal(await deliver(subscriptionEvent('deleted', 5, ended)), 'processed');
    t.match(await subscription(ada), {
      status: 'canceled',
      plan: 'pro',
      entitled: false,
      endedAt: '2040-01-01T00:00:05.000Z',
    });
    t.same((await me()).user.subscription, { status: 'canceled', plan: 'free', entitled: false });
  }
});

t.test('the minimal body of the specification changes the status and nothing else', async (t) => {
  const { app, deliver, subscription } = await shop(t, { paymentSecretKey: undefined as never });
  const ada = await app.signUp();
  const object = { id: 'sub_1', status: 'active', metadata: { userId: ada.id }, items: items() };
  t.equal(await deliver({ type: 'customer.subscription.created', data: { object } }), 'processed');
  const before = await subscription(ada);
  t.match(before, { status: 'active', plan: 'pro', entitled: true });
  for (const status of ['past_due', 'active', 'unpaid', 'brand_new']) {
    const body = { type: 'customer.subscription.updated', data: { object: { id: 'sub_1', status } } };
    t.equal(await deliver(body), 'processed');
    t.same(await subscription(ada), { ...before, status, entitled: ['active', 'past_due'].includes(status) });
  }
  t.equal(
    await deliver({
      type: 'customer.subscription.deleted',
      data: { object: { id: 'sub_1', status: 'active' } },
    }),
    'processed',
  );
  // An event with the same content and the same second is the same event.
  app.clock.advance(1000);
  const late = { type: 'customer.subscription.updated', data: { object: { id: 'sub_1', status: 'active' } } };
  t.equal(await deliver(late), 'stale', 'terminal never leaves');
  t.match(await subscription(ada), { status: 'canceled', plan: 'pro', priceId: 'price_pro' });
});

t.test(
  'events a second apart have the same result in any order, without a call to the provider',
  async (t) => {
    const { app, deliver, buyer, subscription, api } = await shop(t);
    const life = (id: string, customer: string): Json[] => {
      const object = {
        ...{ id, customer, created: api.world.now, items: items() },
        cancel_at_period_end: false,
      };
      return [
        subscriptionEvent('created', 0, { ...object, status: 'incomplete' }),
        subscriptionEvent('updated', 1, { ...object, status: 'active' }, { status: 'incomplete' }),
        subscriptionEvent(
          'updated',
          2,
          { ...object, status: 'past_due', cancel_at_period_end: true },
          { status: 'active' },
        ),
        subscriptionEvent('deleted', 3, { ...object, status: 'canceled', ended_at: api.world.now + 3 }),
      ];
    };
    const calls = () => api.calls.filter(({ path }) => path.includes('/subscriptions')).length;
    for (const [index, order] of ordersOf([0, 1, 2, 3]).entries()) {
      const ada = await buyer();
      const events = life(`sub_${index}`, ada.customer);
      for (const place of order.slice(0, -1)) await deliver(events[place] as Json);
      if (order.at(-1) === 3) {
        const newest = { status: 'past_due', cancelAtPeriodEnd: true };
        t.match(await subscription(ada), newest, `${order.slice(0, -1)}, before the deletion`);
      }
      await deliver(events[order.at(-1) as number] as Json);
      t.match(
        await subscription(ada),
        { status: 'canceled', endedAt: '2040-01-01T00:00:03.000Z' },
        String(order),
      );
      const { body } = await app.request('GET', '/api/auth/me', { token: ada.accessToken });
      t.equal(body.data.user.subscription.status, 'canceled');
    }
    t.equal(calls(), 0);
  },
);

t.test(
  'the provider decides between events of one second; during an outage the last known state holds until a background sync',
  async (t) => {
    const { app, api, deliver, buyer } = await shop(t);
    const ada = await buyer();
    const truth = api.world.subscribe(ada.customer, ada.id, false);
    Object.assign(truth, { status: 'active', trialEnd: null });
    const object = (status: string) => ({ ...subscriptionObject(truth), status });
    await deliver(subscriptionEvent('updated', 0, object('active')));
    t.equal(
      await deliver(subscriptionEvent('updated', 0, object('past_due'), { status: 'trialing' })),
      'processed',
    );
    t.equal((await rowOf(t, app, truth.id))?.status, 'active', 'the provider says so');

    api.fault = () => ({ status: 500, body: '{}' });
    truth.status = 'unpaid';
    t.equal(
      await deliver(subscriptionEvent('updated', 0, object('past_due'), { status: 'active' })),
      'processed',
    );
    t.match(await rowOf(t, app, truth.id), { status: 'past_due', recheckAt: app.clock.now() }, 'it follows');
    t.equal(
      await deliver(subscriptionEvent('updated', 0, object('trialing'), { status: 'incomplete' })),
      'stale',
    );
    t.match(await rowOf(t, app, truth.id), { status: 'past_due' }, 'it comes before');
    t.equal(
      await deliver(subscriptionEvent('updated', 0, object('unpaid'), { status: 'active' })),
      'processed',
    );
    t.match(await rowOf(t, app, truth.id), { status: 'unpaid' }, 'neither follows: the later of the two');

    api.fault = () => undefined;
    truth.status = 'active';
    truth.quantity = 7;
    await runJobs(await secondProcess(t, { app, api }));
    t.match(await rowOf(t, app, truth.id), { status: 'active', quantity: 7 });
  },
);

t.test('an older event does not clear the pending sync that an invoice caused', async (t) => {
  const here = await shop(t);
  const { app, api, deliver, buyer } = here;
  const ada = await buyer();
  const truth = api.world.subscribe(ada.customer, ada.id, false);
  Object.assign(truth, { status: 'active', trialEnd: null });
  await deliver(subscriptionEvent('created', 0, subscriptionObject(truth)));
  const statusNow = async () => (await rowOf(t, app, truth.id))?.status;
  api.fault = () => ({ status: 400, body: '{}' });
  await deliver(invoiceEvent('failed', 7, { customer: ada.customer, subscription: truth.id }));
  t.equal(await deliver(subscriptionEvent('updated', 5, subscriptionObject(truth))), 'processed');
  t.equal(await statusNow(), 'past_due');
  api.fault = () => undefined;
  await runJobs(await secondProcess(t, here));
  t.equal(await statusNow(), 'active');
});

t.test('a subscription ended by an event of the same second needs no sync', async (t) => {
  const { app, api, deliver, buyer, subscription } = await shop(t);
  const ada = await buyer();
  const object = { id: 'sub_1', customer: ada.customer, items: items() };
  await deliver(subscriptionEvent('created', 0, { ...object, status: 'incomplete' }));
  api.fault = () => 'cut';
  const over = { ...object, status: 'incomplete_expired' };
  t.equal(await deliver(subscriptionEvent('updated', 0, over, { status: 'incomplete' })), 'processed');
  t.match(await subscription(ada), { status: 'incomplete_expired' });
  await runJobs(await secondProcess(t, { app, api }));
  t.equal((await rowOf(t, app, 'sub_1'))?.recheckAt, undefined, 'or the background would look for ever');
});

t.test('an invalid subscription from the provider does not clear a pending sync', async (t) => {
  const { app, api, deliver, buyer } = await shop(t);
  const ada = await buyer();
  const object = { id: 'sub_1', customer: ada.customer, items: items() };
  await deliver(subscriptionEvent('updated', 0, { ...object, status: 'active' }));
  const isMarked = async () => (await rowOf(t, app, 'sub_1'))?.recheckAt === app.clock.now();
  for (const body of ['{"id":"sub_1"}', '{"id":"sub_1","status":5}', '{"id":"sub_2","status":"active"}']) {
    api.fault = () => ({ status: 200, body });
    await deliver(subscriptionEvent('updated', 0, { ...object, status: 'past_due' }, { status: 'active' }));
    t.match([await isMarked(), (await rowOf(t, app, 'sub_1'))?.status], [true, 'past_due'], body);
  }
});

t.test('an event without a time that is processed late does not count as new', async (t) => {
  const here = await shop(t);
  const { app, api, deliver, buyer } = here;
  const ada = await buyer();
  const told = (status: string) => ({
    type: 'customer.subscription.updated',
    data: { object: { id: 'sub_1', status } },
  });
  t.equal(await deliver(told('paused')), 'unmatched');
  app.clock.advance(1000);
  const object = { id: 'sub_1', customer: ada.customer, status: 'active', items: items() };
  await deliver(subscriptionEvent('created', 0, object));
  t.match(await rowOf(t, app, 'sub_1'), { status: 'active', recheckAt: app.clock.now() });

  const truth = api.world.subscribe(ada.customer, ada.id, false);
  Object.assign(truth, { id: 'sub_1', status: 'past_due', trialEnd: null });
  api.world.subscriptions.set('sub_1', truth);
  await runJobs(await secondProcess(t, here));
  t.match(await rowOf(t, app, 'sub_1'), { status: 'past_due' }, 'the provider is asked');
});

t.test('deleting an account cancels every subscription it ever had', async (t) => {
  const { app, api, deliver, buyer } = await shop(t);
  const leave = ({ accessToken: token }: { accessToken: string }) =>
    app.request('POST', '/api/user/delete', { token, body: { password: PASSWORD } });
  const ada = await buyer();
  const give = (customer: string, status: string) =>
    Object.assign(api.world.subscribe(customer, ada.id, true), { status });
  const [expired, alive, elsewhere] = [
    give(ada.customer, 'incomplete_expired'),
    give(ada.customer, 'active'),
    give('cus_elsewhere', 'active'),
  ];
  await deliver(subscriptionEvent('created', 0, subscriptionObject(elsewhere)));
  t.equal((await leave(ada)).status, 200);
  t.same(
    [expired, alive, elsewhere].map(({ status }) => status),
    ['incomplete_expired', 'canceled', 'canceled'],
  );
  t.equal(
    await webhookEventCollection(await storeOf(t, app)).count(),
    0,
    'nor is an event kept that names them',
  );

  const eve = await buyer();
  const body = '{"error":{"type":"invalid_request_error","code":"resource_missing","param":"customer"}}';
  api.fault = ({ query }) => (query.get('customer') === eve.customer ? { status: 400, body } : undefined);
  t.equal((await leave(eve)).status, 200, 'the provider knows them no more');
});

t.test('an event during a deletion leaves no data of the user', async (t) => {
  const { app, api, deliver, buyer } = await shop(t);
  const store = await storeOf(t, app);
  for (const what of ['subscription', 'invoice']) {
    const ada = await buyer();
    const truth = api.world.subscribe(ada.customer, ada.id, true);
    Object.assign(truth, { status: 'past_due', trialEnd: null });
    await deliver(subscriptionEvent('updated', 0, subscriptionObject(truth)));
    let isGone = false;
    api.fault = async ({ method, path }) => {
      if (method !== 'GET' || path !== `/v1/subscriptions/${truth.id}` || isGone) return undefined;
      isGone = true;
      const { accessToken: token } = ada;
      const left = await app.request('POST', '/api/user/delete', { token, body: { password: PASSWORD } });
      t.equal(left.status, 200);
      return undefined;
    };
    const event =
      what === 'invoice'
        ? invoiceEvent('succeeded', 0, { customer: ada.customer, subscription: truth.id })
        : subscriptionEvent('updated', 0, { ...subscriptionObject(truth), status: 'active' });
    t.equal(await deliver(event), 'unmatched', what);
    t.ok(isGone);
    t.equal(await subscriptionCollection(store).count({ userId: ada.id }), 0);
    t.equal(await paymentCollection(store).count({ userId: ada.id }), 0);
    t.equal(await customerCollection(store).count({ id: ada.id }), 0);
  }
});

t.test('a sync during a deletion leaves no data of the user', async (t) => {
  const here = await shop(t);
  const { app, api, deliver, buyer } = here;
  const store = await storeOf(t, app);
  const background = await secondProcess(t, here);
  const sync = (token: string) =>
    app.request('POST', '/api/billing/sync', { token, body: { sessionId: 'cs_left' } });
  const ways: [step: string, runSync: (token: string) => Promise<unknown>][] = [
    ['/v1/checkout/sessions/cs_left', sync],
    ['/v1/subscriptions', sync],
    ['/v1/subscriptions', () => background.resync.run()],
    ['/v1/subscriptions', () => runJobs(background)],
  ];
  for (const [index, [step, runSync]] of ways.entries()) {
    const { accessToken: token, id, customer } = await buyer();
    const session = { id: 'cs_left', customer, client_reference_id: id, metadata: { userId: id } };
    api.sessions.set('cs_left', session);
    const truth = api.world.subscribe(customer, id, true);
    Object.assign(truth, { status: 'active', trialEnd: null });
    await deliver(subscriptionEvent('created', 0, subscriptionObject(truth)));
    api.fault = () => ({ status: 400, body: '{}' });
    await deliver(subscriptionEvent('updated', 0, { ...subscriptionObject(truth), status: 'past_due' }));
    let left = 0;
    api.fault = async ({ method, path }) => {
      if (method !== 'GET' || !path.startsWith(step)) return undefined;
      api.fault = () => undefined;
      left = (await app.request('POST', '/api/user/delete', { token, body: { password: PASSWORD } })).status;
      return undefined;
    };
    await runSync(token);
    const rows = [
      await subscriptionCollection(store).count({ userId: id }),
      await customerCollection(store).count({ id }),
    ];
    t.same([left, ...rows], [200, 0, 0], String(index));
  }
});

t.test('stored events of a deleted user are removed, by whichever ID they name the user', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const { accessToken: token, id: userId, email } = await buyer();
  const object = { id: 'sub_1', customer: 'cus_elsewhere', status: 'active', metadata: { userId } };
  await deliver(subscriptionEvent('created', 0, { ...object, items: items() }));
  await deliver(invoiceEvent('succeeded', 1, { customer: 'cus_elsewhere', customer_email: email }));
  await deliver({
    type: 'customer.subscription.updated',
    data: { object: { id: 'sub_1', status: 'active', description: email } },
  });
  const events = webhookEventCollection(await storeOf(t, app));
  t.equal(await events.count(), 3);
  await app.request('POST', '/api/user/delete', { token, body: { password: PASSWORD } });
  t.equal(await events.count(), 0);
});

t.test('a failed payment that arrives after its invoice was paid sends no payment reminder', async (t) => {
  const { app, api, deliver, buyer, subscription } = await shop(t);
  const ada = await buyer();
  const object = { id: 'sub_1', customer: ada.customer, status: 'active', items: items() };
  await deliver(subscriptionEvent('created', 0, object));
  api.fault = () => 'cut';
  const invoice = { id: 'in_late', customer: ada.customer, subscription: 'sub_1' };
  t.equal(await deliver(invoiceEvent('succeeded', 9, invoice)), 'processed');
  t.equal(await deliver(invoiceEvent('failed', 5, invoice)), 'processed');
  t.match(await subscription(ada), { status: 'active' });
  const { data } = (await app.request('GET', '/api/user/export', { token: ada.accessToken })).body;
  t.match(data.billing.payments, [{ id: 'in_late', status: 'paid' }]);
  t.notOk(data.mails.some(({ template }: Json) => template === 'payment-failed'));
});

t.test('an invoice does not override its subscription', async (t) => {
  const { app, api, deliver, buyer, subscription } = await shop(t);
  const ada = await buyer();
  const old = { id: 'sub_old', customer: ada.customer, items: items('price_basic', 'basic') };
  await deliver(subscriptionEvent('created', 0, { ...old, status: 'active' }));
  await deliver(subscriptionEvent('deleted', 1, { ...old, status: 'canceled' }));
  const sibling = api.world.subscribe(ada.customer, ada.id, false);
  Object.assign(sibling, { status: 'unpaid', trialEnd: null });
  await deliver(subscriptionEvent('created', 2, subscriptionObject(sibling)));
  const paid = (subscription: string, at: number) =>
    invoiceEvent('succeeded', at, {
      customer: ada.customer,
      parent: { subscription_details: { subscription } },
    });
  t.equal(await deliver(paid('sub_old', 9)), 'processed');
  t.match(await rowOf(t, app, 'sub_old'), { status: 'canceled' }, 'what is over stays over');
  t.match(await rowOf(t, app, sibling.id), { status: 'unpaid' }, 'and its sibling is none of its business');

  t.equal(await deliver(paid(sibling.id, 10)), 'processed');
  t.match(await subscription(ada), { status: 'unpaid' }, 'the provider says that it is still unpaid');
  api.fault = () => 'cut';
  t.equal(await deliver(paid(sibling.id, 11)), 'processed');
  t.match(await subscription(ada), { status: 'active' }, 'where it cannot be asked the invoice is believed');
  const failed = invoiceEvent('failed', 10, { customer: ada.customer, subscription: sibling.id });
  t.equal(await deliver(failed), 'processed');
  t.match(await subscription(ada), { status: 'active' }, 'an older failure changes nothing');
  const free = invoiceEvent('succeeded', 20, {
    customer: ada.customer,
    subscription: sibling.id,
    amount_paid: 0,
  });
  await deliver(subscriptionEvent('updated', 15, { ...subscriptionObject(sibling), status: 'past_due' }));
  t.equal(await deliver(free), 'processed');
  t.match(await subscription(ada), { status: 'past_due' }, 'what costs nothing proves nothing');
});

t.test(
  'events of an unknown customer wait until it is linked, and an e-mail address does not link it',
  async (t) => {
    const { app, api, deliver, subscription } = await shop(t);
    const ada = await app.signUp({ email: 'ada@example.test' });
    const object = { id: 'sub_1', customer: 'cus_late', customer_email: ada.email, items: items() };
    const invoice = { customer: 'cus_late', customer_email: ada.email, subscription: 'sub_1' };
    t.equal(
      await deliver({
        type: 'customer.subscription.updated',
        data: { object: { id: 'sub_1', status: 'paused' } },
      }),
      'unmatched',
    );
    t.equal(await deliver(subscriptionEvent('created', 0, { ...object, status: 'incomplete' })), 'unmatched');
    t.equal(await deliver(invoiceEvent('succeeded', 1, invoice)), 'unmatched');
    const active = subscriptionEvent('updated', 2, { ...object, status: 'active' });
    t.equal(await deliver(active), 'unmatched');
    t.equal(await deliver(active), 'duplicate');
    t.match(await subscription(ada), { status: 'none' });

    const session = {
      id: 'cs_late',
      customer: 'cus_late',
      client_reference_id: ada.id,
      metadata: { userId: ada.id },
    };
    api.sessions.set('cs_late', session);
    const eve = await app.signUp();
    const sync = (token: string, sessionId: string) =>
      app.request('POST', '/api/billing/sync', { token, body: { sessionId } });
    t.equal((await sync(eve.accessToken, 'cs_late')).status, 404, "another user's session");
    t.equal((await sync(ada.accessToken, 'cs_unknown')).status, 404);
    t.equal((await sync(ada.accessToken, '../customers')).status, 400);
    t.match((await sync(ada.accessToken, 'cs_late')).body.data, {
      status: 'active',
      plan: 'pro',
      entitled: true,
    });
    const events = webhookEventCollection(await storeOf(t, app));
    t.equal(await events.count({ outcome: 'unmatched' }), 0);
    t.match(await subscription(eve), { status: 'none' });
  },
);

t.test('an event with our user ID links the customer and releases the events waiting for it', async (t) => {
  const { app, deliver, subscription } = await shop(t);
  const ada = await app.signUp();
  const object = { id: 'sub_1', customer: 'cus_1', items: items() };
  t.equal(await deliver(subscriptionEvent('deleted', 9, { ...object, status: 'canceled' })), 'unmatched');
  const created = { ...object, status: 'active', metadata: { userId: ada.id } };
  t.equal(await deliver(subscriptionEvent('created', 0, created)), 'processed');
  t.match(await subscription(ada), { status: 'canceled' });
  const nobody = { ...object, id: 'sub_2', customer: 'cus_2', metadata: { userId: 'usr_nobody' } };
  t.equal(await deliver(subscriptionEvent('created', 0, { ...nobody, status: 'active' })), 'unmatched');
});

t.test("the best subscription determines the user's status", async (t) => {
  const { app, deliver, buyer, subscription } = await shop(t);
  const ada = await buyer();
  const give = (id: string, status: string, created: number, plan: string) =>
    deliver(
      subscriptionEvent('created', created, {
        id,
        customer: ada.customer,
        status,
        created: 2_208_988_800 + created,
        items: items(`price_${plan}`, plan),
      }),
    );
  await give('sub_b', 'active', 1, 'older');
  await give('sub_c', 'canceled', 9, 'gone');
  await give('sub_d', 'past_due', 8, 'failing');
  t.match(await subscription(ada), { status: 'active', plan: 'older' });
  await give('sub_e', 'active', 5, 'newer');
  await give('sub_f', 'from_the_future', 10, 'strange');
  t.match(await subscription(ada), { status: 'active', plan: 'newer' });
  const { body } = await app.request('GET', '/api/user/profile', { token: ada.accessToken });
  t.same(body.data.subscription, { status: 'active', plan: 'newer', entitled: true });
});

t.test('active, trialing and past-due subscriptions entitle, and other statuses do not', async (t) => {
  const now = 1_000_000_000_000;
  const day = 86_400_000;
  const entitles = (
    status: string,
    more: object = {},
    pastDue: 'entitled' | 'denied' | number = 'entitled',
  ) => isEntitled({ status, plan: 'pro', ...more }, pastDue, now);
  t.ok(entitles('active'));
  t.notOk(entitles('active', { plan: 'unknown' }), 'of an unknown plan');
  t.ok(entitles('trialing') && entitles('trialing', { trialEnd: now + 1 }));
  t.notOk(entitles('trialing', { trialEnd: now }));
  t.ok(entitles('past_due'));
  t.notOk(entitles('past_due', {}, 'denied'));
  t.ok(entitles('past_due', { pastDueSince: now - 3 * day + 1 }, 3));
  t.notOk(entitles('past_due', { pastDueSince: now - 3 * day }, 3));
  for (const status of ['incomplete', 'incomplete_expired', 'unpaid', 'paused', 'canceled', 'none', 'new']) {
    t.notOk(entitles(status), status);
  }
});

t.test('the plan comes from the configured list, the price or its metadata, or is unknown', async (t) => {
  const { deliver, buyer, subscription } = await shop(t, { billingPrices: ['price_listed=gold'] });
  const cases: [Json, string][] = [
    [{ items: items('price_listed', 'ignored') }, 'gold'],
    [{ items: items('price_other', 'silver'), metadata: { plan: 'ignored' } }, 'silver'],
    [{ items: items('price_other', null), metadata: { plan: 'bronze' } }, 'bronze'],
    [{ items: items('price_other', null) }, 'unknown'],
    [{ plan: { id: 'price_listed' }, quantity: 2 }, 'gold'],
  ];
  for (const [index, [terms, plan]] of cases.entries()) {
    const ada = await buyer();
    const object = { id: `sub_${index}`, customer: ada.customer, status: 'active', ...terms };
    await deliver(subscriptionEvent('created', 0, object));
    t.match(await subscription(ada), { plan, entitled: plan !== 'unknown' });
  }
});

t.test(
  'a plan stays while the price does, whatever becomes of its lookup key and the list of prices',
  async (t) => {
    const folder = temporaryFolder(t);
    const first = await shop(t, { folder, billingPrices: ['price_listed=gold'] });
    const ada = await first.buyer();
    const told = (id: string, seconds: number, terms: Json) =>
      subscriptionEvent('updated', seconds, { id, customer: ada.customer, status: 'active', ...terms });
    await first.deliver(told('sub_listed', 0, { items: items('price_listed', null) }));
    await first.deliver(told('sub_keyed', 0, { items: items('price_keyed', 'silver') }));
    await first.deliver(
      told('sub_meta', 0, { items: items('price_meta', null), metadata: { plan: 'bronze' } }),
    );
    await first.app.close();

    const { app, api, deliver } = await shop(t, { folder, billingPrices: ['price_new=gold'] });
    const planOf = async (id: string) => (await rowOf(t, app, id))?.plan;
    const other = items('price_seats', null).data;
    await deliver(
      told('sub_listed', 1, { items: { data: [...other, ...items('price_listed', null).data] } }),
    );
    t.equal(await planOf('sub_listed'), 'gold', 'the price left BILLING_PRICES, and an item was added');
    for (const [seconds, key] of [null, 'platinum'].entries()) {
      await deliver(
        told('sub_keyed', 2 + seconds, { items: items('price_keyed', key), metadata: { plan: 'x' } }),
      );
      t.equal(await planOf('sub_keyed'), 'silver', `the lookup key is ${key}`);
    }
    const meta = (seconds: number, metadata: Json) =>
      deliver(told('sub_meta', seconds, { items: items('price_meta', null), metadata }));
    await meta(1, {});
    t.equal(await planOf('sub_meta'), 'bronze');
    await meta(2, { plan: 'iron' });
    t.equal(await planOf('sub_meta'), 'iron', 'the operator changes the plan in the metadata');

    await deliver(told('sub_keyed', 5, { items: items('price_other', 'platinum') }));
    t.equal(await planOf('sub_keyed'), 'platinum', 'another price');
    await deliver(told('sub_keyed', 6, { items: items('price_new', 'platinum') }));
    t.equal(await planOf('sub_keyed'), 'gold', 'a price in BILLING_PRICES');
    await deliver(told('sub_listed', 7, { items: items('price_unmapped', null) }));
    t.equal(await planOf('sub_listed'), 'unknown', 'a price without a plan');
    await deliver(told('sub_listed', 8, { items: items('price_unmapped', 'bronze') }));
    t.equal(await planOf('sub_listed'), 'bronze', 'the price has a plan now');

    const truth = api.world.subscribe(ada.customer, ada.id, true);
    Object.assign(truth, { status: 'active', trialEnd: null, price: 'price_pro' });
    await deliver(told(truth.id, 0, { items: items('price_pro', 'earlier') }));
    await (await secondProcess(t, { app, api })).resync.run({ userId: ada.id });
    t.equal(await planOf(truth.id), 'earlier', 'a sync keeps it as well');
  },
);

t.test('the first item with a known plan names it', async (t) => {
  const { app, deliver, buyer } = await shop(t, { billingPrices: ['price_listed=gold'] });
  const ada = await buyer();
  const price = (id: string, more: Json = {}) => ({ quantity: 2, price: { id: `price_${id}`, ...more } });
  const metered = { recurring: { usage_type: 'metered' } };
  const keyed = price('keyed', { lookup_key: 'silver' });
  const cases: [what: string, data: Json[], plan: string, priceId: string][] = [
    ['metered', [price('use', metered), keyed], 'silver', 'price_keyed'],
    ['metered_key', [price('use', { ...metered, lookup_key: 'use' }), keyed], 'silver', 'price_keyed'],
    ['addon', [price('seats'), price('meta', { metadata: { plan: 'iron' } })], 'iron', 'price_meta'],
    ['list', [keyed, price('listed')], 'gold', 'price_listed'],
    ['usage', [price('use', { ...metered, lookup_key: 'use' })], 'use', 'price_use'],
    ['legacy', [{ plan: { id: 'price_seats' } }, { plan: { id: 'price_listed' } }], 'gold', 'price_listed'],
    ['none', [price('seats'), price('more')], 'unknown', 'price_seats'],
  ];
  for (const [what, data, plan, priceId] of cases) {
    const object = { id: `sub_${what}`, customer: ada.customer, status: 'active', items: { data } };
    await deliver(subscriptionEvent('created', 0, object));
    t.match(await rowOf(t, app, object.id), { plan, priceId }, what);
  }
});

t.test('the plan can be named by an item beyond the ten that a subscription contains', async (t) => {
  const { app, api, deliver, buyer, subscription } = await shop(t, { billingPrices: ['price_listed=gold'] });
  const ada = await buyer();
  const bought = api.world.subscribe(ada.customer, ada.id, true);
  const addOns = Array.from({ length: 11 }, (_, index) => ({ id: `si_${index}`, price: `price_${index}` }));
  addOns.push({ id: 'si_gold', price: 'price_listed' });
  Object.assign(bought, { status: 'active', trialEnd: null, price: 'price_seats', addOns });
  const expect = async (what: string) => {
    const found = await subscription(ada);
    t.match(found, { plan: 'gold', entitled: true, priceId: 'price_listed' }, what);
    t.equal((found['items'] as Json[]).length, 13, what);
  };
  await deliver(subscriptionEvent('created', 0, subscriptionObject(bought)));
  await expect('after an event');
  await app.request('POST', '/api/billing/sync', { token: ada.accessToken });
  await expect('after a sync');
  const period = await app.request('POST', '/api/billing/subscription/cancel', {
    token: ada.accessToken,
    body: {},
  });
  t.equal(period.status, 200, period.text);
  await expect('after a change');

  api.fault = () => ({ status: 500, body: '{"error":{"type":"api_error"}}' });
  await deliver(subscriptionEvent('updated', 5, { ...subscriptionObject(bought), status: 'past_due' }));
  const row = await rowOf(t, app, bought.id);
  t.match(row, { status: 'past_due', plan: 'gold', recheckAt: app.clock.now() }, 'asked for later');
  t.equal(row?.items?.length, 13);

  api.fault = () => undefined;
  await deliver(subscriptionEvent('deleted', 10, subscriptionObject(bought)));
  const ended = await rowOf(t, app, bought.id);
  t.match(ended, { status: 'canceled', plan: 'gold' }, 'the provider still answers that it is active');
});

t.test('a subscription without a known plan does not hide one with a plan', async (t) => {
  const { app, api, deliver, buyer, subscription } = await shop(t, { pastDue: 'denied' });
  const ada = await buyer();
  const give = (id: string, seconds: number, status: string, key: string | null) =>
    deliver(
      subscriptionEvent('updated', seconds, {
        id,
        customer: ada.customer,
        status,
        created: api.world.now + seconds,
        items: items(`price_${id}`, key),
      }),
    );
  await give('sub_pro', 0, 'active', 'pro');
  await give('sub_unmapped', 1, 'active', null);
  t.match(await subscription(ada), { status: 'active', plan: 'pro', entitled: true });
  const users = userCollection(await storeOf(t, app));
  t.match(await users.findOne({ id: ada.id }), { subscriptionStatus: 'active', subscriptionPlan: 'pro' });
  await give('sub_pro', 2, 'past_due', 'pro');
  t.match(await users.findOne({ id: ada.id }), { subscriptionStatus: 'past_due', subscriptionPlan: 'pro' });
  t.match(await subscription(ada), { status: 'past_due', plan: 'pro', entitled: false });
  await give('sub_pro', 3, 'canceled', 'pro');
  t.match(await subscription(ada), { status: 'active', plan: 'unknown', entitled: false });
});

t.test(
  "a grace period starts at the provider's time, however late the backend learns of the failure",
  async (t) => {
    const here = await shop(t, { pastDue: 7 });
    const { app, api, deliver, buyer } = here;
    const { saas } = app.server.fastify;
    const start = app.clock.now();
    const failed = async (give: (id: string, customer: string) => Promise<unknown>, days: number) => {
      const ada = await buyer();
      const truth = api.world.subscribe(ada.customer, ada.id, true);
      Object.assign(truth, { status: 'active', trialEnd: null });
      await deliver(subscriptionEvent('created', 0, subscriptionObject(truth)));
      Object.assign(truth, { status: 'past_due', periodStart: api.world.now + 3 * 86_400 });
      api.world.now += days * 86_400;
      app.clock.set(start + days * DAY);
      await give(truth.id, ada.customer);
      t.match(await rowOf(t, app, truth.id), { status: 'past_due', pastDueSince: start + 3 * DAY });
      t.equal(await saas.entitles(ada.id), true);
      app.clock.set(start + 10 * DAY);
      t.equal(await saas.entitles(ada.id), false);
      api.world.now -= days * 86_400;
      app.clock.set(start);
    };
    const invoiced = (subscription: string, customer: string) =>
      deliver(invoiceEvent('failed', 3 * 86_400, { customer, subscription }));
    await failed(invoiced, 9);
    const background = await secondProcess(t, here);
    await failed(() => background.resync.run(), 9);
    await failed(async (id, customer) => {
      api.fault = () => ({ status: 500, body: '{}' });
      await invoiced(id, customer);
      api.fault = () => undefined;
      await runJobs(background);
    }, 8);
  },
);

t.test('a metered subscription has no quantity, even if an earlier one had', async (t) => {
  const { deliver, buyer, subscription } = await shop(t);
  const ada = await buyer();
  const object = { id: 'sub_1', customer: ada.customer, status: 'active' };
  await deliver(subscriptionEvent('created', 0, { ...object, items: items() }));
  t.match(await subscription(ada), { priceId: 'price_pro', quantity: 1 });
  const metered = { price: { id: 'price_use', lookup_key: 'use', recurring: { usage_type: 'metered' } } };
  await deliver(subscriptionEvent('updated', 1, { ...object, items: { data: [metered] } }));
  t.match(await subscription(ada), { priceId: 'price_use', quantity: null });
});

t.test('test-mode events are ignored with a live key', async (t) => {
  const { app, deliver, subscription } = await shop(t, { paymentSecretKey: 'sk_live_51Qm7vLd0mXw4RkT9cYb2' });
  const ada = await app.signUp();
  const object = {
    id: 'sub_1',
    customer: 'cus_1',
    status: 'active',
    metadata: { userId: ada.id },
    items: items(),
  };
  t.equal(await deliver({ ...subscriptionEvent('created', 0, object), livemode: false }), 'ignored');
  t.match(await subscription(ada), { status: 'none' });
  t.equal(await deliver({ ...subscriptionEvent('created', 0, object), livemode: true }), 'processed');
});

t.test('with the key of an organisation, test-mode events are ignored', async (t) => {
  const { app, deliver, subscription } = await shop(t, { paymentSecretKey: 'sk_org_51Qm7vLd0mXw4RkT9cYb2' });
  const ada = await app.signUp();
  const object = { id: 'sub_1', customer: 'cus_1', status: 'active', items: items() };
  const signed = { ...object, metadata: { userId: ada.id } };
  t.equal(await deliver({ ...subscriptionEvent('created', 0, signed), livemode: true }), 'processed');
  for (const [what, told] of Object.entries({
    updated: { ...object, status: 'past_due' },
    deleted: object,
    created: { ...signed, id: 'sub_test', customer: 'cus_test' },
  })) {
    t.equal(await deliver({ ...subscriptionEvent(what, 9, told), livemode: false }), 'ignored', what);
  }
  t.match(await subscription(ada), { status: 'active' });
  const subscriptions = subscriptionCollection(await storeOf(t, app));
  t.equal(await subscriptions.count(), 1);
});

t.test('without a live key, test-mode events do not change the data of users with live data', async (t) => {
  const { app, deliver, subscription } = await shop(t, { paymentSecretKey: undefined as never });
  const [ada, eve] = [await app.signUp(), await app.signUp()];
  const give = (id: string, userId: string, customer: string, livemode: boolean) => ({
    ...subscriptionEvent('created', 0, {
      id,
      customer,
      livemode,
      status: 'active',
      metadata: { userId },
      items: items(),
    }),
    livemode,
  });
  t.equal(await deliver(give('sub_live', ada.id, 'cus_live', true)), 'processed');
  t.equal(await deliver(give('sub_test', eve.id, 'cus_test', false)), 'processed', 'during development');

  const over = (id: string) => subscriptionEvent('deleted', 9, { id, status: 'canceled' });
  t.equal(await deliver({ ...over('sub_live'), livemode: false }), 'ignored');
  t.equal(await deliver(give('sub_more', ada.id, 'cus_test_of_ada', false)), 'ignored');
  const customers = customerCollection(await storeOf(t, app));
  t.equal(await customers.findOne({ customerId: 'cus_test_of_ada' }), null, 'nor is a customer linked');
  const failed = invoiceEvent('failed', 9, { customer: 'cus_live', subscription: 'sub_live' });
  t.equal(await deliver({ ...failed, livemode: false }), 'ignored');
  t.match(await subscription(ada), { status: 'active' });

  t.equal(await deliver({ ...over('sub_test'), livemode: false }), 'processed');
  t.match(await subscription(eve), { status: 'canceled' });
  t.equal(await deliver(over('sub_live')), 'processed', 'an event that states no mode is applied');
});

/** A plan that users may have beside another one. */
const INDEPENDENT = {
  billing: {
    plans: { pro: { prices: ['price_pro'] }, basic: { prices: ['price_basic'], independent: true } },
  },
};

t.test('a user cannot subscribe to the same price twice', async (t) => {
  const { app, deliver, buyer } = await shop(t, INDEPENDENT);
  const ada = await buyer();
  const buy = (body: object) =>
    app.request('POST', '/api/billing/create-checkout-session', { token: ada.accessToken, body });
  const object = { id: 'sub_1', customer: ada.customer, items: items() };
  await deliver(subscriptionEvent('created', 0, { ...object, status: 'past_due' }));
  const twice = await buy({ priceId: 'price_pro' });
  t.match([twice.status, twice.body.error.code], [409, 'ALREADY_SUBSCRIBED']);
  t.equal((await buy({ priceId: 'price_basic' })).status, 200);
  t.equal((await buy({ priceId: 'price_pro', mode: 'payment' })).status, 200);
  const both = { data: [...items().data, ...items('price_basic', 'basic').data] };
  await deliver(subscriptionEvent('updated', 1, { ...object, status: 'active', items: both }));
  t.equal((await buy({ priceId: 'price_basic' })).status, 409, 'as a part of the same subscription');
  await deliver(subscriptionEvent('updated', 1, { id: 'sub_1', status: 'active' }));
  await deliver(subscriptionEvent('updated', 2, { ...object, status: 'active' }));
  t.equal((await buy({ priceId: 'price_basic' })).status, 200);
  await deliver(subscriptionEvent('deleted', 3, { ...object, status: 'canceled' }));
  t.equal((await buy({ priceId: 'price_pro' })).status, 200);
});

t.test('a subscription that ended without an event does not block a purchase', async (t) => {
  const { app, api, deliver, buyer, subscription } = await shop(t, INDEPENDENT);
  const ada = await buyer();
  const buy = async (priceId: string) => {
    const { accessToken: token } = ada;
    const path = '/api/billing/create-checkout-session';
    const { status, body } = await app.request('POST', path, { token, body: { priceId } });
    return body.error?.code ?? status;
  };
  const looks = () => api.calls.filter(({ path }) => path.startsWith('/v1/subscriptions')).length;
  const truth = api.world.subscribe(ada.customer, ada.id, true);
  Object.assign(truth, { status: 'active', price: 'price_pro' });
  await deliver(subscriptionEvent('created', 0, subscriptionObject(truth)));

  const before = looks();
  t.equal(await buy('price_basic'), 200);
  t.equal(looks(), before, 'an allowed purchase needs no call to the provider');
  t.equal(await buy('price_pro'), 'ALREADY_SUBSCRIBED');
  t.equal(looks(), before + 1);

  const refused = await Promise.all(Array.from({ length: 20 }, () => buy('price_pro')));
  t.same(new Set(refused), new Set(['ALREADY_SUBSCRIBED']));
  t.ok(looks() <= before + 21, `${looks() - before - 1} looks for twenty clicks`);

  // The state after the customer was deleted at the provider and the event was lost.
  Object.assign(truth, { status: 'canceled', canceledAt: api.world.now, endedAt: api.world.now });
  const unknown = { type: 'invalid_request_error', code: 'resource_missing', param: 'customer' };
  const ofCustomer: typeof api.fault = ({ form, query }) =>
    [form.get('customer'), query.get('customer')].includes(ada.customer)
      ? { status: 400, body: JSON.stringify({ error: unknown }) }
      : undefined;
  api.fault = (call) =>
    call.path.startsWith('/v1/subscriptions/') ? { status: 500, body: '{}' } : ofCustomer(call);
  t.equal(
    await buy('price_pro'),
    'ALREADY_SUBSCRIBED',
    'while the provider cannot be asked, what is stored holds',
  );
  t.match(await subscription(ada), { status: 'active' });
  api.fault = ofCustomer;
  t.equal(await buy('price_pro'), 200);
  t.match(await subscription(ada), { status: 'canceled', entitled: false });
  t.not(api.calls.at(-1)?.form.get('customer'), ada.customer, 'with another customer');
});

t.test('a sync that began before a purchase does not block it', async (t) => {
  const { app, api, deliver, buyer } = await shop(t);
  const [ada, eve] = [await buyer(), await buyer()];
  const buy = async ({ accessToken: token }: typeof ada) => {
    const path = '/api/billing/create-checkout-session';
    const { status, body } = await app.request('POST', path, { token, body: { priceId: 'price_pro' } });
    return body.error?.code ?? status;
  };
  const truth = api.world.subscribe(ada.customer, ada.id, true);
  Object.assign(truth, { status: 'active', price: 'price_pro' });
  await deliver(subscriptionEvent('created', 0, subscriptionObject(truth)));
  const isLook = ({ path }: ProviderCall) => path === `/v1/subscriptions/${truth.id}`;

  const held = holdNext(api, isLook, () => subscriptionObject(truth));
  const early = buy(ada);
  await held.asked;
  Object.assign(truth, { status: 'canceled', canceledAt: api.world.now, endedAt: api.world.now });
  const late = Array.from({ length: 20 }, () => buy(ada));
  t.equal(await buy(eve), 200, 'another user waits for none of them');
  held.letGo();
  t.equal(await early, 'ALREADY_SUBSCRIBED');
  t.same(new Set(await Promise.all(late)), new Set([200]));
  t.equal(api.calls.filter(isLook).length, 2, 'one for all of them');
});

t.test('plans and final invoices are listed as the provider returns them', async (t) => {
  const { app, api, buyer } = await shop(t, { billingPrices: ['price_pro=gold'] });
  const ada = await buyer();
  const token = ada.accessToken;
  api.invoices.push(
    {
      id: 'in_1',
      customer: ada.customer,
      created: 2_208_988_800,
      status: 'paid',
      amount_due: 2900,
      amount_paid: 2900,
      currency: 'eur',
      number: 'A-1',
      hosted_invoice_url: 'https://pay.example.test/in_1',
      invoice_pdf: 'javascript:alert(1)',
    },
    { id: 'in_2', customer: 'cus_other', created: 2_208_988_800 },
    { id: 'in_3', customer: ada.customer, created: 2_208_988_900, status: 'draft', amount_due: 2900 },
  );
  t.same((await app.request('GET', '/api/billing/invoices', { token })).body.data, [
    {
      id: 'in_1',
      number: 'A-1',
      status: 'paid',
      amountDue: 2900,
      amountPaid: 2900,
      currency: 'eur',
      createdAt: '2040-01-01T00:00:00.000Z',
      url: 'https://pay.example.test/in_1',
      pdf: null,
    },
  ]);
  const other = await app.signUp();
  t.same((await app.request('GET', '/api/billing/invoices', { token: other.accessToken })).body.data, []);
  const plans = await Promise.all(Array.from({ length: 9 }, () => app.request('GET', '/api/billing/plans')));
  t.same(plans[0]?.body.data, [
    {
      priceId: 'price_pro',
      plan: 'gold',
      name: 'pro',
      description: null,
      amount: 2900,
      currency: 'eur',
      currencies: [
        { currency: 'eur', amount: 2900 },
        { currency: 'usd', amount: 3200 },
      ],
      interval: 'month',
      intervalCount: 1,
      usageType: 'licensed',
      trialDays: null,
      features: [],
      limits: {},
    },
  ]);
  t.equal(api.calls.filter(({ path }) => path === '/v1/prices').length, 1, 'asked once for all');
});

t.test('a failed provider call is retried soon but not at once', async (t) => {
  const { app, api } = await shop(t);
  const plans = () => app.request('GET', '/api/billing/plans');
  const asked = () => api.calls.filter(({ path }) => path === '/v1/prices').length;
  api.fault = () => ({ status: 403, body: '{}' });
  t.equal((await plans()).status, 502);
  const first = asked();
  t.ok(first > 0);
  for (let times = 0; times < 5; times++) t.equal((await plans()).body.error.code, 'PAYMENT_PROVIDER_ERROR');
  app.clock.advance(10 * SECOND - 1);
  t.equal((await plans()).status, 502);
  t.equal(asked(), first, 'the failure is remembered');
  app.clock.advance(1);
  t.equal((await plans()).status, 502);
  t.ok(asked() > first, 'asked again after ten seconds');
  api.fault = () => undefined;
  app.clock.advance(10 * SECOND);
  t.equal((await plans()).status, 200);
  const known = asked();
  app.clock.advance(59 * SECOND);
  api.fault = () => ({ status: 403, body: '{}' });
  t.equal((await plans()).status, 200);
  t.equal(asked(), known, 'a list is remembered for a minute');
});

t.test('the retry interval counts from the end of the failed call', async (t) => {
  const clock = fakeClock();
  let asked = 0;
  const gateway = {
    async prices() {
      asked++;
      await Promise.resolve();
      clock.advance(30 * SECOND);
      throw new Error('timed out');
    },
  };
  const parts = { plans: createPlans({}, () => {}), gateway, clock, customers: {} } as object;
  const catalog = createCatalog(parts as Parameters<typeof createCatalog>[0]);
  for (let times = 0; times < 3; times++) await t.rejects(catalog.plans());
  t.equal(asked, 1);
});

t.test('prices of an archived product are not for sale', async (t) => {
  const { app, api } = await shop(t);
  const price = (id: string, product: unknown) => ({ id, object: 'price', active: true, product });
  const data = [
    price('price_1', { id: 'prod_1', active: true }),
    price('price_2', { id: 'prod_2', active: false }),
    price('price_3', 'prod_3'),
  ];
  api.fault = () => ({ status: 200, body: JSON.stringify({ object: 'list', has_more: false, data }) });
  const { body } = await app.request('GET', '/api/billing/plans');
  t.same(
    body.data.map(({ priceId }: Json) => priceId),
    ['price_1', 'price_3'],
  );
});

t.test('an unknown plan is logged when it is bought, not when it is listed', async (t) => {
  const warned: string[] = [];
  const plans = createPlans({}, (priceId) => void warned.push(priceId));
  const gateway = { prices: async () => [{ id: 'price_1' }] };
  const parts = { plans, gateway, clock: fakeClock(), customers: {} } as object;
  const catalog = createCatalog(parts as Parameters<typeof createCatalog>[0]);
  t.match(await catalog.plans(), [{ priceId: 'price_1', plan: 'unknown' }]);
  t.same(warned, []);
  t.equal(plans.planOfPurchase({ priceId: 'price_1' }), 'unknown');
  t.same(warned, ['price_1']);
});

t.test("amounts are in the provider's minor units", async (t) => {
  const amounts = ['EUR', 'HUF', 'ISK', 'JPY', 'KWD'].map((currency) => formatAmount(290_000, currency));
  const expected = ['€2,900.00', 'HUF 2,900.00', 'ISK 2,900.00', '¥290,000', 'KWD 290.000'];
  t.same(
    amounts.map((amount) => amount.replace('\u00a0', ' ')),
    expected,
  );
});

t.test('each change sends one e-mail and emits one event', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const received: [string, Json][] = [];
  for (const name of ['subscription.updated', 'invoice.paid', 'payment.failed'] as const) {
    app.server.fastify.saas.events.on(name, (told) => void received.push([name, told as unknown as Json]));
  }
  const ada = await buyer();
  const object = { id: 'sub_1', customer: ada.customer, items: items() };
  const failed = (attempt: number, next: number | null) =>
    invoiceEvent('failed', attempt, {
      id: 'in_1',
      customer: ada.customer,
      subscription: 'sub_1',
      attempt_count: attempt,
      next_payment_attempt: next,
    });
  const created = subscriptionEvent('created', 0, {
    ...object,
    status: 'trialing',
    trial_end: 2_209_000_000,
  });
  for (const event of [
    created,
    created,
    subscriptionEvent('trial_will_end', 0, { ...object, trial_end: 2_209_000_000 }),
    failed(1, 5),
    failed(2, 6),
    failed(3, null),
    subscriptionEvent('deleted', 9, { ...object, status: 'canceled' }),
  ]) {
    await deliver(event);
  }
  const all = await mailsOf(t, app);
  const put = all.filter(({ template }) => template !== 'welcome').sort((a, b) => (a.key < b.key ? -1 : 1));
  t.same(
    put.map(({ template, to }) => [template, to]),
    [
      ['payment-failed', ada.email],
      ['payment-failed', ada.email],
      ['subscription-canceled', ada.email],
      ['trial-ending', ada.email],
    ],
  );
  const { body } = await app.request('GET', '/api/user/export', { token: ada.accessToken });
  t.equal(body.data.mails.length, all.length, 'they are hers to export');
  t.same(put[0]?.values, {
    amount: '€29.00',
    email: ada.email,
    link: 'http://app.example.test/settings/billing',
    plan: 'pro',
  });
  await waitUntil('the events', () => received.length >= 6);
  t.same(
    received.map(([name]) => name),
    [
      'subscription.updated',
      'subscription.updated',
      'payment.failed',
      'payment.failed',
      'payment.failed',
      'subscription.updated',
    ],
  );
  t.match(received[0], [
    'subscription.updated',
    {
      id: created.id,
      at: '2040-01-01T00:00:00.000Z',
      userId: ada.id,
      subscriptionId: 'sub_1',
      status: 'trialing',
      plan: 'pro',
      entitled: true,
    },
  ]);
  t.match(received.at(-1)?.[1], { status: 'canceled', plan: 'pro', entitled: false });
  t.match(received[4]?.[1], {
    invoiceId: 'in_1',
    attempt: 3,
    isLastAttempt: true,
    amount: 2900,
    currency: 'eur',
  });
});

t.test('an export formats times as all answers do', async (t) => {
  const { app, api, deliver, buyer } = await shop(t);
  const { accessToken: token, customer, id } = await buyer();
  const truth = Object.assign(api.world.subscribe(customer, id, true), { status: 'active', quantity: 3 });
  await deliver(subscriptionEvent('updated', 0, subscriptionObject(truth)));
  const metadata = { userId: id };
  await deliver({
    type: 'customer.subscription.updated',
    data: { object: { id: 'sub_2', status: 'active', metadata } },
  });
  const { billing } = (await app.request('GET', '/api/user/export', { token })).body.data;
  const { subscriptions } = billing;
  const whole = subscriptions.find((one: Json) => one['id'] === truth.id);
  t.match(whole, { quantity: 3, status: 'active', currentPeriodEnd: '2040-01-31T00:00:00.000Z' });
  const numbers = subscriptions.flatMap((one: Json) =>
    Object.entries(one).filter(([, value]) => typeof value === 'number' || /^1970/.test(String(value))),
  );
  t.same(numbers, [['quantity', 3]]);
});

t.test('a cancelled trial is not announced as converting to a paid plan', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const ada = await buyer();
  const end = 2_209_000_000;
  const cases: [name: string, told: Json, isAnnounced: boolean][] = [
    ['goes_on', {}, true],
    ['cancelled', { cancel_at_period_end: true }, false],
    ['ends_with_it', { cancel_at: end }, false],
    ['ends_later', { cancel_at: end + 86_400 }, true],
  ];
  for (const [id, told] of cases) {
    const object = { id, customer: ada.customer, status: 'trialing', trial_end: end, items: items() };
    await deliver(subscriptionEvent('created', 0, object));
    t.equal(await deliver(subscriptionEvent('trial_will_end', 1, { ...object, ...told })), 'processed');
  }
  const mails = await mailsOf(t, app, 'trial-ending');
  t.same(
    mails.map(({ key }) => key.split(':')[1]).sort(),
    cases.flatMap(([name, , isAnnounced]) => (isAnnounced ? [name] : [])).sort(),
  );
  t.same(new Set(mails.map(({ values }) => values['plan'])), new Set(['pro']));
});

t.test('a host guards its own routes by entitlement', async (t) => {
  const { host: _, port: __, logLevel: ___, ...options } = testOptions(temporaryFolder(t));
  const host = fastify();
  t.teardown(() => host.close());
  await host.register(saasBackend, { ...options, paymentSecretKey: KEY });
  host.get('/any', { onRequest: host.saas.requireEntitled() }, async (request) => request.saas.user.email);
  host.get('/pro', { onRequest: host.saas.requireEntitled('pro') }, async () => 'pro');
  const { user, get } = await signUpAt(host);
  t.equal((await host.inject('/any')).statusCode, 401);
  t.match((await get('/any')).json(), { statusCode: 403, code: 'FORBIDDEN' });
  const { signWebhook } = await import('../../kit/sign-webhook.js');
  const give = (id: string, status: string, metadata: Json) => {
    const object = { id, status, metadata: { userId: user.id, ...metadata } };
    const payload = JSON.stringify({ type: 'customer.subscription.created', data: { object } });
    const signature = signWebhook(payload, SECRETS.paymentWebhookSecret, Date.now());
    const headers = { 'content-type': 'application/json', 'payment-signature': signature };
    return host.inject({ method: 'POST', url: '/api/billing/webhook', payload, headers });
  };
  const told = async () => (await get('/api/billing/subscription')).json().data;
  await give('sub_1', 'active', {});
  t.equal((await get('/any')).statusCode, 403, 'of an unknown plan');
  t.match(await told(), { status: 'active', plan: 'unknown', entitled: false });
  await give('sub_2', 'past_due', { plan: 'basic' });
  t.match(await told(), { status: 'past_due', plan: 'basic', entitled: true }, 'as the guard has it');
  t.equal((await get('/any')).body, 'ada@example.test');
  t.equal((await get('/pro')).statusCode, 403);
});

t.test('events are processed during maintenance', async (t) => {
  const { app, deliver } = await shop(t);
  const ada = await app.signUp();
  const body = { maintenanceMode: true, version: 0 };
  t.equal((await app.admin('PATCH', '/admin/api/settings', body)).status, 200);
  t.equal((await app.request('GET', '/api/billing/subscription', { token: ada.accessToken })).status, 503);
  const object = { id: 'sub_1', status: 'active', metadata: { userId: ada.id }, items: items() };
  t.equal(await deliver(subscriptionEvent('created', 0, object)), 'processed');
});
