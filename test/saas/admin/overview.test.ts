import t from 'tap';
import { DAY, MINUTE } from '../../../src/core/kernel/clock.js';
import { activityCollection, createActivity } from '../../../src/saas/auth/sessions/activity.js';
import { sessionCollection } from '../../../src/saas/auth/store.js';
import { updateFigures } from '../../../src/saas/billing/figures/job.js';
import { figureCollections } from '../../../src/saas/billing/figures/store.js';
import { subscriptionCollection } from '../../../src/saas/billing/store.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { type SaasApp, saasApp, storeOf } from '../../kit/app.js';
import { shop, subscriptionEvent } from '../billing/kit.js';

/** The start page of the admin area: plots of the last 30 days, and what needs attention. */

interface Plot {
  name: string;
  days: string[];
  series: { name: string; values: (number | null)[] }[];
}

const overviewOf = async (app: SaasApp) => (await app.admin('GET', '/admin/api/overview')).body.data;

const plotOf = ({ plots }: { plots: Plot[] }, wanted: string) =>
  plots.find(({ name }) => name === wanted) as Plot;

/** The values of the last days, by the name of the series. */
const lastOf = (plot: Plot, days = 1) =>
  Object.fromEntries(plot.series.map(({ name, values }) => [name, values.slice(-days)]));

t.test('without billing, nothing of it is shown, loaded or scheduled', async (t) => {
  const app = await saasApp(t, { paymentWebhookSecret: undefined } as object);
  const { plots } = await overviewOf(app);
  t.same(
    plots.map(({ name }: Plot) => name),
    ['sign-ups', 'active-users', 'mail-failures'],
  );
  const leases = (await storeOf(t, app)).collection<{ id: string }>('leases');
  t.equal(await leases.findOne({ id: 'billing-figures' }), null);
});

t.test('active users are those who signed in or refreshed a session on the day', async (t) => {
  const app = await saasApp(t);
  const store = await storeOf(t, app);
  const sessions = sessionCollection(store);
  const { job } = createActivity({ activity: activityCollection(store), sessions, clock: app.clock });
  const count = () => job.run({ term: 1, signal: new AbortController().signal });
  const ada = await app.signUp();
  const bob = await app.signUp();
  await app.request('POST', '/api/auth/login', { body: { email: ada.email, password: ada.password } });
  await count();
  app.clock.advance(DAY);
  const body = { refreshToken: bob.refreshToken };
  t.equal((await app.request('POST', '/api/auth/refresh', { body })).status, 200);
  await count();
  const users = async () => lastOf(plotOf(await overviewOf(app), 'active-users'), 3)['Active users'];
  t.same(await users(), [null, 2, null], 'a user with two sessions counts once; the day is not over');
  // In the last hour of the day, and at the first of the next one.
  app.clock.advance(DAY - MINUTE);
  const refresh = async (refreshToken: string) => {
    const answer = await app.request('POST', '/api/auth/refresh', { body: { refreshToken } });
    return answer.body.data.refreshToken as string;
  };
  const next = await refresh(ada.refreshToken);
  app.clock.advance(MINUTE);
  await refresh(next);
  await count();
  await sessions.deleteMany({ userId: bob.id });
  await count();
  app.clock.advance(11 * MINUTE);
  t.same(await users(), [2, 2, null], 'also who came after the last count of the day');
  app.clock.advance(3 * DAY);
  await count();
  app.clock.advance(11 * MINUTE);
  t.same(await users(), [null, null, null], 'days on which no process ran are unknown');
});

t.test('a user as whom an operator acts is not active', async (t) => {
  const app = await saasApp(t, { userRoles: ['support'], impersonationRoles: ['support'] });
  const store = await storeOf(t, app);
  const sessions = sessionCollection(store);
  const { job } = createActivity({ activity: activityCollection(store), sessions, clock: app.clock });
  const ada = await app.signUp();
  const grace = await app.signUp();
  await app.server.fastify.saas.users.setRoles({ id: grace.id }, ['support']);
  app.clock.advance(DAY);
  const { body } = await app.request('POST', '/api/auth/login', { body: grace });
  const order = { userId: ada.id, reason: 'Request 4711' };
  const acting = await app.post('/auth/impersonation', order, { token: body.data.accessToken });
  t.equal((await app.post('/auth/refresh', acting.body.data)).status, 200);
  await job.run({ term: 1, signal: new AbortController().signal });
  app.clock.advance(DAY);
  await job.run({ term: 1, signal: new AbortController().signal });
  app.clock.advance(11 * MINUTE);
  t.same(lastOf(plotOf(await overviewOf(app), 'active-users'), 2)['Active users'], [1, null]);
});

t.test('revenue is shown by currency, with its changes, statuses and trials', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const subscriptions = subscriptionCollection(await storeOf(t, app));
  const store = await storeOf(t, app);
  let term = 10;
  const update = () =>
    updateFigures(
      { ...figureCollections(store), subscriptions, clock: app.clock },
      { term: ++term, signal: new AbortController().signal },
    );
  const ada = await buyer();
  const bob = await buyer();
  const recurring = { interval: 'month', interval_count: 1 };
  const items = (unit_amount: number, currency: string) => ({
    data: [{ quantity: 1, price: { id: 'price_pro', lookup_key: 'pro', unit_amount, currency, recurring } }],
  });
  const active = { id: 'sub_1', status: 'active', customer: ada.customer };
  await deliver(subscriptionEvent('created', 1, { ...active, items: items(2950, 'eur') }));
  await update();
  app.clock.advance(DAY);
  const other = { id: 'sub_2', status: 'past_due', customer: bob.customer };
  await deliver(subscriptionEvent('created', 2, { ...other, items: items(500, 'jpy') }));
  await deliver(subscriptionEvent('updated', 3, { ...active, items: items(4950, 'eur') }));
  await update();
  const overview = await overviewOf(app);
  t.same(lastOf(plotOf(overview, 'mrr-eur'), 3), { MRR: [null, 29.5, 49.5] });
  t.same(lastOf(plotOf(overview, 'mrr-jpy')), { MRR: [500] });
  t.match(lastOf(plotOf(overview, 'mrr-changes-eur')), { expansion: [20], new: [0], churned: [0] });
  t.match(lastOf(plotOf(overview, 'mrr-changes-jpy')), { new: [500] });
  t.match(lastOf(plotOf(overview, 'subscriptions')), { active: [1], past_due: [1], others: [0] });
});

