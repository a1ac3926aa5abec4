import t, { type Test } from 'tap';
import { DAY } from '../../../src/core/kernel/clock.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { isEntitled } from '../../../src/saas/billing/entitlement.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { subscriptionCollection } from '../../../src/saas/billing/store.js';
import { type SaasApp, storeOf } from '../../kit/app.js';
import { runJobs } from '../../kit/billing.js';
import { subscriptionObject } from '../../kit/stripe-objects.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { invoiceEvent, items, secondProcess, shop, subscriptionEvent } from './kit.js';

/** The plan of a subscription, and whether it entitles. */

const rowOf = async (t: Test, app: SaasApp, id: string) =>
  subscriptionCollection(await storeOf(t, app)).findOne({ id });

t.test("the best subscription determines the user's status", async (t) => {
  const { deliver, buyer, subscription } = await shop(t);
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
});

t.test('active, trialing and past-due subscriptions entitle, and other statuses do not', async (t) => {
  const now = 1_000_000_000_000;
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
  t.ok(entitles('past_due', { pastDueSince: now - 3 * DAY + 1 }, 3));
  t.notOk(entitles('past_due', { pastDueSince: now - 3 * DAY }, 3));
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

    const second = await shop(t, { folder, billingPrices: ['price_new=gold'] });
    const { app, deliver, subscribe } = second;
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

    const truth = subscribe(ada, { price: 'price_pro' });
    await deliver(told(truth.id, 0, { items: items('price_pro', 'earlier') }));
    await (await secondProcess(t, second)).resync.run({ ownerId: ada.id });
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
  const { app, api, deliver, buyer, subscribe, subscription, post } = await shop(t, {
    billingPrices: ['price_listed=gold'],
  });
  const ada = await buyer();
  const addOns = Array.from({ length: 11 }, (_, index) => ({ id: `si_${index}`, price: `price_${index}` }));
  addOns.push({ id: 'si_gold', price: 'price_listed' });
  const bought = subscribe(ada, { price: 'price_seats', addOns });
  const expect = async (what: string) => {
    const found = await subscription(ada);
    t.match(found, { plan: 'gold', entitled: true, priceId: 'price_listed' }, what);
    t.equal((found['items'] as Json[]).length, 13, what);
  };
  await deliver(subscriptionEvent('created', 0, subscriptionObject(bought)));
  await expect('after an event');
  await post(ada, '/billing/sync');
  await expect('after a sync');
  t.equal((await post(ada, '/billing/subscription/cancel', {})).status, 200);
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
    const { app, api, deliver, buyer, subscribe } = here;
    const { saas } = app.server.fastify;
    const start = app.clock.now();
    const failed = async (give: (id: string, customer: string) => Promise<unknown>, days: number) => {
      const ada = await buyer();
      const truth = subscribe(ada);
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
