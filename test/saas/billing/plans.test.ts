import type { ServerResponse } from 'node:http';
import fastify from 'fastify';
import t from 'tap';
import { SECOND } from '../../../src/core/kernel/clock.js';
import { createServer, type SaasRequest, saasBackend } from '../../../src/index.js';
import { createCatalog } from '../../../src/saas/billing/plans/catalog.js';
import { createPlans } from '../../../src/saas/billing/plans/plans.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { type Account, SECRETS, saasApp, storeOf, testOptions } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { saasPluginOptions } from '../../kit/host.js';
import { listen } from '../../kit/listener.js';
import { storedValues } from '../../kit/mail.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { shop, signUpAt, subscriptionEvent } from './kit.js';

/** The plans of the option `billing`: what they include, and where it is shown and enforced. */

const billing = {
  plans: {
    free: { features: ['notes'], limits: { projects: 1 } },
    basic: { prices: ['price_basic'], features: ['export'], limits: { projects: 5, members: 2 } },
    pro: {
      prices: ['price_pro'],
      features: ['export', 'sso'],
      limits: { projects: null, members: 1 },
      checkout: { trialDays: 14 },
    },
    support: { prices: ['price_support'], features: ['phone'] },
  },
};

const subscriptionOf = (user: Account, id: string, ...prices: string[]) => ({
  id,
  status: 'active',
  metadata: { userId: user.id },
  items: { data: prices.map((price) => ({ id: `si_${price}`, quantity: 1, price: { id: price } })) },
});

/** Of a seller without customers and lookup keys. */
const NO_LINKS = {
  links: { list: async () => [] },
  lookupKeys: { remember: async () => {}, load: async () => {} },
};

t.test('features and limits are those of all plans of a user', async (t) => {
  const { app, deliver, subscription } = await shop(t, { billing });
  const { saas } = app.server.fastify;
  const ada = await app.signUp();
  const shown = async () => {
    const { features, limits } = (await subscription(ada)) as { features: string[]; limits: object };
    for (const feature of ['notes', 'export', 'sso', 'phone']) {
      t.equal(await saas.hasFeature(ada.id, feature), features.includes(feature), feature);
    }
    return { features, limits };
  };
  t.same(await shown(), { features: ['notes'], limits: { projects: 1, members: 0 } }, 'of the plan free');
  t.equal(await saas.entitles(ada.id), false, 'the plan free is not a purchase');

  await saas.users.grant({ id: ada.id }, { plan: 'basic' });
  t.same(await shown(), { features: ['export', 'notes'], limits: { projects: 5, members: 2 } });
  const object = subscriptionOf(ada, 'sub_1', 'price_pro', 'price_support');
  t.equal(await deliver(subscriptionEvent('created', 0, object)), 'processed');
  const all = ['export', 'notes', 'phone', 'sso'];
  t.same(await shown(), { features: all, limits: { projects: null, members: 2 } }, 'the highest of both');
  t.same(await saas.limits(ada.id), { projects: Number.POSITIVE_INFINITY, members: 2 });
  t.same(await Promise.all(['basic', 'pro', 'support', 'team'].map((plan) => saas.entitles(ada.id, plan))), [
    true,
    true,
    true,
    false,
  ]);

  await saas.users.revokeGrant({ id: ada.id });
  await deliver(subscriptionEvent('deleted', 60, { ...object, status: 'canceled' }));
  t.same(await shown(), { features: ['notes'], limits: { projects: 1, members: 0 } });

  for (const unknown of ['usr_unknown', '', 'a\0b', undefined]) {
    t.equal(await saas.hasFeature(unknown as string, 'notes'), false);
    t.same(await saas.limits(unknown as string), { projects: 0, members: 0 });
  }
});

