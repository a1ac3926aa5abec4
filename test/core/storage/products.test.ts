/** Both products on failing stores, as their clients see it: SQLite files first, then MongoDB. */
import { closeSync, openSync, statSync, writeSync } from 'node:fs';
import mongodbPlugin from '@fastify/mongodb';
import fastify from 'fastify';
import t, { type Test } from 'tap';
import { Connection, type Statement } from '../../../src/core/storage/sqlite/connection.js';
import { openDatabase } from '../../../src/core/storage/sqlite/store.js';
import { identityProvider, saasBackend } from '../../../src/index.js';
import { type Answer, PASSWORD, type SaasApp, saasApp, testOptions } from '../../kit/app.js';
import { ON_FILE } from '../../kit/engine.js';
import { ADMIN_TOKEN, idpOptions } from '../../kit/idp.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { type Mongod, onMongod } from './mongod.js';

/** Limits apply only to connections of the programs in this test: a disk can be full for them alone. */
const connections = new Set<Connection>();
const { prototype } = Connection;
const { sql } = prototype;
prototype.sql = function <R>(this: Connection, text: string) {
  connections.add(this);
  return sql.call(this, text) as Statement<R>;
};
t.beforeEach(() => connections.clear());

function run(pragma: string): void {
  for (const connection of connections) connection.sql(pragma).get();
}

/** How a disk fails, and how to repair it. */
const OUTAGES = {
  full: ['PRAGMA max_page_count = 1', 'PRAGMA max_page_count = 1000000'],
  'read-only': ['PRAGMA query_only = ON', 'PRAGMA query_only = OFF'],
} as const;

function refused(t: Test, { status, headers, text }: Answer, what: string): void {
  t.equal(status, 503, what);
  t.equal(headers['retry-after'], '5');
  t.notMatch(text, /sqlite|full|readonly|malformed/i, 'answers do not reveal the store');
}

/** Repeats a write until there is no space for it. */
async function untilRefused(write: (number: number) => Promise<Answer>): Promise<[Answer, number]> {
  for (let number = 0; ; number++) {
    const answer = await write(number);
    if (answer.status !== 201) return [answer, number];
  }
}

for (const [name, [begin, end]] of Object.entries(OUTAGES)) {
  t.test(`saas-backend answers 503 and recovers on a disk that becomes ${name}`, ON_FILE, async (t) => {
    const app = await saasApp(t);
    const { accessToken: token, refreshToken, email } = await app.signUp();
    const register = (number: number) =>
      app.request('POST', '/api/auth/register', {
        body: { email: `n${number}@example.test`, password: 'a sentence is fine', name: 'x'.repeat(200) },
      });
    run(begin);
    const [answer, written] = await untilRefused(register);
    refused(t, answer, 'register');
    t.equal(
      (await app.request('GET', '/api/auth/me', { token })).body.data.user.email,
      email,
      'reading goes on',
    );
    t.equal((await app.request('GET', '/health')).status, 200);
    const looks = await Promise.all([1, 2].map(() => app.request('GET', '/ready')));
    for (const look of looks) refused(t, look, 'ready');
    if (name === 'read-only') {
      refused(t, await app.request('POST', '/api/auth/refresh', { body: { refreshToken } }), 'refresh');
    }
    run(end);
    t.equal((await app.request('GET', '/ready')).status, 200, 'before the next write');
    t.equal((await register(written)).status, 201, 'nothing of what was refused is there');
    if (written > 0) t.equal((await register(written - 1)).status, 409, 'and all that was not');
    t.equal((await app.request('POST', '/api/auth/refresh', { body: { refreshToken } })).status, 200);
  });
}

t.test('a database file damaged under a running program is answered 503', ON_FILE, async (t) => {
  const folder = temporaryFolder(t);
  const first = await saasApp(t, { folder });
  const { accessToken: token, email, password } = await first.signUp();
  await first.close();
  // No background job is running yet.
  const app = await saasApp(t, { folder, clock: first.clock, random: first.random });
  const other = await openDatabase(app.file);
  t.teardown(() => other.close());
  other.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  // A commit by another process makes the program read its pages again.
  other.exec('PRAGMA user_version = 1');
  const [header, size] = [4096, statSync(app.file).size];
  const descriptor = openSync(app.file, 'r+');
  writeSync(descriptor, Buffer.alloc(size - header, 0xff), 0, size - header, header);
  closeSync(descriptor);
  refused(t, await app.request('GET', '/api/auth/me', { token }), 'me');
  refused(t, await app.request('POST', '/api/auth/login', { body: { email, password } }), 'login');
  t.equal((await app.request('GET', '/health')).status, 200, 'the program lives');
});

