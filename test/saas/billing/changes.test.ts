import t from 'tap';
import { openStore } from '../../../src/core/storage/open.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { customerCollection, subscriptionCollection } from '../../../src/saas/billing/store.js';
import { auditOf, storeOf } from '../../kit/app.js';
import { runJobs } from '../../kit/billing.js';
import { fakeClock } from '../../kit/clock.js';
import { isChange } from '../../kit/stripe-changes.js';
import { UNSUBSCRIBED } from '../../kit/stripe-fixture.js';
import { Killed } from '../../kit/stripe-killable-store.js';
import { boot } from '../../kit/stripe-storm.js';
import { CANCEL, CHANGE, PAUSE, provider, RESUME, subscriber } from './kit.js';

t.test('a change of price and quantity is made at the provider and visible at once', async (t) => {
  const { app, truth, post, changes, stored, ada } = await subscriber(t, {
    truth: { addOns: [{ id: 'si_addon', price: 'price_support' }] },
  });
  const { status, body } = await post(CHANGE, { priceId: 'price_pro', quantity: 3 });
  t.equal(status, 200);
  t.match(body.data, { status: 'active', plan: 'pro', priceId: 'price_pro', quantity: 3, entitled: true });
  const { releasedChange, ...shown } = body.data;
  t.same([await stored(), releasedChange], [shown, null]);
  t.match(truth, { price: 'price_pro', quantity: 3, addOns: [{ id: 'si_addon' }] });
  t.same(Object.fromEntries(changes()[0]?.form ?? []), {
    'items[0][id]': `si_${truth.id.slice(4)}`,
    'items[0][price]': 'price_pro',
    'items[0][quantity]': '3',
    proration_behavior: 'always_invoice',
    payment_behavior: 'error_if_incomplete',
  });
  t.match(
    (await auditOf(await storeOf(t, app))).findLast(({ event }) => event.startsWith('subscription')),
    {
      event: 'subscription.changed',
      subject: ada.id,
      detail: `${truth.id} price_basic × 1 to price_pro × 3`,
    },
  );

  t.match((await post(CHANGE, { priceId: 'price_basic' })).body.data, { plan: 'basic', quantity: 3 });
});

t.test('the events of a change have no further effect', async (t) => {
  const { api, truth, post, deliver, told, stored } = await subscriber(t);
  const before = api.world.events.length;
  await post(CHANGE, { priceId: 'price_pro' });
  t.match(told, [{ subscriptionId: truth.id, plan: 'pro' }]);
  t.equal(told.length, 1);
  const after = await stored();
  for (const event of api.world.events.slice(before)) await deliver(event);
  const { updatedAt, ...same } = await stored();
  t.match(after, same);
  t.equal(told.length, 1, 'told once');
});

t.test('a repeated change has one effect, one after the other and in parallel', async (t) => {
  const { api, post, changes, invoices } = await subscriber(t);
  const before = invoices();
  const order = { priceId: 'price_pro', quantity: 2 };
  const answers = await Promise.all([post(CHANGE, order), post(CHANGE, order), post(CHANGE, order)]);
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 200],
  );
  t.equal(invoices(), before + 1);
  const calls = changes().length;
  t.equal((await post(CHANGE, order)).status, 200);
  t.equal((await post(CHANGE, { priceId: 'price_pro' })).status, 200);
  t.equal(changes().length, calls);

  // The provider locks the subscription while it changes.
  api.fault = (call) => {
    if (!isChange(call)) return undefined;
    api.fault = () => undefined;
    return { status: 429, body: '{"error":{"type":"invalid_request_error","code":"lock_timeout"}}' };
  };
  t.equal((await post(CHANGE, { priceId: 'price_basic' })).status, 200, 'the request is repeated');
  t.equal((await post(CHANGE, { priceId: 'price_basic' })).status, 200);
});

