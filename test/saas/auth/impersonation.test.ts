import t, { type Test } from 'tap';
import { routeRules } from '../../../src/core/http/routes.js';
import { createServer } from '../../../src/saas/server.js';
import {
  type Account,
  auditOf,
  type Call,
  errorOf,
  PASSWORD,
  type SaasApp,
  saasApp,
  storeOf,
  testOptions,
} from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { claimsOf } from '../../kit/idp.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** An operator, who is a user with a role for it, acts as another user. */

const MINUTE = 60_000;
const REASON = 'Request 4711';
type Options = NonNullable<Parameters<typeof saasApp>[1]>;
const OPTIONS: Options = {
  userRoles: ['editor', 'support'],
  impersonationRoles: ['support'],
  organizations: true,
  limits: false,
};

interface Place {
  app: SaasApp;
  grace: Account;
  ada: Account;
  /** Starts a session as a user. */
  act(body?: object, call?: Call): ReturnType<SaasApp['request']>;
  /** The tokens of a session as Ada. */
  asAda(): Promise<Account & { sessionId: string }>;
}

async function place(t: Test, options: Options = {}): Promise<Place> {
  const app = await saasApp(t, { ...OPTIONS, ...options });
  const grace = await app.signUp({ email: 'grace@example.test', name: 'Grace' });
  const ada = await app.signUp({ email: 'ada@example.test', name: 'Ada' });
  await app.server.fastify.saas.users.setRoles({ id: grace.id }, ['support']);
  const act: Place['act'] = (body = {}, call = {}) =>
    app.request('POST', '/api/auth/impersonation', {
      token: grace.accessToken,
      body: { userId: ada.id, reason: REASON, ...body },
      ...call,
    });
  return {
    ...{ app, grace, ada, act },
    async asAda() {
      const { status, body, text } = await act();
      t.equal(status, 200, text);
      const { accessToken, refreshToken, session } = body.data;
      return { ...ada, accessToken, refreshToken, sessionId: session.id };
    },
  };
}

t.test('without the option there is no such route', async (t) => {
  const app = await saasApp(t, { userRoles: ['support'] });
  const { id, accessToken: token } = await app.signUp();
  await app.server.fastify.saas.users.setRoles({ id }, ['support']);
  t.equal((await app.post('/auth/impersonation', { userId: id, reason: REASON }, { token })).status, 404);
});

t.test('an operator acts as a user for 30 minutes, whatever is refreshed', async (t) => {
  const { app, grace, ada, act } = await place(t, { accessTokenTtl: 3600 });
  const heard: unknown[] = [];
  app.server.fastify.saas.events.on('user.impersonated', (event) => heard.push(event));
  const { status, body } = await act({
    userId: undefined,
    email: ada.email.toUpperCase(),
    reason: ` ${REASON} `,
  });
  const impersonator = { userId: grace.id, email: grace.email, name: 'Grace', reason: REASON };
  t.match(
    [status, body.data],
    [200, { user: { id: ada.id }, expiresIn: 1800, session: { impersonator, amr: [] } }],
  );
  const { accessToken: token, refreshToken, session } = body.data;
  t.match(claimsOf(token), { sub: ada.id, act: { sub: grace.id } });
  t.equal(Date.parse(session.expiresAt), app.clock.now() + 30 * MINUTE);
  t.match((await app.request('GET', '/api/auth/me', { token })).body.data, {
    user: { id: ada.id },
    session: { id: session.id, impersonator },
  });
  t.match(heard, [{ userId: ada.id, operatorId: grace.id, sessionId: session.id, reason: REASON }]);

  app.clock.advance(29 * MINUTE);
  const refreshed = await app.post('/auth/refresh', { refreshToken });
  t.match([refreshed.status, refreshed.body.data.expiresIn], [200, 60]);
  t.equal(await app.me(refreshed.body.data), 200);
  app.clock.advance(MINUTE);
  t.equal(await app.me(refreshed.body.data), 401);
  t.equal((await app.post('/auth/refresh', refreshed.body.data)).status, 401);
});

