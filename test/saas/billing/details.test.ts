import t, { type Test } from 'tap';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import type { Account } from '../../kit/app.js';
import type { Fault, ProviderCall } from '../../kit/stripe.js';
import { subscriptionObject } from '../../kit/stripe-objects.js';
import { type Shop, secondProcess, shop, subscriptionEvent } from './kit.js';

/** What `GET /billing/subscription` shows beyond access: items, changes, pauses, discounts and the next invoice. */

const START = Date.UTC(2040, 0, 1) / 1000;
const SECOND = 1000;

const billing = {
  plans: {
    pro: { prices: ['price_pro'] },
    basic: { prices: ['price_basic'] },
    support: { prices: ['price_add'] },
  },
};

const itemsOf = (...prices: [id: string, quantity?: number][]) => ({
  data: prices.map(([id, quantity]) => ({ id: `si_${id}`, price: { id }, ...(quantity && { quantity }) })),
});

const NOTHING = { scheduledChange: null, collectionPause: null, discounts: [] };

interface Subscriber extends Shop {
  ada: Account;
  /** Delivers an update of the subscription. */
  update(more: Json): Promise<string>;
  /** `GET /billing/subscription` with a query. */
  read(query?: string): Promise<Json>;
  /** The requests for details. */
  lookups(): number;
}

async function subscriber(t: Test, more: Json = {}): Promise<Subscriber> {
  const opened = await shop(t, { billing });
  const ada = await opened.app.signUp();
  let second = 0;
  const object = {
    id: 'sub_1',
    status: 'active',
    metadata: { userId: ada.id },
    items: itemsOf(['price_pro', 3], ['price_add'], ['price_other', 1]),
  };
  const update = (changes: Json) => {
    second += 10;
    return opened.deliver(subscriptionEvent('updated', second, { ...object, ...changes }));
  };
  t.equal(await update(more), 'processed');
  return {
    ...opened,
    ada,
    update,
    async read(query = '') {
      const path = `/api/billing/subscription${query}`;
      const { status, body } = await opened.app.request('GET', path, { token: ada.accessToken });
      t.equal(status, 200);
      return body.data;
    },
    lookups: () =>
      opened.api.calls.filter(({ path }) => /create_preview|subscriptions\/sub_1$/.test(path)).length,
  };
}

const isExpanded = ({ path, query }: ProviderCall) =>
  path === '/v1/subscriptions/sub_1' && query.get('expand[0]') === 'schedule';
const isPreview = ({ method, path }: ProviderCall) =>
  method === 'POST' && path === '/v1/invoices/create_preview';
const json = (body: Json, status = 200): Fault => ({ status, body: JSON.stringify(body) });

t.test('items, a pending update and a collection pause follow the events', async (t) => {
  const { ada, read, update, exported } = await subscriber(t);
  t.match(await read(), {
    ...NOTHING,
    items: [
      { priceId: 'price_pro', plan: 'pro', quantity: 3 },
      { priceId: 'price_add', plan: 'support', quantity: null },
      { priceId: 'price_other', plan: null, quantity: 1 },
    ],
  });
  await update({
    pause_collection: { behavior: 'keep_as_draft', resumes_at: START + 86_400 },
    pending_update: { expires_at: START + 3600, subscription_items: itemsOf(['price_basic', 2]).data },
  });
  const paused = {
    collectionPause: { behavior: 'keep_as_draft', resumesAt: '2040-01-02T00:00:00.000Z' },
    scheduledChange: {
      reason: 'pending_payment',
      at: null,
      expiresAt: '2040-01-01T01:00:00.000Z',
      items: [{ priceId: 'price_basic', plan: 'basic', quantity: 2 }],
    },
  };
  t.match(await read(), paused);
  await update({});
  t.match(await read(), paused, 'a field that is not sent stays');
  const [stored] = (await exported(ada)).billing.subscriptions;
  t.match(stored, {
    items: [{ priceId: 'price_pro', quantity: 3 }, { priceId: 'price_add' }, { priceId: 'price_other' }],
    collectionPause: { behavior: 'keep_as_draft', resumesAt: '2040-01-02T00:00:00.000Z' },
    pendingUpdate: { expiresAt: '2040-01-01T01:00:00.000Z', items: [{ priceId: 'price_basic' }] },
  });
  const numbers = Object.values(stored).filter((value) => typeof value === 'number');
  t.same(numbers, [3], 'the quantity: times are in ISO 8601');
  await update({ pause_collection: { behavior: 'void', resumes_at: null }, pending_update: null });
  t.match(await read(), { collectionPause: { behavior: 'void', resumesAt: null }, scheduledChange: null });
  await update({ pause_collection: null, items: itemsOf(['price_basic', 1]) });
  t.match(await read(), { ...NOTHING, items: [{ priceId: 'price_basic', plan: 'basic', quantity: 1 }] });
});

