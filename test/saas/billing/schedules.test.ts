import t from 'tap';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { attachSchedule, presentPhase, startPhases } from '../../kit/stripe-schedules.js';
import { CANCEL, CHANGE, PAUSE, RESUME, subscriber } from './kit.js';

/** Changes at the end of a period, the provider's schedules, and payments that a user has to confirm. */

const UNDO = 'subscription/change/undo';
const MONTH = 30 * 86_400;
const PRO_LATER = { priceId: 'price_pro', when: 'period_end' };
const AT_END = { reason: 'schedule', items: [{ priceId: 'price_pro', quantity: 1 }] };

type Place = Awaited<ReturnType<typeof subscriber>>;

/** A later price in a schedule of the customer portal. */
function portalChange({ api, truth }: Place, price = 'price_pro', more: Json = {}): string {
  const present = presentPhase(truth);
  const { end_date } = present;
  const later = {
    start_date: end_date,
    end_date: end_date + MONTH,
    items: [{ price, quantity: 1 }],
    ...more,
  };
  return attachSchedule(api.world, truth, { phases: [present, { discounts: [], ...later }] });
}

t.test('a change at the end of the period charges nothing before, is shown and is made then', async (t) => {
  const place = await subscriber(t);
  const { app, api, ada, truth, post, stored, preview, invoices, changes, pass, deliver } = place;
  const [before, end] = [invoices(), truth.periodEnd];
  t.match((await preview('priceId=price_pro&when=period_end')).body.data, { amountDue: 0, lines: [] });
  const { status, body } = await post(CHANGE, PRO_LATER);
  t.equal(status, 200);
  const scheduledChange = { ...AT_END, at: new Date(end * 1000).toISOString() };
  t.match(body.data, { plan: 'basic', scheduledChange, releasedChange: null });
  t.match(await stored(), { plan: 'basic', scheduledChange });
  const calls = changes().length;
  t.equal((await post(CHANGE, PRO_LATER)).status, 200);
  t.equal(changes().length, calls, 'a repeated order changes nothing');
  t.equal(invoices(), before);

  pass(end - api.world.now);
  const told = api.world.events.length;
  startPhases(api.world);
  for (const event of api.world.events.slice(told)) await deliver(event);
  t.match(await app.server.fastify.saas.billing.get(ada.id), {
    plan: 'pro',
    holdings: [{ scheduledChange: null }],
  });
});

t.test('a later change keeps the other items and the discounts of the subscription', async (t) => {
  const place = await subscriber(t, {
    truth: { addOns: [{ id: 'si_addon', price: 'price_support', quantity: 2 }] },
  });
  await place.post(CHANGE, { ...PRO_LATER, quantity: 3 });
  const form = place.changes().find(({ path }) => /sub_sched_/.test(path))?.form;
  const items = (phase: number) =>
    [0, 1].map((item) => {
      const field = `phases[${phase}][items][${item}]`;
      return [form?.get(`${field}[price]`), form?.get(`${field}[quantity]`)];
    });
  t.same(items(0), [
    ['price_basic', '1'],
    ['price_support', '2'],
  ]);
  t.same(items(1), [
    ['price_pro', '3'],
    ['price_support', '2'],
  ]);
  t.equal(form?.get('end_behavior'), 'release');
  t.equal(form?.get('phases[1][start_date]'), String(place.truth.periodEnd));
});

t.test('a scheduled change can be undone, also one of the customer portal', async (t) => {
  const place = await subscriber(t);
  const { api, truth, post, stored, app, ada } = place;
  const actions = async () => {
    const { body } = await app.request('GET', '/api/billing/holdings', { token: ada.accessToken });
    return body.data.holdings[0].actions as string[];
  };
  t.notOk((await actions()).includes('undo_change'));
  for (const schedule of [() => post(CHANGE, PRO_LATER), async () => portalChange(place)]) {
    await schedule();
    await post('sync');
    t.ok((await actions()).includes('undo_change'));
    const { status, body } = await post(UNDO);
    t.equal(status, 200);
    t.match(body.data, { plan: 'basic', scheduledChange: null, releasedChange: AT_END });
    t.equal(truth.schedule, null);
    t.equal([...api.world.schedules.values()].at(-1)?.['status'], 'released');
    t.notOk((await actions()).includes('undo_change'));
    t.match((await post(UNDO)).body.data, { releasedChange: null }, 'nothing is left to undo');
  }
  t.match(await stored(), { plan: 'basic', status: 'active' });
});

