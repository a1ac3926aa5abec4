import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import {
  createEventLeases,
  EVENT_LEASE_MS,
  EventTaken,
  type ReceivedEvent,
} from '../../../src/saas/billing/events/leases.js';
import { createGateway } from '../../../src/saas/billing/provider/gateway.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import {
  customerCollection,
  paymentCollection,
  paymentEventCollection,
  subscriptionCollection,
} from '../../../src/saas/billing/store.js';
import { onServers } from '../../core/storage/engines.js';
import { billingOn, runJobs } from '../../kit/billing.js';
import { type FakeClock, fakeClock } from '../../kit/clock.js';
import { committing } from '../../kit/events.js';
import { explore } from '../../kit/explore.js';
import { signWebhook } from '../../kit/sign-webhook.js';
import { STORM_SECRET, UNSUBSCRIBED } from '../../kit/stripe-fixture.js';
import { outage } from '../../kit/stripe-outage.js';
import { storm } from '../../kit/stripe-storm.js';
import { CONFIG, eventOf, invoiceEvent, KEY, provider, subscriptionEvent } from './kit.js';

/** `npm run test:storms` has twenty. */
const STORMS = Number(process.env['STORMS'] ?? 5);
const OUTAGES = Math.ceil(STORMS * 0.4);

const object = (status: string) => ({
  id: 'sub_1',
  customer: 'cus_1',
  status,
  items: { data: [{ price: { id: 'price_pro', lookup_key: 'pro' } }] },
});

async function insertAda(store: Store): Promise<void> {
  await userCollection(store).insert({ id: 'usr_1', email: 'a@b.test', ...UNSUBSCRIBED, createdAt: 1 });
  await customerCollection(store).insert({ id: 'cus_1', ownerId: 'usr_1', createdAt: 1 });
}

/**
 * Explores deliveries to processes that each receive one event. A delivery that would have to wait for another one fails; in the end all
 * are repeated.
 * @param created the events before them
 */
async function exploreDeliveries(
  t: Test,
  {
    created = [],
    events,
    check,
  }: { created?: Json[]; events: Json[]; check(store: Store): Promise<unknown> },
): Promise<void> {
  const told: string[] = [];
  const deliver = (event: Json, clock: FakeClock) => (store: Store) => {
    const config = { paymentWebhookSecret: STORM_SECRET, ...CONFIG };
    const wait = () => Promise.reject(new Error('it waits'));
    const tell = committing((name: string, { id }: { id: string }) => told.push(`${name} ${id}`));
    const { webhook } = billingOn(store, clock, { config, wait, event: tell });
    const body = JSON.stringify(event);
    const signature = signWebhook(body, STORM_SECRET, clock.now());
    return webhook.receive({ signature, body: Buffer.from(body), ip: '192.0.2.1' });
  };
  const later = fakeClock();
  later.advance(EVENT_LEASE_MS);
  const exploration = await explore({
    async setup(store) {
      await insertAda(store);
      for (const event of created) await deliver(event, later)(store);
    },
    begin: () => told.splice(0),
    actors: events.map((event) => deliver(event, fakeClock())),
    crash: true,
    async check(store) {
      for (const event of events) await deliver(event, later)(store);
      if (new Set(told).size < told.length) throw new Error(`told twice: ${told}`);
      const open = await paymentEventCollection(store).count({ outcome: null });
      if (open > 0) throw new Error(`${open} events are not completed`);
      const problem = await check(store);
      if (problem !== undefined) throw new Error(`ended as ${problem}`);
    },
  });
  t.equal(exploration.failure, undefined);
  t.ok(exploration.orders > 3, `${exploration.orders} orders`);
}

