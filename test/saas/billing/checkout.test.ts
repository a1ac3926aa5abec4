import t, { type Test } from 'tap';
import type { Store } from '../../../src/core/storage/collection.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { duplicateCollection, trialCollections } from '../../../src/saas/billing/store.js';
import { onMongod } from '../../core/storage/mongod.js';
import {
  type Answer,
  PASSWORD,
  parseJson,
  type SaasApp,
  saasApp,
  storeOf,
  testOptions,
} from '../../kit/app.js';
import { billingOn } from '../../kit/billing.js';
import { compiled, startProgram } from '../../kit/process.js';
import { countedRandom } from '../../kit/random.js';
import type { StripeApi } from '../../kit/stripe.js';
import { subscriptionObject } from '../../kit/stripe-objects.js';
import { temporaryFolder } from '../../kit/tmp.js';
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

t.test('a session that has expired when it is created is a failure of the provider', async (t) => {
  const { app, api } = await shop(t);
  const { accessToken: token } = await app.signUp();
  const buy = buyerIn(app, token);
  api.world.now -= 7 * 86_400;
  const { status, body } = await buy({ priceId: 'price_pro' });
  t.same([status, body.error.code], [502, 'PAYMENT_PROVIDER_ERROR']);
  t.equal(api.sessions.size, 1, 'it is not repeated');
  api.world.now += 7 * 86_400;
  t.equal((await buy({ priceId: 'price_pro' })).status, 200);
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

/** Calls `work` between the first read of a checkout and what its reader does next. */
function afterFirstRead(store: Store, work: () => Promise<void>): Store {
  let isFirst = true;
  return {
    ...store,
    collection(name, declaration) {
      const collection = store.collection(name, declaration);
      if (name !== 'checkouts') return collection;
      return {
        ...collection,
        async findOne(where) {
          const found = await collection.findOne(where);
          if (isFirst) {
            isFirst = false;
            await work();
          }
          return found;
        },
      };
    },
  };
}

t.test('two processes that open the same checkout at the same time share one reservation', async (t) => {
  const folder = temporaryFolder(t);
  const { app, api } = await shop(t, { folder });
  const random = countedRandom('other');
  const other = await saasApp(t, { folder, random, paymentSecretKey: KEY, paymentApiUrl: api.url });
  const { accessToken: token } = await app.signUp();
  const keys: unknown[] = [];
  let answer = () => {};
  const bothAsked = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const firstAsked = new Promise<void>((resolve) => {
    api.fault = async ({ path, headers }) => {
      if (path !== '/v1/checkout/sessions') return undefined;
      keys.push(headers['idempotency-key']);
      if (keys.length === 2) answer();
      resolve();
      await bothAsked;
      return undefined;
    };
  });
  const first = buyerIn(app, token)({ priceId: 'price_pro' });
  await firstAsked;
  const second = await buyerIn(other, token)({ priceId: 'price_pro' });
  t.match([(await first).status, second.status], [200, 200]);
  t.equal(idOf(second), idOf(await first));
  t.equal(keys[0], keys[1]);
  t.equal(openSessions(api).length, 1);
});

t.test('a session that opens while another process replaces its reservation is expired', async (t) => {
  const { app, api } = await shop(t);
  const { accessToken: token, id: userId } = await app.signUp();
  let letOpen = () => {};
  const mayOpen = new Promise<void>((resolve) => {
    letOpen = resolve;
  });
  const asked = new Promise<void>((resolve) => {
    api.fault = async ({ path }) => {
      if (path !== '/v1/checkout/sessions') return undefined;
      api.fault = () => undefined;
      resolve();
      await mayOpen;
      return undefined;
    };
  });
  const first = buyerIn(app, token)({ priceId: 'price_basic' });
  await asked;
  // The other process sees the reservation before the session, and replaces it after the session was handed out.
  const store = afterFirstRead(await storeOf(t, app), async () => {
    letOpen();
    t.equal((await first).status, 200);
  });
  const { checkout } = billingOn(store, app.clock, {
    config: {
      paymentSecretKey: KEY,
      paymentApiUrl: api.url,
      billingReturnUrlRelative: '/settings/billing',
      pastDue: 'entitled',
    },
  });
  const { sessionId } = await checkout.create(userId, { priceId: 'price_pro' });
  t.equal(api.sessions.get(idOf(await first))?.['status'], 'expired');
  t.same(
    openSessions(api).map(({ id }) => id),
    [sessionId],
  );
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

t.test('requests of one user in two processes open one session on SQLite', (t) => race(t, undefined));
await onMongod((server) => {
  t.test('requests of one user in two processes open one session on MongoDB', (t) =>
    race(t, server.fresh(t)),
  );
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

t.test('a subscription that becomes active beside another one is reported to the operator', async (t) => {
  const { app, api, deliver, buyer } = await shop(t);
  const { customer, id } = await buyer();
  const seen: Json[] = [];
  app.server.fastify.saas.events.on('subscription.duplicated', (event) => void seen.push({ ...event }));
  const both = [0, 1].map(() => {
    api.world.now += 1;
    return Object.assign(api.world.subscribe(customer, id, true), { trialEnd: null });
  });
  const objects = both.map((one, at) => ({
    ...subscriptionObject(one),
    status: at === 0 ? 'active' : 'incomplete',
  }));
  for (const [at, object] of objects.entries()) await deliver(subscriptionEvent('created', at, object));
  t.same(seen, []);
  t.equal(await deliver(subscriptionEvent('updated', 5, { ...objects[1], status: 'active' })), 'processed');
  const [older, newer] = both.map((one) => one.id);
  t.match(seen, [{ id: `duplicate:${newer}`, userId: id, subscriptionIds: [newer, older] }]);
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
    await deliver(subscriptionEvent('updated', 5, { id: pro, customer: ada.customer, status: 'past_due' }));
    t.equal(seen.length, 1, 'a further change of the same subscriptions is not reported again');
    const list = async () => (await app.admin('GET', '/admin/api/billing/duplicate-subscriptions')).body.data;
    t.match(await list(), {
      items: [{ userId: ada.id, email: ada.email, subscriptions: [{ id: pro }, { id: basic }] }],
      next: null,
    });
    t.equal((await app.request('GET', '/admin/api/billing/duplicate-subscriptions')).status, 401);
    const page = async (query = '') => (await app.admin('GET', `/admin/${query}`)).text;
    const row =
      /<td>([^<]*)<\/td><td><time datetime="2040[^"]*">2040-01-01 00:00<\/time><\/td><td>(.*?)<\/td>/s;
    const [, email, subscriptions] = row.exec((await page()).split('id="duplicates"')[1] ?? '') ?? [];
    t.equal(email, ada.email);
    t.match(
      subscriptions,
      new RegExp(`pro, past_due, started 2040-01-01 \\(${pro}\\).*basic, active, .*${basic}`, 's'),
    );
    t.notMatch(await page(), />Next page</);

    await deliver(subscriptionEvent('deleted', 9, { id: basic, customer: ada.customer, status: 'canceled' }));
    t.same(await list(), { items: [], next: null }, 'until one of them has ended');
    t.match(await page(), 'No user pays for more than one subscription.');

    // Users whose duplicates have ended fill the first page and more.
    const reported = duplicateCollection(await storeOf(t, app));
    const insert = (id: string) => reported.insert({ id, subscriptionId: pro, at: app.clock.now() });
    for (let number = 0; number < 150; number++) await insert(`usr_00_${number}`);
    await subscribe(ada, 'price_basic');
    const first = await page();
    t.match(first.split('id="duplicates"')[1], ada.email, 'pages without a duplicate are skipped');
    t.notMatch(first, />Next page</);
    for (let number = 0; number < 150; number++) await insert(`usr_zz_${number}`);
    const [, next = ''] = /<a href="(\?[^"]*)">Next page<\/a>/.exec(await page()) ?? [];
    t.match(next, /#duplicates$/);
    t.match(await page(next.replace(/#.*/, '')), 'No user pays for more than one subscription.');
    t.equal((await app.admin('GET', '/admin/?duplicates=wrong')).status, 400);
  },
);

/** The form of the newest session. */
const lastForm = ({ calls }: StripeApi) =>
  Object.fromEntries(
    calls.findLast(({ method, path }) => method === 'POST' && path === '/v1/checkout/sessions')?.form ?? [],
  );

t.test(
  'the options of the payment page come from the plan or from code, never from the browser',
  async (t) => {
    const checkout = {
      promotionCodes: true,
      automaticTax: true,
      taxIds: true,
      billingAddress: 'required',
      locale: 'de',
      quantity: { min: 2, max: 5 },
    } as const;
    const { app, api } = await shop(t, { billing: { plans: { pro: { prices: ['price_pro'], checkout } } } });
    const { accessToken: token, id } = await app.signUp();
    const buy = buyerIn(app, token);
    t.equal((await buy({ priceId: 'price_pro', trialDays: 90, coupon: 'free', locale: 'fr' })).status, 200);
    const form = lastForm(api);
    t.match(form, {
      allow_promotion_codes: 'true',
      'automatic_tax[enabled]': 'true',
      'tax_id_collection[enabled]': 'true',
      'customer_update[address]': 'auto',
      'customer_update[name]': 'auto',
      billing_address_collection: 'required',
      locale: 'de',
      'line_items[0][quantity]': '2',
    });
    t.notMatch(form, { 'subscription_data[trial_period_days]': /./ });
    for (const quantity of [1, 6]) {
      const answer = await buy({ priceId: 'price_pro', quantity });
      t.match([answer.status, answer.body.error], [400, { code: 'VALIDATION_ERROR' }]);
      t.match(answer.body.error.details, [
        { path: 'quantity', message: 'must be from 2 to 5 for this price' },
      ]);
    }

    const { createCheckout } = app.server.fastify.saas.billing;
    const order = { priceId: 'price_pro', quantity: 3, trialDays: 30, coupon: 'half', automaticTax: false };
    t.match(await createCheckout(id, order), { sessionId: /^cs_/, url: /^https:/ });
    const given = lastForm(api);
    t.match(given, {
      'subscription_data[trial_period_days]': '30',
      'discounts[0][coupon]': 'half',
      'line_items[0][quantity]': '3',
      locale: 'de',
    });
    t.notMatch(given, { allow_promotion_codes: /./ });
    t.notMatch(given, { 'automatic_tax[enabled]': /./ });
    await t.rejects(createCheckout('usr_unknown', { priceId: 'price_pro' }), { code: 'NOT_FOUND' });
    await t.rejects(createCheckout(id, { priceId: 'price_pro', trialDays: 0, colour: 'red' } as never), {
      code: 'VALIDATION_ERROR',
      details: [{ path: 'colour' }, { path: 'trialDays' }],
    });
    await t.rejects(createCheckout(id, { priceId: 'price_other' }), { code: 'PRICE_NOT_ALLOWED' });
  },
);

const TRIAL_PLANS = {
  basic: { prices: ['price_basic'], checkout: { trialDays: 14 } },
  pro: { prices: ['price_pro'], checkout: { trialDays: 14 }, independent: true },
};

t.test('a trial that is not started stays available, and a second checkout takes it over', async (t) => {
  const { app, api } = await shop(t, { billing: { plans: TRIAL_PLANS } });
  const { accessToken: token } = await app.signUp({ email: 'ada@example.test' });
  const buy = buyerIn(app, token);
  const trialOf = () => lastForm(api)['subscription_data[trial_period_days]'];
  const first = idOf(await buy({ priceId: 'price_basic' }));
  t.equal(trialOf(), '14');
  t.equal(idOf(await buy({ priceId: 'price_basic' })), first);
  const second = idOf(await buy({ priceId: 'price_pro' }));
  t.equal(trialOf(), '14');
  t.same(
    openSessions(api).map(({ id }) => id),
    [second],
    'the older page, which offered the trial as well, is expired',
  );
  Object.assign(api.sessions.get(second) ?? {}, { status: 'expired', url: null });
  t.equal((await buy({ priceId: 'price_basic' })).status, 200);
  t.equal(trialOf(), '14');
});

t.test('a trial is offered once, also to another account with the same mailbox', async (t) => {
  const { app, api } = await shop(t, { billing: { plans: TRIAL_PLANS } });
  const trialOf = () => lastForm(api)['subscription_data[trial_period_days]'];
  const { accessToken: token, id } = await app.signUp({ email: 'ada@example.test' });
  const opened = api.sessions.get(idOf(await buyerIn(app, token)({ priceId: 'price_basic' }))) ?? {};
  Object.assign(opened, { status: 'complete', url: null });
  const eve = await app.signUp({ email: 'ada+second@example.test' });
  t.equal((await buyerIn(app, eve.accessToken)({ priceId: 'price_basic' })).status, 200);
  t.equal(trialOf(), undefined, 'the first checkout was paid, although its event has not arrived');

  const trialing = { status: 'trialing', trialEnd: api.world.now + 86_400, price: 'price_basic' };
  const subscription = Object.assign(api.world.subscribe(String(opened['customer']), id, true), trialing);
  await app.request('POST', '/api/billing/sync', { token });
  Object.assign(subscription, { status: 'canceled', endedAt: api.world.now });
  t.equal((await buyerIn(app, token)({ priceId: 'price_basic' })).status, 200);
  t.equal(trialOf(), undefined);
});

t.test('a used trial is remembered without personal data after the deletion of the account', async (t) => {
  const { app, api } = await shop(t, { billing: { plans: TRIAL_PLANS } });
  const trialOf = () => lastForm(api)['subscription_data[trial_period_days]'];
  const buyAndLeave = async (email: string, isPaid: boolean) => {
    const { accessToken: token, id } = await app.signUp({ email });
    const answer = await buyerIn(app, token)({ priceId: 'price_basic' });
    const offered = trialOf();
    const session = api.sessions.get(idOf(answer)) ?? {};
    if (isPaid) {
      const trialing = { status: 'trialing', trialEnd: api.world.now + 86_400, price: 'price_basic' };
      Object.assign(api.world.subscribe(String(session['customer']), id, true), trialing);
      Object.assign(session, { status: 'complete', url: null });
      await app.request('POST', '/api/billing/sync', { token });
    }
    const leave = await app.request('POST', '/api/user/delete', { token, body: { password: PASSWORD } });
    t.equal(leave.status, 200);
    return offered;
  };
  t.equal(await buyAndLeave('a.da@gmail.com', false), '14');
  t.equal(await buyAndLeave('a.da@gmail.com', true), '14', 'the abandoned checkout has not used it');
  t.equal(await buyAndLeave('ad.a+again@googlemail.com', true), undefined);

  const { trials } = trialCollections(await storeOf(t, app));
  const { items } = await trials.page({ sort: 'id', limit: 10 });
  t.equal(items.length, 1);
  t.same(Object.keys(items[0] ?? {}).sort(), ['id', 'rev', 'usedAt']);
});

t.test('parallel checkouts of independent plans do not both get the trial', async (t) => {
  const { app, api } = await shop(t, { billing: { plans: TRIAL_PLANS } });
  const { accessToken: token } = await app.signUp();
  const buy = buyerIn(app, token);
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) => buy({ priceId: index % 2 === 0 ? 'price_basic' : 'price_pro' })),
  );
  const statuses = new Set(answers.map(({ status }) => status).filter((status) => status !== 409));
  t.same(statuses, new Set([200]));
  t.equal(openSessions(api).length, 1);
});
