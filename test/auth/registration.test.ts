import t from 'tap';
import type { AuthService } from '../../src/auth/service.js';
import { userCollection } from '../../src/auth/store.js';
import type { Store } from '../../src/storage/collection.js';
import { openStore } from '../../src/storage/open.js';
import { fakeClock } from '../kit/clock.js';
import { explore, type Scenario } from '../kit/explore.js';
import { temporaryFolder } from '../kit/tmp.js';
import { receiver, webhooksOn } from '../webhooks/kit.js';
import { holds, insist, ORIGIN, serviceOn, setup } from './explored-service.js';

/** Registrations of addresses that have to be verified: what is stored before the response, and what is done after it. */

const EMAIL = 'new@example.test';

type ServiceOptions = NonNullable<Parameters<typeof serviceOn>[2]>;

/** A service whose background tasks run when `settle` is called. */
function unverifiedOn(store: Store, seed: string, more: ServiceOptions = {}) {
  const tasks: (() => Promise<void>)[] = [];
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

/** A view of a store that lists its calls, such as `users.findOne`. */
function listing(store: Store, calls: string[]): Store {
  const collection: Store['collection'] = (name, declaration) => {
    const inner = store.collection(name, declaration);
    const listed = Object.entries(inner).map(([method, call]) => [
      method,
      (...values: unknown[]) => {
        calls.push(`${name}.${method}`);
        return (call as (...values: unknown[]) => unknown)(...values);
      },
    ]);
    return Object.fromEntries(listed) as typeof inner;
  };
  return { ...store, collection };
}

t.test('with webhooks, too, a known address takes as many calls of the store as a new one', async (t) => {
  const hook = await receiver(t);
  const clock = fakeClock();
  const store = await openStore(`sqlite:${temporaryFolder(t)}/saas.db`);
  t.teardown(() => store.close());
  const calls: string[] = [];
  const listed = listing(store, calls);
  const users = userCollection(listed);
  const wasMade = async ({ id }: { id: string }) => (await users.findOne({ id })) !== null;
  const webhooks = await webhooksOn(listed, { clock, reach: 'loopback', wasMade });
  await webhooks.add(hook.url, ['user.registered']);
  const announceEvent = webhooks.announce as never;
  const { service, settle } = unverifiedOn(listed, 'register', { announceEvent });

  const callsOf = async (email: string) => {
    calls.length = 0;
    await register(service, email);
    return calls.sort();
  };
  const changes = { 'users.insert': 'a change', 'users.changeOne': 'a change' } as Record<string, string>;
  const kinds = (list: string[]) => list.map((call) => changes[call] ?? call).sort();
  const first = kinds(await callsOf(EMAIL));
  t.same(first, ['a change', 'users.findOne', 'webhook_endpoints.page', 'webhook_intents.insert']);
  await settle();
  t.same(kinds(await callsOf(EMAIL)), first);
  await settle();
  await webhooks.send();
  t.same(
    hook.received.map(({ event }) => event.type),
    ['user.registered'],
    'sent once, for the account',
  );
  t.equal(await webhooks.intents.count(), 0);

  await callsOf(EMAIL);
  await callsOf('crashed@example.test');
  clock.advance(60_000);
  await webhooks.run('webhooks-announced');
  await webhooks.send();
  const [, event] = hook.received.map(({ event }) => event.data['user'] as { email: string });
  t.equal(hook.received.length, 2);
  t.equal(event?.email, 'crashed@example.test', 'after a crash, too, it is sent for an account alone');
  t.equal(await webhooks.intents.count(), 0);
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
        audit: { record, recordFailure },
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
          const [id = ''] = repeated;
          const existing = await users.findOne({ id });
          insist(!existing || existing.registrationRepeatedAt !== undefined, 'a repetition was not stored');
        }
        insist((await users.count({ email: EMAIL })) <= 1, 'two accounts');
      },
    };
    holds(t, await explore(scenario));
  },
);
