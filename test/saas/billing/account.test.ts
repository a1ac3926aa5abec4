import t from 'tap';
import { DAY } from '../../../src/core/kernel/clock.js';
import { HANDLED_EVENT_TYPES } from '../../../src/saas/billing/events/provider-objects.js';
import { examineAccount } from '../../../src/saas/billing/provider/examination.js';
import { createGateway } from '../../../src/saas/billing/provider/gateway.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { findTestSubscriptions, subscriptionCollection } from '../../../src/saas/billing/store.js';
import { SECRETS, saasApp, storeOf } from '../../kit/app.js';
import { billingOn } from '../../kit/billing.js';
import { fakeClock } from '../../kit/clock.js';
import { signWebhook } from '../../kit/sign-webhook.js';
import { subscriptionObject } from '../../kit/stripe-objects.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { CONFIG, eventOf, KEY, provider, shop, subscriptionEvent } from './kit.js';

/** The account at the provider: its mode, its settings and its limits. */

const LIVE_KEY = 'sk_live_51Qm7vLd0mXw4RkT9cYb2NfHs6';
const PLANS = {
  pro: { prices: ['price_pro'], limits: { messages: { amount: 9 } } },
  lifetime: { prices: ['price_lifetime'], purchase: true, independent: true },
};

t.test('what was bought in test mode gives nothing under a live key', async (t) => {
  const folder = temporaryFolder(t);
  const billing = { plans: PLANS };
  const { app, api, deliver, buyer, subscribe } = await shop(t, { folder, billing });
  const ada = await buyer();
  const truth = subscribe(ada, { price: 'price_pro' });
  await deliver(subscriptionEvent('created', 0, subscriptionObject(truth)));
  const bought = { id: 'cs_1', mode: 'payment', payment_status: 'paid', livemode: false };
  const line_items = { data: [{ quantity: 1, price: { id: 'price_lifetime' } }] };
  const of = { customer: ada.customer, client_reference_id: ada.id, payment_intent: 'pi_1' };
  await deliver(eventOf('checkout.session.completed', 0, { ...bought, ...of, line_items }));
  const { saas } = app.server.fastify;
  t.ok((await saas.entitles(ada.id, 'pro')) && (await saas.entitles(ada.id, 'lifetime')));
  t.match(await saas.usage.consume(ada.id, 'messages', 1), { allowed: true, limit: 9 });

  const live = await saasApp(t, { folder, billing, paymentSecretKey: LIVE_KEY, paymentApiUrl: api.url });
  const now = live.server.fastify.saas;
  t.notOk((await now.entitles(ada.id, 'pro')) || (await now.entitles(ada.id, 'lifetime')));
  t.match(await now.billing.get(ada.id), { entitled: false, plan: 'free' });
  t.match(await now.usage.consume(ada.id, 'messages', 1), { allowed: false, limit: 0 });
  const { body } = await live.request('GET', '/api/auth/me', { token: ada.accessToken });
  t.match(
    body.data.user.subscription,
    { entitled: false, plan: 'free' },
    'nor by what was stored with the user',
  );
  t.same(await findTestSubscriptions(subscriptionCollection(await storeOf(t, app))), [truth.id]);
});

const ENDPOINT = 'https://app.example.test/api/billing/webhook';

/** An account in which everything is set up, except for the given answers by path. */
async function accountWith(
  t: Parameters<typeof provider>[0],
  answers: Record<string, Json | number>,
  clock = fakeClock(),
) {
  const list = (...data: Json[]) => ({ object: 'list', has_more: false, data });
  const endpoint = { id: 'we_1', url: ENDPOINT, status: 'enabled', enabled_events: ['*'] };
  const right: Record<string, Json | number> = {
    '/v1/webhook_endpoints': list(endpoint),
    '/v1/billing_portal/configurations': list({ id: 'bpc_1', is_default: true }),
    '/v1/prices': list({ id: 'price_1', lookup_key: 'pro_monthly' }),
    '/v1/prices/price_pro': { id: 'price_pro', active: true, product: { active: true } },
    ...answers,
  };
  const { url } = await provider(t, ({ path }) => {
    const found = right[path] ?? list();
    const error = { type: 'invalid_request_error', code: 'resource_missing', message: 'Refused.' };
    return typeof found === 'number'
      ? { status: found, body: JSON.stringify({ error }) }
      : { status: 200, body: JSON.stringify(found) };
  });
  const prices = new Map([['price_pro', 'pro']]);
  const problems = await examineAccount({
    ...{ key: KEY, apiUrl: url, prices, lookupKeys: ['pro_monthly'] },
    webhookUrl: ENDPOINT,
    clock,
  });
  return problems.map(({ about, message }) => `${about} ${message}`);
}

