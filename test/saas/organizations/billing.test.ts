import t, { type Test } from 'tap';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { customerCollection, subscriptionCollection } from '../../../src/saas/billing/store.js';
import type { UserGuard, UserRequest } from '../../../src/saas/guards.js';
import { organizationCollections } from '../../../src/saas/organizations/store.js';
import { type Answer, errorOf, saasApp, storeOf } from '../../kit/app.js';
import { isChange } from '../../kit/stripe-changes.js';
import { CANCEL, CHANGE, deliver, KEY, provider, secondProcess, subscriptionEvent } from '../billing/kit.js';
import { type Person, place } from './kit.js';

/** Organizations that pay: whose the subscription is, who may manage it, and to whom it gives access. */

const PLANS = {
  free: { limits: { messages: { amount: 1, per: 'month' as const } } },
  pro: { prices: ['price_pro'], limits: { messages: { amount: 3, per: 'month' as const } } },
};

/** An organization with an owner, an accountant and a member, and a stranger. */
async function company(t: Test, options: Parameters<typeof place>[1] = {}) {
  const api = await provider(t);
  const billing = { plans: PLANS };
  const app = await place(t, { paymentSecretKey: KEY, paymentApiUrl: api.url, billing, ...options });
  const [ada, bob, cyd, eve] = await Promise.all(['ada', 'bob', 'cyd', 'eve'].map(app.person));
  if (!ada || !bob || !cyd || !eve) throw new Error('There are four people.');
  const { id, slug } = await app.organize(ada);
  await app.join(ada, id, bob, 'accountant');
  await app.join(ada, id, cyd);
  const named = { headers: { 'x-organization': slug } };
  const store = await storeOf(t, app);
  let at = 0;
  return {
    ...app,
    ...{ api, ada, bob, cyd, eve, id, named, store },
    bill: (person: Person, path: string, body: Json = {}): Promise<Answer> =>
      person.call('POST', `/billing/${path}`, body, named),
    read: (person: Person, path: string) => person.call('GET', `/billing/${path}`, undefined, named),
    /** The organization has bought pro. */
    async subscribed(quantity = 1) {
      const opened = await person(bob);
      const customer = String(api.sessions.get(opened)?.['customer']);
      const truth = Object.assign(api.world.subscribe(customer, id, true), {
        ...{ status: 'active', price: 'price_pro', quantity, trialEnd: null },
      });
      const object = { id: truth.id, customer, status: 'active', metadata: { organizationId: id } };
      const items = {
        data: [{ quantity, price: { id: 'price_pro' }, current_period_end: 2_300_000_000 }],
      };
      await deliver(app, subscriptionEvent('created', ++at, { ...object, items }));
      return { customer, subscription: truth.id };
    },
    /** Whether a guard admits a request of a person in the organization. */
    async admits(guard: UserGuard, { accessToken }: Person, headers: object = named.headers) {
      const request = { headers: { authorization: `Bearer ${accessToken}`, ...headers }, saas: null };
      return guard(request as unknown as UserRequest).then(
        () => true,
        (error: { code?: string }) => error.code,
      );
    },
  };

  async function person(buyer: Person): Promise<string> {
    const order = { mode: 'setup' };
    const { body } = await buyer.call('POST', '/billing/create-checkout-session', order, named);
    return body.data.sessionId;
  }
}

/** What the newest checkout session was opened with. */
const ordered = ({ calls }: Awaited<ReturnType<typeof provider>>): URLSearchParams =>
  calls.findLast(({ method, path }) => method === 'POST' && path === '/v1/checkout/sessions')?.form ??
  new URLSearchParams();

/** A company whose plan counts its members, and the job that changes the quantity. */
async function counting(t: Test) {
  const plans = {
    pro: { prices: ['price_pro'], seats: 'members' as const },
    basic: { prices: ['price_basic'] },
  };
  const place = await company(t, { billing: { plans } });
  const { api, clock } = place;
  const { jobs } = await secondProcess(t, { app: place as never, api }, { plans });
  return {
    ...place,
    quantity: () => [...api.world.subscriptions.values()].map((one) => one.quantity)[0],
    async adjust(later = 3_600_000) {
      clock.advance(later);
      await jobs.seats?.run({ term: 1, signal: new AbortController().signal });
    },
  };
}

