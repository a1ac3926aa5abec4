import { once } from 'node:events';
import { request as httpRequest, METHODS } from 'node:http';
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { routeRules } from '../../../src/core/http/routes.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { createServer } from '../../../src/saas/server.js';
import {
  ADMIN,
  type Answer,
  auditOf,
  type Call,
  PASSWORD,
  type SaasApp,
  saasApp,
  storeOf,
  testOptions,
} from '../../kit/app.js';
import { collectionsOf, countDocuments, readRows } from '../../kit/sqlite.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';

const REGISTER = '/api/auth/register';
const LOGIN = '/api/auth/login';

/** Every route that validates JSON with our schemas, with a valid body. */
const JSON_ROUTES: [method: string, path: string, body: Record<string, unknown>, limit: number][] = [
  ['POST', REGISTER, { email: 'new@example.test', password: PASSWORD, name: 'New' }, 16],
  ['POST', LOGIN, { email: 'person1@example.test', password: PASSWORD }, 16],
  ['POST', '/api/auth/refresh', { refreshToken: 'x' }, 16],
  ['POST', '/api/auth/logout', { refreshToken: 'x', scope: 'local' }, 16],
  ['PATCH', '/api/user/profile', { name: 'New' }, 100],
  ['POST', '/api/billing/create-checkout-session', { priceId: 'price_1', mode: 'payment', quantity: 1 }, 100],
  ['POST', '/api/billing/create-portal-session', { returnPath: '/account' }, 100],
  ['PATCH', '/admin/api/settings', { siteName: 'New', allowRegistration: false, version: 0 }, 100],
];

/** Routes with a JSON body that are not in `JSON_ROUTES`. */
const OTHER_BODIES: Record<string, string> = {
  'POST /api/auth/forgot-password': 'an e-mail address only, like registration',
  'POST /api/auth/resend-verification': 'an e-mail address only, like registration',
  'POST /api/auth/reset-password': 'test/saas/auth/recovery.test.ts',
  'POST /api/auth/verify-email': 'test/saas/auth/confirmation.test.ts',
  'POST /api/auth/unlock': 'test/saas/auth/throttle.test.ts',
  'POST /api/auth/reauthenticate': 'test/saas/auth/second-factor.test.ts',
  'POST /api/user/password': 'test/saas/auth/accounts.test.ts',
  'POST /api/user/email': 'test/saas/auth/accounts.test.ts',
  'POST /api/user/delete': 'test/saas/auth/accounts.test.ts',
  'POST /api/billing/sync': 'every field is optional: test/saas/billing/purchase.test.ts',
  'POST /api/billing/subscription/change': 'test/saas/billing/changes.test.ts',
  'POST /api/billing/subscription/change/undo':
    'every field is optional: test/saas/billing/schedules.test.ts',
  'POST /api/billing/subscription/add-ons': 'test/saas/billing/add-ons.test.ts',
  'POST /api/billing/subscription/add-ons/remove': 'test/saas/billing/add-ons.test.ts',
  'POST /api/billing/subscription/promotion-code': 'test/saas/billing/add-ons.test.ts',
  'POST /api/billing/subscription/cancel': 'every field is optional: test/saas/billing/changes.test.ts',
  'POST /api/billing/subscription/resume': 'every field is optional: test/saas/billing/changes.test.ts',
  'POST /api/billing/subscription/pause': 'every field is optional: test/saas/billing/changes.test.ts',
};

/** The routes without a guard. Every other one has a guard. */
const PUBLIC = [
  ...[
    ...['/health', '/ready', '/api/health', '/api/ready', '/api/openapi.json', '/api/docs'],
    ...['start.js', 'swagger-ui-bundle.js', 'swagger-ui.css'].map((file) => `/api/docs/${file}`),
    ...['reset-password', 'unlock', 'verify-email'].map((link) => `/api/auth/${link}`),
    ...['/api/auth/session', '/api/billing/plans', '/api/settings/public'],
  ].map((path) => `GET ${path}`),
  ...[
    ...['register', 'login', 'logout', 'refresh', 'forgot-password', 'resend-verification'],
    ...['reset-password', 'unlock', 'verify-email', 'session/token'],
  ].map((action) => `POST /api/auth/${action}`),
  'POST /api/billing/webhook',
];

