import http from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
import { mock } from 'node:test';
import t, { type Test } from 'tap';
import { DAY } from '../../../src/core/kernel/clock.js';
import { createGateway } from '../../../src/saas/billing/provider/gateway.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import type { ResyncChange } from '../../../src/saas/billing/resync.js';
import {
  type EventOutcome,
  paymentEventCollection,
  subscriptionCollection,
} from '../../../src/saas/billing/store.js';
import { storeOf } from '../../kit/app.js';
import { runJobs } from '../../kit/billing.js';
import { compiled, startProgram } from '../../kit/process.js';
import type { ProviderCall } from '../../kit/stripe.js';
import { PRICES, subscriptionObject } from '../../kit/stripe-objects.js';
import { holdNext, KEY, provider, type Shop, secondProcess, shop, subscriptionEvent } from './kit.js';

/** Two customers whose subscriptions changed without events: one is unknown, one is stored as active. */
async function lostWebhooks(t: Test, { app, api, deliver, buyer, subscribe }: Shop) {
  const { world } = api;
  const [ada, eve] = [await buyer(), await buyer()];
  const known = subscribe(ada);
  await deliver(subscriptionEvent('created', 0, subscriptionObject(known)));
  world.events.length = 0;
  world.now += 1000;
  Object.assign(known, { status: 'unpaid', quantity: 2 });
  const unknown = subscribe(eve, { status: 'trialing', trialEnd: world.now + 86_400 });
  const rows = subscriptionCollection(await storeOf(t, app));
  return { ada, eve, known, unknown, rows };
}

/** Users created in the same millisecond are listed in any order. */
const inOrder = (changes: ResyncChange[]) =>
  changes.toSorted((a, b) => (a.subscriptionId < b.subscriptionId ? -1 : 1));

t.test('a resync finds and repairs what webhooks missed', async (t) => {
  const here = await shop(t);
  const { api, app, subscription } = here;
  const { ada, eve, known, unknown, rows } = await lostWebhooks(t, here);
  const { resync } = await secondProcess(t, here);

  const seen: number[][] = [];
  const onProgress = (done: number, total: number) => void seen.push([done, total]);
  const foreseen = await resync.run({ dryRun: true, onProgress });
  t.match(foreseen, { customers: 2, subscriptions: 2, failures: [] });
  const changes = inOrder(foreseen.changes);
  t.same(
    changes.map(({ subscriptionId, before, after }) => [subscriptionId, before, after]),
    [
      [known.id, 'active', 'unpaid'],
      [unknown.id, undefined, 'trialing'],
    ],
  );
  t.same(changes[0]?.fields.sort(), ['quantity', 'status']);
  t.same(seen, [
    [1, 2],
    [2, 2],
  ]);
  t.equal((await rows.findOne({ id: known.id }))?.status, 'active', 'nothing was changed');
  t.equal(await rows.count(), 1);

  t.match(await resync.run({ ownerId: eve.id }), { customers: 1, changes: [{ after: 'trialing' }] });
  t.match(await subscription(ada), { status: 'active' }, 'the other was not asked about');
  t.match(await subscription(eve), { status: 'trialing', entitled: true });
  t.match(await resync.run({}), { changes: [{ subscriptionId: known.id }] });
  const { body } = await app.request('GET', '/api/auth/me', { token: ada.accessToken });
  t.equal(body.data.user.subscription.status, 'unpaid');
  t.same((await resync.run({})).changes, [], 'a second run has nothing to do');

  const late = subscriptionEvent('updated', 1, { ...subscriptionObject(known), status: 'active' });
  t.equal(await here.deliver(late), 'stale', 'and what arrives after all is old');
  api.fault = ({ query }) =>
    query.get('customer') === ada.customer ? { status: 400, body: '{}' } : undefined;
  t.match(await resync.run({}), { customers: 2, subscriptions: 1, failures: [{ ownerId: ada.id }] });
});

t.test(
  'a resync checks subscriptions of other customers of a user, even if the stored customer was deleted',
  async (t) => {
    const here = await shop(t);
    const { app, api, deliver, buyer, subscribe, subscription, post } = here;
    const ada = await buyer();
    const own = subscribe(ada);
    const [elsewhere, deleted] = [
      subscribe({ ...ada, customer: 'cus_elsewhere' }),
      subscribe({ ...ada, customer: 'cus_unheard-of' }),
    ];
    for (const one of [own, elsewhere, deleted]) {
      await deliver(subscriptionEvent('created', 0, subscriptionObject(one)));
    }
    api.world.subscriptions.delete(deleted.id);
    const { resync } = await secondProcess(t, here);
    const endsOf = ({ changes }: { changes: ResyncChange[] }) =>
      changes.map(({ subscriptionId, after }) => [subscriptionId, after]);
    elsewhere.status = 'canceled';
    const expected = [[elsewhere.id, 'canceled']];
    t.same(endsOf(await resync.run({ dryRun: true })), expected);
    t.same(endsOf(await resync.run()), expected);

    own.status = 'canceled';
    const error = { type: 'invalid_request_error', code: 'resource_missing', param: 'customer' };
    api.fault = ({ query }) =>
      query.get('customer') === ada.customer ? { status: 400, body: JSON.stringify({ error }) } : undefined;
    const sync = () => post(ada, '/billing/sync');
    t.equal((await sync()).status, 200);
    const rows = subscriptionCollection(await storeOf(t, app));
    t.equal((await rows.findOne({ id: own.id }))?.status, 'canceled');
    t.match(
      await subscription(ada),
      { status: 'active' },
      'what the provider knows nothing of stays as it was',
    );
    t.equal((await sync()).body.error?.code, 'CUSTOMER_NOT_FOUND');
    t.match(await resync.run(), { failures: [{ ownerId: ada.id }] });
  },
);