t.test('who may manage payments buys for the organization, and nobody else does', async (t) => {
  const { api, ada, bob, cyd, eve, id, bill, store } = await company(t);
  const order = { priceId: 'price_pro' };
  t.equal(errorOf(await bill(cyd, 'create-checkout-session', order)), 'ROLE_REQUIRED');
  t.equal(errorOf(await bill(eve, 'create-checkout-session', order)), 'ORGANIZATION_NOT_FOUND');
  for (const path of ['create-portal-session', 'sync', CANCEL])
    t.equal(errorOf(await bill(cyd, path)), 'ROLE_REQUIRED', path);
  t.equal(api.calls.length, 0);

  const [first, second] = [
    await bill(ada, 'create-checkout-session', order),
    await bill(bob, 'create-checkout-session', order),
  ];
  t.same(first.body, second.body, 'one open session of the organization');
  const session = api.sessions.get(first.body.data.sessionId);
  t.match(session, { client_reference_id: id, metadata: { organizationId: id, userId: undefined } });
  const [customer] = [...api.customers.values()];
  t.match(customer, { name: 'Analytical Engines', email: ada.email, metadata: { organizationId: id } });
  t.match(await customerCollection(store).findOne({ id: String(customer?.['id']) }), { ownerId: id });
  t.equal((await bill(bob, 'create-portal-session')).status, 200);
  const own = await bob.call('POST', '/billing/create-portal-session', {});
  t.equal(errorOf(own), 'CUSTOMER_NOT_FOUND', 'without the header, the request is about the person');
});

t.test('the plan of an organization gives its members access in it, and nowhere else', async (t) => {
  const { server, ada, bob, cyd, eve, id, bill, read, subscribed, admits } = await company(t);
  const { saas } = server.fastify;
  const events: Json[] = [];
  saas.events.on('subscription.updated', (event) => void events.push(event));
  const inTeam = saas.requireEntitled('pro', { of: 'organization' });
  t.equal(await admits(inTeam, cyd), 'FORBIDDEN');
  await subscribed();
  t.match(events, [{ organizationId: id, userId: undefined, plan: 'pro', entitled: true }]);
  t.match((await cyd.call('GET', `/organizations/${id}`)).body.data.organization, {
    subscription: { plan: 'pro', entitled: true },
    billingEmail: null,
  });
  t.equal(await admits(inTeam, cyd), true);
  t.equal(await admits(inTeam, cyd, {}), 'ORGANIZATION_REQUIRED');
  t.equal(await admits(inTeam, eve), 'ORGANIZATION_NOT_FOUND');
  t.equal(await admits(saas.requireEntitled('pro'), ada), 'FORBIDDEN', 'the owner has no plan of her own');
  t.equal(await saas.entitles(id, 'pro'), true);
  t.match(await saas.billing.get(id), { plan: 'pro', entitled: true });
  t.match((await read(bob, 'holdings')).body.data, { plan: 'pro' });
  t.match((await bob.call('GET', '/billing/holdings')).body.data, { plan: 'free' });

  // Everybody of the organization uses the same limit.
  const limited = saas.requireLimit('messages', { of: 'organization' });
  const used = [await admits(limited, cyd), await admits(limited, ada), await admits(limited, bob)];
  t.same(used, [true, true, true]);
  t.equal(await admits(limited, cyd), 'LIMIT_REACHED');
  t.match(await saas.usage.consume(cyd.id, 'messages'), { allowed: true, left: 0 }, 'that of the person');

  t.equal((await bill(bob, CANCEL)).status, 200);
  t.match((await read(bob, 'subscription')).body.data, { cancelAtPeriodEnd: true });
});

t.test('the provider learns another name and address of an organization', async (t) => {
  const { api, clock, ada, bob, cyd, id, subscribed, ...app } = await company(t);
  const { customer } = await subscribed();
  const change = (person: Person, body: object) => person.call('PATCH', `/organizations/${id}`, body);
  t.equal(errorOf(await change(bob, { name: 'Differences' })), 'ROLE_REQUIRED');
  t.equal(errorOf(await change(cyd, { billingEmail: 'x@example.test' })), 'ROLE_REQUIRED');
  t.equal((await change(bob, { billingEmail: 'invoices@example.test' })).status, 200);
  t.equal((await change(ada, { name: 'Differences' })).status, 200);
  const { jobs } = await secondProcess(t, { app: { ...app, clock } as never, api });
  await jobs.profiles?.run({ term: 1, signal: new AbortController().signal });
  const { form } = api.calls.findLast(({ path }) => path === `/v1/customers/${customer}`) ?? {};
  t.match(Object.fromEntries(form ?? []), { email: 'invoices@example.test', name: 'Differences' });
});

