import t, { type Test } from 'tap';
import { DAY, HOUR } from '../../../src/core/kernel/clock.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { monthlyRevenueOf } from '../../../src/saas/billing/figures/amounts.js';
import { updateFigures } from '../../../src/saas/billing/figures/job.js';
import { type DailyFigures, figureCollections } from '../../../src/saas/billing/figures/store.js';
import {
  type ItemPrice,
  type SubscriptionDocument,
  subscriptionCollection,
} from '../../../src/saas/billing/store.js';
import { storeOf } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { shop, subscriptionEvent } from './kit.js';

/** Daily figures about subscriptions: MRR, its movements, statuses and trials. */

const MONTHLY: ItemPrice = { interval: 'month', intervalCount: 1, unitAmount: 2900, currency: 'eur' };
const NOON = Date.UTC(2040, 0, 10, 12);

const item = (price: Partial<ItemPrice> = {}, quantity?: number) => ({
  priceId: 'price_1',
  price: { ...MONTHLY, ...price },
  ...(quantity !== undefined && { quantity }),
});

let created = 0;

function subscription(id: string, more: Partial<SubscriptionDocument> = {}): SubscriptionDocument {
  const at = NOON - 90 * DAY + ++created;
  return {
    id,
    ownerId: `usr_${id}`,
    status: 'active',
    plan: 'pro',
    cancelAtPeriodEnd: false,
    startedAt: at,
    items: [item()],
    at,
    statusAt: at,
    heardAt: at,
    rev: 1,
    createdAt: at,
    updatedAt: at,
    ...more,
  };
}

function desk(store: Store) {
  const clock = fakeClock(NOON);
  const collections = { ...figureCollections(store), subscriptions: subscriptionCollection(store) };
  const { subscriptions, dailyFigures } = collections;
  let term = 0;
  return {
    ...collections,
    clock,
    add: (...documents: SubscriptionDocument[]) =>
      Promise.all(documents.map((one) => subscriptions.insert(one))),
    set: (id: string, set: Partial<SubscriptionDocument>) => subscriptions.updateOne({ id }, { set }),
    /** Runs the job; `crashAt`: the write to the store that fails. */
    async run(crashAt?: number): Promise<DailyFigures> {
      let writes = 0;
      const failing = <C extends object>(collection: C): C =>
        new Proxy(collection, {
          get(target, name, receiver) {
            const method = Reflect.get(target, name, receiver) as (...given: unknown[]) => Promise<unknown>;
            if (!/^(insert|update|delete)/.test(String(name))) return method.bind(target);
            return async (...given: unknown[]) => {
              if (++writes === crashAt) throw new Error('crash');
              return method.apply(target, given);
            };
          },
        });
      const { dailyFigures, revenue, figureProgress } = collections;
      await updateFigures(
        {
          subscriptions,
          clock,
          dailyFigures: failing(dailyFigures),
          revenue: failing(revenue),
          figureProgress: failing(figureProgress),
        },
        { term: ++term, signal: new AbortController().signal },
      );
      const day = new Date(clock.now()).toISOString().slice(0, 10);
      return (await dailyFigures.findOne({ id: day })) as DailyFigures;
    },
    figuresOf: (id: string) => dailyFigures.findOne({ id }),
  };
}

t.test('an item adds its price per month, times its quantity', async (t) => {
  const mrr = (...items: SubscriptionDocument['items']) => monthlyRevenueOf({ status: 'active', items });
  t.same(mrr(item({}, 3)).amounts, { eur: 8700 });
  t.same(mrr(item({ interval: 'year', unitAmount: 12_000 })).amounts, { eur: 1000 });
  t.same(mrr(item({ interval: 'month', intervalCount: 3, unitAmount: 9000 })).amounts, { eur: 3000 });
  t.same(mrr(item({ interval: 'week', unitAmount: 700 })).amounts, { eur: 3042 });
  t.same(mrr(item(), item({ currency: 'jpy', unitAmount: 500 })).amounts, { eur: 2900, jpy: 500 });
  t.same(mrr(item(), item({ isMetered: true })).amounts, { eur: 2900 }, 'metered prices do not count');
  t.equal(mrr(item({ isMetered: true })).isIncomplete, false);
  t.same(mrr(item({ unitAmount: 0 })), { amounts: {}, isIncomplete: false }, 'free plans are no revenue');
  const { unitAmount: _, ...tiered } = MONTHLY;
  t.same(mrr({ priceId: 'price_2', price: tiered }), { amounts: {}, isIncomplete: true });
  t.same(mrr(), { amounts: {}, isIncomplete: true });
});

