import t, { type Test } from 'tap';
import type { CustomerResult } from '../../../src/saas/billing/customers/import.js';
import type { Json } from '../../../src/saas/billing/provider/json.js';
import { customerCollection, subscriptionCollection } from '../../../src/saas/billing/store.js';
import { storeOf } from '../../kit/app.js';
import { insertOrganization, type Shop, secondProcess, shop } from './kit.js';

/** Customers that existed at the provider before, and their users. */

/** A customer with an active subscription, made before this product. */
function customerOf({ api }: Shop, id: string, more: Json): string {
  api.customers.set(id, { id, object: 'customer', metadata: {}, ...more });
  const sold = api.world.subscribe(id, '', false);
  Object.assign(sold, { status: 'active', price: 'price_pro', trialEnd: null, isSigned: false });
  return id;
}

/** Imports in another process, as the command does. */
async function importing(t: Test, here: Shop) {
  const { importCustomers } = await secondProcess(t, here);
  return async (options: Parameters<typeof importCustomers.run>[0] = {}) => {
    const results: CustomerResult[] = [];
    const report = await importCustomers.run({ ...options, onResult: (result) => void results.push(result) });
    return {
      report,
      results: results.map(({ customerId, outcome, by }) => [customerId, outcome, by]).sort(),
    };
  };
}

t.test(
  'customers are linked by metadata and by a confirmed address, and what is unclear is only reported',
  async (t) => {
    const here = await shop(t);
    const { app } = here;
    const [ada, bob, eve, old, twin] = [
      await app.signUp({ email: 'ada@example.test' }),
      await app.signUp({ email: 'bob@example.test', emailVerified: true }),
      await app.signUp({ email: 'eve@example.test' }),
      await app.signUp({ email: 'old@example.test', emailVerified: true }),
      await app.signUp({ email: 'twin@example.test', emailVerified: true }),
    ];
    customerOf(here, 'cus_ada', { metadata: { userId: ada.id }, email: bob.email });
    customerOf(here, 'cus_bob', { email: 'Bob@Example.test', metadata: { userId: 'of another system' } });
    customerOf(here, 'cus_eve', { email: eve.email });
    customerOf(here, 'cus_old', { metadata: { userId: old.id } });
    customerOf(here, 'cus_old_guest', { email: old.email });
    customerOf(here, 'cus_twin_1', { email: twin.email });
    customerOf(here, 'cus_twin_2', { email: twin.email });
    customerOf(here, 'cus_nobody', { email: 'nobody@example.test' });
    const run = await importing(t, here);
    const links = customerCollection(await storeOf(t, app));

    const expected = [
      ['cus_ada', 'linked', 'metadata'],
      ['cus_bob', 'linked', 'email'],
      ['cus_eve', 'missing', undefined],
      ['cus_nobody', 'missing', undefined],
      ['cus_old', 'linked', 'metadata'],
      ['cus_old_guest', 'ambiguous', 'email'],
      ['cus_twin_1', 'ambiguous', 'email'],
      ['cus_twin_2', 'ambiguous', 'email'],
    ];
    const foreseen = await run({ byEmail: true, dryRun: true });
    t.equal(await links.count(), 0, 'a dry run links nothing');
    t.match(
      (await run({ dryRun: true })).report,
      { linked: 2, missing: 6, ambiguous: 0 },
      'without addresses',
    );

    const { report, results } = await run({ byEmail: true });
    t.same(results, expected);
    t.match(report, {
      customers: 8,
      linked: 3,
      known: 0,
      ambiguous: 3,
      missing: 2,
      failed: 0,
      interrupted: false,
    });
    t.match(foreseen.report, { linked: 3 });
    t.match(await here.subscription(bob), { status: 'active', plan: 'pro', entitled: true });
    t.match(
      await here.subscription(eve),
      { status: 'none', entitled: false },
      'an address that is not confirmed',
    );

    const again = await run({ byEmail: true });
    t.match(again.report, { linked: 0, known: 3, ambiguous: 3, missing: 2 }, 'a repetition changes nothing');
    t.equal(await links.count(), 3);
  },
);

t.test('an import that was interrupted or failed continues, and a customer never moves', async (t) => {
  const here = await shop(t);
  const { app, api } = here;
  const people = [await app.signUp(), await app.signUp(), await app.signUp()];
  for (const [index, { id }] of people.entries())
    customerOf(here, `cus_${index}`, { metadata: { supabaseUUID: id } });
  const run = await importing(t, here);
  const metadataKey = 'supabaseUUID';
  const stopping = new AbortController();
  const stopped = await run({ metadataKey, signal: stopping.signal, onProgress: () => stopping.abort() });
  t.match(stopped.report, { linked: 1, interrupted: true });

  api.fault = ({ path, query }) =>
    path === '/v1/subscriptions' && query.get('customer') === 'cus_1'
      ? { status: 500, body: '{"error":{"type":"api_error"}}' }
      : undefined;
  t.match((await run({ metadataKey })).report, { known: 1, linked: 1, failed: 1 });
  const store = await storeOf(t, app);
  t.equal(
    await customerCollection(store).findOne({ id: 'cus_1' }),
    null,
    'not linked without its subscriptions',
  );
  api.fault = () => undefined;
  t.match((await run({ metadataKey })).report, { known: 2, linked: 1, failed: 0 });
  t.equal(await subscriptionCollection(store).count(), 3);

  async function* claims() {
    yield { customerId: 'cus_0', userId: people[1]?.id ?? '' };
    yield { customerId: 'cus_1', email: people[1]?.email ?? '' };
    yield { customerId: 'cus_9', email: 'nobody@example.test' };
    yield { customerId: 'cus_8', email: people[2]?.email ?? '' };
  }
  const stated = await run({ claims: claims() });
  t.match(stated.report, { known: 1, ambiguous: 1, missing: 1, linked: 1 });
  t.equal((await customerCollection(store).findOne({ id: 'cus_0' }))?.ownerId, people[0]?.id);
});

t.test('the customer of an organization is linked to it, and not to the user with its address', async (t) => {
  const here = await shop(t);
  const { app } = here;
  const { email } = await app.signUp({ email: 'ada@example.test', emailVerified: true });
  const store = await storeOf(t, app);
  await insertOrganization(store, 'org_1', { billingEmail: email });
  customerOf(here, 'cus_org', { metadata: { organizationId: 'org_1' }, email });
  const run = await importing(t, here);
  t.same((await run({ byEmail: true })).results, [['cus_org', 'linked', 'metadata']]);
  t.equal(await customerCollection(store).count({ id: 'cus_org', ownerId: 'org_1' }), 1);
});
