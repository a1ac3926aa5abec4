import fastify from 'fastify';
import t, { type Test } from 'tap';
import { DAY } from '../../../src/core/kernel/clock.js';
import { saasBackend } from '../../../src/index.js';
import type { BillingConfiguration } from '../../../src/saas/billing/options.js';
import { quotaCollections } from '../../../src/saas/billing/quotas/store.js';
import { saasApp, storeOf } from '../../kit/app.js';
import { saasPluginOptions } from '../../kit/host.js';
import { eventOf, items, secondProcess, shop, signUpAt, subscriptionEvent } from './kit.js';

/** Limits that count: what users use of them, when they start again, and what happens above them. */

type Plans = NonNullable<BillingConfiguration['billing']>['plans'];

const PLANS: Plans = {
  free: { limits: { messages: { amount: 2, per: 'month' }, projects: 1 } },
  pro: {
    prices: ['price_pro'],
    limits: { messages: { amount: 20, per: 'period' }, projects: { amount: 3, perSeat: true } },
  },
  pack: { prices: ['price_pack'], purchase: true, independent: true, credits: { messages: 5 } },
};

/** A seller, and a user with what uses the limits of that user. */
async function seller(t: Test, plans: Plans = PLANS) {
  const place = await shop(t, { billing: { plans } });
  const ada = await place.buyer();
  const { usage } = place.app.server.fastify.saas;
  const start = place.app.clock.now();
  let at = 0;
  return {
    ...place,
    ada,
    usage,
    use: (name: string, quantity?: number) => usage.consume(ada.id, name, quantity),
    /** A paid period of a subscription to pro, in days from now. */
    async subscribed(from: number, to: number, quantity = 1) {
      const seconds = (days: number) => Math.floor((start + days * DAY) / 1000);
      const [item] = items('price_pro', null).data;
      const object = {
        ...{ id: 'sub_1', customer: ada.customer, status: 'active', created: seconds(from) },
        items: {
          data: [{ ...item, quantity, current_period_start: seconds(from), current_period_end: seconds(to) }],
        },
      };
      t.equal(await place.deliver(subscriptionEvent('updated', ++at, object)), 'processed');
    },
  };
}

t.test('a limit is used up, and starts again with the next period', async (t) => {
  const { app, ada, use, usage, subscribed } = await seller(t);
  t.match(await use('messages'), { allowed: true, limit: 2, used: 1, left: 1, resetsAt: /^2040-02-01/ });
  t.match(await use('messages'), { allowed: true, left: 0 });
  t.match(await use('messages'), { allowed: false, used: 2, left: 0 });
  // The plan that was bought counts from its own period, and goes on after it while its event is late.
  await subscribed(0, 30);
  t.match(await use('messages', 18), { allowed: true, used: 20, limit: 20, left: 0 });
  const { body } = await app.request('GET', '/api/billing/usage', { token: ada.accessToken });
  t.same(body.data, await usage.list(ada.id), 'the same for the user');
  app.clock.advance(30 * DAY);
  t.match(await use('messages', 20), { allowed: true, used: 20 });
  await subscribed(30, 60);
  t.match(await use('messages'), { allowed: false, used: 20 });
  t.match(await usage.list(ada.id), [
    { name: 'messages', used: 20, left: 0 },
    { name: 'projects', used: 0, limit: 3, left: 3, resetsAt: null },
  ]);
});

t.test('a count without a period goes down with what is released, and seats multiply it', async (t) => {
  const { ada, use, usage, subscribed } = await seller(t);
  t.match(await use('projects'), { allowed: true, left: 0 });
  t.match(await use('projects'), { allowed: false });
  t.match(await usage.release(ada.id, 'projects'), { used: 0, left: 1 });
  t.match(await usage.release(ada.id, 'projects', 5), { used: 0, left: 1 }, 'never below 0');
  await subscribed(0, 30, 4);
  t.match(await use('projects', 12), { allowed: true, limit: 12, left: 0 });
  await subscribed(0, 30, 2);
  t.match(
    await use('projects'),
    { allowed: false, limit: 6, used: 12, left: 0 },
    'after seats were given up',
  );
});

