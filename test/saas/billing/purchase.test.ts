import type Stripe from 'stripe';
import t from 'tap';
import { causeOf } from '../../../src/saas/billing/provider/client.js';
import { customerCollection } from '../../../src/saas/billing/store.js';
import { type Answer, PASSWORD, saasApp, storeOf } from '../../kit/app.js';
import { KEY, provider, shop } from './kit.js';

t.test('without a key, checkout and portal answer 401, then 400, then 503', async (t) => {
  const app = await saasApp(t);
  const { accessToken: token } = await app.signUp();
  for (const path of ['/api/billing/create-checkout-session', '/api/billing/create-portal-session']) {
    t.equal((await app.request('POST', path, { body: {} })).status, 401);
    const wrong = { mode: 'free', returnPath: 'https://evil.test' };
    t.equal((await app.request('POST', path, { token, body: wrong })).status, 400);
    const answer = await app.request('POST', path, { token, body: { priceId: 'price_basic' } });
    t.equal(answer.status, 503);
    t.equal(answer.body.error.code, 'BILLING_NOT_CONFIGURED');
    t.ok(answer.headers['retry-after']);
  }
});

t.test('checkout sends the customer, the price and addresses below PUBLIC_URL', async (t) => {
  const { url, calls } = await provider(t);
  const app = await saasApp(t, {
    paymentSecretKey: KEY,
    paymentApiUrl: url,
    publicUrl: 'https://app.example.test/base',
    billingReturnUrlRelative: 'account?tab=billing',
  });
  const { accessToken: token, email, id } = await app.signUp();
  const buy = { priceId: 'price_pro', mode: 'subscription', quantity: 3 };
  const answer = await app.request('POST', '/api/billing/create-checkout-session', { token, body: buy });
  t.match(answer.body, {
    success: true,
    data: { sessionId: /^cs_/, url: /^https:\/\/pay\.example\.test\/cs_/ },
  });
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

  const portal = await app.request('POST', '/api/billing/create-portal-session', {
    token,
    body: { returnPath: '/done' },
  });
  t.match(portal.body, { success: true, data: { url: /^https:\/\/pay\.example\.test\/bps_/ } });
  t.equal(calls.at(-1)?.form.get('return_url'), 'https://app.example.test/base/done');
});

t.test('twenty concurrent first purchases create one customer', async (t) => {
  const { url, customers, calls } = await provider(t);
  const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: url });
  const { accessToken: token } = await app.signUp();
  const buy = () =>
    app.request('POST', '/api/billing/create-checkout-session', { token, body: { priceId: 'price_basic' } });
  const answers = await Promise.all(Array.from({ length: 20 }, buy));
  t.same([...new Set(answers.map((answer) => answer.status))], [200]);
  t.equal(customers.size, 1);
  const used = calls
    .filter((call) => call.method === 'POST' && call.path.includes('checkout'))
    .map((call) => call.form.get('customer'));
  t.equal(new Set(used).size, 1);
});

t.test('a metered price is sold without a quantity', async (t) => {
  const api = await provider(t);
  const error = { type: 'invalid_request_error', param: 'line_items[0][quantity]', message: 'no' };
  api.fault = ({ form }) =>
    form.has('line_items[0][quantity]') ? { status: 400, body: JSON.stringify({ error }) } : undefined;
  const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: api.url });
  const { accessToken: token } = await app.signUp();
  const buy = (body: object) => app.request('POST', '/api/billing/create-checkout-session', { token, body });
  t.equal((await buy({ priceId: 'price_pro' })).status, 200);
  t.equal((await buy({ priceId: 'price_pro', quantity: 2 })).body.error.code, 'PRICE_NOT_ALLOWED');
});

