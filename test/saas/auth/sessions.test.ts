import fastify from 'fastify';
import t, { type Test } from 'tap';
import { createAudit } from '../../../src/core/ops/audit.js';
import { createUnknownWrites } from '../../../src/core/ops/unknown-writes.js';
import { openStore } from '../../../src/core/storage/open.js';
import { registerTokenKind } from '../../../src/saas/auth/sessions/jwt.js';
import { createSessionService } from '../../../src/saas/auth/sessions/sessions.js';
import { createSessionTokens } from '../../../src/saas/auth/sessions/tokens.js';
import { sessionCollection, userCollection } from '../../../src/saas/auth/store.js';
import { auditOf, PASSWORD, SECRETS, saasApp, storeOf } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { announcing } from '../../kit/events.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { viewUnsubscribed } from '../../kit/users.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;

const claimsOf = (token: string) =>
  JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString());

/** Returns `answer.error` and checks the format of the error. */
function codeOf(t: Test, { body }: { body: Record<string, unknown> }): string {
  const { success, message, error } = body as {
    success: boolean;
    message: string;
    error: { code: string; requestId: string };
  };
  t.equal(success, false);
  t.match(message, /^[A-Z].*\.$/);
  t.match(error.requestId, /^req_/);
  return error.code;
}

t.test('register answers 201 with the user and its first tokens', async (t) => {
  const app = await saasApp(t);
  const body = { email: 'Ada.Lovelace@Example.test', password: PASSWORD, name: 'Ada' };
  const answer = await app.request('POST', '/api/auth/register', {
    body,
    headers: { 'x-request-id': 'mine' },
  });
  t.equal(answer.status, 201);
  const { user, accessToken, refreshToken } = answer.body.data;
  t.strictSame(answer.body, {
    success: true,
    data: {
      user: {
        id: user.id,
        email: 'ada.lovelace@example.test',
        name: 'Ada',
        createdAt: '2040-01-01T00:00:00.000Z',
        emailVerified: false,
        subscription: { status: 'none', plan: 'free', entitled: false },
      },
      accessToken,
      refreshToken,
      expiresIn: 900,
    },
  });
  t.equal(answer.headers['cache-control'], 'no-store');
  t.equal(answer.headers['x-content-type-options'], 'nosniff');
  t.match(answer.headers['x-request-id'], /^req_/, 'the client does not choose it');
  for (const token of [accessToken, refreshToken]) t.match(token, /^[\w.-]+$/, 'nothing that JSON escapes');

  const now = app.clock.now() / 1000;
  const access = claimsOf(accessToken);
  t.strictSame(access, {
    iss: 'http://app.example.test',
    aud: 'saas-api',
    sub: user.id,
    sid: access.sid,
    jti: access.jti,
    iat: now,
    exp: now + 900,
    token_use: 'access',
  });
  const refresh = claimsOf(refreshToken);
  t.strictSame(refresh, {
    iss: 'http://app.example.test',
    aud: 'saas-refresh',
    sub: user.id,
    sid: access.sid,
    jti: refresh.jti,
    iat: now,
    exp: now + 604_800,
    auth_time: now,
    token_use: 'refresh',
  });
});

t.test('login answers 200 with the same data for any letter case of the address', async (t) => {
  const app = await saasApp(t);
  const { email, id } = await app.signUp();
  const answer = await app.request('POST', '/api/auth/login', {
    body: { email: email.toUpperCase(), password: PASSWORD },
  });
  t.equal(answer.status, 200);
  t.same(Object.keys(answer.body.data).sort(), ['accessToken', 'expiresIn', 'refreshToken', 'user']);
  t.equal(answer.body.data.user.id, id);
  t.equal(answer.headers['cache-control'], 'no-store');
});

