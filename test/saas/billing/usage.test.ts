import t, { type Test } from 'tap';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import type { BillingEvents } from '../../../src/saas/billing/notifications.js';
import { customerCollection } from '../../../src/saas/billing/store.js';
import { usageCollection } from '../../../src/saas/billing/usage/reports.js';
import { saasApp, storeOf } from '../../kit/app.js';
import { billingOn, type TestBilling } from '../../kit/billing.js';
import { fakeClock } from '../../kit/clock.js';
import { committing } from '../../kit/events.js';
import type { Fault } from '../../kit/stripe.js';
import { UNSUBSCRIBED } from '../../kit/stripe-fixture.js';
import { boot } from '../../kit/stripe-storm.js';
import { CONFIG, KEY, provider, secondProcess, shop } from './kit.js';

const HOURS = 3600;
const DAYS = 24 * HOURS;

async function insertBuyer(store: Store, id: string, customerId: string | null): Promise<void> {
  const person = { id, email: `${id}@example.test`, ...UNSUBSCRIBED, createdAt: 1 };
  await userCollection(store).insert(person);
  if (customerId !== null)
    await customerCollection(store).insert({ id: customerId, ownerId: id, createdAt: 1 });
}

const send = async ({ sendUsage }: TestBilling): Promise<void> =>
  void (await sendUsage?.run({ term: 1, signal: new AbortController().signal }));

/** Billing on a store with the customer `usr_1`, and its provider, both with one clock. */
async function usageFixture(t: Test) {
  const api = await provider(t);
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const clock = fakeClock();
  clock.set(api.world.now * 1000);
  await insertBuyer(store, 'usr_1', 'cus_1');
  const failed: BillingEvents['usage.failed'][] = [];
  const start = () =>
    billingOn(store, clock, {
      config: { ...CONFIG, paymentSecretKey: KEY, paymentApiUrl: api.url },
      event: committing((name: string, event: BillingEvents['usage.failed']) => {
        if (name === 'usage.failed') failed.push(event);
      }),
    });
  const billing = start();
  return {
    api,
    store,
    clock,
    billing,
    failed,
    start,
    reports: usageCollection(store),
    report: (quantity: number, key: string) => billing.reportUsage('usr_1', 'requests', quantity, key),
    async pass(seconds: number) {
      api.world.now += seconds;
      clock.set(api.world.now * 1000);
      await send(billing);
    },
    /** Lets the provider record an event and lose its response. */
    loseResponses(fault: Fault = 'cut') {
      api.fault = ({ path, form }) => {
        if (path !== '/v1/billing/meter_events') return undefined;
        const identifier = form.get('identifier') ?? '';
        if (!api.meterEvents.some((event) => event.identifier === identifier)) {
          const [meter, customer] = ['requests', 'cus_1'];
          const { now: receivedAt } = api.world;
          api.meterEvents.push({ identifier, value: 1, meter, customer, at: receivedAt, receivedAt });
        }
        return fault;
      };
    },
  };
}

t.test('reported usage reaches the meter of the provider once for each key', async (t) => {
  const { api, clock, billing, report, pass, reports } = await usageFixture(t);
  const at = Math.floor(clock.now() / 1000);
  await report(3, 'req_1');
  await report(3, 'req_1');
  await report(4, 'req_2');
  await billing.reportUsage('usr_1', 'tokens', 900, 'req_1');
  await t.rejects(report(5, 'req_1'), { code: 'USAGE_KEY_REUSED', statusCode: 409 });
  await pass(10);
  await report(3, 'req_1');
  await pass(10);
  await pass(30 * HOURS);
  t.same(
    api.meterEvents.map(({ meter, value, customer, at: time }) => [meter, value, customer, time]).sort(),
    [
      ['requests', 3, 'cus_1', at],
      ['requests', 4, 'cus_1', at],
      ['tokens', 900, 'cus_1', at],
    ],
  );
  t.ok(api.meterEvents.every(({ identifier }) => identifier.length <= 100));
  t.equal(await reports.count({ status: 'sent' }), 3);
  t.equal(api.calls.length, 3);
});

