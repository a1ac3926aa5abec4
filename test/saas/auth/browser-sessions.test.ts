import type { RequestListener } from 'node:http';
import type { Page } from 'playwright-core';
import t from 'tap';
import { createServer } from '../../../src/saas/server.js';
import { serveElsewhere } from '../../browser/kit.js';
import { errorOf, PASSWORD, type SaasApp, saasApp, testOptions } from '../../kit/app.js';
import { onChromium } from '../../kit/chromium.js';
import { collectRoutes } from '../../kit/fuzz/engine.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';

/** Sessions whose refresh token is in a cookie. */

const MODE = { 'session-mode': 'cookie' };
const OWN = 'http://app.example.test';
const NAMED = 'https://spa.example.test';
const EMAIL = 'ada@example.test';

/** The value of the session cookie in a response; `''` if the response removes it. */
function cookieIn({ headers }: { headers: Record<string, unknown> }): string | undefined {
  return /saas-session=([^;]*)/.exec(String(headers['set-cookie'] ?? ''))?.[1];
}

const withCookie = (value: string, more = {}) => ({ ...MODE, cookie: `saas-session=${value}`, ...more });

const register = (app: SaasApp, headers: Record<string, string> = MODE, email = EMAIL) =>
  app.request('POST', '/api/auth/register', { body: { email, password: PASSWORD }, headers });

const refresh = (app: SaasApp, headers: Record<string, string>, body: object = {}) =>
  app.request('POST', '/api/auth/refresh', { body, headers });

t.test('a client that asks for a cookie gets the refresh token in no other place', async (t) => {
  for (const [publicUrl, name, secure] of [
    [OWN, 'saas-session', ''],
    ['https://app.example.test', '__Host-saas-session', ' Secure;'],
  ] as const) {
    const app = await saasApp(t, { publicUrl });
    const registered = await register(app);
    t.equal(registered.status, 201);
    const { user, accessToken, expiresIn } = registered.body.data;
    t.strictSame(registered.body.data, { user, accessToken, expiresIn });
    const value = cookieIn(registered) ?? '';
    t.match(value, /^[\w-]+\.[\w-]+\.[\w-]+$/);
    const mark = name.replace('session', 'signed-in');
    t.strictSame([registered.headers['set-cookie']].flat(), [
      `${name}=${value}; Max-Age=2592000; Path=/; HttpOnly;${secure} SameSite=Lax`,
      // Scripts can read that there is a session, and nothing else.
      `${mark}=1; Max-Age=2592000; Path=/;${secure} SameSite=Lax`,
    ]);
    t.equal(registered.text.includes(value), false);

    const refreshed = await app.request('POST', '/api/auth/refresh', {
      headers: { ...MODE, cookie: `${name}=${value}` },
    });
    t.equal(refreshed.status, 200);
    t.equal(refreshed.body.data.refreshToken, undefined);
    t.match(String(refreshed.headers['set-cookie']), new RegExp(`^${name}=[\\w.-]+;`));
    t.equal(await app.me(refreshed.body.data), 200);
  }
});

t.test('every route that returns a refresh token can keep it in a cookie', async (t) => {
  const server = createServer({
    ...testOptions(temporaryFolder(t)),
    random: countedRandom(),
    factorEncryptionKey: 'factors-Wq8ZsT1mXe6YbN0cRj4HuPd9',
    login: { acme: { issuer: 'https://id.example.test', clientId: 'saas', clientSecret: 'secret-of-saas' } },
    emailLogin: true,
  });
  t.teardown(() => server.stop());
  const routes = collectRoutes(server.fastify);
  await server.fastify.ready();
  const issuing = routes.filter(({ schema }) =>
    JSON.stringify(schema?.response ?? {}).includes('"refreshToken"'),
  );
  t.ok(issuing.length >= 7, issuing.map(({ url }) => url).join(' '));
  for (const { method, url } of issuing) {
    const { statusCode, body } = await server.fastify.inject({
      method: method as 'POST',
      url,
      headers: { ...MODE, origin: 'https://evil.example.test', 'content-type': 'application/json' },
      payload: '{}',
    });
    // A route for users asks for their access token first, which a page of another origin does not have.
    const refusals = [
      [401, 'UNAUTHENTICATED'],
      [403, 'ORIGIN_NOT_ALLOWED'],
    ] as const;
    t.ok(
      refusals.some(([status, code]) => statusCode === status && body.includes(code)),
      url,
    );
  }
});

