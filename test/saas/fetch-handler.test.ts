import { createServer as createHttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { Hono } from 'hono';
import { SaasError } from 'saas-backend/client';
import t, { type Test } from 'tap';
import { createFetchHandler, type FetchHandlerOptions } from '../../src/saas/fetch-handler.js';
import { connectBackend } from '../../src/server/index.js';
import { PASSWORD, SECRETS, saasApp, testOptions } from '../kit/app.js';
import { temporaryFolder } from '../kit/tmp.js';

/** The backend as a function of requests, and the sessions of visitors on a server. */

const OWN = 'http://app.example.test';
const EMAIL = 'ada@example.test';
const VISITOR = '203.0.113.7';

function handlerFor(t: Test, options: FetchHandlerOptions = {}) {
  const { host, port, ...given } = testOptions(temporaryFolder(t));
  const handler = createFetchHandler({ ...given, ...options });
  t.teardown(() => handler.stop());
  return handler;
}

type Handler = ReturnType<typeof handlerFor>;

const post = (path: string, body: object, headers: Record<string, string> = {}) =>
  new Request(`${OWN}/api${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'session-mode': 'cookie', origin: OWN, ...headers },
    body: JSON.stringify(body),
  });

/** The cookies that a browser sends after a response. */
const cookiesOf = (headers: Headers): string =>
  headers
    .getSetCookie()
    .map((line) => line.split(';')[0])
    .join('; ');

async function signUp(handler: Handler, email = EMAIL): Promise<string> {
  const response = await handler(post('/auth/register', { email, password: PASSWORD }));
  if (response.status !== 201) throw new Error(await response.text());
  return cookiesOf(response.headers);
}

t.test('a page on the server reads who is signed in, and calls the API for the visitor', async (t) => {
  const handler = handlerFor(t);
  const cookie = await signUp(handler);
  const visit = new Request(OWN, { headers: { cookie: `theme=dark; ${cookie}` } });
  for (const given of [visit, visit.headers, { cookie }, { headers: { Cookie: cookie } }])
    t.equal((await handler.getSession(given))?.user.email, EMAIL);
  t.equal(await handler.getSession(new Request(OWN)), null);
  t.equal(await handler.getAccessToken(new Headers()), null);
  t.equal(await handler.getSession({ cookie: 'saas-session=garbage' }), null);

  const token = (await handler.getAccessToken(visit)) ?? '';
  const bearer = { authorization: `Bearer ${token}` };
  t.equal((await handler.getSession(bearer))?.user.email, EMAIL);
  t.equal(await handler.getAccessToken(bearer), token);
  t.equal((await handler.client(bearer).auth.getCurrentUser()).user.email, EMAIL);
  t.equal(await handler.getSession({ authorization: `Bearer ${token}x` }), null);

  const client = handler.client(visit);
  t.equal((await client.user.updateProfile({ name: 'Ada' })).name, 'Ada');
  t.equal((await handler.getSession(visit))?.user.name, 'Ada');
  const many = await Promise.all(Array.from({ length: 30 }, () => handler.client(visit).user.getProfile()));
  t.equal(many.length, 30);
  const foreign = { cookie, origin: 'https://evil.example.test' };
  await t.rejects(handler.getSession(foreign), { code: 'ORIGIN_NOT_ALLOWED' }, 'a form of another site');

  const responseHeaders = new Headers();
  await handler.client(visit, { responseHeaders }).auth.logout();
  t.match(responseHeaders.getSetCookie()[0], /saas-session=;/);
  t.equal(await handler.getSession(visit), null);
  const signedIn = { responseHeaders: new Headers() };
  await handler.client({}, signedIn).auth.login({ email: EMAIL, password: PASSWORD });
  const { responseHeaders: given } = signedIn;
  t.equal((await handler.getSession({ cookie: cookiesOf(given) }))?.user.email, EMAIL);
});

t.test('responses are those of the server', async (t) => {
  const handler = handlerFor(t, { accountPages: true });
  const get = (path: string, init?: RequestInit) => handler(new Request(OWN + path, init));
  t.equal((await get('/api/health')).status, 200);
  const head = await get('/api/health', { method: 'HEAD' });
  t.strictSame([head.status, await head.text()], [200, '']);
  const page = await get('/account', { headers: { accept: 'text/html' }, redirect: 'manual' });
  t.match(page.headers.get('content-type'), /html/);
  const well = await get('/.well-known/change-password', { redirect: 'manual' });
  t.strictSame([well.status, well.headers.get('location')], [302, '/account/password']);
  for (const path of ['/', '/health', '/apis', '/notes', '/accounts']) t.equal((await get(path)).status, 404);
  const large = await handler(post('/auth/login', { email: EMAIL, password: 'x'.repeat(20_000) }));
  t.equal(large.status, 413);
  const malformed = await handler(
    new Request(`${OWN}/api/auth/login`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{',
    }),
  );
  t.equal(malformed.status, 400);
  t.match(await malformed.json(), { error: { code: 'INVALID_JSON' } });

  const cookie = await signUp(handler);
  const exported = await handler.client({ cookie }).fetch('/api/user/export');
  t.equal(exported.status, 200);
  t.equal(((await exported.json()) as { data: { user: { email: string } } }).data.user.email, EMAIL);
  t.equal(exported.headers.get('transfer-encoding'), null);

  const aborted = AbortSignal.abort(new Error('left'));
  await t.rejects(get('/api/health', { signal: aborted }));
  t.equal((await get('/api/health')).status, 200);
});

t.test('it starts with the first request, once in a process', async (t) => {
  const broken = createFetchHandler({ env: { NODE_ENV: 'production' }, prefix: '/broken' });
  await t.rejects(
    broken(new Request(`${OWN}/broken/health`)),
    /JWT_ACCESS_SECRET/,
    'the configuration is read then',
  );

  const { host, port, ...options } = testOptions(temporaryFolder(t));
  const [one, other] = [createFetchHandler(options), createFetchHandler(options)];
  const cookie = await signUp(one);
  t.equal((await other.getSession({ cookie }))?.user.email, EMAIL);
  await one.stop();
  t.equal((await one(new Request(`${OWN}/api/health`))).status, 503);
  await other.stop();
});

t.test('without an address, development answers and production says what to do', async (t) => {
  const production = {
    env: { NODE_ENV: 'production' },
    publicUrl: 'https://app.example.test',
    adminPassword: SECRETS.adminPassword,
  } as const;
  const health = () => new Request('https://app.example.test/api/settings/public');
  const unknown = handlerFor(t, production);
  await t.rejects(unknown(health()), /TRUST_PROXY/);
  const forged = new Request(health(), { headers: { 'x-forwarded-for': VISITOR } });
  await t.rejects(
    unknown(forged),
    /TRUST_PROXY/,
    'without a proxy that is trusted, anybody could have sent it',
  );
  t.equal((await unknown(health(), { address: VISITOR })).status, 200);
  await t.rejects(unknown(health(), { address: 'unknown' }), /TRUST_PROXY/);
});

t.test('limits count the visitor: the last address that the proxy has appended', async (t) => {
  const handler = handlerFor(t, { trustProxy: ['10.0.0.1'], limits: true, maxRequestsPerMinute: 20 });
  const wrong = (forwarded: string, index = 0) =>
    handler(
      post(
        '/auth/register',
        { email: `n${forwarded.length}-${index}@x.test`, password: 'x' },
        { 'x-forwarded-for': forwarded },
      ),
    );
  const statuses = async (forwarded: (index: number) => string) =>
    new Set(
      (await Promise.all(Array.from({ length: 40 }, (_, index) => wrong(forwarded(index), index)))).map(
        ({ status }) => status,
      ),
    );
  t.ok((await statuses((index) => `198.51.100.${index}, ${VISITOR}`)).has(429), 'a client cannot choose it');
  t.notOk((await statuses((index) => `198.51.100.${index}, 10.0.0.1`)).has(429), 'behind two proxies');
});

t.test('it serves node:http through a plain adapter', async (t) => {
  const handler = handlerFor(t);
  const server = createHttpServer(async (request, response) => {
    const { method = 'GET', url = '/', headers, socket } = request;
    const hasBody = method !== 'GET' && method !== 'HEAD';
    const answer = await handler(
      new Request(new URL(url, OWN), {
        ...{ method, headers: headers as Record<string, string>, duplex: 'half' },
        ...(hasBody && { body: Readable.toWeb(request) as ReadableStream }),
      }),
      { address: socket.remoteAddress },
    );
    response.writeHead(answer.status, [...answer.headers].flat());
    if (answer.body) Readable.fromWeb(answer.body as never).pipe(response);
    else response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const registered = await fetch(`${url}/api/auth/register`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'session-mode': 'cookie' },
    body: JSON.stringify({ email: EMAIL, password: PASSWORD }),
  });
  t.equal(registered.status, 201);
  const cookie = cookiesOf(registered.headers);
  const read = await fetch(`${url}/api/auth/session`, { headers: { cookie, 'session-mode': 'cookie' } });
  t.match(await read.json(), { data: { session: { user: { email: EMAIL } } } });
});

t.test('it serves Hono', async (t) => {
  const handler = handlerFor(t);
  const app = new Hono();
  app.all('/api/*', (context) => handler(context.req.raw));
  app.get('/me', async (context) => context.json((await handler.getSession(context.req.raw))?.user ?? null));
  const registered = await app.fetch(post('/auth/register', { email: EMAIL, password: PASSWORD }));
  const visit = (cookie = '') => app.fetch(new Request(`${OWN}/me`, { headers: { cookie } }));
  t.match(await (await visit(cookiesOf(registered.headers))).json(), { email: EMAIL });
  t.equal(await (await visit()).json(), null);
});

t.test('a server in another process has the same sessions, and passes the address of visitors', async (t) => {
  const callerSecret = 'callers-Rw8Zs1mXe6YbN0cRj4HuPd9fQk';
  const app = await saasApp(t, { callerSecret, limits: true });
  const url = await app.listen();
  const registered = await fetch(`${url}/api/auth/register`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'session-mode': 'cookie' },
    body: JSON.stringify({ email: EMAIL, password: PASSWORD }),
  });
  const cookie = cookiesOf(registered.headers);
  const seen: Headers[] = [];
  const observe: typeof fetch = (input, init) => {
    seen.push(new Headers(init?.headers));
    return fetch(input, init);
  };
  const backend = connectBackend({ baseUrl: `${url}/api`, callerSecret, fetch: observe });
  t.equal(await backend.getSession(new Headers({ cookie: 'theme=dark' })), null);
  t.equal(seen.length, 0, 'nobody who is signed in, no request');
  const visit = { cookie: `theme=dark; ${cookie}`, 'x-forwarded-for': `198.51.100.1, ${VISITOR}` };
  t.equal((await backend.getSession(visit))?.user.email, EMAIL);
  t.match(seen[0]?.get('cookie'), /^saas-session=[^;]+$/, 'no other cookie of the application');
  t.equal(seen[0]?.get('x-end-user-ip'), VISITOR);
  const [session] = (await backend.client(visit, { address: '198.51.100.9' }).auth.listSessions()).sessions;
  t.equal(session?.current, true);
  await t.rejects(
    backend.getSession({ cookie }),
    { cause: { message: /X-Forwarded-For/ } },
    'all visitors would have one address',
  );
  await t.rejects(
    connectBackend({ baseUrl: `${url}/api`, callerSecret: `${callerSecret}x` }).getSession(visit),
    { code: 'VALIDATION_ERROR' },
  );
  t.equal((await connectBackend({ baseUrl: `${url}/api/` }).getSession({ cookie }))?.user.email, EMAIL);
  await app.close();
  await t.rejects(backend.getSession(visit), SaasError, 'an outage is not a visitor');
});
