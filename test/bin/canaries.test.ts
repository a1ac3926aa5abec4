import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { Server } from '../../src/core/server/assembly.js';
import { createIdentityServer } from '../../src/idp/server.js';
import { createServer } from '../../src/saas/server.js';
import { basic, SECRETS, testOptions } from '../kit/app.js';
import { ADMIN_TOKEN, idpOptions, SEED } from '../kit/idp.js';
import { compiled, type Program, startProgram } from '../kit/process.js';
import { signWebhook } from '../kit/sign-webhook.js';
import { temporaryFolder } from '../kit/tmp.js';

/**
 * Valid and invalid requests with secrets go to every route at the most verbose log level. No secret may appear in the
 * log, in an answer or in the store. The routes are listed at run time, so a new one is covered without a change here.
 */

/** Values that appear only where a test has put them. */
const planted = (name: string) => `canary-${name}-Xq7vLd0mZw4RkT9c`;
const PASSWORD = planted('password');
const WRONG = planted('wrong-password');
const COOKIE = planted('cookie');
const BEARER = planted('bearer');
const SIGNED = planted('signed-url');
const TOKEN = planted('token');
const SMTP = planted('smtp');
const ES256_KEY = '8f1d5a3bc7e20946d8b3f7a1625c0e94b7d2183ea5f6c04917e8d3b260fa5c71';

interface Route {
  method: string;
  url: string;
}

/** Every route of a server, from Fastify. */
async function routesOf({ fastify, stop }: Server): Promise<Route[]> {
  const routes: Route[] = [];
  fastify.addHook('onRoute', ({ method, url }) => {
    for (const verb of [method].flat()) if (verb !== 'HEAD') routes.push({ method: verb, url });
  });
  await fastify.ready();
  await stop();
  return routes;
}

/** A body with the fields of every route, each of them a secret. */
const FIELDS: Record<string, string> = {
  email: 'canary@example.test',
  password: PASSWORD,
  currentPassword: PASSWORD,
  newPassword: WRONG,
  password_confirm: WRONG,
  refreshToken: TOKEN,
  token: TOKEN,
  handle: 'canary@example.test',
  client_secret: TOKEN,
  code: TOKEN,
  code_verifier: TOKEN,
  refresh_token: TOKEN,
  access_token: TOKEN,
  interaction: TOKEN,
  grant_type: 'authorization_code',
};

/** Payloads for a route: valid, of a wrong type, and malformed. */
function bodiesOf(method: string): [type: string | undefined, body: string | undefined][] {
  if (method === 'GET' || method === 'OPTIONS') return [[undefined, undefined]];
  const json = JSON.stringify(FIELDS);
  return [
    ['application/json', json],
    ['application/x-www-form-urlencoded', new URLSearchParams(FIELDS).toString()],
    ['application/json', json.slice(0, -9)],
    [
      'application/json',
      JSON.stringify(Object.fromEntries(Object.keys(FIELDS).map((name) => [name, [TOKEN]]))),
    ],
    [
      'application/json',
      JSON.stringify({ ...FIELDS, email: TOKEN, handle: `${TOKEN} x`, padding: TOKEN.repeat(30_000) }),
    ],
    ['application/x-www-form-urlencoded', `token=${TOKEN}&token=${TOKEN}&password=%`],
    ['text/plain', `${TOKEN} ${PASSWORD}`],
  ];
}

interface Answer {
  what: string;
  text: string;
}

/** Where credentials are invalid, a body of each type is enough: what is wrong with others does not depend on the credentials. */
const WELL_FORMED = 2;

