import { EventEmitter, once } from 'node:events';
import { createRequire } from 'node:module';
import { connect, type Socket } from 'node:net';
import { setImmediate as endOfTurn } from 'node:timers/promises';
import { inspect } from 'node:util';
import mongodbPlugin, { type mongodb } from '@fastify/mongodb';
import { MongoMemoryServer } from 'mongodb-memory-server-core';
import t, { type Test } from 'tap';
import { type Collection, StoreUnavailable } from '../../../src/core/storage/collection.js';
import { inspectStore, readCollection } from '../../../src/core/storage/inspect.js';
import { Connection } from '../../../src/core/storage/mongodb/connection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { databaseUri, INSTANCE, startReplicaSet } from '../../kit/mongod.js';
import { serverPort } from '../../kit/port.js';
import { waitUntil } from '../../kit/wait.js';
import { contract } from './contract.js';
import { begin, type Thing, thing, things } from './kit.js';
import { type Mongod, onOwnMongod } from './mongod.js';

/** Started here, because it takes until the connection timeout. */
const away = openStore('mongodb://user:hidden@127.0.0.1:1/x').catch((error: unknown) => error);

await onOwnMongod((server) => {
  contract(t, 'mongodb', server.fresh, (t, uri) =>
    server
      .client(t)
      .db(new URL(uri).pathname.slice(1))
      .collection('things')
      .countDocuments({ '_text_label.parts': null }),
  );

  t.test("a host's client is used and left open", (t) => hostsClient(t, server));
  t.test('a connection check stores nothing, and fails where opening fails, as at a newer version', (t) =>
    trials(t, server),
  );
  t.test('an unusable server is reported in one sentence without secrets', (t) => refusedServers(t, server));
  t.test('a server that hangs fails calls after a time limit', { skip: !server.process }, (t) =>
    hangs(t, server),
  );
  t.test('calls succeed again after a server was killed and restarted', { skip: !server.process }, (t) =>
    comesBack(t, server),
  );
  t.test('one connection is enough for calls and commits that arrive together', async (t) => {
    const { store, all } = await begin(t, () => `${server.fresh(t)}&maxPoolSize=1`);
    const notes = store.collection('notes');
    const commits = Array.from({ length: 20 }, (_, i) =>
      store.commit([all.inserting(thing(`${i}`)), notes.ensuring({ id: `${i}` })]),
    );
    t.ok((await Promise.all(commits)).every(({ committed }) => committed));
    t.strictSame(await Promise.all([all.count(), notes.count()]), [20, 20]);
  });
  t.test('calls succeed again after others had taken all connections', { skip: !server.process }, (t) =>
    exhausted(t),
  );
});

t.test('socket errors are reported as an unavailable database, and programming errors are not', async (t) => {
  const connection = new Connection(async () => undefined);
  const failing = (error: Error) => connection.call(() => Promise.reject(error));
  // Node reports a socket closed by its server with this code and without a system call.
  const hungUp = Object.assign(new Error('This socket has been ended by the other party'), { code: 'EPIPE' });
  await t.rejects(failing(hungUp), StoreUnavailable);
  const { PoolClearedOnNetworkError } = createRequire(import.meta.url)('mongodb/lib/cmap/errors.js');
  const cleared = new PoolClearedOnNetworkError({
    address: '127.0.0.1:27017',
    serverError: new Error('timed out'),
  });
  await t.rejects(failing(cleared), StoreUnavailable, 'also an error that the driver does not export');
  const mistake = Object.assign(new TypeError('no string'), { code: 'ERR_INVALID_ARG_TYPE' });
  t.equal(await failing(mistake).catch((error: unknown) => error), mistake);
});

