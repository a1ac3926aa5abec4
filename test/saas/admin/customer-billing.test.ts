import { dirname } from 'node:path';
import t, { type Test } from 'tap';
import { subscriptionCollection } from '../../../src/saas/billing/store.js';
import { auditOf, type SaasApp, saasApp, storeOf } from '../../kit/app.js';
import { isChange } from '../../kit/stripe-changes.js';
import type { WorldPayment } from '../../kit/stripe-objects.js';
import { eventOf, KEY, subscriber } from '../billing/kit.js';
import { follow, submit, textOf } from './kit.js';

/** What operators change at the payment provider, from the page of a customer. */

/** Another process on the same store. */
const secondAppOn = (t: Test, { databaseUri, clock, file }: SaasApp, options: object) =>
  saasApp(t, { databaseUri, clock, folder: dirname(file), ...options });

type Customer = Awaited<ReturnType<typeof subscriber>>;

const auditedBy = async (t: Test, { app }: Customer) =>
  (await auditOf(await storeOf(t, app))).filter(({ by }) => by !== undefined);

/** A subscription without an owner. */
async function insertWithoutOwner(t: Test, app: SaasApp): Promise<string> {
  const subscriptions = subscriptionCollection(await storeOf(t, app));
  const terms = { status: 'active', plan: 'pro', cancelAtPeriodEnd: false, items: [], startedAt: 1 };
  const times = { at: 1, statusAt: 1, heardAt: 1, rev: 1, createdAt: 1, updatedAt: 1 };
  await subscriptions.insert({ id: 'sub_left', ownerId: 'usr_left', ...terms, ...times });
  return 'sub_left';
}

/** A paid invoice of the customer, at the provider and here. `isDetailed`: with its charge, as older versions of the provider send it. */
async function paid(
  { api, ada, truth, deliver }: Customer,
  { amount = 2900, currency = 'eur', isDetailed = true } = {},
): Promise<WorldPayment & { charge: NonNullable<WorldPayment['charge']> }> {
  const { world } = api;
  const charge = { id: world.name('ch'), intent: world.name('pi'), created: world.now };
  const payment = {
    ...{ invoice: world.name('in'), subscription: truth, status: 'paid' as const },
    ...{ amount, charge, refunded: 0 },
  };
  world.payments.set(payment.invoice, payment);
  const ids = isDetailed ? { charge: charge.id, payment_intent: charge.intent } : {};
  const { customer } = ada;
  const invoice = { id: payment.invoice, customer, currency, amount_paid: amount, status: 'paid', ...ids };
  await deliver(eventOf('invoice.paid', 60, { object: 'invoice', ...invoice }));
  return payment;
}

const refundsOf = ({ api }: Customer) => api.calls.filter(({ path }) => path === '/v1/refunds');

t.test(
  'an operator refunds a part of a payment and then the rest, and the event of each records it',
  async (t) => {
    const customer = await subscriber(t);
    const { app, api, ada, deliver } = customer;
    const payment = await paid(customer);
    const path = `/admin/payments/${payment.invoice}/refund`;
    t.match(
      await textOf(app, `/admin/users/${ada.id}?tab=payments`),
      `../payments/${payment.invoice}/refund`,
    );
    t.match(await textOf(app, '/admin/payments'), `payments/${payment.invoice}/refund`);

    const answer = await submit(app, path, { amount: '9.50', refundedAmount: '0', reason: 'duplicate' });
    t.match((await follow(app, path, answer)).text, 'The refund is made');
    t.equal(payment.refunded, 950);
    const [call] = refundsOf(customer);
    t.same(Object.fromEntries(call?.form ?? []), {
      charge: payment.charge.id,
      amount: '950',
      reason: 'duplicate',
    });
    t.match(await auditedBy(t, customer), [
      {
        event: 'payment.refunded',
        subject: ada.id,
        by: 'operator',
        detail: `${payment.invoice} 950 eur duplicate`,
      },
    ]);

    const read = async () =>
      (await app.admin('GET', `/admin/api/payments?q=${payment.invoice}`)).body.data.items[0];
    t.match(
      await read(),
      { refundedAmount: 0, refundableAmount: 2900 },
      'the event of the provider records it',
    );
    await deliver(api.world.events.at(-1) ?? {});
    t.match(await read(), { refundedAmount: 950, refundableAmount: 1950 });
    t.match(await textOf(app, path), /name="refundedAmount" value="950"[\s\S]*value="19.50"/);

    t.equal((await submit(app, path, { refundedAmount: '950' })).status, 303);
    t.equal(payment.refunded, 2900, 'the rest');
    await deliver(api.world.events.at(-1) ?? {});
    t.match(await read(), { refundedAmount: 2900, refundableAmount: 0 });
    t.notMatch(await textOf(app, '/admin/payments'), `payments/${payment.invoice}/refund`);
  },
);