t.test(
  'fifty concurrent syncs of one user share a few calls, and none receives an older state',
  async (t) => {
    const { api, buyer, subscribe, post } = await shop(t);
    const [ada, eve] = [await buyer(), await buyer()];
    const truth = subscribe(ada);
    const session = { id: 'cs_done', customer: ada.customer, client_reference_id: ada.id };
    api.sessions.set(session.id, { ...session, metadata: { userId: ada.id } });
    const sync = (account: typeof ada, body = {}) => post(account, '/billing/sync', body);
    const isAboutAda = ({ path, query }: ProviderCall) =>
      [session.id, truth.id].some((id) => path.endsWith(id)) || query.get('customer') === ada.customer;
    const list = () => ({ object: 'list', has_more: false, data: [subscriptionObject(truth)] });
    const ways: [body: object, answer: () => Json, then: string][] = [
      [{}, list, 'unpaid'],
      [{ sessionId: session.id }, () => api.sessions.get(session.id) as Json, 'paused'],
    ];
    for (const [body, answer, status] of ways) {
      const held = holdNext(api, isAboutAda, answer);
      const before = api.calls.length;
      const first = sync(ada, body);
      await held.asked;
      truth.status = status;
      const others = Array.from({ length: 49 }, () => sync(ada, body));
      t.equal((await sync(eve)).status, 200, 'another user waits for none of them');
      held.letGo();
      t.equal((await first).status, 200);
      const answers = (await Promise.all(others)).map(({ body }) => body.data?.status ?? body.error.code);
      t.same(new Set(answers), new Set([status]));
      const asked = api.calls.slice(before).filter(isAboutAda).length;
      // Two rounds of each call, each possibly after an attempt that timed out on a busy machine.
      t.ok(asked <= 8, `${asked} questions`);
    }
  },
);

t.test('a failed sync fails only for the callers that share it', async (t) => {
  const { api, buyer, post } = await shop(t);
  const [ada, eve] = [await buyer(), await buyer()];
  const sync = async (account: typeof ada) => {
    const { status, body } = await post(account, '/billing/sync');
    return body.error?.code ?? status;
  };
  const isAboutAda = ({ query }: ProviderCall) => query.get('customer') === ada.customer;
  const held = holdNext(api, isAboutAda, () => ({ object: 'nonsense' }));
  const first = sync(ada);
  await held.asked;
  const others = Array.from({ length: 9 }, () => sync(ada));
  t.equal(await sync(eve), 200);
  held.letGo();
  t.equal(await first, 'PAYMENT_PROVIDER_ERROR');
  t.same(new Set(await Promise.all(others)), new Set([200]), 'later callers start a new sync');

  api.fault = () => ({ status: 400, body: '{}' });
  const failed = await Promise.all(Array.from({ length: 9 }, () => sync(ada)));
  t.same(new Set(failed), new Set(['PAYMENT_PROVIDER_ERROR']));
  api.fault = () => undefined;
  t.equal(await sync(ada), 200);
});

t.test('a resync covers only the users with events since a date, or the named one', async (t) => {
  const here = await shop(t);
  const { unknown } = await lostWebhooks(t, here);
  const { resync } = await secondProcess(t, here);
  const since = here.api.world.now * 1000;
  t.match(await resync.run({ since, dryRun: true }), {
    customers: 1,
    changes: [{ subscriptionId: unknown.id }],
  });
  for (const none of [{ since: since + 60_000 }, { ownerId: 'usr_nobody' }])
    t.match(await resync.run(none), { customers: 0, changes: [] });
  await t.rejects(resync.run({ ownerId: '' }));
});

t.test('a resync covers any number of provider events, however slowly they are listed', async (t) => {
  const api = await provider(t);
  for (let number = 0; number < 250; number++)
    api.world.events.push({ id: `evt_${number}`, created: 1, type: 'invoice.paid' });
  const gateway = createGateway(KEY, api.url);
  await gateway.prices();
  mock.timers.enable({ apis: ['setTimeout'] });
  t.teardown(() => mock.timers.reset());
  api.fault = () => void mock.timers.tick(6000);
  const sizes: number[] = [];
  for await (const page of gateway.eventPages({ from: 0 }, ['invoice.paid'])) sizes.push(page.length);
  t.same(sizes, [100, 100, 50]);
});