t.test('without configured plans there are no features and limits', async (t) => {
  const app = await saasApp(t, { billingPrices: ['price_pro=pro'] });
  const { saas } = app.server.fastify;
  const ada = await app.signUp();
  await saas.users.grant({ id: ada.id }, { plan: 'pro' });
  const { body } = await app.request('GET', '/api/billing/subscription', { token: ada.accessToken });
  t.match(body.data, { plan: 'pro', features: [], limits: {} });
  t.equal(await saas.hasFeature(ada.id, 'export'), false);
  t.same(await saas.limits(ada.id), {});
  t.doesNotThrow(() => saas.requireEntitled('team'), 'a grant can name any plan');
  t.doesNotThrow(() => saas.requireFeature('export'));
});

t.test('a host guards its own routes by feature and by plan', async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  await host.register(saasBackend, { ...saasPluginOptions(t), billing });
  host.get('/notes', { onRequest: host.saas.requireFeature('notes') }, async () => 'notes');
  host.get('/export', { onRequest: host.saas.requireFeature('export') }, async (request) => {
    return request.saas.user.email;
  });
  host.get('/any', { onRequest: host.saas.requireEntitled() }, async () => 'any');
  host.get('/pro', { onRequest: host.saas.requireEntitled('pro') }, async () => 'pro');
  const { user, get } = await signUpAt(host);
  t.equal((await host.inject('/notes')).statusCode, 401);
  t.equal((await get('/notes')).body, 'notes');
  t.match((await get('/export')).json(), { statusCode: 403, code: 'FEATURE_NOT_INCLUDED' });
  t.match((await get('/any')).json(), { statusCode: 403, code: 'FORBIDDEN' });
  await host.saas.users.grant({ id: user.id }, { plan: 'basic' });
  t.equal((await get('/export')).body, 'ada@example.test');
  t.equal((await get('/any')).body, 'any');
  t.equal((await get('/pro')).statusCode, 403);
});

t.test('an unknown plan or feature in a guard prevents the start and lists the known ones', async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  await host.register(saasBackend, { ...saasPluginOptions(t), billing, billingPrices: ['price_x=team'] });
  const backend = createServer({
    ...testOptions(temporaryFolder(t)),
    billing,
    billingPrices: ['price_x=team'],
  });
  t.teardown(() => backend.stop());
  for (const { requireEntitled, requireFeature } of [host.saas, backend]) {
    t.throws(() => requireFeature('exprot'), /'exprot'.* notes, export, sso, phone\. Did you mean 'export'/);
    t.throws(() => requireEntitled('prp'), /'prp'.* basic, pro, support, team\. Did you mean 'pro'/);
    t.throws(() => requireEntitled('free'), /'free' is not a plan/);
    for (const plan of [undefined, 'pro', 'team']) t.type(requireEntitled(plan), 'function');
  }
});

t.test('an application without Fastify guards its routes by feature', async (t) => {
  const backend = createServer({ ...testOptions(temporaryFolder(t)), billing, middleware: true });
  t.teardown(() => backend.stop());
  const guard = backend.requireFeature('export');
  const app = (request: SaasRequest, response: ServerResponse) => {
    backend.middleware(request, response, () =>
      guard(request, response, () => response.end(request.saas?.user.email)),
    );
  };
  const base = await listen(t, app);
  const registered = await fetch(`${base}/api/auth/register`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ email: 'ada@example.test', password: 'correct horse battery staple' }),
  });
  const { accessToken, user } = (
    (await registered.json()) as { data: { accessToken: string; user: Account } }
  ).data;
  const get = () => fetch(`${base}/export`, { headers: { authorization: `Bearer ${accessToken}` } });
  const refused = await get();
  t.equal(refused.status, 403);
  t.match(await refused.json(), { error: { code: 'FEATURE_NOT_INCLUDED' } });
  t.equal(await backend.hasFeature(user.id, 'export'), false);
  await backend.fastify.saas.users.grant({ id: user.id }, { plan: 'basic' });
  t.equal(await (await get()).text(), 'ada@example.test');
  t.equal(await backend.hasFeature(user.id, 'export'), true);
  t.same(await backend.limits(user.id), { projects: 5, members: 2 });
});