t.test('login answers alike for an unknown address, a wrong password and a suspended account', async (t) => {
  const app = await saasApp(t);
  const { email, id } = await app.signUp();
  const login = (body: object) => app.request('POST', '/api/auth/login', { body });
  const refused = [
    await login({ email, password: 'something else' }),
    await login({ email: 'nobody@example.test', password: PASSWORD }),
    await login({ email, password: 'x' }),
  ];
  await userCollection(await storeOf(t, app)).updateOne({ id }, { set: { suspendedAt: 1 } });
  refused.push(await login({ email, password: 'something else' }));

  const comparable = refused.map(({ status, headers, body }) => {
    const { date, 'x-request-id': requestId, ...others } = headers;
    const { error, ...envelope } = body;
    return { status, others, envelope, code: error.code };
  });
  t.equal(refused[0]?.status, 401);
  t.equal(refused[0]?.body.error.code, 'INVALID_CREDENTIALS');
  for (const one of comparable) t.same(one, comparable[0]);
  const suspended = await login({ email, password: PASSWORD });
  t.equal(suspended.status, 403, 'the right password reveals the suspension');
  t.equal(codeOf(t, suspended), 'ACCOUNT_SUSPENDED');
});

t.test('50 concurrent registrations of one address create one account', async (t) => {
  const app = await saasApp(t);
  const spellings = ['Same@Example.test', 'same@example.test', 'SAME@EXAMPLE.TEST'];
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, index) =>
      app.request('POST', '/api/auth/register', {
        body: { email: spellings[index % 3], password: PASSWORD },
      }),
    ),
  );
  t.equal(answers.filter(({ status }) => status === 201).length, 1);
  const lost = answers.filter(({ status }) => status !== 201);
  for (const answer of lost) t.equal(`${answer.status} ${answer.body.error.code}`, '409 EMAIL_TAKEN');
  t.equal(await userCollection(await storeOf(t, app)).count(), 1);
});

t.test('ambiguous e-mail addresses and names are refused', async (t) => {
  const app = await saasApp(t);
  for (const email of [
    'a＠example.test',
    'victim@exam\u200bple.test',
    'a@example.test.',
    'a@example.test,b@example.test',
    '"a b"@example.test',
    'a@bücher.test',
    'a@example.test\r\nBcc: b@example.test',
    'a @example.test',
    'a@example',
    '@example.test',
    'a..b@example.test',
    `${'a'.repeat(65)}@example.test`,
    `a@${'b.'.repeat(130)}test`,
    '',
  ]) {
    const answer = await app.request('POST', '/api/auth/register', { body: { email, password: PASSWORD } });
    t.equal(answer.status, 400, JSON.stringify(email));
    t.equal(answer.body.error.details[0].path, 'email');
  }
  for (const name of ['a\0b', 'a\r\nb', '\u202ecod.exe', '\ud800', 'a'.repeat(201)]) {
    const body = { email: 'a@example.test', password: PASSWORD, name };
    const answer = await app.request('POST', '/api/auth/register', { body });
    t.equal(answer.status, 400, JSON.stringify(name));
  }
  for (const password of ['short', 'x'.repeat(1025), '\ud800 lone surrogate', 'ü'.repeat(3)]) {
    const answer = await app.request('POST', '/api/auth/register', {
      body: { email: 'a@example.test', password },
    });
    t.equal(answer.status, 400, `${password.length} characters`);
    t.equal(answer.body.error.details[0].path, 'password');
  }
  t.equal(await userCollection(await storeOf(t, app)).count(), 0, 'nothing was stored');
});

t.test('a password that is not valid UTF-8 is refused', async (t) => {
  const app = await saasApp(t);
  const body = (byte: number) =>
    Buffer.concat([
      Buffer.from('{"email":"ada@example.test","password":"'),
      Buffer.alloc(12, byte),
      Buffer.from('"}'),
    ]);
  for (const path of ['/api/auth/register', '/api/auth/login']) {
    t.match(await app.request('POST', path, { body: body(0xff) }), {
      status: 400,
      body: { error: { code: 'INVALID_JSON' } },
    });
  }
  const replaced = { email: 'ada@example.test', password: '\ufffd'.repeat(12) };
  t.equal((await app.request('POST', '/api/auth/register', { body: replaced })).status, 400);
});

