import t, { type Test } from 'tap';
import type { Store } from '../../../src/core/storage/collection.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { duplicateCollection, trialCollections } from '../../../src/saas/billing/store.js';
import { type Account, type Answer, PASSWORD, saasApp, storeOf } from '../../kit/app.js';
import { billingOn } from '../../kit/billing.js';
import { countedRandom } from '../../kit/random.js';
import type { StripeApi } from '../../kit/stripe.js';
import { subscriptionObject } from '../../kit/stripe-objects.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { type Buyer, CONFIG, KEY, shop, subscriptionEvent } from './kit.js';

const DAY = 86_400_000;

const PRO = { priceId: 'price_pro' };
const BASIC = { priceId: 'price_basic' };

/** A shop with a user, whose orders `buy` sends. */
async function visitedShop(t: Test, options: Parameters<typeof shop>[1] = {}) {
  const opened = await shop(t, options);
  const ada = await opened.app.signUp({ email: 'ada@example.test' });
  return { ...opened, ada, buy: (order: object) => opened.buy(ada, order), buyAs: opened.buy };
}

const idOf = ({ body }: Answer): string => body.data?.sessionId ?? body.error.code;
const openSessions = ({ sessions }: Pick<StripeApi, 'sessions'>): Json[] =>
  [...sessions.values()].filter(({ status }) => status === 'open');

t.test('an open checkout session of the same order is handed out again', async (t) => {
  const { app, api, buy, buyAs } = await visitedShop(t);
  for (const order of [
    PRO,
    { priceId: 'price_pro', mode: 'payment' },
    { priceId: 'price_basic', mode: 'payment', quantity: 2 },
    { mode: 'setup' },
  ]) {
    const [first, again] = [await buy(order), await buy(order)];
    t.equal(first.status, 200);
    t.same(again.body, first.body, JSON.stringify(order));
  }
  t.equal(openSessions(api).length, 4);

  const others = await buyAs(await app.signUp(), { mode: 'setup' });
  t.not(idOf(others), idOf(await buy({ mode: 'setup' })), 'another user has another session');
});

t.test('another plan or quantity expires the older session, whose page could be paid as well', async (t) => {
  const { api, buy } = await visitedShop(t);
  const payment = idOf(await buy({ priceId: 'price_pro', mode: 'payment' }));
  const statusOf = (id: string) => api.sessions.get(id)?.['status'];
  const orders = [PRO, { priceId: 'price_pro', quantity: 2 }, BASIC, PRO];
  const opened: string[] = [];
  for (const order of orders) opened.push(idOf(await buy(order)));
  t.equal(new Set(opened).size, 4);
  t.same(opened.map(statusOf), ['expired', 'expired', 'expired', 'open']);
  t.equal(statusOf(payment), 'open', 'a one-time purchase is independent of subscriptions');
});

t.test('a session that was expired, is paid or about to expire is replaced', async (t) => {
  const { app, api, ada, buy, buyAs } = await visitedShop(t);
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
  const login = await app.request('POST', '/api/auth/login', {
    body: { email: ada.email, password: PASSWORD },
  });
  const fourth = idOf(await buyAs(login.body.data, order));
  t.not(fourth, third);
  t.same(
    openSessions(api).map(({ id }) => id),
    [fourth],
  );
});

t.test('a user who has paid is refused a second session, although the event has not arrived', async (t) => {
  const { api, ada, buy, subscribe, subscription } = await visitedShop(t);
  const session = api.sessions.get(idOf(await buy(BASIC))) ?? {};
  const bought = subscribe({ ...ada, customer: String(session['customer']) });
  Object.assign(session, { status: 'complete', url: null, subscription: bought.id });
  for (const priceId of ['price_basic', 'price_pro']) {
    const answer = await buy({ priceId });
    t.match([answer.status, answer.body.error?.code], [409, 'ALREADY_SUBSCRIBED'], priceId);
    t.match(answer.body.message, /POST \/billing\/subscription\/change/);
  }
  t.match(await subscription(ada), { status: 'active', entitled: true });

  Object.assign(bought, { status: 'canceled' });
  t.equal((await buy(PRO)).status, 200, 'a subscription that has ended does not count');
});