t.test('who may act as whom', async (t) => {
  const { app, grace, ada, act, asAda } = await place(t);
  const { users } = app.server.fastify.saas;
  const other = await app.signUp({ email: 'other@example.test' });
  const editor = await app.signUp({ email: 'editor@example.test' });
  const suspended = await app.signUp({ email: 'suspended@example.test' });
  await users.setRoles({ id: other.id }, ['support', 'editor']);
  await users.setRoles({ id: editor.id }, ['editor']);
  await users.suspend({ id: suspended.id });
  const cases: [string, Awaited<ReturnType<Place['act']>>, number, string][] = [
    ['without a session', await act({}, { headers: {}, token: '' }), 401, 'UNAUTHENTICATED'],
    ['a user without roles', await act({ userId: grace.id }, { token: ada.accessToken }), 403, 'FORBIDDEN'],
    ['a user with another role', await act({}, { token: editor.accessToken }), 403, 'FORBIDDEN'],
    ['as another operator', await act({ userId: other.id }), 403, 'FORBIDDEN'],
    ['as oneself', await act({ userId: grace.id }), 403, 'FORBIDDEN'],
    ['as a suspended user', await act({ userId: suspended.id }), 403, 'FORBIDDEN'],
    ['as nobody', await act({ userId: 'usr_0' }), 404, 'NOT_FOUND'],
    ['without a reason', await act({ reason: '  ' }), 400, 'VALIDATION_ERROR'],
    ['with a reason in two lines', await act({ reason: 'one\ntwo' }), 400, 'VALIDATION_ERROR'],
    ['without a user', await act({ userId: undefined }), 400, 'VALIDATION_ERROR'],
    ['with two users', await act({ email: ada.email }), 400, 'VALIDATION_ERROR'],
    [
      'by an impersonated session',
      await act({}, { token: (await asAda()).accessToken }),
      403,
      'IMPERSONATED',
    ],
  ];
  for (const [title, answer, status, code] of cases)
    t.same([answer.status, errorOf(answer)], [status, code], title);
  await users.delete({ id: suspended.id });
  t.equal((await act({ userId: suspended.id })).status, 404, 'a deleted user');
  app.clock.advance(11 * MINUTE);
  t.equal(errorOf(await act()), 'REAUTHENTICATION_REQUIRED');
});

t.test('an operator gains no role by acting as a user who has more', async (t) => {
  const { app, grace, ada, asAda } = await place(t);
  const { users } = app.server.fastify.saas;
  await users.setRoles({ id: ada.id }, ['editor']);
  const rolesOf = async ({ accessToken: token }: { accessToken: string }) =>
    (await app.request('GET', '/api/auth/me', { token })).body.data.user.roles;
  const started = await app.post(
    '/auth/impersonation',
    { userId: ada.id, reason: REASON },
    { token: grace.accessToken },
  );
  t.same(started.body.data.user.roles, [], 'nor at the start, nor in claims of the application');
  const session = await asAda();
  t.same([await rolesOf(ada), await rolesOf(session)], [['editor'], []]);
  await users.setRoles({ id: grace.id }, ['support', 'editor']);
  t.same(await rolesOf(session), ['editor'], 'what both may do');
});

t.test('what ends the powers of the operator ends the session at the next request', async (t) => {
  const { app, grace, ada, asAda } = await place(t);
  const { users } = app.server.fastify.saas;
  const ends: Record<string, () => Promise<unknown>> = {
    'the role is withdrawn': () => users.setRoles({ id: grace.id }, ['editor']),
    'the operator is suspended': () => users.suspend({ id: grace.id }),
    'the operator signs out everywhere': () => users.sessions.revokeAll({ id: grace.id }),
    'the user becomes an operator': () => users.setRoles({ id: ada.id }, ['support']),
    'the user signs out the other devices': () =>
      app.post('/auth/logout', { scope: 'others' }, { token: ada.accessToken }),
    'the user ends it': async () => {
      const { body } = await app.request('GET', '/api/auth/sessions', { token: ada.accessToken });
      const [listed] = body.data.sessions.filter((one: { impersonator?: object }) => one.impersonator);
      t.match(listed, { impersonator: { name: 'Grace', reason: REASON }, current: false });
      t.notOk(listed.place ?? listed.browser, 'without the device of the operator');
      return app.request('DELETE', `/api/auth/sessions/${listed.id}`, { token: ada.accessToken });
    },
    'the user is suspended': () => users.suspend({ id: ada.id }),
  };
  for (const [title, end] of Object.entries(ends)) {
    await users.unsuspend({ id: grace.id });
    await users.setRoles({ id: grace.id }, ['support']);
    await users.setRoles({ id: ada.id }, []);
    const login = await app.post('/auth/login', { email: grace.email, password: PASSWORD });
    grace.accessToken = login.body.data.accessToken;
    const session = await asAda();
    t.equal(await app.me(session), 200);
    await end();
    t.equal(await app.me(session), 401, title);
    t.equal((await app.post('/auth/refresh', { refreshToken: session.refreshToken })).status, 401, title);
  }
  const again = await place(t);
  const session = await again.asAda();
  await again.app.server.fastify.saas.users.delete({ id: again.grace.id });
  t.equal(await again.app.me(session), 401, 'the operator is deleted');
});

