import { once } from 'node:events';
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { StoreUnavailable, UniqueViolation } from '../../../src/core/storage/collection.js';
import { storeUriProblem } from '../../../src/core/storage/engines.js';
import { lowDiskSpace, readCollection } from '../../../src/core/storage/inspect.js';
import { openStore } from '../../../src/core/storage/open.js';
import type { Database } from '../../../src/core/storage/sqlite/connection.js';
import { chooseDriver, type DatabaseClass } from '../../../src/core/storage/sqlite/driver.js';
import { createSqliteStore, openDatabase } from '../../../src/core/storage/sqlite/store.js';
import { waitUntil } from '../../kit/wait.js';
import { contract } from './contract.js';
import { startWorker, type Thing, thing, things } from './kit.js';

const fresh = (t: Test): string => join(t.testdir(), 'new', 'store.db');

contract(t, 'sqlite', (t) => `sqlite:${fresh(t)}`);

t.test('each open of an in-memory database has its own data', async (t) => {
  const [one, two] = await Promise.all([openStore('sqlite::memory:'), openStore('sqlite::memory:')]);
  await things(one).insert(thing('1'));
  t.equal(await things(one).count(), 1);
  t.equal(await things(two).count(), 0);
  await Promise.all([one.close(), two.close()]);
});

t.test('a SQLite that can damage a file of several connections is never used', async (t) => {
  const sqlite = (version: string) =>
    class {
      prepare = () => ({ get: () => ({ version }), run: () => ({ changes: 0 }), all: () => [] });
      exec() {}
      close() {}
    } as unknown as DatabaseClass;
  const choose = async (builtin: string | undefined, dropIn: string | Error) => {
    const driver = await chooseDriver(builtin === undefined ? undefined : sqlite(builtin), async () => {
      if (dropIn instanceof Error) throw dropIn;
      return sqlite(dropIn);
    });
    return `${driver.module} ${driver.version}`;
  };
  const [own, other] = ['node:sqlite', '@photostructure/sqlite'];
  for (const fixed of ['3.51.3', '3.52.0', '3.53.1', '3.50.7', '3.44.6', '4.0.0'])
    t.equal(await choose(fixed, '3.53.0'), `${own} ${fixed}`);
  for (const defective of ['3.51.2', '3.50.6', '3.50.4', '3.49.9', '3.46.1', '3.44.5', '3.43.9'])
    t.equal(await choose(defective, '3.53.0'), `${other} 3.53.0`, defective);
  t.equal(await choose(undefined, '3.53.0'), `${other} 3.53.0`);
  await t.rejects(choose('3.51.2', '3.51.1'), {
    name: 'StoreUnavailable',
    message: 'SQLite 3.51.2 and 3.51.1 can damage a file that several connections use',
    remedy: /Node.js 24.15|MongoDB/,
  });
  const missing = new Error('no prebuild');
  await t.rejects(choose('3.50.4', missing), { message: /^SQLite 3.50.4 can damage/, cause: missing });
  await t.rejects(choose(undefined, missing), { message: '@photostructure/sqlite cannot be loaded' });
});

t.test('a disk that is nearly full is named before it is full', async (t) => {
  const uri = `sqlite:${t.testdir()}/app.db`;
  t.match(
    lowDiskSpace(uri, () => 3 * 2 ** 20 + 5),
    { message: /a disk with 3 MiB left/, remedy: /Free up/ },
  );
  t.equal(
    lowDiskSpace(uri, () => 64 * 2 ** 20),
    undefined,
  );
  for (const other of ['sqlite::memory:', 'mongodb://h/x'])
    t.equal(
      lowDiskSpace(other, () => 0),
      undefined,
    );
  const missing = () => {
    throw new Error('ENOENT');
  };
  t.equal(lowDiskSpace(uri, missing), undefined);
  t.equal(lowDiskSpace(`sqlite:${t.testdir()}/no/such/folder/app.db`), undefined);
});

t.test('a store is opened by a valid URI only', async (t) => {
  const onWindows = ['sqlite:C:\\data\\app.db', 'sqlite:C:/data/app.db', 'sqlite:\\\\host\\share\\app.db'];
  const atServers = ['mongodb://u:p@h:1,i/x', 'mongodb+srv://h/x?retryWrites=true'];
  for (const uri of ['sqlite:///a.db', ...onWindows, ...atServers]) t.equal(storeUriProblem(uri), null, uri);
  for (const uri of [
    '',
    'sqlite:a\0',
    'mongodb:',
    'mongodb:///x',
    'mongodb+srv://h/?x=1',
    'postgres://secret@h',
  ]) {
    t.match(storeUriProblem(uri), /^(?!.*secret).*\w/, uri);
    await t.rejects(openStore(uri), { message: storeUriProblem(uri) ?? '' });
  }
});

