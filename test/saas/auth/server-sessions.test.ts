import t from 'tap';
import { activityCollection, createActivity } from '../../../src/saas/auth/sessions/activity.js';
import { sessionCollection } from '../../../src/saas/auth/store.js';
import { onEngines } from '../../core/storage/engines.js';
import { type Answer, errorOf, PASSWORD, type SaasApp, saasApp, storeOf } from '../../kit/app.js';
import { claimsOf } from '../../kit/idp.js';
import { spread, startAll } from '../../kit/saas-processes.js';
import { place } from '../organizations/kit.js';

/** A server reads the session of a browser while it renders a page, without an exchange of the token in the cookie. */

const MODE = { 'session-mode': 'cookie' };
const [SECOND, DAY] = [1000, 86_400_000];

const cookieIn = ({ headers }: Pick<Answer, 'headers'>): string =>
  /saas-session=([^;]*)/.exec(String(headers['set-cookie'] ?? ''))?.[1] ?? '';

const withCookie = (cookie: string, more = {}) => ({
  headers: { ...MODE, cookie: `saas-session=${cookie}`, ...more },
});

/** The session that a server sees with a cookie. */
const seen = async (app: SaasApp, cookie: string) => {
  const { status, body, text } = await app.request('GET', '/api/auth/session', withCookie(cookie));
  if (status !== 200) throw new Error(text);
  return body.data.session;
};

const tokenOf = (app: SaasApp, cookie: string) =>
  app.request('POST', '/api/auth/session/token', withCookie(cookie));

const refresh = (app: SaasApp, cookie: string) =>
  app.request('POST', '/api/auth/refresh', { body: {}, ...withCookie(cookie) });

async function signUp(app: SaasApp, email = 'ada@example.test') {
  const answer = await app.request('POST', '/api/auth/register', {
    body: { email, password: PASSWORD },
    headers: MODE,
  });
  const { user, accessToken } = answer.body.data;
  return { id: user.id as string, cookie: cookieIn(answer), accessToken: accessToken as string };
}

t.test('a server reads who is signed in by the cookie or an access token', async (t) => {
  const app = await saasApp(t);
  const { cookie, accessToken } = await signUp(app);
  const me = await app.request('GET', '/api/auth/me', { token: accessToken });
  const { user, session } = me.body.data;
  const expected = { user, session, organization: null, features: [] };
  const answer = await app.request('GET', '/api/auth/session', withCookie(cookie));
  t.strictSame(answer.body, { success: true, data: { session: expected } });
  t.equal(answer.headers['set-cookie'], undefined, 'the cookie stays');
  t.equal(answer.headers['cache-control'], 'no-store');
  const byToken = await app.request('GET', '/api/auth/session', { token: accessToken });
  t.strictSame(byToken.body.data.session, expected);
});

t.test('a visitor who is not signed in is no error', async (t) => {
  const app = await saasApp(t, { accessTokenTtl: 60 });
  const { cookie, accessToken } = await signUp(app);
  const inBody = (await app.signUp()).refreshToken;
  const calls = {
    nothing: {},
    'a cookie without the header': { headers: { cookie: `saas-session=${cookie}` } },
    'the header without a cookie': { headers: MODE },
    garbage: withCookie('garbage'),
    'another signature': withCookie(`${cookie.slice(0, -6)}AAAAAA`),
    'the refresh token of a client that keeps it itself': withCookie(inBody),
    'an access token as the cookie': withCookie(accessToken),
    'the cookie as an access token': { token: cookie },
    'a password': { headers: { authorization: 'Basic YWRhOmFkYQ==' } },
  };
  for (const [name, call] of Object.entries(calls)) {
    const { status, body } = await app.request('GET', '/api/auth/session', call);
    t.strictSame([status, body.data], [200, { session: null }], name);
    const refused = await app.request('POST', '/api/auth/session/token', call);
    t.strictSame([refused.status, errorOf(refused)], [401, 'INVALID_REFRESH_TOKEN'], name);
  }
  app.clock.advance(60 * SECOND);
  const expired = await app.request('GET', '/api/auth/session', { token: accessToken });
  t.strictSame(expired.body.data, { session: null }, 'an access token that has expired');
  t.ok(await seen(app, cookie));
});

