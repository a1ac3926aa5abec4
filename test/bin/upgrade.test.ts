/**
 * The last released version and this one serve one store at the same time, as in a rolling upgrade: what one of them
 * writes, the other one reads, and tokens of either are valid at both.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { onMongod } from '../core/storage/mongod.js';
import { basic, PASSWORD, parseJson, SECRETS } from '../kit/app.js';
import {
  ADMIN_TOKEN,
  authorizePath,
  CALLBACK,
  codeIn,
  ISSUER,
  redemption,
  refreshing,
  SEED,
} from '../kit/idp.js';
import { compiled, type Program, startProgram } from '../kit/process.js';
import { signWebhook } from '../kit/sign-webhook.js';
import { temporaryFolder } from '../kit/tmp.js';

const ROOT = join(compiled('.'), '..');
const RELEASES = join(ROOT, 'test/package/releases');

const ENVIRONMENT = {
  PUBLIC_URL: 'http://app.example.test',
  JWT_ACCESS_SECRET: SECRETS.jwtAccessSecret,
  JWT_REFRESH_SECRET: SECRETS.jwtRefreshSecret,
  PAYMENT_WEBHOOK_SECRET: SECRETS.paymentWebhookSecret,
  ADMIN_USERNAME: SECRETS.adminUsername,
  ADMIN_PASSWORD: SECRETS.adminPassword,
  IDP_PUBLIC_URL: ISSUER,
  IDP_ED25519_SEED: SEED,
  IDP_ADMIN_TOKEN: ADMIN_TOKEN,
};

type Name = 'saas-backend' | 'idp';

/** Unpacks the last release, with the dependencies of this version. Returns its folder. */
function unpackRelease(t: Test): string {
  const [tarball, ...others] = readdirSync(RELEASES);
  if (tarball === undefined || others.length > 0) throw new Error(`${RELEASES} has to contain one tarball`);
  const folder = temporaryFolder(t);
  execFileSync('tar', ['-xzf', join(RELEASES, tarball), '-C', folder]);
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  return join(folder, 'package');
}

interface Reply {
  status: number;
  location: string | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
  body: any;
}

interface Version {
  program: Program;
  request(
    method: string,
    path: string,
    call?: { headers?: Record<string, string>; body?: string | object },
  ): Promise<Reply>;
}

/** Starts one of the two versions. */
async function start(t: Test, name: Name, root: string, databaseUri: string): Promise<Version> {
  const program = startProgram(t, join(root, `dist/package/bin/${name}.js`), {
    args: ['serve', '-p', '0'],
    cwd: temporaryFolder(t),
    env: { ...ENVIRONMENT, DATABASE_URI: databaseUri, IDP_DATABASE_URI: databaseUri },
  });
  const url = await program.url();
  return {
    program,
    async request(method, path, { headers = {}, body } = {}) {
      const isText = typeof body === 'string' || body === undefined;
      const answer = await fetch(url + path, {
        method,
        redirect: 'manual',
        headers: { ...(!isText && { 'content-type': 'application/json' }), ...headers },
        ...(body !== undefined && { body: isText ? body : JSON.stringify(body) }),
      });
      const text = await answer.text();
      return {
        status: answer.status,
        location: answer.headers.get('location') ?? undefined,
        body: parseJson(text),
      };
    },
  };
}

/** Runs the steps with both orders of the versions, then with the new one alone. */
async function upgrade(
  t: Test,
  name: Name,
  databaseUri: string,
  steps: (t: Test, first: Version, second: Version, run: string) => Promise<void>,
): Promise<void> {
  const old = await start(t, name, unpackRelease(t), databaseUri);
  const current = await start(t, name, ROOT, databaseUri);
  await t.test('begun at the released version, continued at this one', (t) => steps(t, old, current, 'one'));
  await t.test('begun at this version, continued at the released one', (t) => steps(t, current, old, 'two'));
  t.equal(await old.program.terminate(), 0);
  const another = await start(t, name, ROOT, databaseUri);
  await t.test('after the upgrade', (t) => steps(t, current, another, 'three'));
}

