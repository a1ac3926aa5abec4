import type Stripe from 'stripe';
import t from 'tap';
import { causeOf } from '../../../src/saas/billing/provider/client.js';
import { customerCollection } from '../../../src/saas/billing/store.js';
import { type Answer, saasApp, storeOf } from '../../kit/app.js';
import type { ProviderCall, StripeApi } from '../../kit/stripe.js';
import { subscriptionObject } from '../../kit/stripe-objects.js';
import { holdNext, items, KEY, shop, subscriptionEvent } from './kit.js';

const PRO = { priceId: 'price_pro' };
const BASIC = { priceId: 'price_basic' };

const codeOf = ({ status, body }: Answer) => body.error?.code ?? status;

/** The answer of the provider about a customer that it does not have. */
const NO_CUSTOMER = {
  status: 400,
  body: '{"error":{"type":"invalid_request_error","code":"resource_missing","param":"customer"}}',
};

/** The customer of a request to the provider. */
const customerIn = ({ form, query }: ProviderCall) => form.get('customer') ?? query.get('customer') ?? '';

t.test('without an API key, what calls the provider answers 401, then 400, then 503', async (t) => {
  const app = await saasApp(t);
  const { accessToken: token, id } = await app.signUp();
  const wrong = { mode: 'free', returnPath: 'https://evil.test', when: 'later', quantity: -1 };
  for (const path of [
    'create-checkout-session',
    'create-portal-session',
    'subscription/change',
    'subscription/cancel',
  ]) {
    const post = (more: object) => app.request('POST', `/api/billing/${path}`, more);
    t.equal((await post({ body: {} })).status, 401, path);
    t.equal((await post({ token, body: wrong })).status, 400, path);
    const answer = await post({ token, body: BASIC });
    t.match(answer, { status: 503, body: { error: { code: 'BILLING_NOT_CONFIGURED' } } }, path);
    t.ok(answer.headers['retry-after']);
  }
  t.equal((await app.request('POST', '/api/billing/subscription/resume', { token, body: {} })).status, 503);
  await t.rejects(app.server.fastify.saas.reportUsage(id, 'requests', 1, 'req_1'), {
    code: 'BILLING_NOT_CONFIGURED',
  });
});

t.test('checkout sends the customer, the price and addresses below PUBLIC_URL', async (t) => {
  const {
    app,
    api: { calls },
    post,
    buy,
  } = await shop(t, {
    publicUrl: 'https://app.example.test/base',
    billingReturnUrlRelative: 'account?tab=billing',
  });
  const ada = await app.signUp();
  const { email, id } = ada;
  t.equal(codeOf(await post(ada, '/billing/create-portal-session')), 'CUSTOMER_NOT_FOUND');
  t.equal(calls.length, 0, 'the portal needs a customer');
  const answer = await buy(ada, { ...PRO, mode: 'subscription', quantity: 3 });
  t.match(answer.body.data, { sessionId: /^cs_/, url: /^https:\/\/pay\.example\.test\/cs_/ });
  // Each call may follow an attempt that timed out on a busy machine.
  const [customer, session] = ['/v1/customers', '/v1/checkout/sessions'].map((wanted) =>
    calls.findLast(({ path }) => path === wanted),
  );
  t.equal(customer?.form.get('email'), email);
  t.ok(String(customer?.headers['idempotency-key']).startsWith(`customer-${id}-`));
  t.same(Object.fromEntries(session?.form ?? []), {
    customer: session?.form.get('customer'),
    client_reference_id: id,
    'metadata[userId]': id,
    'subscription_data[metadata][userId]': id,
    mode: 'subscription',
    'line_items[0][price]': 'price_pro',
    'line_items[0][quantity]': '3',
    success_url:
      'https://app.example.test/base/account?tab=billing&checkout=success&session_id={CHECKOUT_SESSION_ID}',
    cancel_url: 'https://app.example.test/base/account?tab=billing&checkout=cancelled',
  });

  const portal = await post(ada, '/billing/create-portal-session', { returnPath: '/done' });
  t.match(portal.body.data, { url: /^https:\/\/pay\.example\.test\/bps_/ });
  t.match(Object.fromEntries(calls.at(-1)?.form ?? []), {
    customer: session?.form.get('customer'),
    return_url: 'https://app.example.test/base/done',
  });
});

t.test('twenty concurrent first purchases create one customer', async (t) => {
  const { app, api, buy } = await shop(t);
  const ada = await app.signUp();
  const answers = await Promise.all(Array.from({ length: 20 }, () => buy(ada, BASIC)));
  t.same(new Set(answers.map(codeOf)), new Set([200]));
  t.equal(new Set(answers.map(({ body }) => body.data.sessionId)).size, 1, 'and one session');
  t.equal(api.customers.size, 1);
  const used = api.calls
    .filter((call) => call.method === 'POST' && call.path.includes('checkout'))
    .map((call) => call.form.get('customer'));
  t.equal(new Set(used).size, 1);
});

