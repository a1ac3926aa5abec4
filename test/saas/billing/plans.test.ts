import type { ServerResponse } from 'node:http';
import fastify from 'fastify';
import t, { type Test } from 'tap';
import { createServer, type SaasRequest, saasBackend } from '../../../src/index.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { onMongod } from '../../core/storage/mongod.js';
import { type Account, SECRETS, saasApp, storeOf, testOptions } from '../../kit/app.js';
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

type Options = NonNullable<Parameters<typeof saasApp>[1]>;

const subscriptionOf = (user: Account, id: string, ...prices: string[]) => ({
  id,
  status: 'active',
  metadata: { userId: user.id },
  items: { data: prices.map((price) => ({ id: `si_${price}`, quantity: 1, price: { id: price } })) },
});

async function mergeBenefits(t: Test, options: Options = {}): Promise<void> {
  const { app, deliver, subscription } = await shop(t, { billing, ...options });
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
  t.equal(
    await deliver(
      subscriptionEvent('created', 0, subscriptionOf(ada, 'sub_1', 'price_pro', 'price_support')),
    ),
    'processed',
  );
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
  const deleted = { ...subscriptionOf(ada, 'sub_1', 'price_pro', 'price_support'), status: 'canceled' };
  await deliver(subscriptionEvent('deleted', 60, deleted));
  t.same(await shown(), { features: ['notes'], limits: { projects: 1, members: 0 } });

  for (const unknown of ['usr_unknown', '', 'a\0b', undefined]) {
    t.equal(await saas.hasFeature(unknown as string, 'notes'), false);
    t.same(await saas.limits(unknown as string), { projects: 0, members: 0 });
  }
}

t.test('features and limits are those of all plans of a user', (t) => mergeBenefits(t));

onMongod((server) => {
  t.test('MongoDB: features and limits are those of all plans of a user', (t) =>
    mergeBenefits(t, { databaseUri: server.fresh(t) }),
  );
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

t.test('a host guards its own routes by feature', async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  await host.register(saasBackend, { ...saasPluginOptions(t), billing });
  host.get('/notes', { onRequest: host.saas.requireFeature('notes') }, async () => 'notes');
  host.get('/export', { onRequest: host.saas.requireFeature('export') }, async (request) => {
    return request.saas.user.email;
  });
  const { user, get } = await signUpAt(host);
  t.equal((await host.inject('/notes')).statusCode, 401);
  t.equal((await get('/notes')).body, 'notes');
  t.match((await get('/export')).json(), {
    statusCode: 403,
    code: 'FEATURE_NOT_INCLUDED',
    message: 'Your plan does not include the feature export.',
  });
  await host.saas.users.grant({ id: user.id }, { plan: 'basic' });
  t.equal((await get('/export')).body, 'ada@example.test');
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
    t.throws(() => requireFeature('exprot'), {
      message:
        "requireFeature: no plan has the feature 'exprot'. The features of the option 'billing' are: notes, export, sso, phone. Did you mean 'export'?",
    });
    t.throws(() => requireEntitled('prp'), {
      message:
        "requireEntitled: 'prp' is not a plan that can be purchased or granted. The plans of the option 'billing' are: basic, pro, support, team. Did you mean 'pro'?",
    });
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
  const { body } = await app.request('GET', '/api/billing/plans');
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