async function saasSteps(t: Test, first: Version, second: Version, run: string): Promise<void> {
  const account = { email: `${run}@example.test`, password: PASSWORD };
  const registered = await first.request('POST', '/api/auth/register', { body: account });
  t.equal(registered.status, 201);
  const { id } = registered.body.data.user;
  t.equal((await second.request('POST', '/api/auth/register', { body: account })).status, 409);
  const login = await first.request('POST', '/api/auth/login', { body: account });
  let { accessToken, refreshToken } = login.body.data;
  for (const version of [second, first, second, first]) {
    const refreshed = await version.request('POST', '/api/auth/refresh', { body: { refreshToken } });
    t.equal(refreshed.status, 200, 'refresh');
    ({ accessToken, refreshToken } = refreshed.body.data);
    const headers = { authorization: `Bearer ${accessToken}` };
    for (const other of [first, second]) {
      const me = await other.request('GET', '/api/auth/me', { headers });
      t.match(me, { status: 200, body: { data: { user: { id } } } });
    }
  }
  const headers = { authorization: `Bearer ${accessToken}` };
  const renamed = await second.request('PATCH', '/api/user/profile', { headers, body: { name: run } });
  t.equal(renamed.status, 200);

  const object = {
    id: `sub_${run}`,
    object: 'subscription',
    customer: `cus_${run}`,
    status: 'active',
    metadata: { userId: id },
  };
  const body = JSON.stringify({
    id: `evt_${run}`,
    object: 'event',
    type: 'customer.subscription.updated',
    created: Math.floor(Date.now() / 1000),
    data: { object },
  });
  const signature = signWebhook(body, SECRETS.paymentWebhookSecret, Date.now());
  const event = { headers: { 'payment-signature': signature, 'content-type': 'application/json' }, body };
  t.match(await first.request('POST', '/api/billing/webhook', event), { status: 200 });
  t.match(await second.request('POST', '/api/billing/webhook', event), { status: 200 });
  for (const version of [first, second]) {
    const { body: me } = await version.request('GET', '/api/auth/me', { headers });
    t.match(me.data.user, { name: run, subscription: { status: 'active' } });
    const admin = await version.request('GET', '/admin', { headers: { authorization: basic() } });
    t.equal(admin.status, 200);
  }

  t.ok((await second.request('POST', '/api/auth/logout', { headers, body: {} })).status < 300);
  for (const version of [first, second]) {
    t.equal((await version.request('GET', '/api/auth/me', { headers })).status, 401);
    t.equal((await version.request('POST', '/api/auth/refresh', { body: { refreshToken } })).status, 401);
  }
}

async function idpSteps(t: Test, first: Version, second: Version, run: string): Promise<void> {
  const operator = { authorization: `Bearer ${ADMIN_TOKEN}` };
  const form = { 'content-type': 'application/x-www-form-urlencoded' };
  const made = await first.request('POST', '/v1/clients', {
    headers: operator,
    body: { name: 'App', redirect_uris: [CALLBACK] },
  });
  t.equal(made.status, 201);
  const client = { id: made.body.client_id, secret: made.body.client_secret, redirectUri: CALLBACK };
  const handle = `${run}@agents.example.test`;
  const minted = await second.request('POST', '/v1/agents', { headers: operator, body: { handle } });
  t.equal(minted.status, 201);
  const agent = { authorization: basic(handle, minted.body.password) };
  const path = authorizePath(client, { scope: 'openid profile offline_access', prompt: 'consent' });
  const code = codeIn((await first.request('GET', path, { headers: agent })).location);
  const bought = await second.request('POST', '/token', { headers: form, body: redemption(client, code) });
  t.equal(bought.status, 200, 'a code of one version is redeemed at the other');
  let { refresh_token: refreshToken, access_token: accessToken } = bought.body;
  for (const version of [first, second, first, second]) {
    const refreshed = await version.request('POST', '/token', {
      headers: form,
      body: refreshing(client, refreshToken),
    });
    t.equal(refreshed.status, 200, 'refresh');
    ({ refresh_token: refreshToken, access_token: accessToken } = refreshed.body);
    for (const other of [first, second]) {
      const headers = { authorization: `Bearer ${accessToken}` };
      const userinfo = await other.request('GET', '/userinfo', { headers });
      t.match(userinfo, { status: 200, body: { preferred_username: handle } });
    }
  }
  const keys = await Promise.all(
    [first, second].map(async (version) => (await version.request('GET', '/.well-known/jwks.json')).body),
  );
  t.same(keys[0], keys[1]);
  const again = await first.request('POST', '/token', { headers: form, body: redemption(client, code) });
  t.equal(again.status, 400, 'a code is redeemed once');
}

const sqlite = (t: Test) => `sqlite:${join(temporaryFolder(t), 'store.db')}`;

t.test('saas-backend is upgraded while it serves, on SQLite', (t) =>
  upgrade(t, 'saas-backend', sqlite(t), saasSteps),
);
t.test('idp is upgraded while it serves, on SQLite', (t) => upgrade(t, 'idp', sqlite(t), idpSteps));

await onMongod((server) => {
  t.test('saas-backend is upgraded while it serves, on MongoDB', (t) =>
    upgrade(t, 'saas-backend', server.fresh(t), saasSteps),
  );
  t.test('idp is upgraded while it serves, on MongoDB', (t) => upgrade(t, 'idp', server.fresh(t), idpSteps));
});