/** A server is ready until `upgrade` writes a newer layout; until then and afterwards, other requests are answered. */
async function noticesNewerLayout(
  t: Test,
  { server, request }: Pick<SaasApp, 'server' | 'request'>,
  setLayout: (version: number) => unknown,
): Promise<void> {
  const causes: string[] = [];
  const { log } = server.fastify;
  log.warn = (({ err }: { err?: Error }) => void (err && causes.push(err.message))) as typeof log.warn;
  const ready = () => request('GET', '/ready');
  t.equal((await ready()).status, 200);
  await setLayout(2);
  refused(t, await ready(), 'a newer version has changed the layout');
  t.match(causes, [/written by a newer version \(layout 2, this one reads 1\)$/]);
  t.equal((await request('GET', '/health')).status, 200);
  await setLayout(1);
  t.equal((await ready()).status, 200);
}

t.test(
  'a running server is not ready once a newer version has changed the layout of the file',
  ON_FILE,
  async (t) => {
    const app = await saasApp(t);
    const file = await openDatabase(app.file);
    await noticesNewerLayout(t, app, (version) => file.exec(`PRAGMA user_version = ${version}`));
    file.close();
  },
);

await onMongod((server) => {
  t.test('a running server is not ready once a newer version has changed the database', async (t) => {
    const uri = server.fresh(t);
    const layouts = server.client(t).db(new URL(uri).pathname.slice(1)).collection('_layout');
    const app = await saasApp(t, { databaseUri: uri });
    await noticesNewerLayout(t, app, (version) =>
      layouts.updateOne({}, { $set: { version } }, { writeConcern: { w: 'majority' } }),
    );
  });

  t.test("both products work on the host's connection", (t) => asPlugins(t, server));
});

async function asPlugins(t: Test, server: Mongod): Promise<void> {
  const host = fastify();
  t.teardown(() => host.close());
  await host.register(mongodbPlugin, { url: server.fresh(t) });
  const { mongo } = host;
  const { host: _, port: __, logLevel: ___, databaseUri: ____, ...saas } = testOptions(temporaryFolder(t));
  const { host: h, port: p, logLevel: l, databaseUri: u, ...idp } = idpOptions(temporaryFolder(t));
  // The host's own variables must not reach our options.
  const env = {
    DATABASE_URI: 'postgres://host',
    IDP_DATABASE_URI: 'postgres://host',
    NODE_ENV: 'production',
  };
  await host.register(saasBackend, { ...saas, env, publicUrl: 'https://app.example.test', mongo });
  await host.register(identityProvider, {
    ...idp,
    env,
    publicUrl: 'https://app.example.test/idp',
    prefix: '/idp',
    mongo,
  });

  const json = { 'content-type': 'application/json' };
  const register = { email: 'person@example.test', password: PASSWORD };
  const mint = { handle: 'agent@example.test' };
  for (const [url, payload, headers] of [
    ['/api/auth/register', register, json],
    ['/idp/v1/agents', mint, { ...json, authorization: `Bearer ${ADMIN_TOKEN}` }],
  ] as const)
    t.equal((await host.inject({ method: 'POST', url, payload, headers })).statusCode, 201, url);

  const names = (await mongo.db?.listCollections().toArray())?.map(({ name }) => name) ?? [];
  t.strictSame(
    names.filter((name) => !/^(saas|idp)_/.test(name)),
    [],
  );
  t.ok(names.includes('saas_users') && names.includes('idp_principals'));

  const early = fastify();
  t.teardown(() => early.close());
  const forgotten = { ...saas, env: false, mongo: early.mongo } as const;
  await t.rejects(
    async () => early.register(saasBackend, forgotten),
    /'mongo' is not a fastify.mongo. Register/,
  );
  const twice = { ...idp, env: false, mongo, databaseUri: 'sqlite::memory:' } as const;
  const other = fastify();
  t.teardown(() => other.close());
  await t.rejects(
    async () => other.register(identityProvider, twice),
    /'mongo' and 'databaseUri' are both given/,
  );
}