t.test('a plan that is independent is bought and kept beside another one', async (t) => {
  const plans = { basic: { prices: ['price_basic'] }, pro: { prices: ['price_pro'], independent: true } };
  const { api, ada, buy, post, subscribe } = await visitedShop(t, { billing: { plans } });
  const pro = idOf(await buy(PRO));
  const basic = idOf(await buy(BASIC));
  t.same(
    openSessions(api).map((session) => session['id']),
    [pro, basic],
  );

  const customer = String(api.sessions.get(basic)?.['customer']);
  for (const price of ['price_basic', 'price_pro']) {
    subscribe({ ...ada, customer }, { price });
    await post(ada, '/billing/sync');
    t.equal(idOf(await buy({ priceId: price })), 'ALREADY_SUBSCRIBED');
    if (price === 'price_basic') t.equal(idOf(await buy(PRO)), pro);
  }
});

t.test('a purchase that the provider left unanswered opens no second session', async (t) => {
  const { api, buy } = await visitedShop(t);
  const keys = new Set<unknown>();
  let cuts = 2;
  api.fault = ({ path, method, headers }) => {
    if (path !== '/v1/checkout/sessions' || method !== 'POST') return undefined;
    keys.add(headers['idempotency-key']);
    return cuts-- > 0 ? 'cut' : undefined;
  };
  t.equal((await buy(PRO)).status, 502);
  t.equal((await buy(PRO)).status, 200);
  t.equal(keys.size, 1, 'the provider recognises the repetition');

  // The older session could still be paid, so no other one may be opened.
  api.fault = ({ path }) => (path.endsWith('/expire') ? 'cut' : undefined);
  t.equal((await buy(BASIC)).status, 502);
  t.equal(openSessions(api).length, 1);
  api.fault = () => undefined;
  t.equal((await buy(BASIC)).status, 200);
  t.equal(openSessions(api).length, 1);
});

t.test('a session that has expired when it is created is a failure of the provider', async (t) => {
  const { api, buy } = await visitedShop(t);
  api.world.now -= 7 * 86_400;
  const { status, body } = await buy(PRO);
  t.same([status, body.error.code], [502, 'PAYMENT_PROVIDER_ERROR']);
  t.equal(api.sessions.size, 1, 'it is not repeated');
  api.world.now += 7 * 86_400;
  t.equal((await buy(PRO)).status, 200);
});

t.test('orders for two plans at once leave one session open, and only its address is known', async (t) => {
  const { api, buy } = await visitedShop(t);
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
  const { api, ada, buy } = await visitedShop(t, { folder });
  const random = countedRandom('other');
  const other = await saasApp(t, { folder, random, paymentSecretKey: KEY, paymentApiUrl: api.url });
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
  const first = buy(PRO);
  await firstAsked;
  const second = await other.request('POST', '/api/billing/create-checkout-session', {
    token: ada.accessToken,
    body: PRO,
  });
  t.match([(await first).status, second.status], [200, 200]);
  t.equal(idOf(second), idOf(await first));
  t.equal(keys[0], keys[1]);
  t.equal(openSessions(api).length, 1);
});

t.test('a session that opens while another process replaces its reservation is expired', async (t) => {
  const { app, api, ada, buy } = await visitedShop(t);
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
  const first = buy(BASIC);
  await asked;
  // The other process sees the reservation before the session, and replaces it after the session was handed out.
  const store = afterFirstRead(await storeOf(t, app), async () => {
    letOpen();
    t.equal((await first).status, 200);
  });
  const { checkout } = billingOn(store, app.clock, {
    config: { ...CONFIG, paymentSecretKey: KEY, paymentApiUrl: api.url },
  });
  const { sessionId } = await checkout.create(ada.id, PRO);
  t.equal(api.sessions.get(idOf(await first))?.['status'], 'expired');
  t.same(
    openSessions(api).map(({ id }) => id),
    [sessionId],
  );
});

