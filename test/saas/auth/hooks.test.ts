import t, { type Test } from 'tap';
import type { SaasHooks } from '../../../src/index.js';
import { sessionCollection, userCollection } from '../../../src/saas/auth/store.js';
import { createServer } from '../../../src/saas/server.js';
import { auditOf, PASSWORD, type SaasApp, saasApp, storeOf, testOptions } from '../../kit/app.js';
import { FACTOR_KEY, setUpFactor } from '../../kit/factors.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** The option `hooks`. Registrations by other ways than passwords are tested with these ways. */

const hooked = (t: Test, hooks: SaasHooks, more: object = {}): Promise<SaasApp> =>
  saasApp(t, { hooks, ...more });

const register = (app: SaasApp, email = 'ada@example.test', more: object = {}) =>
  app.request('POST', '/api/auth/register', { body: { email, password: PASSWORD, ...more } });

const claimsIn = ({ accessToken }: { accessToken: string }) =>
  JSON.parse(Buffer.from(accessToken.split('.')[1] ?? '', 'base64url').toString());

async function counts(t: Test, app: SaasApp): Promise<{ users: number; sessions: number }> {
  const store = await storeOf(t, app);
  return { users: await userCollection(store).count(), sessions: await sessionCollection(store).count() };
}

const never = () => new Promise<never>(() => {});
const rejects = () => Promise.reject(new Error('kanarienvogel'));
const throws = () => {
  throw new Error('kanarienvogel');
};
const REJECTION = { reason: 'INVITATION_REQUIRED', message: 'Ask your company for an invitation.' };

t.test('the host rejects a registration before anything is stored', async (t) => {
  const seen: object[] = [];
  const app = await hooked(t, {
    async beforeRegister(registration) {
      seen.push(registration);
      return registration.email.endsWith('@example.test') ? undefined : REJECTION;
    },
  });
  const rejected = await register(app, 'Eve@evil.test', { name: 'Eve' });
  t.match(rejected, {
    status: 403,
    body: {
      message: REJECTION.message,
      error: { code: 'REGISTRATION_REJECTED', reason: REJECTION.reason },
    },
  });
  t.same(await counts(t, app), { users: 0, sessions: 0 });
  t.equal((await register(app)).status, 201);
  t.same(seen, [
    { email: 'eve@evil.test', name: 'Eve', method: 'password', ip: '127.0.0.1' },
    { email: 'ada@example.test', method: 'password', ip: '127.0.0.1' },
  ]);
  await app.server.fastify.saas.users.create({ email: 'bob@evil.test' });
  t.equal(seen.length, 2, 'the host needs no permission of its own');
});

t.test('a hook that rejects does not reveal which addresses have an account', async (t) => {
  let rejects = false;
  const seen: string[] = [];
  const app = await hooked(
    t,
    {
      beforeRegister({ email }) {
        seen.push(email);
        return rejects ? REJECTION : undefined;
      },
    },
    { requireEmailVerification: true },
  );
  t.equal((await register(app)).status, 202);
  t.equal((await register(app)).status, 202);
  rejects = true;
  const [known, unknown] = [await register(app), await register(app, 'new@example.test')];
  t.equal(known.status, 403);
  const { requestId: _, ...error } = known.body.error;
  t.match(unknown.body, { message: known.body.message, error });
  t.same(seen, ['ada@example.test', 'ada@example.test', 'ada@example.test', 'new@example.test']);
});

t.test('a registration fails without a trace if its hook throws, hangs or answers nonsense', async (t) => {
  const answers: [SaasHooks['beforeRegister'], number, string][] = [
    [rejects, 500, 'INTERNAL'],
    [throws, 500, 'INTERNAL'],
    [never, 503, 'NOT_READY'],
    [(() => false) as never, 500, 'INTERNAL'],
    [() => ({ reason: 'lower case', message: 'x' }), 500, 'INTERNAL'],
    [() => ({ reason: 'X', message: 'two\nlines' }), 500, 'INTERNAL'],
  ];
  for (const [beforeRegister, status, code] of answers) {
    const app = await hooked(t, { ...(beforeRegister && { beforeRegister }), timeoutMs: 20 });
    const answer = await register(app);
    t.match(answer, { status, body: { error: { code } } });
    t.notMatch(answer.text, 'kanarienvogel');
    if (status === 503) t.ok(answer.headers['retry-after']);
    t.same(await counts(t, app), { users: 0, sessions: 0 });
  }
});