t.test('pages of other origins and unknown modes are refused', async (t) => {
  const app = await saasApp(t);
  const { cookie } = await signUp(app);
  for (const [method, path] of [
    ['GET', '/api/auth/session'],
    ['POST', '/api/auth/session/token'],
  ] as const) {
    const call = (more: object) => app.request(method, path, withCookie(cookie, more));
    for (const origin of [{ origin: 'https://evil.example.test' }, { 'sec-fetch-site': 'cross-site' }])
      t.equal(errorOf(await call(origin)), 'ORIGIN_NOT_ALLOWED');
    t.equal((await call({ origin: 'http://app.example.test' })).status, 200);
    t.equal(errorOf(await call({ 'session-mode': 'yes' })), 'VALIDATION_ERROR');
  }
});

t.test('the end of a session holds at the next request', async (t) => {
  const app = await saasApp(t, { limits: false });
  const { users } = app.server.fastify.saas;
  const ends: [string, (account: Awaited<ReturnType<typeof signUp>>) => Promise<unknown>][] = [
    ['logout', ({ cookie }) => app.request('POST', '/api/auth/logout', { body: {}, ...withCookie(cookie) })],
    ['global', ({ accessToken: token }) => app.post('/auth/logout', { scope: 'global' }, { token })],
    ['suspension', ({ id }) => users.suspend({ id })],
    ['deletion', ({ accessToken: token }) => app.post('/user/delete', { password: PASSWORD }, { token })],
  ];
  for (const [name, end] of ends) {
    const account = await signUp(app, `${name}@example.test`);
    t.ok(await seen(app, account.cookie), name);
    await end(account);
    t.equal(await seen(app, account.cookie), null, name);
    t.equal((await tokenOf(app, account.cookie)).status, 401, name);
  }
});

t.test(
  'the cookie before the current one is good for 30 seconds, and an older one ends nothing',
  async (t) => {
    const app = await saasApp(t);
    const { cookie: first } = await signUp(app);
    const second = cookieIn(await refresh(app, first));
    app.clock.advance(30 * SECOND);
    t.ok(await seen(app, first), 'within the window');
    t.equal((await tokenOf(app, first)).status, 200);
    app.clock.advance(1);
    t.equal(await seen(app, first), null, 'after the window');
    t.equal((await tokenOf(app, first)).status, 401);
    const third = cookieIn(await refresh(app, second));
    t.equal(await seen(app, first), null, 'older than the one before');
    t.ok(await seen(app, second));
    t.ok(await seen(app, third), 'the session goes on');
  },
);

t.test('a token for calls exchanges nothing and has the claims of hooks', async (t) => {
  const reasons: string[] = [];
  const accessTokenClaims = ({ reason }: { reason: string }) => {
    reasons.push(reason);
    return { team: 'blue' };
  };
  const app = await saasApp(t, { hooks: { accessTokenClaims } });
  const { cookie, accessToken } = await signUp(app);
  const { status, body, headers } = await tokenOf(app, cookie);
  t.equal(status, 200);
  t.same(Object.keys(body.data).sort(), ['accessToken', 'expiresIn']);
  t.equal(body.data.expiresIn, 900);
  t.equal(headers['set-cookie'], undefined);
  t.match(claimsOf(body.data.accessToken), { sid: claimsOf(accessToken).sid, team: 'blue' });
  t.same(reasons, ['login', 'refresh']);
  t.equal(await app.me(body.data), 200);
  t.equal((await refresh(app, cookie)).status, 200, 'the cookie is still the current one');
});

t.test('a session in use goes on without a refresh, up to its maximum age', async (t) => {
  const app = await saasApp(t);
  const sessions = sessionCollection(await storeOf(t, app));
  const { cookie, accessToken } = await signUp(app);
  const { sid: id } = claimsOf(accessToken);
  const stored = async () => (await sessions.findOne({ id })) as { expiresAt: number; seenAt?: number };
  const start = app.clock.now();

  app.clock.advance(DAY - 1);
  await seen(app, cookie);
  t.match(await stored(), { expiresAt: start + 7 * DAY, seenAt: undefined }, 'on the same day');
  app.clock.advance(1);
  t.equal((await seen(app, cookie)).session.expiresAt, new Date(start + 8 * DAY).toISOString());
  t.match(await stored(), { expiresAt: start + 8 * DAY, seenAt: start + DAY, rotatedAt: start });
  app.clock.advance(DAY / 2);
  await tokenOf(app, cookie);
  t.match(await stored(), { seenAt: start + DAY }, 'once a day');
  const listed = await app.request('GET', '/api/auth/sessions', {
    token: (await tokenOf(app, cookie)).body.data.accessToken,
  });
  t.equal(listed.body.data.sessions[0].refreshedAt, new Date(start + DAY).toISOString());

  for (let day = 6; day < 30; day += 6) {
    app.clock.set(start + day * DAY);
    t.ok(await seen(app, cookie), `day ${day}`);
  }
  t.match(await stored(), { expiresAt: start + 30 * DAY });
  app.clock.set(start + 30 * DAY - SECOND);
  t.ok(await seen(app, cookie));
  app.clock.advance(SECOND);
  t.equal(await seen(app, cookie), null, 'after 30 days');
});

