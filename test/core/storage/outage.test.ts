/** Outages of a replica set of three members, as the clients of both products see them. */

import { EventEmitter } from 'node:events';
import mongodbPlugin from '@fastify/mongodb';
import fastify from 'fastify';
import t, { type Test } from 'tap';
import { access, registerRoutes } from '../../../src/core/http/routes.js';
import { INCOMPLETE, streamText } from '../../../src/core/http/streams.js';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { createBackgroundTasks } from '../../../src/core/ops/background-tasks.js';
import { Semaphore } from '../../../src/core/ops/semaphore.js';
import { CALL_TIMEOUT_MS } from '../../../src/core/storage/calls.js';
import { StoreUnavailable } from '../../../src/core/storage/collection.js';
import { Connection } from '../../../src/core/storage/mongodb/connection.js';
import { CurrentReads } from '../../../src/core/storage/mongodb/current-reads.js';
import { openStore } from '../../../src/core/storage/open.js';
import { currentBudget, RequestBudget } from '../../../src/core/storage/request-budget.js';
import { PASSWORD, type SaasApp, saasApp } from '../../kit/app.js';
import { type IdpApp, idpApp } from '../../kit/idp.js';
import { pluginRules } from '../../kit/plugin-rules.js';
import { waitUntil } from '../../kit/wait.js';
import { thing, things } from './kit.js';
import { onReplicaSet, type ReplicaSet } from './replica-set.js';

const STORE_TIMEOUT_MS = 20;

/** The rules of a plugin at the root whose requests wait for the store so long. */
const rulesOf = (storeTimeoutMs: number) => pluginRules({ prefix: '', isPlugin: false, storeTimeoutMs });

t.test('the calls of one request share one time limit, also after its body was read', async (t) => {
  const connection = new Connection(async () => undefined);
  let sent = 0;
  const never = () => {
    sent++;
    return new Promise<never>(() => {});
  };
  const failures: unknown[] = [];
  const attempt = () => connection.call(never).catch((error: unknown) => void failures.push(error));
  const app = fastify();
  t.teardown(() => app.close());
  const log = { error: () => undefined };
  const tasks = createBackgroundTasks(log as never);
  let later: unknown;
  await registerRoutes(app, rulesOf(STORE_TIMEOUT_MS), async (instance) => {
    const config = access('public');
    for (const method of ['GET', 'POST'] as const) {
      instance.route({
        method,
        url: '/',
        config,
        async handler() {
          await attempt();
          await attempt();
          tasks.run('later', async () => {
            later = await connection.call(async () => 'sent');
          });
          return '';
        },
      });
    }
  });
  const url = await app.listen({ port: 0, host: '127.0.0.1' });
  await (await fetch(url)).text();
  t.equal(sent, 1, 'without time left, the second call is not sent');
  const headers = { 'content-type': 'application/json' };
  await (await fetch(url, { method: 'POST', headers, body: '{"a":1}' })).text();
  t.equal(sent, 2);
  t.equal(failures.length, 4);
  for (const error of failures) t.type(error, StoreUnavailable);
  await tasks.settled();
  t.equal(later, 'sent', 'work after the response has its own time');
});

t.test(
  'requests that take turns wait for the time limit of one, and leave the queue with their client',
  async (t) => {
    const turns = new Semaphore(1, 100);
    const ends: (() => void)[] = [];
    const start = async (storeTimeoutMs: number) => {
      const app = fastify();
      t.teardown(() => app.close());
      await registerRoutes(app, rulesOf(storeTimeoutMs), async (instance) => {
        instance.get('/', { config: access('public') }, async () => {
          const work = () => new Promise<void>((resolve) => ends.push(resolve));
          await turns.run(work, undefined, currentBudget());
          return '';
        });
      });
      const url = await app.listen({ port: 0, host: '127.0.0.1' });
      return async (signal?: AbortSignal) => {
        const response = await fetch(url, { ...(signal && { signal }) });
        await response.text();
        return response.status;
      };
    };
    const [patient, limited] = [await start(60_000), await start(STORE_TIMEOUT_MS)];
    const first = patient();
    await waitUntil('the first has its turn', () => ends.length === 1);
    t.same(await Promise.all(Array.from({ length: 5 }, () => limited())), [503, 503, 503, 503, 503]);
    t.equal(turns.load.waiting, 0);

    const gone = new AbortController();
    const second = patient(gone.signal);
    await waitUntil('the second waits', () => turns.load.waiting === 1);
    gone.abort();
    await t.rejects(second);
    await waitUntil('it has left the queue', () => turns.load.waiting === 0);
    ends[0]?.();
    t.equal(await first, 200);
    const third = patient();
    await waitUntil('the third has its turn', () => ends.length === 2);
    ends[1]?.();
    t.equal(await third, 200);
  },
);

