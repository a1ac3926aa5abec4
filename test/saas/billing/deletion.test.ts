import t from 'tap';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import {
  customerCollection,
  paymentCollection,
  paymentEventCollection,
  subscriptionCollection,
} from '../../../src/saas/billing/store.js';
import { usageCollection } from '../../../src/saas/billing/usage/reports.js';
import { storeOf } from '../../kit/app.js';
import { runJobs } from '../../kit/billing.js';
import { subscriptionObject } from '../../kit/stripe-objects.js';
import { type Buyer, eventOf, invoiceEvent, items, secondProcess, shop, subscriptionEvent } from './kit.js';

/** What the deletion of an account cancels at the provider, and that no data of the user remains here. */

t.test('deleting an account cancels every subscription it ever had', async (t) => {
  const { api, deliver, buyer, subscribe, leave } = await shop(t);
  const ada = await buyer();
  const elsewhere = subscribe({ ...ada, customer: 'cus_elsewhere' });
  const all = [subscribe(ada, { status: 'incomplete_expired' }), subscribe(ada), elsewhere];
  await deliver(subscriptionEvent('created', 0, subscriptionObject(elsewhere)));
  t.equal((await leave(ada)).status, 200);
  t.same(
    all.map(({ status }) => status),
    ['incomplete_expired', 'canceled', 'canceled'],
  );

  const eve = await buyer();
  const body = '{"error":{"type":"invalid_request_error","code":"resource_missing","param":"customer"}}';
  api.fault = ({ query }) => (query.get('customer') === eve.customer ? { status: 400, body } : undefined);
  t.equal((await leave(eve)).status, 200, 'the provider knows them no more');

  const bob = await buyer();
  const active = subscribe(bob);
  // From a proxy in front of the provider, with another error format.
  const fault = { status: 403, body: '{"message":"Forbidden"}' };
  api.fault = ({ method }) => (method === 'DELETE' ? fault : undefined);
  t.equal((await leave(bob)).status, 502, 'not while it may not have been cancelled');
  t.equal(active.status, 'active');
});

t.test('an event or a sync during a deletion leaves no data of the user', async (t) => {
  const here = await shop(t);
  const { app, api, deliver, buyer, subscribe, leave, post } = here;
  const store = await storeOf(t, app);
  const background = await secondProcess(t, here);
  const sync = (ada: Buyer) => post(ada, '/billing/sync', { sessionId: 'cs_left' });
  const changed = (_: Buyer, object: Json) =>
    deliver(subscriptionEvent('updated', 0, { ...object, status: 'unpaid' }));
  const paid = ({ customer }: Buyer, { id: subscription }: Json) =>
    deliver(invoiceEvent('succeeded', 0, { customer, subscription }));
  const ways: [name: string, call: string, (ada: Buyer, object: Json) => Promise<unknown>][] = [
    ['an event of the subscription', '/v1/subscriptions', changed],
    ['an event of its invoice', '/v1/subscriptions', paid],
    ['a sync that reads the session', '/v1/checkout/sessions/cs_left', sync],
    ['a sync that reads the subscriptions', '/v1/subscriptions', sync],
    ['a resync', '/v1/subscriptions', () => background.resync.run()],
    ['the jobs', '/v1/subscriptions', () => runJobs(background)],
  ];
  for (const [name, call, run] of ways) {
    const ada = await buyer();
    const { id, customer } = ada;
    const session = { id: 'cs_left', customer, client_reference_id: id, metadata: { userId: id } };
    api.sessions.set('cs_left', session);
    const object = subscriptionObject(subscribe(ada));
    await deliver(subscriptionEvent('created', 0, object));
    api.fault = () => ({ status: 400, body: '{}' });
    await deliver(subscriptionEvent('updated', 0, { ...object, status: 'past_due' }));
    let left = 0;
    api.fault = async ({ method, path }) => {
      if (method !== 'GET' || !path.startsWith(call)) return undefined;
      api.fault = () => undefined;
      left = (await leave(ada)).status;
      return undefined;
    };
    await run(ada, object);
    const rows = [
      await subscriptionCollection(store).count({ ownerId: id }),
      await paymentCollection(store).count({ ownerId: id }),
      await customerCollection(store).count({ ownerId: id }),
    ];
    t.same([left, ...rows], [200, 0, 0, 0], name);
  }
});

t.test('stored events of a deleted user are removed, by whichever ID they name the user', async (t) => {
  const { app, deliver, buyer, leave } = await shop(t);
  const ada = await buyer();
  const { id: userId, email, customer } = ada;
  const object = { id: 'sub_1', customer: 'cus_elsewhere', status: 'active', metadata: { userId } };
  const dispute = { id: 'dp_1', object: 'dispute', charge: 'ch_1', payment_intent: 'pi_1', status: 'lost' };
  for (const event of [
    subscriptionEvent('created', 0, { ...object, items: items() }),
    invoiceEvent('succeeded', 1, { customer: 'cus_elsewhere', customer_email: email }),
    subscriptionEvent('updated', 2, { id: 'sub_1', status: 'active', description: email }),
    invoiceEvent('succeeded', 3, { customer, charge: 'ch_1', payment_intent: 'pi_1' }),
    eventOf('charge.dispute.created', 4, { ...dispute, amount: 2900, currency: 'eur' }),
  ])
    await deliver(event);
  const store = await storeOf(t, app);
  t.equal(await paymentEventCollection(store).count(), 5);
  t.equal((await leave(ada)).status, 200);
  t.equal(await paymentEventCollection(store).count(), 0);
  t.equal(await paymentCollection(store).count(), 0);
});

t.test('unsent usage is deleted with the account', async (t) => {
  const { app, api, buyer, leave } = await shop(t);
  const ada = await buyer();
  await app.server.fastify.saas.reportUsage(ada.id, 'requests', 1, 'req_1');
  const reports = usageCollection(await storeOf(t, app));
  t.equal(await reports.count({ ownerId: ada.id }), 1);
  t.equal((await leave(ada)).status, 200);
  t.equal(await reports.count(), 0);
  const { sendUsage } = await secondProcess(t, { app, api });
  await sendUsage?.run({ term: 1, signal: new AbortController().signal });
  t.equal(api.meterEvents.length, 0);
});