t.test('parallel uses of two servers never exceed a limit, and none is lost', async (t) => {
  const { app, ada, usage, subscribed } = await seller(t);
  await subscribed(0, 30);
  const other = await saasApp(t, { databaseUri: app.databaseUri, billing: { plans: PLANS } });
  const apis = [usage, other.server.fastify.saas.usage];
  const uses = await Promise.all(
    Array.from({ length: 50 }, (_, index) => apis[index % 2]?.consume(ada.id, 'messages')),
  );
  t.equal(uses.filter((one) => one?.allowed).length, 20);
  t.match(await usage.list(ada.id), [{ used: 20, left: 0 }, {}]);
  await usage.addCredits(ada.id, 'messages', 7, 'a');
  const credited = await Promise.all(
    Array.from({ length: 50 }, (_, index) => apis[index % 2]?.consume(ada.id, 'messages')),
  );
  t.equal(credited.filter((one) => one?.allowed).length, 7);
  t.match(await usage.list(ada.id), [{ used: 20, credits: 0, left: 0 }, {}]);
});

t.test('credits are used after the period, outlive it, and count once', async (t) => {
  const { app, ada, use, usage, deliver } = await seller(t);
  const session = {
    ...{
      id: 'cs_1',
      object: 'checkout.session',
      mode: 'payment',
      status: 'complete',
      payment_status: 'paid',
    },
    ...{ customer: ada.customer, amount_total: 900, currency: 'eur' },
    line_items: { data: [{ quantity: 2, price: { id: 'price_pack' } }] },
  };
  for (const id of [1, 2]) {
    const event = eventOf('checkout.session.completed', id, session);
    t.equal(await deliver(event), 'processed');
  }
  t.match(await use('messages', 5), { allowed: true, used: 2, credits: 7, left: 7 });
  app.clock.advance(31 * DAY);
  t.match(await use('messages', 3), { allowed: true, used: 2, credits: 6 }, 'the new period first');
  t.match(await use('messages', 7), { allowed: false, credits: 6, left: 6 });
  for (let times = 0; times < 2; times++) await usage.addCredits(ada.id, 'messages', 1, 'gift');
  t.match(await use('messages', 7), { allowed: true, credits: 0, left: 0 });
});

t.test('above a limit, use is allowed or billed where the plan says so', async (t) => {
  const messages = (overuse: 'allowed' | 'billed'): Plans => {
    const meter = overuse === 'billed' && { meter: 'messages' };
    return { free: { limits: { messages: { amount: 2, per: 'month', overuse, ...meter } } } };
  };
  const soft = await seller(t, messages('allowed'));
  t.match(await soft.use('messages', 5), { allowed: true, used: 5, left: 0 });
  t.match(await soft.use('messages'), { allowed: true, used: 6, left: 0 });

  const billed = await seller(t, messages('billed'));
  t.match(await billed.use('messages', 3), { allowed: true, used: 3 });
  await Promise.all([1, 2, 3].map(() => billed.use('messages')));
  const { sendUsage } = await secondProcess(t, billed);
  await sendUsage?.run({ term: 1, signal: new AbortController().signal });
  const sent = billed.api.meterEvents.map(({ meter, value }) => `${meter} ${value}`);
  t.same(sent, Array(4).fill('messages 1'), 'each unit above the limit once');
});

t.test('a route is guarded by a limit', async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  await host.register(saasBackend, { ...saasPluginOptions(t), billing: { plans: PLANS } });
  host.get('/answer', { onRequest: host.saas.requireLimit('messages') }, async () => 'yes');
  t.throws(
    () => host.saas.requireLimit('mesages'),
    /'mesages'.* messages, projects\. Did you mean 'messages'/,
  );
  const { get } = await signUpAt(host);
  const answers = [await get('/answer'), await get('/answer'), await get('/answer')];
  t.same(
    answers.map(({ statusCode }) => statusCode),
    [200, 200, 403],
  );
  t.match(answers[2]?.body, /LIMIT_REACHED|includes 2 of messages/);
});

t.test('what is wrong is refused, and a deleted account leaves nothing', async (t) => {
  const { app, ada, usage, leave } = await seller(t);
  await t.rejects(usage.consume(ada.id, 'message'), { code: 'VALIDATION_ERROR' });
  await t.rejects(usage.consume('usr_unknown', 'messages'), { code: 'NOT_FOUND' });
  for (const quantity of [0, -1, 1.5]) await t.rejects(usage.consume(ada.id, 'messages', quantity));
  await usage.addCredits(ada.id, 'messages', 1, 'a');
  t.equal((await leave(ada)).status, 200);
  const { quotas, credits } = quotaCollections(await storeOf(t, app));
  t.same([await quotas.count(), await credits.count()], [0, 0]);
});
