import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { LEASE_COLLECTION, LEASE_FIELDS, type LeaseDocument } from '../../src/core/ops/jobs.js';
import { readCollection } from '../../src/core/storage/inspect.js';
import { openStore } from '../../src/core/storage/open.js';
import { loadDriver } from '../../src/core/storage/sqlite/driver.js';
import { openDatabase } from '../../src/core/storage/sqlite/store.js';
import { declareIdpCollections } from '../../src/idp/collections.js';
import { userCollection } from '../../src/saas/auth/store.js';
import { declareSaasCollections } from '../../src/saas/collections.js';
import { onEngines } from '../core/storage/engines.js';
import type { Fresh } from '../core/storage/kit.js';
import { onMongod } from '../core/storage/mongod.js';
import { runProgram } from '../kit/command-line.js';
import { compiled, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';
import { waitUntil } from '../kit/wait.js';

/** Copies stores between engines and starts programs on the copies. */

const SAAS = compiled('bin/saas-backend.js');
const IDP = compiled('bin/idp.js');
const ACCOUNT = { email: 'ada@example.test', password: 'correct horse battery staple' };

/** As a process of its own, which can be killed. */
function startCopy(cwd: string, args: string[], env: Record<string, string> = {}) {
  const options = { cwd, env: { PATH: process.env['PATH'], ...env } };
  const child = spawn(process.execPath, [SAAS, 'store', 'copy', ...args], options);
  const ended = Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]).then(
    ([out, err, [code]]) => ({ code: code as number | null, out, err }),
  );
  return { child, ended };
}

const copy = (cwd: string, args: string[], env: Record<string, string> = {}) =>
  runProgram('saas-backend', ['store', 'copy', ...args], env, { cwd });