t.test('the user reads their account and changes their profile', async (t) => {
  const app = await saasApp(t);
  const { accessToken: token, id, email } = await app.signUp();
  const user = {
    id,
    email,
    name: '',
    createdAt: '2040-01-01T00:00:00.000Z',
    emailVerified: false,
    subscription: { status: 'none', plan: 'free', entitled: false },
  };
  const me = await app.request('GET', '/api/auth/me', { token });
  t.equal(me.status, 200);
  const session = {
    id: claimsOf(token).sid,
    createdAt: '2040-01-01T00:00:00.000Z',
    expiresAt: '2040-01-08T00:00:00.000Z',
    authenticatedAt: '2040-01-01T00:00:00.000Z',
    amr: ['pwd'],
  };
  t.strictSame(me.body, { success: true, data: { user, session } });

  const profile = await app.request('GET', '/api/user/profile', { token });
  t.strictSame(profile.body, { success: true, data: user }, 'flat');
  const renamed = await app.request('PATCH', '/api/user/profile', { token, body: { name: 'Grace <b>' } });
  t.strictSame(renamed.body, { success: true, data: { ...user, name: 'Grace <b>' } });
  t.match(renamed.headers['content-type'], 'application/json');
  for (const [body, fields] of [
    [{ nickname: 'Ada' }, ['nickname']],
    [{ name: 'Ada', toString: 'x' }, ['toString']],
    [{ name: 'Ada', nickname: 'x', email: 'x@example.test' }, ['nickname', 'email']],
    [{ name: 'Ada', ['x'.repeat(200)]: 1 }, ['x'.repeat(100)]],
  ] as const) {
    const refused = await app.request('PATCH', '/api/user/profile', { token, body });
    t.equal(refused.status, 400);
    t.same(new Set(refused.body.error.details.map(({ path }: { path: string }) => path)), new Set(fields));
  }
  const after = await app.request('GET', '/api/user/profile', { token });
  t.equal(after.body.data.name, 'Grace <b>', 'nothing of it is stored');
  const emptied = await app.request('PATCH', '/api/user/profile', { token, body: { name: '' } });
  t.strictSame(emptied.body.data, user);
});

t.test('a missing token and an expired token are answered with different challenges', async (t) => {
  const app = await saasApp(t);
  const { accessToken: token } = await app.signUp();
  const none = await app.request('GET', '/api/auth/me');
  t.equal(none.status, 401);
  t.equal(none.headers['www-authenticate'], 'Bearer realm="api"');
  t.equal(codeOf(t, none), 'UNAUTHENTICATED');
  t.equal(
    (await app.request('GET', `/api/auth/me?access_token=${token}`)).status,
    401,
    'never from the query',
  );

  app.clock.advance(15 * MINUTE - SECOND);
  t.equal((await app.request('GET', '/api/auth/me', { token })).status, 200);
  app.clock.advance(SECOND);
  const expired = await app.request('GET', '/api/auth/me', { token });
  t.equal(expired.status, 401);
  t.equal(expired.headers['www-authenticate'], 'Bearer realm="api", error="invalid_token"');
  t.equal(codeOf(t, expired), 'TOKEN_EXPIRED');
});

t.test('a refresh token has one successor', async (t) => {
  const app = await saasApp(t);
  const first = await app.signUp();
  const refresh = (refreshToken: string) =>
    app.request('POST', '/api/auth/refresh', { body: { refreshToken } });

  app.clock.advance(MINUTE);
  const second = await refresh(first.refreshToken);
  t.equal(second.status, 200);
  t.same(Object.keys(second.body.data).sort(), ['accessToken', 'expiresIn', 'refreshToken']);
  t.not(second.body.data.refreshToken, first.refreshToken);
  app.clock.advance(30 * SECOND);
  const again = await refresh(first.refreshToken);
  t.equal(again.body.data.refreshToken, second.body.data.refreshToken, 'the same bytes inside the window');

  app.clock.advance(1);
  const late = await refresh(first.refreshToken);
  t.equal(late.status, 401);
  t.equal(codeOf(t, late), 'REFRESH_TOKEN_REUSED');
  const newest = await refresh(second.body.data.refreshToken);
  t.equal(newest.status, 401, 'the whole session has ended');
  t.equal(codeOf(t, newest), 'INVALID_REFRESH_TOKEN');
  t.equal((await app.request('GET', '/api/auth/me', { token: second.body.data.accessToken })).status, 401);
  t.equal((await refresh(first.refreshToken)).status, 401);
});