/** Routes of the admin area that have their own tests in `test/saas/admin`. */
const ADMIN_ROUTES: readonly RegExp[] = [
  // Any spelling of the parameter is an ID.
  /^(GET|POST) \/admin\/.*:/,
  // Actions, which take forms or, below `/api`, JSON.
  /^POST \/admin\//,
];

const isListed = (name: string): boolean => !ADMIN_ROUTES.some((pattern) => pattern.test(name));

interface AddedRoute {
  body?: { required?: string[]; properties: Record<string, { default?: unknown }> };
  access?: string;
}

/** The routes of a backend, each as `POST /path`, with its schema and access level. */
async function routesOf(t: Test): Promise<Map<string, AddedRoute>> {
  const server = createServer(testOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  const routes = new Map<string, AddedRoute>();
  server.fastify.addHook('onRoute', ({ method, url, schema, config }) => {
    for (const verb of [method].flat()) {
      const { access: level } = routeRules({ config });
      const body = schema?.body as AddedRoute['body'];
      if (verb !== 'HEAD' && verb !== 'OPTIONS')
        routes.set(`${verb} ${url}`, {
          ...(body && { body }),
          ...(level !== undefined && { access: level }),
        });
    }
  });
  await server.fastify.ready();
  t.ok(routes.size > 20);
  return routes;
}

t.test('every route without a guard or with a body is in the lists of this file', async (t) => {
  const routes = await routesOf(t);
  const bodies = [...routes].filter(([, { body }]) => body !== undefined).map(([name]) => name);
  const tried = JSON_ROUTES.map(([method, path]) => `${method} ${path}`);
  t.same([...tried, ...Object.keys(OTHER_BODIES)].sort(), bodies.filter(isListed).sort());
  const open = [...routes].filter(([, { access: level }]) => level === 'public').map(([name]) => name);
  t.same(PUBLIC.toSorted(), open.sort());
  for (const name of routes.keys()) t.notMatch(name, '*', 'a wildcard would have a method for every path');
});

/** Collections that may change during refused requests: records of them, and those of the background jobs. */
const BOOKKEEPING = [
  'active_users',
  ...['audit', 'throttles', 'knownSources', 'leases'],
  ...['billing_figures', 'billing_figure_progress'],
];

/** A backend with one account, and its data. */
async function begin(t: Test): Promise<{
  app: SaasApp;
  /** Calls a route with the credentials it requires. */
  call(method: string, path: string, more: Call): Promise<Answer>;
  dump(): Promise<unknown>;
}> {
  const app = await saasApp(t);
  const { accessToken: token } = await app.signUp();
  // The welcome mail is stored after the answer.
  await waitUntil('the welcome mail is stored', () => countDocuments(app.file).get('mails') === 1);
  return {
    app,
    call: (method, path, { headers, ...more }) =>
      path.startsWith('/admin')
        ? app.request(method, path, { ...more, headers: { ...ADMIN, ...headers } })
        : app.request(method, path, {
            ...more,
            ...(headers && { headers }),
            // There it would sign the caller out.
            ...(!path.startsWith('/api/auth') && { token }),
          }),
    dump: async () =>
      collectionsOf(app.file)
        .filter((name) => !BOOKKEEPING.includes(name))
        // The outbox keeps changing its mails, as it fails to deliver them.
        .map((name) => [
          name,
          readRows(app.file, `SELECT ${name === 'mails' ? 'id' : 'doc'} FROM "${name}" ORDER BY id`),
        ]),
  };
}

t.test('a wrong type in any field of any route is answered 400 and stores nothing', async (t) => {
  const { call, dump } = await begin(t);
  const before = await dump();
  const operators = [{ $gt: '' }, { $ne: null }, { $where: '1' }, { $in: ['x'] }];
  for (const [method, path, body] of JSON_ROUTES) {
    for (const field of Object.keys(body)) {
      const right = body[field];
      const others = [null, 5, true, 'text', [right], { value: right }, ...operators];
      for (const wrong of others.filter((value) => typeof value !== typeof right)) {
        const answer = await call(method, path, { body: { ...body, [field]: wrong } });
        t.equal(answer.status, 400, `${path} ${field} ${JSON.stringify(wrong)}`);
        t.match(answer.body, {
          success: false,
          error: { code: 'VALIDATION_ERROR', details: [{ path: field, message: String }] },
        });
      }
    }
    for (const whole of ['[]', 'null', '"text"', '5', '[{}]']) {
      t.equal((await call(method, path, { body: whole })).status, 400, `${path} ${whole}`);
    }
    for (const broken of [
      '{',
      '{"a":}',
      "{'a':1}",
      '{"a":1}}',
      '\ufeff{',
      '{"a":NaN}',
      '{"a":01}',
      'undefined',
    ]) {
      const answer = await call(method, path, { body: broken });
      t.equal(answer.status, 400, `${path} ${broken}`);
      t.equal(answer.body.error.code, 'INVALID_JSON');
    }
  }
  t.same(await dump(), before);
});

t.test('an empty or missing selector is answered 400', async (t) => {
  const { call, dump } = await begin(t);
  const before = await dump();
  const routes = await routesOf(t);
  for (const [method, path] of JSON_ROUTES) {
    const { required = [], properties = {} } = routes.get(`${method} ${path}`)?.body ?? {};
    const fields = required.filter((field) => properties[field]?.default === undefined);
    if (fields.length === 0) continue;
    for (const more of [{}, { body: '' }, { body: {} }, { body: { [String(fields[0])]: undefined } }]) {
      const answer = await call(method, path, more);
      t.equal(answer.status, 400, `${path} ${JSON.stringify(more)}`);
      t.same(answer.body.error.details.map(({ path }: { path: string }) => path).sort(), fields.toSorted());
    }
  }
  t.equal((await call('POST', '/api/auth/refresh', { body: { refreshToken: '' } })).status, 400);
  t.equal((await call('POST', '/api/auth/logout', { body: { refreshToken: '' } })).status, 400);
  t.same(await dump(), before);
});

t.test('body fields outside the schema are never stored', async (t) => {
  const { app } = await begin(t);
  const extras = {
    id: 'usr_mine',
    role: 'admin',
    createdAt: 1,
    emailVerified: true,
    subscription: { status: 'active', plan: 'gold' },
    subscriptionStatus: 'active',
    subscriptionPlan: 'gold',
    passwordHash: 'x',
    sessionEpoch: 7,
    suspendedAt: 1,
  };
  const body = { email: 'new@example.test', password: PASSWORD };
  const refused = await app.request('POST', REGISTER, { body: { ...body, ...extras } });
  t.equal(refused.status, 400, 'a registration refuses them');
  t.same(
    refused.body.error.details.map(({ path }: { path: string }) => path),
    Object.keys(extras),
  );
  const answer = await app.request('POST', REGISTER, { body });
  t.equal(answer.status, 201);
  const { id } = answer.body.data.user;
  const users = userCollection(await storeOf(t, app));
  const stored = await users.findOne({ id });
  t.strictSame(stored, {
    id,
    email: 'new@example.test',
    passwordHash: stored?.passwordHash,
    passwordVersion: 1,
    emailVerified: false,
    sessionEpoch: 0,
    subscriptionStatus: 'none',
    subscriptionPlan: 'free',
    createdAt: app.clock.now(),
  });
  t.match(stored?.passwordHash, /^\$argon2id\$/);
  const token = answer.body.data.accessToken;
  const patch = (body: object) => app.request('PATCH', '/api/user/profile', { token, body });
  t.equal((await patch({ ...extras, email: 'x@y.zz', name: 'New' })).status, 400);
  t.strictSame(await users.findOne({ id }), stored);
  t.equal((await patch({ name: 'New' })).status, 200);
  t.strictSame(await users.findOne({ id }), { ...stored, name: 'New', profileVersion: 1 });
});

t.test('request bodies cannot change prototypes', async (t) => {
  const { call } = await begin(t);
  for (const [method, path, body] of JSON_ROUTES) {
    const { name: _, ...others } = body;
    const inside = JSON.stringify(others).slice(1, -1);
    for (const poison of [
      '"__proto__":{"polluted":1}',
      '"constructor":{"prototype":{"polluted":1}}',
      '"name":{"__proto__":{"polluted":1}}',
      '"\\u005f_proto__":{"polluted":1}',
    ]) {
      const text = inside ? `{${poison},${inside}}` : `{${poison}}`;
      t.equal((await call(method, path, { body: text })).status, 400, `${path} ${poison}`);
    }
  }
  t.equal(({} as { polluted?: unknown }).polluted, undefined);
});

t.test('a body is at most 16 KiB under auth, 100 KiB elsewhere', async (t) => {
  const { call, dump } = await begin(t);
  const before = await dump();
  for (const [method, path, , kibibytes] of JSON_ROUTES) {
    const limit = kibibytes * 1024;
    const ofSize = (bytes: number) => `{"x":"${'x'.repeat(bytes - 8)}"}`;
    t.not((await call(method, path, { body: ofSize(limit) })).status, 413, path);
    const answer = await call(method, path, { body: ofSize(limit + 1) });
    t.equal(answer.status, 413, path);
    t.equal(answer.body.error.code, 'PAYLOAD_TOO_LARGE');
  }
  t.same(await dump(), before);
});

t.test('an endless upload is cut off', async (t) => {
  const { app } = await begin(t);
  const url = await app.listen();
  const headers = { 'content-type': 'application/json' };
  const request = httpRequest(`${url}${LOGIN}`, { method: 'POST', headers });
  // The server closes the connection during the rest.
  request.on('error', () => {});
  for (let count = 0; count < 8; count++) request.write(Buffer.alloc(4096, 0x20));
  const [response] = await once(request, 'response');
  t.equal(response.statusCode, 413);
  request.destroy();
});

t.test('deeply nested JSON is a client error', async (t) => {
  const { call } = await begin(t);
  for (const [method, path, body, kibibytes] of JSON_ROUTES) {
    const depth = kibibytes * 400;
    const [field] = Object.keys(body);
    const nested = `{"${field}":${'['.repeat(depth)}${']'.repeat(depth)}}`;
    t.equal((await call(method, path, { body: nested })).status, 400, path);
  }
});

t.test('every route refuses bodies other than unencoded JSON', async (t) => {
  const { call, dump } = await begin(t);
  const before = await dump();
  for (const [method, path, body] of JSON_ROUTES) {
    for (const type of [
      'text/plain',
      'text/plain; charset=application/json',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'application/jsonx',
      'application/json\tgarbage',
      'application/json garbage',
      'application/json, text/plain',
      'application/vnd.api+json',
      'application',
      '',
    ]) {
      const answer = await call(method, path, { body, headers: { 'content-type': type } });
      t.equal(answer.status, 415, `${path} ${type}`);
      t.equal(answer.body.error.code, 'UNSUPPORTED_MEDIA_TYPE');
    }
    for (const encoding of ['gzip', 'br', 'deflate', 'identity, gzip', 'x']) {
      const answer = await call(method, path, { body, headers: { 'content-encoding': encoding } });
      t.equal(answer.status, 415, `${path} ${encoding}`);
    }
    for (const type of ['application/json; charset=utf-8', 'APPLICATION/JSON', ' application/json']) {
      const wrong = await call(method, path, {
        body: { email: 5, name: 5 },
        headers: { 'content-type': type },
      });
      t.not(wrong.status, 415, 'is JSON');
      t.not(wrong.status, 200, 'and judged by the schema');
    }
  }
  t.same(await dump(), before);
});

t.test('every answer carries the security headers', async (t) => {
  const { app, call } = await begin(t);
  const secure = await saasApp(t, { publicUrl: 'https://app.example.test' });
  const answers = {
    ok: await call('GET', '/api/user/profile', {}),
    health: await app.request('GET', '/health'),
    unauthenticated: await app.request('GET', '/api/auth/me'),
    invalid: await app.request('POST', LOGIN, { body: {} }),
    broken: await app.request('POST', LOGIN, { body: '{' }),
    media: await app.request('POST', LOGIN, { body: 'x', headers: { 'content-type': 'text/plain' } }),
    missing: await app.request('GET', '/api/nothing'),
    'missing at the root': await app.request('GET', '/nothing'),
    'missing in admin': await app.request('GET', '/admin/nothing'),
    admin: await app.request('GET', '/admin'),
    method: await app.request('TRACE', '/api/auth/me'),
    'broken percent-encoding': await app.request('GET', '/api/%zz'),
    'broken percent-encoding at the root': await app.request('GET', '/%ff'),
  };
  for (const [name, { headers }] of Object.entries(answers)) {
    t.match(
      headers,
      {
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'same-origin',
        'cross-origin-resource-policy': 'same-origin',
        'cache-control': 'no-store',
        'x-request-id': /^req_/,
      },
      name,
    );
    for (const absent of ['server', 'x-powered-by', 'strict-transport-security']) {
      t.equal(headers[absent], undefined, `${name} ${absent}`);
    }
  }
  for (const path of ['/api/health', '/api/nothing', '/api/%zz']) {
    const { headers } = await secure.request('GET', path);
    t.equal(headers['strict-transport-security'], 'max-age=31536000', path);
  }
});

t.test('CORS admits exactly the listed origins, and only where needed', async (t) => {
  const origin = 'https://app.example';
  const app = await saasApp(t, {
    corsOrigin: [origin, 'https://other.example:8443', 'capacitor://localhost'],
  });
  const allowed = async (method: string, path: string, from: string) => {
    const ask = { 'access-control-request-method': 'POST', 'access-control-request-headers': 'content-type' };
    const { headers } = await app.request(method, path, {
      headers: { origin: from, ...(method === 'OPTIONS' && ask) },
    });
    return headers;
  };
  for (const listed of [origin, 'https://other.example:8443', 'capacitor://localhost']) {
    const headers = await allowed('GET', '/api/auth/me', listed);
    t.equal(headers['access-control-allow-origin'], listed);
    t.equal(headers['access-control-allow-credentials'], 'true', 'for session cookies');
    t.match(headers['vary'], 'Origin');
    t.equal(headers['access-control-expose-headers'], 'Retry-After, X-Request-Id, WWW-Authenticate');
    t.equal((await allowed('OPTIONS', LOGIN, listed))['access-control-allow-origin'], listed);
  }
  for (const foreign of [
    'null',
    'https://evil.test',
    'http://app.example',
    'https://app.example:8443',
    'https://app.example.evil.test',
    'https://sub.app.example',
    'https://evil-app.example',
    'https://APP.example',
    'ionic://localhost',
    'capacitor://evil.test',
    '',
  ]) {
    for (const method of ['GET', 'OPTIONS']) {
      const headers = await allowed(method, '/api/auth/me', foreign);
      t.equal(headers['access-control-allow-origin'], undefined, `${method} ${foreign}`);
    }
  }
  for (const path of ['/api/billing/webhook', '/admin', '/admin/api/settings', '/health', '/']) {
    for (const method of ['GET', 'POST', 'OPTIONS']) {
      const headers = await allowed(method, path, origin);
      t.equal(headers['access-control-allow-origin'], undefined, `${method} ${path}`);
      t.equal(headers['access-control-allow-methods'], undefined);
    }
  }
  const open = await saasApp(t, { corsOrigin: ['*'] });
  const answer = await open.request('GET', '/api/auth/me', { headers: { origin: 'https://any.test' } });
  t.equal(answer.headers['access-control-allow-origin'], '*');
  t.equal(answer.headers['access-control-allow-credentials'], undefined);
  const closed = await saasApp(t);
  const none = await closed.request('GET', '/api/auth/me', { headers: { origin } });
  t.equal(none.headers['access-control-allow-origin'], undefined);
});

t.test('links never use addresses from the request', async (t) => {
  const app = await saasApp(t);
  const issuerOf = (token: string) =>
    JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()).iss;
  const { email } = await app.signUp();
  for (const headers of [
    { host: 'evil.test' },
    { host: 'app.example.test.evil.test:80' },
    { 'x-forwarded-host': 'evil.test', 'x-forwarded-proto': 'https' },
    { 'x-original-host': 'evil.test' },
    { forwarded: 'host=evil.test;proto=https' },
  ]) {
    const answer = await app.request('POST', LOGIN, { body: { email, password: PASSWORD }, headers });
    t.equal(answer.status, 200, JSON.stringify(headers));
    t.equal(issuerOf(answer.body.data.accessToken), 'http://app.example.test');
    t.notMatch(JSON.stringify([answer.headers, answer.text]), 'evil');
  }
  const headers = { host: 'app.example.test:80@evil.test' };
  const refused = await app.request('POST', LOGIN, { body: { email, password: PASSWORD }, headers });
  t.equal(refused.status, 400, 'what is no host at all');
  t.notMatch(JSON.stringify([refused.headers, refused.text]), 'evil');
  const raw = await exchange(
    await app.listen(),
    'GET http://evil.test/admin HTTP/1.1\r\nHost: evil.test\r\n',
  );
  t.match(raw, /^HTTP\/1\.1 40[14] /);
  t.notMatch(raw, 'evil');
});

