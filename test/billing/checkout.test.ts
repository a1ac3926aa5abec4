import t, { type Test } from 'tap';
import type { Json } from '../../src/billing/provider/json.js';
import { type Answer, PASSWORD, parseJson, type SaasApp, testOptions } from '../kit/app.js';
import { compiled, startProgram } from '../kit/process.js';
import type { StripeApi } from '../kit/stripe.js';
import { subscriptionObject } from '../kit/stripe-simulator.js';
import { temporaryFolder } from '../kit/tmp.js';
import { onMongod } from '../storage/mongod.js';
import { KEY, provider, shop, subscriptionEvent } from './kit.js';

const CHECKOUT = '/api/billing/create-checkout-session';
const DAY = 86_400_000;

/** Requests checkout sessions for one user. */
const buyerIn = (app: SaasApp, token: string) => (body: object) =>
  app.request('POST', CHECKOUT, { token, body });

const idOf = ({ body }: Answer): string => body.data?.sessionId ?? body.error.code;
const openSessions = ({ sessions }: Pick<StripeApi, 'sessions'>): Json[] =>
  [...sessions.values()].filter(({ status }) => status === 'open');

t.test('an open checkout session of the same order is handed out again', async (t) => {
  const { app, api } = await shop(t);
  const { accessToken: token } = await app.signUp();
  const buy = buyerIn(app, token);
  for (const order of [
    { priceId: 'price_pro' },
    { priceId: 'price_pro', mode: 'payment' },
    { priceId: 'price_basic', mode: 'payment', quantity: 2 },
    { mode: 'setup' },
  ]) {
    const [first, again] = [await buy(order), await buy(order)];
    t.equal(first.status, 200);
    t.same(again.body, first.body, JSON.stringify(order));
  }
  t.equal(openSessions(api).length, 4);

  const other = await app.signUp();
  const [mine, others] = [
    await buy({ mode: 'setup' }),
    await buyerIn(app, other.accessToken)({ mode: 'setup' }),
  ];
  t.not(idOf(others), idOf(mine), 'another user has another session');
});

t.test('another plan or quantity expires the older session, whose page could be paid as well', async (t) => {
  const { app, api } = await shop(t);
  const { accessToken: token } = await app.signUp();
  const buy = buyerIn(app, token);
  const payment = idOf(await buy({ priceId: 'price_pro', mode: 'payment' }));
  const statusOf = (id: string) => api.sessions.get(id)?.['status'];
  const orders = [
    { priceId: 'price_pro' },
    { priceId: 'price_pro', quantity: 2 },
    { priceId: 'price_basic' },
    { priceId: 'price_pro' },
  ];
  const opened: string[] = [];
  for (const order of orders) opened.push(idOf(await buy(order)));
  t.equal(new Set(opened).size, 4);
  t.same(opened.map(statusOf), ['expired', 'expired', 'expired', 'open']);
  t.equal(statusOf(payment), 'open', 'a one-time purchase is independent of subscriptions');
});

t.test('a session that was expired, is paid or about to expire is replaced', async (t) => {
  const { app, api } = await shop(t);
  const { accessToken: token, email } = await app.signUp();
  const buy = buyerIn(app, token);
  const order = { priceId: 'price_pro', mode: 'payment' };
  const first = idOf(await buy(order));
  Object.assign(api.sessions.get(first) ?? {}, { status: 'expired', url: null });
  const second = idOf(await buy(order));
  t.not(second, first);
  Object.assign(api.sessions.get(second) ?? {}, { status: 'complete', url: null });
  const third = idOf(await buy(order));
  t.not(third, second, 'the same product may be bought once more');
  app.clock.advance(DAY - 1000);
  api.world.now += 86_399;
  const login = await app.request('POST', '/api/auth/login', { body: { email, password: PASSWORD } });
  const { accessToken } = login.body.data;
  const fourth = idOf(await buyerIn(app, accessToken)(order));
  t.not(fourth, third);
  t.same(
    openSessions(api).map(({ id }) => id),
    [fourth],
  );
});