t.test('a change whose response is lost is found at the provider', async (t) => {
  const { api, truth, post, stored, pass, invoices, changes, runJobs } = await subscriber(t);
  const before = invoices();
  /** The provider makes the change, but its response is lost, and so are those that follow if it `isDown` then. */
  const loseResponse = (isDown: boolean) => {
    truth.price = 'price_basic';
    let isCut = false;
    api.fault = (call) => {
      if (!isChange(call)) return isCut && isDown ? 'cut' : undefined;
      isCut = true;
      api.world.change(truth, { price: 'price_pro' });
      return 'cut';
    };
  };
  const change = () => post(CHANGE, { priceId: 'price_pro' });
  loseResponse(false);
  t.match((await change()).body.data, { plan: 'pro' });
  t.equal(invoices(), before + 1);

  loseResponse(true);
  await post('sync');
  t.match(await change(), { status: 502, body: { error: { code: 'PAYMENT_PROVIDER_ERROR' } } });
  t.match(await stored(), { plan: 'basic' });
  api.fault = () => undefined;
  const calls = changes().length;
  t.match((await change()).body.data, { plan: 'pro' });
  t.equal(changes().length, calls, 'it was made already');
  t.equal(invoices(), before + 2);

  loseResponse(true);
  await post('sync');
  t.equal((await change()).status, 502);
  api.fault = () => undefined;
  pass(60);
  await runJobs();
  t.match(await stored(), { plan: 'pro' }, 'found by the background job');
});

t.test(
  'a provider that is down gets a 502, one without the subscription a 409: nothing changes',
  async (t) => {
    const { api, truth, post, preview, stored } = await subscriber(t);
    const before = await stored();
    const expect = async (status: number, code: string) => {
      for (const answer of [
        await post(CHANGE, { priceId: 'price_pro' }),
        await post(CANCEL),
        await post(RESUME),
        await preview('priceId=price_pro'),
      ])
        t.match(answer, { status, body: { error: { code } } });
      t.same(await stored(), before);
    };
    api.fault = () => ({ status: 500, body: '{"error":{"type":"api_error"}}' });
    await expect(502, 'PAYMENT_PROVIDER_ERROR');
    api.fault = () => undefined;
    api.world.subscriptions.delete(truth.id);
    await expect(409, 'SUBSCRIPTION_NOT_CHANGEABLE');
  },
);

t.test('parallel changes end in the state of the provider', async (t) => {
  const { truth, post, stored, api, pass } = await subscriber(t);
  for (let round = 0; round < 5; round++) {
    await Promise.all([
      post(CHANGE, { priceId: 'price_pro', quantity: round + 2 }),
      post(CHANGE, { priceId: 'price_basic', quantity: round + 3 }),
      post(CANCEL),
      post(RESUME),
    ]);
    pass(1);
    const { price: priceId, quantity, cancelAtPeriodEnd } = truth;
    t.match(await stored(), { priceId, quantity, cancelAtPeriodEnd });
  }
  t.ok(api.calls.length > 20);
});

t.test('a declined payment changes nothing', async (t) => {
  const { api, truth, post, stored } = await subscriber(t);
  const before = await stored();
  api.declines = 'card_declined';
  const { status, body } = await post(CHANGE, { priceId: 'price_pro' });
  t.match([status, body.error.code], [402, 'PAYMENT_DECLINED']);
  t.match({ ...(await stored()), updatedAt: before['updatedAt'] }, before);
  t.equal(truth.price, 'price_basic');
  api.declines = undefined;
  t.match((await post(CHANGE, { priceId: 'price_pro' })).body.data, { plan: 'pro' });
});

