/**
 * The last released version and this one serve one store at the same time, as in a rolling upgrade: what one of them
 * writes, the other one reads, and tokens of either are valid at both.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { onEngines } from '../core/storage/engines.js';
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
import { compiled, startProgram } from '../kit/process.js';
import { signWebhook } from '../kit/sign-webhook.js';
import { temporaryFolder } from '../kit/tmp.js';

const ROOT = join(compiled('.'), '..');
/** Contains the package of the last release; before the first one, this version takes its place. */
const RELEASES = join(ROOT, 'test/package/releases');

const ENVIRONMENT = {
  PUBLIC_URL: 'http://app.example.test',
  JWT_ACCESS_SECRET: SECRETS.jwtAccessSecret,
  JWT_REFRESH_SECRET: SECRETS.jwtRefreshSecret,
  PAYMENT_WEBHOOK_SECRET: SECRETS.paymentWebhookSecret,
  IDP_PUBLIC_URL: ISSUER,
  IDP_ED25519_SEED: SEED,
  IDP_ADMIN_TOKEN: ADMIN_TOKEN,
};

type Name = 'saas-backend' | 'idp';

/** Unpacks the last release, with the dependencies of this version. Returns its folder. */
function unpackRelease(t: Test): string {
  const [released, ...others] = existsSync(RELEASES) ? readdirSync(RELEASES) : [];
  if (others.length > 0) throw new Error(`${RELEASES} has to contain one package only`);
  if (released === undefined) return ROOT;
  const folder = temporaryFolder(t);
  execFileSync('tar', ['-xzf', join(RELEASES, released), '-C', folder]);
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  return join(folder, 'package');
}

interface Reply {
  status: number;
  location: string | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
  body: any;
}

type Request = (
  method: string,
  path: string,
  call?: { headers?: Record<string, string>; body?: string | object },
) => Promise<Reply>;

/** Starts one of the two versions. */
async function start(t: Test, name: Name, root: string, databaseUri: string): Promise<Request> {
  const { bin } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const program = startProgram(t, join(root, bin[name]), {
    args: ['serve', '-p', '0'],
    cwd: temporaryFolder(t),
    env: { ...ENVIRONMENT, DATABASE_URI: databaseUri, IDP_DATABASE_URI: databaseUri },
  });
  const url = await program.url();
  return async (method, path, { headers = {}, body } = {}) => {
    const isText = typeof body === 'string' || body === undefined;
    const answer = await fetch(url + path, {
      method,
      redirect: 'manual',
      headers: { ...(!isText && { 'content-type': 'application/json' }), ...headers },
      ...(body !== undefined && { body: isText ? body : JSON.stringify(body) }),
    });
    const location = answer.headers.get('location') ?? undefined;
    return { status: answer.status, location, body: parseJson(await answer.text()) };
  };
}

type Steps = (t: Test, first: Request, second: Request, run: string) => Promise<void>;

const saasSteps: Steps = async (t, first, second, run) => {
  const account = { email: `${run}@example.test`, password: PASSWORD };
  const registered = await first('POST', '/api/auth/register', { body: account });
  t.equal(registered.status, 201);
  const { id } = registered.body.data.user;
  const login = await second('POST', '/api/auth/login', { body: account });
  let { accessToken, refreshToken } = login.body.data;
  for (const request of [first, second, first]) {
    const refreshed = await request('POST', '/api/auth/refresh', { body: { refreshToken } });
    t.equal(refreshed.status, 200, 'refresh');
    ({ accessToken, refreshToken } = refreshed.body.data);
  }
  const headers = { authorization: `Bearer ${accessToken}` };
  t.equal((await second('PATCH', '/api/user/profile', { headers, body: { name: run } })).status, 200);

  const object = { id: `sub_${run}`, customer: `cus_${run}`, status: 'active', metadata: { userId: id } };
  const body = JSON.stringify({ id: `evt_${run}`, type: 'customer.subscription.updated', data: { object } });
  const signature = signWebhook(body, SECRETS.paymentWebhookSecret, Date.now());
  const event = { headers: { 'payment-signature': signature, 'content-type': 'application/json' }, body };
  t.match(await first('POST', '/api/billing/webhook', event), { status: 200 });
  t.match(await second('POST', '/api/billing/webhook', event), { status: 200 });
  for (const request of [first, second]) {
    const { body: me } = await request('GET', '/api/auth/me', { headers });
    t.match(me.data.user, { id, name: run, subscription: { status: 'active' } });
  }

  t.ok((await second('POST', '/api/auth/logout', { headers, body: {} })).status < 300);
  for (const request of [first, second]) {
    t.equal((await request('GET', '/api/auth/me', { headers })).status, 401);
    t.equal((await request('POST', '/api/auth/refresh', { body: { refreshToken } })).status, 401);
  }
};

const idpSteps: Steps = async (t, first, second, run) => {
  const operator = { authorization: `Bearer ${ADMIN_TOKEN}` };
  const form = { 'content-type': 'application/x-www-form-urlencoded' };
  const application = { name: 'App', redirect_uris: [CALLBACK] };
  const made = await first('POST', '/v1/clients', { headers: operator, body: application });
  t.equal(made.status, 201);
  const client = { id: made.body.client_id, secret: made.body.client_secret, redirectUri: CALLBACK };
  const handle = `${run}@agents.example.test`;
  const minted = await second('POST', '/v1/agents', { headers: operator, body: { handle } });
  t.equal(minted.status, 201);
  const agent = { authorization: basic(handle, minted.body.password) };
  const path = authorizePath(client, { scope: 'openid profile offline_access', prompt: 'consent' });
  const code = codeIn((await first('GET', path, { headers: agent })).location);
  const bought = await second('POST', '/token', { headers: form, body: redemption(client, code) });
  t.equal(bought.status, 200, 'a code of one version is redeemed at the other');
  let { refresh_token: refreshToken, access_token: accessToken } = bought.body;
  for (const request of [first, second, first]) {
    const refreshed = await request('POST', '/token', {
      headers: form,
      body: refreshing(client, refreshToken),
    });
    t.equal(refreshed.status, 200, 'refresh');
    ({ refresh_token: refreshToken, access_token: accessToken } = refreshed.body);
  }
  for (const request of [first, second]) {
    const userinfo = await request('GET', '/userinfo', {
      headers: { authorization: `Bearer ${accessToken}` },
    });
    t.match(userinfo, { status: 200, body: { preferred_username: handle } });
  }
  const again = await first('POST', '/token', { headers: form, body: redemption(client, code) });
  t.equal(again.status, 400, 'a code is redeemed once');
};

const STEPS: Record<Name, Steps> = { 'saas-backend': saasSteps, idp: idpSteps };

async function upgrade(t: Test, name: Name, databaseUri: string): Promise<void> {
  const released = await start(t, name, unpackRelease(t), databaseUri);
  const current = await start(t, name, ROOT, databaseUri);
  await STEPS[name](t, released, current, 'one');
  await STEPS[name](t, current, released, 'two');
}

await onEngines((engine, fresh) => {
  for (const name of ['saas-backend', 'idp'] as const)
    t.test(`${name} is upgraded while it serves, on ${engine}`, (t) => upgrade(t, name, fresh(t)));
});