/** Sends all bodies, or the first ones, to every route with these credentials. */
async function drive(
  url: string,
  routes: Route[],
  credentials: Record<string, string>,
  bodies = Number.POSITIVE_INFINITY,
): Promise<Answer[]> {
  const answers: Answer[] = [];
  // The route for `*` is that of @fastify/cors, which is moved away when it is added.
  for (const { method, url: pattern } of routes.filter(({ url }) => url !== '*')) {
    const path = pattern.replaceAll(/:\w+|\*/g, TOKEN);
    for (const [type, body] of bodiesOf(method).slice(0, bodies)) {
      const query = `?token=${TOKEN}&signature=${SIGNED}&client_id=${TOKEN}&state=s&id_token_hint=${TOKEN}`;
      const response = await fetch(url + path + query, {
        method,
        redirect: 'manual',
        headers: {
          cookie: `__Host-sid=${COOKIE}; sid=${COOKIE}; interaction=${COOKIE}`,
          'x-requested-with': 'test',
          'payment-signature': `t=1,v1=${TOKEN}`,
          accept: body === undefined ? 'text/html' : 'application/json',
          ...(type && { 'content-type': type }),
          ...credentials,
        },
        ...(body !== undefined && { body }),
      });
      const headers = [...response.headers].map((pair) => pair.join(': ')).join('\n');
      // A page passes the token of its address, or the address to return to, on to its form.
      const text = (await response.text()).replace(
        /<input type="hidden" name="(token|interaction)" value="[^"]*">/g,
        '',
      );
      answers.push({ what: `${method} ${pattern} ${type}`, text: `${headers}\n${text}` });
    }
  }
  return answers;
}

/** Where canaries appear: in an answer, the log, or the files of the store while it is open and afterwards. */
async function sightings(
  folder: string,
  program: Program,
  answers: Answer[],
  canaries: Record<string, string>,
) {
  const files = () =>
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ parentPath, path, name }) => join(parentPath ?? path, name))
      .map((file) => ({ what: file.slice(folder.length), text: readFileSync(file, 'latin1') }));
  const open = files();
  const code = await program.terminate();
  const places = [
    ...answers,
    ...open,
    ...files(),
    ...program.lines.map((text) => ({ what: `log: ${text}`, text })),
  ];
  const found = Object.entries(canaries).flatMap(([name, secret]) =>
    places.filter(({ text }) => text.includes(secret)).map(({ what }) => `${name} in ${what.slice(0, 300)}`),
  );
  return { code, found: [...new Set(found)], open };
}

/** A secret, and its encoded forms. */
function disguises(name: string, secret: string): Record<string, string> {
  return {
    [name]: secret,
    [`${name}, base64`]: Buffer.from(secret).toString('base64').replace(/.?=*$/, ''),
    [`${name}, hex`]: Buffer.from(secret).toString('hex'),
  };
}

const all = (secrets: Record<string, string>) =>
  Object.assign({}, ...Object.entries(secrets).map(([name, secret]) => disguises(name, secret)));

const COMMON = { PASSWORD, WRONG, COOKIE, BEARER, SIGNED, TOKEN };