t.test('a customer deleted at the provider is replaced by the next purchase, once', async (t) => {
  const { app, api, buy, post } = await shop(t);
  const ada = await app.signUp();
  const made = () => [...api.customers.values()].map(({ id }) => String(id));
  t.equal((await buy(ada, BASIC)).status, 200);
  const removed = new Set(made());
  for (const customer of api.customers.values()) Object.assign(customer, { deleted: true });
  api.fault = (call) => (removed.has(customerIn(call)) ? NO_CUSTOMER : undefined);

  t.equal(codeOf(await post(ada, '/billing/create-portal-session')), 'CUSTOMER_NOT_FOUND');
  const { accessToken: token } = ada;
  t.same((await app.request('GET', '/api/billing/invoices', { token })).body.data, []);
  t.equal(codeOf(await post(ada, '/billing/sync')), 'CUSTOMER_NOT_FOUND');

  const answers = await Promise.all(Array.from({ length: 10 }, () => buy(ada, BASIC)));
  t.same(new Set(answers.map(codeOf)), new Set([200]));
  t.equal(made().length, 2, 'one in the place of the other');
  t.equal((await post(ada, '/billing/create-portal-session')).status, 200);
  const open = [...api.sessions.values()].filter(({ customer }) => customer === made()[1]);
  t.equal(open.length, 1, 'one session for the new customer');

  // For example a customer of another account of the provider: creating a new customer each time would not help.
  for (const session of open) Object.assign(session, { status: 'expired', url: null });
  api.fault = ({ form }) => (form.has('customer') ? NO_CUSTOMER : undefined);
  t.equal((await buy(ada, BASIC)).status, 502);
});

t.test('an account deleted while a purchase begins receives no payment link', async (t) => {
  const { app, api, buy, leave } = await shop(t);
  for (const step of ['/v1/customers', '/v1/checkout/sessions']) {
    const ada = await app.signUp();
    let left = 0;
    api.fault = async ({ method, path }) => {
      if (method !== 'POST' || path !== step) return undefined;
      left = (await leave(ada)).status;
      return undefined;
    };
    const answer = await buy(ada, PRO);
    t.same([left, answer.status, answer.body.data], [200, 401, undefined], step);
    t.equal(await customerCollection(await storeOf(t, app)).count({ ownerId: ada.id }), 0);
  }
});

t.test('a price that is not for sale is answered 422, and setup mode needs no price', async (t) => {
  const open = await shop(t);
  const ada = await open.app.signUp();
  t.equal(codeOf(await open.buy(ada, { priceId: 'price_gone' })), 'PRICE_NOT_ALLOWED');
  t.equal((await open.buy(ada, { mode: 'setup' })).status, 200);
  t.equal((await open.buy(ada, { mode: 'payment' })).status, 400);
  // A value that cannot be sent to the provider is the client's error.
  for (const priceId of ['\ud800', 'price_\udfff', 'price_pro\0', 'price\r\npro']) {
    t.equal((await open.buy(ada, { priceId })).status, 400, JSON.stringify(priceId));
  }
  // As for a metered price.
  const error = { type: 'invalid_request_error', param: 'line_items[0][quantity]', message: 'no' };
  open.api.fault = ({ form }) =>
    form.has('line_items[0][quantity]') ? { status: 400, body: JSON.stringify({ error }) } : undefined;
  t.equal((await open.buy(ada, PRO)).status, 200, 'it is sold without a quantity');
  t.equal(codeOf(await open.buy(ada, { ...PRO, quantity: 2 })), 'PRICE_NOT_ALLOWED');

  const listed = await shop(t, { billingPrices: ['price_pro=pro'] });
  const eve = await listed.app.signUp();
  t.equal((await listed.buy(eve, PRO)).status, 200);
  t.equal((await listed.buy(eve, BASIC)).status, 422);
});

