import t, { type Test } from 'tap';
import { userCollection } from '../../../src/saas/auth/store.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { onMongod } from '../../core/storage/mongod.js';
import { auditOf, SECRETS, saasApp, storeOf } from '../../kit/app.js';
import { runProgram } from '../../kit/command-line.js';
import { signWebhook } from '../../kit/sign-webhook.js';

/** `User.subscription` and `fastify.saas.entitles` state who has access to a plan. */

type Options = NonNullable<Parameters<typeof saasApp>[1]>;

/** A backend without an API key, which applies the content of webhooks. */
async function seller(t: Parameters<typeof saasApp>[0], options: Options = {}) {
  const app = await saasApp(t, options);
  const ada = await app.signUp();
  let events = 0;
  const start = app.clock.now();
  const { saas } = app.server.fastify;
  return {
    app,
    ada,
    saas,
    /** An event about a subscription of Ada's, created that many seconds after the test began. */
    async tell(id: string, status: string, more: Json = {}) {
      const created = Math.floor(start / 1000) + ++events;
      const object = { id, status, created, metadata: { userId: ada.id, plan: 'pro' }, ...more };
      const type = `customer.subscription.${status === 'canceled' ? 'deleted' : 'updated'}`;
      const body = JSON.stringify({ id: `evt_${events}`, type, created, data: { object } });
      const headers = {
        'payment-signature': signWebhook(body, SECRETS.paymentWebhookSecret, app.clock.now()),
      };
      const answer = await app.request('POST', '/api/billing/webhook', { body, headers });
      t.equal(answer.body.data?.outcome, 'processed', `${id} ${status}`);
    },
    async subscription() {
      const paths = ['/api/auth/me', '/api/user/profile'];
      const [me, profile] = await Promise.all(
        paths.map(async (path) => (await app.request('GET', path, { token: ada.accessToken })).body.data),
      );
      t.same(profile.subscription, me.user.subscription);
      t.same((await saas.users.find({ id: ada.id }))?.subscription, me.user.subscription);
      return me.user.subscription;
    },
    async details() {
      return (await app.request('GET', '/api/billing/subscription', { token: ada.accessToken })).body.data;
    },
  };
}

t.test('the user object states the entitlement, and shows a plan only to entitled users', async (t) => {
  const { ada, saas, tell, subscription, details } = await seller(t);
  t.same(await subscription(), { status: 'none', plan: 'free', entitled: false });
  for (const status of ['incomplete', 'active', 'past_due', 'unpaid', 'paused', 'active', 'canceled']) {
    await tell('sub_1', status);
    const entitled = ['active', 'past_due'].includes(status);
    t.same(await subscription(), { status, plan: entitled ? 'pro' : 'free', entitled });
    t.match(await details(), { status, plan: 'pro', entitled }, 'with the last plan');
    t.equal(await saas.entitles(ada.id), entitled);
    t.equal(await saas.entitles(ada.id, 'pro'), entitled);
    t.equal(await saas.entitles(ada.id, 'team'), false);
  }
});

t.test('a trial and a grace period end without a further event', async (t) => {
  const { app, ada, saas, tell, subscription } = await seller(t, { pastDue: 3 });
  const trialEnd = Math.floor(app.clock.now() / 1000) + 600;
  await tell('sub_1', 'trialing', { trial_end: trialEnd });
  t.same(await subscription(), { status: 'trialing', plan: 'pro', entitled: true });
  app.clock.advance(599_000);
  t.match(await subscription(), { entitled: true });
  app.clock.advance(1_000);
  t.same(await subscription(), { status: 'trialing', plan: 'free', entitled: false });
  t.equal(await saas.entitles(ada.id), false);
  await tell('sub_1', 'past_due', { trial_end: null });
  t.same(await subscription(), { status: 'past_due', plan: 'pro', entitled: true });
  app.clock.advance(3 * 86_400_000);
  const { accessToken } = (
    await app.request('POST', '/api/auth/login', { body: { email: ada.email, password: ada.password } })
  ).body.data;
  ada.accessToken = accessToken;
  t.same(await subscription(), { status: 'past_due', plan: 'free', entitled: false });
});

t.test('an extended trial is extended on the user object', async (t) => {
  const { app, tell, subscription } = await seller(t);
  const now = Math.floor(app.clock.now() / 1000);
  await tell('sub_1', 'trialing', { trial_end: now + 60 });
  await tell('sub_1', 'trialing', { trial_end: now + 600 });
  app.clock.advance(300_000);
  t.match(await subscription(), { status: 'trialing', entitled: true });
});