t.test('the sign-up page shows the sentence of a rejected registration', async (t) => {
  const app = await hooked(t, { beforeRegister: () => REJECTION }, { accountPages: true });
  const body = new URLSearchParams({
    ...{ email: 'ada@example.test', name: '', password: PASSWORD, password_confirm: PASSWORD },
  }).toString();
  const page = await app.request('POST', '/account/sign-up', {
    body,
    headers: { 'content-type': 'application/x-www-form-urlencoded', origin: 'http://app.example.test' },
  });
  t.equal(page.status, 403);
  t.match(page.text, REJECTION.message);
  t.match(page.text, 'value="ada@example.test"', 'the form keeps what was typed');
});

t.test('the host learns of every sign-in after its session exists', async (t) => {
  const logins: Parameters<NonNullable<SaasHooks['afterLogin']>>[0][] = [];
  const app = await hooked(
    t,
    {
      async afterLogin(login) {
        const { items } = await app.server.fastify.saas.users.sessions
          .list({ id: login.user.id })
          .then(({ sessions }) => ({ items: sessions }));
        t.ok(items.some(({ id, state }) => id === login.session.id && state === 'active'));
        logins.push(login);
      },
    },
    { factorEncryptionKey: FACTOR_KEY },
  );
  const ada = await app.signUp();
  const browser = 'Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0';
  const login = (headers: Record<string, string> = {}) =>
    app.post('/auth/login', { email: ada.email, password: ada.password }, { headers });
  await login({ 'user-agent': browser });
  t.match(logins, [
    { user: { id: ada.id }, method: 'password', secondFactor: false, registered: true, ip: '127.0.0.1' },
    { registered: false, browser: 'Firefox', system: 'Windows', session: { amr: ['pwd'] } },
  ]);
  await app.server.fastify.saas.users.update({ id: ada.id }, { emailVerified: true });
  const { code } = await setUpFactor(app, ada.accessToken);
  app.clock.advance(60_000);
  const { challenge } = (await login()).body.error;
  t.equal(logins.length, 2, 'not before the second factor');
  const done = await app.post('/auth/second-factor', { challenge, code: code() });
  t.equal(done.status, 200, done.text);
  t.match(logins[2], { method: 'password', secondFactor: true });
});

t.test('a sign-in succeeds even if its hook throws or hangs', async (t) => {
  for (const afterLogin of [rejects, throws, never]) {
    const app = await hooked(t, { afterLogin, timeoutMs: 20 });
    t.equal(await app.me(await app.signUp()), 200);
  }
});

t.test('the host adds claims to the access tokens of sign-ins and refreshes', async (t) => {
  let role = 'reader';
  const subjects: object[] = [];
  const app = await hooked(t, {
    accessTokenClaims({ user, sessionId, reason }) {
      subjects.push({ email: user.email, reason, hasSession: sessionId.startsWith('ses_') });
      return { 'https://app.example.test/role': role, list: [1, { a: null }] };
    },
  });
  const ada = await app.signUp();
  t.match(claimsIn(ada), { sub: ada.id, 'https://app.example.test/role': 'reader', list: [1, { a: null }] });
  role = 'writer';
  const refresh = () => app.post('/auth/refresh', { refreshToken: ada.refreshToken });
  const refreshed = await refresh();
  t.match(claimsIn(refreshed.body.data), { 'https://app.example.test/role': 'writer' });
  t.equal(await app.me(refreshed.body.data), 200);
  t.match(claimsIn((await refresh()).body.data), { list: [1, { a: null }] }, 'a repetition has them, too');
  t.same(
    subjects,
    ['login', 'refresh', 'refresh'].map((reason) => ({ email: ada.email, reason, hasSession: true })),
  );
  t.notMatch(claimsIn({ accessToken: refreshed.body.data.refreshToken }), { list: [] }, 'only access tokens');
});

