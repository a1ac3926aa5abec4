import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import express, { type Express } from 'express';
import t, { type Test } from 'tap';
import { type CreateServerOptions, createServer, type MiddlewareServer } from '../../src/index.js';
import { type Answer, basic, PASSWORD, parseJson, SECRETS, testOptions } from '../kit/app.js';
import { listen } from '../kit/listener.js';
import { signWebhook } from '../kit/sign-webhook.js';
import { temporaryFolder } from '../kit/tmp.js';

function mountable(t: Test, more: CreateServerOptions = {}): MiddlewareServer {
  const server = createServer({ ...testOptions(temporaryFolder(t)), ...more, middleware: true });
  t.teardown(() => server.stop());
  return server;
}

/** POST if there is a body, otherwise GET. */
async function call(
  url: string,
  body?: object | string,
  headers: Record<string, string> = {},
): Promise<{ status: number; headers: Headers; text: string; body: Answer['body'] }> {
  const payload = typeof body === 'object' ? JSON.stringify(body) : body;
  const response = await fetch(url, {
    ...(payload !== undefined && { method: 'POST', body: payload }),
    headers: { ...(payload !== undefined && { 'content-type': 'application/json' }), ...headers },
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, body: parseJson(text) };
}

/** An Express application around our middleware; requests that fall through are answered with a description. */
function express5(mount: (app: Express) => void): Express {
  const app = express();
  mount(app);
  app.post(/.*/, async (request, response) => {
    const body = request.body ?? (await request.toArray()).join('');
    response.status(202).json({ originalUrl: request.originalUrl, url: request.url, body });
  });
  app.use((request, response) => void response.status(404).send(`host 404 ${request.originalUrl}`));
  return app;
}

const event = JSON.stringify({ type: 'x', data: { object: { id: 'o' } } });
const signed = () => ({ 'payment-signature': signWebhook(event, SECRETS.paymentWebhookSecret, Date.now()) });

/** One request of each kind to a mounted backend. */
async function drive(t: Test, base: string, api: string, admin: string): Promise<void> {
  const person = { email: 'ada@example.test', password: PASSWORD };
  t.equal((await call(`${base}${api}/auth/register`, person)).status, 201);
  const login = await call(`${base}${api}/auth/login?x=1`, person);
  t.equal(login.status, 200);
  const authorization = `Bearer ${login.body.data.accessToken}`;
  const me = await call(`${base}${api}/auth/me`, undefined, { authorization });
  t.equal(me.body.data.user.email, person.email);
  t.equal((await call(`${base}${api}/auth/login`, { email: [person.email] })).status, 400);
  t.equal((await call(`${base}${api}/auth/login`, { ...person, x: 'x'.repeat(16 * 1024) })).status, 413);
  for (const query of ['', '?page=1']) t.equal((await call(`${base}${admin}${query}`)).status, 401);
  const overview = await call(`${base}${admin}`, undefined, { authorization: basic() });
  t.match(overview.text, '<!doctype html>');
  t.equal((await call(`${base}${api}/health`)).status, 200);
}

t.test('the middleware serves all routes in Express 5', async (t) => {
  const mounts: [string, (app: Express, server: MiddlewareServer) => void, api: string, admin: string][] = [
    ['at its root', (app, { middleware }) => app.use(middleware), '/api', '/admin'],
    [
      'under a prefix',
      (app, { middleware }) => app.use('/my/prefix', middleware),
      '/my/prefix',
      '/my/prefix/admin',
    ],
    ['under our own prefix', (app, { middleware }) => app.use('/api', middleware), '/api', '/api/admin'],
    [
      'under both of our paths',
      (app, { middleware }) => app.use(['/api', '/admin'], middleware),
      '/api',
      '/admin',
    ],
    [
      'in a router in a router',
      (app, { middleware }) => app.use('/my', express.Router().use('/prefix', middleware)),
      '/my/prefix',
      '/my/prefix/admin',
    ],
  ];
  for (const [name, mount, api, admin] of mounts) {
    for (const parsing of [false, true]) {
      await t.test(`${name}, ${parsing ? 'after' : 'without'} express.json()`, async (t) => {
        const server = mountable(t);
        const verify = (request: object, _: object, rawBody: Buffer) =>
          void Object.assign(request, { rawBody });
        const app = express5((app) => {
          if (parsing) app.use(express.json({ verify }));
          mount(app, server);
        });
        const base = await listen(t, app);
        await drive(t, base, api, admin);
        t.equal((await call(`${base}${api}/billing/webhook`, event, signed())).status, 200);

        // Of the last one, the backend has a GET.
        for (const path of [
          `${api}/nothing`,
          `${admin}/nothing`,
          '/elsewhere',
          '/apis/x',
          `${api}/auth/me`,
        ]) {
          const passed = await call(`${base}${path}?x=1`, { kept: true });
          t.equal(passed.status, 202, `${path} falls through`);
          const body = parsing ? { kept: true } : '{"kept":true}';
          t.strictSame(passed.body, { originalUrl: `${path}?x=1`, url: `${path}?x=1`, body });
          t.equal(passed.headers.get('x-request-id'), null);
        }
        t.equal((await call(`${base}/elsewhere`)).text, 'host 404 /elsewhere');
      });
    }
  }
});

t.test('the middleware serves its own prefix in a host that does not strip it', async (t) => {
  const server = mountable(t, { prefix: '/my/prefix', adminPath: '/my/admin', accountPages: true });
  const base = await listen(
    t,
    express5((app) => app.use(server.middleware)),
  );
  await drive(t, base, '/my/prefix', '/my/admin');
  t.equal((await call(`${base}/api/auth/me`)).text, 'host 404 /api/auth/me');
  const change = await fetch(`${base}/.well-known/change-password`, { redirect: 'manual' });
  t.match([change.status, change.headers.get('location')], [302, '/account/password']);
});

t.test(
  'a webhook whose raw body the host discarded is a server error, not an invalid signature',
  async (t) => {
    const server = mountable(t);
    const base = await listen(
      t,
      express5((app) => app.use(express.json()).use(server.middleware)),
    );
    const answer = await call(`${base}/api/billing/webhook`, event, signed());
    t.equal(answer.status, 500);
    t.equal(answer.body.error.code, 'INTERNAL');
    t.notMatch(answer.text, /express|rawBody/);
  },
);

t.test('an empty req.body on an unread request is ignored', async (t) => {
  const server = mountable(t);
  // The parsers of Express 4 leave this for bodies that they do not read.
  const leaveEmpty = (request: express.Request, _: unknown, next: () => void) => {
    request.body = {};
    next();
  };
  const base = await listen(
    t,
    express5((app) => app.use(leaveEmpty).use(server.middleware)),
  );
  t.equal((await call(`${base}/api/billing/webhook`, event, signed())).status, 200);
});

t.test('the middleware serves all routes in a bare node:http server', async (t) => {
  const server = mountable(t);
  const base = await listen(t, (request, response) =>
    server.middleware(request, response, () => response.writeHead(404).end(`host 404 ${request.url}`)),
  );
  await drive(t, base, '/api', '/admin');
  t.equal((await call(`${base}/api/billing/webhook`, event, signed())).status, 200);
  t.equal((await call(`${base}/api/nothing`)).text, 'host 404 /api/nothing');
  t.equal((await call(`${base}/`)).text, 'host 404 /');
  // The host's own server validates the Host header.
  const [answer] = await once(get(`${base}/api/nothing`, { headers: { host: 'a b' } }), 'response');
  t.equal((await (answer as IncomingMessage).toArray()).join(''), 'host 404 /api/nothing');

  const alone = mountable(t, { prefix: '/v1' });
  const second = await listen(t, (request, response) => alone.middleware(request, response));
  await drive(t, second, '/v1', '/admin');
  t.equal((await call(`${second}/elsewhere`)).status, 404, 'without a next');
  t.equal((await call(`${second}/v1/nothing`)).status, 404);
});

t.test('stop does not stop the host, and a failed start reaches it as an error', async (t) => {
  const server = mountable(t);
  const base = await listen(
    t,
    express5((app) => app.use(server.middleware)),
  );
  t.equal((await call(`${base}/api/health`)).status, 200);
  await server.stop();
  t.equal((await call(`${base}/elsewhere`)).text, 'host 404 /elsewhere');

  const broken = mountable(t, { databaseUri: `sqlite:${temporaryFolder(t)}` });
  const errors: unknown[] = [];
  const host = await listen(t, (request, response) =>
    broken.middleware(request, response, (error) => {
      errors.push(error);
      response.writeHead(500).end();
    }),
  );
  t.equal((await call(`${host}/api/health`)).status, 500);
  t.match(errors, [{ name: 'StoreUnavailable' }]);
});