t.test('what is ordered after a scheduled change ends that, and says so', async (t) => {
  const place = await subscriber(t, { billingAllowPause: true });
  const { truth, post } = place;
  for (const [path, order, scheduled, result] of [
    [CHANGE, { priceId: 'price_pro', quantity: 2 }, 'price_basic', { plan: 'pro', quantity: 2 }],
    [CHANGE, { priceId: 'price_basic', when: 'period_end' }, 'price_pro', { plan: 'pro' }],
    [CANCEL, {}, 'price_pro', { cancelAtPeriodEnd: true }],
    [PAUSE, {}, 'price_pro', { status: 'paused' }],
  ] as const) {
    portalChange(place, scheduled);
    await post('sync');
    const { status, body } = await post(path, order);
    const releasedChange = { reason: 'schedule', items: [{ priceId: scheduled }] };
    t.match([status, body.data], [200, { ...result, releasedChange }], path);
    t.equal(truth.schedule !== null, 'when' in order, 'only the order itself is scheduled now');
    await post(UNDO);
    await post(RESUME);
  }
});

t.test('a schedule that the seller has agreed upon is respected', async (t) => {
  const billingPrices = ['price_basic=basic', 'price_pro=pro'];
  const place = await subscriber(t, { billingPrices, billingAllowPause: true });
  const { api, truth, post, changes } = place;
  const release = () => Object.assign(truth, { schedule: null });
  const later = (days: number) => truth.periodEnd + days * 86_400;
  const phase = (start_date: number, end_date: number, price: string, more: Json = {}) => ({
    start_date,
    end_date,
    items: [{ price, quantity: 1 }],
    discounts: [],
    ...more,
  });
  const present = presentPhase(truth);
  const discounted = { ...present, discounts: [{ coupon: 'LAUNCH' }] };
  for (const [what, phases, more = {}] of [
    ['a lower price that is not for sale', [present, phase(later(0), later(30), 'price_special')]],
    ['a later date', [{ ...present, end_date: later(60) }, phase(later(60), later(90), 'price_pro')]],
    [
      'several changes',
      [present, phase(later(0), later(30), 'price_pro'), phase(later(30), later(60), 'price_basic')],
    ],
    ['a discount that ends', [discounted, phase(later(0), later(30), 'price_basic')]],
    ['the end of a contract', [present], { end_behavior: 'cancel' }],
    ['a pause', [present], { pause_schedules: [{ key: 'summer' }] }],
  ] as const) {
    attachSchedule(api.world, truth, { phases: [...phases], ...more });
    const before = changes().length;
    for (const [path, order] of [
      [CHANGE, { priceId: 'price_pro' }],
      [CHANGE, PRO_LATER],
      [CANCEL, {}],
      [UNDO, {}],
      [PAUSE, {}],
    ] as const) {
      const { status, body } = await post(path, order);
      t.match([status, body.error?.code], [409, 'SUBSCRIPTION_NOT_CHANGEABLE'], `${what}: ${path}`);
      t.match(body.message, /seller/, what);
    }
    t.equal(changes().length, before, what);
    release();
  }
  // The price of today is not for sale any more, so that its end must not be prevented.
  truth.price = 'price_old';
  portalChange(place);
  t.equal((await post(UNDO)).status, 409);
  t.match((await post(CANCEL, { when: 'now' })).body.data, { status: 'canceled' });
});

t.test('a subscription that ends is not changed later', async (t) => {
  const { post, changes } = await subscriber(t);
  await post(CANCEL);
  const before = changes().length;
  t.match(await post(CHANGE, PRO_LATER), { status: 409, body: { message: /Resume/ } });
  t.equal(changes().length, before);
  t.equal((await post(CHANGE, { priceId: 'price_pro', when: 'later' })).status, 400);
});

t.test('with items of several intervals, a subscription ends with its main item', async (t) => {
  const addOn = { id: 'si_addon', price: 'price_support', periodEnd: Date.UTC(2040, 0, 8) / 1000 };
  const { truth, post, changes } = await subscriber(t, {
    truth: { addOns: [addOn], version: '2026-10-28.endive' },
  });
  const cancelAt = new Date(truth.periodEnd * 1000).toISOString();
  t.match((await post(CANCEL)).body.data, { cancelAt, status: 'active' });
  t.equal(truth.cancelAt, truth.periodEnd);
  t.equal((await post(CANCEL)).status, 200);
  t.equal(changes().length, 1);
  t.equal(changes()[0]?.form.get('proration_behavior'), 'none');
  t.match((await post(RESUME)).body.data, { cancelAt: null });
});

