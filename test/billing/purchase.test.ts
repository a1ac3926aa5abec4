import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { saasApp } from '../kit/app.js';

const KEY = 'sk_test_51Qm7vLd0mXw4RkT9cYb2NfHs6';

interface ProviderCall {
  path: string;
  form: URLSearchParams;
  idempotencyKey: string | undefined;
}

/** The provider's API as far as purchases need it: remembers what it was asked, and fails on demand. */
async function provider(
  t: Test,
  fail: (path: string) => { status: number; body: string } | undefined = () => undefined,
) {
  const calls: ProviderCall[] = [];
  const customers = new Map<string, string>();
  const server = createServer(async (request, response) => {
    const path = request.url ?? '';
    const form = new URLSearchParams(await textOf(request));
    const idempotencyKey = request.headers['idempotency-key']?.toString();
    calls.push({ path, form, idempotencyKey });
    const failure = fail(path);
    response.setHeader('content-type', 'application/json');
    if (failure) return response.writeHead(failure.status).end(failure.body);
    if (path === '/v1/customers') {
      const key = idempotencyKey ?? '';
      if (!customers.has(key)) customers.set(key, `cus_${customers.size + 1}`);
      return response.end(JSON.stringify({ id: customers.get(key), object: 'customer' }));
    }
    const id = path.includes('portal') ? 'bps_1' : 'cs_test_1';
    return response.end(JSON.stringify({ id, url: `https://pay.example.test/${id}` }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { calls, customers, url: `http://127.0.0.1:${port}` };
}

async function textOf(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of request) text += chunk;
  return text;
}

t.test('without a key, checkout and portal answer 401, then 400, then 503', async (t) => {
  const app = await saasApp(t);
  const { accessToken: token } = await app.signUp();
  for (const path of ['/api/billing/create-checkout-session', '/api/billing/create-portal-session']) {
    t.equal((await app.request('POST', path, { body: {} })).status, 401);
    const wrong = { mode: 'free', returnPath: 'https://evil.test' };
    t.equal((await app.request('POST', path, { token, body: wrong })).status, 400);
    const answer = await app.request('POST', path, { token, body: { priceId: 'price_1' } });
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
  t.same(answer.body, {
    success: true,
    data: { sessionId: 'cs_test_1', url: 'https://pay.example.test/cs_test_1' },
  });
  const [customer, session] = calls;
  t.equal(customer?.form.get('email'), email);
  t.ok(customer?.idempotencyKey?.startsWith(`customer-${id}-`));
  t.same(Object.fromEntries(session?.form ?? []), {
    customer: 'cus_1',
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
  t.same(portal.body, { success: true, data: { url: 'https://pay.example.test/bps_1' } });
  t.equal(calls.at(-1)?.form.get('return_url'), 'https://app.example.test/base/done');
});

t.test('[98] twenty first purchases at once make one customer', async (t) => {
  const { url, customers, calls } = await provider(t);
  const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: url });
  const { accessToken: token } = await app.signUp();
  const buy = () =>
    app.request('POST', '/api/billing/create-checkout-session', { token, body: { priceId: 'price_1' } });
  const answers = await Promise.all(Array.from({ length: 20 }, buy));
  t.same([...new Set(answers.map((answer) => answer.status))], [200]);
  t.equal(customers.size, 1);
  const used = calls
    .filter((call) => call.path.includes('checkout'))
    .map((call) => call.form.get('customer'));
  t.same([...new Set(used)], ['cus_1']);
});

t.test('what is not for sale is 422, and setup needs no price', async (t) => {
  const { url, calls } = await provider(t, (path) =>
    path.includes('checkout') && calls.at(-1)?.form.get('line_items[0][price]') === 'price_gone'
      ? {
          status: 404,
          body: '{"error":{"type":"invalid_request_error","code":"resource_missing","param":"line_items[0][price]"}}',
        }
      : undefined,
  );
  const open = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: url });
  const { accessToken: token } = await open.signUp();
  const buy = (app: typeof open, body: unknown, token: string) =>
    app.request('POST', '/api/billing/create-checkout-session', { token, body });
  t.equal((await buy(open, { priceId: 'price_gone' }, token)).body.error.code, 'PRICE_NOT_ALLOWED');
  t.equal((await buy(open, { mode: 'setup' }, token)).status, 200);
  t.equal((await buy(open, { mode: 'payment' }, token)).status, 400);

  const listed = await saasApp(t, {
    paymentSecretKey: KEY,
    paymentApiUrl: url,
    billingPrices: ['price_pro=pro'],
  });
  const other = await listed.signUp();
  t.equal((await buy(listed, { priceId: 'price_pro' }, other.accessToken)).status, 200);
  t.equal((await buy(listed, { priceId: 'price_other' }, other.accessToken)).status, 422);
});

t.test('[101] faults of the provider are 502 and tell neither the key nor what it said', async (t) => {
  const faults = [
    { status: 401, body: `{"error":{"type":"invalid_request_error","message":"Invalid API Key: ${KEY}"}}` },
    { status: 402, body: '{"error":{"type":"card_error","message":"inside"}}' },
    { status: 429, body: '{"error":{"message":"inside"}}' },
    { status: 500, body: '{"error":{"message":"inside"}}' },
    { status: 200, body: 'inside {' },
  ];
  for (const fault of faults) {
    const { url } = await provider(t, () => fault);
    const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: url });
    const { accessToken: token } = await app.signUp();
    const answer = await app.request('POST', '/api/billing/create-checkout-session', {
      token,
      body: { priceId: 'price_1' },
    });
    t.equal(answer.status, 502, String(fault.status));
    t.equal(answer.body.error.code, 'PAYMENT_PROVIDER_ERROR');
    t.notMatch(answer.text, /inside|sk_test/);
  }
});

t.test('a portal needs a customer', async (t) => {
  const { url, calls } = await provider(t);
  const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: url });
  const { accessToken: token } = await app.signUp();
  const answer = await app.request('POST', '/api/billing/create-portal-session', { token });
  t.equal(answer.status, 404);
  t.equal(answer.body.error.code, 'CUSTOMER_NOT_FOUND');
  t.equal(calls.length, 0);
});

t.test('[40] return paths that leave the application stop the start', async (t) => {
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
