import t from 'tap';
import { DAY, MINUTE } from '../../../src/core/kernel/clock.js';
import { createGateway } from '../../../src/saas/billing/provider/gateway.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { subscriptionCollection } from '../../../src/saas/billing/store.js';
import { storeOf } from '../../kit/app.js';
import { isChange } from '../../kit/stripe-changes.js';
import { subscriptionObject } from '../../kit/stripe-objects.js';
import { KEY, provider, shop, subscriptionEvent } from './kit.js';

/** When subscriptions are compared with the provider again, and lists that the provider sends in parts. */

t.test(
  'a change without an answer is looked for half a minute later, whatever was read in between',
  async (t) => {
    const { app, api, buyer, subscribe, post, subscription, runJobs } = await shop(t);
    const ada = await buyer();
    const truth = subscribe(ada);
    const sync = () => post(ada, '/billing/sync');
    const rows = subscriptionCollection(await storeOf(t, app));
    const stored = () => rows.findOne({ id: truth.id });
    await sync();
    api.fault = (call) => (isChange(call) ? 'cut' : undefined);
    const change = { priceId: 'price_pro', quantity: 2 };
    t.equal((await post(ada, '/billing/subscription/change', change)).status, 502);
    api.fault = () => undefined;
    await sync();
    t.match(await subscription(ada), { priceId: 'price_basic' }, 'it was not made yet');
    Object.assign(truth, { price: 'price_pro', quantity: 2 });
    app.clock.advance(30_000);
    await runJobs();
    t.match(await subscription(ada), { priceId: 'price_pro', quantity: 2 });
    t.equal((await stored())?.changeCheckAt, undefined);
    const calls = api.calls.length;
    app.clock.advance(MINUTE);
    await runJobs();
    t.equal(api.calls.length, calls, 'once');

    await post(ada, '/billing/subscription/change', { priceId: 'price_basic' });
    t.equal((await stored())?.changeCheckAt, undefined, 'not after an answer');
  },
);

t.test(
  'a trial that is over is compared with the provider at once, and again until it has ended there',
  async (t) => {
    const { app, api, deliver, buyer, subscribe, runJobs } = await shop(t);
    const ada = await buyer();
    const current = () => app.server.fastify.saas.billing.get(ada.id);
    const truth = subscribe(ada, { status: 'trialing', trialEnd: api.world.now + 7 * 86_400 });
    await deliver(subscriptionEvent('created', 0, subscriptionObject(truth)));
    const pass = (milliseconds: number) => {
      app.clock.advance(milliseconds);
      api.world.now = app.clock.now() / 1000;
    };
    pass(7 * DAY);
    await runJobs();
    t.match(await current(), { status: 'trialing', entitled: false }, 'the provider is late');
    truth.status = 'active';
    pass(MINUTE);
    await runJobs();
    t.match(await current(), { status: 'active', entitled: true });
  },
);

t.test('lists of more than a page are read to their end', async (t) => {
  const api = await provider(t);
  const gateway = createGateway(KEY, api.url);
  const line = (_: unknown, number: number): Json => ({ id: `li_${number}`, amount: number });
  const lines = Array.from({ length: 150 }, line);
  api.lineItems.set('cs_large', lines);
  t.equal((await gateway.lineItems('cs_large'))?.length, 150);

  const pageOf = (from: number, limit: number) => {
    const data = lines.slice(from, from + limit);
    return { object: 'list', has_more: from + limit < lines.length, data };
  };
  api.fault = ({ path, query }) => {
    if (path === '/v1/invoices/create_preview')
      return { status: 200, body: JSON.stringify({ id: 'upcoming_in_1', lines: pageOf(0, 10) }) };
    const from = lines.findIndex(({ id }) => id === query.get('starting_after')) + 1;
    return { status: 200, body: JSON.stringify(pageOf(from, Number(query.get('limit')))) };
  };
  const preview = await gateway.previewChange(
    'sub_1',
    { itemId: 'si_1', priceId: 'price_pro' },
    'always_invoice',
  );
  t.same((preview['lines'] as Json)['data'], lines);
  t.equal(api.calls.at(-1)?.path, '/v1/invoices/upcoming_in_1/lines');

  api.fault = () => undefined;
  const subscriptions = Array.from({ length: 120 }, () => api.world.subscribe('cus_large', 'usr_1', true));
  const { objects } = await gateway.subscriptionsOf('cus_large');
  t.equal(objects.length, subscriptions.length);
});