t.test('prices that do not fit are refused with a reason', async (t) => {
  const { api, post, preview, changes } = await subscriber(t, {
    billingPrices: [
      'price_basic=basic',
      'price_pro=pro',
      ...['usd', 'many', 'metered', 'once', 'old', 'year', 'none'].map((name) => `price_${name}=${name}`),
    ],
  });
  const price = (id: string, more: Json): void => {
    const recurring = { interval: 'month', usage_type: 'licensed' };
    api.prices.set(id, { id, object: 'price', active: true, currency: 'eur', recurring, ...more });
  };
  price('price_usd', { currency: 'usd' });
  price('price_many', { currency: 'usd', currency_options: { usd: {}, eur: {} } });
  price('price_metered', { recurring: { interval: 'month', usage_type: 'metered' } });
  price('price_once', { recurring: null, type: 'one_time' });
  price('price_old', { active: false });
  price('price_year', { object: 'refused', message: 'Found mismatch in interval field.' });
  price('price_free', {});
  for (const [body, status, code] of [
    [{ priceId: 'price_usd' }, 422, 'CURRENCY_MISMATCH'],
    [{ priceId: 'price_once' }, 422, 'PRICE_NOT_ALLOWED'],
    [{ priceId: 'price_old' }, 422, 'PRICE_NOT_ALLOWED'],
    [{ priceId: 'price_year' }, 422, 'PRICE_NOT_ALLOWED'],
    [{ priceId: 'price_none' }, 422, 'PRICE_NOT_ALLOWED'],
    [{ priceId: 'price_free' }, 422, 'PRICE_NOT_ALLOWED'],
    [{ priceId: 'price_metered', quantity: 2 }, 400, 'VALIDATION_ERROR'],
    [{ priceId: 'price_pro', quantity: 0 }, 400, 'VALIDATION_ERROR'],
    [{ priceId: 'price_pro', quantity: 1_000_001 }, 400, 'VALIDATION_ERROR'],
    [{}, 400, 'VALIDATION_ERROR'],
  ] as const) {
    const label = JSON.stringify(body);
    const answer = await post(CHANGE, body);
    t.match(answer, { status, body: { error: { code } } }, label);
    const query = Object.entries(body).map(([name, value]) => `${name}=${value}`);
    t.match(await preview(query.join('&')), { status, body: { error: { code } } }, label);
  }
  api.prices.set('price_year', { ...api.prices.get('price_year'), message: 'Currency fields must match.' });
  t.match((await post(CHANGE, { priceId: 'price_year' })).body, { error: { code: 'CURRENCY_MISMATCH' } });
  t.equal((await post(CHANGE, { priceId: 'price_many' })).status, 200, 'several currencies');
  t.equal((await post(CHANGE, { priceId: 'price_metered' })).status, 200);
  t.notOk(changes().at(-1)?.form.has('items[0][quantity]'), 'a metered price has no quantity');
});

t.test('a plan is changed to in the quantities in which it is sold', async (t) => {
  const { post, changes } = await subscriber(t, {
    billing: {
      plans: {
        basic: { prices: ['price_basic'] },
        pro: { prices: ['price_pro'], checkout: { quantity: { min: 2, max: 5 } } },
      },
    },
  });
  for (const quantity of [1, 6, undefined]) {
    const answer = await post(CHANGE, { priceId: 'price_pro', ...(quantity && { quantity }) });
    t.match(answer.body.error, {
      code: 'VALIDATION_ERROR',
      details: [{ path: 'quantity', message: /2 to 5/ }],
    });
  }
  t.equal(changes().length, 0);
  t.match((await post(CHANGE, { priceId: 'price_pro', quantity: 5 })).body.data, { plan: 'pro' });
});

t.test('a change keeps a price that is no longer for sale', async (t) => {
  const { truth, post } = await subscriber(t, { billingPrices: ['price_pro=pro'] });
  t.equal(truth.price, 'price_basic');
  t.match((await post(CHANGE, { priceId: 'price_basic', quantity: 4 })).body.data, { quantity: 4 });
});

t.test('a preview shows what a change charges, and changes nothing', async (t) => {
  const { api, truth, preview, changes, post } = await subscriber(t);
  const { status, body } = await preview('priceId=price_pro&quantity=2');
  t.equal(status, 200);
  const end = new Date(truth.periodEnd * 1000).toISOString();
  t.match(body.data, {
    amountDue: 2000,
    total: 2000,
    currency: 'eur',
    lines: [{ amount: -900 }, { amount: 2900, description: 'Remaining time', quantity: 2, periodEnd: end }],
    nextChargeAt: end,
  });
  t.equal(changes().length, 0);
  t.same((await preview('priceId=price_basic')).body.data, {
    amountDue: 0,
    total: 0,
    currency: 'eur',
    lines: [],
    nextChargeAt: end,
  });
  await post(CANCEL);
  t.equal((await preview('priceId=price_pro')).body.data.nextChargeAt, null);
  const call = api.calls.findLast(({ path }) => path === '/v1/invoices/create_preview');
  t.same(Object.fromEntries(call?.form ?? []), {
    subscription: truth.id,
    'subscription_details[items][0][id]': `si_${truth.id.slice(4)}`,
    'subscription_details[items][0][price]': 'price_pro',
    'subscription_details[items][0][quantity]': '1',
    'subscription_details[proration_behavior]': 'always_invoice',
  });
  t.equal((await preview('priceId=price_pro&quantity=two')).status, 400);
});