t.test('a user without a subscription has no details', async (t) => {
  const { app, subscription } = await shop(t, { billing });
  const ada = await app.signUp();
  t.match(await subscription(ada), { ...NOTHING, items: [] });
  await app.server.fastify.saas.users.grant({ id: ada.id }, { plan: 'pro' });
  t.match(await subscription(ada), { status: 'granted', ...NOTHING, items: [] });
  const path = '/api/billing/subscription?include=nextInvoice';
  const { body } = await app.request('GET', path, { token: ada.accessToken });
  t.equal(body.data.nextInvoice, null);
});

t.test('a schedule and discounts are fetched from the provider and remembered for a minute', async (t) => {
  const { app, api, read, update, lookups } = await subscriber(t, {
    schedule: 'sub_sched_1',
    discounts: ['di_1', 'di_2'],
  });
  const phase = (start: number, price: string) => ({
    start_date: START + start,
    end_date: START + start + 1000,
    items: [{ price, quantity: 2 }],
  });
  const schedule = { id: 'sub_sched_1', phases: [phase(-500, 'price_pro'), phase(500, 'price_basic')] };
  const discounts = [
    { id: 'di_1', end: START + 86_400, source: { coupon: { name: 'Launch', percent_off: 12.5 } } },
    { id: 'di_2', end: null, source: { coupon: { name: null, amount_off: 500, currency: 'eur' } } },
  ];
  const object = { id: 'sub_1', status: 'active', schedule, discounts };
  api.fault = (call) => (isExpanded(call) ? json(object) : undefined);
  const described = {
    scheduledChange: {
      reason: 'schedule',
      at: '2040-01-01T00:08:20.000Z',
      expiresAt: null,
      items: [{ priceId: 'price_basic', plan: 'basic', quantity: 2 }],
    },
    discounts: [
      {
        name: 'Launch',
        percentOff: 12.5,
        amountOff: null,
        currency: null,
        endsAt: '2040-01-02T00:00:00.000Z',
      },
      { name: null, percentOff: null, amountOff: 500, currency: 'eur', endsAt: null },
    ],
  };
  const [first] = await Promise.all([read(), read(), read()]);
  t.match(first, described);
  t.equal(lookups(), 1, 'one request for all of them');
  app.clock.advance(59 * SECOND);
  t.match(await read(), described);
  t.equal(lookups(), 1);
  app.clock.advance(SECOND);
  await read();
  t.equal(lookups(), 2);
  await update({});
  await read();
  t.equal(lookups(), 3, 'a changed subscription is fetched again at once');

  Object.assign(schedule, { phases: [phase(-500, 'price_pro')], end_behavior: 'cancel' });
  await update({});
  const end = { reason: 'schedule', at: '2040-01-01T00:08:20.000Z', items: [] };
  t.match(await read(), { scheduledChange: end }, 'the subscription ends with its last phase');
  Object.assign(schedule, { end_behavior: 'release' });
  await update({});
  t.match(await read(), { scheduledChange: null });
  await update({ schedule: null, discounts: [] });
  const before = lookups();
  t.match(await read(), NOTHING);
  t.equal(lookups(), before, 'no request without a schedule and a discount');
});

t.test('a discount of an earlier API version is fetched as well', async (t) => {
  const coupon = { name: 'Launch', percent_off: 20 };
  const { api, read } = await subscriber(t, { discount: { id: 'di_1', coupon } });
  api.fault = (call) =>
    isExpanded(call)
      ? json({ id: 'sub_1', status: 'active', discounts: [{ id: 'di_1', coupon }] })
      : undefined;
  t.match(await read(), { discounts: [{ name: 'Launch', percentOff: 20 }] });
});

t.test('a failure of the provider leaves the rest of the subscription', async (t) => {
  const { app, api, read, lookups } = await subscriber(t, { schedule: 'sub_sched_1', discounts: ['di_1'] });
  api.fault = () => json({ error: { type: 'api_error', message: 'Down.' } }, 500);
  const shown = { status: 'active', plan: 'pro', entitled: true, items: [{ priceId: 'price_pro' }] };
  const unknown = { scheduledChange: null, discounts: null };
  t.match(await read('?include=nextInvoice'), { ...shown, ...unknown, nextInvoice: null });
  const asked = lookups();
  t.equal(asked, 2);
  app.clock.advance(9 * SECOND);
  t.match(await read('?include=nextInvoice'), { ...shown, ...unknown, nextInvoice: null });
  t.equal(lookups(), asked, 'the failure is remembered');
  app.clock.advance(SECOND);
  api.fault = (call) =>
    isPreview(call) ? json({ id: 'in_1', amount_due: 8700, currency: 'eur', period_end: START }) : undefined;
  t.match(await read('?include=nextInvoice'), { ...shown, nextInvoice: { amount: 8700 } });
});