t.test('a client that does not ask is not affected by a cookie', async (t) => {
  const app = await saasApp(t);
  const value = cookieIn(await register(app)) ?? '';
  const { 'session-mode': _, ...headers } = withCookie(value);
  t.equal((await refresh(app, headers)).status, 400, 'the body must contain the token');
  t.equal((await app.request('POST', '/api/auth/logout', { headers })).status, 401);
  const login = await app.post('/auth/login', { email: EMAIL, password: PASSWORD }, { headers });
  t.match(login.body.data.refreshToken, /^[\w.-]+$/);
  t.equal(login.headers['set-cookie'], undefined);
  t.equal((await refresh(app, withCookie(value))).status, 200, 'the session is still valid');
  t.equal((await refresh(app, { 'session-mode': 'Cookie' })).body.error.code, 'VALIDATION_ERROR');
});

t.test('an application can move its session into a cookie', async (t) => {
  const app = await saasApp(t);
  const { refreshToken } = await app.signUp();
  const moved = await refresh(app, MODE, { refreshToken });
  t.equal(moved.status, 200);
  t.equal(moved.body.data.refreshToken, undefined);
  t.equal((await refresh(app, withCookie(cookieIn(moved) ?? ''))).status, 200);
});

t.test('logout ends the session of the cookie and removes the cookie', async (t) => {
  const app = await saasApp(t);
  const logout = (headers: Record<string, string>, body: object = {}) =>
    app.request('POST', '/api/auth/logout', { body, headers });
  const registered = await register(app);
  const value = cookieIn(registered) ?? '';
  const others = await logout(withCookie(value), { scope: 'others' });
  t.match([others.status, cookieIn(others)], [200, undefined], 'the session goes on');
  const ended = await logout(withCookie(value));
  t.match([ended.status, cookieIn(ended)], [200, '']);
  const cleared = [ended.headers['set-cookie']].flat();
  t.match(cleared, [/^saas-session=; Max-Age=0;/, /^saas-signed-in=; Max-Age=0;.*Expires=Thu, 01 Jan 1970/]);
  t.equal(await app.me(registered.body.data), 401);
  t.equal(errorOf(await refresh(app, MODE)), 'INVALID_REFRESH_TOKEN');
  const refused = await logout(MODE);
  t.match([refused.status, refused.headers['set-cookie']], [401, undefined]);
});

t.test('a new sign-in ends the session that its cookie replaces', async (t) => {
  const app = await saasApp(t);
  const before = await register(app);
  const value = cookieIn(before) ?? '';
  const login = (cookie: string, password = PASSWORD) =>
    app.post('/auth/login', { email: EMAIL, password }, { headers: withCookie(cookie) });
  const wrong = await login(value, 'wrong horse battery staple');
  t.match([wrong.status, wrong.headers['set-cookie']], [401, undefined]);
  t.equal(await app.me(before.body.data), 200, 'a failed one does not');
  const after = await login(value);
  t.equal(after.status, 200);
  await waitUntil('the replaced session has ended', async () => (await app.me(before.body.data)) === 401);
  t.equal(await app.me(after.body.data), 200);
  t.equal((await login('x')).status, 200, 'garbage');
});