t.test(
  'the charge of a payment is found without the IDs that the invoice of a new API version lacks',
  async (t) => {
    const customer = await subscriber(t);
    const payment = await paid(customer, { isDetailed: false });
    const { status, body } = await customer.app.admin(
      'POST',
      `/admin/api/payments/${payment.invoice}/refund`,
      {
        refundedAmount: 0,
      },
    );
    t.same([status, body.data, payment.refunded], [200, {}, 2900]);
  },
);

t.test('a refund that is sent again, and the same refund by two processes, are made once', async (t) => {
  const customer = await subscriber(t);
  const { app, api } = customer;
  const payment = await paid(customer);
  const other = await secondAppOn(t, app, { paymentSecretKey: KEY, paymentApiUrl: api.url });
  const path = `/admin/api/payments/${payment.invoice}/refund`;
  const order = { amount: 1000, refundedAmount: 0 };
  const answers = await Promise.all([app, other, app, other].map((one) => one.admin('POST', path, order)));
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 200, 200],
  );
  t.equal(payment.refunded, 1000);
  t.equal((await app.admin('POST', path, order)).status, 200, 'sent again later');
  t.equal(payment.refunded, 1000);
  t.equal((await auditedBy(t, customer)).length, 1);

  const refused = await app.admin('POST', path, { amount: 500, refundedAmount: 0 });
  t.match(refused, {
    status: 409,
    body: { message: /refunded meanwhile/, error: { code: 'VERSION_CONFLICT' } },
  });
  t.equal((await app.admin('POST', path, { amount: 500, refundedAmount: 1000 })).status, 200);
  t.equal(payment.refunded, 1500);
});

t.test(
  'two operators who refund different amounts at once: one is made, the other one is refused',
  async (t) => {
    const customer = await subscriber(t);
    const { app, api } = customer;
    const payment = await paid(customer);
    const other = await secondAppOn(t, app, { paymentSecretKey: KEY, paymentApiUrl: api.url });
    const path = `/admin/api/payments/${payment.invoice}/refund`;
    const meanwhile: number[] = [];
    // While the provider makes the first refund, others ask for another amount and for another reason.
    api.fault = async ({ path: called }) => {
      if (called !== '/v1/refunds' || meanwhile.length > 0) return undefined;
      meanwhile.push(0);
      for (const order of [{ amount: 700 }, { amount: 1000, reason: 'duplicate' }])
        meanwhile.push((await other.admin('POST', path, { refundedAmount: 0, ...order })).status);
      return undefined;
    };
    t.equal((await app.admin('POST', path, { amount: 1000, refundedAmount: 0 })).status, 200);
    t.same(meanwhile, [0, 409, 409]);
    t.equal(payment.refunded, 1000);
    t.equal((await auditedBy(t, customer)).length, 1);
  },
);

t.test('a refund that has failed at the bank can be made again', async (t) => {
  const customer = await subscriber(t);
  const { app } = customer;
  const payment = await paid(customer);
  const path = `/admin/api/payments/${payment.invoice}/refund`;
  const order = { amount: 1000, refundedAmount: 0 };
  t.equal((await app.admin('POST', path, order)).status, 200);
  payment.refunded = 0;
  t.equal((await app.admin('POST', path, order)).status, 200);
  t.equal(payment.refunded, 1000);
  const keys = refundsOf(customer).map(({ headers }) => headers['idempotency-key']);
  t.equal(new Set(keys).size, 2, 'not the answer of the first one');
  t.equal((await auditedBy(t, customer)).length, 2);
});

t.test('amounts have the decimals of the payment provider, which differ from those of Unicode', async (t) => {
  const customer = await subscriber(t);
  const { app } = customer;
  const payment = await paid(customer, { amount: 500_000, currency: 'huf' });
  const path = `/admin/payments/${payment.invoice}/refund`;
  t.match(await textOf(app, path), 'Refund 5000.00 HUF');
  t.equal((await submit(app, path, { amount: '50', refundedAmount: '0' })).status, 303);
  t.equal(payment.refunded, 5000);
});