t.test('a cancellation at the end of the period is made once and can be taken back', async (t) => {
  const { truth, post, changes, stored, told } = await subscriber(t);
  const { status, body } = await post(CANCEL);
  t.equal(status, 200);
  t.match(body.data, { status: 'active', cancelAtPeriodEnd: true, entitled: true });
  t.equal((await post(CANCEL, { when: 'period_end' })).status, 200);
  t.equal(changes().length, 1);
  t.match((await post(RESUME)).body.data, { cancelAtPeriodEnd: false, cancelAt: null });
  t.equal((await post(RESUME)).status, 200);
  t.equal(changes().length, 2);
  t.equal(told.length, 2);

  // Newer versions of the API schedule it by date only.
  truth.cancelAt = truth.periodEnd;
  t.equal((await post(CANCEL)).status, 200);
  t.equal(changes().length, 2);
  t.match((await post(RESUME)).body.data, { cancelAt: null });

  // A date after the period is the end of a contract, which the user does not take back.
  truth.cancelAt = truth.periodEnd + 86_400;
  t.equal((await post(RESUME)).status, 200);
  t.equal(truth.cancelAt, truth.periodEnd + 86_400);
  t.match((await post(CANCEL)).body.data, { cancelAtPeriodEnd: true });
  t.match(await stored(), { cancelAtPeriodEnd: true });
});

t.test('a cancellation now ends the subscription, also when it is repeated', async (t) => {
  const { app, truth, post, changes, stored, ada } = await subscriber(t);
  const answers = await Promise.all([post(CANCEL, { when: 'now' }), post(CANCEL, { when: 'now' })]);
  t.same(
    answers.map(({ status, body }) => [status, body.data?.status]),
    [
      [200, 'canceled'],
      [200, 'canceled'],
    ],
  );
  t.equal(truth.status, 'canceled');
  t.equal(changes()[0]?.method, 'DELETE');
  t.equal((changes()[0]?.query ?? new Map()).get('invoice_now'), 'true');
  t.equal((await post(CANCEL, { when: 'now' })).status, 200);
  for (const [path, body] of [
    [CHANGE, { priceId: 'price_pro' }],
    [RESUME, {}],
  ] as const) {
    const answer = await post(path, body);
    t.match(answer, { status: 409, body: { error: { code: 'SUBSCRIPTION_NOT_CHANGEABLE' } } });
  }
  t.match(await stored(), { status: 'canceled', entitled: false });
  const records = (await auditOf(await storeOf(t, app))).filter(({ subject }) => subject === ada.id);
  t.match(
    records.filter(({ event }) => event === 'subscription.canceled').map(({ detail }) => detail),
    [`${truth.id} now`],
  );
});

t.test('a status that does not allow a change gets a 409', async (t) => {
  const { truth, post, preview } = await subscriber(t);
  for (const [status, path] of [
    ['incomplete', CHANGE],
    ['incomplete', CANCEL],
    ['incomplete', RESUME],
    ['unpaid', CHANGE],
    ['paused', CHANGE],
    ['dormant', CHANGE],
  ] as const) {
    truth.status = status;
    const answer = await post(path, { priceId: 'price_pro' });
    t.match(answer, { status: 409, body: { error: { code: 'SUBSCRIPTION_NOT_CHANGEABLE' } } }, status);
    if (path === CHANGE) t.equal((await preview('priceId=price_pro')).status, 409);
  }
  truth.status = 'past_due';
  t.equal((await post(CHANGE, { priceId: 'price_pro' })).status, 200);
  truth.status = 'incomplete';
  t.match((await post(CANCEL, { when: 'now' })).body.data, { status: 'canceled' });
});

t.test('only the own subscription can be changed, and one of several must be named', async (t) => {
  const { app, ada, truth, post, subscribe, ...here } = await subscriber(t);
  const eve = await app.signUp();
  for (const body of [{}, { subscriptionId: truth.id }, { subscriptionId: 'sub_none' }]) {
    const answer = await here.postAs(eve, `/billing/${CANCEL}`, body);
    t.match(answer, { status: 404, body: { error: { code: 'SUBSCRIPTION_NOT_FOUND' } } });
  }
  const second = subscribe(ada);
  const left = subscribe(ada, { status: 'incomplete' });
  await post('sync');
  const answer = await post(CANCEL);
  t.match(answer, { status: 400, body: { error: { code: 'VALIDATION_ERROR' } } });
  t.match(answer.text, truth.id);
  t.match(answer.text, second.id);
  t.notMatch(answer.text, left.id);
  t.equal((await post(CANCEL, { subscriptionId: second.id })).status, 200);
  t.same([truth.cancelAtPeriodEnd, second.cancelAtPeriodEnd], [false, true]);
});