t.test('stored events are resumed, repeated and deleted', async (t) => {
  const here = await shop(t);
  const { app, deliver, buyer, leave } = here;
  const [ada, eve] = [await buyer(), await buyer()];
  const events = paymentEventCollection(await storeOf(t, app));
  const told = (seconds: number, object: Json) =>
    subscriptionEvent('updated', seconds, { status: 'active', ...object });
  const store = async (event: Json & { id: string }, outcome?: EventOutcome) => {
    const { customer: about, id: objectId } = (event['data'] as { object: Record<string, string> }).object;
    await events.insert({
      id: event.id,
      type: String(event['type']),
      objectId: String(objectId),
      ...(about !== undefined && { about }),
      ...((outcome ?? 'unmatched') === 'unmatched' && { payload: JSON.stringify(event) }),
      receivedAt: app.clock.now(),
      attempts: 1,
      leaseUntil: app.clock.now() - 1,
      ...(outcome && { outcome }),
    });
    return event;
  };
  const interrupted = await store(told(0, { id: 'sub_1', customer: ada.customer }));
  const unmatched = await store(told(0, { id: 'sub_2', customer: eve.customer }), 'unmatched');
  const applied = await store(told(0, { id: 'sub_3', customer: ada.customer }), 'processed');
  const background = await secondProcess(t, here);
  await runJobs(background);
  for (const { id } of [interrupted, unmatched])
    t.match(await events.findOne({ id }), { outcome: 'processed', attempts: 2 });
  t.match(await here.subscription(ada), { status: 'active' });
  t.match(await here.subscription(eve), { status: 'active' });
  t.equal(await deliver(applied), 'duplicate');
  await leave(ada);
  t.equal(await events.count(), 1, 'that of the other user');

  await store(told(0, { id: 'sub_4', customer: 'cus_later' }), 'unmatched');
  app.clock.advance(90 * DAY + 1);
  await store(told(0, { id: 'sub_5', customer: 'cus_later' }), 'unmatched');
  await store(told(0, { id: 'sub_6', customer: ada.customer }), 'stale');
  await runJobs(background);
  t.equal(await events.count(), 2, 'older ones of every outcome are purged');
});

t.test("the provider's address may be IPv6", async (t) => {
  const hosts: unknown[] = [];
  mock.method(http, 'request', ({ host }: { host: string }) => {
    hosts.push(host);
    throw new Error('seen');
  });
  syncBuiltinESMExports();
  t.teardown(() => {
    mock.restoreAll();
    syncBuiltinESMExports();
  });
  await t.rejects(createGateway(KEY, 'http://[::1]:12111').prices(), { code: 'PAYMENT_PROVIDER_ERROR' });
  t.same(new Set(hosts), new Set(['::1']), 'as Node takes it: without brackets');
});

t.test('saas-backend billing resync repairs users by command', async (t) => {
  const here = await shop(t);
  const { known, ada } = await lostWebhooks(t, here);
  const run = async (...args: string[]) => {
    const program = startProgram(t, compiled('bin/saas-backend.js'), {
      args: ['billing', 'resync', ...args],
      env: {
        DATABASE_URI: here.app.databaseUri,
        PAYMENT_SECRET_KEY: KEY,
        PAYMENT_API_URL: here.api.url,
        BILLING_PLANS: JSON.stringify({ gold: { prices: Object.keys(PRICES) } }),
      },
    });
    return { code: await program.ended(), text: program.lines.join('\n') };
  };
  const foreseen = await run('--dry-run', '--user', ada.id);
  t.equal(foreseen.code, 0);
  t.match(foreseen.text, `${known.id} of ${ada.id}: active → unpaid (`);
  t.match(foreseen.text, '0 events, 0 of which were not received.');
  t.match(foreseen.text, '1 customers, 1 subscriptions, 1 differ.');
  const done = await run('--json');
  t.equal(done.code, 0);
  const report = JSON.parse(done.text);
  t.match(inOrder(report.changes), [{ after: 'unpaid' }, { after: 'trialing' }]);
  t.same(report.events.missing['customer.subscription.created'], 1);
  t.match(
    await here.subscription(ada),
    { status: 'unpaid', plan: 'gold' },
    'with the plans of the configuration',
  );
  const unclear = [
    ['--since', 'yesterday'],
    ['--since', '5'],
    ['--since', '2999-01-01'],
    ['--user', ''],
  ];
  const refused = await Promise.all(unclear.map((args) => run(...args)));
  t.same(new Set(refused.map(({ code }) => code)), new Set([2]));
  const nobody = await run('--user', 'usr_nobody');
  t.match([nobody.code, nobody.text], [1, 'Nobody with the identifier usr_nobody']);
  here.api.fault = () => ({ status: 400, body: '{}' });
  t.equal((await run()).code, 1);
});