t.test('what the user or the operator can change about a purchase is answered 422 with advice', async (t) => {
  const { api, buy } = await visitedShop(t);
  const ofPrice = { param: 'line_items[0][price]' };
  const refusals: [code: string, error: Json][] = [
    ['CURRENCY_MISMATCH', { message: 'You cannot combine currencies on a single customer.' }],
    ['CURRENCY_MISMATCH', { ...ofPrice, message: "This doesn't match the expected currency: `eur`." }],
    ['PRICE_NOT_ALLOWED', { ...ofPrice, message: 'The price specified is inactive.' }],
    ['PRICE_NOT_ALLOWED', { param: 'line_items', message: 'no' }],
    ['PRICE_NOT_ALLOWED', { param: 'mode', message: 'no' }],
    ['PRICE_NOT_ALLOWED', { code: 'product_inactive', message: 'The product is not active.' }],
    [
      'PROMOTION_NOT_VALID',
      { code: 'resource_missing', param: 'discounts[0][coupon]', message: 'No coupon' },
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
    const answer = await buy(PRO);
    t.match([answer.status, answer.body.error?.code], [422, code], JSON.stringify(error));
    t.notMatch(answer.text, /single customer|head office address to/, "the provider's message is not shown");
  }
  const others = [
    { status: 400, error: { type: 'invalid_request_error', code: 'parameter_unknown', param: 'colour' } },
    { status: 402, error: { type: 'card_error', message: 'the coupon of the card' } },
    { status: 500, error: { type: 'api_error', message: 'automatic tax' } },
  ];
  for (const { status, error } of others) {
    api.fault = () => ({ status, body: JSON.stringify({ error }) });
    t.equal((await buy(PRO)).status, 502, JSON.stringify(error));
  }
  api.fault = () => undefined;
  t.equal((await buy(PRO)).status, 200);
});

t.test('a rejection that the provider repeats for a day does not outlast its cause', async (t) => {
  const { api, buy } = await visitedShop(t);
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

/** The form of the newest session. */
const lastForm = ({ calls }: StripeApi) =>
  Object.fromEntries(
    calls.findLast(({ method, path }) => method === 'POST' && path === '/v1/checkout/sessions')?.form ?? [],
  );

t.test('a payment method is saved for the currency of the prices', async (t) => {
  const { api, buy } = await visitedShop(t);
  t.equal((await buy({ mode: 'setup' })).status, 200);
  const form = lastForm(api);
  t.match(form, { mode: 'setup', currency: 'eur' });
  t.notMatch(Object.keys(form).join(), 'payment_method_types');
});

t.test(
  'two subscriptions that were paid all the same are recorded and reported to the operator once',
  async (t) => {
    const plans = { basic: { prices: ['price_basic'] }, pro: { prices: ['price_pro'] } };
    const { app, api, deliver, buyer, heard, ...opened } = await shop(t, { billing: { plans } });
    const [ada, eve] = [await buyer(), await buyer()];
    const seen = heard('subscription.duplicated');
    const subscribe = async (account: Buyer, price: string) => {
      api.world.now += 1;
      const object = subscriptionObject(opened.subscribe(account, { price }));
      await deliver(subscriptionEvent('created', 0, { ...object, status: 'incomplete' }));
      if (account === ada && price === 'price_pro') t.same(seen, [], 'not before it is paid');
      await deliver(subscriptionEvent('updated', 1, object));
      return String(object['id']);
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
      items: [{ ownerId: ada.id, email: ada.email, subscriptions: [{ id: pro }, { id: basic }] }],
      next: null,
    });
    t.equal((await app.request('GET', '/admin/api/billing/duplicate-subscriptions')).status, 401);
    const shown = async (query = '') =>
      (await app.admin('GET', `/admin/${query}`)).text.split('id="duplicates"')[1] ?? '';
    t.match(await shown(), new RegExp(`${ada.email}.*${pro}.*${basic}`, 's'));
    t.notMatch(await shown(), />Next page</);

    await deliver(subscriptionEvent('deleted', 9, { id: basic, customer: ada.customer, status: 'canceled' }));
    t.same(await list(), { items: [], next: null }, 'until one of them has ended');
    t.notMatch(await shown(), ada.email);

    // Users whose duplicates have ended fill the first page and more.
    const reported = duplicateCollection(await storeOf(t, app));
    const insert = (id: string) =>
      reported.insert({ id, subscriptionId: pro, reportedIds: [pro], at: app.clock.now() });
    for (let number = 0; number < 150; number++) await insert(`usr_00_${number}`);
    await subscribe(ada, 'price_basic');
    t.match(await shown(), ada.email, 'pages without a duplicate are skipped');
    t.notMatch(await shown(), />Next page</);
    for (let number = 0; number < 150; number++) await insert(`usr_zz_${number}`);
    const [, next = ''] = /href="(\?[^"]*)">Next page<\/a>/.exec(await shown()) ?? [];
    t.match(next, /#duplicates$/);
    t.notMatch(await shown(next.replace(/#.*/, '')), ada.email);
    t.equal((await app.admin('GET', '/admin/?duplicates=wrong')).status, 400);
  },
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
    const { app, api, ada, buy } = await visitedShop(t, {
      billing: { plans: { pro: { prices: ['price_pro'], checkout } } },
    });
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
      t.match(answer.body.error, {
        code: 'VALIDATION_ERROR',
        details: [{ path: 'quantity', message: /2 to 5/ }],
      });
    }

    const { createCheckout } = app.server.fastify.saas.billing;
    const order = { priceId: 'price_pro', quantity: 3, trialDays: 30, coupon: 'half', automaticTax: false };
    t.match(await createCheckout(ada.id, order), { sessionId: /^cs_/, url: /^https:/ });
    const given = lastForm(api);
    t.match(given, {
      'subscription_data[trial_period_days]': '30',
      'discounts[0][coupon]': 'half',
      'line_items[0][quantity]': '3',
      locale: 'de',
    });
    t.notMatch(Object.keys(given).join(), /allow_promotion_codes|automatic_tax/);
    await t.rejects(createCheckout('usr_unknown', PRO), { code: 'NOT_FOUND' });
    await t.rejects(createCheckout(ada.id, { priceId: 'price_pro', trialDays: 0, colour: 'red' } as never), {
      code: 'VALIDATION_ERROR',
      details: [{ path: 'colour' }, { path: 'trialDays' }],
    });
    await t.rejects(createCheckout(ada.id, { priceId: 'price_other' }), { code: 'PRICE_NOT_ALLOWED' });
  },
);

const TRIAL_PLANS = {
  basic: { prices: ['price_basic'], checkout: { trialDays: 14 } },
  pro: { prices: ['price_pro'], checkout: { trialDays: 14 }, independent: true },
};

async function trialShop(t: Test) {
  const opened = await visitedShop(t, { billing: { plans: TRIAL_PLANS } });
  /** The trial that the newest session offers. */
  const trialOf = () => lastForm(opened.api)['subscription_data[trial_period_days]'];
  /** The subscription that a completed session has begun. */
  async function startTrial(account: Account, session: Json) {
    const trialing = { status: 'trialing', trialEnd: opened.api.world.now + 86_400, price: 'price_basic' };
    const begun = opened.subscribe({ id: account.id, customer: String(session['customer']) }, trialing);
    Object.assign(session, { status: 'complete', url: null });
    await opened.post(account, '/billing/sync');
    return begun;
  }
  return { ...opened, trialOf, startTrial };
}

t.test('a trial that is not started stays available, and a second checkout takes it over', async (t) => {
  const { api, buy, trialOf } = await trialShop(t);
  const first = idOf(await buy(BASIC));
  t.equal(trialOf(), '14');
  t.equal(idOf(await buy(BASIC)), first);
  const second = idOf(await buy(PRO));
  t.equal(trialOf(), '14');
  t.same(
    openSessions(api).map(({ id }) => id),
    [second],
    'the older page, which offered the trial as well, is expired',
  );
  Object.assign(api.sessions.get(second) ?? {}, { status: 'expired', url: null });
  t.equal((await buy(BASIC)).status, 200);
  t.equal(trialOf(), '14');
});

t.test('a trial is offered once, also to another account with the same mailbox', async (t) => {
  const { app, api, ada, buy, buyAs, trialOf, startTrial } = await trialShop(t);
  const opened = api.sessions.get(idOf(await buy(BASIC))) ?? {};
  Object.assign(opened, { status: 'complete', url: null });
  const eve = await app.signUp({ email: 'ada+second@example.test' });
  t.equal((await buyAs(eve, BASIC)).status, 200);
  t.equal(trialOf(), undefined, 'the first checkout was paid, although its event has not arrived');

  Object.assign(await startTrial(ada, opened), { status: 'canceled', endedAt: api.world.now });
  t.equal((await buy(BASIC)).status, 200);
  t.equal(trialOf(), undefined);
});

t.test('a used trial is remembered without personal data after the deletion of the account', async (t) => {
  const { app, api, buyAs, leave, trialOf, startTrial } = await trialShop(t);
  const buyAndLeave = async (email: string, isPaid: boolean) => {
    const user = await app.signUp({ email });
    const session = api.sessions.get(idOf(await buyAs(user, BASIC))) ?? {};
    const offered = trialOf();
    if (isPaid) await startTrial(user, session);
    t.equal((await leave(user)).status, 200);
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
  const { api, buy } = await visitedShop(t, { billing: { plans: TRIAL_PLANS } });
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) => buy({ priceId: index % 2 === 0 ? 'price_basic' : 'price_pro' })),
  );
  const statuses = new Set(answers.map(({ status }) => status).filter((status) => status !== 409));
  t.same(statuses, new Set([200]));
  t.equal(openSessions(api).length, 1);
});