async function hostsClient(t: Test, server: Mongod): Promise<void> {
  const uri = server.fresh(t);
  // Options that a host may have set for itself and that are wrong for this package.
  const client = server.client(t, {
    monitorCommands: true,
    writeConcern: { w: 1, journal: false },
    readPreference: 'secondaryPreferred',
    ignoreUndefined: true,
    promoteLongs: false,
  });
  const sent: mongodb.Document[] = [];
  client.on('commandStarted', ({ commandName, command }) => {
    if (!/^(hello|ping|endSessions|createIndexes)$/.test(commandName)) sent.push(command);
  });
  const db = client.db(new URL(uri).pathname.slice(1));
  const store = await openStore({ mongo: { client, db }, prefix: 'ours_' });
  const all = things(store);
  await all.insert(thing('1', { count: 2 ** 31 - 1 }));
  t.strictSame(await all.updateOne({ id: '1' }, { inc: { count: 1 } }), thing('1', { count: 2 ** 31 }));
  await all.updateMany({ id: '1' }, { set: { at: 1 } });
  await all.findOne({ email: '1@example.com' });
  await all.page({ sort: 'at', limit: 1 });
  await all.count({ at: 1 });
  await all.deleteOne({ id: '1' });
  await all.deleteMany({ at: 1 });
  await store.ready();
  for (const command of sent) {
    const isRead = 'find' in command || 'aggregate' in command;
    t.match(
      command,
      isRead
        ? { readConcern: { level: 'majority' } }
        : { writeConcern: { w: 'majority', j: true, wtimeout: Number } },
    );
    t.match(command['$readPreference'] ?? { mode: 'primary' }, { mode: 'primary' });
  }
  t.ok(sent.length > 9, 'commands were seen');

  const names = (await db.listCollections().toArray()).map(({ name }) => name);
  t.strictSame(names.sort(), ['ours__layout', 'ours_things']);
  const indexes = await db.collection('ours_things').indexes();
  t.strictSame(indexes.map(({ name, unique }) => (unique ? `${name} unique` : name)).sort(), [
    '_id_',
    'at_1__id_1',
    'count_1__id_1',
    'email_1 unique',
    'group_1_at_1__id_1',
    'label_1__id_1',
    'open_1__id_1',
  ]);

  await store.close();
  await t.rejects(all.count(), StoreUnavailable);
  t.match(await db.command({ ping: 1 }), { ok: 1 }, 'the client is open');
}

async function trials(t: Test, server: Mongod): Promise<void> {
  const uri = server.fresh(t);
  const db = server.client(t).db(new URL(uri).pathname.slice(1));
  t.match(await inspectStore(uri), /^answers in \d+ ms: MongoDB \d/);
  t.same(await db.collection('_layout').countDocuments(), 0, 'nothing was written');
  const idsIn = () =>
    readCollection(uri, 'users', async (users: Pick<Collection<{ id: string }>, 'page'>) =>
      (await users.page({ sort: 'id', limit: 9 })).items.map(({ id }) => id),
    );
  t.same(await idsIn(), []);
  t.same(await db.listCollections().toArray(), [], 'nor made by reading a collection');
  await db.collection<{ _id: string }>('users').insertOne({ _id: 'usr_1' });
  t.same(await idsIn(), ['usr_1']);
  t.equal((await db.collection('users').indexes()).length, 1, 'nor an index');

  const store = await openStore(uri);
  await store.close();
  const before = await db.collection('_layout').find().toArray();
  t.match(await inspectStore(uri), /^answers in \d+ ms: MongoDB \d/);
  t.same(await db.collection('_layout').find().toArray(), before);

  await db.collection('_layout').updateOne({}, { $set: { version: 2 } });
  const ways: ((uri: string) => Promise<unknown>)[] = [openStore, inspectStore];
  const newer = /was written by a newer version .layout 2, this one reads 1.$/;
  for (const way of ways) await t.rejects(way(uri), newer, way.name);

  // A database that can be read but refuses writes.
  const refusing = server.fresh(t);
  const validator = { never: { $exists: true } };
  await server.client(t).db(new URL(refusing).pathname.slice(1)).createCollection('_layout', { validator });
  for (const way of ways) {
    await t.rejects(way(refusing), { message: /Document failed validation/ }, way.name);
  }
}

async function refusedServers(t: Test, server: Mongod): Promise<void> {
  for (const uri of ['mongodb://user:hid/den@h/x', 'mongodb://h/x?hidden=1', 'mongodb://h:hidden/x']) {
    const error = await t.rejects(openStore(uri), TypeError);
    t.match(error, { message: /^the MongoDB URI cannot be read/ });
    t.notMatch(inspect(error), /hid/);
  }
  const stranger = new URL(server.fresh(t));
  stranger.username = 'stranger';
  stranger.password = 'hidden';
  const unknown = await t.rejects(openStore(stranger.href), StoreUnavailable);
  t.match(unknown, { message: 'MongoDB: Authentication failed.', remedy: /^Correct the user, the password/ });
  t.notMatch(inspect(unknown, { depth: 9 }), /hidden/);
  if (server.process) {
    const single = await MongoMemoryServer.create({ instance: INSTANCE });
    t.teardown(() => single.stop());
    await t.rejects(openStore(single.getUri('x')), /make it a replica set, one member is enough/);
  }
  const error = await away;
  t.type(error, StoreUnavailable);
  t.match(error, {
    message: 'MongoDB: connect ECONNREFUSED 127.0.0.1:1',
    retryAfter: 5,
    remedy: /^Start it, or correct the hosts/,
  });
  t.notMatch(inspect(error, { depth: 9 }), /hidden/);
}

