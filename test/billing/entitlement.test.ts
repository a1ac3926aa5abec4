import t from 'tap';
import { userCollection } from '../../src/auth/store.js';
import type { Json } from '../../src/billing/snapshot.js';
import { SECRETS, saasApp, storeOf } from '../kit/app.js';
import { signWebhook } from '../kit/sign-webhook.js';
import { onMongod } from '../storage/mongod.js';

/** What `User.subscription` and `fastify.saas.entitles` say of who may use what. */

type Options = NonNullable<Parameters<typeof saasApp>[1]>;

/** A backend without a key of the provider, whose webhooks are applied by what they say. */
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
    /** An event about a subscription of Ada's, created so many seconds after the test began. */
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
  // As a process of an earlier version writes it, beside one of this version.
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
