/** The storage contract on PostgreSQL, and what is specific to this engine. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import pg from 'pg';
import t, { type Test } from 'tap';
import { type Store, StoreUnavailable } from '../../../src/core/storage/collection.js';
import type { HostPool } from '../../../src/core/storage/host-database.js';
import {
  collectionNames,
  inspectStore,
  readCollection,
  serverTimeOf,
} from '../../../src/core/storage/inspect.js';
import { openStore } from '../../../src/core/storage/open.js';
import { RequestBudget } from '../../../src/core/storage/request-budget.js';
import { startPostgres } from '../../kit/postgres.js';
import { gate, waitUntil } from '../../kit/wait.js';
import { contract } from './contract.js';
import { begin, type Thing, thing, things } from './kit.js';
import { onOwnPostgres, type Postgres } from './postgres.js';

await onOwnPostgres((postgres) => {
  const { fresh } = postgres;
  contract(t, 'postgresql', fresh, async (t, uri) => {
    const table = `${new URL(uri).searchParams.get('schema')}.things`;
    const { rows } = await (await postgres.client(t)).query(`SELECT 1 FROM ${table} WHERE NOT _indexed`);
    return rows.length;
  });

  t.test('the contract holds although the database sorts by the rules of a language', async (t) => {
    const setting = "current_setting('server_version_num')::int < 150000 AS is_old";
    const { rows } = await (await postgres.client(t)).query(`SELECT 'a' < 'B' AS is_natural, ${setting}`);
    // The packages of earlier versions have no such collation for a database.
    t.ok(rows[0].is_natural || rows[0].is_old);
  });

  t.test('one connection is enough for calls that arrive together and create their tables', async (t) => {
    const uri = `${fresh(t)}&connection_limit=1`;
    const store = await opened(t, uri);
    const all = things(store);
    const notes = store.collection('notes');
    const commits = Array.from({ length: 20 }, (_, i) =>
      store.commit([all.inserting(thing(`${i}`)), notes.inserting({ id: `${i}` })]),
    );
    t.ok((await Promise.all(commits)).every(({ committed }) => committed));
    t.strictSame(await Promise.all([all.count(), notes.count()]), [20, 20]);
  });

  t.test('look-ups, and changes by ID, of one turn share a call', async (t) => {
    const uri = new URL(fresh(t));
    const schema = uri.searchParams.get('schema') as string;
    uri.search = '';
    const pool = new pg.Pool({ connectionString: uri.href });
    t.teardown(() => pool.end());
    let calls = 0;
    const connect: HostPool['pool']['connect'] = (callback) => {
      calls++;
      pool.connect(callback);
    };
    const store = await openStore({ pool: { connect }, schema });
    t.teardown(() => store.close());
    const all = things(store);
    const ids = Array.from({ length: 50 }, (_, index) => String(index));
    await all.insertMany(ids.map((id) => thing(id)));

    calls = 0;
    const found = await Promise.all(['49', '7', 'missing', '7'].map((id) => all.findOne({ id })));
    t.strictSame(
      found.map((one) => one?.id),
      ['49', '7', undefined, '7'],
    );
    t.not(found[1], found[3], 'each caller gets an object of its own');
    t.equal((await all.findOne({ email: '1@example.com' }))?.id, '1');
    t.equal(calls, 2);

    calls = 0;
    const change = { set: { group: 'a' }, inc: { count: 1 } };
    const changed = await Promise.all(['3', ...ids, 'missing'].map((id) => all.changeOne({ id }, change)));
    t.strictSame(changed, [...changed.slice(1).map(() => true), false]);
    t.equal(calls, 1);
    t.equal((await all.findOne({ id: '3' }))?.count, 2);

    const emails = ['new@example.com', '9@example.com', 'newer@example.com'];
    const results = await Promise.allSettled(
      emails.map((email, index) => all.changeOne({ id: String(index) }, { set: { email } })),
    );
    t.match(results, [{ value: true }, { reason: { field: 'email' } }, { value: true }]);
  });

  t.test('processes that start together create the tables once', async (t) => {
    const uri = fresh(t);
    const stores = await Promise.all(Array.from({ length: 4 }, () => opened(t, uri)));
    const collections = stores.map(things);
    await Promise.all(stores.map((store) => store.ready()));
    await Promise.all(collections.map((all, i) => all.insert(thing(`${i}`))));
    t.equal(await collections[0]?.count(), 4);
    t.strictSame(await collectionNames(uri), ['things']);
  });

  t.test('a user who may not create tables is told the SQL, and needs no more afterwards', (t) =>
    withoutPrivileges(t, postgres),
  );

  t.test('a commit is made once, whenever its connection is lost', (t) => lostConnections(t, postgres));

  t.test('what waits for a lock ends with its call and has no effect afterwards', async (t) => {
    const { uri, all } = await begin(t, fresh);
    await all.insert(thing('1'));
    const { client, table } = await lock(t, postgres, uri, '1');
    const call = new RequestBudget(300).run(() => all.updateOne({ id: '1' }, { set: { at: 1 } }));
    await t.rejects(call, StoreUnavailable);
    const other = await postgres.client(t);
    const waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1";
    await waitUntil('a lock', async () => (await other.query(waiting, [`%${table}%`])).rows.length === 0);
    await client.query('ROLLBACK');
    t.strictSame(await all.findOne({ id: '1' }), thing('1'));
  });

  t.test('a commit that a deadlock has ended is repeated', async (t) => {
    const { uri, store, all } = await begin(t, fresh);
    await all.insertMany([thing('1'), thing('2')]);
    const { client, table } = await lock(t, postgres, uri, '2');
    // The other side must detect the deadlock, and is ended then.
    await client.query("SET LOCAL deadlock_timeout = '1h'");
    // Not by the id: those would be locked in the same order.
    const change = (email: string) => all.changing({ email }, { inc: { count: 1 } });
    const commit = store.commit([change('1@example.com'), change('2@example.com')]);
    const other = await postgres.client(t);
    const waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1";
    await waitUntil('a lock', async () => (await other.query(waiting, [`%${table}%`])).rows.length === 1);
    await client.query(`UPDATE ${table} SET doc = doc WHERE id = '1'`);
    await client.query('COMMIT');
    t.strictSame(await commit, { committed: true });
    t.equal(await all.count({ count: 1 }), 2);
  });

  t.test("a host's pool is used, whatever it parses, and left open", async (t) => {
    const uri = new URL(fresh(t));
    const schema = uri.searchParams.get('schema') as string;
    uri.search = '';
    const types = { getTypeParser: () => () => 'parsed by the host' };
    const pool = new pg.Pool({ connectionString: uri.href, types: types as never });
    t.teardown(() => pool.end());
    const store = await openStore({ pool, schema });
    const all = things(store);
    await all.insert(thing('1', { at: 1, free: { a: [1] } }));
    t.strictSame(await all.findOne({ id: '1' }), thing('1', { at: 1, free: { a: [1] } }));
    t.strictSame(await store.commit([all.deleting({ id: '1' })]), { committed: true });
    t.equal(await all.count(), 0);
    await store.close();
    t.equal((await pool.query('SELECT 1')).rowCount, 1);
  });

  t.test('a schema of a newer version is refused, and noticed by a running program', async (t) => {
    const { uri, store } = await begin(t, fresh);
    await store.ready();
    const schema = schemaOf(uri);
    await (await postgres.client(t)).query(`UPDATE ${schema}._layout SET version = 2`);
    const newer = /written by a newer version \(layout 2, this one reads 1\)/;
    await t.rejects(store.ready(), newer);
    await t.rejects(openStore(uri), newer);
    await t.rejects(inspectStore(uri), newer);
  });

  t.test('a store is inspected and read without a change', async (t) => {
    const uri = fresh(t);
    t.match(
      await inspectStore(uri),
      /^answers in \d+ ms: PostgreSQL \d.*; the first start creates its tables$/,
    );
    t.equal(await readCollection(uri, 'things', (all) => all.count()), null);
    const client = await postgres.client(t);
    const schemas = await client.query('SELECT 1 FROM pg_namespace WHERE nspname = $1', [schemaOf(uri)]);
    t.equal(schemas.rowCount, 0);
    const all = things(await opened(t, uri));
    await all.insert(thing('1', { at: 1 }));
    t.equal(
      await readCollection<Thing, number>(uri, 'things', (all) => all.count({ at: 1 }), { numbers: ['at'] }),
      1,
    );
    const unknown = { fields: ['free'] } as never;
    t.equal(await readCollection<Thing, number>(uri, 'things', (all) => all.count(), unknown), null);
    t.match(await inspectStore(uri), /^answers in \d+ ms: PostgreSQL \d[^;]*$/);
    t.ok(Math.abs(((await serverTimeOf(uri)) ?? 0) - Date.now()) < 60_000);
  });

  t.test('acknowledged writes survive a crash of the server, and calls wait for its return', async (t) => {
    const { server } = postgres;
    if (!server) {
      t.pass('the server belongs to others');
      return;
    }
    const { store, all } = await begin(t, fresh);
    await all.insert(thing('1'));
    await store.commit([all.inserting(thing('2')), all.changing({ id: '1' }, { set: { at: 1 } })]);
    const restart = await server.crash('SIGQUIT');
    const waiting = [all.findOne({ id: '1' }), store.commit([all.inserting(thing('3'))])];
    const expired = new RequestBudget(200).run(() => all.insert(thing('4')));
    t.match(await t.rejects(expired, StoreUnavailable), {
      message: /ECONNREFUSED/,
      mayHaveTakenEffect: false,
      remedy: /Start it/,
    });
    await restart();
    t.strictSame(await Promise.all(waiting), [thing('1', { at: 1 }), { committed: true }]);
    t.equal(await all.count(), 3);
    await store.ready();
  });

  t.test('a program that starts at a standby waits until it is the primary', async (t) => {
    if (!postgres.server) return;
    const standby = await startPostgres({}, postgres.server);
    t.teardown(() => standby.stop());
    const opening = openStore(standby.uri);
    const client = new pg.Client(standby.uri);
    t.teardown(() => client.end());
    await client.connect();
    const program = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'saas-backend'";
    await waitUntil('an attempt', async () => (await client.query(program)).rows.length > 0);
    await client.query('SELECT pg_promote()');
    const store = await opening;
    t.teardown(() => store.close());
    await things(store).insert(thing('1'));
  });

  t.test('a commit that waits for a standby is not seen until then, and keeps its connection', async (t) => {
    const { server } = postgres;
    if (!server) return;
    const standby = await startPostgres({}, server);
    t.teardown(() => standby.stop());
    const client = await postgres.client(t);
    const wait = async (names: string, condition: string) => {
      await client.query(`ALTER SYSTEM SET synchronous_standby_names = '${names}'`);
      await client.query('SELECT pg_reload_conf()');
      await waitUntil(condition, async () => (await client.query(`SELECT ${condition}`)).rows[0].found);
    };
    const store = await opened(t, `${fresh(t)}&connection_limit=1`);
    const all = things(store);
    await all.insert(thing('1'));
    await wait('*', "count(*) > 0 AS found FROM pg_stat_replication WHERE sync_state = 'sync'");
    await all.insert(thing('2'));
    standby.signal('SIGSTOP');
    t.teardown(() => standby.signal('SIGCONT'));
    const waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let commits = 0;
    await waitUntil('three connections wait', async () => {
      const writes = [all.inserting(thing(`commit-${++commits}`))];
      const commit = new RequestBudget(300).run(() => store.commit(writes));
      await t.rejects(commit, StoreUnavailable);
      return (await client.query(`SELECT count(*)::int ${waiting}`)).rows[0].count === 3;
    });
    t.equal(await all.count(), 2, 'a failover could still lose them');
    await wait('', `count(*) = 0 AS found ${waiting}`);
    t.ok((await all.count()) >= 5);
  });

  t.test('a server that cannot be used is reported with its remedy', async (t) => {
    if (!postgres.server) return;
    const uri = new URL(fresh(t));
    uri.pathname = '/missing';
    await t.rejects(openStore(uri.href), { name: 'StoreUnavailable', remedy: /Create the database/ });
    uri.pathname = '/postgres';
    uri.username = 'stranger';
    await t.rejects(openStore(uri.href), { name: 'StoreUnavailable', remedy: /Correct the user/ });
  });
});

async function opened(t: Test, uri: string): Promise<Store> {
  const store = await openStore(uri);
  t.teardown(() => store.close());
  return store;
}

const schemaOf = (uri: string): string => new URL(uri).searchParams.get('schema') as string;

/** Another client that has locked a document. */
async function lock(
  t: Test,
  postgres: Postgres,
  uri: string,
  id: string,
): Promise<{ client: pg.Client; table: string }> {
  const client = await postgres.client(t);
  const table = `"${schemaOf(uri)}"."things"`;
  await client.query('BEGIN');
  await client.query(`UPDATE ${table} SET doc = doc WHERE id = $1`, [id]);
  return { client, table };
}