t.test('a session that is not used ends after a week, as one of a cookie that is refreshed', async (t) => {
  const app = await saasApp(t);
  const [read, refreshed] = [await signUp(app), await signUp(app, 'eve@example.test')];
  app.clock.advance(7 * DAY);
  t.equal(await seen(app, read.cookie), null);
  t.equal(errorOf(await refresh(app, refreshed.cookie)), 'INVALID_REFRESH_TOKEN');
});

t.test('with short sessions, a quarter of their life without a use is enough', async (t) => {
  const app = await saasApp(t, { refreshTokenTtl: 100 });
  const { cookie } = await signUp(app);
  app.clock.advance(24 * SECOND);
  const before = (await seen(app, cookie)).session.expiresAt;
  app.clock.advance(SECOND);
  const after = (await seen(app, cookie)).session.expiresAt;
  t.equal(Date.parse(after) - Date.parse(before), 25 * SECOND);
});

t.test(
  'a use counts as activity of its day and does not open the window of a used token again',
  async (t) => {
    const app = await saasApp(t);
    const { cookie: first } = await signUp(app);
    const current = cookieIn(await refresh(app, first));
    app.clock.advance(DAY);
    t.ok(await seen(app, current));
    t.equal(await seen(app, first), null);
    t.equal(errorOf(await refresh(app, first)), 'REFRESH_TOKEN_REUSED');
    t.equal(await seen(app, current), null);
  },
);

t.test('the session of an operator who acts as a user is shown and never goes on longer', async (t) => {
  const app = await saasApp(t, {
    userRoles: ['support'],
    impersonationRoles: ['support'],
    refreshTokenTtl: 1000,
  });
  const grace = await signUp(app, 'grace@example.test');
  const ada = await signUp(app);
  const { users } = app.server.fastify.saas;
  await users.setRoles({ id: grace.id }, ['support']);
  const acting = await app.request('POST', '/api/auth/impersonation', {
    token: grace.accessToken,
    body: { userId: ada.id, reason: 'Request 4711' },
    headers: MODE,
  });
  t.equal(acting.status, 200, acting.text);
  const cookie = cookieIn(acting);
  const { session, user } = await seen(app, cookie);
  t.equal(user.id, ada.id);
  t.match(session.impersonator, { userId: grace.id, reason: 'Request 4711' });
  const { accessToken } = (await tokenOf(app, cookie)).body.data;
  t.same(claimsOf(accessToken).act, { sub: grace.id });
  app.clock.advance(999 * SECOND);
  t.equal((await seen(app, cookie)).session.expiresAt, session.expiresAt);
  await users.setRoles({ id: grace.id }, []);
  t.equal(await seen(app, cookie), null, 'the operator has lost the role');
  await users.setRoles({ id: grace.id }, ['support']);
  app.clock.advance(SECOND);
  t.equal(await seen(app, cookie), null);
});

t.test('the active organization is part of the session, while the user is a member', async (t) => {
  const app = await place(t);
  const [ada, bob] = [await app.person('ada'), await app.person('bob')];
  const { id } = await app.organize(ada);
  await app.join(ada, id, bob);
  const read = async () => {
    const { body } = await app.request('GET', '/api/auth/session', { token: bob.accessToken });
    return body.data.session.organization;
  };
  t.equal(await read(), null, 'none is chosen');
  const chosen = await bob.call('POST', '/organizations/active', { organization: id });
  t.equal(chosen.status, 200, chosen.text);
  t.match(await read(), {
    id,
    role: 'member',
    permissions: ['projects:read'],
    subscription: { plan: 'free' },
  });
  await ada.call('DELETE', `/organizations/${id}/members/${bob.id}`);
  t.equal(await read(), null);
});