t.test('a period of months has the last level and the sum of each, and the churn of the whole', async (t) => {
  const { app, deliver, buyer } = await shop(t);
  const store = await storeOf(t, app);
  const subscriptions = subscriptionCollection(store);
  const figures = figureCollections(store);
  let term = 10;
  const update = () =>
    updateFigures(
      { ...figures, subscriptions, clock: app.clock },
      { term: ++term, signal: new AbortController().signal },
    );
  const recurring = { interval: 'month', interval_count: 1 };
  const items = {
    data: [
      {
        quantity: 1,
        price: { id: 'price_pro', lookup_key: 'pro', unit_amount: 5000, currency: 'eur', recurring },
      },
    ],
  };
  const [ada, bob, eve] = [await buyer(), await buyer(), await buyer()];
  const start = Math.floor(app.clock.now() / 1000);
  for (const [number, { customer }] of [ada, bob].entries())
    await deliver(
      subscriptionEvent('created', number + 1, { id: `sub_${number}`, status: 'active', customer, items }),
    );
  await update();
  app.clock.advance(40 * DAY);
  await deliver(
    subscriptionEvent('deleted', 40 * 86_400, {
      id: 'sub_0',
      status: 'canceled',
      customer: ada.customer,
      items,
    }),
  );
  await deliver(
    subscriptionEvent('created', 40 * 86_400 + 1, {
      id: 'sub_2',
      status: 'trialing',
      customer: eve.customer,
      items,
      trial_end: start + 45 * 86_400,
    }),
  );
  await update();
  const overview = (await app.admin('GET', '/admin/api/overview?period=12m')).body.data;
  const { days } = plotOf(overview, 'mrr-eur');
  t.equal(days.length, 12);
  t.equal(days.at(-1), new Date(app.clock.now()).toISOString().slice(0, 7));
  const levels = lastOf(plotOf(overview, 'mrr-eur'), 12)['MRR'] as (number | null)[];
  t.same(
    levels.filter((value) => value !== null),
    [100, 50],
  );
  t.equal(plotOf(overview, 'webhook-failures').days.length, 30, 'what is kept for a month stays by day');
  const recent = (await app.admin('GET', '/admin/api/overview?period=30d')).body.data;
  const figureOf = (name: string) =>
    recent.keyFigures.find((figure: { name: string }) => figure.name === name)?.value;
  t.equal(figureOf('churn'), '50 %');
  t.equal(figureOf('trials-ending'), '1');
  t.equal((await app.admin('GET', '/admin/api/overview?period=5y')).status, 400);
  const page = (await app.admin('GET', '/admin?period=12m')).text;
  t.match(page, /period(?:=|&#x3D;)12m" aria-current="true"/);
  t.match(page, 'Month (UTC)');
});

t.test('the plots are counted again after a minute', async (t) => {
  const app = await saasApp(t);
  await app.signUp();
  t.same(lastOf(plotOf(await overviewOf(app), 'sign-ups')), { 'Sign-ups': [1] });
  await app.signUp();
  t.same(lastOf(plotOf(await overviewOf(app), 'sign-ups')), { 'Sign-ups': [1] }, 'not yet');
  app.clock.advance(11 * MINUTE);
  t.same(lastOf(plotOf(await overviewOf(app), 'sign-ups')), { 'Sign-ups': [2] });
});

t.test(
  'failed mails, failed payments and unmatched events are counted by day and need attention',
  async (t) => {
    const { app, deliver } = await shop(t);
    const mails = mailCollection(await storeOf(t, app));
    const mail = {
      to: 'ada@example.test',
      template: 'welcome',
      security: false,
      expiresAt: 0,
      attempts: 3,
      createdAt: app.clock.now(),
    } as const;
    await mails.insert({ ...mail, id: 'm1', key: 'k1', status: 'failed', endedAt: app.clock.now() - DAY });
    await mails.insert({ ...mail, id: 'm2', key: 'k2', status: 'expired', endedAt: app.clock.now() });
    await mails.insert({ ...mail, id: 'm3', key: 'k3', status: 'sent', endedAt: app.clock.now() });
    const event = subscriptionEvent('created', 1, { id: 'sub_9', status: 'active', customer: 'cus_unknown' });
    t.equal(await deliver(event), 'unmatched');
    const overview = await overviewOf(app);
    t.same(lastOf(plotOf(overview, 'mail-failures'), 2), {
      failed: [1, 0],
      undeliverable: [0, 0],
      expired: [0, 1],
    });
    t.same(lastOf(plotOf(overview, 'webhook-failures')), { unmatched: [1], 'not completed': [0] });
    const [unmatched, ...more] = overview.attention.map(({ text }: { text: string }) => text);
    t.match([unmatched, ...more], [/: 1$/, /: 2$/]);
    t.match((await app.admin('GET', '/admin')).text, unmatched);
  },
);