/** Concurrent calls while a server is stopped. */
const LANES = 8;

/** Repeats calls until stopped. Each document's `at` and `count` change together, once per call. */
function load(t: Test, all: Collection<Thing>) {
  let going = true;
  const events = new EventEmitter();
  const acknowledged = new Map<string, number>();
  const refused: unknown[] = [];
  const refusedLanes = new Set<string>();
  const lane = async (id: string): Promise<void> => {
    while (going) {
      try {
        const after = await all.updateOne({ id }, { inc: { at: 1, count: 1 } });
        acknowledged.set(id, after?.count ?? Number.NaN);
        events.emit('acknowledged');
      } catch (error) {
        refused.push(error);
        refusedLanes.add(id);
        events.emit('refused');
        // A refusal may come at once, and only a turn of the event loop lets the driver notice the server again.
        await endOfTurn();
      }
    }
  };
  const ids = Array.from({ length: LANES }, (_, i) => `l${i}`);
  const ended = Promise.all(ids.map((id) => lane(id)));
  return {
    refusedLanes,
    next: (event: 'acknowledged' | 'refused') => once(events, event),
    async stop() {
      going = false;
      await ended;
      for (const error of refused) t.type(error, StoreUnavailable);
      for (const id of ids) {
        const doc = await all.findOne({ id });
        t.equal(doc?.at, doc?.count, 'nothing is half done');
        t.ok((doc?.count ?? 0) >= (acknowledged.get(id) ?? 0), 'nothing acknowledged is missing');
      }
    },
  };
}

async function loaded(t: Test, server: Mongod) {
  const { all } = await begin(t, server.fresh);
  await Promise.all(Array.from({ length: LANES }, (_, i) => all.insert(thing(`l${i}`))));
  return { all, calls: load(t, all) };
}

async function hangs(t: Test, server: Mongod): Promise<void> {
  const { all, calls } = await loaded(t, server);
  await calls.next('acknowledged');
  server.process?.signal('SIGSTOP');
  t.teardown(() => server.process?.signal('SIGCONT'));
  const error = await t.rejects(all.findOne({ id: 'l0' }), StoreUnavailable);
  t.match(error, { message: /^MongoDB: / });
  // Including lanes whose call had already reached the server.
  while (calls.refusedLanes.size < LANES) await calls.next('refused');
  server.process?.signal('SIGCONT');
  await calls.next('acknowledged');
  await all.insert(thing('after'));
  await calls.stop();
}

async function comesBack(t: Test, server: Mongod): Promise<void> {
  const { all, calls } = await loaded(t, server);
  await calls.next('acknowledged');
  const refused = calls.next('refused');
  const restart = await server.process?.killAndRestart();
  const error = await t.rejects(all.insert(thing('away')), StoreUnavailable);
  t.match(error, { message: /^MongoDB: / });
  await refused;
  await restart?.();
  await calls.next('acknowledged');
  await all.insert(thing('after'));
  await calls.stop();
}

async function exhausted(t: Test): Promise<void> {
  const set = await startReplicaSet({ ports: [await serverPort()], args: ['--maxConns', '40'] });
  t.teardown(() => set.stop());
  // The library chooses another port if the requested one is taken.
  const port = Number(new URL(set.getUri()).port);
  const { all } = await begin(t, () => databaseUri(set.getUri(), 'exhausted'));
  await Promise.all(Array.from({ length: LANES }, (_, i) => all.insert(thing(`l${i}`))));
  const client = new mongodbPlugin.mongodb.MongoClient(set.getUri());
  t.teardown(() => client.close());
  const others = new Set<Socket>();
  const take = () => {
    const socket = connect(port, '127.0.0.1');
    others.add(socket);
    socket.on('error', () => {}).on('close', () => others.delete(socket));
  };
  await waitUntil('no connection is left', async () => {
    take();
    const { connections } = await client.db('admin').command({ serverStatus: 1 });
    // The server may have admitted one too many.
    return connections.available <= 0;
  });
  const calls = load(t, all);
  await waitUntil('a refused call', () => {
    // Also those that the driver gives up.
    take();
    return calls.refusedLanes.size > 0;
  });
  for (const socket of others) socket.destroy();
  await calls.next('acknowledged');
  await all.insert(thing('after'));
  await calls.stop();
}
