import t, { type Test } from 'tap';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import type { HeldView } from '../../../src/saas/billing/schemas.js';
import { isChange } from '../../kit/stripe-changes.js';
import { type Buyer, eventOf, shop } from './kit.js';

/** What users hold, by family, and what may be done with each part. */

const PLANS = {
  basic: { prices: ['price_basic'], limits: { projects: 1 } },
  pro: { prices: ['price_pro'], name: 'Pro', limits: { projects: 10 } },
  storage: { prices: ['price_storage'], independent: true, features: ['storage'] },
  lifetime: { prices: ['price_lifetime'], purchase: true, independent: true, features: ['archive'] },
};

async function holder(t: Test) {
  const place = await shop(t, { billing: { plans: PLANS } });
  const ada = await place.buyer();
  return {
    ...place,
    ada,
    /** What the user holds after a sync with the provider. */
    async holdings() {
      t.equal((await place.post(ada, '/billing/sync')).status, 200);
      const { body } = await place.app.request('GET', '/api/billing/holdings', { token: ada.accessToken });
      return body.data as {
        plan: string;
        entitled: boolean;
        holdings: HeldView[];
        limits: Json;
        features: Json;
      };
    },
  };
}

const lifetimeSession = ({ id, customer }: Buyer) => ({
  id: 'cs_lifetime',
  object: 'checkout.session',
  mode: 'payment',
  status: 'complete',
  payment_status: 'paid',
  customer,
  client_reference_id: id,
  metadata: { userId: id },
  amount_total: 9900,
  currency: 'eur',
  line_items: { data: [{ quantity: 1, price: { id: 'price_lifetime' } }] },
});

t.test('subscriptions, purchases and grants are held side by side; the main plan is shown', async (t) => {
  const { app, ada, subscribe, deliver, holdings } = await holder(t);
  const basic = subscribe(ada);
  app.clock.advance(60_000);
  const storage = subscribe(ada, { price: 'price_storage', created: basic.created + 60 });
  t.equal(await deliver(eventOf('checkout.session.completed', 0, lifetimeSession(ada))), 'processed');
  const before = await holdings();
  t.equal(before.plan, 'basic', 'not the newer add-on');
  t.same(before.limits, { projects: 1 });
  t.same(before.features, ['archive', 'storage']);
  const actions = ['change', 'cancel', 'cancel_now'];
  const held = { entitled: true, kind: 'subscription', actions };
  const expected = [
    { ...held, id: basic.id, family: 'plans', plan: 'basic' },
    { ...held, id: storage.id, family: 'storage', plan: 'storage' },
    { ...held, id: 'cs_lifetime', kind: 'purchase', family: 'lifetime', plan: 'lifetime', actions: [] },
  ];
  t.equal(before.holdings.length, expected.length);
  for (const one of expected)
    t.match(
      before.holdings.find(({ id }) => id === one.id),
      one,
    );
  await app.server.fastify.saas.users.grant({ id: ada.id }, { plan: 'pro' });
  const after = await holdings();
  t.match(after, { plan: 'pro', entitled: true, limits: { projects: 10 } });
  t.match(
    after.holdings.find(({ kind }) => kind === 'grant'),
    { id: 'grant', status: 'granted', family: 'plans', name: 'Pro', actions: [] },
  );
  t.same(await app.server.fastify.saas.billing.get(ada.id), after, 'the same for code of the host');
});

t.test('an order changes the plan of its own family', async (t) => {
  const { ada, api, post, subscribe, holdings } = await holder(t);
  const basic = subscribe(ada);
  const storage = subscribe(ada, { price: 'price_storage' });
  await holdings();
  const order = { priceId: 'price_pro' };
  const other = await post(ada, '/billing/subscription/change', { ...order, subscriptionId: storage.id });
  t.match(other, { status: 409, body: { error: { code: 'SUBSCRIPTION_NOT_CHANGEABLE' } } });
  t.equal((await post(ada, '/billing/subscription/change', order)).status, 200);
  t.same([basic.price, storage.price], ['price_pro', 'price_storage']);
  t.equal(api.calls.filter(isChange).length, 1);
});

t.test('what has no plan here neither blocks a purchase nor is changed', async (t) => {
  const { ada, buy, post, subscribe, holdings } = await holder(t);
  const retainer = subscribe(ada, { price: 'price_retainer' });
  const [held] = (await holdings()).holdings;
  t.match(held, { id: retainer.id, family: null, entitled: false, actions: ['cancel', 'cancel_now'] });
  t.equal((await buy(ada, { priceId: 'price_pro' })).status, 200);
  const order = { priceId: 'price_pro' };
  t.match(await post(ada, '/billing/subscription/change', order), { status: 404 });
  t.match(await post(ada, '/billing/subscription/change', { ...order, subscriptionId: retainer.id }), {
    status: 409,
  });
  const pro = subscribe(ada, { price: 'price_pro' });
  await holdings();
  t.equal((await post(ada, '/billing/subscription/cancel', {})).status, 200);
  t.same([pro.cancelAtPeriodEnd, retainer.cancelAtPeriodEnd], [true, false], 'the plan of this product');
});

t.test('each state says what can be done', async (t) => {
  const { ada, subscribe, holdings } = await holder(t);
  const subscription = subscribe(ada);
  const cases: [Partial<typeof subscription>, string[]][] = [
    [{ status: 'trialing' }, ['change', 'cancel', 'cancel_now']],
    [{ status: 'active', cancelAtPeriodEnd: true }, ['change', 'cancel_now', 'resume']],
    [{ status: 'active', pauseBehavior: 'void' }, ['cancel', 'cancel_now', 'resume']],
    [{ status: 'incomplete' }, ['cancel_now', 'pay']],
    [{ status: 'past_due' }, ['change', 'cancel', 'cancel_now', 'pay']],
    [{ status: 'unpaid' }, ['cancel', 'cancel_now', 'pay']],
    [{ status: 'paused' }, ['cancel', 'cancel_now', 'resume']],
    [{ status: 'canceled' }, []],
  ];
  for (const [state, actions] of cases) {
    Object.assign(subscription, { cancelAtPeriodEnd: false, pauseBehavior: null }, state);
    const [held] = (await holdings()).holdings;
    t.same(held?.actions, actions, JSON.stringify(state));
  }
});