t.test('invalid usage and unknown users are refused', async (t) => {
  const { billing, report, reports } = await usageFixture(t);
  for (const quantity of [-1, 1.5, Number.NaN, '1' as never])
    await t.rejects(report(quantity, 'a'), { code: 'VALIDATION_ERROR', details: [{ path: 'quantity' }] });
  for (const key of ['', 'a b', 'x'.repeat(256), 7 as never])
    await t.rejects(report(1, key), { code: 'VALIDATION_ERROR', details: [{ path: 'key' }] });
  await t.rejects(billing.reportUsage('usr_1', '', 1, 'a'), { code: 'VALIDATION_ERROR' });
  await t.rejects(billing.reportUsage('usr_none', 'requests', 1, 'a'), { code: 'NOT_FOUND' });
  t.equal(await reports.count(), 0);
  await report(0, 'zero');
  t.equal(await reports.count(), 1);
});

t.test('usage survives an outage of the provider and is counted once', async (t) => {
  for (const fault of [
    'cut',
    { status: 500, body: '{"error":{"type":"api_error"}}' },
    { status: 429, body: '{"error":{"type":"invalid_request_error"}}' },
    { status: 401, body: '{"error":{"type":"invalid_request_error"}}' },
    { status: 200, body: 'no {' },
  ] as const) {
    const { api, report, pass, reports } = await usageFixture(t);
    for (let number = 0; number < 20; number++) await report(1, `req_${number}`);
    api.fault = () => fault;
    for (let run = 0; run < 10; run++) await pass(60);
    t.equal(api.meterEvents.length, 0);
    t.ok(api.calls.length < 60, `${api.calls.length} calls while it is down`);
    api.fault = () => undefined;
    for (let run = 0; run < 3; run++) await pass(2 * HOURS);
    t.equal(api.meterEvents.length, 20, JSON.stringify(fault));
    t.equal(await reports.count({ status: 'sent' }), 20);
  }
});

t.test('usage whose response was lost is confirmed and not counted again', async (t) => {
  const { api, report, pass, loseResponses, reports } = await usageFixture(t);
  await report(1, 'req_1');
  loseResponses();
  await pass(10);
  t.equal(api.meterEvents.length, 1);
  api.fault = () => undefined;
  await pass(22 * HOURS);
  t.equal(api.meterEvents.length, 1);
  t.match(await reports.findOne({ status: 'sent' }), { attempts: 2 });
});

t.test('usage that may have been recorded a day ago fails instead of being counted twice', async (t) => {
  // The first attempt without a response decides, whether the provider answers later ones or not.
  for (const [downHours, upHours] of [
    [0, 25],
    [25, 3],
  ] as const) {
    const { api, report, pass, loseResponses, failed, reports } = await usageFixture(t);
    await report(1, 'req_1');
    loseResponses();
    await pass(10);
    for (let hours = 0; hours < downHours; hours++) await pass(HOURS);
    api.fault = () => undefined;
    await pass(upHours * HOURS);
    await pass(25 * HOURS);
    t.equal(api.meterEvents.length, 1);
    t.match(failed, [
      { userId: 'usr_1', meter: 'requests', quantity: 1, key: 'req_1', reason: 'unconfirmed' },
    ]);
    t.equal(failed.length, 1);
    t.match(await reports.findOne({ status: 'failed' }), { reason: 'unconfirmed' });
  }
});

t.test('usage that the provider refuses is retried until it would be too old', async (t) => {
  const { api, billing, pass, failed } = await usageFixture(t);
  api.fault = ({ form }) =>
    form.get('event_name') === 'late'
      ? { status: 400, body: '{"error":{"type":"invalid_request_error","code":"x"}}' }
      : undefined;
  await billing.reportUsage('usr_1', 'late', 1, 'req_1');
  await billing.reportUsage('usr_1', 'requests', 1, 'req_1');
  await pass(10);
  t.match(api.meterEvents, [{ meter: 'requests' }], 'others are not affected');
  await pass(34 * DAYS);
  api.fault = () => undefined;
  await pass(2 * HOURS);
  t.equal(api.meterEvents.length, 2);

  await billing.reportUsage('usr_1', 'unknown', 1, 'req_1');
  await pass(10);
  await pass(35 * DAYS);
  t.equal(failed.length, 1);
  t.match(failed, [{ meter: 'unknown', reason: /StripeInvalidRequestError 400/ }]);
  t.equal(api.meterEvents.length, 2);
});