t.test(
  'when another version has rotated a token, a concurrent refresh is refused without revoking the session',
  async (t) => {
    const app = await saasApp(t);
    const sessions = sessionCollection(await storeOf(t, app));
    const { refreshToken, accessToken } = await app.signUp();
    const refresh = () => app.request('POST', '/api/auth/refresh', { body: { refreshToken } });
    t.equal((await refresh()).status, 200);
    await sessions.updateOne({ id: claimsOf(refreshToken).sid }, { set: { currentId: 'derived otherwise' } });
    t.match(await refresh(), { status: 401, body: { error: { code: 'INVALID_REFRESH_TOKEN' } } });
    t.equal((await app.request('GET', '/api/auth/me', { token: accessToken })).status, 200);
  },
);

t.test(
  'an operator chooses how long a used refresh token returns its successor, up to ten minutes',
  async (t) => {
    const app = await saasApp(t, { refreshTokenReuseWindow: 600 });
    const first = await app.signUp();
    const refresh = () =>
      app.request('POST', '/api/auth/refresh', { body: { refreshToken: first.refreshToken } });
    const { refreshToken } = (await refresh()).body.data;
    app.clock.advance(600 * SECOND);
    t.equal((await refresh()).body.data.refreshToken, refreshToken);
    app.clock.advance(1);
    t.equal(codeOf(t, await refresh()), 'REFRESH_TOKEN_REUSED');
  },
);

t.test('the grace window after a rotation does not slide', async (t) => {
  const app = await saasApp(t);
  const { refreshToken } = await app.signUp();
  const refresh = () => app.request('POST', '/api/auth/refresh', { body: { refreshToken } });
  for (const status of [200, 200, 401]) {
    t.equal((await refresh()).status, status);
    app.clock.advance(20 * SECOND);
  }
});

t.test('50 concurrent refreshes of one token have one successor', async (t) => {
  const app = await saasApp(t);
  const { refreshToken, id } = await app.signUp();
  const answers = await Promise.all(
    Array.from({ length: 50 }, () => app.request('POST', '/api/auth/refresh', { body: { refreshToken } })),
  );
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
  const successors = new Set(answers.map(({ body }) => body.data.refreshToken));
  t.equal(successors.size, 1);
  const [successor] = successors;
  const next = await app.request('POST', '/api/auth/refresh', { body: { refreshToken: successor } });
  t.equal(next.status, 200, 'which works');
  const { items } = await sessionCollection(await storeOf(t, app)).page({ sort: 'id', limit: 10 });
  t.same(
    items.map(({ userId }) => userId),
    [id],
  );
});

t.test('a refresh that loses a race between its read and its write changes nothing', async (t) => {
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const [clock, random, secret] = [fakeClock(), countedRandom(), SECRETS.jwtRefreshSecret];
  const instance = fastify();
  t.teardown(() => instance.close());
  const [users, sessions] = [userCollection(store), sessionCollection(store)];
  const audit = createAudit(store, { clock, random, log: { error: () => undefined } });
  let overtake: (() => Promise<void>) | undefined;
  const auth = createSessionService({
    users,
    sessions: {
      ...sessions,
      async changeOne(...change) {
        const first = overtake;
        overtake = undefined;
        await first?.();
        return sessions.changeOne(...change);
      },
    },
    tokens: createSessionTokens({
      access: await registerTokenKind(instance, { namespace: 'access', typ: 'at+jwt', secret }),
      refresh: await registerTokenKind(instance, { namespace: 'refresh', typ: 'rt+jwt', secret }),
      accessTtl: 900,
      issuer: () => 'http://app.example.test',
      clock,
      random,
    }),
    audit,
    announceEvent: announcing(),
    presentUser: viewUnsubscribed,
    unknownWrites: createUnknownWrites({ clock, log: { error: () => undefined } }),
    clock,
    random,
    refreshTtl: 604_800,
    sessionMaxAge: 2_592_000,
    refreshReuseWindow: 30,
  });
  const origin = { ip: '127.0.0.1', isDisconnected: () => false };
  const user = {
    id: 'usr_1',
    email: 'ada@example.test',
    passwordHash: 'none',
    passwordVersion: 1,
    emailVerified: false,
    sessionEpoch: 0,
    subscriptionStatus: 'none',
    subscriptionPlan: 'free',
    createdAt: clock.now(),
  };
  await users.insert(user);
  const { signedIn } = await auth.startSession(user, { ip: '192.0.2.1' });
  const { refreshToken } = signedIn;
  overtake = async () => {
    const second = await auth.refresh(refreshToken, origin);
    await auth.refresh(second.refreshToken, origin);
  };
  await t.rejects(auth.refresh(refreshToken, origin), { code: 'REFRESH_TOKEN_REUSED' });
});