t.test('the entitling subscription is shown, even if another one is more expensive', async (t) => {
  const { saas, ada, tell, subscription, details } = await seller(t);
  await tell('sub_1', 'active', { metadata: { userId: ada.id } });
  t.same(await subscription(), { status: 'active', plan: 'free', entitled: false }, 'of an unknown plan');
  t.match(await details(), { status: 'active', plan: 'unknown', entitled: false });
  await tell('sub_2', 'past_due', { metadata: { userId: ada.id, plan: 'basic' } });
  t.same(await subscription(), { status: 'past_due', plan: 'basic', entitled: true });
  t.match(await details(), { status: 'past_due', plan: 'basic', entitled: true });
  await tell('sub_3', 'active', { metadata: { userId: ada.id, plan: 'team' } });
  t.match(await subscription(), { status: 'active', plan: 'team' });
  t.same(await Promise.all(['basic', 'team', 'pro'].map((plan) => saas.entitles(ada.id, plan))), [
    true,
    true,
    false,
  ]);
});

t.test('entitles answers false for values that are no user ID', async (t) => {
  const { saas } = await seller(t);
  const names: unknown[] = [
    'usr_nobody',
    '',
    ' ',
    'a\0b',
    '\ud800',
    'x'.repeat(1000),
    undefined,
    null,
    1,
    {},
  ];
  for (const name of names) t.equal(await saas.entitles(name as string), false);
});

t.test('records of earlier versions give the same entitlement', async (t) => {
  const { app, ada, tell, subscription } = await seller(t);
  await tell('sub_1', 'active');
  const users = userCollection(await storeOf(t, app));
  await users.updateOne({ id: ada.id }, { unset: ['subscriptionsHeld'] });
  t.same(await subscription(), { status: 'active', plan: 'pro', entitled: true });
  await tell('sub_1', 'past_due');
  // The document that a process of an earlier version writes next to this one.
  await users.updateOne(
    { id: ada.id },
    { set: { subscriptionStatus: 'canceled' }, inc: { subscriptionRev: 1 } },
  );
  t.same(await subscription(), { status: 'canceled', plan: 'free', entitled: false });
});

onMongod((server) => {
  t.test('MongoDB stores entitlements', async (t) => {
    const { tell, subscription } = await seller(t, { databaseUri: server.fresh(t) });
    await tell('sub_1', 'active');
    t.same(await subscription(), { status: 'active', plan: 'pro', entitled: true });
    await tell('sub_1', 'canceled');
    t.same(await subscription(), { status: 'canceled', plan: 'free', entitled: false });
  });
});

/** Plans granted by the operator, in addition to purchased ones. */

const DAY = 86_400_000;

async function granting(t: Test, options: NonNullable<Parameters<typeof saasApp>[1]> = {}) {
  const app = await saasApp(t, options);
  const ada = await app.signUp();
  const { saas } = app.server.fastify;
  const start = Math.floor(app.clock.now() / 1000);
  let events = 0;
  return {
    app,
    ada,
    saas,
    async tell(status: string, plan: string, created = start) {
      const object = { id: 'sub_1', status, created, metadata: { userId: ada.id, plan } };
      const type = `customer.subscription.${status === 'canceled' ? 'deleted' : 'updated'}`;
      const body = JSON.stringify({ id: `evt_${++events}`, type, created: start + events, data: { object } });
      const headers = {
        'payment-signature': signWebhook(body, SECRETS.paymentWebhookSecret, app.clock.now()),
      };
      t.equal((await app.request('POST', '/api/billing/webhook', { body, headers })).status, 200);
    },
    async subscription() {
      const { accessToken: token } = (
        await app.request('POST', '/api/auth/login', { body: { email: ada.email, password: ada.password } })
      ).body.data;
      const me = await app.request('GET', '/api/auth/me', { token });
      const details = await app.request('GET', '/api/billing/subscription', { token });
      t.match(details.body.data, {
        status: me.body.data.user.subscription.status,
        entitled: me.body.data.user.subscription.entitled,
      });
      return { user: me.body.data.user.subscription, details: details.body.data };
    },
  };
}