t.test('a refund that cannot be made is explained at its form, and writes nothing', async (t) => {
  const customer = await subscriber(t);
  const { app, api } = customer;
  const payment = await paid(customer);
  const path = `/admin/payments/${payment.invoice}/refund`;
  const refuse = async (fields: Record<string, string>, message: RegExp | string) => {
    const { status, text } = await submit(app, path, { refundedAmount: '0', ...fields });
    t.ok(status === 400 || status === 409, String(status));
    t.match(text, message);
  };
  await refuse({ amount: '29.01' }, 'must not be more than what is left of the payment');
  for (const amount of ['0', '-1', '9.505', 'all', '1e3']) await refuse({ amount }, 'problem-amount');
  await refuse({ amount: '1', reason: 'because' }, 'problem-reason');
  t.equal(refundsOf(customer).length, 0);

  payment.dispute = { id: 'dp_1', status: 'needs_response', created: api.world.now };
  await refuse({ amount: '1' }, 'the bank decides');
  delete payment.dispute;
  const { charge } = payment;
  Object.assign(payment, { charge: { ...charge, id: 'ch_other', intent: 'pi_other' } });
  await refuse({ amount: '1' }, 'has no charge of this payment');
  Object.assign(payment, { charge });
  t.equal(payment.refunded, 0);
  t.same(await auditedBy(t, customer), []);
});