t.test('a session ends after 30 days in any case, and after 7 days without a refresh', async (t) => {
  const app = await saasApp(t);
  const refresh = async (refreshToken: string) => {
    const { status, body } = await app.request('POST', '/api/auth/refresh', { body: { refreshToken } });
    return { status, token: body.data?.refreshToken as string };
  };
  const { refreshToken: idle } = await app.signUp();
  let current = (await app.signUp()).refreshToken;
  for (let day = 6; day < 30; day += 6) {
    app.clock.advance(6 * DAY);
    const { status, token } = await refresh(current);
    t.equal(status, 200);
    current = token;
  }
  t.equal((await refresh(idle)).status, 401);
  t.equal(claimsOf(current).exp * 1000, Date.UTC(2040, 0, 31));
  app.clock.set(Date.UTC(2040, 0, 31) - SECOND);
  const last = await refresh(current);
  t.equal(last.status, 200);
  app.clock.advance(SECOND);
  t.equal((await refresh(last.token)).status, 401);
});

t.test('a revoked session stays revoked while its tokens are unexpired', async (t) => {
  const app = await saasApp(t);
  const sessions = sessionCollection(await storeOf(t, app));
  const refresh = async (refreshToken: string) => {
    const answer = await app.request('POST', '/api/auth/refresh', { body: { refreshToken } });
    return { code: `${answer.status} ${answer.body.error?.code}`, ...answer.body.data };
  };

  const cut = await app.signUp();
  const { sid } = claimsOf(cut.refreshToken);
  await sessions.updateOne({ id: sid }, { set: { expiresAt: app.clock.now() } });
  const before = await sessions.findOne({ id: sid });
  t.equal((await refresh(cut.refreshToken)).code, '401 INVALID_REFRESH_TOKEN');
  t.same(await sessions.findOne({ id: sid }), before, 'its end does not move');

  const person = await app.signUp();
  const body = { email: person.email, password: PASSWORD };
  const other = (await app.request('POST', '/api/auth/login', { body })).body.data;
  const { refreshToken: newest } = await refresh(other.refreshToken);
  await app.request('POST', '/api/auth/logout', { token: person.accessToken, body: { scope: 'others' } });
  t.equal((await refresh(other.refreshToken)).code, '401 INVALID_REFRESH_TOKEN', 'inside the window');
  t.equal((await refresh(newest)).code, '401 INVALID_REFRESH_TOKEN');
  t.equal((await refresh(newest)).code, '401 INVALID_REFRESH_TOKEN');
  t.equal((await refresh(person.refreshToken)).code, '200 undefined');
});

t.test('sessions and revocations survive a restart', async (t) => {
  const folder = temporaryFolder(t);
  const before = await saasApp(t, { folder });
  const [kept, ended] = [await before.signUp(), await before.signUp()];
  await before.request('POST', '/api/auth/logout', { token: ended.accessToken });
  await before.close();
  const after = await saasApp(t, { folder, clock: before.clock, random: countedRandom('restart') });
  t.equal((await after.request('GET', '/api/auth/me', { token: kept.accessToken })).status, 200);
  t.equal((await after.request('GET', '/api/auth/me', { token: ended.accessToken })).status, 401);
  const { refreshToken } = kept;
  t.equal((await after.request('POST', '/api/auth/refresh', { body: { refreshToken } })).status, 200);
});