t.test('without an API key, the stored details are shown', async (t) => {
  const { app, deliver, subscription } = await shop(t, { billing, paymentSecretKey: undefined as never });
  const ada = await app.signUp();
  const object = {
    id: 'sub_1',
    status: 'active',
    metadata: { userId: ada.id },
    items: itemsOf(['price_pro', 1]),
    schedule: 'sub_sched_1',
    discounts: ['di_1'],
    pause_collection: { behavior: 'void' },
  };
  await deliver(subscriptionEvent('created', 0, object));
  t.match(await subscription(ada), {
    items: [{ priceId: 'price_pro' }],
    collectionPause: { behavior: 'void' },
    scheduledChange: null,
    discounts: null,
  });
});

t.test('the next invoice is fetched only if it is requested', async (t) => {
  const { app, api, ada, read, update, lookups } = await subscriber(t);
  const invoice = { id: 'upcoming_1', amount_due: 8700, currency: 'eur', period_end: START + 60 };
  api.fault = (call) => (isPreview(call) ? json(invoice) : undefined);
  t.notOk('nextInvoice' in (await read()));
  t.equal(lookups(), 0);
  const created = { amount: 8700, currency: 'eur', date: '2040-01-01T00:01:00.000Z' };
  t.same((await read('?include=nextInvoice'))['nextInvoice'], created);
  t.equal(api.calls.findLast(isPreview)?.form.get('subscription'), 'sub_1');
  Object.assign(invoice, { next_payment_attempt: START + 3660 });
  t.same((await read('?include=nextInvoice'))['nextInvoice'], created, 'remembered for a minute');
  t.equal(lookups(), 1);
  await update({ cancel_at_period_end: false });
  t.match((await read('?include=nextInvoice'))['nextInvoice'], { date: '2040-01-01T01:01:00.000Z' });

  await app.server.fastify.saas.users.grant({ id: ada.id }, { plan: 'basic' });
  t.match(await read('?include=nextInvoice'), { status: 'granted', nextInvoice: { amount: 8700 } });
  await app.server.fastify.saas.users.revokeGrant({ id: ada.id });

  await update({ cancel_at_period_end: true });
  const none = { error: { type: 'invalid_request_error', code: 'invoice_upcoming_none', message: 'None.' } };
  api.fault = (call) => (isPreview(call) ? json(none, 404) : undefined);
  t.equal((await read('?include=nextInvoice'))['nextInvoice'], null);
  const asked = lookups();
  await update({ status: 'canceled' });
  t.match(await read('?include=nextInvoice'), { status: 'canceled', nextInvoice: null });
  t.equal(lookups(), asked, 'no request about an ended subscription');

  const wrong = await app.request('GET', '/api/billing/subscription?include=all', { token: ada.accessToken });
  t.match(wrong, {
    status: 400,
    body: { error: { details: [{ path: 'include', message: 'must be one of nextInvoice; given: "all"' }] } },
  });
});

t.test('a sync stores the details and reports changes', async (t) => {
  const here = await shop(t);
  const { api, deliver, buyer, subscribe, subscription } = here;
  const ada = await buyer();
  const bought = subscribe(ada);
  await deliver(subscriptionEvent('created', 0, subscriptionObject(bought)));
  const { resync } = await secondProcess(t, here);
  let pause: Json | null = { behavior: 'void', resumes_at: null };
  api.fault = ({ method, path }) =>
    method === 'GET' && path === '/v1/subscriptions'
      ? json({
          object: 'list',
          has_more: false,
          data: [{ ...subscriptionObject(bought), pause_collection: pause }],
        })
      : undefined;
  const change = { before: 'active', after: 'active', fields: ['collectionPause'] };
  t.match((await resync.run()).changes, [change]);
  const items = [{ priceId: bought.price, quantity: 1 }];
  t.match(await subscription(ada), { items, collectionPause: { behavior: 'void' } });
  pause = null;
  t.match((await resync.run()).changes, [change]);
  t.match(await subscription(ada), { items, collectionPause: null });
});
