import t, { type Test } from 'tap';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import {
  customerCollection,
  paymentEventCollection,
  subscriptionCollection,
} from '../../../src/saas/billing/store.js';
import { type SaasApp, storeOf } from '../../kit/app.js';
import { subscriptionObject, VERSIONS } from '../../kit/stripe-objects.js';
import { invoiceEvent, items, ordersOf, shop, subscriptionEvent } from './kit.js';

const rowOf = async (t: Test, app: SaasApp, id: string) =>
  subscriptionCollection(await storeOf(t, app)).findOne({ id });

t.test('a subscription is followed from checkout to its end', async (t) => {
  const { api, deliver, buyer, subscribe, subscription } = await shop(t);
  const ada = await buyer();
  const more = {
    pauseReason: null,
    scheduledChange: null,
    collectionPause: null,
    paymentUrl: null,
    discounts: [],
    granted: null,
    features: [],
    limits: {},
  };
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
    ...more,
  });
  for (const version of VERSIONS) {
    const bought = subscribe(ada, { version, price: 'price_pro', quantity: 3, isSigned: false });
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
      ...more,
    });
    const ended = {
      ...object,
      status: 'canceled',
      ended_at: api.world.now + 5,
      canceled_at: api.world.now + 5,
    };
    t.equal(await deliver(subscriptionEvent('deleted', 5, ended)), 'processed');
    t.match(await subscription(ada), {
      status: 'canceled',
      plan: 'pro',
      entitled: false,
      endedAt: '2040-01-01T00:00:05.000Z',
    });
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
    const { deliver, buyer, subscription, api } = await shop(t);
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
    // What is shown about an open payment is fetched with expanded objects.
    const calls = () =>
      api.calls.filter(({ path, query }) => path.includes('/subscriptions') && !query.has('expand[0]'))
        .length;
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
    }
    t.equal(calls(), 0);
  },
);

t.test(
  'the provider decides between events of one second; during an outage the last known state holds until a background sync',
  async (t) => {
    const { app, api, deliver, buyer, subscribe, runJobs } = await shop(t);
    const truth = subscribe(await buyer());
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
    await runJobs();
    t.match(await rowOf(t, app, truth.id), { status: 'active', quantity: 7 });
  },
);

t.test('an older event does not clear the pending sync that an invoice caused', async (t) => {
  const { app, api, deliver, buyer, subscribe, runJobs } = await shop(t);
  const ada = await buyer();
  const truth = subscribe(ada);
  await deliver(subscriptionEvent('created', 0, subscriptionObject(truth)));
  const statusNow = async () => (await rowOf(t, app, truth.id))?.status;
  api.fault = () => ({ status: 400, body: '{}' });
  await deliver(invoiceEvent('failed', 7, { customer: ada.customer, subscription: truth.id }));
  t.equal(await deliver(subscriptionEvent('updated', 5, subscriptionObject(truth))), 'processed');
  t.equal(await statusNow(), 'past_due');
  api.fault = () => undefined;
  await runJobs();
  t.equal(await statusNow(), 'active');
});

t.test('a subscription ended by an event of the same second needs no sync', async (t) => {
  const { app, api, deliver, buyer, subscription, runJobs } = await shop(t);
  const ada = await buyer();
  const object = { id: 'sub_1', customer: ada.customer, items: items() };
  await deliver(subscriptionEvent('created', 0, { ...object, status: 'incomplete' }));
  api.fault = () => 'cut';
  const over = { ...object, status: 'incomplete_expired' };
  t.equal(await deliver(subscriptionEvent('updated', 0, over, { status: 'incomplete' })), 'processed');
  t.match(await subscription(ada), { status: 'incomplete_expired' });
  await runJobs();
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
  const { app, api, deliver, buyer, subscribe, runJobs } = await shop(t);
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

  api.world.subscriptions.set('sub_1', subscribe(ada, { id: 'sub_1', status: 'past_due' }));
  await runJobs();
  t.match(await rowOf(t, app, 'sub_1'), { status: 'past_due' }, 'the provider is asked');
});

t.test('an invoice does not override its subscription', async (t) => {
  const { app, api, deliver, buyer, subscribe, subscription } = await shop(t);
  const ada = await buyer();
  const old = { id: 'sub_old', customer: ada.customer, items: items('price_basic', 'basic') };
  await deliver(subscriptionEvent('created', 0, { ...old, status: 'active' }));
  await deliver(subscriptionEvent('deleted', 1, { ...old, status: 'canceled' }));
  const sibling = subscribe(ada, { status: 'unpaid' });
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
    const { app, api, deliver, post, subscription } = await shop(t);
    const ada = await app.signUp({ email: 'ada@example.test' });
    const object = { id: 'sub_1', customer: 'cus_late', customer_email: ada.email, items: items() };
    const invoice = { customer: 'cus_late', customer_email: ada.email, subscription: 'sub_1' };
    t.equal(await deliver(subscriptionEvent('updated', -1, { id: 'sub_1', status: 'paused' })), 'unmatched');
    t.equal(await deliver(subscriptionEvent('created', 0, { ...object, status: 'incomplete' })), 'unmatched');
    t.equal(await deliver(invoiceEvent('succeeded', 1, invoice)), 'unmatched');
    const active = subscriptionEvent('updated', 2, { ...object, status: 'active' });
    t.equal(await deliver(active), 'unmatched');
    t.equal(await deliver(active), 'duplicate');
    t.match(await subscription(ada), { status: 'none' });

    const references = { client_reference_id: ada.id, metadata: { userId: ada.id } };
    api.sessions.set('cs_late', { id: 'cs_late', customer: 'cus_late', ...references });
    const eve = await app.signUp();
    const sync = (account: typeof ada, sessionId: string) => post(account, '/billing/sync', { sessionId });
    t.equal((await sync(eve, 'cs_late')).status, 404, "another user's session");
    t.equal((await sync(ada, 'cs_unknown')).status, 404);
    t.equal((await sync(ada, '../customers')).status, 400);
    t.match((await sync(ada, 'cs_late')).body.data, { status: 'active', plan: 'pro', entitled: true });
    const events = paymentEventCollection(await storeOf(t, app));
    t.equal(await events.count({ outcome: 'unmatched' }), 0);
    t.match(await events.findOne({ id: active.id }), { outcome: 'processed', payload: undefined });
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
  t.equal(await customers.findOne({ id: 'cus_test_of_ada' }), null, 'nor is a customer linked');
  const failed = invoiceEvent('failed', 9, { customer: 'cus_live', subscription: 'sub_live' });
  t.equal(await deliver({ ...failed, livemode: false }), 'ignored');
  t.match(await subscription(ada), { status: 'active' });

  t.equal(await deliver({ ...over('sub_test'), livemode: false }), 'processed');
  t.match(await subscription(eve), { status: 'canceled' });
  t.equal(await deliver(over('sub_live')), 'processed', 'an event that states no mode is applied');
});

t.test('test-mode events are ignored with a live key', async (t) => {
  for (const paymentSecretKey of ['sk_live_51Qm7vLd0mXw4RkT9cYb2', 'rk_live_51Qm7vLd0mXw4RkT9cYb2']) {
    const { app, deliver, subscription } = await shop(t, { paymentSecretKey });
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
    t.equal(await subscriptionCollection(await storeOf(t, app)).count(), 1);
  }
});