t.test('a previous secret still verifies, and new tokens are signed with the current one', async (t) => {
  const folder = temporaryFolder(t);
  const before = await saasApp(t, { folder });
  const { refreshToken, accessToken } = await before.signUp();
  const early = await before.request('POST', '/api/auth/refresh', { body: { refreshToken } });
  await before.close();

  const secrets = {
    jwtAccessSecret: 'access-new-Fd8sKq2mVz6xLp0wTj4nYb',
    jwtRefreshSecret: 'refresh-new-Gh5tRw9cNe3yUo7iAk1sDz',
  };
  const shared = { folder, clock: before.clock };
  const rolled = await saasApp(t, {
    ...shared,
    random: countedRandom('rolled'),
    ...secrets,
    jwtAccessSecretPrevious: SECRETS.jwtAccessSecret,
    jwtRefreshSecretPrevious: SECRETS.jwtRefreshSecret,
  });
  t.equal((await rolled.request('GET', '/api/auth/me', { token: accessToken })).status, 200);
  const again = await rolled.request('POST', '/api/auth/refresh', { body: { refreshToken } });
  t.equal(again.status, 200, 'a rotation under the old secret keeps its window');
  t.equal(claimsOf(again.body.data.refreshToken).jti, claimsOf(early.body.data.refreshToken).jti);
  const onward = await rolled.request('POST', '/api/auth/refresh', {
    body: { refreshToken: again.body.data.refreshToken },
  });
  await rolled.close();

  const done = await saasApp(t, { ...shared, random: countedRandom('done'), ...secrets });
  const { accessToken: newest } = onward.body.data;
  t.equal((await done.request('GET', '/api/auth/me', { token: newest })).status, 200);
  t.equal((await done.request('GET', '/api/auth/me', { token: accessToken })).status, 401);
});

t.test('concurrent refreshes have one successor even when one process lacks the new secret', async (t) => {
  const folder = temporaryFolder(t);
  const old = await saasApp(t, { folder });
  const { refreshToken } = await old.signUp();
  const rolled = await saasApp(t, {
    folder,
    clock: old.clock,
    random: countedRandom('rolled'),
    jwtRefreshSecret: 'refresh-new-Gh5tRw9cNe3yUo7iAk1sDz',
    jwtRefreshSecretPrevious: SECRETS.jwtRefreshSecret,
  });
  const first = await rolled.request('POST', '/api/auth/refresh', { body: { refreshToken } });
  t.equal(first.status, 200);
  const repeated = await old.request('POST', '/api/auth/refresh', { body: { refreshToken } });
  t.equal(repeated.status, 200);
  const [one, other] = [first, repeated].map(({ body }) => body.data.refreshToken);
  t.equal(claimsOf(other).jti, claimsOf(one).jti);
  for (const onward of [other, one]) {
    const answer = await rolled.request('POST', '/api/auth/refresh', { body: { refreshToken: onward } });
    t.equal(answer.status, 200);
  }
});

t.test('logout accepts either token that still identifies its session', async (t) => {
  const app = await saasApp(t);
  const { accessToken: token, refreshToken } = await app.signUp();
  const logout = (body: object, token?: string) =>
    app.request('POST', '/api/auth/logout', { body, ...(token && { token }) });
  app.clock.advance(16 * 60_000);
  t.equal((await logout({ scope: 'global' }, token)).body.error.code, 'TOKEN_EXPIRED');
  t.equal((await logout({ refreshToken }, 'garbage')).status, 200);
  t.equal((await app.request('POST', '/api/auth/refresh', { body: { refreshToken } })).status, 401);

  const other = await app.signUp();
  app.clock.advance(16 * 60_000);
  t.equal((await logout({}, other.accessToken)).status, 200, 'an expired one still ends its own session');
  const again = { refreshToken: other.refreshToken };
  t.equal((await app.request('POST', '/api/auth/refresh', { body: again })).status, 401);
});