t.test('only active and past due subscriptions have revenue', async (t) => {
  const paying = ['active', 'past_due', 'trialing', 'unpaid', 'paused', 'incomplete', 'canceled'].filter(
    (status) => 'eur' in monthlyRevenueOf({ status, items: [item()] }).amounts,
  );
  t.same(paying, ['active', 'past_due']);
});

const begin = async (t: Test) => {
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  return desk(store);
};

t.test('the first figures have no movements, those of the next day compare with them', async (t) => {
  const { add, set, run, clock } = await begin(t);
  await add(subscription('sub_a'), subscription('sub_b'), subscription('sub_c', { status: 'trialing' }));
  await add(subscription('sub_d', { status: 'canceled' }));
  t.match(await run(), {
    mrr: { eur: 5800 },
    movements: {},
    statuses: { active: 2, trialing: 1 },
    incomplete: 0,
  });
  clock.advance(DAY);
  await add(subscription('sub_e', { startedAt: clock.now() }));
  await set('sub_a', { status: 'canceled' });
  await set('sub_b', { items: [item({}, 2)] });
  await set('sub_c', { status: 'active' });
  const { mrr, movements } = await run();
  t.same(mrr, { eur: 11_600 });
  t.same(movements, { eur: { churned: -2900, expansion: 2900, new: 5800 } });
});

t.test('several runs of a day find the same movements, and the last state counts', async (t) => {
  const { add, set, run, clock, figuresOf } = await begin(t);
  await add(subscription('sub_a', { items: [item({}, 3)] }));
  await run();
  clock.advance(DAY);
  await set('sub_a', { items: [item({}, 1)] });
  const once = await run();
  t.same(once.movements, { eur: { contraction: -5800 } });
  clock.advance(HOUR);
  t.same({ ...(await run()), at: 0 }, { ...once, at: 0 });
  await set('sub_a', { items: [item({}, 2)] });
  t.same((await run()).movements, { eur: { contraction: -2900 } });
  await set('sub_a', { items: [item({}, 3)] });
  t.same((await run()).movements, {});
  clock.advance(DAY);
  t.same((await run()).movements, {});
  t.match(await figuresOf('2040-01-11'), { mrr: { eur: 8700 }, movements: {} });
});

t.test('a subscriber who returns is a reactivation, another subscription an expansion', async (t) => {
  const { add, set, run, clock } = await begin(t);
  await add(subscription('sub_a'), subscription('sub_b'));
  await add(subscription('sub_old', { ownerId: 'usr_c', status: 'canceled' }));
  await run();
  clock.advance(DAY);
  await set('sub_a', { status: 'unpaid' });
  t.same((await run()).movements, { eur: { churned: -2900 } });
  clock.advance(DAY);
  await set('sub_a', { status: 'active' });
  await add(subscription('sub_c', { ownerId: 'usr_c' }), subscription('sub_b2', { ownerId: 'usr_sub_b' }));
  t.same((await run()).movements, { eur: { reactivation: 5800, expansion: 2900 } });
});

t.test('an amount that becomes known is no movement', async (t) => {
  const { add, set, run, clock } = await begin(t);
  await add(subscription('sub_a', { items: [{ priceId: 'price_1' }] }));
  t.match(await run(), { mrr: {}, incomplete: 1 });
  clock.advance(DAY);
  await set('sub_a', { items: [item()] });
  t.match(await run(), { mrr: { eur: 2900 }, movements: {}, incomplete: 0 });
  clock.advance(HOUR);
  t.same((await run()).movements, {});
});

t.test('a subscription that was deleted with its account has churned once', async (t) => {
  const { add, run, clock, subscriptions, revenue } = await begin(t);
  await add(subscription('sub_a'), subscription('sub_b'));
  await run();
  clock.advance(DAY);
  await subscriptions.deleteOne({ id: 'sub_b' });
  t.match(await run(), { mrr: { eur: 2900 }, movements: { eur: { churned: -2900 } } });
  t.match(await run(), { movements: { eur: { churned: -2900 } } });
  clock.advance(DAY);
  t.same((await run()).movements, {});
  t.equal(await revenue.count(), 1, 'nothing of the deleted account remains');
});