t.test('a customer deleted at the provider is replaced by the next purchase, once', async (t) => {
  const api = await provider(t);
  const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: api.url });
  const { accessToken: token } = await app.signUp();
  const buy = async () => {
    const body = { priceId: 'price_basic' };
    return (await app.request('POST', '/api/billing/create-checkout-session', { token, body })).status;
  };
  const made = () => [...api.customers.values()].map(({ id }) => String(id));
  t.equal(await buy(), 200);
  const removed = new Set(made());
  for (const customer of api.customers.values()) Object.assign(customer, { deleted: true });
  const error = { type: 'invalid_request_error', code: 'resource_missing', param: 'customer' };
  api.fault = ({ form, query }) =>
    removed.has(form.get('customer') ?? query.get('customer') ?? '')
      ? { status: 400, body: JSON.stringify({ error }) }
      : undefined;

  const portal = await app.request('POST', '/api/billing/create-portal-session', { token });
  t.match([portal.status, portal.body.error?.code], [404, 'CUSTOMER_NOT_FOUND']);
  t.same((await app.request('GET', '/api/billing/invoices', { token })).body.data, []);
  t.equal((await app.request('POST', '/api/billing/sync', { token })).body.error?.code, 'CUSTOMER_NOT_FOUND');

  t.same(new Set(await Promise.all(Array.from({ length: 10 }, buy))), new Set([200]));
  t.equal(made().length, 2, 'one in the place of the other');
  t.equal((await app.request('POST', '/api/billing/create-portal-session', { token })).status, 200);
  const open = [...api.sessions.values()].filter(({ customer }) => customer === made()[1]);
  t.equal(open.length, 1, 'one session for the new customer');

  // For example a customer of another account of the provider: creating a new customer each time would not help.
  for (const session of open) Object.assign(session, { status: 'expired', url: null });
  api.fault = ({ form }) =>
    form.has('customer') ? { status: 400, body: JSON.stringify({ error }) } : undefined;
  t.equal(await buy(), 502);
});

t.test('an account deleted while a purchase begins receives no payment link', async (t) => {
  for (const step of ['/v1/customers', '/v1/checkout/sessions']) {
    const api = await provider(t);
    const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: api.url });
    const { accessToken: token, id } = await app.signUp();
    let left = 0;
    api.fault = async ({ method, path }) => {
      if (method !== 'POST' || path !== step) return undefined;
      left = (await app.request('POST', '/api/user/delete', { token, body: { password: PASSWORD } })).status;
      return undefined;
    };
    const body = { priceId: 'price_pro' };
    const answer = await app.request('POST', '/api/billing/create-checkout-session', { token, body });
    t.same([left, answer.status, answer.body.data], [200, 401, undefined], step);
    t.equal(await customerCollection(await storeOf(t, app)).count({ id }), 0);
  }
});

t.test('a price that is not for sale is answered 422, and setup mode needs no price', async (t) => {
  const api = await provider(t);
  const { url } = api;
  const open = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: url });
  const { accessToken: token } = await open.signUp();
  const buy = (app: typeof open, body: unknown, token: string) =>
    app.request('POST', '/api/billing/create-checkout-session', { token, body });
  t.equal((await buy(open, { priceId: 'price_gone' }, token)).body.error.code, 'PRICE_NOT_ALLOWED');
  for (const param of ['line_items[0][price]', 'line_items', 'mode']) {
    // A price that is archived, in another currency than the customer's, or for another mode.
    const error = { type: 'invalid_request_error', param, message: 'no' };
    api.fault = ({ path }) =>
      path === '/v1/checkout/sessions' ? { status: 400, body: JSON.stringify({ error }) } : undefined;
    const refused = await buy(open, { priceId: 'price_pro' }, token);
    t.match([refused.status, refused.body.error.code], [422, 'PRICE_NOT_ALLOWED'], param);
  }
  api.fault = () => undefined;
  t.equal((await buy(open, { mode: 'setup' }, token)).status, 200);
  t.equal((await buy(open, { mode: 'payment' }, token)).status, 400);
  // A value that cannot be sent to the provider is the client's error.
  for (const priceId of ['\ud800', 'price_\udfff', 'price_pro\0', 'price\r\npro']) {
    t.equal((await buy(open, { priceId }, token)).status, 400, JSON.stringify(priceId));
  }

  const listed = await saasApp(t, {
    paymentSecretKey: KEY,
    paymentApiUrl: url,
    billingPrices: ['price_pro=pro'],
  });
  const other = await listed.signUp();
  t.equal((await buy(listed, { priceId: 'price_pro' }, other.accessToken)).status, 200);
  t.equal((await buy(listed, { priceId: 'price_other' }, other.accessToken)).status, 422);
});

t.test("provider failures are answered 502 without the key or the provider's message", async (t) => {
  const faults = [
    { status: 401, body: `{"error":{"type":"invalid_request_error","message":"Invalid API Key: ${KEY}"}}` },
    { status: 402, body: '{"error":{"type":"card_error","message":"inside"}}' },
    { status: 429, body: '{"error":{"message":"inside"}}' },
    { status: 500, body: '{"error":{"message":"inside"}}' },
    { status: 200, body: 'inside {' },
    // From a proxy in front of the provider: not in the provider's error format, so the SDK takes it for success.
    { status: 503, body: '{"message":"inside"}' },
    { status: 200, body: '"inside"' },
    { status: 200, body: '{"id":5}' },
  ];
  for (const fault of faults) {
    const { url } = await provider(t, () => fault);
    const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: url });
    const { accessToken: token } = await app.signUp();
    const answer = await app.request('POST', '/api/billing/create-checkout-session', {
      token,
      body: { priceId: 'price_basic' },
    });
    t.equal(answer.status, 502, String(fault.status));
    t.equal(answer.body.error.code, 'PAYMENT_PROVIDER_ERROR');
    t.notMatch(answer.text, /inside|sk_test/);
  }
});