t.test('in every interleaving of deliveries, with a crash of one, the newest event applies', async (t) => {
  const [created, terms, ended, newer] = [
    subscriptionEvent('created', 0, object('active')),
    subscriptionEvent('updated', 1, { ...object('active'), cancel_at_period_end: true }),
    subscriptionEvent('updated', 1, object('past_due')),
    subscriptionEvent('updated', 2, { ...object('unpaid'), cancel_at_period_end: true }),
  ] as [Json, Json, Json, Json];
  const pairs = [
    [terms, terms],
    [terms, newer],
    [terms, ended],
    [ended, ended],
    [ended, newer],
  ];
  for (const events of pairs)
    await exploreDeliveries(t, {
      created: [created],
      events,
      async check(store) {
        const stored = await subscriptionCollection(store).findOne({ id: 'sub_1' });
        const user = await userCollection(store).findOne({ id: 'usr_1' });
        const found = `${stored?.status} ${stored?.cancelAtPeriodEnd} ${user?.subscriptionStatus}`;
        const isNewest = !events.includes(newer) || found === 'unpaid true unpaid';
        return isNewest && user?.subscriptionStatus === stored?.status ? undefined : found;
      },
    });
});

t.test('concurrent changes of two subscriptions of a user both count', async (t) => {
  const other = { ...object('active'), id: 'sub_2' };
  await exploreDeliveries(t, {
    created: [object('active'), other].map((one) => subscriptionEvent('created', 0, one)),
    events: [object('past_due'), { ...other, status: 'unpaid' }].map((one) =>
      subscriptionEvent('updated', 1, one),
    ),
    async check(store) {
      const user = await userCollection(store).findOne({ id: 'usr_1' });
      const held = user?.subscriptionsHeld?.map(({ id, status }) => `${id} ${status}`);
      const found = `${user?.subscriptionStatus}: ${held}`;
      return found === 'past_due: sub_1 past_due' ? undefined : found;
    },
  });
});

t.test('an invoice and its refund at the same time are one payment', async (t) => {
  const charge = { customer: 'cus_1', payment_intent: 'pi_1', amount: 2900, amount_refunded: 900 };
  await exploreDeliveries(t, {
    events: [
      invoiceEvent('succeeded', 0, { id: 'in_1', customer: 'cus_1', payment_intent: 'pi_1' }),
      eventOf('charge.refunded', 1, { id: 'ch_1', ...charge }),
    ],
    async check(store) {
      const payments = paymentCollection(store);
      const payment = await payments.findOne({ id: 'in_1' });
      const found = `${await payments.count()} ${payment?.status} ${payment?.refundedAmount}`;
      return found === '1 paid 900' ? undefined : found;
    },
  });
});

t.test('a stored event whose type has no effect here is completed as ignored', async (t) => {
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const clock = fakeClock();
  const events = paymentEventCollection(store);
  const payload = JSON.stringify({
    id: 'evt_1',
    type: 'invoice.of_tomorrow',
    data: { object: { id: 'in_1' } },
  });
  const stored = {
    type: 'invoice.of_tomorrow',
    objectId: 'in_1',
    payload,
    receivedAt: clock.now(),
    attempts: 1,
  };
  await events.insert({ ...stored, id: 'evt_1', leaseUntil: clock.now() });
  await events.insert({ ...stored, id: 'evt_2', outcome: 'unmatched' });
  await runJobs(billingOn(store, clock, {}));
  for (const id of ['evt_1', 'evt_2']) {
    const { outcome, payload: left } = (await events.findOne({ id })) ?? {};
    t.strictSame({ outcome, left }, { outcome: 'ignored', left: undefined });
  }
});

t.test('a repeated delivery waits for the one in progress, and gives up after a while', async (t) => {
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const clock = fakeClock();
  let waits = 0;
  let onWait = async () => {};
  const wait = () => {
    waits++;
    return onWait();
  };
  const leases = createEventLeases(paymentEventCollection(store), { clock, wait });
  const complete = (one: ReceivedEvent) => store.commit([leases.completing(one, 'processed')]);
  const receive = (id: string): ReceivedEvent => {
    const event = { id, type: 'x', objectId: 'o', object: {}, previous: {} };
    return { event, payload: '{}', stored: null };
  };
  const own = receive('evt_1');
  await leases.acquire(own);
  await t.rejects(leases.acquire(receive('evt_1')), EventTaken);
  await t.rejects(leases.settled('evt_1'), { code: 'EVENT_IN_PROGRESS' });
  t.equal(waits, 50, 'five seconds, a tenth at a time');
  onWait = async () => void (await complete(own));
  t.match(await leases.settled('evt_1'), { outcome: 'processed', attempts: 1 });

  const lost = receive('evt_2');
  await leases.acquire(lost);
  clock.advance(EVENT_LEASE_MS);
  const stored = await leases.settled('evt_2');
  t.match(await complete({ ...receive('evt_2'), stored }), { committed: true }, 'taken over');
  t.match(await complete(lost), { committed: false }, 'a worker without the lease cannot complete the event');
});