t.test('the doctor names what is missing in the account at the provider', async (t) => {
  t.same(await accountWith(t, {}), []);
  const endpoints = (...data: Json[]) => ({ '/v1/webhook_endpoints': { object: 'list', data } });
  const endpoint = { url: ENDPOINT, status: 'enabled', enabled_events: [...HANDLED_EVENT_TYPES] };
  t.same(await accountWith(t, endpoints(endpoint)), []);
  const old = { ...endpoint, enabled_events: endpoint.enabled_events.slice(2), api_version: '2020-08-27' };
  const [first, second] = HANDLED_EVENT_TYPES;
  const cases: [Record<string, Json | number>, string[]][] = [
    [endpoints(), [`webhook endpoint does not exist: ${ENDPOINT}`]],
    [
      endpoints({ ...endpoint, status: 'disabled' }),
      [`webhook endpoint is disabled at the payment provider: ${ENDPOINT}`],
    ],
    [
      endpoints(old),
      [
        `webhook endpoint receives no ${first}, ${second}`,
        'webhook endpoint has the API version 2020-08-27, whose events are not tested',
      ],
    ],
    [
      { '/v1/prices/price_pro': 404 },
      ['price price_pro of the plan pro does not exist in this mode of this account'],
    ],
    [
      { '/v1/prices/price_pro': { id: 'price_pro', active: true, product: { active: false } } },
      ['price price_pro of the plan pro is archived, so it cannot be bought'],
    ],
    [
      { '/v1/prices': { object: 'list', data: [] } },
      ['price pro_monthly does not exist in this mode of this account, so it cannot be bought'],
    ],
    [
      { '/v1/billing_portal/configurations': { object: 'list', data: [] } },
      ['customer portal has no settings at the payment provider: create-portal-session responds with 502'],
    ],
    [
      { '/v1/invoices': 403, '/v1/webhook_endpoints': 403 },
      ['PAYMENT_SECRET_KEY lacks permissions to read: Invoices, Webhook Endpoints'],
    ],
    [{ '/v1/charges': 401 }, ['PAYMENT_SECRET_KEY is refused by the payment provider']],
    [
      { '/v1/events': 400 },
      [
        'PAYMENT_SECRET_KEY could not be tried, because the payment provider does not respond as expected: 400 resource_missing',
      ],
    ],
  ];
  for (const [answers, expected] of cases) t.same(await accountWith(t, answers), expected);
  t.match(
    await accountWith(t, { '/v1/invoices': 403 }, fakeClock(Date.UTC(2040, 0, 2))),
    [/lacks permissions to read: Invoices/, /^clock is 86400 seconds ahead/],
    'a wrong clock hides nothing',
  );
});

t.test(
  'what the rate limit of the provider rejects is repeated after a pause, if there is time',
  async (t) => {
    const error = { type: 'invalid_request_error', code: 'rate_limit', message: 'Too many requests.' };
    const rejections = [{ 'retry-after': '0' }, { 'retry-after': '60' }];
    const api = await provider(t, () => {
      const headers = rejections.shift();
      return headers && { status: 429, body: JSON.stringify({ error }), headers };
    });
    const gateway = createGateway(KEY, api.url);
    await t.rejects(
      gateway.prices().then(() => gateway.prices()),
      { code: 'PAYMENT_PROVIDER_ERROR' },
      'the second pause does not fit into the time of a request',
    );
    t.equal(api.calls.length, 2);
    t.equal((await gateway.prices()).length, 2);
  },
);

t.test('plans are listed with the last known prices while the provider is unavailable', async (t) => {
  const { app, api } = await shop(t, { billing: { plans: PLANS } });
  const list = () => app.request('GET', '/api/billing/plans');
  api.fault = () => ({ status: 500, body: '{}' });
  t.equal((await list()).status, 502, 'there are none');
  api.fault = () => undefined;
  app.clock.advance(DAY);
  const { body } = await list();
  t.match(body.data, [{ priceId: 'price_pro' }]);
  api.fault = () => ({ status: 500, body: '{}' });
  app.clock.advance(DAY);
  t.same((await list()).body, body);
});

t.test('the log says why a signature of a webhook is refused', async (t) => {
  const { app } = await shop(t);
  const { paymentWebhookSecret } = SECRETS;
  const billing = billingOn(await storeOf(t, app), app.clock, {
    config: { ...CONFIG, paymentWebhookSecret },
  });
  const body = Buffer.from('{"type":"ping"}');
  const now = app.clock.now();
  const cases: [string | undefined, string][] = [
    [undefined, 'There is no signature.'],
    ['t=now', 'The signature is malformed.'],
    [
      signWebhook(String(body), paymentWebhookSecret, now - DAY),
      'The signature and the clock of this server are 86400 seconds apart.',
    ],
    [
      signWebhook(String(body), 'whsec_another', now),
      'No signature fits the body of 15 bytes. Compare PAYMENT_WEBHOOK_SECRET with the secret of this endpoint in this mode.',
    ],
  ];
  for (const [signature, message] of cases)
    await t.rejects(billing.webhook.receive({ signature, body, ip: '127.0.0.1' }), {
      code: 'INVALID_SIGNATURE',
      cause: { message },
    });
});