t.test('an invalid provider answer is answered 502 at every call', async (t) => {
  const api = await provider(t);
  const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: api.url });
  const { accessToken: token } = await app.signUp();
  const post = (path: string, body: object) => app.request('POST', `/api/billing/${path}`, { token, body });
  t.equal((await post('create-checkout-session', { mode: 'setup' })).status, 200);
  const calls: [string, () => Promise<Answer>][] = [
    ['checkout', () => post('create-checkout-session', { mode: 'setup' })],
    ['portal', () => post('create-portal-session', {})],
    ['sync', () => post('sync', {})],
    ['sync of a session', () => post('sync', { sessionId: 'cs_1' })],
    ['invoices', () => app.request('GET', '/api/billing/invoices', { token })],
    ['plans', () => app.request('GET', '/api/billing/plans')],
  ];
  for (const fault of [
    { status: 403, body: '{"message":"inside"}' },
    { status: 302, body: '{}' },
    { status: 200, body: '{}' },
    { status: 200, body: '"inside"' },
    { status: 200, body: '5' },
    { status: 200, body: '{"id":5,"url":7,"data":7}' },
    { status: 400, body: 'true' },
  ]) {
    api.fault = () => fault;
    // The prices are cached for a minute.
    app.clock.advance(61_000);
    for (const [name, call] of calls) {
      const answer = await call();
      t.match(
        [answer.status, answer.body.error?.code],
        [502, 'PAYMENT_PROVIDER_ERROR'],
        `${name}: ${fault.body}`,
      );
    }
  }
});

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

t.test('an account is not deleted while its subscription may not have been cancelled', async (t) => {
  const { app, api, buyer } = await shop(t);
  const { accessToken: token, id, customer } = await buyer();
  const subscription = Object.assign(api.world.subscribe(customer, id, true), { status: 'active' });
  const leave = () => app.request('POST', '/api/user/delete', { token, body: { password: PASSWORD } });
  // From a proxy in front of the provider, with another error format.
  const fault = { status: 403, body: '{"message":"Forbidden"}' };
  api.fault = ({ method }) => (method === 'DELETE' ? fault : undefined);
  t.equal((await leave()).status, 502);
  t.equal(subscription.status, 'active');
});

t.test('a first purchase waits for a concurrent one that holds the idempotency key', async (t) => {
  const { app, api } = await shop(t);
  const { accessToken: token } = await app.signUp();
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
  const buy = () =>
    app.request('POST', '/api/billing/create-checkout-session', { token, body: { mode: 'setup' } });
  const answers = await Promise.all([buy(), buy(), buy()]);
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 200],
  );
  t.equal(api.customers.size, 1);
});

t.test(
  'a failure that the provider stores under an idempotency key does not block later purchases',
  async (t) => {
    const { app, api } = await shop(t);
    const { accessToken: token } = await app.signUp();
    let failed: unknown;
    api.fault = ({ path, headers: { 'idempotency-key': key } }) => {
      if (path !== '/v1/customers' || (failed !== undefined && key !== failed)) return undefined;
      const isRepeated = failed !== undefined;
      failed = key;
      const headers = { 'original-request': 'req_1', ...(isRepeated && { 'idempotent-replayed': 'true' }) };
      return { status: 500, body: '{"error":{"type":"api_error"}}', headers };
    };
    const buy = () =>
      app.request('POST', '/api/billing/create-checkout-session', { token, body: { mode: 'setup' } });
    t.equal((await buy()).status, 200);
    t.equal(api.customers.size, 1);
  },
);

t.test('the portal needs a customer', async (t) => {
  const { url, calls } = await provider(t);
  const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: url });
  const { accessToken: token } = await app.signUp();
  const answer = await app.request('POST', '/api/billing/create-portal-session', { token });
  t.equal(answer.status, 404);
  t.equal(answer.body.error.code, 'CUSTOMER_NOT_FOUND');
  t.equal(calls.length, 0);
});

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
