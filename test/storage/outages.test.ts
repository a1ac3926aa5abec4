/** SQLite files that fail under running programs, as their clients see it. MongoDB: `mongodb-products.test.ts`. */
import { closeSync, openSync, statSync, writeSync } from 'node:fs';
import t, { type Test } from 'tap';
import { Connection, type Statement } from '../../src/storage/sqlite/connection.js';
import { openDatabase } from '../../src/storage/sqlite/store.js';
import { type Answer, saasApp } from '../kit/app.js';
import { idpApp } from '../kit/idp.js';
import { temporaryFolder } from '../kit/tmp.js';

/** The connections of the programs of this test: a disk can be full for them alone. */
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

/** What is the matter with a file, and what makes it well again. */
const OUTAGES = {
  full: ['PRAGMA max_page_count = 1', 'PRAGMA max_page_count = 1000000'],
  'read-only': ['PRAGMA query_only = ON', 'PRAGMA query_only = OFF'],
} as const;

function refused(t: Test, { status, headers, text }: Answer, what: string): void {
  t.equal(status, 503, what);
  t.equal(headers['retry-after'], '5');
  t.notMatch(text, /sqlite|full|readonly|malformed/i, 'clients learn nothing of the store');
}

/** Repeats a write until there is no room for it. */
async function untilRefused(write: (number: number) => Promise<Answer>): Promise<[Answer, number]> {
  for (let number = 0; ; number++) {
    const answer = await write(number);
    if (answer.status !== 201) return [answer, number];
  }
}

for (const [name, [begin, end]] of Object.entries(OUTAGES)) {
  t.test(`saas-backend answers 503 and recovers on a disk that becomes ${name}`, async (t) => {
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
    t.equal((await app.request('GET', '/ready')).status, 200, 'before anybody has written again');
    t.equal((await register(written)).status, 201, 'nothing of what was refused is there');
    if (written > 0) t.equal((await register(written - 1)).status, 409, 'and all that was not');
    t.equal((await app.request('POST', '/api/auth/refresh', { body: { refreshToken } })).status, 200);
  });

  t.test(`idp answers 503 and recovers on a disk that becomes ${name}`, async (t) => {
    const idp = await idpApp(t);
    const client = await idp.createClient();
    const agent = await idp.mintAgent();
    const code = await idp.codeFor(client, agent);
    const { access_token: token } = (await idp.redeem(client, await idp.codeFor(client, agent))).body;
    const mint = (number: number) => idp.admin('POST', '/v1/agents', { handle: `n${number}@example.test` });
    run(begin);
    const [answer, written] = await untilRefused(mint);
    refused(t, answer, 'mint');
    t.equal((await idp.userinfo(token)).status, 200, 'reading goes on');
    refused(t, await idp.request('GET', '/ready'), 'ready');
    if (name === 'read-only') refused(t, await idp.redeem(client, code), 'token');
    run(end);
    t.equal((await idp.request('GET', '/ready')).status, 200, 'before anybody has written again');
    t.equal((await mint(written)).status, 201, 'nothing of what was refused is there');
    if (written > 0) t.equal((await mint(written - 1)).status, 409, 'and all that was not');
    t.equal((await idp.redeem(client, code)).status, 200, 'the code was not spent');
  });
}

t.test('a database file damaged under a running program is answered 503', async (t) => {
  const folder = temporaryFolder(t);
  const first = await saasApp(t, { folder });
  const { accessToken: token, email, password } = await first.signUp();
  await first.close();
  // Nothing is at work in the background yet.
  const app = await saasApp(t, { folder, clock: first.clock, random: first.random });
  const other = await openDatabase(app.file);
  t.teardown(() => other.close());
  other.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  // A commit of another process, so that the program reads its pages anew.
  other.exec('PRAGMA user_version = 1');
  const [header, size] = [4096, statSync(app.file).size];
  const descriptor = openSync(app.file, 'r+');
  writeSync(descriptor, Buffer.alloc(size - header, 0xff), 0, size - header, header);
  closeSync(descriptor);
  refused(t, await app.request('GET', '/api/auth/me', { token }), 'me');
  refused(t, await app.request('POST', '/api/auth/login', { body: { email, password } }), 'login');
  t.equal((await app.request('GET', '/health')).status, 200, 'the program lives');
});