t.test('usage of a user without a customer waits for the first purchase', async (t) => {
  const { api, store, billing, pass, failed } = await usageFixture(t);
  await insertBuyer(store, 'usr_2', null);
  await billing.reportUsage('usr_2', 'requests', 1, 'req_1');
  await pass(10);
  await pass(10 * DAYS);
  t.equal(api.calls.length, 0);
  await customerCollection(store).insert({ id: 'cus_2', ownerId: 'usr_2', createdAt: 1 });
  await pass(2 * HOURS);
  t.match(api.meterEvents, [{ customer: 'cus_2' }]);

  await insertBuyer(store, 'usr_3', null);
  await billing.reportUsage('usr_3', 'requests', 1, 'req_1');
  await pass(35 * DAYS);
  t.match(failed, [{ userId: 'usr_3', reason: 'the user has no customer' }]);
});

t.test('several processes share the work and count nothing twice', async (t) => {
  const { api, report, start, billing } = await usageFixture(t);
  for (let number = 0; number < 120; number++) await report(1, `req_${number}`);
  await Promise.all([send(billing), send(start()), send(start())]);
  await send(start());
  t.equal(api.meterEvents.length, 120);
  t.equal(new Set(api.meterEvents.map(({ identifier }) => identifier)).size, 120);
});

t.test('old reports are deleted', async (t) => {
  const { api, billing, report, pass, reports } = await usageFixture(t);
  await report(1, 'req_1');
  await pass(10);
  const run = () => billing.purgeUsage?.run({ term: 1, signal: new AbortController().signal });
  await pass(89 * DAYS);
  await run();
  t.equal(await reports.count(), 1);
  await pass(2 * DAYS);
  await run();
  t.equal(await reports.count(), 0);
  t.equal(api.meterEvents.length, 1);
});

/** At every step of a report and its delivery; the application repeats the report. */
t.test('usage is counted once if the process is killed at any step', async (t) => {
  const { api, store, clock } = await usageFixture(t);
  for (let fuse = 0, isOver = false; !isOver; fuse++) {
    for (const isInTime of [false, true]) {
      const key = `req_${fuse}_${isInTime}`;
      const before = api.meterEvents.length;
      const first = boot(store, clock, api.url);
      Object.assign(first.life, { fuse, isInTime });
      const work = async () => {
        await first.billing.reportUsage('usr_1', 'requests', 1, key);
        await send(first.billing);
      };
      await work().catch((error: unknown) => {
        if (!first.life.isOver) throw error;
      });
      isOver = !first.life.isOver;
      const second = boot(store, clock, api.url).billing;
      await second.reportUsage('usr_1', 'requests', 1, key);
      for (let run = 0; run < 3; run++) {
        api.world.now += 120;
        clock.set(api.world.now * 1000);
        await send(second);
      }
      const where = `killed at step ${fuse}, ${isInTime ? 'after' : 'before'} the store`;
      t.equal(api.meterEvents.length, before + 1, where);
    }
    if (isOver) t.ok(fuse > 5, `${fuse} steps`);
  }
  t.equal(await usageCollection(store).count({ status: 'sent' }), api.meterEvents.length);
});

t.test('the export of a user contains the reported usage with its status', async (t) => {
  const { app, api, buyer, exported } = await shop(t);
  const [ada, eve] = [await buyer(), await app.signUp()];
  const { reportUsage } = app.server.fastify.saas;
  await reportUsage(ada.id, 'requests', 3, 'req_1');
  await reportUsage(eve.id, 'requests', 9, 'req_1');
  const second = await secondProcess(t, { app, api });
  await send(second);
  app.clock.advance(1000);
  await reportUsage(ada.id, 'unknown', 4, 'req_2');
  await send(second);
  const { usage } = (await exported(ada)).billing;
  const common = { reportedAt: /^2040-/ };
  t.match(usage, [
    {
      ...common,
      meter: 'unknown',
      quantity: 4,
      key: 'req_2',
      status: 'queued',
      reason: /InvalidRequestError 400/,
    },
    { ...common, meter: 'requests', quantity: 3, key: 'req_1', status: 'sent', endedAt: /^2040-/ },
  ]);
  t.equal(usage.length, 2);
});

t.test('without an API key, no job sends usage', async (t) => {
  const app = await saasApp(t);
  t.equal(billingOn(await storeOf(t, app), app.clock, {}).sendUsage, undefined);
});