t.test('claims never replace those of the session, and have a maximum size', async (t) => {
  let claims: unknown = {};
  const app = await hooked(t, { accessTokenClaims: () => claims as never });
  const ada = await app.signUp();
  const eve = await app.signUp();
  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  const wrong: unknown[] = [
    { sub: eve.id },
    { exp: 9_999_999_999 },
    { sid: 'x' },
    { token_use: 'refresh' },
    { act: { sub: 'x' } },
    { scope: 'admin' },
    JSON.parse('{"__proto__": {"sub": "x"}}'),
    { big: 'x'.repeat(2048) },
    circular,
    { toJSON: () => ['x'] },
    { toJSON: () => ({ sub: eve.id }) },
    [],
    null,
    undefined,
    'admin',
  ];
  for (claims of wrong) {
    const answer = await app.post('/auth/login', { email: ada.email, password: ada.password });
    const name = JSON.stringify(claims === circular || claims);
    t.match(answer, { status: 500, body: { error: { code: 'INTERNAL' } } }, name);
  }
  t.equal((await counts(t, app)).sessions, 2, 'no further session has started');
  claims = { scopes: ['a'] };
  const refreshed = await app.post('/auth/refresh', { refreshToken: ada.refreshToken });
  t.match(claimsIn(refreshed.body.data), { sub: ada.id, scopes: ['a'] });
});

t.test('a refresh whose claims fail does not use up its token', async (t) => {
  let compute: SaasHooks['accessTokenClaims'] = () => ({});
  const app = await hooked(t, { accessTokenClaims: (subject) => compute?.(subject) ?? {}, timeoutMs: 20 });
  const ada = await app.signUp();
  const refresh = (refreshToken: string) => app.post('/auth/refresh', { refreshToken });
  for (compute of [never, rejects]) {
    const failed = await refresh(ada.refreshToken);
    t.match(failed, { status: 503, body: { error: { code: 'NOT_READY' } } });
    t.ok(failed.headers['retry-after']);
  }
  // Longer than the window in which a used token still works.
  app.clock.advance(60_000);
  compute = () => ({});
  const refreshed = await refresh(ada.refreshToken);
  t.equal(refreshed.status, 200, 'the session goes on');
  t.equal((await refresh(refreshed.body.data.refreshToken)).status, 200);

  const parallel = await app.signUp();
  compute = async () => ({ a: 1 });
  const answers = await Promise.all([1, 2, 3].map(() => refresh(parallel.refreshToken)));
  const tokens = new Set(answers.map(({ body }) => body.data.refreshToken));
  t.equal(tokens.size, 1, 'parallel requests get the same successor');
});

t.test('a registration whose claims fail stores no account', async (t) => {
  const app = await hooked(t, { accessTokenClaims: rejects });
  t.match(await register(app), { status: 503, body: { error: { code: 'NOT_READY' } } });
  t.same(await counts(t, app), { users: 0, sessions: 0 });
});

t.test('a login whose claims fail starts no session and is not recorded as a success', async (t) => {
  let compute: SaasHooks['accessTokenClaims'] = () => ({});
  const app = await hooked(t, { accessTokenClaims: (subject) => compute?.(subject) ?? {}, timeoutMs: 20 });
  const { email, password } = await app.signUp();
  compute = rejects;
  t.equal((await app.post('/auth/login', { email, password })).status, 503);
  t.equal((await counts(t, app)).sessions, 1, 'that of the registration');
  const successes = async () =>
    (await auditOf(await storeOf(t, app))).filter(({ event }) => event === 'login.succeeded').length;
  t.equal(await successes(), 0);
  compute = () => ({});
  t.equal((await app.post('/auth/login', { email, password })).status, 200);
  t.equal(await successes(), 1);
});

t.test('the server does not start with hooks that are none', (t) => {
  const wrong: [unknown, RegExp][] = [
    [{ beforeRegister: 'no' }, /'hooks\.beforeRegister' must be a function/],
    [{ afterLogin: () => {}, aftrLogin: () => {} }, /'hooks\.aftrLogin' is no hook/],
    [{ timeoutMs: 0 }, /'hooks\.timeoutMs' must be a whole number/],
    [{ timeoutMs: 10_001 }, /'hooks\.timeoutMs' must be a whole number/],
    [7, /'hooks' must be an object/],
  ];
  for (const [hooks, expected] of wrong) {
    const start = () => createServer({ ...testOptions(temporaryFolder(t)), hooks: hooks as never });
    t.throws(start, { name: 'ConfigurationError', message: expected });
  }
  t.end();
});
