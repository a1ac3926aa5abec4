import t from 'tap';
import { MINUTE } from '../../../src/core/kernel/clock.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { errorOf, saasApp } from '../../kit/app.js';
import { shop, subscriptionEvent } from './kit.js';

/** Plans that name prices by their lookup keys. */

const PRO = { lookupKey: 'pro_monthly', amount: 2900, currency: 'eur', interval: 'month' } as const;
const PLANS = { pro: { prices: [PRO], features: ['export'] } };

const price = (id: string, lookup_key: string | null, more: Json = {}): Json => ({
  ...{ id, object: 'price', active: true, lookup_key, product: 'plan_pro', metadata: {}, currency: 'eur' },
  ...{ unit_amount: 2900, recurring: { interval: 'month', interval_count: 1 }, ...more },
});

t.test('a price is sold, and gives its plan, by its lookup key', async (t) => {
  const { app, api, buyer, deliver } = await shop(t, { billing: { plans: PLANS } });
  const ada = await buyer();
  const checkout = (priceId: string) =>
    app.request('POST', '/api/billing/create-checkout-session', {
      token: ada.accessToken,
      body: { priceId },
    });
  t.equal(errorOf(await checkout('pro_monthly')), 'PRICE_NOT_ALLOWED', 'before it exists');
  api.prices.set('price_1', price('price_1', 'pro_monthly'));
  // The list of prices is fetched once a minute.
  app.clock.advance(MINUTE);
  const { body } = await app.request('GET', '/api/billing/plans');
  t.match(
    body.data.filter(({ priceId }: Json) => priceId !== null),
    [{ priceId: 'price_1', plan: 'pro', features: ['export'] }],
  );

  // The server of another process has never seen the price, and learns it from the event.
  const item = (one: Json) => ({
    data: [{ id: 'si_1', quantity: 1, price: one, current_period_end: app.clock.now() / 1000 + 86_400 }],
  });
  const active = { id: 'sub_1', customer: ada.customer, status: 'active', created: 1 };
  await deliver(subscriptionEvent('created', 1, { ...active, items: item(price('price_0', 'pro_monthly')) }));
  const held = await app.server.fastify.saas.billing.get(ada.id);
  t.match(held, { plan: 'pro', entitled: true });

  // The key moves to a successor: the former price keeps its plan, also after a restart without the provider.
  await deliver(subscriptionEvent('updated', 2, { ...active, items: item(price('price_0', null)) }));
  t.match(await app.server.fastify.saas.billing.get(ada.id), { plan: 'pro', entitled: true });
});

t.test('known prices are read from the store, and others asked for at the start', async (t) => {
  const { app, api } = await shop(t, { billing: { plans: PLANS } });
  api.prices.set('price_1', price('price_1', 'pro_monthly'));
  const restart = (paymentApiUrl: string) =>
    saasApp(t, {
      ...{ databaseUri: app.databaseUri, billing: { plans: PLANS } },
      ...{ paymentSecretKey: 'sk_test_1', paymentApiUrl },
    });
  const second = await restart(api.url);
  const asked = () => api.calls.filter(({ query }) => query.has('lookup_keys[0]')).length;
  t.ok(asked() >= 1);
  t.match(second.server.fastify.saas, {});
  const third = await restart('http://127.0.0.1:9');
  const ada = await third.signUp();
  const refused = await third.request('POST', '/api/billing/create-checkout-session', {
    token: ada.accessToken,
    body: { priceId: 'price_1' },
  });
  t.equal(errorOf(refused), 'PAYMENT_PROVIDER_ERROR', 'for sale, while the provider does not answer');
});

t.test('the portal opens with settings of this product where none were saved', async (t) => {
  const { app, api, buyer } = await shop(t);
  const ada = await buyer();
  const open = () =>
    app.request('POST', '/api/billing/create-portal-session', { token: ada.accessToken, body: {} });
  api.fault = ({ path, form }) =>
    path === '/v1/billing_portal/sessions' && !form.has('configuration')
      ? {
          status: 400,
          body: JSON.stringify({
            error: { type: 'invalid_request_error', message: 'No configuration provided' },
          }),
        }
      : undefined;
  t.equal(errorOf(await open()), 'PAYMENT_PROVIDER_ERROR');
  await fetch(`${api.url}/v1/billing_portal/configurations`, {
    method: 'POST',
    body: new URLSearchParams({ 'metadata[saas_backend]': 'true' }),
  });
  t.equal((await open()).status, 200);
});
