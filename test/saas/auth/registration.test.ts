import t, { type Test } from 'tap';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import type { AuthService } from '../../../src/saas/auth/service.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { withEachCall } from '../../kit/killed-at.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { receiver, webhooksOn } from '../webhooks/kit.js';
import { holds, insist, ORIGIN, serviceOn, setup } from './explored-service.js';

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

/** A SQLite file whose calls can be listed, those of the audit included. */
async function listedStore(t: Test) {
  const store = await openStore(`sqlite:${temporaryFolder(t)}/saas.db`);
  t.teardown(() => store.close());
  const calls: string[] = [];
  const record = async () => void calls.push('audit.record');
  const changes: Record<string, string> = { 'users.insert': 'a change', 'users.changeOne': 'a change' };
  return {
    listed: withEachCall(store, (call, name) => {
      calls.push(name);
      return call();
    }),
    audit: { ...SILENT_AUDIT, record, recordFailure: record },
    /** The calls until the response, sorted. */
    async callsOf(request: () => Promise<unknown>) {
      calls.length = 0;
      await request();
      return calls.map((call) => changes[call] ?? call).sort();
    },
  };
}

t.test('with webhooks, too, a known address takes as many calls of the store as a new one', async (t) => {
  const hook = await receiver(t);
  const clock = fakeClock();
  const { listed, audit, callsOf } = await listedStore(t);
  const users = userCollection(listed);
  const wasMade = async ({ id }: { id: string }) => (await users.findOne({ id })) !== null;
  const webhooks = await webhooksOn(listed, { clock, reach: 'loopback', wasMade });
  await webhooks.add(hook.url, ['user.registered']);
  const announceEvent = webhooks.announce as never;
  const { service, settle } = unverifiedOn(listed, 'register', { announceEvent, audit });

  const first = await callsOf(() => register(service, EMAIL));
  t.same(first, ['a change', 'users.findOne', 'webhook_endpoints.page', 'webhook_intents.insert']);
  await settle();
  t.same(await callsOf(() => register(service, EMAIL)), first);
  await settle();
  await webhooks.send();
  t.same(
    hook.received.map(({ event }) => event.type),
    ['user.registered'],
    'sent once, for the account',
  );
  t.equal(await webhooks.intents.count(), 0);

  await register(service, EMAIL);
  await register(service, 'crashed@example.test');
  clock.advance(60_000);
  await webhooks.run('webhooks-announced');
  await webhooks.send();
  const [, event] = hook.received.map(({ event }) => event.data['user'] as { email: string });
  t.equal(hook.received.length, 2);
  t.equal(event?.email, 'crashed@example.test', 'after a crash, too, it is sent for an account alone');
  t.equal(await webhooks.intents.count(), 0);
});

t.test('two concurrent registrations take as many calls for a known address as for a new one', async (t) => {
  const { listed, audit, callsOf } = await listedStore(t);
  const { service, settle } = unverifiedOn(listed, 'register', { audit });
  await listed.ready();
  const both = () => Promise.all([register(service, EMAIL), register(service, EMAIL)]);
  const first = await callsOf(both);
  t.same(first, ['a change', 'a change', 'users.findOne', 'users.findOne']);
  await settle();
  t.equal(await userCollection(listed).count({ email: EMAIL }), 1);
  t.same(await callsOf(both), first);
});

t.test(
  'in every interleaving with a deletion, an account is recorded if and only if it was stored',
  async (t) => {
    const deletion = async (store: Store) => {
      const users = userCollection(store);
      const user = await users.findOne({ email: EMAIL });
      if (user) await users.deleteOne({ id: user.id });
    };
    const registration = (seed: string) => async (store: Store) => {
      const stored: string[] = [];
      const recorded: string[] = [];
      const users = userCollection(store);
      const insert = async (user: Parameters<typeof users.insert>[0]) => {
        await users.insert(user);
        stored.push(user.id);
      };
      const record = async ({ event, subject = '' }: { event: string; subject?: string }) => {
        if (event === 'user.registered') recorded.push(subject);
      };
      const repeated: string[] = [];
      const recordFailure = async ({ subject = '' }: { subject?: string }) => void repeated.push(subject);
      const { service, settle } = unverifiedOn(store, seed, {
        users: { ...users, insert },
        audit: { ...SILENT_AUDIT, record, recordFailure },
      });
      await register(service, EMAIL);
      await settle();
      return { stored, recorded, repeated };
    };
    const scenario: Scenario = {
      setup,
      actors: [registration('one'), registration('two'), deletion],
      async check(store, results) {
        const users = userCollection(store);
        for (const result of results.slice(0, 2)) {
          insist(result?.status === 'fulfilled', 'a registration has failed');
          const { stored, recorded, repeated } = result.value as Awaited<
            ReturnType<ReturnType<typeof registration>>
          >;
          insist(recorded.join() === stored.join(), `stored ${stored}, recorded ${recorded}`);
          insist(stored.length + repeated.length <= 1, 'both new and repeated');
        }
        insist((await users.count({ email: EMAIL })) <= 1, 'two accounts');
      },
    };
    holds(t, await explore(scenario));
  },
);