t.test('logout revokes this session, the others or all, as of the next request', async (t) => {
  const app = await saasApp(t);
  const { email, accessToken: a, refreshToken } = await app.signUp();
  const login = async () => {
    const { body } = await app.request('POST', '/api/auth/login', { body: { email, password: PASSWORD } });
    return body.data.accessToken as string;
  };
  const alive = async (...tokens: string[]) => {
    const answers = await Promise.all(tokens.map((token) => app.request('GET', '/api/auth/me', { token })));
    return answers.map(({ status }) => status === 200);
  };
  const logout = (token: string, body?: object) =>
    app.request('POST', '/api/auth/logout', { token, ...(body && { body }) });

  const [b, c] = [await login(), await login()];
  const done = await logout(a);
  t.equal(done.status, 200);
  t.strictSame(done.body, { success: true });
  t.equal(done.headers['cache-control'], 'no-store');
  t.same(await alive(a, b, c), [false, true, true]);
  t.equal((await logout(a)).status, 200, 'idempotent');
  t.equal((await app.request('POST', '/api/auth/refresh', { body: { refreshToken } })).status, 401);

  t.equal((await logout(b, { scope: 'others' })).status, 200);
  t.same(await alive(b, c), [true, false]);
  const d = await login();
  t.same(await alive(b, d), [true, true], 'both epochs live');
  t.equal((await logout(d, { scope: 'others' })).status, 200);
  t.same(await alive(b, d), [false, true], 'an older one that was spared once is not spared twice');
  const e = await login();
  t.equal((await logout(d, { scope: 'global' })).status, 200);
  t.same(await alive(d, e), [false, false]);

  const { refreshToken: mine, accessToken: f } = await app.signUp();
  const byRefresh = await app.request('POST', '/api/auth/logout', { body: { refreshToken: mine } });
  t.equal(byRefresh.status, 200, 'either token will do');
  t.same(await alive(f), [false]);
  t.equal((await app.request('POST', '/api/auth/logout')).status, 401);
  t.equal((await app.request('POST', '/api/auth/logout', { token: 'garbage' })).status, 401);
  t.equal((await logout(await login(), { scope: 'everything' })).status, 400);
});

t.test('logout with tokens of two sessions acts on each session as its own token would', async (t) => {
  const app = await saasApp(t);
  const login = async ({ email }: { email: string }) =>
    (await app.request('POST', '/api/auth/login', { body: { email, password: PASSWORD } })).body.data;
  const alive = async (...of: { accessToken: string }[]) => {
    const answers = await Promise.all(
      of.map(({ accessToken: token }) => app.request('GET', '/api/auth/me', { token })),
    );
    return answers.map(({ status }) => status === 200);
  };
  const logout = async (
    header: { accessToken: string },
    { refreshToken }: { refreshToken: string },
    scope: 'local' | 'others' | 'global' = 'local',
  ) => {
    const body = { refreshToken, scope };
    const answer = await app.request('POST', '/api/auth/logout', { token: header.accessToken, body });
    t.strictSame([answer.status, answer.body], [200, { success: true }], scope);
  };

  const [ada, bob] = [await app.signUp(), await app.signUp()];
  const [a, b, c] = [await login(ada), await login(ada), await login(ada)];
  await logout(a, b);
  t.same(await alive(a, b, c), [false, false, true], 'both of one user end');
  await logout(a, b);
  await logout(c, bob);
  t.same(await alive(c, bob, ada), [false, false, true], 'both of two users end');

  const [d, e] = [await login(ada), await login(bob)];
  await logout(d, e, 'global');
  t.same(await alive(ada, d, e), [false, false, false], 'everything of both users ends');

  const [f, g, h] = [await login(ada), await login(ada), await login(ada)];
  await logout(f, g, 'others');
  t.same(await alive(f, g, h), [true, false, false], 'the session of the header goes on, and no other');
  const [i, j, k] = [await login(ada), await login(bob), await login(bob)];
  await logout(i, j, 'others');
  t.same(await alive(f, i, j, k), [false, true, true, false], 'one goes on for each user');

  app.clock.advance(16 * MINUTE);
  const l = await login(bob);
  const refresh = async ({ refreshToken }: { refreshToken: string }) =>
    (await app.request('POST', '/api/auth/refresh', { body: { refreshToken } })).status;
  await logout(i, l);
  t.same([await refresh(i), ...(await alive(l))], [401, false], 'an expired one still ends its own session');
  const [m, n] = [await login(ada), await login(bob)];
  app.clock.advance(16 * MINUTE);
  await logout(m, n, 'global');
  t.same([await refresh(m), await refresh(n)], [401, 401], 'also beside one that ends everything');
});