t.test('a user who has paid is refused a second session, although the event has not arrived', async (t) => {
  const { app, api } = await shop(t);
  const { accessToken: token, id } = await app.signUp();
  const buy = buyerIn(app, token);
  const session = api.sessions.get(idOf(await buy({ priceId: 'price_basic' }))) ?? {};
  const subscription = api.world.subscribe(String(session['customer']), id, true);
  Object.assign(subscription, { status: 'active', trialEnd: null });
  Object.assign(session, { status: 'complete', url: null, subscription: subscription.id });
  for (const priceId of ['price_basic', 'price_pro']) {
    const answer = await buy({ priceId });
    t.match([answer.status, answer.body.error?.code], [409, 'ALREADY_SUBSCRIBED'], priceId);
    t.match(answer.body.message, /POST \/billing\/subscription\/change/);
  }
  const { body } = await app.request('GET', '/api/billing/subscription', { token });
  t.match(body.data, { status: 'active', entitled: true });

  Object.assign(subscription, { status: 'canceled' });
  t.equal((await buy({ priceId: 'price_pro' })).status, 200, 'a subscription that has ended does not count');
});

t.test('a plan that is independent is bought and kept beside another one', async (t) => {
  const plans = { basic: { prices: ['price_basic'] }, pro: { prices: ['price_pro'], independent: true } };
  const { app, api } = await shop(t, { billing: { plans } });
  const { accessToken: token, id } = await app.signUp();
  const buy = buyerIn(app, token);
  const pro = idOf(await buy({ priceId: 'price_pro' }));
  const basic = idOf(await buy({ priceId: 'price_basic' }));
  t.same(
    openSessions(api).map((session) => session['id']),
    [pro, basic],
  );

  const customer = String(api.sessions.get(basic)?.['customer']);
  for (const price of ['price_basic', 'price_pro']) {
    Object.assign(api.world.subscribe(customer, id, true), { price, status: 'active' });
    await app.request('POST', '/api/billing/sync', { token });
    t.equal(idOf(await buy({ priceId: price })), 'ALREADY_SUBSCRIBED');
    if (price === 'price_basic') t.equal(idOf(await buy({ priceId: 'price_pro' })), pro);
  }
});

t.test('a purchase that the provider left unanswered opens no second session', async (t) => {
  const { app, api } = await shop(t);
  const { accessToken: token } = await app.signUp();
  const buy = buyerIn(app, token);
  const keys = new Set<unknown>();
  let cuts = 2;
  api.fault = ({ path, method, headers }) => {
    if (path !== '/v1/checkout/sessions' || method !== 'POST') return undefined;
    keys.add(headers['idempotency-key']);
    return cuts-- > 0 ? 'cut' : undefined;
  };
  t.equal((await buy({ priceId: 'price_pro' })).status, 502);
  t.equal((await buy({ priceId: 'price_pro' })).status, 200);
  t.equal(keys.size, 1, 'the provider recognises the repetition');

  // The older session could still be paid, so no other one may be opened.
  api.fault = ({ path }) => (path.endsWith('/expire') ? 'cut' : undefined);
  t.equal((await buy({ priceId: 'price_basic' })).status, 502);
  t.equal(openSessions(api).length, 1);
  api.fault = () => undefined;
  t.equal((await buy({ priceId: 'price_basic' })).status, 200);
  t.equal(openSessions(api).length, 1);
});

t.test('orders for two plans at once leave one session open, and only its address is known', async (t) => {
  const { app, api } = await shop(t);
  const { accessToken: token } = await app.signUp();
  const buy = buyerIn(app, token);
  const orders = ['price_basic', 'price_pro'].flatMap((priceId) => Array.from({ length: 10 }, () => priceId));
  const answers = await Promise.all(orders.map((priceId) => buy({ priceId })));
  t.same(new Set(answers.map(({ status }) => status).filter((status) => status !== 409)), new Set([200]));
  const refused = answers.filter(({ status }) => status === 409).map(idOf);
  t.same(new Set(refused), new Set(refused.length > 0 ? ['VERSION_CONFLICT'] : []));
  t.equal(openSessions(api).length, 1);
  const given = new Set(answers.filter(({ status }) => status === 200).map(idOf));
  t.ok(given.has(String(openSessions(api)[0]?.['id'])));
});

