import { once } from 'node:events';
import {
  Agent,
  createServer as createHttpServer,
  type Server as HttpServer,
  type IncomingMessage,
  type RequestListener,
  request,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import compression from 'compression';
import connect from 'connect';
import express from 'express';
import t, { type Test } from 'tap';
import { WebSocket, WebSocketServer } from 'ws';
import { createIdentityServer, createServer, type Middleware } from '../../src/index.js';
import { basic, PASSWORD, SECRETS, testOptions } from '../kit/app.js';
import { ADMIN_TOKEN, authorizePath, CALLBACK, codeIn, idpOptions, redemption } from '../kit/idp.js';
import { mailSink, readMail } from '../kit/mail.js';
import { signWebhook } from '../kit/sign-webhook.js';
import { temporaryFolder } from '../kit/tmp.js';

/** Other handlers in the chain and on the connections of a host that mounts our middleware. */

type Handler = connect.NextHandleFunction;

const json = { 'content-type': 'application/json' };

/** Both servers, for one chain. */
function both(t: Test) {
  const saas = createServer({ ...testOptions(temporaryFolder(t)), middleware: true });
  const idp = createIdentityServer({ ...idpOptions(temporaryFolder(t)), middleware: true });
  t.teardown(() => Promise.all([saas.stop(), idp.stop()]));
  return { saas, idp, middleware: [saas.middleware, idp.middleware] };
}

async function listen(t: Test, listener: RequestListener): Promise<{ url: string; server: HttpServer }> {
  const server = createHttpServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}

/** A route of the host behind our middleware: describes the request that it received, in a streamed answer. */
const echo: Handler = (request, response) => {
  if (request.url === '/api/bye') response.setHeader('Connection', 'close');
  response.writeHead(202, { 'x-url': request.url });
  const { body } = request as { body?: unknown };
  if (body === undefined) request.pipe(response);
  else response.end(typeof body === 'object' && !Buffer.isBuffer(body) ? JSON.stringify(body) : body);
};

/** A chain of handlers without a framework. */
function bare(handlers: Handler[]): RequestListener {
  return (request, response) => {
    const run = (index: number): void => handlers[index]?.(request, response, () => run(index + 1));
    run(0);
  };
}

const FRAMEWORKS: Record<string, (handlers: Handler[]) => RequestListener> = {
  Express: (handlers) => express().use(...handlers),
  Connect: (handlers) => {
    const app = connect();
    for (const handler of handlers) app.use(handler);
    return app;
  },
  'node:http': bare,
};

const keep = (request: IncomingMessage, _: unknown, rawBody: Buffer) =>
  void Object.assign(request, { rawBody });

const PARSERS: Record<string, Handler[]> = {
  'no parser': [],
  'JSON and forms': [express.json({ verify: keep }), express.urlencoded({ extended: true })],
  texts: [express.text({ type: '*/*', verify: keep })],
  'raw bodies': [express.raw({ type: '*/*' })],
  // As parsers of Express 4 leave it for bodies that they do not read.
  'an empty body that is unread': [
    (request, _response, next) => {
      Object.assign(request, { body: {} });
      next();
    },
  ],
  'bytes kept beside no body': [
    async (request, _response, next) => {
      const bytes = Buffer.concat(await request.toArray());
      Object.assign(request, bytes.length > 0 && { rawBody: bytes });
      next();
    },
  ],
};

for (const [framework, chain] of Object.entries(FRAMEWORKS)) {
  for (const [name, parsers] of Object.entries(PARSERS)) {
    // Handlers are the same everywhere.
    if (framework !== 'Express' && !['no parser', 'JSON and forms'].includes(name)) continue;
    t.test(`both servers work in one chain of ${framework}, after compression and ${name}`, async (t) => {
      const { middleware } = both(t);
      const compress = compression({ threshold: 0 }) as Handler;
      const { url } = await listen(t, chain([compress, ...parsers, ...middleware, echo]));
      const post = (path: string, body: object | string, headers: Record<string, string> = json) =>
        fetch(url + path, {
          method: 'POST',
          headers,
          body: typeof body === 'string' ? body : JSON.stringify(body),
        });
      const fields = async (answer: Response) => (await answer.json()) as Record<string, string>;

      const person = { email: 'ada@example.test', password: PASSWORD };
      t.equal((await post('/api/auth/register', person)).status, 201);
      const login = await post('/api/auth/login', person);
      t.equal(login.status, 200);
      t.equal(login.headers.get('content-encoding'), 'gzip', 'the host compresses');
      t.match(await login.json(), { success: true });
      t.equal((await post('/api/auth/login', 'email=x', {})).status, 415);
      const event = JSON.stringify({ type: 'x', data: { object: { id: 'o' } }, note: 'é' });
      const signature = signWebhook(event, SECRETS.paymentWebhookSecret, Date.now());
      const webhook = await post('/api/billing/webhook', event, { ...json, 'payment-signature': signature });
      t.equal(webhook.status, 200, 'the bytes as they were signed');

      const admin = { ...json, authorization: `Bearer ${ADMIN_TOKEN}` };
      const made = await fields(await post('/v1/clients', { redirect_uris: [CALLBACK] }, admin));
      const client = {
        id: made['client_id'] ?? '',
        secret: made['client_secret'] ?? '',
        redirectUri: CALLBACK,
      };
      const agent = await fields(await post('/v1/agents', { handle: 'agent@example.test' }, admin));
      const authorization = basic(agent['handle'], agent['password']);
      const answer = await fetch(url + authorizePath(client), {
        headers: { authorization },
        redirect: 'manual',
      });
      const code = codeIn(answer.headers.get('location') ?? undefined);
      const form = { 'content-type': 'application/x-www-form-urlencoded' };
      const tokens = await fields(await post('/token', redemption(client, code), form));
      t.ok(tokens['id_token']);
      const jwks = await fetch(`${url}/jwks`);
      t.equal(jwks.headers.get('content-encoding'), 'gzip');
      t.match(await jwks.json(), { keys: [{ alg: 'EdDSA' }] });

      const host = await post('/mine?x=1', { kept: true });
      t.equal(host.status, 202);
      t.equal(host.headers.get('x-url'), '/mine?x=1');
      t.equal(host.headers.get('x-request-id'), null);
      if (!/no body|empty body/.test(name)) t.equal(await host.text(), '{"kept":true}');
    });
  }
}

t.test('a body that was read and discarded is a server error, not an endless wait', async (t) => {
  const { middleware } = both(t);
  const eat: Handler = async (request, _response, next) => {
    await request.toArray();
    next();
  };
  const { url } = await listen(t, bare([eat, ...middleware]));
  const post = (path: string) => fetch(url + path, { method: 'POST', headers: json, body: '{"handle":"x"}' });
  t.equal((await post('/api/auth/login')).status, 500);
  t.equal((await post('/token')).status, 500);
  t.equal((await fetch(`${url}/api/settings/public`)).status, 200);
  const kept = await listen(t, bare([express.json({ strict: false }), ...middleware]));
  const login = { method: 'POST', headers: json, body: 'null' };
  t.equal((await fetch(`${kept.url}/api/auth/login`, login)).status, 400, 'null is kept, and no object');
  const empty = { method: 'POST', headers: { ...json, 'content-length': '0' } };
  t.equal((await fetch(`${url}/api/auth/login`, empty)).status, 400);
  const signature = signWebhook('{"a":1}', SECRETS.paymentWebhookSecret, Date.now());
  const headers = { ...json, 'payment-signature': signature };
  const webhook = { method: 'POST', headers, body: '{"a":1}' };
  t.equal((await fetch(`${kept.url}/api/billing/webhook`, webhook)).status, 500, 'no invalid signature');
});

t.test('without a next handler, other paths are not found', async (t) => {
  const { saas } = both(t);
  const { url } = await listen(t, (request, response) => saas.middleware(request, response));
  t.equal((await fetch(`${url}/api/health`)).status, 200);
  t.equal((await fetch(`${url}/elsewhere`)).status, 404);
});

t.test('an empty body stays empty, whatever a parser sets', async (t) => {
  const { middleware } = both(t);
  const parsers: Record<string, Handler[]> = { ...PARSERS, 'JSON alone': [express.json()] };
  for (const [name, handlers] of Object.entries(parsers)) {
    const { url } = await listen(t, bare([...handlers, ...middleware]));
    const person = { email: `${name.replace(/\W/g, '-')}@example.test`, password: PASSWORD };
    const registered = await fetch(`${url}/api/auth/register`, {
      method: 'POST',
      headers: json,
      body: JSON.stringify(person),
    });
    const { data } = (await registered.json()) as { data: { accessToken: string } };
    const headers = { ...json, authorization: `Bearer ${data.accessToken}` };
    t.equal((await fetch(`${url}/api/auth/logout`, { method: 'POST', headers, body: '' })).status, 200, name);
  }
});

t.test(
  "the host's streams, connections and sockets keep working, even after the middleware stops",
  async (t) => {
    const { saas, idp, middleware } = both(t);
    const { url, server } = await listen(t, bare([...middleware, echo]));
    let connections = 0;
    server.on('connection', () => connections++);
    const sockets = new WebSocketServer({ server });
    sockets.on('connection', (socket) => socket.on('message', (data) => socket.send(data)));
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    t.teardown(() => agent.destroy());

    const get = async (path: string, method = 'GET', body?: string) => {
      const sent = request(url + path, { agent, method, ...(body && { headers: json }) }).end(body);
      const [response] = (await once(sent, 'response')) as [IncomingMessage];
      await text(response);
      return response;
    };
    const conversation = async (path: string) => {
      const sent = request(url + path, { agent, method: 'POST', headers: { expect: '100-continue' } });
      sent.flushHeaders();
      await once(sent, 'continue');
      sent.write('one');
      const [response] = (await once(sent, 'response')) as [IncomingMessage];
      t.equal(String(await once(response, 'data')), 'one', `${path} answers before the request has ended`);
      sent.end('two');
      t.equal(await text(response), 'two');
    };
    const say = async (socket: WebSocket, word: string) => {
      socket.send(word);
      t.equal(String((await once(socket, 'message'))[0]), word);
    };

    const open = await Promise.all(
      ['/live', '/api/live'].map(async (path) => {
        const socket = new WebSocket(url.replace('http', 'ws') + path);
        await once(socket, 'open');
        return socket;
      }),
    );
    t.teardown(() => open.forEach((socket) => void socket.terminate()));
    connections = 0;

    t.equal((await get('/api/health')).statusCode, 200);
    t.equal((await get('/jwks')).statusCode, 200);
    for (const path of ['/mine', '/api/mine', '/api/%zz']) await conversation(path);
    t.equal((await get('/api/auth/login', 'POST', '{}')).statusCode, 400);
    t.equal((await get('/jwks', 'PROPFIND')).statusCode, 202);
    t.equal(connections, 1, 'on one connection');
    for (const socket of open) await say(socket, 'before');

    await saas.stop();
    await idp.stop();
    for (const path of ['/mine', '/api/mine']) {
      await conversation(path);
      t.equal((await get(path)).headers.connection, 'keep-alive');
    }
    t.equal(connections, 1, 'on the same connection');
    for (const socket of open) await say(socket, 'after');
    t.equal((await get('/api/bye')).headers.connection, 'close', 'unless the host says so');
    t.equal((await get('/api/auth/me')).statusCode, 503);
    t.equal((await get('/jwks')).statusCode, 503);
  },
);

t.test('a request passed back to the host is logged only by the host', async (t) => {
  const options = { ...idpOptions(temporaryFolder(t)), logLevel: 'info', middleware: true } as const;
  const { fastify, middleware, stop } = createIdentityServer(options);
  t.teardown(stop);
  const lines: string[] = [];
  fastify.setChildLoggerFactory((logger, bindings, options) =>
    Object.assign(logger.child(bindings, options), {
      info: ({ req }: { req: { url: string } }) => void lines.push(req.url),
    }),
  );
  const { url } = await listen(t, bare([middleware, echo]));
  for (const path of ['/mine', '/%zz', '/jwks', '/v1/nothing']) await (await fetch(url + path)).text();
  t.same(lines, ['/jwks']);
});

t.test('links point to the mount path', async (t) => {
  const nested = (middleware: Middleware) => express.Router().use('/prefix', middleware);
  const mount: [string, string, admin: string, (middleware: Middleware) => RequestListener][] = [
    ['/api', '/api', '/admin', (middleware) => express().use(middleware, echo)],
    ['/api', '/api', '/api/admin', (middleware) => express().use('/api', middleware).use(echo)],
    [
      '/api',
      '/my/prefix',
      '/my/prefix/admin',
      (middleware) => express().use('/my/prefix', middleware).use(echo),
    ],
    ['/my/own', '/my/own', '/my/own/admin', (middleware) => connect().use('/my/own', middleware).use(echo)],
    ['/api', '/api', '/admin', (middleware) => express().use(['/api', '/admin'], middleware).use(echo)],
    [
      '/api',
      '/my/prefix',
      '/my/prefix/admin',
      (middleware) => express().use('/my', nested(middleware)).use(echo),
    ],
    ['/v1', '/v1', '/admin', (middleware) => bare([middleware, echo])],
  ];
  for (const [prefix, path, admin, app] of mount) {
    const mail = await mailSink(t);
    const options = { ...testOptions(temporaryFolder(t)), prefix, emailSmtpUrl: mail.url };
    const server = createServer({ ...options, middleware: true });
    t.teardown(() => server.stop());
    const { url } = await listen(t, app(server.middleware));
    const post = (path: string, body: object) =>
      fetch(url + path, { method: 'POST', headers: json, body: JSON.stringify(body) });
    // Express and Connect match a mount in any letter case, so clients would choose where links lead.
    if (path === prefix)
      for (const first of ['/ADMIN', path.toUpperCase()]) await fetch(`${url}${first}/health`);
    const email = 'ada@example.test';
    t.equal((await post(`${path}/auth/register`, { email, password: PASSWORD })).status, 201);
    await mail.next();
    await post(`${path}/auth/forgot-password`, { email });
    const [link = ''] = readMail(await mail.next()).text.match(/http\S+/) ?? [];
    t.match(link, `${options.publicUrl}${path}/auth/reset-password?token=`);
    t.equal((await fetch(url + link.slice(options.publicUrl.length))).status, 200, 'where our page is');
    t.equal((await fetch(`${url}${admin}?page=1`)).status, 401);
    // Of the last one, the backend has a GET.
    for (const other of [`${path}/nothing`, `${admin}/nothing`, '/elsewhere', '/apis/x', `${path}/auth/me`]) {
      const passed = await post(`${other}?x=1`, { kept: true });
      t.same([passed.headers.get('x-url'), await passed.text()], [`${other}?x=1`, '{"kept":true}']);
    }
  }
});

t.test("an identity provider below a stripped mount answers under its issuer's path", async (t) => {
  const issuer = 'http://app.example.test/idp';
  for (const prefix of ['', '/idp']) {
    const options = { ...idpOptions(temporaryFolder(t)), publicUrl: issuer, prefix };
    const { middleware, stop } = createIdentityServer({ ...options, middleware: true });
    t.teardown(stop);
    const { url } = await listen(t, express().use('/idp', middleware).use(echo));
    const discovery = await fetch(`${url}/idp/.well-known/openid-configuration`);
    t.match(await discovery.json(), { issuer, jwks_uri: `${issuer}/.well-known/jwks.json` });
    t.equal((await fetch(`${url}/idp/jwks`)).status, 200);
    t.equal((await fetch(`${url}/jwks`)).status, 202, 'nothing of it elsewhere');
  }
  const options = { ...idpOptions(temporaryFolder(t)), publicUrl: issuer, prefix: '/idp' };
  const { middleware, stop } = createIdentityServer({ ...options, middleware: true });
  t.teardown(stop);
  const { url } = await listen(t, express().use(middleware).use(echo));
  const inserted = `${url}/.well-known/oauth-authorization-server/idp`;
  t.match(await (await fetch(inserted)).json(), { issuer }, 'unstripped, where RFC 8414 looks for it, too');
  t.equal((await fetch(`${inserted}/other`)).status, 202, 'and nothing else there');
});