t.test('an organization has at most as many members as it has bought seats', async (t) => {
  const plans = { pro: { prices: ['price_pro'], seats: 'limit' as const } };
  const { ada, cyd, id, bill, store, join, person, subscribed } = await company(t, { billing: { plans } });
  const order = (quantity: number) =>
    bill(ada, 'create-checkout-session', { priceId: 'price_pro', quantity });
  t.match((await order(2)).body.error, { details: [{ path: 'quantity', message: /3 or more/ }] });
  t.equal((await order(4)).status, 200);
  await subscribed(4);
  const dan = await person('dan');
  const others = await Promise.all(['fay', 'gus', 'hal'].map(person));
  await join(ada, id, dan);
  const invite = ({ email }: Person) => ada.call('POST', `/organizations/${id}/invitations`, { email });
  const accept = async (invited: Person) => {
    const { body } = await invite(invited);
    return invited.call('POST', '/user/invitations/accept', { id: body.data.invitation.id });
  };
  t.equal(errorOf(await accept(others[0] as Person)), 'SEATS_TAKEN');
  t.equal((await ada.call('DELETE', `/organizations/${id}/members/${cyd.id}`)).status, 200);
  const answers = await Promise.all(others.map(accept));
  const codes = answers.map((one) => (one.status === 200 ? 'joined' : errorOf(one))).sort();
  t.same(codes, ['SEATS_TAKEN', 'SEATS_TAKEN', 'joined'], 'one seat for three at the same time');
  t.equal((await organizationCollections(store).organizations.findOne({ id }))?.members, 4);
  const change = await bill(ada, CHANGE, { priceId: 'price_pro', quantity: 3 });
  t.match(change.body.error, { details: [{ message: /4 or more/ }] });
});

t.test('without a quantity, a seat for each member is bought, or the minimum', async (t) => {
  const pro = (min: number) => ({
    pro: { prices: ['price_pro'], seats: 'limit' as const, checkout: { quantity: { min } } },
  });
  const order = { priceId: 'price_pro' };
  for (const [min, quantity] of [
    [2, '3'],
    [5, '5'],
  ] as const) {
    const { api, ada, bill } = await company(t, { billing: { plans: pro(min) } });
    t.equal((await bill(ada, 'create-checkout-session', order)).status, 200);
    t.equal(ordered(api).get('line_items[0][quantity]'), quantity);
  }
});

t.test('who pays for an organization returns to its page among the built-in pages', async (t) => {
  const returnsTo = async (options: object) => {
    const { api, ada, id, named } = await company(t, { accountPages: true, ...options });
    const paths: string[] = [];
    for (const headers of [named, {}]) {
      await ada.call('POST', '/billing/create-checkout-session', { priceId: 'price_pro' }, headers);
      const left = ordered(api).get('cancel_url') ?? '';
      paths.push(new URL(left, 'https://app.example.test').pathname.replace(id, 'ID'));
    }
    return paths;
  };
  t.same(await returnsTo({}), ['/account/organization/ID/billing', '/account/billing']);
  t.same(await returnsTo({ billingReturnUrlRelative: '/shop' }), ['/shop', '/shop']);
});