t.test('trials count on the day of their end, by what has become of them', async (t) => {
  const { add, run } = await begin(t);
  const trialEnd = NOON - DAY;
  await add(
    subscription('sub_a', { trialEnd }),
    subscription('sub_b', { trialEnd, status: 'past_due' }),
    subscription('sub_c', { trialEnd: NOON + DAY, status: 'canceled', endedAt: trialEnd }),
    subscription('sub_d', { trialEnd: NOON + DAY, status: 'trialing' }),
    subscription('sub_e', { trialEnd: NOON - 60 * DAY }),
  );
  t.same((await run()).trials, { '2040-01-09': { converted: 1, open: 1, ended: 1 } });
});

t.test('a run that crashed before any of its writes continues without counting twice', async (t) => {
  const ids = Array.from({ length: 250 }, (_, index) => `sub_${String(index).padStart(4, '0')}`);
  const expected = {
    mrr: { eur: 2900 * 230 },
    movements: { eur: { new: 2900 * 50, churned: -2900 * 20 } },
  };
  let hasCrashed = true;
  // The first and the last writes, and some between.
  for (let crashAt = 1; hasCrashed; crashAt += crashAt > 2 && crashAt < 118 ? 23 : 1) {
    const { add, set, run, clock } = await begin(t);
    await add(...ids.slice(0, 200).map((id) => subscription(id)));
    await run();
    clock.advance(DAY);
    await Promise.all(ids.slice(0, 20).map((id) => set(id, { status: 'canceled' })));
    await add(...ids.slice(200).map((id) => subscription(id)));
    hasCrashed = await run(crashAt).then(
      () => false,
      () => true,
    );
    t.match(await run(), expected, `write ${crashAt}`);
  }
});

t.test('an interrupted run continues after the batches that it has finished', async (t) => {
  const { add, set, run } = await begin(t);
  await add(...Array.from({ length: 250 }, (_, index) => subscription(`sub_${1000 + index}`)));
  // 1 for the progress, 200 times an update and an insert, 1 for the progress.
  await t.rejects(run(410), { message: 'crash' });
  await set('sub_1000', { status: 'canceled' });
  t.match(await run(), { statuses: { active: 250 } });
  t.match(await run(), { statuses: { active: 249 } }, 'the next run reads all of them');
});

t.test('a run that has lost its lease writes no more', async (t) => {
  const { add, run, clock, figureProgress, figuresOf } = await begin(t);
  await add(subscription('sub_a'));
  await run();
  clock.advance(DAY);
  await figureProgress.updateOne({ id: 'subscriptions' }, { set: { term: 99 } });
  await run();
  t.equal(await figuresOf('2040-01-11'), null);
});

t.test('an event stores what the items cost, in every format of the provider', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const ada = await buyer();
  const stored = async () => {
    const found = await subscriptionCollection(await storeOf(t, app)).findOne({ id: 'sub_1' });
    return found?.items;
  };
  const recurring = { interval: 'year', interval_count: 1, usage_type: 'licensed' };
  const price = { id: 'price_pro', lookup_key: 'pro', unit_amount: 29_000, currency: 'eur', recurring };
  const metered = {
    id: 'price_calls',
    unit_amount: null,
    unit_amount_decimal: '0.5',
    currency: 'eur',
    recurring: { interval: 'month', interval_count: 1, usage_type: 'metered' },
  };
  const event = (at: number, data: object[]) =>
    subscriptionEvent('updated', at, {
      id: 'sub_1',
      customer: ada.customer,
      status: 'active',
      items: { data },
    });
  await deliver(event(1, [{ price, quantity: 2 }, { price: metered }]));
  t.same(await stored(), [
    {
      priceId: 'price_pro',
      quantity: 2,
      price: { interval: 'year', intervalCount: 1, unitAmount: 29_000, currency: 'eur' },
    },
    {
      priceId: 'price_calls',
      price: { interval: 'month', intervalCount: 1, unitAmount: 0.5, currency: 'eur', isMetered: true },
    },
  ]);
  const plan = { id: 'price_old', amount: 900, currency: 'usd', interval: 'month', interval_count: 1 };
  await deliver(event(2, [{ plan, quantity: 1 }]));
  t.match(await stored(), [{ priceId: 'price_old', price: { unitAmount: 900, currency: 'usd' } }]);
});