t.test('pages of other origins cannot use the cookie, unless they are named', async (t) => {
  const app = await saasApp(t, { corsOrigin: [NAMED] });
  const open = await saasApp(t, { corsOrigin: ['*'] });
  let value = cookieIn(await register(app)) ?? '';
  const refused: Record<string, string>[] = [
    { origin: 'https://evil.example.test' },
    { origin: 'null' },
    { origin: 'https://evil.example.test', 'sec-fetch-site': 'cross-site' },
    { origin: 'http://other.example.test', 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
  ];
  for (const headers of refused) {
    const name = JSON.stringify(headers);
    const answer = await refresh(app, withCookie(value, headers));
    t.match([answer.status, answer.body.error.code], [403, 'ORIGIN_NOT_ALLOWED'], name);
    t.equal(answer.headers['set-cookie'], undefined, name);
    const login = await register(app, { ...MODE, ...headers }, 'eve@example.test');
    t.match([login.status, login.headers['set-cookie']], [403, undefined], `login ${name}`);
    const logout = await app.request('POST', '/api/auth/logout', { headers: withCookie(value, headers) });
    t.equal(logout.status, 403, `logout ${name}`);
  }
  const anywhere = await register(open, { ...MODE, origin: NAMED });
  t.equal(anywhere.body.error.code, 'ORIGIN_NOT_ALLOWED', 'an API for any origin names none');
  for (const headers of [
    {},
    { origin: OWN },
    { origin: NAMED, 'sec-fetch-site': 'cross-site' },
    { origin: 'http://localhost:3000', 'sec-fetch-site': 'same-origin' },
    { 'sec-fetch-site': 'none' },
  ]) {
    const answer = await refresh(app, withCookie(value, headers));
    t.equal(answer.status, 200, JSON.stringify(headers));
    value = cookieIn(answer) ?? '';
  }
});

/** Sends a request with the header and credentials from a page: the status and body, or the error of the browser. */
const send = (page: Page, to: string, content: object = {}): Promise<unknown> =>
  page.evaluate(request, [to, content] as [string, object]);

const request = async ([url, body]: [string, object]): Promise<unknown> => {
  try {
    const response = await fetch(url, {
      method: 'POST',
      credentials: 'include',
      headers: { 'content-type': 'application/json', 'session-mode': 'cookie' },
      body: JSON.stringify(body),
    });
    return { status: response.status, body: await response.json() };
  } catch (error) {
    return String(error);
  }
};

await onChromium((browser) => {
  t.test('a browser keeps the session in a cookie that no page can read or misuse', async (t) => {
    // The ports of a host are one site, so the browser sends the cookie with requests of the other origins, too.
    const empty: RequestListener = (_, response) =>
      response.setHeader('content-type', 'text/html').end('<!doctype html><title>Page</title>');
    const [named, other] = await Promise.all([serveElsewhere(t, empty), serveElsewhere(t, empty)]);
    const namedOrigin = named.url.replace('127.0.0.1', 'localhost');
    const { publicUrl: _, ...options } = testOptions(temporaryFolder(t));
    const server = createServer({ ...options, random: countedRandom(), corsOrigin: [namedOrigin] });
    t.teardown(() => server.stop());
    server.fastify.get('/', (_, reply) =>
      reply.type('text/html').send('<!doctype html><title>Application</title>'),
    );
    const { port } = await server.start();
    const origin = `http://localhost:${port}`;
    const api = `${origin}/api/auth`;
    const context = await browser.newContext();
    t.teardown(() => context.close());
    const page = await context.newPage();
    await page.goto(origin);
    const registered = await send(page, `${api}/register`, { email: EMAIL, password: PASSWORD });
    t.match(registered, { status: 201, body: { data: { refreshToken: undefined } } });
    t.equal(await page.evaluate('document.cookie'), 'saas-signed-in=1', 'scripts cannot read it');
    t.match(await send(page, `${api}/refresh`), { status: 200 });
    const cookie = (await context.cookies()).find(({ name }) => name === 'saas-session');
    t.match(cookie, { httpOnly: true, sameSite: 'Lax' });

    // A page of another origin of the same site.
    const attack = await context.newPage();
    await attack.goto(other.url.replace('127.0.0.1', 'localhost'));
    t.match(await send(attack, `${api}/refresh`), /Failed to fetch/, 'the preflight fails');
    await attack.evaluate(
      (url) =>
        fetch(url, { method: 'POST', mode: 'no-cors', credentials: 'include', body: '{}' }).catch(
          () => undefined,
        ),
      `${api}/logout`,
    );
    t.match(await send(page, `${api}/refresh`), { status: 200 }, 'the session goes on');

    // An origin that the operator has named.
    const application = await context.newPage();
    await application.goto(namedOrigin);
    t.match(await send(application, `${api}/refresh`), { status: 200 });
    t.match(await send(application, `${api}/logout`), { status: 200 });
    t.same(await context.cookies(), [], 'the cookie is removed');
  });
});