t.test(
  'a failure of the provider is answered 502 at every call, without the key or its message',
  async (t) => {
    const { app, api, buyer, buy, post } = await shop(t);
    const [ada, eve] = [await buyer(), await app.signUp()];
    const calls: [string, () => Promise<Answer>][] = [
      ['a first purchase', () => buy(eve, BASIC)],
      ['checkout', () => buy(ada, BASIC)],
      ['portal', () => post(ada, '/billing/create-portal-session')],
      ['sync', () => post(ada, '/billing/sync')],
      ['sync of a session', () => post(ada, '/billing/sync', { sessionId: 'cs_1' })],
      ['invoices', () => app.request('GET', '/api/billing/invoices', { token: ada.accessToken })],
    ];
    for (const fault of [
      { status: 401, body: `{"error":{"type":"invalid_request_error","message":"Invalid API Key: ${KEY}"}}` },
      { status: 402, body: '{"error":{"type":"card_error","message":"inside"}}' },
      { status: 429, body: '{"error":{"message":"inside"}}', headers: { 'retry-after': '60' } },
      { status: 500, body: '{"error":{"message":"inside"}}' },
      { status: 200, body: 'inside {' },
      // From a proxy in front of the provider: not in the provider's error format, so the SDK takes it for success.
      { status: 503, body: '{"message":"inside"}' },
      { status: 403, body: '{"message":"inside"}' },
      { status: 302, body: '{}' },
      { status: 200, body: '{}' },
      { status: 200, body: '"inside"' },
      { status: 200, body: '5' },
      { status: 200, body: '{"id":5,"url":7,"data":7}' },
      { status: 400, body: 'true' },
    ]) {
      api.fault = () => fault;
      // The client of the provider repeats calls after these, with pauses.
      const isRepeated = fault.status === 429 || fault.status >= 500;
      for (const [name, call] of isRepeated ? calls.slice(0, 1) : calls) {
        const answer = await call();
        t.equal(codeOf(answer), 'PAYMENT_PROVIDER_ERROR', `${name}: ${fault.body}`);
        t.equal(answer.status, 502);
        t.notMatch(answer.text, /inside|sk_test/);
      }
    }
  },
);

t.test(
  'the log names the permission that a restricted key lacks, and no other part of the message',
  async (t) => {
    const message =
      "The provided key 'rk_test_*********abc' does not have the required permissions for this endpoint on account 'acct_1'. Having the 'rak_customer_write' permission would allow this request to continue.";
    const error = { type: 'StripePermissionError', statusCode: 403, message } as Stripe.errors.StripeError;
    t.equal(
      causeOf(error).message,
      'Payment provider: StripePermissionError 403: give the restricted key PAYMENT_SECRET_KEY the permission rak_customer_write',
    );
    const other = { type: 'StripeAPIError', statusCode: 500, message: "of 'rk_test_abc'" };
    t.equal(causeOf(other as Stripe.errors.StripeError).message, 'Payment provider: StripeAPIError 500');
  },
);

t.test('a first purchase waits for a concurrent one that holds the idempotency key', async (t) => {
  const { app, api, buy } = await shop(t);
  const ada = await app.signUp();
  const error = { type: 'idempotency_error', code: 'idempotency_key_in_use', message: 'in use' };
  let refusals = 6;
  let isTaken = false;
  let release = () => {};
  const enough = new Promise<void>((resolve) => {
    release = resolve;
  });
  api.fault = async ({ path }) => {
    if (path !== '/v1/customers' || refusals === 0) return undefined;
    if (isTaken) {
      if (--refusals === 0) release();
      return { status: 409, body: JSON.stringify({ error }), headers: { 'stripe-should-retry': 'false' } };
    }
    isTaken = true;
    await enough;
    return undefined;
  };
  const answers = await Promise.all([1, 2, 3].map(() => buy(ada, { mode: 'setup' })));
  t.same(answers.map(codeOf), [200, 200, 200]);
  t.equal(api.customers.size, 1);
});

t.test(
  'a failure that the provider stores under an idempotency key does not block later purchases',
  async (t) => {
    const { app, api, buy } = await shop(t);
    const ada = await app.signUp();
    let failed: unknown;
    api.fault = ({ path, headers: { 'idempotency-key': key } }) => {
      if (path !== '/v1/customers' || (failed !== undefined && key !== failed)) return undefined;
      const isRepeated = failed !== undefined;
      failed = key;
      const headers = { 'original-request': 'req_1', ...(isRepeated && { 'idempotent-replayed': 'true' }) };
      return { status: 500, body: '{"error":{"type":"api_error"}}', headers };
    };
    t.equal((await buy(ada, { mode: 'setup' })).status, 200);
    t.equal(api.customers.size, 1);
  },
);

t.test('return paths outside the application prevent the start', async (t) => {
  for (const path of [
    '//evil.test',
    '/\\evil.test',
    'https://evil.test',
    '/\t/evil.test',
    'javascript:alert(1)',
    '/a#b',
  ]) {
    await t.rejects(saasApp(t, { billingReturnUrlRelative: path }), /BILLING_RETURN_URL_RELATIVE/, path);
  }
});

