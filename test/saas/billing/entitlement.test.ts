import t, { type Test } from 'tap';
import { DAY } from '../../../src/core/kernel/clock.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { auditOf, saasApp, storeOf } from '../../kit/app.js';
import { runProgram } from '../../kit/command-line.js';
import { deliver, outcomeOf, subscriptionEvent } from './kit.js';

/** `User.subscription` and `fastify.saas.entitles` state who has access to a plan. */

/** A backend without an API key, which applies the content of webhooks, and one user. */
async function seller(t: Test, options: Parameters<typeof saasApp>[1] = {}) {
  const app = await saasApp(t, options);
  const ada = await app.signUp();
  const { saas } = app.server.fastify;
  const start = Math.floor(app.clock.now() / 1000);
  let events = 0;
  return {
    app,
    ada,
    saas,
    /** An event about the subscription of Ada. */
    async tell(status: string, more: Json = {}) {
      const object = {
        id: 'sub_1',
        status,
        created: start,
        metadata: { userId: ada.id, plan: 'pro' },
        ...more,
      };
      const event = subscriptionEvent(status === 'canceled' ? 'deleted' : 'updated', ++events, object);
      t.equal(outcomeOf(await deliver(app, event)), 'processed', status);
    },
    /** The subscription as the user object and as its own route show it, with a new session. */
    async subscription() {
      const body = { email: ada.email, password: ada.password };
      const { accessToken: token } = (await app.request('POST', '/api/auth/login', { body })).body.data;
      const paths = ['/api/auth/me', '/api/user/profile', '/api/billing/subscription'];
      const [me, profile, details] = await Promise.all(
        paths.map(async (path) => (await app.request('GET', path, { token })).body.data),
      );
      const { subscription: user } = me.user;
      t.same(profile.subscription, user);
      t.same((await saas.users.find({ id: ada.id }))?.subscription, user);
      t.match(details, { status: user.status, entitled: user.entitled });
      return { user, details };
    },
  };
}

t.test('the user object states the entitlement, and shows a plan only to entitled users', async (t) => {
  const { ada, saas, tell, subscription } = await seller(t);
  t.same((await subscription()).user, { status: 'none', plan: 'free', entitled: false });
  for (const status of ['incomplete', 'active', 'past_due', 'unpaid', 'paused', 'active', 'canceled']) {
    await tell(status);
    const entitled = ['active', 'past_due'].includes(status);
    const { user, details } = await subscription();
    t.same(user, { status, plan: entitled ? 'pro' : 'free', entitled });
    t.match(details, { status, plan: 'pro', entitled }, 'with the last plan');
    t.equal(await saas.entitles(ada.id), entitled);
    t.equal(await saas.entitles(ada.id, 'pro'), entitled);
    t.equal(await saas.entitles(ada.id, 'team'), false);
  }
});

t.test('a trial and a grace period end without a further event', async (t) => {
  const { app, ada, saas, tell, subscription } = await seller(t, { pastDue: 3 });
  const trialEnd = Math.floor(app.clock.now() / 1000) + 600;
  await tell('trialing', { trial_end: trialEnd - 540 });
  await tell('trialing', { trial_end: trialEnd });
  app.clock.advance(599_000);
  t.same((await subscription()).user, { status: 'trialing', plan: 'pro', entitled: true }, 'it was extended');
  app.clock.advance(1_000);
  t.same((await subscription()).user, { status: 'trialing', plan: 'free', entitled: false });
  t.equal(await saas.entitles(ada.id), false);
  await tell('past_due', { trial_end: null });
  t.same((await subscription()).user, { status: 'past_due', plan: 'pro', entitled: true });
  app.clock.advance(3 * DAY);
  t.same((await subscription()).user, { status: 'past_due', plan: 'free', entitled: false });
});

t.test('entitles answers false for values that are no user ID', async (t) => {
  const { saas } = await seller(t);
  const names: unknown[] = ['usr_nobody', '', 'a\0b', '\ud800', 'x'.repeat(1000), undefined, null, 1, {}];
  for (const name of names) t.equal(await saas.entitles(name as string), false);
});

/** Plans granted by the operator, in addition to purchased ones. */

t.test('a granted plan entitles until it ends or is revoked, without a payment provider', async (t) => {
  const { app, ada, saas, subscription } = await seller(t, { paymentWebhookSecret: undefined as never });
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
});

