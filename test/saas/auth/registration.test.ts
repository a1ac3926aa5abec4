import t, { type Test } from 'tap';
import { createAudit } from '../../../src/core/ops/audit.js';
import { effectOf } from '../../../src/core/ops/commit.js';
import type { Store, Write } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import type { AuthService } from '../../../src/saas/auth/service.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { fakeClock } from '../../kit/clock.js';
import { withEachCall } from '../../kit/each-call.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { receiver, webhooksOn } from '../webhooks/kit.js';
import { codes, holds, insist, ORIGIN, serviceOn, setup } from './explored-service.js';

/** Registrations of addresses that have to be verified: what is stored before the response, and what is done after it. */

const EMAIL = 'new@example.test';

type ServiceOptions = NonNullable<Parameters<typeof serviceOn>[2]>;

/** A service whose background tasks run when `settle` is called. */
function unverifiedOn(store: Store, seed: string, more: ServiceOptions = {}) {
  const tasks: (() => Promise<unknown>)[] = [];
  const service = serviceOn(store, seed, {
    verificationRequired: true,
    backgroundTasks: { run: (_, work) => void tasks.push(work) },
    ...more,
  });
  const settle = async () => {
    for (const task of tasks.splice(0)) await task();
  };
  return { service, settle };
}

const register = (service: AuthService, email: string) =>
  service.register({ email, password: 'old' }, ORIGIN);

/** A SQLite file whose calls can be listed. */
async function listedStore(t: Test) {
  const store = await openStore(`sqlite:${temporaryFolder(t)}/saas.db`);
  t.teardown(() => store.close());
  const calls: string[] = [];
  const listed = withEachCall(store, (call, name, [writes]) => {
    const written = name === 'commit' ? (writes as Write[]).map(({ collection }) => collection) : [];
    calls.push([name, ...written.sort()].join(' '));
    return call();
  });
  return {
    listed,
    audit: createAudit(listed, { clock: fakeClock(), random: countedRandom(), log: { error() {} } }),
    /** The calls until the response, sorted. */
    async callsOf(request: () => Promise<unknown>) {
      calls.length = 0;
      await request();
      return calls.toSorted();
    },
  };
}

t.test('a known address takes the same calls of the store as a new one, and the same writes', async (t) => {
  const { listed, audit, callsOf } = await listedStore(t);
  const { service, settle } = unverifiedOn(listed, 'register', { audit });
  await listed.ready();
  const once = () => register(service, EMAIL);
  const first = await callsOf(once);
  t.same(first, ['commit audit users', 'users.findOne']);
  await settle();
  const both = () =>
    Promise.all([register(service, 'two@example.test'), register(service, 'two@example.test')]);
  t.same(await callsOf(both), [...first, ...first].sort());
  await settle();
  t.equal(await userCollection(listed).count({ email: 'two@example.test' }), 1);
  t.same(await callsOf(both), [...first, ...first].sort());
  // Also once the audit only counts repetitions.
  for (let count = 1; count <= 12; count++) t.equal((await callsOf(once)).length, first.length);
});

t.test('with webhooks, too, a known address takes the same calls as a new one', async (t) => {
  const hook = await receiver(t);
  const { listed, audit, callsOf } = await listedStore(t);
  const webhooks = await webhooksOn(listed, {
    clock: fakeClock(),
    reach: 'loopback',
  });
  await webhooks.add(hook.url, ['user.registered']);
  const { service, settle } = unverifiedOn(listed, 'register', { event: webhooks.event as never, audit });
  const calls = async () => {
    const listed = await callsOf(() => register(service, EMAIL));
    await settle();
    await webhooks.send();
    return listed.map((call) => call.split(' ')[0]);
  };
  t.same(await calls(), ['commit', 'users.findOne', 'webhook_endpoints.page']);
  t.same(await calls(), ['commit', 'users.findOne', 'webhook_endpoints.page']);
  t.same(
    hook.received.map(({ event }) => event.type),
    ['user.registered'],
    'sent once, for the account',
  );
});

t.test(
  'of two concurrent registrations one creates the account, in every interleaving with a deletion',
  async (t) => {
    const recordsOf = (store: Store) =>
      store.collection<{ id: string; event: string; subject: string }>('audit', { fields: ['event'] });
    const registration = (seed: string) => async (store: Store) => {
      const entry = ({ event, subject = '' }: { event: string; subject?: string }) =>
        effectOf(recordsOf(store).inserting({ id: `${seed} ${event}`, event, subject }));
      const { service, settle } = unverifiedOn(store, seed, { audit: { ...SILENT_AUDIT, entry } });
      await register(service, EMAIL);
      await settle();
    };
    const deletion = async (store: Store) => void (await userCollection(store).deleteOne({ email: EMAIL }));
    const scenario: Scenario = {
      async setup(store) {
        await setup(store);
        recordsOf(store);
      },
      actors: [registration('one'), registration('two'), deletion],
      async check(store, results) {
        insist(codes(results).join() === 'done,done,done', codes(results).join());
        const user = await userCollection(store).findOne({ email: EMAIL });
        const { items } = await recordsOf(store).page({
          where: { event: 'user.registered' },
          sort: 'id',
          limit: 9,
        });
        const recorded = items.map(({ subject }) => subject);
        insist(recorded.length > 0, 'no account');
        insist(user === null || recorded.includes(user.id), 'not recorded');
        insist(user === null || recorded.length === 1 || !recorded.every((id) => id === user.id), 'twice');
      },
    };
    holds(t, await explore(scenario));
  },
);
