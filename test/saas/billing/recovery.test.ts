import t, { type Test } from 'tap';
import { DAY, MINUTE } from '../../../src/core/kernel/clock.js';
import { HANDLED_EVENT_TYPES } from '../../../src/saas/billing/events/provider-objects.js';
import { purchaseCollection } from '../../../src/saas/billing/purchases.js';
import {
  eventMarkCollection,
  paymentCollection,
  paymentEventCollection,
} from '../../../src/saas/billing/store.js';
import { storeOf } from '../../kit/app.js';
import { runJobs, type TestBilling } from '../../kit/billing.js';
import { sessionObject } from '../../kit/stripe-purchases.js';
import { secondProcess, shop } from './kit.js';

/** Events of the provider that were never received. */

const LEASE = { term: 1, signal: new AbortController().signal };

/** A purchase and a subscription, neither of which was delivered. */
async function outage(t: Test) {
  const here = await shop(t);
  const { api, app, buyer } = here;
  const { world } = api;
  const [ada, eve] = [await buyer(), await buyer()];
  world.events.length = 0;
  const pass = (milliseconds: number) => {
    app.clock.advance(milliseconds);
    world.now = app.clock.now() / 1000;
  };
  world.now = app.clock.now() / 1000;
  const store = await storeOf(t, app);
  const events = paymentEventCollection(store);
  const [bought, paid] = [purchaseCollection(store), paymentCollection(store)];
  return {
    ...here,
    ada,
    eve,
    pass,
    events,
    billing: await secondProcess(t, here),
    lose() {
      world.buyOnce(ada.customer, ada.id);
      const purchase = [...world.purchases.values()].at(-1);
      if (!purchase) throw new Error('Nothing was bought.');
      purchase.status = 'paid';
      Object.assign(world.events.at(-1)?.['data'] as object, { object: sessionObject(purchase) });
      return purchase;
    },
    purchases: async () => (await bought.page({ where: { ownerId: ada.id }, sort: 'at', limit: 9 })).items,
    payments: async () => (await paid.page({ where: { ownerId: ada.id }, sort: 'at', limit: 9 })).items,
  };
}

const recover = ({ jobs }: TestBilling) => jobs.recovery?.run(LEASE);

t.test('a resync brings back purchases, refunds and disputes whose events were lost', async (t) => {
  const { api, ada, eve, lose, billing, deliver, events, purchases, payments } = await outage(t);
  const { world } = api;
  const purchase = lose();
  for (let acts = 0; purchase.refunded === 0 && acts < 9; acts++) world.actOnPurchase();
  world.subscribe(eve.customer, eve.id, false);
  const sold = world.events.length;

  const foreseen = await billing.resync.run({ dryRun: true });
  t.equal(foreseen.events.compared, sold);
  t.match(foreseen.events.missing, { 'checkout.session.completed': 1, 'charge.refunded': 1 });
  t.equal(await events.count(), 0, 'a dry run stores nothing');
  const counts: number[] = [];
  const own = await billing.resync.run({
    ownerId: ada.id,
    onEvents: (compared) => void counts.push(compared),
  });
  t.same(own.events, {
    compared: 2,
    missing: { 'checkout.session.completed': 1, 'charge.refunded': 1 },
  });
  t.equal(counts.at(-1), 2);
  t.same((await billing.resync.run({ ownerId: ada.id, skipEvents: true })).events, {
    compared: 0,
    missing: {},
  });
  await runJobs(billing);
  t.match(await purchases(), [{ id: purchase.id, status: 'paid', items: [{ priceId: purchase.price }] }]);
  t.match(await payments(), [{ refundedAmount: purchase.refunded }]);

  const rest = await billing.resync.run();
  t.equal(
    Object.values(rest.events.missing).reduce((sum, count) => sum + count),
    sold - 2,
    'the others only',
  );
  await runJobs(billing);
  t.equal(await events.count({ outcome: null }), 0);
  t.same((await billing.resync.run()).events, { compared: sold, missing: {} }, 'and nothing twice');
  for (const event of world.events) t.equal(await deliver(event), 'duplicate');
});

t.test('the background job finds what was not delivered since its last run, however long ago', async (t) => {
  const { app, api, lose, pass, billing, events, purchases, deliver } = await outage(t);
  const marks = eventMarkCollection(await storeOf(t, app));
  const mark = async () => (await marks.findOne({ id: 'compared' }))?.until;
  // The server of the test has begun when it started.
  await marks.deleteMany({ id: 'compared' });
  lose();
  pass(DAY);
  await recover(billing);
  t.equal(await events.count(), 0, 'the first run begins here');
  api.world.events.length = 0;

  pass(10 * MINUTE);
  const purchase = lose();
  await recover(billing);
  t.equal(await events.count(), 0, 'it may still be delivered');
  api.fault = () => ({ status: 500, body: '{}' });
  pass(10 * MINUTE);
  const before = await mark();
  await t.rejects(recover(billing) as Promise<void>, { code: 'PAYMENT_PROVIDER_ERROR' });
  t.equal(await mark(), before, 'the next run repeats it');
  api.fault = () => undefined;
  pass(12 * DAY);
  await Promise.all([recover(billing), recover(billing), deliver(api.world.events[0] ?? {})]);
  await runJobs(billing);
  t.match(await purchases(), [{ id: purchase.id, status: 'paid' }]);
  t.equal(await events.count(), 1);

  const calls = api.calls.length;
  pass(10 * MINUTE);
  await recover(billing);
  t.same([await events.count(), (await mark()) === app.clock.now() - 5 * MINUTE], [1, true]);
  t.equal(api.calls.length, calls + Math.ceil(HANDLED_EVENT_TYPES.size / 20), 'one page of each list');
  lose();
  pass(40 * DAY);
  await recover(billing);
  const since = Number(api.calls.at(-1)?.query.get('created[gte]'));
  t.equal(since * 1000, app.clock.now() - 30 * DAY, 'the provider keeps events for 30 days');
});
