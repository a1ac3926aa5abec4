import t, { type Test } from 'tap';
import { sessionCollection, userCollection } from '../../../src/saas/auth/store.js';
import {
  type Account,
  type Answer,
  auditOf,
  errorOf,
  PASSWORD,
  type SaasApp,
  SECRETS,
  saasApp,
  storeOf,
} from '../../kit/app.js';
import { comparable } from '../../kit/idp.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;

const claimsOf = (token: string) =>
  JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString());

const login = (app: SaasApp, { email, password }: Pick<Account, 'email' | 'password'>) =>
  app.post('/auth/login', { email, password });

const refresh = (app: SaasApp, refreshToken: string) => app.post('/auth/refresh', { refreshToken });

const logout = (app: SaasApp, body: object, token?: string) =>
  app.post('/auth/logout', body, token === undefined ? {} : { token });

/** Which of these access tokens are valid. */
const alive = async (app: SaasApp, ...of: { accessToken: string }[]) =>
  (await Promise.all(of.map((one) => app.me(one)))).map((status) => status === 200);

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
  const answer = await login(app, { email: email.toUpperCase(), password: PASSWORD });
  t.equal(answer.status, 200);
  t.same(Object.keys(answer.body.data).sort(), ['accessToken', 'expiresIn', 'refreshToken', 'user']);
  t.equal(answer.body.data.user.id, id);
  t.equal(answer.headers['cache-control'], 'no-store');
});