t.test('logout with both tokens of a session happens once', async (t) => {
  const app = await saasApp(t);
  const account = await app.signUp();
  const logout = (scope: string) => {
    const { accessToken: token, refreshToken } = account;
    return app.request('POST', '/api/auth/logout', { token, body: { refreshToken, scope } });
  };
  t.equal((await logout('others')).status, 200);
  app.clock.advance(16 * MINUTE);
  t.equal((await logout('others')).status, 200, 'the refresh token speaks where the other one has expired');
  const body = { refreshToken: account.refreshToken };
  const refreshed = await app.request('POST', '/api/auth/refresh', { body });
  t.equal(refreshed.status, 200, 'this session goes on');
  // Records of the same millisecond have no order.
  app.clock.advance(1);
  t.equal((await logout('global')).status, 200);
  const details = (await auditOf(await storeOf(t, app)))
    .filter(({ event }) => event === 'logout')
    .map(({ detail }) => detail);
  t.same(details, ['others', 'others', 'global']);
});

t.test('suspension and deletion take effect on the next request', async (t) => {
  const app = await saasApp(t);
  const users = userCollection(await storeOf(t, app));
  for (const strike of [
    (id: string) => users.updateOne({ id }, { set: { suspendedAt: 1 } }),
    (id: string) => users.updateOne({ id }, { inc: { sessionEpoch: 1 } }),
    (id: string) => users.deleteOne({ id }),
  ]) {
    const { id, accessToken: token, refreshToken } = await app.signUp();
    t.equal((await app.request('GET', '/api/auth/me', { token })).status, 200);
    await strike(id);
    t.equal((await app.request('GET', '/api/auth/me', { token })).status, 401);
    t.equal((await app.request('GET', '/api/user/profile', { token })).status, 401);
    t.equal((await app.request('POST', '/api/auth/refresh', { body: { refreshToken } })).status, 401);
  }
});

t.test('login rehashes a password hashed at another cost, once', async (t) => {
  const folder = temporaryFolder(t);
  const before = await saasApp(t, { folder });
  const { id, email } = await before.signUp();
  await before.close();
  const hashing = { memoryCost: 16, timeCost: 1, parallelism: 1 };
  const app = await saasApp(t, { folder, hashing, random: countedRandom('dearer') });
  const users = userCollection(await storeOf(t, app));
  const login = () => app.request('POST', '/api/auth/login', { body: { email, password: PASSWORD } });
  t.equal((await login()).status, 200);
  const renewed = (await users.findOne({ id }))?.passwordHash;
  t.match(renewed, '$argon2id$v=19$m=16,t=1,p=1$');
  t.equal((await login()).status, 200);
  t.equal((await users.findOne({ id }))?.passwordHash, renewed);
});

t.test('logins, logouts and reuse are audited, without secrets', async (t) => {
  const app = await saasApp(t);
  const { id, email, refreshToken } = await app.signUp();
  const login = (password: string) => app.request('POST', '/api/auth/login', { body: { email, password } });
  const { accessToken } = (await login(PASSWORD)).body.data;
  await login('a wrong canary');
  await app.request('POST', '/api/auth/login', {
    body: { email: 'nobody@example.test', password: PASSWORD },
  });
  await app.request('POST', '/api/auth/logout', { token: accessToken });
  await app.request('POST', '/api/auth/refresh', { body: { refreshToken } });
  app.clock.advance(31 * SECOND);
  await app.request('POST', '/api/auth/refresh', { body: { refreshToken } });

  const records = await auditOf(await storeOf(t, app));
  const at = Date.UTC(2040, 0, 1);
  const ip = '127.0.0.1';
  t.same(
    new Set(records.map(({ id: _, ...record }) => record)),
    new Set([
      { at, ip, event: 'user.registered', subject: id },
      { at, ip, event: 'login.succeeded', subject: id },
      { at, ip, event: 'login.failed', subject: id },
      { at, ip, event: 'login.failed' },
      { at, ip, event: 'logout', subject: id, detail: 'local' },
      { at: at + 31 * SECOND, ip, event: 'refresh.reused', subject: id },
    ]),
  );
  t.equal(records.length, 6);
  t.notMatch(JSON.stringify(records), /canary|eyJ|correct horse/);
});