/** A request written by hand, which no client library would send. */
async function exchange(url: string, head: string): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.end(`${head}Connection: close\r\n\r\n`);
  return (await socket.toArray()).join('');
}

t.test('X-Forwarded-For counts only from a trusted proxy', async (t) => {
  const ipOf = async (app: SaasApp, forwarded: string) => {
    const headers = { 'x-forwarded-for': forwarded };
    await app.request('POST', LOGIN, { body: { email: 'a@example.test', password: 'x' }, headers });
    return (await auditOf(await storeOf(t, app))).pop()?.ip;
  };
  const untrusting = await saasApp(t);
  for (const forwarded of ['1.2.3.4', 'a', '', '::ffff:1.2.3.4', Array(1000).fill('1.2.3.4').join(', ')]) {
    t.equal(await ipOf(untrusting, forwarded), '127.0.0.1', forwarded.slice(0, 30));
  }
  const behind = await saasApp(t, { trustProxy: ['127.0.0.0/8', '10.0.0.1'] });
  t.equal(await ipOf(behind, '6.6.6.6, 1.2.3.4, 10.0.0.1'), '1.2.3.4', 'the rightmost untrusted hop');
  t.equal(await ipOf(behind, '1.2.3.4'), '1.2.3.4');
  const elsewhere = await saasApp(t, { trustProxy: ['10.0.0.0/8'] });
  t.equal(await ipOf(elsewhere, '1.2.3.4'), '127.0.0.1');
  for (const trustProxy of [true, 1, '1', ['']])
    await t.rejects(saasApp(t, { trustProxy: trustProxy as never }), { name: 'ConfigurationError' });
});