async function withoutPrivileges(t: Test, postgres: Postgres): Promise<void> {
  const uri = new URL(postgres.fresh(t));
  const schema = schemaOf(uri.href);
  const role = `${schema}_user`;
  const client = await postgres.client(t);
  await client.query(`CREATE ROLE ${role} LOGIN`);
  t.teardown(() => client.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
  uri.username = role;

  /** Lets the owner run what a program has asked for. */
  const follow = async (call: Promise<unknown>): Promise<void> => {
    const { remedy = '' } = (await t.rejects(call, StoreUnavailable)) as unknown as StoreUnavailable;
    await client.query(remedy.slice(remedy.indexOf('\n')));
    await client.query(`GRANT USAGE ON SCHEMA ${schema} TO ${role}`);
    await client.query(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO ${role}`);
  };
  await t.rejects(inspectStore(uri.href), { name: 'StoreUnavailable', remedy: /CREATE SCHEMA/ });
  await follow(openStore(uri.href));
  const store = await opened(t, uri.href);
  const all = things(store);
  await follow(store.ready());
  await store.ready();
  await all.insert(thing('1'));
  t.strictSame(await store.commit([all.changing({ id: '1' }, { set: { at: 1 } })]), { committed: true });
  t.strictSame(await all.findOne({ at: 1 }), thing('1', { at: 1 }));
  t.equal(await things(await opened(t, uri.href)).count(), 1);
  await client.query(`REVOKE UPDATE ON ${schema}.things FROM ${role}`);
  const refusal = { name: 'StoreUnavailable', message: /things/, remedy: /^GRANT SELECT, INSERT/ };
  await t.rejects(inspectStore(uri.href), refusal);
  await t.rejects(store.ready(), refusal);
}

/** What a proxy does with the next message that it recognizes. */
type Fault = 'lose the request' | 'lose the response' | 'delay the request';

/** Commits through a proxy that loses one message. */
async function lostConnections(t: Test, postgres: Postgres): Promise<void> {
  const direct = new URL(postgres.fresh(t));
  const proxy = await startProxy(t, direct);
  const proxied = new URL(direct);
  proxied.host = `127.0.0.1:${proxy.port}`;
  const store = await opened(t, proxied.href);
  const all = things(store);
  await all.insert(thing('1', { count: 0 }));
  const add = (id: string) =>
    store.commit([all.changing({ id: '1' }, { inc: { count: 1 } }), all.inserting(thing(id))]);
  const faults: Fault[] = ['lose the request', 'lose the response', 'delay the request'];
  for (const [i, fault] of faults.entries()) {
    // The marker of a commit.
    const faulty = proxy.next(fault, '_commits');
    t.strictSame(await add(`${i + 2}`), { committed: true }, fault);
    await faulty.happened;
    await faulty.deliver();
    t.equal((await all.findOne({ id: '1' }))?.count, i + 1, fault);
    t.equal(await all.count(), i + 2);
  }
  // The first attempt had no effect, so the second meets what has changed meanwhile.
  const unmet = all.changing({ id: '1', count: 3 }, { set: { count: 4 } });
  proxy.next('lose the response', '_commits');
  t.strictSame(
    await store.commit([unmet]),
    { committed: true },
    'a condition is not checked again after the commit',
  );

  const lost = proxy.next('lose the response', 'UPDATE');
  const error = await t.rejects(all.updateOne({ id: '1' }, { inc: { count: 1 } }), StoreUnavailable);
  t.match(error, { mayHaveTakenEffect: true }, 'a single write is reported');
  await lost.happened;
  t.equal((await all.findOne({ id: '1' }))?.count, 5);
  proxy.next('lose the response', 'SELECT id, doc');
  t.equal((await all.findOne({ id: '1' }))?.count, 5, 'a read is repeated');

  proxy.next('lose the response', '_commits');
  proxy.close();
  const unsettled = await t.rejects(
    new RequestBudget(300).run(() => add('9')),
    StoreUnavailable,
  );
  t.match(unsettled, { mayHaveTakenEffect: true }, 'without a server, the outcome remains unknown');
  t.match(
    await t.rejects(
      new RequestBudget(300).run(() => add('10')),
      StoreUnavailable,
    ),
    {
      message: /ECONNREFUSED/,
      mayHaveTakenEffect: false,
    },
  );
}

interface Proxy {
  port: number;
  /** Closes the connection at the next message that contains a text. `deliver` sends what was delayed, and waits for the end. */
  next(fault: Fault, text: string): { happened: Promise<unknown>; deliver(): Promise<void> };
  /** Accepts no more connections. */
  close(): void;
}

async function startProxy(t: Test, { hostname, port }: URL): Promise<Proxy> {
  let armed: { fault: Fault; text: string; happen(): void; delayed?: () => Promise<void> } | undefined;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => socket.destroy());
    }
    let losesResponse = false;
    client.on('data', (data) => {
      if (!armed || !data.includes(armed.text)) return void upstream.write(data);
      const { fault, happen } = armed;
      if (fault === 'lose the response') {
        losesResponse = true;
        return void upstream.write(data);
      }
      client.destroy();
      if (fault === 'lose the request') upstream.destroy();
      else
        armed.delayed = async () => {
          upstream.end(data);
          if (!upstream.closed) await once(upstream, 'close');
        };
      armed.text = '\0 once';
      happen();
    });
    upstream.on('data', (data) => {
      if (!losesResponse) return void client.write(data);
      losesResponse = false;
      client.destroy();
      upstream.destroy();
      if (armed) armed.text = '\0 once';
      armed?.happen();
    });
    client.on('close', () => armed?.delayed || upstream.end());
    upstream.on('close', () => client.destroy());
  });
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    port: (server.address() as { port: number }).port,
    next(fault, text) {
      const { open: happen, opened: happened } = gate();
      const mine = { fault, text, happen } as NonNullable<typeof armed>;
      armed = mine;
      return { happened, deliver: async () => await mine.delayed?.() };
    },
    close: () => void server.close(),
  };
}