t.test('provider calls that hang, trickle or ask to retry later are given up in time', async (t) => {
  const trickling = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    const timer = setInterval(() => response.write(' '), 20);
    response.on('close', () => clearInterval(timer));
  });
  await new Promise<void>((resolve) => trickling.listen(0, '127.0.0.1', resolve));
  t.teardown(() => trickling.closeAllConnections());
  t.teardown(() => void trickling.close());
  const timeouts = { attemptMs: 100, callMs: 300, lookupMs: 200 };
  const answers = {
    hang: (await provider(t, () => 'hang')).url,
    trickle: `http://127.0.0.1:${(trickling.address() as AddressInfo).port}`,
    'later, please': (
      await provider(t, () => ({ status: 503, body: '{}', headers: { 'retry-after': '60' } }))
    ).url,
    'connection refused': 'http://127.0.0.1:1',
  };
  for (const [name, url] of Object.entries(answers)) {
    const gateway = createGateway(KEY, url, timeouts);
    const portal = gateway.createPortal('cus_1', 'https://app.example.test');
    await t.rejects(portal, { code: 'PAYMENT_PROVIDER_ERROR' }, name);
    await t.rejects(gateway.subscription('sub_1'), { code: 'PAYMENT_PROVIDER_ERROR' }, name);
  }
});

t.test('provider calls do not ask for compressed answers', async (t) => {
  const { url, calls } = await provider(t);
  await createGateway(KEY, url).createPortal('cus_1', 'https://app.example.test');
  t.equal(calls[0]?.headers['accept-encoding'], 'identity');
});

await onServers((engine, fresh) => {
  t.test(`after a webhook storm on ${engine} all subscriptions match the provider`, async (t) => {
    const { problems } = await storm(7, { subscriptions: 10, events: 70 }, fresh(t));
    t.same(problems, []);
  });

  t.test(`on ${engine}, every user is correct within a minute after an outage of the provider`, async (t) => {
    const { problems, wrongAtReturn } = await outage(6, fresh(t));
    t.same(problems, []);
    t.ok(wrongAtReturn > 0, `${wrongAtReturn} were wrong before`);
  });
});

t.test(
  'after a storm of reordered events, kills and faults all subscriptions match the provider',
  async (t) => {
    const sum = { deliveries: 0, forged: 0, kills: 0, uncertain: 0 };
    for (let seed = 1; seed <= STORMS; seed++) {
      const result = await storm(seed, { subscriptions: 20, events: 220 });
      t.same(result.problems, [], `seed ${seed}`);
      for (const name of ['deliveries', 'forged', 'kills', 'uncertain'] as const) sum[name] += result[name];
    }
    t.comment(sum);
    t.ok(sum.kills > 5 * STORMS && sum.forged > 15 * STORMS, 'it was a storm');
  },
);

t.test('after an outage of the provider every user is correct within a minute', async (t) => {
  let wrongAtReturn = 0;
  for (let seed = 1; seed <= OUTAGES; seed++) {
    const result = await outage(seed);
    t.same(result.problems, [], `seed ${seed}`);
    wrongAtReturn += result.wrongAtReturn;
    const runs = result.lasted / 20 + 1;
    t.ok(result.callsWhileDown < result.events + 4 * runs, `seed ${seed}: few calls while it is down`);
  }
  t.ok(wrongAtReturn > OUTAGES, 'the outages left users in doubt');
});
