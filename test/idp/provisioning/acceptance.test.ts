import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { systemRandom } from '../../../src/core/kernel/secrets.js';
import { createUnknownWrites } from '../../../src/core/ops/unknown-writes.js';
import { openStore } from '../../../src/core/storage/open.js';
import type { FirstOperator } from '../../../src/idp/provisioning/first-operator.js';
import { createLinks } from '../../../src/idp/provisioning/links.js';
import { type PrincipalCollection, principalCollection } from '../../../src/idp/provisioning/store.js';
import { onMongod } from '../../core/storage/mongod.js';
import { type Answer, basic, PASSWORD, parseJson } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import {
  ADMIN_TOKEN,
  authorizePath,
  CALLBACK,
  type IdpApp,
  ISSUER,
  idpApp,
  idpOptions,
  idpStore,
  type RegisteredClient,
} from '../../kit/idp.js';
import { compiled, startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** An invitation creates one account with one password, despite races and crashes. */

const HANDLE = 'ada@example.test';
const PROCESSES = 4;
const ROUNDS = 2;
const PASSWORDS = Array.from({ length: 50 }, (_, index) => `${PASSWORD} ${index}`);

const NO_FIRST_OPERATOR: Pick<FirstOperator, 'look' | 'create'> = {
  look: async () => null,
  create: async () => null,
};

/** @param moments of each call of the store at which a process is killed */
function forEngine(engine: string, fresh: (t: Test) => string, moments: readonly string[]): void {
  for (const processes of [1, PROCESSES]) {
    t.test(`${engine}, ${processes} process(es): of 50 concurrent acceptances one succeeds`, async (t) => {
      const options = JSON.stringify({
        ...idpOptions(temporaryFolder(t)),
        databaseUri: fresh(t),
        limits: false,
      });
      const start = () =>
        startProgram(t, compiled('test/kit/idp-server.js'), {
          args: [options.replace('"silent"', '"info"')],
        }).url();
      // The first process creates the collections, which is slow on some disks.
      const url = await start();
      const urls = [url, ...(await Promise.all(Array.from({ length: processes - 1 }, start)))];
      const made = await post(`${url}/v1/clients`, { redirect_uris: CALLBACK });
      const client = { id: made.body.client_id, secret: made.body.client_secret, redirectUri: CALLBACK };
      for (let round = 0; round < ROUNDS; round++) {
        const handle = `${round}-${HANDLE}`;
        const { body } = await post(`${url}/v1/invites`, { handle });
        const path = new URL(body.invite_url).pathname;
        const accept = (password: string, index: number) =>
          post(urls[index % processes] + path, { password });
        const answers = await Promise.all(PASSWORDS.map(accept));
        t.same(answers.map(({ status }) => status).sort(), [201, ...Array(49).fill(410)]);
        const winner = answers.findIndex(({ status }) => status === 201);
        const rights = await Promise.all(PASSWORDS.map((password) => signIn(url, client, handle, password)));
        t.same(
          rights.flatMap((status, index) => (status === 302 ? [index] : [])),
          [winner],
          'only the winner signs in',
        );
        t.equal((await accept(PASSWORD, 0)).status, 410, 'a reload makes no second account');
      }
    });
  }

  t.test(`${engine}: an acceptance killed at any call is complete or absent`, async (t) => {
    const uri = fresh(t);
    const idp = await idpApp(t, { databaseUri: uri, clock: fakeClock(Date.now()), limits: false });
    const client = await idp.createClient();
    const store = await openStore(uri);
    t.teardown(() => store.close());
    const principals = principalCollection(store);
    const outcomes = new Set<string>();
    for (const moment of moments) {
      let hasEnded = false;
      for (let step = 1; !hasEnded; step++) {
        const handle = `${moment}-${step}-${HANDLE}`;
        const { body } = await idp.admin('POST', '/v1/invites', { handle });
        const token = body.invite_url.split('/').at(-1);
        const args = [uri, String(step), moment, JSON.stringify({ accept: token, password: PASSWORD })];
        const worker = compiled('test/idp/provisioning/kill-worker.js');
        const child = spawn(process.execPath, [worker, ...args], { stdio: ['ignore', 'inherit', 'inherit'] });
        const [code, signal] = await once(child, 'exit');
        hasEnded = code === 0;
        if (!hasEnded) t.equal(signal, 'SIGKILL');

        const { state, linkHash, passwordHash } = (await principals.findOne({ handle })) ?? {};
        if (state === 'active') t.match([linkHash, typeof passwordHash], [undefined, 'string']);
        else t.match([state, typeof linkHash, passwordHash], ['invited', 'string', undefined]);
        // Sends a request instead of reading the document: writes of a killed process may still reach the server.
        const again = await idp.request('POST', `/invite/${token}`, { body: { password: `${PASSWORD}!` } });
        const first = await idp.authorize(client, { sub: '', handle, password: PASSWORD });
        const second = await idp.authorize(client, { sub: '', handle, password: `${PASSWORD}!` });
        const isUsed = again.status === 410;
        t.same(
          [again.status, first.status, second.status],
          isUsed ? [410, 302, 401] : [201, 401, 302],
          `${moment} call ${step}: ${isUsed ? 'active' : 'unused'}`,
        );
        outcomes.add(`${moment} ${isUsed ? 'active' : 'invited'}`);
        if (step > 20) throw new Error('it never comes to an end');
      }
    }
    for (const moment of moments) {
      t.ok(outcomes.has(`${moment} invited`) && outcomes.has(`${moment} active`), `both are seen ${moment}`);
    }
  });
}

/** The links of another process; passwords are not hashed. */
const linksOn = (
  principals: PrincipalCollection,
  { clock }: IdpApp,
  { hash = async () => 'a hash', firstOperator = NO_FIRST_OPERATOR } = {},
) =>
  createLinks(principals, {
    endSessions: (_, change) => change(),
    firstOperator,
    audit: { record: async () => undefined },
    clock,
    random: systemRandom,
    passwords: { problem: () => null, hash, verify: async () => ({ ok: false, outdated: false }) },
    passwordPolicy: { validate: async () => undefined },
    throttle: {
      count: async () => undefined,
      countKey: async () => undefined,
      trustOnly: async () => undefined,
    },
    unknownWrites: createUnknownWrites({ clock, log: { error: () => undefined } }),
    issuer: () => ISSUER,
  });

t.test('a link without an account reads as much from the store as one with an account', async (t) => {
  const idp = await idpApp(t);
  const principals = principalCollection(await idpStore(t, idp));
  let documents = 0;
  let setups = 0;
  const counting: PrincipalCollection = {
    ...principals,
    async findOne(where) {
      const found = await principals.findOne(where);
      documents += found ? 1 : 0;
      return found;
    },
    async page(query) {
      const page = await principals.page(query);
      documents += page.items.length;
      return page;
    },
  };
  const look = async () => {
    setups++;
    return null;
  };
  const links = linksOn(counting, idp, { firstOperator: { ...NO_FIRST_OPERATOR, look } });
  await idp.admin('POST', '/v1/invites', { handle: 'first@example.test' });
  const { body } = await idp.admin('POST', '/v1/invites', { handle: HANDLE });
  const token = body.invite_url.split('/').at(-1);
  const [id, secret] = [token.slice(0, -43), 'x'.repeat(43)];
  const readsOf = async (invalid: string) => {
    documents = 0;
    setups = 0;
    await t.rejects(links.look(invalid), { code: 'link_unknown' });
    return { documents, setups };
  };
  const once = { documents: 1, setups: 1 };
  t.same(await readsOf(id + secret), once);
  t.same(await readsOf(id.replace(/.{8}$/, '0'.repeat(8)) + secret), once);
  t.same(await readsOf('f'.repeat(32) + secret), once);
});

t.test('the expired link of the first operator is of no account that exists', async (t) => {
  const idp = await idpApp(t);
  const principals = principalCollection(await idpStore(t, idp));
  const look = async () => ({ expiresAt: 1, hasExpired: true });
  const links = linksOn(principals, idp, { firstOperator: { ...NO_FIRST_OPERATOR, look } });
  const { body } = await idp.admin('POST', '/v1/invites', { handle: HANDLE });
  const [id, secret] = [body.invite_url.split('/').at(-1).slice(0, -43), 'x'.repeat(43)];
  await t.rejects(links.look(id + secret), { code: 'link_unknown' });
  await t.rejects(links.look('f'.repeat(32) + secret), { code: 'link_spent' });
});

t.test('a change while the password is hashed decides the acceptance', async (t) => {
  const idp = await idpApp(t);
  const principals = principalCollection(await idpStore(t, idp));
  let concurrentChange = async (): Promise<unknown> => undefined;
  const hash = async () => {
    await concurrentChange();
    return 'a hash';
  };
  const links = linksOn(principals, idp, { hash });
  const invite = (handle: string) => idp.admin('POST', '/v1/invites', { handle, days: 1 });
  const happenings: Record<string, (sub: string) => Promise<unknown>> = {
    expired: async () => idp.clock.advance(86_400_000),
    invited: () => invite('invited'),
    disabled: (sub) => idp.admin('POST', `/v1/principals/${sub}/disable`),
  };
  const from = { ip: '192.0.2.1', isDisconnected: () => false };
  for (const [handle, happen] of Object.entries(happenings)) {
    const token = (await invite(handle)).body.invite_url.split('/').at(-1);
    const { id = '' } = (await principals.findOne({ handle })) ?? {};
    concurrentChange = () => happen(id);
    await t.rejects(links.accept(token, { password: PASSWORD, confirmation: undefined }, from), {
      code: 'link_spent',
    });
    const stored = await principals.findOne({ handle });
    t.match(stored, { state: handle === 'disabled' ? 'disabled' : 'invited' }, handle);
    t.equal(stored?.passwordHash, undefined, handle);
  }
});

t.test('an acceptance during a new invitation keeps the account', async (t) => {
  const idp = await idpApp(t);
  const principals = principalCollection(await idpStore(t, idp));
  const client = await idp.createClient();
  const { body } = await idp.admin('POST', '/v1/invites', { handle: HANDLE });
  const path = new URL(body.invite_url).pathname;
  const accept = () => idp.request('POST', path, { body: { password: PASSWORD } });
  const slow = new Proxy(principals, {
    get: (target, name: keyof typeof principals) =>
      name === 'findOne'
        ? async (where: Parameters<typeof target.findOne>[0]) => {
            const found = await target.findOne(where);
            t.equal((await accept()).status, 201);
            return found;
          }
        : target[name].bind(target),
  });
  const links = linksOn(slow, idp);
  const from = { ip: '192.0.2.1', isDisconnected: () => false };
  await t.rejects(links.invite({ handle: HANDLE }, from), { code: 'handle_taken' });
  t.equal((await principals.findOne({ handle: HANDLE }))?.linkHash, undefined, 'and no link leads to it');
  t.equal((await idp.authorize(client, { sub: '', handle: HANDLE, password: PASSWORD })).status, 302);
});

async function post(url: string, body: object) {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${ADMIN_TOKEN}` },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: parseJson(await response.text()) as Answer['body'] };
}

async function signIn(
  url: string,
  client: RegisteredClient,
  handle: string,
  password: string,
): Promise<number> {
  const headers = { authorization: basic(handle, password) };
  return (await fetch(url + authorizePath(client), { headers, redirect: 'manual' })).status;
}

const MOMENTS = ['before', 'during'];
forEngine('SQLite', (t) => `sqlite:${join(temporaryFolder(t), 'idp.db')}`, MOMENTS);
// `npm run test:kills` runs both moments.
const OF_MONGODB = process.env['KILL_ROUNDS'] === undefined ? ['during'] : MOMENTS;
await onMongod((server) => forEngine('MongoDB', (t) => server.fresh(t), OF_MONGODB));