async function tryOut(t: Test, options: NonNullable<Parameters<typeof saasApp>[1]> = {}): Promise<void> {
  const { app, ada, saas, subscription } = await granting(t, options);
  const until = app.clock.now() + 7 * DAY;
  const since = new Date(app.clock.now()).toISOString();
  const end = new Date(until).toISOString();
  const answer = await saas.users.grant({ email: ada.email }, { plan: 'pro', until });
  t.match(answer, {
    subscription: { status: 'granted', plan: 'pro', entitled: true },
    granted: { plan: 'pro', since, until: end },
  });
  const { user, details } = await subscription();
  t.same(user, { status: 'granted', plan: 'pro', entitled: true });
  t.match(details, {
    status: 'granted',
    plan: 'pro',
    entitled: true,
    priceId: null,
    currentPeriodStart: since,
    currentPeriodEnd: end,
    granted: { plan: 'pro', since, until: end },
  });
  t.equal(await saas.entitles(ada.id, 'pro'), true);
  t.equal(await saas.entitles(ada.id, 'team'), false);

  app.clock.advance(7 * DAY - 1);
  t.equal(await saas.entitles(ada.id), true);
  app.clock.advance(1);
  t.equal(await saas.entitles(ada.id), false);
  const over = await subscription();
  t.same(over.user, { status: 'none', plan: 'free', entitled: false });
  t.match(over.details, { status: 'none', plan: 'free', granted: null });

  await saas.users.grant({ id: ada.id }, { plan: 'team' });
  app.clock.advance(1000 * DAY);
  t.same((await subscription()).user, { status: 'granted', plan: 'team', entitled: true }, 'for good');
  const revoked = await saas.users.revokeGrant({ id: ada.id });
  t.match(revoked, { subscription: { status: 'none', plan: 'free', entitled: false }, granted: null });
  await saas.users.revokeGrant({ id: ada.id });
}

t.test('a granted plan entitles until it ends or is revoked, without a payment provider', (t) =>
  tryOut(t, { paymentWebhookSecret: undefined as never }),
);

onMongod((server) => {
  t.test('MongoDB: a granted plan entitles until it ends or is revoked', (t) =>
    tryOut(t, { databaseUri: server.fresh(t) }),
  );
});

t.test('provider events do not remove a grant, and a grant does not remove a subscription', async (t) => {
  const { app, ada, saas, tell, subscription } = await granting(t);
  const entitled = () => Promise.all(['pro', 'team'].map((plan) => saas.entitles(ada.id, plan)));
  await tell('active', 'pro');
  app.clock.advance(1000);
  await saas.users.grant({ id: ada.id }, { plan: 'team' });
  t.same((await subscription()).user, { status: 'granted', plan: 'team', entitled: true }, 'the newer one');
  t.same(await entitled(), [true, true], 'and either is enough');
  for (const status of ['past_due', 'unpaid', 'canceled']) {
    await tell(status, 'pro');
    t.same((await subscription()).user, { status: 'granted', plan: 'team', entitled: true });
    t.same(await entitled(), [status === 'past_due', true]);
  }
  await saas.users.revokeGrant({ id: ada.id });
  const { user, details } = await subscription();
  t.same(user, { status: 'canceled', plan: 'free', entitled: false });
  t.match(details, { status: 'canceled', plan: 'pro', granted: null });
});

t.test('a purchase takes precedence over a grant, which remains', async (t) => {
  const { app, ada, saas, tell, subscription } = await granting(t);
  const until = app.clock.now() + DAY;
  await saas.users.grant({ id: ada.id }, { plan: 'pro', until });
  await tell('active', 'team', Math.floor(app.clock.now() / 1000) + 60);
  const { user, details } = await subscription();
  t.same(user, { status: 'active', plan: 'team', entitled: true });
  t.match(details, { status: 'active', plan: 'team', granted: { plan: 'pro' } });
  t.equal(await saas.entitles(ada.id, 'pro'), true);
  app.clock.advance(DAY);
  t.equal(await saas.entitles(ada.id, 'pro'), false);
});

t.test('grants are audited, included in the export and deleted with the account', async (t) => {
  const { app, ada, saas } = await granting(t);
  const until = app.clock.now() + DAY;
  await saas.users.grant({ id: ada.id }, { plan: 'pro', until });
  app.clock.advance(1000);
  await saas.users.grant({ id: ada.id }, { plan: 'team' });
  const exported = await app.request('GET', '/api/user/export', { token: ada.accessToken });
  t.match(exported.body.data.user, { subscription: { status: 'granted', plan: 'team' } });
  t.match(exported.body.data.user.granted, { plan: 'team', since: new Date(app.clock.now()).toISOString() });
  app.clock.advance(1000);
  for (const _ of [1, 2]) await saas.users.revokeGrant({ id: ada.id });
  const store = await storeOf(t, app);
  const records = (await auditOf(store)).filter(({ event }) => event.startsWith('plan.'));
  t.match(records, [
    {
      event: 'plan.granted',
      subject: ada.id,
      ip: 'local',
      detail: `pro until ${new Date(until).toISOString()}`,
    },
    { event: 'plan.granted', detail: `team, before: pro until ${new Date(until).toISOString()}` },
    { event: 'plan.revoked', subject: ada.id, detail: 'team' },
  ]);
  t.equal(records.length, 3);
  await app.request('POST', '/api/user/delete', {
    token: ada.accessToken,
    body: { password: ada.password },
  });
  await t.rejects(saas.users.grant({ id: ada.id }, { plan: 'pro' }), { code: 'NOT_FOUND' });
  t.equal(await saas.entitles(ada.id), false);
});