t.test('the file, its log and its folder are private', async (t) => {
  const file = fresh(t);
  const store = await openStore(`sqlite:${file}`);
  await things(store).insert(thing('1'));
  for (const suffix of ['', '-wal', '-shm']) t.equal(statSync(file + suffix).mode & 0o777, 0o600, suffix);
  t.equal(statSync(join(file, '..')).mode & 0o777, 0o700);
  await store.close();
});

t.test('files that are not our databases are refused', async (t) => {
  const dir = t.testdir();
  const newer = await openDatabase(join(dir, 'newer.db'));
  newer.exec('PRAGMA user_version = 2');
  newer.close();
  await t.rejects(openStore(`sqlite:${join(dir, 'newer.db')}`), /newer\.db was written by a newer version/);
  const foreign = await openDatabase(join(dir, 'foreign.db'));
  foreign.exec('PRAGMA user_version = 0; CREATE TABLE users (name)');
  foreign.close();
  await t.rejects(openStore(`sqlite:${join(dir, 'foreign.db')}`), /foreign\.db belongs to another program/);
  writeFileSync(join(dir, 'text.db'), 'no database at all, but some text'.repeat(100));
  const error = await t.rejects(openStore(`sqlite:${join(dir, 'text.db')}`), StoreUnavailable);
  t.match(error, { cause: /not a database/ });
  mkdirSync(join(dir, 'folder.db'));
  await t.rejects(openStore(`sqlite:${join(dir, 'folder.db')}`), StoreUnavailable);
  await t.rejects(openStore(`sqlite:${join(dir, 'text.db', 'below.db')}`), StoreUnavailable);
});

t.test('the file is intact after a kill, and commits are synced', async (t) => {
  const file = fresh(t);
  const child = await startWorker(t, `sqlite:${file}`, 'write');
  await once(child, 'message');
  child.kill('SIGKILL');
  await once(child, 'exit');
  const db = await openDatabase(file);
  // A power failure cannot be tested here; these settings survive one.
  t.strictSame({ ...(db.prepare('PRAGMA synchronous').get() as object) }, { synchronous: 2 });
  t.strictSame({ ...(db.prepare('PRAGMA integrity_check').get() as object) }, { integrity_check: 'ok' });
  db.close();
});

t.test(
  'a read from outside waits while another process has the file for itself, as after a kill',
  async (t) => {
    const file = fresh(t);
    const db = await openDatabase(file);
    const store = createSqliteStore(db);
    await things(store).insert(thing('1'));
    db.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; COMMIT');
    const count = readCollection(`sqlite:${file}`, 'things', (documents) => documents.count());
    // The first attempt is over after some turns.
    for (let turns = 0; turns < 100; turns++) await turn();
    db.exec('PRAGMA locking_mode = NORMAL; BEGIN IMMEDIATE; COMMIT');
    await store.close();
    t.equal(await count, 1);
  },
);

t.test('a full disk rejects writes, keeps acknowledged ones, and recovers', async (t) => {
  const db = await openDatabase(fresh(t));
  const store = createSqliteStore(db);
  const all = things(store);
  await store.ready();
  db.exec('PRAGMA max_page_count = 60');
  const written = new Set<string>();
  const refused: string[] = [];
  for (let round = 0; round < 30; round++) {
    const ids = Array.from({ length: 8 }, (_, i) => `${round}-${i}`);
    const results = await Promise.allSettled(
      ids.map((id) => all.insert(thing(id, { free: 'x'.repeat(2000) }))),
    );
    for (const [i, result] of results.entries()) {
      if (result.status === 'fulfilled') written.add(ids[i] as string);
      else refused.push(ids[i] as string);
      if (result.status === 'rejected')
        t.match(result.reason, { name: 'StoreUnavailable', retryAfter: 5, cause: /full/ });
    }
  }
  t.ok(written.size > 0, 'some fit');
  t.ok(refused.length > 0, 'some do not');
  t.equal(await all.count(), written.size, 'nothing of a refused batch stays');
  for (const id of written) if (!(await all.findOne({ id }))) t.fail(`${id} was acknowledged`);
  db.exec('PRAGMA max_page_count = 100000');
  await all.insert(thing('healed'));
  await store.close();
});

/** Calls `onCommit` before each commit. */
function observed(db: Database, onRun: () => void, observedSql = 'COMMIT'): Database {
  return {
    exec: (sql) => db.exec(sql),
    close: () => db.close(),
    prepare(sql) {
      const statement = db.prepare(sql);
      if (sql !== observedSql) return statement;
      const run = () => {
        onRun();
        return statement.run();
      };
      return { run, get: () => undefined, all: () => [] };
    },
  };
}