t.test('a stream is limited per call, and breaks visibly when one fails', async (t) => {
  const connection = new Connection(async () => undefined);
  const app = fastify();
  t.teardown(() => app.close());
  const never = () => new Promise<never>(() => {});
  async function* lines(fails: boolean) {
    for (let line = 1; line <= 3; line++) yield `${await connection.call(async () => line)}\n`;
    if (fails) throw new StoreUnavailable('gone');
  }
  await registerRoutes(app, rulesOf(STORE_TIMEOUT_MS), async (instance) => {
    for (const path of ['/whole', '/broken']) {
      instance.get(path, { config: access('public') }, async (request, reply) => {
        // The request has no time left.
        await connection.call(never).catch(() => undefined);
        return streamText(request, reply, lines(path === '/broken'));
      });
    }
  });
  const url = await app.listen({ port: 0, host: '127.0.0.1' });
  t.equal(await (await fetch(`${url}/whole`)).text(), '1\n2\n3\n');
  const { body } = await fetch(`${url}/broken`);
  let text = '';
  const read = async () => {
    for await (const chunk of body ?? []) text += Buffer.from(chunk).toString();
  };
  await t.rejects(read(), 'the chunked encoding is aborted');
  t.equal(text, `1\n2\n3\n\n${INCOMPLETE}\n`);
});

t.test('calls of one request that wait at the same time count once', (t) => {
  let now = 0;
  const budget = new RequestBudget(5000, () => now);
  const ends = [1, 2, 3].map(() => budget.beginWait());
  now = 1000;
  t.equal(budget.leftMs(), 4000);
  for (const end of ends) end();
  ends[0]?.();
  now = 9000;
  t.equal(budget.leftMs(), 4000, 'the time between two calls does not count');
  t.end();
});

t.test('reads wait until the majority has confirmed a write of a new primary', async (t) => {
  const client = new EventEmitter();
  const topology = (electionId: string) => ({
    servers: new Map([['a', { type: 'RSPrimary', address: 'a', electionId }]]),
  });
  let current = topology('0');
  const elect = (electionId: string) => {
    const newDescription = topology(electionId);
    client.emit('topologyDescriptionChanged', { previousDescription: current, newDescription });
    current = newDescription;
  };
  let confirmations = 0;
  let isReachable = true;
  const reads = new CurrentReads(client, async () => {
    if (!isReachable) throw new Error('unreachable');
    confirmations++;
  });
  const read = () => reads.read(async () => confirmations);
  elect('0');
  t.equal(await read(), 0, 'opening the store has confirmed the first one');
  elect('1');
  t.same(await Promise.all([read(), read()]), [1, 1], 'once for all reads');
  elect('1');
  t.equal(await read(), 1, 'an event without an election');
  isReachable = false;
  elect('2');
  await t.rejects(read(), /unreachable/);
  isReachable = true;
  let tries = 0;
  const result = await reads.read(async () => {
    // The driver repeats it at the next primary, which has less to show.
    if (++tries === 1) elect('3');
    return confirmations;
  });
  t.same([tries, result], [2, 3], 'a read during an election is repeated');
  reads.stop();
  t.equal(client.listenerCount('topologyDescriptionChanged'), 0);
});

await onReplicaSet((set) => {
  t.test('a store that is opened while there is no primary waits for one', (t) =>
    startsWithoutPrimary(t, set),
  );
  t.test('what took effect unnoticed while the majority was frozen is repeated without penalty', (t) =>
    frozenMajority(t, set),
  );
});