t.test('saas-backend writes no secret to logs, answers, e-mails or its database', async (t) => {
  const routes = await routesOf(createServer({ ...testOptions(temporaryFolder(t)) }));
  t.ok(routes.length > 10);
  const cwd = temporaryFolder(t);
  const { jwtAccessSecret, jwtRefreshSecret, paymentWebhookSecret, adminUsername, adminPassword } = SECRETS;
  const env = {
    LOG_LEVEL: 'trace',
    DATABASE_URI: `sqlite:${join(cwd, 'app.db')}`,
    JWT_ACCESS_SECRET: jwtAccessSecret,
    JWT_REFRESH_SECRET: jwtRefreshSecret,
    PAYMENT_WEBHOOK_SECRET: paymentWebhookSecret,
    PAYMENT_SECRET_KEY: `sk_${planted('payment')}`,
    PAYMENT_API_URL: 'http://127.0.0.1:1',
    EMAIL_SMTP_URL: `smtp://mailer:${SMTP}@127.0.0.1:1`,
    ADMIN_USERNAME: adminUsername,
    ADMIN_PASSWORD: adminPassword,
    API_KEYS: 'true',
  };
  const program = startProgram(t, compiled('bin/saas-backend.js'), {
    args: ['-p', '0', '--json'],
    cwd,
    env,
  });
  const url = (await program.printed(/"url":"(http[^"]+)"/))[1] as string;
  const post = async (path: string, body: object, headers: Record<string, string> = {}) => {
    const text = JSON.stringify(body);
    const all = { 'content-type': 'application/json', ...headers };
    // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
    return (await fetch(url + path, { method: 'POST', body: text, headers: all })).json() as Promise<any>;
  };
  const register = (email: string) => post('/api/auth/register', { email, password: PASSWORD });
  const { data: ada } = await register('ada@example.test');
  t.type(ada.accessToken, 'string');
  const { data: login } = await post('/api/auth/login', { email: 'ada@example.test', password: PASSWORD });
  const { data: refreshed } = await post('/api/auth/refresh', { refreshToken: login.refreshToken });
  await post('/api/auth/refresh', { refreshToken: `${login.refreshToken.slice(0, -1)}-` });
  const event = JSON.stringify({ type: 'x', data: { object: { id: 'o' } } });
  const signature = signWebhook(event, paymentWebhookSecret, Date.now());
  await fetch(`${url}/api/billing/webhook`, {
    method: 'POST',
    body: event,
    headers: { 'content-type': 'application/json', 'payment-signature': signature },
  });

  const authorization = `Bearer ${ada.accessToken}`;
  const key = await post('/api/user/keys', { name: 'Canary', scopes: ['profile:read'] }, { authorization });
  const apiKey: string = key.data.secret;
  t.match(apiKey, /^sk_/);
  const answers = [
    ...(await drive(url, routes, {})),
    ...(await drive(url, routes, { authorization: basic() })),
    ...(await drive(url, routes, { authorization: `Bearer ${BEARER}` }, WELL_FORMED)),
    ...(await drive(url, routes, { authorization: `Bearer ${apiKey}` }, WELL_FORMED)),
    ...(await drive(url, routes, { authorization: `Bearer ${ada.accessToken}${BEARER}` }, WELL_FORMED)),
    // Includes logout, so it runs after all requests that need the session.
    ...(await drive(url, routes, { authorization })),
    // Last, because invalid operator credentials are counted.
    ...(await drive(url, routes, { authorization: basic(adminUsername, WRONG) }, WELL_FORMED)),
  ];
  const tokens = [ada, login, refreshed].flatMap(({ accessToken, refreshToken }) => [
    accessToken,
    refreshToken,
  ]);
  const signatures = tokens.map((token: string, index) => [`token ${index}`, token.split('.')[2] ?? '']);
  const { code, found, open } = await sightings(cwd, program, answers, {
    ...all({ ...COMMON, SMTP, jwtAccessSecret, jwtRefreshSecret, paymentWebhookSecret, adminPassword }),
    ...all({
      'Basic of the operator': `${adminUsername}:${adminPassword}`,
      paymentKey: env.PAYMENT_SECRET_KEY,
    }),
    ...all({ apiKey }),
    ...Object.fromEntries(signatures),
  });
  t.same(found, []);
  t.equal(code, 0);
  controls(t, program, open, answers, 'ada@example.test');
});