/** A plan that users may have beside another one. */
const INDEPENDENT = {
  billing: {
    plans: { pro: { prices: ['price_pro'] }, basic: { prices: ['price_basic'], independent: true } },
  },
};

t.test('a user cannot subscribe to the same price twice', async (t) => {
  const { deliver, buyer, ...here } = await shop(t, INDEPENDENT);
  const ada = await buyer();
  const buy = (order: object) => here.buy(ada, order);
  const object = { id: 'sub_1', customer: ada.customer, items: items() };
  await deliver(subscriptionEvent('created', 0, { ...object, status: 'past_due' }));
  const twice = await buy(PRO);
  t.match([twice.status, twice.body.error.code], [409, 'ALREADY_SUBSCRIBED']);
  t.equal((await buy(BASIC)).status, 200);
  t.equal((await buy({ ...PRO, mode: 'payment' })).status, 200);
  const both = { data: [...items().data, ...items('price_basic', 'basic').data] };
  await deliver(subscriptionEvent('updated', 1, { ...object, status: 'active', items: both }));
  t.equal((await buy(BASIC)).status, 409, 'as a part of the same subscription');
  await deliver(subscriptionEvent('updated', 1, { id: 'sub_1', status: 'active' }));
  await deliver(subscriptionEvent('updated', 2, { ...object, status: 'active' }));
  t.equal((await buy(BASIC)).status, 200);
  await deliver(subscriptionEvent('deleted', 3, { ...object, status: 'canceled' }));
  t.equal((await buy(PRO)).status, 200);
});

t.test('a subscription that ended without an event does not block a purchase', async (t) => {
  const { api, deliver, buyer, subscribe, subscription, ...here } = await shop(t, INDEPENDENT);
  const ada = await buyer();
  const buy = async (order: object) => codeOf(await here.buy(ada, order));
  const looks = () => api.calls.filter(({ path }) => path.startsWith('/v1/subscriptions')).length;
  const truth = subscribe(ada, { price: 'price_pro' });
  await deliver(subscriptionEvent('created', 0, subscriptionObject(truth)));

  const before = looks();
  t.equal(await buy(BASIC), 200);
  t.equal(looks(), before, 'an allowed purchase needs no call to the provider');
  t.equal(await buy(PRO), 'ALREADY_SUBSCRIBED');
  t.equal(looks(), before + 1);
  const refused = await Promise.all(Array.from({ length: 20 }, () => buy(PRO)));
  t.same(new Set(refused), new Set(['ALREADY_SUBSCRIBED']));
  t.ok(looks() <= before + 21, `${looks() - before - 1} looks for twenty clicks`);

  // The state after the customer was deleted at the provider and the event was lost.
  Object.assign(truth, { status: 'canceled', canceledAt: api.world.now, endedAt: api.world.now });
  const ofCustomer: StripeApi['fault'] = (call) =>
    customerIn(call) === ada.customer ? NO_CUSTOMER : undefined;
  api.fault = (call) =>
    call.path.startsWith('/v1/subscriptions/') ? { status: 500, body: '{}' } : ofCustomer(call);
  t.equal(await buy(PRO), 'ALREADY_SUBSCRIBED', 'while the provider cannot be asked, what is stored holds');
  t.match(await subscription(ada), { status: 'active' });
  api.fault = ofCustomer;
  t.equal(await buy(PRO), 200);
  t.match(await subscription(ada), { status: 'canceled', entitled: false });
  t.not(api.calls.at(-1)?.form.get('customer'), ada.customer, 'with another customer');
});

t.test('a sync that began before a purchase does not block it', async (t) => {
  const { api, deliver, buyer, subscribe, ...here } = await shop(t);
  const [ada, eve] = [await buyer(), await buyer()];
  const buy = async (account: typeof ada) => codeOf(await here.buy(account, PRO));
  const truth = subscribe(ada, { price: 'price_pro' });
  await deliver(subscriptionEvent('created', 0, subscriptionObject(truth)));
  const isLook = ({ path }: ProviderCall) => path === `/v1/subscriptions/${truth.id}`;

  const held = holdNext(api, isLook, () => subscriptionObject(truth));
  const early = buy(ada);
  await held.asked;
  Object.assign(truth, { status: 'canceled', canceledAt: api.world.now, endedAt: api.world.now });
  const late = Array.from({ length: 20 }, () => buy(ada));
  t.equal(await buy(eve), 200, 'another user waits for none of them');
  held.letGo();
  t.equal(await early, 'ALREADY_SUBSCRIBED');
  t.same(new Set(await Promise.all(late)), new Set([200]));
  t.equal(api.calls.filter(isLook).length, 2, 'one for all of them');
});