t.test('the operator chooses how a difference is charged, in the option and in code', async (t) => {
  for (const [billingProration, expected] of [
    [undefined, 'always_invoice'],
    ['none', 'none'],
  ] as const) {
    const { app, ada, post, preview, changes, api } = await subscriber(t, {
      ...(billingProration && { billingProration }),
    });
    const previews = () => api.calls.filter(({ path }) => path.endsWith('create_preview')).length;
    t.match((await preview('priceId=price_pro')).body.data, { amountDue: expected === 'none' ? 0 : 2000 });
    t.equal(previews(), expected === 'none' ? 0 : 1, 'nothing is charged now');
    t.equal((await post(CHANGE, { priceId: 'price_pro', proration: 'create_prorations' })).status, 200);
    t.equal(changes().at(-1)?.form.get('proration_behavior'), expected, 'a request cannot choose it');
    const { billing } = app.server.fastify.saas;
    await billing.change(ada.id, { priceId: 'price_basic', proration: 'create_prorations' });
    t.equal(changes().at(-1)?.form.get('proration_behavior'), 'create_prorations');
    await t.rejects(billing.change(ada.id, { priceId: 'price_pro', proration: 'free' as never }), {
      code: 'VALIDATION_ERROR',
    });
  }
});

t.test('a payment that the bank wants confirmed leads to its page, and the change waits', async (t) => {
  const { api, truth, post, stored, invoices, changes } = await subscriber(t);
  const before = invoices();
  api.declines = 'subscription_payment_intent_requires_action';
  const { status, body } = await post(CHANGE, { priceId: 'price_pro', quantity: 2 });
  t.equal(status, 200);
  const waiting = {
    plan: 'basic',
    scheduledChange: { reason: 'pending_payment', items: [{ priceId: 'price_pro', quantity: 2 }] },
    paymentUrl: `https://invoice.example.test/${truth.latestInvoice?.id}`,
  };
  t.match(body.data, waiting);
  const calls = changes().length;
  t.match((await post(CHANGE, { priceId: 'price_pro', quantity: 2 })).body.data, waiting, 'repeated');
  t.equal(changes().length, calls);

  t.match((await post(UNDO)).body.data, { plan: 'basic', scheduledChange: null, paymentUrl: null });
  t.equal(truth.latestInvoice?.status, 'void');
  t.equal(invoices(), before);

  await post(CHANGE, { priceId: 'price_pro' });
  const invoice = { id: String(truth.latestInvoice?.id), status: 'paid' };
  api.world.change(truth, { pendingUpdate: null, price: 'price_pro', latestInvoice: invoice });
  await post('sync');
  t.match(await stored(), { plan: 'pro', scheduledChange: null, paymentUrl: null });
});

t.test('a pause ends with a payment; a trial that is over needs a payment method first', async (t) => {
  const { api, ada, truth, post, stored, changes } = await subscriber(t, { billingAllowPause: true });
  await post(PAUSE);
  api.declines = 'card_declined';
  const declined = await post(RESUME);
  t.match([declined.status, declined.body.data], [200, { status: 'paused', entitled: false }]);
  t.equal(declined.body.data.paymentUrl, `https://invoice.example.test/${truth.latestInvoice?.id}`);
  api.declines = undefined;
  Object.assign(truth, { status: 'paused', pauseReason: null, latestInvoice: null });
  await post('sync');
  t.match(await stored(), { status: 'paused', pauseReason: 'trial_end_without_payment_method' });
  const before = changes().length;
  for (const path of [RESUME, CHANGE]) {
    const answer = await post(path, { priceId: 'price_pro' });
    t.match(answer.body, { message: /Add one in the customer portal/ });
    if (path === RESUME) t.match([answer.status, answer.body.error.code], [402, 'PAYMENT_METHOD_REQUIRED']);
  }
  t.equal(changes().length, before);
  const customer = [...api.customers.values()].find(({ id }) => id === ada.customer);
  Object.assign(customer ?? {}, { invoice_settings: { default_payment_method: 'pm_1' } });
  t.match((await post(RESUME)).body.data, { status: 'active', entitled: true });
  t.equal(changes().at(-1)?.form.get('payment_behavior'), 'resume_on_payment_success');
});