t.test('an operator cancels at the end of the period, takes it back, and cancels now', async (t) => {
  const customer = await subscriber(t);
  const { app, ada, truth } = customer;
  const page = () => textOf(app, `/admin/users/${ada.id}`);
  const links = async () =>
    [...(await page()).matchAll(/subscriptions\/sub_\w+\/([\w-]+)"/g)].map(([, verb]) => verb);
  const path = (verb: string) => `/admin/subscriptions/${truth.id}/${verb}`;
  t.same(await links(), ['change-plan', 'coupon', 'cancel', 'cancel-now']);
  const done = await submit(app, path('cancel'));
  t.match(
    (await follow(app, path('cancel'), done)).text,
    /The subscription ends with its period[\s\S]*then it ends/,
  );
  t.equal(truth.cancelAtPeriodEnd, true);
  t.same(await links(), ['change-plan', 'coupon', 'resume', 'cancel-now']);
  t.equal((await submit(app, path('resume'))).status, 303);
  t.equal(truth.cancelAtPeriodEnd, false);
  t.equal((await submit(app, path('cancel-now'))).status, 303);
  t.equal(truth.status, 'canceled');
  t.same(await links(), []);
  const ended = await page();
  t.match(ended, /No access to what needs a subscription[\s\S]*ended 1 January 2040/);
  t.match(await auditedBy(t, customer), [
    {
      event: 'subscription.canceled',
      subject: ada.id,
      by: 'operator',
      detail: `${truth.id} at the end of the period`,
    },
    { event: 'subscription.resumed', subject: ada.id, by: 'operator' },
    { event: 'subscription.canceled', subject: ada.id, by: 'operator', detail: `${truth.id} now` },
  ]);
});

t.test(
  'an operator extends a trial, but only while there is one, and not beyond what the provider permits',
  async (t) => {
    const trialEnd = Date.UTC(2040, 0, 8) / 1000;
    const customer = await subscriber(t, { truth: { status: 'trialing', trialEnd } });
    const { app, ada, truth, changes } = customer;
    t.match(await textOf(app, `/admin/users/${ada.id}`), `subscriptions/${truth.id}/extend-trial`);
    const path = `/admin/subscriptions/${truth.id}/extend-trial`;
    for (const until of ['2040-01-06', '2043-01-01', '2039-01-01', '2040-02-31', 'soon'])
      t.match(await submit(app, path, { until }), { status: 400, text: 'problem-until' }, until);
    t.equal(changes().length, 0);
    t.equal((await submit(app, path, { until: '2040-01-20' })).status, 303);
    t.equal(truth.trialEnd, Date.UTC(2040, 0, 21) / 1000, 'the end of the last day');
    t.equal((await submit(app, path, { until: '2040-01-20' })).status, 303);
    t.equal(changes().length, 1, 'sent again, nothing remains');
    t.match(await textOf(app, `/admin/users/${ada.id}`), 'trial until 21 January 2040');
    t.match(await auditedBy(t, customer), [
      { event: 'subscription.changed', detail: `${truth.id} trial until 2040-01-21T00:00:00.000Z` },
    ]);

    truth.status = 'active';
    const refused = await submit(app, path, { until: '2040-01-25' });
    t.match(refused, { status: 409, text: 'status active cannot be changed in this way' });
  },
);

t.test('an operator changes the plan as the customer could, now or at the end of the period', async (t) => {
  const customer = await subscriber(t, {
    billingPrices: ['price_basic=basic', 'price_pro=pro'],
  });
  const { app, api, truth, changes } = customer;
  const path = `/admin/subscriptions/${truth.id}/change-plan`;
  t.match(
    await textOf(app, path),
    /<option value="price_basic" selected>basic[\s\S]*<option value="price_pro">pro/,
  );
  t.equal((await submit(app, path, { priceId: 'price_pro', when: 'now' })).status, 303);
  t.equal(truth.price, 'price_pro');
  t.match(changes()[0]?.form.get('proration_behavior'), 'always_invoice');
  t.match(await auditedBy(t, customer), [
    { event: 'subscription.changed', by: 'operator', detail: `${truth.id} price_basic × 1 to price_pro` },
  ]);
  const refused = await submit(app, path, { priceId: 'price_other', when: 'now' });
  t.match(refused, { status: 422, text: 'This price is not available' });
  api.declines = 'card_declined';
  const declined = await submit(app, path, { priceId: 'price_basic', when: 'now' });
  t.match(declined, { status: 402, text: 'The payment was declined' });
  t.equal((await auditedBy(t, customer)).length, 1);
});

t.test(
  'an operator applies a promotion code or a coupon of the provider, also to a plan without codes',
  async (t) => {
    const customer = await subscriber(t);
    const { app, api, ada, truth, changes } = customer;
    const path = `/admin/subscriptions/${truth.id}/coupon`;
    const refused = await submit(app, path, { code: 'NOTHING' });
    t.match(refused, { status: 422, text: 'coupon or promotion code has expired or does not apply' });
    t.same(await auditedBy(t, customer), []);
    t.equal((await submit(app, path, { code: 'SPRING' })).status, 303);
    t.equal((await submit(app, path, { code: 'SPRING' })).status, 303);
    t.equal(truth.discount, 'dc_SPRING');
    t.notMatch(await textOf(app, `/admin/users/${ada.id}`), `${truth.id}/coupon`);
    t.match(await submit(app, path, { code: 'OTHER' }), { status: 409, text: 'has a discount already' });
    truth.discount = null;
    (api.promotionCodes as object[]).push({ id: 'promo_1', code: 'LAUNCH20', active: true });
    t.equal((await submit(app, path, { code: 'LAUNCH20' })).status, 303);
    t.equal(truth.discount, 'di_promo_1');
    t.equal(changes().length, 3);
    t.match(await auditedBy(t, customer), [
      { detail: `${truth.id} coupon SPRING` },
      { detail: `${truth.id} promotion code promo_1` },
    ]);
  },
);

t.test('what belongs to no customer of this product cannot be reached by its ID', async (t) => {
  const { app, api, changes } = await subscriber(t);
  // Of an owner who was deleted, and of another product in the same account of the provider.
  const left = await insertWithoutOwner(t, app);
  t.equal((await app.admin('POST', `/admin/api/subscriptions/${left}/cancel-now`, {})).status, 404);
  const foreign = api.world.subscribe('cus_other', 'usr_other', true);
  foreign.status = 'active';
  for (const verb of ['cancel', 'cancel-now', 'resume', 'extend-trial', 'change-plan', 'coupon']) {
    const path = `subscriptions/${foreign.id}/${verb}`;
    const order = { priceId: 'price_pro', until: '2040-02-01', code: 'SPRING' };
    t.equal((await app.admin('GET', `/admin/${path}`)).status, 404, verb);
    const body = Object.fromEntries(
      Object.entries(order).filter(
        ([name]) => ({ 'change-plan': 'priceId', 'extend-trial': 'until', coupon: 'code' })[verb] === name,
      ),
    );
    t.equal((await app.admin('POST', `/admin/api/${path}`, body)).status, 404, verb);
  }
  t.equal(
    (await app.admin('POST', '/admin/api/payments/in_other/refund', { refundedAmount: 0 })).status,
    404,
  );
  t.same([changes(), api.calls.filter(({ path }) => path.includes(foreign.id))], [[], []]);
});

t.test('without an API key of the provider, there is nothing of it', async (t) => {
  const customer = await subscriber(t);
  const { app, ada, truth } = customer;
  await paid(customer);
  const bare = await secondAppOn(t, app, {});
  t.notMatch(await textOf(bare, `/admin/users/${ada.id}`), `${truth.id}/`);
  t.notMatch(await textOf(bare, '/admin/payments'), '/refund');
  t.equal((await bare.admin('GET', `/admin/subscriptions/${truth.id}/cancel`)).status, 404);
  t.match((await bare.admin('GET', '/admin/api/subscriptions')).body.data.items, [{ actions: [] }]);
});

t.test(
  'operators only: other credentials reach nothing, and a form of another site changes nothing',
  async (t) => {
    const { app, ada, truth, changes } = await subscriber(t);
    const path = `/admin/api/subscriptions/${truth.id}/cancel-now`;
    t.equal((await app.request('POST', path, { token: ada.accessToken, body: {} })).status, 401);
    t.equal((await app.request('POST', path, { body: {} })).status, 401);
    t.equal(changes().filter(isChange).length, 0);
  },
);