/** Both products: refreshes, a code and links, answered 503 by one process, repeated at another one. */
async function frozenMajority(t: Test, set: ReplicaSet): Promise<void> {
  const [saasUri, idpUri] = [set.fresh(), set.fresh()];
  const app = await saasApp(t, { databaseUri: saasUri });
  const other = await saasApp(t, { databaseUri: saasUri, clock: app.clock });
  const idp = await idpApp(t, { databaseUri: idpUri, clock: app.clock });
  const otherIdp = await idpApp(t, { databaseUri: idpUri, clock: app.clock });
  const { refreshToken, id } = await app.signUp();
  const users = set.client(t, saasUri).db().collection<{ _id: string }>('users');
  const token = `${id}.${'x'.repeat(43)}`;
  const link = { unlockHash: sha256(token), unlockExpiresAt: app.clock.now() + 3_600_000 };
  await users.updateOne({ _id: id }, { $set: link });
  const unlock = (at: SaasApp) => at.request('POST', '/api/auth/unlock', { body: { token } });
  const invited = await idp.admin('POST', '/v1/invites', { handle: 'ada@example.test' });
  const invitation = new URL(invited.body.invite_url).pathname;
  const accept = (at: IdpApp) => at.request('POST', invitation, { body: { password: PASSWORD } });
  const agent = await idp.mintAgent();
  const client = await idp.createClient();
  // Its refresh tokens rotate.
  const native = await idp.createClient({ public: true });
  const offline = await idp.codeFor(native, agent, { scope: 'openid offline_access', prompt: 'consent' });
  const family: string = (await idp.redeem(native, offline)).body.refresh_token;
  const code = await idp.codeFor(client, agent);
  const repeated = await idp.codeFor(client, agent);
  const refresh = (at: SaasApp) => at.request('POST', '/api/auth/refresh', { body: { refreshToken } });

  const primary = await set.primary();
  // Otherwise, the members that lack the writes could elect one of them and revert the writes.
  await set.prefer(primary);
  const thaw = set.freeze(t, (address) => address !== primary);
  const failed = await Promise.all([
    refresh(app),
    idp.refresh(native, family),
    idp.redeem(client, code),
    unlock(app),
    accept(idp),
    idp.redeem(client, repeated),
  ]);
  t.same(
    failed.map(({ status }) => status),
    [503, 503, 503, 503, 503, 503],
  );
  app.clock.advance(45_000);
  thaw();
  // At once, before the first process has settled its write.
  const tokens = await untilAnswered(() => otherIdp.redeem(client, repeated));
  t.equal(tokens.status, 200, 'a code that was answered 503 is not used');
  t.equal((await otherIdp.userinfo(tokens.body.access_token)).status, 200);
  t.equal((await idp.redeem(client, repeated)).status, 400, 'now it is');
  t.equal((await otherIdp.userinfo(tokens.body.access_token)).status, 401);
  await set.primary();
  const sessions = set.client(t, saasUri).db().collection('sessions');
  const grants = set.client(t, idpUri).db().collection('grants');
  await waitUntil('the writes are settled', async () => {
    const now = app.clock.now();
    const settled = await Promise.all([
      sessions.countDocuments({ rotatedAt: now }),
      grants.countDocuments({ rotatedAt: now }),
      grants.countDocuments({ consumedAt: { $exists: false } }),
    ]);
    return settled.join() === '1,1,1';
  });
  t.equal((await refresh(other)).status, 200);
  t.equal((await otherIdp.refresh(native, family)).status, 200);
  t.equal((await otherIdp.redeem(client, code)).status, 200);
  t.equal((await unlock(other)).status, 200);
  t.equal((await unlock(other)).status, 200, 'the same request, until the link would have expired');
  t.equal((await accept(otherIdp)).status, 201);
  t.equal((await accept(otherIdp)).status, 201);
  app.clock.advance(45_000);
  t.equal((await refresh(other)).body.error.code, 'REFRESH_TOKEN_REUSED', 'the window closes again');
}

/** Repeats a request that is answered 503. */
async function untilAnswered<T extends { status: number }>(send: () => Promise<T>): Promise<T> {
  for (;;) {
    const answer = await send();
    if (answer.status !== 503) return answer;
  }
}

/** Opens a store while the set has no primary for longer than the driver waits for one. */
async function startsWithoutPrimary(t: Test, set: ReplicaSet): Promise<void> {
  const uri = set.fresh();
  const primary = await set.primary();
  let kept: string | undefined;
  // Two of three: the other one answers, and cannot be elected.
  const thaw = set.freeze(t, (address) => {
    if (address !== primary) kept ??= address;
    return address !== kept;
  });
  const opening = openStore(uri);
  const impatient = new mongodbPlugin.mongodb.MongoClient(uri, { serverSelectionTimeoutMS: CALL_TIMEOUT_MS });
  t.teardown(() => impatient.close());
  await t.rejects(impatient.connect(), { name: 'MongoServerSelectionError' });
  thaw();
  const store = await opening;
  await things(store).insert(thing('a'));
  await store.close();
}