t.test('an unknown plan or an end that is not in the future is refused by name', async (t) => {
  const { app, ada, saas } = await granting(t);
  const wrong: [given: object, path: string][] = [
    [{ plan: '' }, 'plan'],
    [{ plan: ' pro' }, 'plan'],
    [{ plan: 'pro\n' }, 'plan'],
    [{ plan: 'free' }, 'plan'],
    [{ plan: 'unknown' }, 'plan'],
    [{}, 'plan'],
    [{ plan: 'pro', until: app.clock.now() }, 'until'],
    [{ plan: 'pro', until: '2050-01-01' }, 'until'],
    [{ plan: 'pro', until: Number.MAX_SAFE_INTEGER }, 'until'],
  ];
  for (const [given, path] of wrong) {
    const refused = saas.users.grant({ id: ada.id }, given as { plan: string });
    await t.rejects(refused, { code: 'VALIDATION_ERROR', details: [{ path }] }, JSON.stringify(given));
  }
  t.equal(await saas.entitles(ada.id), false);
});

t.test('saas-backend user grant grants and revokes a plan', async (t) => {
  const { app, ada, saas } = await granting(t);
  const command = (args: string[], more: Record<string, string> = {}) =>
    runProgram('saas-backend', ['user', 'grant', ...args], { DATABASE_URI: `sqlite:${app.file}`, ...more });
  const day = await command([ada.email, 'pro', '--until', '2099-01-31', '--json']);
  t.equal(day.code, 0, day.err);
  t.match(JSON.parse(day.out), { id: ada.id, granted: { plan: 'pro', until: '2099-02-01T00:00:00.000Z' } });
  t.equal(await saas.entitles(ada.id, 'pro'), true, 'in the process that serves');
  const time = await command([ada.id, 'pro', '--until', '2099-01-31T12:00:00+02:00', '--json']);
  t.equal(JSON.parse(time.out).granted.until, '2099-01-31T10:00:00.000Z');
  const unsold = await command([ada.email, 'por'], { BILLING_PRICES: 'price_1=pro,price_2=team' });
  t.match(unsold, {
    code: 0,
    err: /has no plan por\. Its plans are: pro, team\./,
    out: /granted +por, until revoked/,
  });
  const unknown = await command([ada.email, 'por'], { BILLING_PLANS: '{"pro":{},"team":{}}' });
  t.match(unknown, { code: 1, err: /plan must be one of the plans of the option billing: pro, team/ });
  const contradictory = { BILLING_PLANS: '{"pro":{"prices":["price_1"]}}', BILLING_PRICES: 'price_1=team' };
  t.match(await command([ada.email, 'pro'], contradictory), {
    code: 1,
    err: /BILLING_PRICES assigns the price "price_1" to the plan team, but BILLING_PLANS assigns it to pro/,
  });
  t.match(await command([ada.email, 'free']), { code: 0, out: /subscription +not entitled \(none\)/ });
  t.equal(await saas.entitles(ada.id), false);

  const wrong: [args: string[], code: number, says: RegExp][] = [
    [[ada.email, 'pro', '--until', '2020-01-31'], 2, /--until 2020-01-31 is in the past/],
    [[ada.email, 'pro', '--until', '2099-02-30'], 2, /--until takes a date \(2030-01-31\).*not '2099-02-30'/],
    [[ada.email, 'pro', '--until', 'tomorrow'], 2, /not 'tomorrow'/],
    [[ada.email, 'free', '--until', '2099-01-31'], 2, /takes no --until/],
    [[ada.email], 2, /missing required argument 'plan'/],
    [[ada.email, '???'], 1, /plan must be the name of a plan/],
    [['nobody@example.test', 'pro'], 1, /The user was not found/],
  ];
  await Promise.all(
    wrong.map(async ([args, code, says]) => {
      t.match(await command(args), { code, err: says, out: '' }, args.join(' '));
    }),
  );
  const elsewhere = await command([ada.email, 'pro'], { DATABASE_URI: `sqlite:${app.file}.not` });
  t.match(elsewhere, { code: 1, err: /there is no file/ });
});