t.test('the quantity of a plan follows the number of members', async (t) => {
  const plans = { pro: { prices: ['price_pro'], seats: 'members' as const } };
  const billing = { plans };
  const { api, clock, ada, cyd, id, bill, store, subscribed, ...app } = await company(t, { billing });
  const { jobs } = await secondProcess(t, { app: { ...app, clock } as never, api }, billing);
  const adjust = () => jobs.seats?.run({ term: 1, signal: new AbortController().signal });
  const order = (quantity?: number) =>
    bill(ada, 'create-checkout-session', { priceId: 'price_pro', ...(quantity && { quantity }) });
  t.match((await order(2)).body.error, { details: [{ message: /must be 3/ }] });
  const { body } = await order();
  const ordered = api.calls.find(({ path }) => path === '/v1/checkout/sessions');
  t.equal(ordered?.form.get('line_items[0][quantity]'), '3', body.data.sessionId);
  const { subscription } = await subscribed(3);
  const quantity = () => api.world.subscriptions.get(subscription)?.quantity;
  await adjust();
  t.equal(api.calls.filter(isChange).length, 0, 'nothing to change');
  t.equal((await ada.call('DELETE', `/organizations/${id}/members/${cyd.id}`)).status, 200);
  api.fault = (call) => (isChange(call) ? { status: 500, body: '{}' } : undefined);
  await adjust();
  t.equal(quantity(), 3, 'the provider has an outage');
  api.fault = () => undefined;
  clock.advance(3_600_000);
  await adjust();
  t.equal(quantity(), 2);
  clock.advance(3_600_000);
  await adjust();
  t.equal((await organizationCollections(store).organizations.findOne({ id }))?.seatsDueAt, undefined);
});

t.test('the quantity follows once a payment is due again that nobody has confirmed', async (t) => {
  const { api, ada, cyd, id, subscribed, quantity, adjust } = await counting(t);
  await subscribed(3);
  t.equal((await ada.call('DELETE', `/organizations/${id}/members/${cyd.id}`)).status, 200);
  api.declines = 'authentication_required';
  await adjust();
  t.equal(quantity(), 3);
  await adjust();
  api.declines = undefined;
  for (const truth of api.world.subscriptions.values()) Object.assign(truth, { pendingUpdate: null });
  await adjust();
  t.equal(quantity(), 2);
});

t.test('what is scheduled remains when the quantity follows', async (t) => {
  const { ada, cyd, id, bill, subscribed, quantity, adjust } = await counting(t);
  await subscribed(3);
  await adjust(0);
  const later = { priceId: 'price_basic', quantity: 5, when: 'period_end' };
  const ordered = await bill(ada, CHANGE, later);
  const scheduledChange = { reason: 'schedule', items: [{ priceId: 'price_basic', quantity: 5 }] };
  t.match(ordered.body.data, { scheduledChange });
  t.equal((await ada.call('DELETE', `/organizations/${id}/members/${cyd.id}`)).status, 200);
  await adjust(0);
  t.equal(quantity(), 2);
  t.match((await bill(ada, 'sync')).body.data, { scheduledChange });
});

t.test('a person has one trial, also for organizations with other addresses', async (t) => {
  const plans = { pro: { prices: ['price_pro'], checkout: { trialDays: 14 } } };
  const { api, ada, organize } = await company(t, { billing: { plans } });
  const sessionFor = async (name: string) => {
    const { id } = await organize(ada, name);
    const billingEmail = `${name}@example.test`;
    t.equal((await ada.call('PATCH', `/organizations/${id}`, { billingEmail })).status, 200);
    const headers = { 'x-organization': id };
    const order = { priceId: 'price_pro' };
    const { body } = await ada.call('POST', '/billing/create-checkout-session', order, { headers });
    return api.sessions.get(body.data.sessionId);
  };
  const first = await sessionFor('first');
  await sessionFor('second');
  t.equal(first?.['status'], 'expired', 'the trial belongs to the newest checkout');
});

t.test('an organization that is deleted pays nothing any more', async (t) => {
  const { api, ada, id, store, subscribed } = await company(t);
  const { subscription } = await subscribed();
  t.equal((await ada.call('DELETE', `/organizations/${id}`)).status, 200);
  t.equal(api.world.subscriptions.get(subscription)?.status, 'canceled');
  t.equal(await subscriptionCollection(store).count({ ownerId: id }), 0);
  t.equal(await customerCollection(store).count({ ownerId: id }), 0);
});

t.test('without organizations, a request that names one is refused', async (t) => {
  const app = await saasApp(t, { paymentSecretKey: KEY, paymentApiUrl: 'http://127.0.0.1:9' });
  const { accessToken: token } = await app.signUp();
  const headers = { 'x-organization': 'org_1' };
  const answer = await app.request('GET', '/api/billing/subscription', { token, headers });
  t.equal(errorOf(answer), 'ORGANIZATION_NOT_FOUND');
  t.throws(
    () => app.server.fastify.saas.requireEntitled(undefined, { of: 'organization' }),
    /option 'organizations'/,
  );
});