t.test('a role that is withdrawn while operators act ends every session, in every process', async (t) => {
  const folder = temporaryFolder(t);
  const clock = fakeClock();
  const { app, grace, ada } = await place(t, { folder, clock });
  const others = await Promise.all([1, 2, 3].map(() => saasApp(t, { ...OPTIONS, folder, clock })));
  const all = [app, ...others];
  const start = (on: SaasApp) =>
    on.post('/auth/impersonation', { userId: ada.id, reason: REASON }, { token: grace.accessToken });
  const before = await Promise.all(all.map(start));
  const [, ...racing] = await Promise.all([
    app.server.fastify.saas.users.setRoles({ id: grace.id }, []),
    ...all.map(start),
    ...before.map(({ body }, index) =>
      (all[index] as SaasApp).post('/auth/refresh', { refreshToken: body.data.refreshToken }),
    ),
  ]);
  const tokens = [...before, ...racing].flatMap(({ body }) => body.data ?? []);
  t.ok(tokens.length >= before.length);
  for (const on of all)
    for (const { accessToken, refreshToken } of tokens) {
      t.equal(await on.me({ accessToken }), 401);
      t.equal((await on.post('/auth/refresh', { refreshToken })).status, 401);
    }
});

t.test('every route of the API is read-only during impersonation', async (t) => {
  const routes: { method: string; url: string; access: string; isOpen: boolean }[] = [];
  const all = {
    ...OPTIONS,
    ...{ passkeys: true, emailLogin: true, accountPages: true, webhooks: true },
    factorEncryptionKey: 'factors-Wq8ZsT1mXe6YbN0cRj4HuPd9',
    settingsEncryptionKey: 'settings-Wq8ZsT1mXe6YbN0cRj4HuPd9',
    paymentSecretKey: 'sk_test_x',
    login: { google: { clientId: 'x', clientSecret: 'x' } },
  };
  const server = createServer({ ...testOptions(temporaryFolder(t)), ...all });
  t.teardown(() => server.stop());
  server.fastify.addHook('onRoute', ({ method, url, config }) => {
    const { access = '', whileImpersonated = false } = routeRules({ config });
    for (const one of [method].flat()) routes.push({ method: one, url, access, isOpen: whileImpersonated });
  });
  await server.fastify.ready();
  const { users } = server.fastify.saas;
  const ask = async (method: string, url: string, token: string, payload?: object) =>
    server.fastify.inject({
      method: method as 'GET',
      url: url.replaceAll(/:\w+/g, 'abc'),
      headers: { authorization: `Bearer ${token}` },
      ...(payload && { payload }),
    });
  const register = async (email: string) =>
    (await ask('POST', '/api/auth/register', '', { email, password: PASSWORD })).json().data;
  const [grace, ada] = [await register('grace@example.test'), await register('ada@example.test')];
  await users.setRoles({ id: grace.user.id }, ['support']);
  const { accessToken } = (
    await ask('POST', '/api/auth/impersonation', grace.accessToken, { userId: ada.user.id, reason: REASON })
  ).json().data;

  const ours = routes.filter(({ access }) => ['user', 'recent-user'].includes(access));
  const isRead = ({ method }: { method: string }) => ['GET', 'HEAD'].includes(method);
  const refused = ours.filter((route) => !route.isOpen && (!isRead(route) || route.access === 'recent-user'));
  t.ok(refused.length > 30, `${refused.length} routes`);
  for (const { method, url } of refused) {
    const response = await ask(method, url, accessToken);
    t.equal(response.statusCode, 403, `${method} ${url}`);
    if (method !== 'HEAD') t.equal(response.json().error.code, 'IMPERSONATED', `${method} ${url}`);
  }
  t.ok(
    refused.some(({ url }) => url === '/api/user/export'),
    'the export is among them',
  );
  for (const { method, url } of ours.filter((route) => !refused.includes(route)))
    t.not((await ask(method, url, accessToken)).statusCode, 403, `${method} ${url}`);
  t.same(
    ours.filter(({ isOpen }) => isOpen).map(({ method, url }) => `${method} ${url}`),
    ['POST /api/organizations/active'],
    'each exception is known here',
  );
});