/** Two processes, with the same user: twenty requests for one price, then for two. */
async function race(t: Test, databaseUri: string | undefined): Promise<void> {
  const api = await provider(t);
  const options = {
    ...testOptions(temporaryFolder(t)),
    ...(databaseUri !== undefined && { databaseUri }),
    paymentSecretKey: KEY,
    paymentApiUrl: api.url,
    limits: false,
    logLevel: 'info',
  };
  const programs = [0, 1].map(() =>
    startProgram(t, compiled('test/kit/saas-server.js'), { args: [JSON.stringify(options)] }),
  );
  const urls = await Promise.all(programs.map((program) => program.url()));
  const post = async (index: number, path: string, body: object, token?: string) => {
    const response = await fetch(`${urls[index % urls.length]}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }) },
      body: JSON.stringify(body),
    });
    return { status: response.status, body: parseJson(await response.text()) as Answer['body'] };
  };
  const { body } = await post(0, '/api/auth/register', { email: 'ada@example.test', password: PASSWORD });
  const token = body.data.accessToken;
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) => post(index, CHECKOUT, { priceId: 'price_pro' }, token)),
  );
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
  t.equal(new Set(answers.map((answer) => answer.body.data?.sessionId)).size, 1);
  t.equal(openSessions(api).length, 1);

  const mixed = await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      post(index, CHECKOUT, { priceId: index % 3 === 0 ? 'price_pro' : 'price_basic' }, token),
    ),
  );
  t.equal(openSessions(api).length, 1);
  const given = mixed.flatMap((answer) => answer.body.data?.sessionId ?? []);
  t.ok(given.includes(openSessions(api)[0]?.['id']));
  t.equal(api.customers.size, 1);
}

t.test('requests of one user in two processes open one session (SQLite)', (t) => race(t, undefined));
await onMongod((server) => {
  t.test('requests of one user in two processes open one session (MongoDB)', (t) => race(t, server.fresh(t)));
});

t.test('what the user or the operator can change about a purchase is answered 422 with advice', async (t) => {
  const { app, api } = await shop(t);
  const { accessToken: token } = await app.signUp();
  const buy = buyerIn(app, token);
  const refusals: [code: string, error: Json][] = [
    ['CURRENCY_MISMATCH', { message: 'You cannot combine currencies on a single customer.' }],
    [
      'CURRENCY_MISMATCH',
      {
        param: 'line_items[0][price]',
        message: "The price specified only supports `usd`. This doesn't match the expected currency: `eur`.",
      },
    ],
    ['PRICE_NOT_ALLOWED', { param: 'line_items[0][price]', message: 'The price specified is inactive.' }],
    ['PRICE_NOT_ALLOWED', { code: 'product_inactive', message: 'The product is not active.' }],
    [
      'PROMOTION_NOT_VALID',
      { code: 'resource_missing', param: 'discounts[0][coupon]', message: 'No such coupon' },
    ],
    ['PROMOTION_NOT_VALID', { code: 'coupon_expired', message: 'Expired.' }],
    ['PROMOTION_NOT_VALID', { message: 'This promotion code cannot be redeemed.' }],
    ['TAX_NOT_CONFIGURED', { message: 'You must have a valid head office address to enable automatic tax.' }],
    ['TAX_NOT_CONFIGURED', { code: 'stripe_tax_inactive', message: 'Stripe Tax is not active.' }],
    ['TAX_NOT_CONFIGURED', { param: 'automatic_tax[enabled]', message: 'no' }],
    ['TAX_LOCATION_INVALID', { code: 'customer_tax_location_invalid', message: 'The location is unknown.' }],
  ];
  for (const [code, error] of refusals) {
    const body = JSON.stringify({ error: { type: 'invalid_request_error', ...error } });
    api.fault = ({ path }) => (path === '/v1/checkout/sessions' ? { status: 400, body } : undefined);
    const answer = await buy({ priceId: 'price_pro' });
    t.match([answer.status, answer.body.error?.code], [422, code], JSON.stringify(error));
    t.match(answer.body.message, /\. [A-Z].*\.$/, 'says what to do');
    t.notMatch(answer.text, /single customer|head office address to/, "the provider's message is not shown");
  }
  const others = [
    { status: 400, error: { type: 'invalid_request_error', code: 'parameter_unknown', param: 'colour' } },
    { status: 402, error: { type: 'card_error', message: 'the coupon of the card' } },
    { status: 500, error: { type: 'api_error', message: 'automatic tax' } },
  ];
  for (const { status, error } of others) {
    api.fault = () => ({ status, body: JSON.stringify({ error }) });
    t.equal((await buy({ priceId: 'price_pro' })).status, 502, JSON.stringify(error));
  }
  api.fault = () => undefined;
  t.equal((await buy({ priceId: 'price_pro' })).status, 200);
});

t.test('a rejection that the provider repeats for a day does not outlast its cause', async (t) => {
  const { app, api } = await shop(t);
  const { accessToken: token } = await app.signUp();
  const buy = buyerIn(app, token);
  const stored = new Map<unknown, string>();
  const error = { type: 'invalid_request_error', param: 'line_items[0][price]', message: 'inactive' };
  let isInactive = true;
  api.fault = ({ path, headers: { 'idempotency-key': key } }) => {
    if (path !== '/v1/checkout/sessions') return undefined;
    const original = stored.get(key);
    if (original === undefined && !isInactive) return undefined;
    stored.set(key, original ?? `req_${stored.size}`);
    const headers = {
      'original-request': stored.get(key) ?? '',
      ...(original !== undefined && { 'idempotent-replayed': 'true' }),
    };
    return { status: 400, body: JSON.stringify({ error }), headers };
  };
  t.equal((await buy({ priceId: 'price_pro', quantity: 1 })).status, 422);
  t.equal((await buy({ priceId: 'price_pro', quantity: 1 })).status, 422);
  isInactive = false;
  t.equal((await buy({ priceId: 'price_pro', quantity: 1 })).status, 200);
});

t.test('a payment method is saved for the currency of the prices', async (t) => {
  const { app, api } = await shop(t);
  const { accessToken: token } = await app.signUp();
  t.equal((await buyerIn(app, token)({ mode: 'setup' })).status, 200);
  const { form } = api.calls.findLast(({ path }) => path === '/v1/checkout/sessions') ?? {};
  t.match(Object.fromEntries(form ?? []), { mode: 'setup', currency: 'eur' });
  t.notOk([...(form?.keys() ?? [])].some((name) => name.startsWith('payment_method_types')));
});

t.test(
  'two subscriptions that were paid all the same are recorded and reported to the operator once',
  async (t) => {
    const plans = { basic: { prices: ['price_basic'] }, pro: { prices: ['price_pro'] } };
    const { app, api, deliver, buyer } = await shop(t, { billing: { plans } });
    const [ada, eve] = [await buyer(), await buyer()];
    const seen: Json[] = [];
    app.server.fastify.saas.events.on('subscription.duplicated', (event) => void seen.push({ ...event }));
    const subscribe = async ({ customer, id }: typeof ada, price: string) => {
      api.world.now += 1;
      const subscription = Object.assign(api.world.subscribe(customer, id, true), { price, trialEnd: null });
      const object = { ...subscriptionObject(subscription), status: 'active' };
      for (const at of [0, 1]) await deliver(subscriptionEvent(at === 0 ? 'created' : 'updated', at, object));
      return subscription.id;
    };
    const [basic, pro] = [await subscribe(ada, 'price_basic'), await subscribe(ada, 'price_pro')];
    await subscribe(eve, 'price_basic');
    t.match(seen, [
      { id: `duplicate:${pro}`, userId: ada.id, subscriptionIds: [pro, basic], plans: ['pro', 'basic'] },
    ]);
    t.equal(seen.length, 1);
    const list = async () => (await app.admin('GET', '/admin/api/billing/duplicate-subscriptions')).body.data;
    t.match(await list(), {
      items: [{ userId: ada.id, email: ada.email, subscriptions: [{ id: pro }, { id: basic }] }],
      next: null,
    });
    t.equal((await app.request('GET', '/admin/api/billing/duplicate-subscriptions')).status, 401);

    await deliver(subscriptionEvent('deleted', 9, { id: basic, customer: ada.customer, status: 'canceled' }));
    t.same(await list(), { items: [], next: null }, 'until one of them has ended');
  },
);