t.test('login answers alike for an unknown address, a wrong password and a suspended account', async (t) => {
  const app = await saasApp(t);
  const { email, id } = await app.signUp();
  await app.server.fastify.saas.users.create({ email: 'none@example.test' });
  const refused = [
    await login(app, { email, password: 'something else' }),
    await login(app, { email: 'nobody@example.test', password: PASSWORD }),
    await login(app, { email, password: 'x' }),
    await login(app, { email: 'none@example.test', password: PASSWORD }),
    await login(app, { email: 'none@example.test', password: 'undefined' }),
  ];
  await userCollection(await storeOf(t, app)).updateOne({ id }, { set: { suspendedAt: 1 } });
  refused.push(await login(app, { email, password: 'something else' }));

  t.equal(refused[0]?.status, 401);
  t.equal(refused[0]?.body.error.code, 'INVALID_CREDENTIALS');
  for (const one of refused) t.same(comparable(one), comparable(refused[0] as Answer));
  const suspended = await login(app, { email, password: PASSWORD });
  t.equal(suspended.status, 403, 'the right password reveals the suspension');
  t.equal(codeOf(t, suspended), 'ACCOUNT_SUSPENDED');
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
  for (const [more, ...fields] of [
    [{ nickname: 'x', email: 'x@example.test' }, 'email', 'nickname'],
    [{ toString: 'x' }, 'toString'],
    [{ ['x'.repeat(200)]: 1 }, 'x'.repeat(100)],
  ] as const) {
    const refused = await app.request('PATCH', '/api/user/profile', {
      token,
      body: { name: 'Ada', ...more },
    });
    t.equal(refused.status, 400);
    t.same(refused.body.error.details.map(({ path }: { path: string }) => path).sort(), fields);
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
  const inQuery = await app.request('GET', `/api/auth/me?access_token=${token}`);
  t.equal(inQuery.status, 401, 'never from the query');

  app.clock.advance(15 * MINUTE - SECOND);
  t.equal(await app.me({ accessToken: token }), 200);
  app.clock.advance(SECOND);
  const expired = await app.request('GET', '/api/auth/me', { token });
  t.equal(expired.status, 401);
  t.equal(expired.headers['www-authenticate'], 'Bearer realm="api", error="invalid_token"');
  t.equal(codeOf(t, expired), 'TOKEN_EXPIRED');
});

t.test(
  'a refresh token has one successor, which it returns again in a window of chosen length',
  async (t) => {
    for (const [options, seconds] of [
      [{}, 30],
      [{ refreshTokenReuseWindow: 600 }, 600],
    ] as const) {
      const app = await saasApp(t, options);
      const first = await app.signUp();
      const second = await refresh(app, first.refreshToken);
      t.equal(second.status, 200);
      t.same(Object.keys(second.body.data).sort(), ['accessToken', 'expiresIn', 'refreshToken']);
      t.not(second.body.data.refreshToken, first.refreshToken);
      app.clock.advance(seconds * SECOND);
      const again = await refresh(app, first.refreshToken);
      t.equal(
        again.body.data.refreshToken,
        second.body.data.refreshToken,
        'the same bytes inside the window',
      );

      app.clock.advance(1);
      const late = await refresh(app, first.refreshToken);
      t.equal(late.status, 401);
      t.equal(codeOf(t, late), 'REFRESH_TOKEN_REUSED');
      const newest = await refresh(app, second.body.data.refreshToken);
      t.equal(newest.status, 401, 'the whole session has ended');
      t.equal(codeOf(t, newest), 'INVALID_REFRESH_TOKEN');
      t.equal(await app.me(second.body.data), 401);
      t.equal((await refresh(app, first.refreshToken)).status, 401);
    }
  },
);

t.test('the grace window after a rotation does not slide', async (t) => {
  const app = await saasApp(t);
  const { refreshToken } = await app.signUp();
  for (const status of [200, 200, 401]) {
    t.equal((await refresh(app, refreshToken)).status, status);
    app.clock.advance(20 * SECOND);
  }
});

t.test('a session ends after 30 days in any case, and after 7 days without a refresh', async (t) => {
  const app = await saasApp(t);
  const { refreshToken: idle } = await app.signUp();
  let current = (await app.signUp()).refreshToken;
  for (let day = 6; day < 30; day += 6) {
    app.clock.advance(6 * DAY);
    const { status, body } = await refresh(app, current);
    t.equal(status, 200);
    current = body.data.refreshToken;
  }
  t.equal((await refresh(app, idle)).status, 401);
  t.equal(claimsOf(current).exp * 1000, Date.UTC(2040, 0, 31));
  app.clock.set(Date.UTC(2040, 0, 31) - SECOND);
  const last = await refresh(app, current);
  t.equal(last.status, 200);
  app.clock.advance(SECOND);
  t.equal((await refresh(app, last.body.data.refreshToken)).status, 401);
});

t.test('a revoked session stays revoked while its tokens are unexpired', async (t) => {
  const app = await saasApp(t);
  const sessions = sessionCollection(await storeOf(t, app));
  const ended = async (refreshToken: string, why: string) =>
    t.equal(errorOf(await refresh(app, refreshToken)), 'INVALID_REFRESH_TOKEN', why);

  const cut = await app.signUp();
  const { sid } = claimsOf(cut.refreshToken);
  await sessions.updateOne({ id: sid }, { set: { expiresAt: app.clock.now() } });
  const before = await sessions.findOne({ id: sid });
  await ended(cut.refreshToken, 'it has expired');
  t.same(await sessions.findOne({ id: sid }), before, 'its end does not move');

  const person = await app.signUp();
  const other = (await login(app, person)).body.data;
  const { refreshToken: newest } = (await refresh(app, other.refreshToken)).body.data;
  await logout(app, { scope: 'others' }, person.accessToken);
  await ended(other.refreshToken, 'inside the window');
  for (const why of ['once', 'twice']) await ended(newest, why);
  t.equal((await refresh(app, person.refreshToken)).status, 200);
});

t.test('sessions and revocations survive a restart', async (t) => {
  const folder = temporaryFolder(t);
  const before = await saasApp(t, { folder });
  const [kept, ended] = [await before.signUp(), await before.signUp()];
  await logout(before, {}, ended.accessToken);
  await before.close();
  const after = await saasApp(t, { folder, clock: before.clock, random: countedRandom('restart') });
  t.same(await alive(after, kept, ended), [true, false]);
  t.equal((await refresh(after, kept.refreshToken)).status, 200);
});

const NEW_SECRETS = {
  jwtAccessSecret: 'access-new-Fd8sKq2mVz6xLp0wTj4nYb',
  jwtRefreshSecret: 'refresh-new-Gh5tRw9cNe3yUo7iAk1sDz',
};
const ROLLED = {
  ...NEW_SECRETS,
  jwtAccessSecretPrevious: SECRETS.jwtAccessSecret,
  jwtRefreshSecretPrevious: SECRETS.jwtRefreshSecret,
};

t.test('a previous secret still verifies, and new tokens are signed with the current one', async (t) => {
  const folder = temporaryFolder(t);
  const before = await saasApp(t, { folder });
  const person = await before.signUp();
  const early = await refresh(before, person.refreshToken);
  await before.close();

  const shared = { folder, clock: before.clock };
  const rolled = await saasApp(t, { ...shared, ...ROLLED, random: countedRandom('rolled') });
  t.equal(await rolled.me(person), 200);
  const again = await refresh(rolled, person.refreshToken);
  t.equal(again.status, 200, 'a rotation under the old secret keeps its window');
  t.equal(claimsOf(again.body.data.refreshToken).jti, claimsOf(early.body.data.refreshToken).jti);
  const onward = await refresh(rolled, again.body.data.refreshToken);
  await rolled.close();

  const done = await saasApp(t, { ...shared, ...NEW_SECRETS, random: countedRandom('done') });
  t.same(await alive(done, onward.body.data, person), [true, false]);
});

t.test('concurrent refreshes have one successor even when one process lacks the new secret', async (t) => {
  const folder = temporaryFolder(t);
  const old = await saasApp(t, { folder });
  const { refreshToken } = await old.signUp();
  const rolled = await saasApp(t, { folder, clock: old.clock, random: countedRandom('rolled'), ...ROLLED });
  const answers = [await refresh(rolled, refreshToken), await refresh(old, refreshToken)];
  const [one, other] = answers.map(({ body }) => body.data.refreshToken);
  t.equal(claimsOf(other).jti, claimsOf(one).jti);
  for (const onward of [other, one]) t.equal((await refresh(rolled, onward)).status, 200);
});

t.test('logout accepts either token that still identifies its session', async (t) => {
  const app = await saasApp(t);
  const { accessToken: token, refreshToken } = await app.signUp();
  app.clock.advance(16 * MINUTE);
  t.equal(errorOf(await logout(app, { scope: 'global' }, token)), 'TOKEN_EXPIRED');
  t.equal((await logout(app, { refreshToken }, 'garbage')).status, 200);
  t.equal((await refresh(app, refreshToken)).status, 401);

  const other = await app.signUp();
  app.clock.advance(16 * MINUTE);
  t.equal((await logout(app, {}, other.accessToken)).status, 200, 'an expired one ends its own session');
  t.equal((await refresh(app, other.refreshToken)).status, 401);
});

t.test('logout revokes this session, the others or all, as of the next request', async (t) => {
  const app = await saasApp(t);
  const a = await app.signUp();
  const signIn = async (): Promise<Account> => (await login(app, a)).body.data;
  const leave = async ({ accessToken: token }: Account, body?: object) =>
    (await app.post('/auth/logout', body, { token })).status;

  const [b, c] = [await signIn(), await signIn()];
  t.equal(await leave(a), 200);
  t.same(await alive(app, a, b, c), [false, true, true]);
  t.equal(await leave(a), 200, 'idempotent');
  t.equal((await refresh(app, a.refreshToken)).status, 401);

  t.equal(await leave(b, { scope: 'others' }), 200);
  t.same(await alive(app, b, c), [true, false]);
  const d = await signIn();
  t.same(await alive(app, b, d), [true, true], 'both epochs live');
  t.equal(await leave(d, { scope: 'others' }), 200);
  t.same(await alive(app, b, d), [false, true], 'an older one that was spared once is not spared twice');
  const e = await signIn();
  t.equal(await leave(d, { scope: 'global' }), 200);
  t.same(await alive(app, d, e), [false, false]);

  const f = await app.signUp();
  t.equal((await logout(app, { refreshToken: f.refreshToken })).status, 200, 'either token will do');
  t.same(await alive(app, f), [false]);
  t.equal((await app.post('/auth/logout')).status, 401);
  t.equal((await logout(app, {}, 'garbage')).status, 401);
  t.equal(await leave(await signIn(), { scope: 'everything' }), 400);
});

t.test('logout with tokens of two sessions acts on each session as its own token would', async (t) => {
  const app = await saasApp(t);
  const signIn = async (who: Account): Promise<Account> => (await login(app, who)).body.data;
  const leave = async (header: Account, { refreshToken }: Account, scope = 'local') =>
    t.equal((await logout(app, { refreshToken, scope }, header.accessToken)).status, 200, scope);

  const [ada, bob] = [await app.signUp(), await app.signUp()];
  const [a, b, c] = [await signIn(ada), await signIn(ada), await signIn(ada)];
  await leave(a, b);
  t.same(await alive(app, a, b, c), [false, false, true], 'both of one user end');
  await leave(a, b);
  await leave(c, bob);
  t.same(await alive(app, c, bob, ada), [false, false, true], 'both of two users end');

  const [d, e] = [await signIn(ada), await signIn(bob)];
  await leave(d, e, 'global');
  t.same(await alive(app, ada, d, e), [false, false, false], 'everything of both users ends');

  const [f, g, h] = [await signIn(ada), await signIn(ada), await signIn(ada)];
  await leave(f, g, 'others');
  t.same(await alive(app, f, g, h), [true, false, false], 'the session of the header goes on, and no other');
  const [i, j, k] = [await signIn(ada), await signIn(bob), await signIn(bob)];
  await leave(i, j, 'others');
  t.same(await alive(app, f, i, j, k), [false, true, true, false], 'one goes on for each user');

  app.clock.advance(16 * MINUTE);
  const l = await signIn(bob);
  await leave(i, l);
  t.equal((await refresh(app, i.refreshToken)).status, 401, 'an expired one still ends its own session');
  t.same(await alive(app, l), [false]);
  const [m, n] = [await signIn(ada), await signIn(bob)];
  app.clock.advance(16 * MINUTE);
  await leave(m, n, 'global');
  for (const { refreshToken } of [m, n])
    t.equal((await refresh(app, refreshToken)).status, 401, 'also beside one that ends everything');
});

t.test('logout with both tokens of a session happens once', async (t) => {
  const app = await saasApp(t);
  const { accessToken, refreshToken } = await app.signUp();
  const leave = async (scope: string) => (await logout(app, { refreshToken, scope }, accessToken)).status;
  t.equal(await leave('others'), 200);
  app.clock.advance(16 * MINUTE);
  t.equal(await leave('others'), 200, 'the refresh token speaks where the other one has expired');
  t.equal((await refresh(app, refreshToken)).status, 200, 'this session goes on');
  // Records of the same millisecond have no order.
  app.clock.advance(1);
  t.equal(await leave('global'), 200);
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
    const person = await app.signUp();
    t.equal(await app.me(person), 200);
    await strike(person.id);
    t.equal(await app.me(person), 401);
    t.equal((await app.request('GET', '/api/user/profile', { token: person.accessToken })).status, 401);
    t.equal((await refresh(app, person.refreshToken)).status, 401);
  }
});

t.test('logins, logouts and reuse are audited, without secrets', async (t) => {
  const app = await saasApp(t);
  const { id, email, refreshToken } = await app.signUp();
  const { accessToken } = (await login(app, { email, password: PASSWORD })).body.data;
  await login(app, { email, password: 'a wrong canary' });
  await login(app, { email: 'nobody@example.test', password: PASSWORD });
  await logout(app, {}, accessToken);
  await refresh(app, refreshToken);
  app.clock.advance(31 * SECOND);
  await refresh(app, refreshToken);

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