t.test(
  'a method that a path does not have is answered 405 with those it has, and has no effect',
  async (t) => {
    const { app, call, dump } = await begin(t);
    const before = await dump();
    for (const [own, path, body] of JSON_ROUTES) {
      for (const method of ['PUT', 'DELETE', 'TRACE']) {
        const answer = await call(method, path, method === 'TRACE' ? {} : { body });
        t.equal(answer.status, 405, `${method} ${path}`);
        t.equal(answer.body.error.code, 'METHOD_NOT_ALLOWED');
        t.ok(answer.headers['allow']?.split(', ').includes(own), `${path} ${answer.headers['allow']}`);
        t.notMatch(answer.text, /Bearer|Basic/);
      }
      t.equal((await call('OPTIONS', path, {})).status, 404, `OPTIONS ${path} without CORS`);
    }
    t.same(await dump(), before);

    const allowed = async (method: string, path: string, more: Call = {}) => {
      const { status, headers } = await app.request(method, path, more);
      return [status, headers['allow']];
    };
    t.same(await allowed('POST', '/api/auth/me?x=/api/auth/login'), [405, 'GET, HEAD']);
    t.same(await allowed('PUT', '/api/auth/sessions/any%2Fid'), [405, 'DELETE']);
    t.same(await allowed('PUT', '/admin/api/settings'), [405, 'GET, HEAD, PATCH']);
    t.same(await allowed('PUT', '/admin'), [405, 'GET, HEAD'], 'at the prefix');
    t.same(await allowed('PUT', '/admin/'), [405, 'GET, HEAD']);
    t.same(await allowed('PUT', '/health'), [405, 'GET, HEAD'], 'at the root of the server');
    for (const method of METHODS.filter((name) => !['CONNECT', 'GET', 'HEAD', 'OPTIONS'].includes(name)))
      t.same(await allowed(method, '/ready'), [405, 'GET, HEAD'], method);
    for (const path of [
      ...['/', '/api', '/api/nothing', '/api/auth/login/', '/api/auth/sessions/', '/api/*'],
      // Of features that are not configured.
      ...['/api/user/passkeys', '/api/auth/email-login', '/account/name', '/metrics'],
    ])
      t.same(await allowed('PUT', path), [404, undefined], path);

    const page = await app.request('POST', '/admin/mails', { headers: { accept: 'text/html' }, body: {} });
    t.match([page.status, page.headers['allow']], [405, 'GET, HEAD']);
    t.match(page.headers['content-type'], 'text/html');
  },
);