t.test(
  'routes of the host decide themselves, and a recent sign-in is never that of an operator',
  async (t) => {
    const server = createServer({ ...testOptions(temporaryFolder(t)), ...OPTIONS });
    t.teardown(() => server.stop());
    const { fastify } = server;
    fastify.register(async (routes) => {
      await fastify.after();
      const { requireUser, requireRecentAuth } = fastify.saas;
      routes.post('/notes', { onRequest: requireUser }, async ({ saas: { session } }) => ({
        by: session?.impersonator?.name,
      }));
      routes.get('/secret', { onRequest: requireRecentAuth({ maxAge: 1e9 }) }, async () => 'secret');
    });
    await fastify.ready();
    const { users } = fastify.saas;
    const post = async (url: string, payload: object, token = '') =>
      fastify.inject({ method: 'POST', url, payload, headers: { authorization: `Bearer ${token}` } });
    const register = async (name: string) =>
      (await post('/api/auth/register', { email: `${name}@example.test`, name, password: PASSWORD })).json()
        .data;
    const [grace, ada] = [await register('grace'), await register('ada')];
    await users.setRoles({ id: grace.user.id }, ['support']);
    const order = { userId: ada.user.id, reason: REASON };
    const { accessToken } = (await post('/api/auth/impersonation', order, grace.accessToken)).json().data;
    t.same((await post('/notes', {}, accessToken)).json(), { by: 'grace' });
    const secret = await fastify.inject({
      url: '/secret',
      headers: { authorization: `Bearer ${accessToken}` },
    });
    t.match([secret.statusCode, secret.json().code], [403, 'IMPERSONATED']);
  },
);

t.test('the session signs out itself only, and confirms no address', async (t) => {
  const { app, grace, ada, asAda } = await place(t);
  const { accessToken: token, refreshToken } = await asAda();
  for (const scope of ['others', 'global']) {
    const refused = await app.post('/auth/logout', { scope }, { token });
    t.equal(errorOf(refused), 'IMPERSONATED', scope);
    t.equal(errorOf(await app.post('/auth/logout', { scope, refreshToken })), 'IMPERSONATED', scope);
  }
  t.equal(await app.me(ada), 200);
  const confirmed = await app.post('/auth/verify-email', { token: 'x.y' }, { token });
  t.not(confirmed.status, 200);
  t.equal((await app.post('/auth/logout', {}, { token })).status, 200);
  t.equal(await app.me({ accessToken: token }), 401);
  t.same([await app.me(ada), await app.me(grace)], [200, 200], 'the sessions of both stay');
  const records = (await auditOf(await storeOf(t, app))).filter(({ event }) => /^(imp|logout)/.test(event));
  const entry = { subject: ada.id, by: grace.id, ip: '127.0.0.1', detail: REASON };
  t.match(records, [
    { event: 'impersonation.started', ...entry },
    { event: 'impersonation.ended', ...entry },
  ]);
  t.equal(records.length, 2);
});

t.test('in a browser the session replaces that of the operator, and a sign-out ends it', async (t) => {
  const { app, grace, act } = await place(t);
  const login = await app.post(
    '/auth/login',
    { email: grace.email, password: PASSWORD },
    { headers: BROWSER },
  );
  const cookie = cookieOf(login.headers['set-cookie']);
  const acting = await act({}, { headers: { ...BROWSER, cookie }, token: login.body.data.accessToken });
  t.match([acting.status, acting.body.data.refreshToken], [200, undefined]);
  const replaced = cookieOf(acting.headers['set-cookie']);
  t.not(replaced, cookie);
  const out = await app.post('/auth/logout', {}, { headers: { ...BROWSER, cookie: replaced } });
  t.equal(out.status, 200);
  t.equal(await app.me(acting.body.data), 401);
});

const BROWSER = { 'session-mode': 'cookie', origin: 'http://app.example.test' };
const cookieOf = (header: string | undefined) => String(header).split(';')[0] ?? '';