t.test('users can pause only if the operator allows it', async (t) => {
  const refused = await subscriber(t);
  t.match(await refused.post(PAUSE), { status: 403, body: { error: { code: 'FORBIDDEN' } } });
  t.equal(refused.changes().length, 0);

  const { truth, post, changes } = await subscriber(t, { billingAllowPause: true });
  t.match((await post(PAUSE)).body.data, {
    status: 'paused',
    entitled: false,
    pauseReason: 'pause_requested',
  });
  t.equal((await post(PAUSE)).status, 200);
  t.equal(changes().length, 1);
  t.match(await post(CHANGE, { priceId: 'price_pro' }), { status: 409 });
  t.match((await post(RESUME)).body.data, { status: 'active', entitled: true, pauseReason: null });
  // The seller has paused the collection of invoices.
  truth.pauseBehavior = 'void';
  t.match(await post(CHANGE, { priceId: 'price_pro' }), { status: 409 });
  t.equal((await post(RESUME)).status, 200);
  t.equal(truth.pauseBehavior, null);
  truth.billingMode = 'classic';
  t.match(await post(PAUSE), { status: 409, body: { message: /classic billing mode/ } });
});

t.test('the server can change subscriptions without a request', async (t) => {
  const { app, ada, truth } = await subscriber(t);
  const { billing } = app.server.fastify.saas;
  t.match(await billing.change(ada.id, { priceId: 'price_pro' }), { plan: 'pro' });
  t.match(await billing.preview(ada.id, { priceId: 'price_basic' }), { total: -2000, amountDue: 0 });
  t.match(await billing.cancel(ada.id), { cancelAtPeriodEnd: true });
  t.match(await billing.resume(ada.id), { cancelAtPeriodEnd: false });
  await billing.pause(ada.id);
  t.equal(truth.status, 'paused');
  await t.rejects(billing.change(ada.id, { priceId: 7 as never }), { code: 'VALIDATION_ERROR' });
  await t.rejects(billing.change(ada.id, { priceId: 'price_pro', quantity: 1.5 }), {
    code: 'VALIDATION_ERROR',
  });
  await t.rejects(billing.cancel(ada.id, { when: 'later' as never }), { code: 'VALIDATION_ERROR' });
});

/** The background job of another process must find it. */
t.test('a process killed at any step of a change leaves the state of the provider', async (t) => {
  const api = await provider(t);
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const clock = fakeClock();
  clock.set(api.world.now * 1000);
  const told = { count: 0 };
  for (let fuse = 0, isOver = false; !isOver; fuse++) {
    for (const isInTime of [false, true]) {
      const [id, customerId] = [`usr_${fuse}_${isInTime}`, `cus_${fuse}_${isInTime}`];
      const person = { id, email: `${id}@example.test`, ...UNSUBSCRIBED, createdAt: 1 };
      await userCollection(store).insert(person);
      await customerCollection(store).insert({ id: customerId, ownerId: id, createdAt: 1 });
      const truth = api.world.subscribe(customerId, id, true);
      Object.assign(truth, { status: 'active', price: 'price_basic', trialEnd: null });
      const first = boot(store, clock, api.url, told);
      await first.billing.resync.run({ ownerId: id, skipEvents: true });
      Object.assign(first.life, { fuse, isInTime });
      const order = { priceId: 'price_pro', quantity: 2 };
      const outcome = await first.billing.changes.change(id, order).catch((error: unknown) => error);
      isOver = !(outcome instanceof Killed);
      clock.advance(30_000);
      await runJobs(boot(store, clock, api.url, told).billing);
      const where = `killed at step ${fuse}, ${isInTime ? 'after' : 'before'} the store`;
      const { price: priceId, quantity } = truth;
      const stored = await subscriptionCollection(store).findOne({ id: truth.id });
      t.match(stored, { priceId, quantity }, where);
      const user = await userCollection(store).findOne({ id });
      t.equal(user?.subscriptionPlan, stored?.plan, where);
      t.notOk((stored?.recheckAt ?? Number.POSITIVE_INFINITY) <= clock.now(), 'no reconciliation is due');
    }
    if (isOver) t.ok(fuse > 5, `${fuse} steps`);
  }
});
