import t, { type Test } from 'tap';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { subscriber } from './kit.js';

/** Add-ons of a subscription, and promotion codes for it. */

const ADD = 'subscription/add-ons';
const REMOVE = 'subscription/add-ons/remove';
const CODE = 'subscription/promotion-code';

const PLANS = {
  basic: { prices: ['price_basic', 'price_calls'], checkout: { promotionCodes: true } },
  pro: { prices: ['price_pro'] },
  storage: { prices: ['price_storage', 'price_more'], independent: true, features: ['storage'] },
};

async function place(t: Test, options: Parameters<typeof subscriber>[1] = {}) {
  const opened = await subscriber(t, { billing: { plans: PLANS }, ...options });
  for (const id of ['price_storage', 'price_more', 'price_calls']) {
    const recurring = { interval: 'month', usage_type: 'licensed' };
    opened.api.prices.set(id, { id, object: 'price', active: true, currency: 'eur', recurring });
  }
  const holdings = async (): Promise<Json & { features: string[]; holdings: Json[] }> => {
    const { body } = await opened.app.request('GET', '/api/billing/holdings', {
      token: opened.ada.accessToken,
    });
    return body.data;
  };
  return { ...opened, holdings };
}

t.test('an add-on becomes an item of the subscription, and is removed from it', async (t) => {
  const { app, ada, truth, post, changes, holdings } = await place(t);
  const token = ada.accessToken;
  const preview = await app.request('GET', `/api/billing/${ADD}/preview?priceId=price_storage&quantity=2`, {
    token,
  });
  t.equal(preview.status, 200);
  t.same([changes().length, truth.addOns], [0, undefined]);
  t.equal((await post(ADD, { priceId: 'price_storage', quantity: 2 })).status, 200);
  t.match(truth, { price: 'price_basic', addOns: [{ price: 'price_storage', quantity: 2 }] });
  t.match(Object.fromEntries(changes()[0]?.form ?? []), {
    'items[0][price]': 'price_storage',
    'items[0][quantity]': '2',
    proration_behavior: 'always_invoice',
    payment_behavior: 'error_if_incomplete',
  });
  const held = await holdings();
  t.same([held.features, held.holdings.length], [['storage'], 1]);
  t.equal((await post(ADD, { priceId: 'price_storage', quantity: 2 })).status, 200);
  t.equal(changes().length, 1, 'a repeated order changes nothing');
  await post(ADD, { priceId: 'price_more', quantity: 1 });
  t.match(truth.addOns, [{ price: 'price_more', quantity: 1 }], 'another price of it replaces the first');
  t.equal(truth.addOns?.length, 1);

  const removed = await post(REMOVE, { priceId: 'price_more' });
  t.match([removed.status, removed.body.data], [200, { plan: 'basic', items: [{ priceId: 'price_basic' }] }]);
  t.same([truth.addOns, (await holdings()).features], [[], []]);
  t.equal((await post(REMOVE, { priceId: 'price_more' })).status, 200);
  t.equal(changes().length, 3);
});

t.test('only an add-on is added to a subscription and removed from it', async (t) => {
  const { truth, post, changes, api, app, buyer } = await place(t);
  truth.addOns = [{ id: 'si_calls', price: 'price_calls' }];
  for (const [path, priceId] of [
    [ADD, 'price_pro'],
    [ADD, 'price_basic'],
    [ADD, 'price_unknown'],
    [REMOVE, 'price_calls'],
    [REMOVE, 'price_basic'],
  ] as const) {
    const { status, body } = await post(path, { priceId });
    t.match([status, body.error?.code], [422, 'PRICE_NOT_ALLOWED'], `${path} ${priceId}`);
  }
  t.equal(changes().length, 0);
  api.declines = 'card_declined';
  t.match(await post(ADD, { priceId: 'price_storage' }), { status: 402 });
  t.equal(truth.addOns.length, 1);
  const eve = await buyer();
  const answer = await app.request('POST', `/api/billing/${ADD}`, {
    token: eve.accessToken,
    body: { priceId: 'price_storage', subscriptionId: truth.id },
  });
  t.match(answer, { status: 404, body: { error: { code: 'SUBSCRIPTION_NOT_FOUND' } } });
});

t.test('an add-on is held once: as an item, or as a subscription of its own', async (t) => {
  const { ada, truth, post, postAs, subscribe } = await place(t);
  await post(ADD, { priceId: 'price_storage' });
  const checkout = await postAs(ada, '/billing/create-checkout-session', { priceId: 'price_more' });
  t.match([checkout.status, checkout.body.error?.code], [409, 'ALREADY_SUBSCRIBED']);
  await post(REMOVE, { priceId: 'price_storage' });
  const own = subscribe(ada, { price: 'price_storage' });
  await post('sync');
  t.match(await post(ADD, { priceId: 'price_storage' }), { status: 409 });
  t.equal((await post(REMOVE, { priceId: 'price_storage' })).status, 200);
  t.same([own.cancelAtPeriodEnd, truth.cancelAtPeriodEnd], [true, false], 'it ends with its period');
});

t.test('a promotion code gives a running subscription one discount', async (t) => {
  const { api, truth, post, changes } = await place(t);
  const code = (id: string, more: Json = {}) =>
    api.promotionCodes.push({ id, code: id.toUpperCase(), active: true, ...more });
  code('launch');
  code('other');
  code('old', { active: false });
  code('foreign', { customer: 'cus_other' });
  for (const wrong of ['OLD', 'FOREIGN', 'NONE']) {
    const { status, body } = await post(CODE, { code: wrong });
    t.match([status, body.error?.code], [422, 'PROMOTION_NOT_VALID'], wrong);
  }
  const { status, body } = await post(CODE, { code: 'LAUNCH' });
  t.match([status, body.data], [200, { discounts: [{ name: 'Launch', percentOff: 20 }] }]);
  t.equal(changes().at(-1)?.form.get('discounts[0][promotion_code]'), 'launch');
  const calls = changes().length;
  t.equal((await post(CODE, { code: 'LAUNCH' })).status, 200);
  t.match(await post(CODE, { code: 'OTHER' }), { status: 409, body: { message: /discount already/ } });
  t.equal(changes().length, calls);
  t.equal((await post(CODE, { code: 'LAUNCH 20%' })).status, 400);

  Object.assign(truth, { price: 'price_pro', discount: null });
  await post('sync');
  t.match(await post(CODE, { code: 'LAUNCH' }), { status: 422 }, 'this plan is sold without promotion codes');
});

t.test('codes cannot be guessed', async (t) => {
  const { post, api } = await place(t, { limits: true });
  const lookups = () => api.calls.filter(({ path }) => path === '/v1/promotion_codes').length;
  let status = 0;
  for (let attempt = 0; attempt < 12 && status !== 429; attempt++)
    ({ status } = await post(CODE, { code: `GUESS${attempt}` }));
  t.same([status, lookups()], [429, 10]);
});