async function post(url: string, path: string, body: object) {
  const answer = await fetch(`${url}/api${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: answer.status, body: (await answer.json()) as { data: { refreshToken: string } } };
}

function startSaas(t: Test, cwd: string, uri: string) {
  // Tokens name the public address as their issuer.
  const env = { DATABASE_URI: uri, PUBLIC_URL: 'http://app.example.test' };
  return startProgram(t, SAAS, { args: ['-p', '0'], cwd, env });
}

/** Writes users to a store. */
async function fill(uri: string, count: number): Promise<void> {
  const store = await openStore(uri);
  const users = userCollection(store);
  const ids = Array.from({ length: count }, (_, index) => `usr_${String(index).padStart(6, '0')}`);
  await Promise.all(
    ids.map((id) =>
      users.insert({
        id,
        email: `${id}@example.test`,
        name: 'Ada',
        passwordHash: 'x',
        createdAt: 1,
        passwordVersion: 1,
        sessionEpoch: 0,
        emailVerified: true,
        subscriptionStatus: 'none',
        subscriptionPlan: 'none',
      }),
    ),
  );
  await store.close();
}

const countUsers = async (uri: string): Promise<number> =>
  (await readCollection(uri, 'users', (users) => users.count())) ?? 0;

/** The command blocks of the plan in docs/operate/move-database.md. */
function plannedCommands(): string[] {
  const page = readFileSync(join(compiled('.'), '../docs/operate/move-database.md'), 'utf8');
  return [...page.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block = '']) => block);
}

/** Moves a running service as docs/operate/move-database.md describes it. */
async function followsPlan(t: Test, from: string, to: string, rehearsal: string): Promise<void> {
  const cwd = temporaryFolder(t);
  const env = { DATABASE_URI: from, NEW_DATABASE_URI: to, REHEARSAL_DATABASE_URI: rehearsal };
  const paste = (commands: string) =>
    promisify(execFile)(
      'sh',
      ['-ec', commands.replaceAll('npx saas-backend', `${process.execPath} ${SAAS}`)],
      { cwd, env: { PATH: process.env['PATH'], PORT: '0', ...env } },
    );
  const [rehearse = '', move = '', ...others] = plannedCommands();
  t.same(others, []);

  const service = startSaas(t, cwd, from);
  const url = await service.url();
  t.equal((await post(url, '/auth/register', ACCOUNT)).status, 201);
  await paste(rehearse);
  t.equal(await countUsers(rehearsal), 1);
  const late = { ...ACCOUNT, email: 'late@example.test' };
  t.equal((await post(url, '/auth/register', late)).status, 201, 'the service runs during the rehearsal');
  t.equal(await service.terminate(), 0);

  const { stdout } = await paste(move);
  t.match(stdout, /documents copied and verified in/);
  const moved = startSaas(t, cwd, to);
  const movedUrl = await moved.url();
  for (const account of [ACCOUNT, late]) {
    t.equal((await post(movedUrl, '/auth/login', account)).status, 200, account.email);
  }
  t.equal(await moved.terminate(), 0);
}

/** Copies a store in use, and the same store after a graceful stop; signs in on the copy. */
async function moves(t: Test, from: string, to: string): Promise<void> {
  const cwd = temporaryFolder(t);
  const before = startSaas(t, cwd, from);
  const url = await before.url();
  const registered = await post(url, '/auth/register', ACCOUNT);
  t.equal(registered.status, 201);
  const { refreshToken } = (await post(url, '/auth/login', ACCOUNT)).body.data;

  const early = await copy(cwd, ['OLD_URI', 'NEW_URI'], { OLD_URI: from, NEW_URI: to });
  t.equal(early.code, 1);
  t.match(early.err, /^saas-backend cannot copy the store: a program uses the source\. Stop all programs/);
  t.equal(await before.terminate(), 0);

  const copied = await copy(cwd, ['OLD_URI', 'NEW_URI', '--json'], { OLD_URI: from, NEW_URI: to });
  t.equal(copied.code, 0, copied.err);
  const report = JSON.parse(copied.out);
  t.match(report, { resumed: false, ignored: [], milliseconds: Number });
  const users = report.collections.find(({ name }: { name: string }) => name === 'users');
  t.match(users, { documents: 1, sha256: /^[0-9a-f]{64}$/ });
  t.notOk(report.collections.some(({ name }: { name: string }) => name === 'leases'));

  const after = startSaas(t, cwd, to);
  const moved = await after.url();
  t.equal((await post(moved, '/auth/refresh', { refreshToken })).status, 200, 'the session continues');
  t.equal((await post(moved, '/auth/login', ACCOUNT)).status, 200);
  t.equal((await post(moved, '/auth/register', ACCOUNT)).status, 409);
  t.equal(await after.terminate(), 0);
}

const engines: [name: string, fresh: Fresh][] = [];
await onEngines((...engine) => void engines.push(engine));

// Between two files, so that one engine is enough for a test.
for (const [from, source] of engines)
  for (const [to, target] of engines)
    if (from !== to || to === 'SQLite')
      t.test(`a copy from ${from} to ${to} continues sessions and accepts passwords`, (t) =>
        moves(t, source(t), target(t)),
      );

await onMongod((server) => {
  t.test(
    'the plan of docs/operate/move-database.md moves a running service from SQLite to MongoDB',
    async (t) => {
      const from = `sqlite:${join(temporaryFolder(t), 'from.db')}`;
      await followsPlan(t, from, server.fresh(t), server.fresh(t));
    },
  );
});

for (const [engine, fresh] of engines) {
  const count = engine === 'SQLite' ? 30_000 : 5000;
  t.test(`a killed copy to ${engine} continues where it was killed`, (t) => resumes(t, fresh(t), count));

  t.test(`a paused copy to ${engine} is not taken over, and stops once another machine took over`, (t) =>
    isTakenOver(t, fresh(t), count),
  );
}

/** Starts to copy `from.db` and interrupts the command when a part is copied. */
async function interruptHalfWay(t: Test, cwd: string, to: string, signal: 'SIGKILL' | 'SIGSTOP') {
  const started = startCopy(cwd, ['sqlite:from.db', 'NEW_URI'], { NEW_URI: to });
  t.teardown(() => started.child.kill('SIGKILL'));
  const isUnderWay = async () => {
    if (to.startsWith('sqlite:') && !existsSync(to.slice('sqlite:'.length))) return false;
    return (await countUsers(to)) >= 600;
  };
  await waitUntil('the copy is under way', isUnderWay);
  started.child.kill(signal);
  if (signal === 'SIGSTOP') {
    // Not in a transaction, which would keep every other process from writing. It runs for a turn of the event loop between
    // two tries: a stop directly after the continuation lets it do nothing on a busy machine.
    const isBetweenBatches = async () => {
      started.child.kill('SIGSTOP');
      if (await canWrite(to)) return true;
      started.child.kill('SIGCONT');
      return false;
    };
    await waitUntil('the command is stopped between two batches', isBetweenBatches, { everyTurn: true });
  }
  return started;
}

/** Whether no process holds the write lock of a SQLite file. */
async function canWrite(uri: string): Promise<boolean> {
  if (!uri.startsWith('sqlite:')) return true;
  const { DatabaseSync } = await loadDriver();
  const db = new DatabaseSync(uri.slice('sqlite:'.length));
  try {
    db.exec('BEGIN IMMEDIATE; ROLLBACK');
    return true;
  } catch {
    return false;
  } finally {
    db.close();
  }
}

async function killHalfWay(t: Test, cwd: string, to: string, count: number): Promise<void> {
  const killed = await interruptHalfWay(t, cwd, to, 'SIGKILL');
  t.equal((await killed.ended).code, null);
  const part = await countUsers(to);
  t.ok(part < count, `${part} documents are copied`);
}

/** @param count enough documents for a kill before the last one */
async function resumes(t: Test, to: string, count: number): Promise<void> {
  const cwd = temporaryFolder(t);
  await fill(`sqlite:${join(cwd, 'from.db')}`, count);
  await fill(`sqlite:${join(cwd, 'other.db')}`, 1);
  await killHalfWay(t, cwd, to, count);

  const server = startSaas(t, cwd, to);
  t.equal(await server.ended(), 1);
  t.match(server.lines.join('\n'), /the store is an unfinished copy of another one\. Repeat `store copy`/);
  const other = await copy(cwd, ['sqlite:other.db', 'NEW_URI'], { NEW_URI: to });
  t.match(other, { code: 1, err: /the target is an unfinished copy of another source\. Repeat that copy/ });
  const further = await copy(cwd, ['NEW_URI', 'sqlite:further.db'], { NEW_URI: to });
  t.match(further, { code: 1, err: /the source is an unfinished copy of another one\. Repeat `store copy`/ });
  t.notOk(existsSync(join(cwd, 'further.db')));

  const resumed = await copy(cwd, ['sqlite:from.db', 'NEW_URI', '--json'], { NEW_URI: to });
  t.equal(resumed.code, 0, resumed.err);
  t.match(JSON.parse(resumed.out), { resumed: true, documents: count });
  t.equal(await countUsers(to), count);
  const again = await copy(cwd, ['sqlite:from.db', 'NEW_URI'], { NEW_URI: to });
  t.match(again, { code: 1, err: /the target is in use: it contains documents\. Choose a new file/ });
  t.equal(await countUsers(to), count);
}

/**
 * Pauses a copy and repeats the command, on the same machine and as if the first one ran on another machine.
 *
 * @param count enough documents to pause the command before the last one
 */
async function isTakenOver(t: Test, to: string, count: number): Promise<void> {
  const cwd = temporaryFolder(t);
  await fill(`sqlite:${join(cwd, 'from.db')}`, count);
  const paused = await interruptHalfWay(t, cwd, to, 'SIGSTOP');
  const repeat = () => copy(cwd, ['sqlite:from.db', 'NEW_URI', '--json'], { NEW_URI: to });
  const { pid } = paused.child;
  t.match(await repeat(), {
    code: 1,
    err: `another command is copying into the target. Wait until process ${pid} has ended, or end it.`,
  });

  const store = await openStore(to);
  const leases = store.collection<LeaseDocument & { host: string }>(LEASE_COLLECTION, LEASE_FIELDS);
  t.ok(await leases.updateOne({ id: 'store-copy' }, { set: { host: 'another' } }));
  const second = await repeat();
  t.equal(second.code, 0, second.err);
  t.match(JSON.parse(second.out), { resumed: true, documents: count });

  const users = userCollection(store);
  await users.deleteMany({ id: { gt: 'usr_000500' } });
  const left = await users.count();
  await store.close();
  paused.child.kill('SIGCONT');
  const { code, err } = await paused.ended;
  t.equal(code, 1);
  // A call during which the command was paused can exceed its time limit.
  t.match(err, /another command has continued this copy\. Wait until that one has ended|no response within/);
  const returned = (await countUsers(to)) - left;
  t.ok(returned <= 500, `at most the batch that was being sent returns, not ${returned} documents`);
}

t.test('of two commands with one target, one copies', async (t) => {
  const cwd = temporaryFolder(t);
  await fill(`sqlite:${join(cwd, 'from.db')}`, 5000);
  const both = await Promise.all([1, 2].map(() => startCopy(cwd, ['sqlite:from.db', 'sqlite:to.db']).ended));
  t.strictSame(both.map(({ code }) => code).sort(), [0, 1]);
  const refused = both.find(({ code }) => code === 1);
  t.match(refused?.err, /another command is copying into the target\. Wait|the target is in use/);
  t.equal(await countUsers(`sqlite:${join(cwd, 'to.db')}`), 5000);
});

t.test('a copy whose target a program has used is not opened', async (t) => {
  const cwd = temporaryFolder(t);
  await fill(`sqlite:${join(cwd, 'from.db')}`, 30_000);
  const to = `sqlite:${join(cwd, 'to.db')}`;
  const paused = await interruptHalfWay(t, cwd, to, 'SIGSTOP');
  const store = await openStore(to);
  const lease = { id: 'purge-sessions', owner: 'own_1', until: 0, term: 1, dueAt: 0 };
  await store.collection<LeaseDocument>(LEASE_COLLECTION, LEASE_FIELDS).insert(lease);
  await store.close();
  paused.child.kill('SIGCONT');
  const { code, err } = await paused.ended;
  t.equal(code, 1);
  t.match(err, /a program has used the target during the copy\. Stop all programs, delete the target/);
  t.equal(await startSaas(t, cwd, to).ended(), 1, 'no server starts on it');
});

t.test('a document that changed in the target or was added to it is detected', async (t) => {
  const cwd = temporaryFolder(t);
  const count = 30_000;
  await fill(`sqlite:${join(cwd, 'from.db')}`, count);
  for (const [change, file] of [
    [`UPDATE users SET doc = replace(doc, '"Ada"', '"Eve"') WHERE id = 'usr_000007'`, 'changed.db'],
    [`DELETE FROM users WHERE id = 'usr_000007'`, 'deleted.db'],
    [`INSERT INTO settings (id, doc) VALUES ('a', '{"id":"a"}')`, 'added.db'],
  ] as const) {
    const to = join(cwd, file);
    await killHalfWay(t, cwd, `sqlite:${to}`, count);
    const db = await openDatabase(to);
    db.exec(change);
    db.close();
    const { code, err } = await copy(cwd, ['sqlite:from.db', `sqlite:${to}`]);
    t.equal(code, 1, file);
    t.match(
      err,
      /the target differs from the source in (users|settings)\. .* delete the target and copy again/,
    );
    t.equal(await startSaas(t, cwd, `sqlite:${to}`).ended(), 1, 'no server starts on it');
  }
});

t.test('a store that cannot be copied is rejected with one sentence and without its password', async (t) => {
  const cwd = temporaryFolder(t);
  await fill(`sqlite:${join(cwd, 'from.db')}`, 1);
  await fill(`sqlite:${join(cwd, 'used.db')}`, 1);
  const cases: [from: string, to: string, code: number, says: RegExp][] = [
    ['sqlite:from.db', 'sqlite:used.db', 1, /the target is in use/],
    ['sqlite:from.db', 'sqlite:./from.db', 1, /are the same store\. Choose another target/],
    ['sqlite:none.db', 'sqlite:new.db', 1, /there is no file .*none\.db/],
    ['sqlite:from.db', 'sqlite::memory:', 1, /an in-memory store is lost when the command ends/],
    ['sqlite:from.db', 'postgres://u:secret@db', 2, /argument 'to' is not a valid store URI/],
    ['UNSET_URI', 'sqlite:new.db', 2, /argument 'from': the environment variable UNSET_URI is not set/],
    ['sqlite:from.db', '', 2, /argument 'to'/],
  ];
  for (const [from, to, code, says] of cases) {
    const result = await copy(cwd, [from, to]);
    t.equal(result.code, code, `${from} ${to}`);
    t.match(result.err, says);
    t.notMatch(result.err.trimEnd(), /\n|secret/);
  }
  t.notOk(existsSync(join(cwd, 'new.db')));
  t.equal(await countUsers(`sqlite:${join(cwd, 'used.db')}`), 1);
});

t.test('collections that the product does not know are reported and not copied', async (t) => {
  const cwd = temporaryFolder(t);
  const store = await openStore(`sqlite:${join(cwd, 'from.db')}`);
  await store.collection('notes').insert({ id: 'a' });
  await store.close();
  const { code, out, err } = await copy(cwd, ['sqlite:from.db', 'sqlite:to.db']);
  t.equal(code, 0);
  t.match(out, /^0 documents copied and verified in /);
  t.match(err, /^Not copied, because saas-backend does not use them: notes\.$/m);
});

t.test('the target gets the tables and indexes that the servers create', async (t) => {
  const cwd = temporaryFolder(t);
  const schemaOf = async (file: string) => {
    const db = await openDatabase(join(cwd, file));
    const rows = db.prepare('SELECT name, sql FROM sqlite_schema ORDER BY name').all();
    db.close();
    return rows.map((row) => ({ ...(row as object) }));
  };
  const products = [
    [SAAS, 'DATABASE_URI', declareSaasCollections],
    [IDP, 'IDP_DATABASE_URI', declareIdpCollections],
  ] as const;
  for (const [index, [script, variable, declare]] of products.entries()) {
    const env = {
      [variable]: `sqlite:server${index}.db`,
      PAYMENT_SECRET_KEY: 'sk_test_123456789',
      PAYMENT_WEBHOOK_SECRET: 'whsec_123456789012345678901234567890',
      IDP_EMAIL_SMTP_URL: 'smtp://127.0.0.1:9',
      IDP_OPERATOR_EMAILS: 'ops@example.test',
      EMAIL_LOGIN: 'true',
      AGENT_ISSUER: 'https://id.example.test',
      AGENT_RESOURCE: 'https://app.example.test/api',
      AGENT_CLIENT_ID: 'x',
      LOGIN_PROVIDERS: '{"github":{"clientId":"x","clientSecret":"x"}}',
      IDP_FACTOR_ENCRYPTION_KEY: 'Rk7tQ2vXw9ZbN4mLp6Jd3Hs8Fg1Yc5Ae',
      WEBHOOKS: 'true',
      SETTINGS_ENCRYPTION_KEY: 'Wk7tQ2vXw9ZbN4mLp6Jd3Hs8Fg1Yc5Ae',
      PASSKEYS: 'true',
      IDP_PASSKEYS: 'true',
      IDP_DEVICE_FLOW: '1',
      IDP_APPROVALS: 'true',
      IDP_IDENTITY_ASSERTIONS: 'both',
      IDP_CLIENT_REGISTRATION: '1',
    };
    const program = startProgram(t, script, { args: ['serve', '-p', '0'], cwd, env });
    await program.url();
    t.equal(await program.terminate(), 0);
    const store = await openStore(`sqlite:${join(cwd, `declared${index}.db`)}`);
    declare(store);
    await store.ready();
    await store.close();
    const [declared, used] = await Promise.all([`declared${index}.db`, `server${index}.db`].map(schemaOf));
    t.strictSame(declared, used, 'collections.ts of the product declares every collection');
  }
});