t.test('the plans show what is configured next to the prices of the provider', async (t) => {
  const { app, api } = await shop(t, { billing });
  const answers = await Promise.all([1, 2, 3].map(() => app.request('GET', '/api/billing/plans')));
  const { body } = answers[0] as (typeof answers)[0];
  t.same(
    body.data.map(({ plan }: { plan: string }) => plan),
    ['free', 'basic', 'pro'],
    'the provider has no price_support',
  );
  t.match(body.data[0], {
    priceId: null,
    amount: null,
    currencies: [],
    features: ['notes'],
    limits: { projects: 1 },
  });
  t.match(body.data[2], {
    priceId: 'price_pro',
    amount: 2900,
    currency: 'eur',
    currencies: [
      { currency: 'eur', amount: 2900 },
      { currency: 'usd', amount: 3200 },
    ],
    interval: 'month',
    usageType: 'licensed',
    trialDays: 14,
    features: ['export', 'sso'],
    limits: { projects: null, members: 1 },
  });
  t.equal(body.data[1].trialDays, null);
  t.equal(api.calls.length, 1, 'one request for all of them');
});

t.test('e-mails and the list of plans show the name of a plan, where it has one', async (t) => {
  const { free, pro, ...others } = billing.plans;
  const plans = {
    ...others,
    free: { ...free, name: 'Free & simple' },
    pro: { ...pro, name: 'Professional' },
  };
  const { app, deliver } = await shop(t, { billing: { plans } });
  const { body } = await app.request('GET', '/api/billing/plans');
  const names = Object.fromEntries(body.data.map(({ plan, name }: Record<string, string>) => [plan, name]));
  t.match(names, { free: 'Free & simple', pro: 'Professional' });
  t.not(names['basic'], 'Professional', 'the name of the product at the provider');
  const ada = await app.signUp();
  for (const [index, price] of ['price_pro', 'price_support'].entries()) {
    const object = { ...subscriptionOf(ada, `sub_${index}`, price), status: 'canceled' };
    await deliver(subscriptionEvent('deleted', index, object));
  }
  const mails = mailCollection(await storeOf(t, app));
  const { items } = await mails.page({ where: { userId: ada.id }, sort: 'id', limit: 10 });
  const shown = items
    .filter(({ template }) => template === 'subscription-canceled')
    .map((mail) => storedValues(mail, SECRETS.jwtRefreshSecret)['plan']);
  t.same(shown.sort(), ['Professional', 'support']);
});

t.test('final invoices are listed as the provider returns them, to their customer only', async (t) => {
  const { app, api, buyer } = await shop(t);
  const ada = await buyer();
  const invoicesOf = async ({ accessToken: token }: Account) =>
    (await app.request('GET', '/api/billing/invoices', { token })).body.data;
  const common = { created: 2_208_988_800, amount_due: 2900 };
  const paid = { status: 'paid', amount_paid: 2900, currency: 'eur', number: 'A-1' };
  const links = { hosted_invoice_url: 'https://pay.example.test/in_1', invoice_pdf: 'javascript:alert(1)' };
  api.invoices.push(
    { id: 'in_1', customer: ada.customer, ...common, ...paid, ...links },
    { id: 'in_2', customer: 'cus_other', ...common },
    { id: 'in_3', customer: ada.customer, ...common, status: 'draft' },
  );
  t.same(await invoicesOf(ada), [
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
      subscriptionId: null,
    },
  ]);
  t.same(await invoicesOf(await app.signUp()), []);
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
  const parts = { plans: createPlans({}, () => {}), gateway, clock } as object;
  const catalog = createCatalog(parts as Parameters<typeof createCatalog>[0], NO_LINKS);
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
  const parts = { plans, gateway, clock: fakeClock() } as object;
  const catalog = createCatalog(parts as Parameters<typeof createCatalog>[0], NO_LINKS);
  t.match(await catalog.plans(), [{ priceId: 'price_1', plan: 'unknown' }]);
  t.same(warned, []);
  t.equal(plans.planOfPurchase({ priceId: 'price_1' }), 'unknown');
  t.same(warned, ['price_1']);
});