t.test('provider events do not remove a grant, and a grant does not remove a subscription', async (t) => {
  const { app, ada, saas, tell, subscription } = await seller(t);
  const entitled = () => Promise.all(['pro', 'team'].map((plan) => saas.entitles(ada.id, plan)));
  await tell('active');
  app.clock.advance(1000);
  await saas.users.grant({ id: ada.id }, { plan: 'team' });
  t.same((await subscription()).user, { status: 'granted', plan: 'team', entitled: true }, 'the newer one');
  t.same(await entitled(), [true, true], 'and either is enough');
  for (const status of ['past_due', 'unpaid', 'canceled']) {
    await tell(status);
    t.same((await subscription()).user, { status: 'granted', plan: 'team', entitled: true });
    t.same(await entitled(), [status === 'past_due', true]);
  }
  await saas.users.revokeGrant({ id: ada.id });
  const { user, details } = await subscription();
  t.same(user, { status: 'canceled', plan: 'free', entitled: false });
  t.match(details, { status: 'canceled', plan: 'pro', granted: null });
});

t.test('a purchase takes precedence over a grant, which remains', async (t) => {
  const { app, ada, saas, tell, subscription } = await seller(t);
  const until = app.clock.now() + DAY;
  await saas.users.grant({ id: ada.id }, { plan: 'pro', until });
  const metadata = { userId: ada.id, plan: 'team' };
  await tell('active', { metadata, created: Math.floor(app.clock.now() / 1000) + 60 });
  const { user, details } = await subscription();
  t.same(user, { status: 'active', plan: 'team', entitled: true });
  t.match(details, { status: 'active', plan: 'team', granted: { plan: 'pro' } });
  t.equal(await saas.entitles(ada.id, 'pro'), true);
  app.clock.advance(DAY);
  t.equal(await saas.entitles(ada.id, 'pro'), false);
});

t.test('grants are audited, included in the export and deleted with the account', async (t) => {
  const { app, ada, saas } = await seller(t);
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
  const leave = { token: ada.accessToken, body: { password: ada.password } };
  await app.request('POST', '/api/user/delete', leave);
  await t.rejects(saas.users.grant({ id: ada.id }, { plan: 'pro' }), { code: 'NOT_FOUND' });
  t.equal(await saas.entitles(ada.id), false);
});

t.test('an unknown plan or an end that is not in the future is refused by name', async (t) => {
  const { app, ada, saas } = await seller(t);
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
  const { app, ada, saas } = await seller(t);
  const command = (args: string[], more: Record<string, string> = {}) =>
    runProgram('saas-backend', ['user', 'grant', ...args], { DATABASE_URI: app.databaseUri, ...more });
  const day = await command([ada.email, 'pro', '--until', '2099-01-31', '--json']);
  t.equal(day.code, 0, day.err);
  t.match(JSON.parse(day.out), { id: ada.id, granted: { plan: 'pro', until: '2099-02-01T00:00:00.000Z' } });
  t.equal(await saas.entitles(ada.id, 'pro'), true, 'in the process that serves');
  const time = await command([ada.id, 'pro', '--until', '2099-01-31T12:00:00+02:00', '--json']);
  t.equal(JSON.parse(time.out).granted.until, '2099-01-31T10:00:00.000Z');
  const unsold = await command([ada.email, 'por'], { BILLING_PRICES: 'price_1=pro,price_2=team' });
  t.match(unsold, { code: 0, err: /has no plan por\. Its plans are: pro, team\./ });
  const unknown = await command([ada.email, 'por'], { BILLING_PLANS: '{"pro":{},"team":{}}' });
  t.match(unknown, { code: 1, err: /pro, team/ });
  const contradictory = { BILLING_PLANS: '{"pro":{"prices":["price_1"]}}', BILLING_PRICES: 'price_1=team' };
  t.match(await command([ada.email, 'pro'], contradictory), {
    code: 1,
    err: /BILLING_PRICES.*BILLING_PLANS/,
  });
  t.equal((await command([ada.email, 'free'])).code, 0);
  t.equal(await saas.entitles(ada.id), false);

  const wrong: [args: string[], code: number, says: RegExp][] = [
    [[ada.email, 'pro', '--until', '2020-01-31'], 2, /2020-01-31 is in the past/],
    [[ada.email, 'pro', '--until', '2099-02-30'], 2, /not '2099-02-30'/],
    [[ada.email, 'free', '--until', '2099-01-31'], 2, /takes no --until/],
    [[ada.email, '???'], 1, /plan must be the name of a plan/],
    [['nobody@example.test', 'pro'], 1, /not found/],
  ];
  await Promise.all(
    wrong.map(async ([args, code, says]) => {
      t.match(await command(args), { code, err: says, out: '' }, args.join(' '));
    }),
  );
});