t.test('sessions can be read during maintenance', async (t) => {
  const app = await saasApp(t);
  const { cookie } = await signUp(app);
  const { version } = (await app.admin('GET', '/admin/api/settings')).body.data;
  await app.admin('PATCH', '/admin/api/settings', { maintenanceMode: true, version });
  t.ok(await seen(app, cookie));
  t.equal((await tokenOf(app, cookie)).status, 200);
});

t.test('those whose sessions were only read are among the active users of a day', async (t) => {
  const app = await saasApp(t);
  const { cookie } = await signUp(app);
  const store = await storeOf(t, app);
  const { job, countActive } = createActivity({
    activity: activityCollection(store),
    sessions: sessionCollection(store),
    clock: app.clock,
  });
  const days = ['2040-01-01', '2040-01-02', '2040-01-03'];
  app.clock.advance(DAY + SECOND);
  await seen(app, cookie);
  app.clock.advance(DAY);
  await job.run({ term: 1, signal: new AbortController().signal });
  t.same(await countActive(days), [1, 1, null]);
});

await onEngines((engine, fresh) => {
  t.test(
    `${engine}: reads beside refreshes sign nobody out, and one of many extends the session`,
    async (t) => {
      const app = await saasApp(t, { databaseUri: fresh(t), limits: false });
      const sessions = sessionCollection(await storeOf(t, app));
      const account = await signUp(app);
      let { cookie } = account;
      for (const round of [1, 2, 3, 4]) {
        app.clock.advance(DAY);
        const reads = Array.from({ length: 50 }, () => seen(app, cookie));
        const refreshed = Array.from({ length: 3 }, () => refresh(app, cookie));
        const next = (await Promise.all(refreshed)).map(cookieIn);
        t.equal(new Set(next).size, 1);
        t.notOk((await Promise.all(reads)).includes(null), `round ${round}`);
        cookie = next[0] ?? '';
        t.ok(await seen(app, cookie));
      }
      app.clock.advance(DAY);
      const ended = app.post(
        '/auth/logout',
        { scope: 'global' },
        { token: (await tokenOf(app, cookie)).body.data.accessToken },
      );
      await Promise.all([ended, ...Array.from({ length: 20 }, () => seen(app, cookie))]);
      t.equal(await seen(app, cookie), null, 'a use beside the logout does not bring the session back');

      const other = await signUp(app, 'eve@example.test');
      const { sid: id } = claimsOf(other.accessToken);
      app.clock.advance(DAY);
      await Promise.all([
        app.request('POST', '/api/auth/logout', { body: {}, ...withCookie(other.cookie) }),
        ...Array.from({ length: 20 }, () => seen(app, other.cookie)),
      ]);
      t.equal(await seen(app, other.cookie), null);
      t.ok((await sessions.findOne({ id }))?.revokedAt);
    },
  );

  t.test(
    `${engine}: a session that ends at one process is over at the next request to another`,
    async (t) => {
      const { urls } = await startAll(t, { databaseUri: fresh(t) });
      const [url = ''] = urls;
      const call = (at: string, method: string, path: string, cookie: string, body?: object) =>
        fetch(`${at}/api/auth/${path}`, {
          method,
          headers: {
            ...MODE,
            cookie: `saas-session=${cookie}`,
            ...(body && { 'content-type': 'application/json' }),
          },
          ...(body && { body: JSON.stringify(body) }),
        });
      const registered = await call(url, 'POST', 'register', '', {
        email: 'ada@example.test',
        password: PASSWORD,
      });
      const value = (response: Response) =>
        /saas-session=([^;]*)/.exec(response.headers.get('set-cookie') ?? '')?.[1];
      const first = value(registered) ?? '';
      const sessionsOf = (cookie: string) =>
        spread(urls, 48, async (at, index) => {
          if (index % 12 === 0) await call(at, 'POST', 'refresh', cookie, {});
          const { data } = (await (await call(at, 'GET', 'session', cookie)).json()) as {
            data: { session: object | null };
          };
          return data.session;
        });
      t.notOk((await sessionsOf(first)).includes(null), 'refreshes in between');
      const current = value(await call(url, 'POST', 'refresh', first, {})) ?? '';
      t.notOk((await sessionsOf(current)).includes(null));
      await call(url, 'POST', 'logout', current, {});
      t.same(new Set(await sessionsOf(current)), new Set([null]));
    },
  );
});