t.test('when a commit fails, every write in it is refused', async (t) => {
  let failing = false;
  const store = createSqliteStore(
    observed(await openDatabase(fresh(t)), () => {
      if (failing) throw Object.assign(new Error('disk I/O error'), { errcode: 1034 });
    }),
  );
  const all = things(store);
  await all.insert(thing('1'));
  failing = true;
  const results = await Promise.allSettled([
    all.insert(thing('2')),
    all.insert(thing('1')),
    all.updateOne({ id: '1' }, { set: { count: 1 } }),
  ]);
  for (const result of results) t.match(result, { status: 'rejected', reason: { name: 'StoreUnavailable' } });
  failing = false;
  await t.rejects(all.insert(thing('1')), UniqueViolation);
  t.strictSame((await all.page({ sort: 'id', limit: 9 })).items, [thing('1')]);
  await store.close();
});

t.test('writes of successive event-loop turns share a commit, and a single one does not wait', async (t) => {
  let commits = 0;
  const store = createSqliteStore(observed(await openDatabase(fresh(t)), () => commits++));
  const all = things(store);
  await store.ready();
  let number = 0;
  /** Writes `some` documents in each of `turns` turns. Returns the commits. */
  const write = async (some: number, turns: number) => {
    const before = commits;
    const writes: Promise<void>[] = [];
    for (let left = turns; left > 0; left--) {
      for (let each = 0; each < some; each++) writes.push(all.insert(thing(`${number++}`)));
      await turn();
    }
    await Promise.all(writes);
    return commits - before;
  };
  t.equal(await write(1, 3), 3);
  t.equal(await write(2, 2), 1);
  t.equal(await write(1024, 3), 6, 'a full transaction waits for nothing');
  t.equal(await all.count(), number);
  await store.close();
});

t.test('a lock held by another process delays writes without blocking the event loop', async (t) => {
  const file = fresh(t);
  const holder = await openDatabase(file);
  let attempts = 0;
  const db = observed(await openDatabase(file), () => attempts++, 'BEGIN IMMEDIATE');
  const store = createSqliteStore(db);
  const all = things(store);
  await all.insert(thing('1'));
  holder.exec('BEGIN IMMEDIATE');
  attempts = 0;
  let settled = false;
  const write = all.insert(thing('2')).finally(() => {
    settled = true;
  });
  // If the loop were blocked, the lock could not be released below and the write would fail.
  await waitUntil('three attempts', () => attempts >= 3);
  t.equal(settled, false);
  t.equal(await all.count(), 1, 'reads go on');
  holder.exec('COMMIT');
  await write;
  await store.close();

  const impatient = createSqliteStore(await openDatabase(file), 30);
  await impatient.ready();
  holder.exec('BEGIN IMMEDIATE');
  const error = await t.rejects(things(impatient).insert(thing('3')), StoreUnavailable);
  t.match(error, { cause: /locked/, retryAfter: 5 });
  await t.rejects(impatient.ready(), StoreUnavailable, 'it was refused, and would be again');
  holder.exec('COMMIT');
  const changes = () =>
    holder
      .prepare(
        'SELECT data_version, schema_version, (SELECT count(*) FROM sqlite_schema) AS tables FROM pragma_data_version, pragma_schema_version',
      )
      .get() as Record<string, number>;
  const before = changes();
  await impatient.ready();
  const recovered = changes();
  t.equal(recovered['tables'], before['tables'], 'nothing is left of what was tried');
  t.not(recovered['data_version'], before['data_version']);
  await impatient.ready();
  t.same(changes(), recovered, 'a file that has taken everything since is not written to');
  await things(impatient).insert(thing('3'));
  t.equal(await things(impatient).count(), 3);
  await impatient.close();
  holder.close();
});

t.test('a file that other processes write constantly can be opened', async (t) => {
  const file = fresh(t);
  const holder = await openStore(`sqlite:${file}`);
  await things(holder).insert(thing('1'));
  const lock = await openDatabase(file);
  lock.exec('BEGIN IMMEDIATE');
  const store = await openStore(`sqlite:${file}`);
  const all = things(store);
  await store.ready();
  t.equal(await all.count(), 1);
  lock.exec('COMMIT');
  await all.insert(thing('2'));
  await Promise.all([store.close(), holder.close()]);
  lock.close();
});

t.test('a process that declares fewer fields writes documents that others find', async (t) => {
  const file = fresh(t);
  const older = await openStore(`sqlite:${file}`);
  const few = older.collection<Thing>('things', { unique: ['email'] });
  await few.insert(thing('1', { group: 'a', open: true }));
  const newer = await openStore(`sqlite:${file}`);
  const all = things(newer);
  t.strictSame(await all.findOne({ group: 'a', open: true }), thing('1', { group: 'a', open: true }));
  await few.insert(thing('2', { at: 5 }));
  await few.updateOne({ id: '1' }, { set: { group: 'b' }, unset: ['open'] });
  t.equal((await all.findOne({ at: { gt: 4 } }))?.id, '2');
  t.equal((await all.findOne({ group: 'b', open: null }))?.id, '1');
  t.equal(await all.findOne({ group: 'a' }), null);
  await Promise.all([older.close(), newer.close()]);
});