t.test('idp writes no secret to logs, answers or its database', async (t) => {
  const routes = await routesOf(createIdentityServer({ ...idpOptions(temporaryFolder(t)) }));
  t.ok(routes.length > 10);
  const cwd = temporaryFolder(t);
  const env = {
    LOG_LEVEL: 'trace',
    IDP_DATABASE_URI: `sqlite:${join(cwd, 'idp.db')}`,
    IDP_ADMIN_TOKEN: ADMIN_TOKEN,
    IDP_ED25519_SEED: SEED,
    IDP_ES256_KEY: ES256_KEY,
  };
  const args = ['serve', '-port', '0', '--json'];
  const program = startProgram(t, compiled('bin/idp.js'), { args, cwd, env });
  const url = (await program.printed(/"url":"(http[^"]+)"/))[1] as string;
  const admin = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' };
  const post = async (path: string, body: object) => {
    const answer = await fetch(url + path, { method: 'POST', body: JSON.stringify(body), headers: admin });
    // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
    return answer.json() as Promise<any>;
  };
  const agent = await post('/v1/agents', { handle: 'scout@agents.example' });
  const client = await post('/v1/clients', {
    name: 'App',
    redirect_uris: ['https://app.example.test/cb'],
    id_token_signed_response_alg: 'ES256',
  });
  await post('/v1/accounts', { handle: 'ada@example.test', kind: 'human', password: PASSWORD });
  const parameters = new URLSearchParams({
    client_id: client.client_id,
    redirect_uri: 'https://app.example.test/cb',
    response_type: 'code',
    scope: 'openid',
  });
  const authorized = await fetch(`${url}/authorize?${parameters}`, {
    redirect: 'manual',
    headers: { authorization: basic(agent.handle, agent.password) },
  });
  const code = new URL(authorized.headers.get('location') ?? '').searchParams.get('code') ?? '';
  const redeem = () =>
    fetch(`${url}/token`, {
      method: 'POST',
      body: new URLSearchParams({
        grant_type: 'authorization_code',
        code,
        redirect_uri: 'https://app.example.test/cb',
        client_id: client.client_id,
        client_secret: client.client_secret,
      }),
    });
  const tokens = (await (await redeem()).json()) as Record<string, string>;
  t.match(tokens['access_token'], /^at_/);
  await redeem();

  const form = await fetch(`${url}/authorize?${parameters}`, { headers: { accept: 'text/html' } });
  const cookie = form.headers.getSetCookie()[0]?.split(';')[0] ?? '';
  const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
  const answers = [
    ...(await drive(url, routes, {})),
    ...(await drive(url, routes, { cookie })),
    ...(await drive(url, routes, bearer(ADMIN_TOKEN))),
    ...(await drive(url, routes, bearer(tokens['access_token'] ?? ''))),
    ...(await drive(url, routes, { authorization: basic(client.client_id, client.client_secret) })),
    ...(await drive(url, routes, { authorization: basic('ada@example.test', WRONG) }, WELL_FORMED)),
    ...(await drive(url, routes, bearer(BEARER), WELL_FORMED)),
  ];
  const { found, open, ...ended } = await sightings(cwd, program, answers, {
    ...all({ ...COMMON, ADMIN_TOKEN, SEED, ES256_KEY, code, agentPassword: agent.password }),
    ...all({ clientSecret: client.client_secret, accessToken: tokens['access_token'] ?? '' }),
    seed: Buffer.from(SEED, 'hex').toString('latin1'),
    'seed, base64': Buffer.from(SEED, 'hex').toString('base64url'),
    'ES256 key': Buffer.from(ES256_KEY, 'hex').toString('latin1'),
    'ES256 key, base64': Buffer.from(ES256_KEY, 'hex').toString('base64url'),
    id_token: tokens['id_token']?.split('.')[2] ?? '',
    'cookie of the form': cookie.split('=')[1] ?? '',
  });
  t.same(found, []);
  t.equal(ended.code, 0);
  controls(t, program, open, answers, 'scout@agents.example');
});

/** Checks that the test can detect leaks: the log is verbose, the files are the store's, the answers vary. */
function controls(t: Test, program: Program, open: Answer[], answers: Answer[], known: string): void {
  t.ok(
    open.some(({ what }) => what.endsWith('-wal')),
    'the log of the store is looked at',
  );
  t.ok(
    open.some(({ text }) => text.includes(known)),
    'what the store does hold is found in it',
  );
  t.ok(program.lines.filter((line) => line.includes('request completed')).length > answers.length / 2);
  t.ok(
    answers.some(({ text }) => text.includes('<!doctype html>') || text.includes('<html')),
    'pages are among them',
  );
}
