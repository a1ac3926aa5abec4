import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingMessage, request as send } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { text } from 'node:stream/consumers';
import express from 'express';
import fastify from 'fastify';
import t, { type Test } from 'tap';
import {
  AppError,
  createServer,
  type SaasMiddlewareServer,
  type SaasRequest,
  saasBackend,
} from '../../src/index.js';
import { type Answer, PASSWORD, parseJson, testOptions } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { saasPluginOptions } from '../kit/host.js';
import { listen } from '../kit/listener.js';
import { mailSink, readMail } from '../kit/mail.js';
import { temporaryFolder } from '../kit/tmp.js';

/** Routes of applications built without Fastify, behind our guards. */

type Options = Parameters<typeof createServer>[0];

const start = (t: Test, options: Options = {}): SaasMiddlewareServer => {
  const server = createServer({ ...testOptions(temporaryFolder(t)), ...options, middleware: true });
  t.teardown(() => server.stop());
  return server;
};

async function call(url: string, token?: string, body?: object): Promise<Answer & { status: number }> {
  const headers = { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }) };
  const init = body ? { method: 'POST', body: JSON.stringify(body), headers } : { headers };
  const response = await fetch(url, init);
  const text = await response.text();
  return {
    status: response.status,
    headers: Object.fromEntries(response.headers),
    text,
    body: parseJson(text),
  };
}

const ADA = { email: 'ada@example.test', password: PASSWORD };

/** A user whose token was issued by an earlier process on the same store. */
async function signedUpBefore(t: Test, options: Options): Promise<{ accessToken: string; id: string }> {
  const earlier = createServer({ ...testOptions(temporaryFolder(t)), ...options });
  const answer = await earlier.fastify.inject({
    method: 'POST',
    url: '/api/auth/register',
    payload: ADA,
  });
  await earlier.stop();
  const { accessToken, user } = answer.json().data;
  return { accessToken, id: user.id };
}

t.test('Express: guards apply before the first request to our paths, and set request.saas', async (t) => {
  const options = { databaseUri: testOptions(temporaryFolder(t)).databaseUri };
  const { accessToken, id } = await signedUpBefore(t, options);
  const backend = start(t, options);
  const app = express();
  app.use((_request, response, next) => {
    response.setHeader('x-host', 'kept');
    next();
  });
  app.use(backend.middleware);
  app.get('/mine', backend.requireUser, (request, response) => {
    response.json({ email: request.saas.user.email, session: request.saas.session?.id });
  });
  app.post('/mine', backend.requireUser, express.json(), (request, response) => {
    response.json(request.body);
  });
  app.get('/pro', backend.requireEntitled('pro'), (request, response) => {
    response.json(request.saas.user.subscription);
  });
  app.get('/any', backend.requireEntitled(), (_request, response) => void response.send('any'));
  app.use((_error: unknown, _request: express.Request, response: express.Response, _next: unknown) => {
    response.status(418).send('error of the host');
  });
  const base = await listen(t, app);

  const mine = await call(`${base}/mine`, accessToken);
  t.match(mine, { status: 200, body: { email: ADA.email, session: /^ses_/ } });
  t.same((await call(`${base}/mine`, accessToken, { kept: true })).body, { kept: true });
  t.match(await call(`${base}/pro`, accessToken), {
    status: 403,
    body: { success: false, message: 'This requires a subscription to pro.', error: { code: 'FORBIDDEN' } },
  });

  for (const [token, code] of [
    [undefined, 'UNAUTHENTICATED'],
    ['garbage', 'UNAUTHENTICATED'],
    [`${accessToken}x`, 'UNAUTHENTICATED'],
  ] as const) {
    for (const body of [undefined, { text: 'x'.repeat(100_000) }]) {
      const [own, guarded] = [
        await call(`${base}/api/auth/me`, token),
        await call(`${base}/mine`, token, body),
      ];
      t.equal(guarded.status, 401);
      t.equal(guarded.body.error.code, code);
      const shapeOf = ({ body, headers }: Answer) => {
        const {
          date,
          'content-length': _,
          'x-request-id': id,
          connection,
          'keep-alive': __,
          ...rest
        } = headers;
        t.equal(id, body.error.requestId);
        return { ...rest, body: { ...body, error: { ...body.error, requestId: '' } } };
      };
      t.same(shapeOf(guarded), { ...shapeOf(own), 'x-host': 'kept', 'x-powered-by': 'Express' });
    }
  }

  await backend.fastify.saas.users.grant({ id }, { plan: 'pro' });
  t.match(await call(`${base}/pro`, accessToken), { status: 200, body: { status: 'granted', plan: 'pro' } });
  t.equal((await call(`${base}/any`, accessToken)).text, 'any');
  t.equal(await backend.entitles(id, 'pro'), true);
  t.equal(await backend.entitles('usr_nobody'), false);
  await backend.fastify.saas.users.suspend({ id });
  t.equal((await call(`${base}/mine`, accessToken)).status, 401);
});

t.test('node:http: a guard calls its callback for requests that it lets pass', async (t) => {
  const backend = start(t);
  const base = await listen(t, (request: SaasRequest, response) => {
    backend.middleware(request, response, () =>
      backend.requireUser(request, response, () => response.end(`I am ${request.saas?.user.email}`)),
    );
  });
  const { accessToken } = (await call(`${base}/api/auth/register`, undefined, ADA)).body.data;
  t.equal((await call(`${base}/mine`, accessToken)).text, `I am ${ADA.email}`);
  t.equal((await call(`${base}/mine`)).status, 401);
  const head = send(`${base}/mine`, { method: 'HEAD' }).end();
  const [answer] = (await once(head, 'response')) as [IncomingMessage];
  t.equal(answer.statusCode, 401);
  t.equal(await text(answer), '');
});

t.test('a guard does nothing when the application has already answered the request', async (t) => {
  const backend = start(t);
  const failures: unknown[] = [];
  const fail = (error: unknown) => failures.push(error);
  process.on('unhandledRejection', fail);
  t.teardown(() => process.off('unhandledRejection', fail));
  const base = await listen(t, (request: SaasRequest, response) => {
    if (request.url === '/late') response.writeHead(504).end('The application was quicker.');
    backend.requireUser(request, response, () => response.end());
  });
  const late = await call(`${base}/late`);
  t.match(late, { status: 504, text: 'The application was quicker.' });
  t.equal((await call(`${base}/mine`)).status, 401);
  t.same(failures, []);
});

t.test('authenticate accepts Node.js and fetch headers', async (t) => {
  const clock = fakeClock();
  const options = { databaseUri: testOptions(temporaryFolder(t)).databaseUri, clock };
  const { accessToken, id } = await signedUpBefore(t, options);
  const backend = start(t, options);
  const authorization = `Bearer ${accessToken}`;
  for (const headers of [
    { authorization },
    { Authorization: authorization, other: ['a', 'b'] },
    new Headers({ authorization }),
    new Request('http://x', { headers: { authorization } }).headers,
  ]) {
    t.match(await backend.authenticate(headers), { user: { id }, session: { id: /^ses_/ } });
  }
  for (const headers of [{}, new Headers(), { authorization: 'Bearer x' }, { authorization: ['x'] }]) {
    await t.rejects(backend.authenticate(headers), { code: 'UNAUTHENTICATED', statusCode: 401 });
  }
  clock.advance(900_000);
  const late = backend.authenticate({ authorization });
  await t.rejects(late, { code: 'TOKEN_EXPIRED', headers: { 'www-authenticate': /invalid_token/ } });
  t.ok((await late.catch((error: unknown) => error)) instanceof AppError);

  const host = fastify();
  t.teardown(() => host.close());
  await host.register(saasBackend, saasPluginOptions(t));
  const payload = ADA;
  const made = (await host.inject({ method: 'POST', url: '/api/auth/register', payload })).json().data;
  const bearer = new Headers({ authorization: `Bearer ${made.accessToken}` });
  t.match(await host.saas.authenticate(bearer), { user: { email: ADA.email } });
});

t.test('an upgrade to a WebSocket is authenticated by its headers', async (t) => {
  const backend = start(t);
  const { accessToken } = (
    await backend.fastify.inject({ method: 'POST', url: '/api/auth/register', payload: ADA })
  ).json().data;
  const server = createHttpServer().listen(0, '127.0.0.1');
  t.teardown(() => server.close());
  server.on('upgrade', (request, socket) => {
    backend.authenticate(request.headers).then(
      ({ user }) => socket.end(`HTTP/1.1 101 Switching Protocols\r\n\r\n${user.email}`),
      ({ statusCode }: AppError) => socket.end(`HTTP/1.1 ${statusCode} Refused\r\n\r\n`),
    );
  });
  await once(server, 'listening');
  const upgrade = async (token: string) => {
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    const head = ['GET / HTTP/1.1', 'Host: x', 'Connection: Upgrade', 'Upgrade: websocket'];
    socket.write(`${[...head, `Authorization: Bearer ${token}`].join('\r\n')}\r\n\r\n`);
    return text(socket);
  };
  t.match(await upgrade(accessToken), /^HTTP\/1\.1 101 .*ada@example\.test$/s);
  t.match(await upgrade('garbage'), /^HTTP\/1\.1 401 /);
});

t.test('guards answer 503 after stop, and a failed start is passed to the host as an error', async (t) => {
  const backend = start(t);
  const app = express();
  app.get('/mine', backend.requireUser, (_request, response) => void response.send('mine'));
  const base = await listen(t, app);
  t.equal((await call(`${base}/mine`)).status, 401);
  await backend.stop();
  t.match(await call(`${base}/mine`), {
    status: 503,
    headers: { 'retry-after': '5' },
    body: { error: { code: 'NOT_READY' } },
  });
  await t.rejects(backend.authenticate({}), { code: 'NOT_READY' });

  const broken = start(t, { databaseUri: `sqlite:${temporaryFolder(t)}` });
  const host = express();
  host.get('/mine', broken.requireUser, (_request, response) => void response.send('mine'));
  host.use(broken.middleware);
  host.use((error: Error, _request: express.Request, response: express.Response, _next: unknown) => {
    response.status(500).send(error.name);
  });
  const second = await listen(t, host);
  for (const path of ['/mine', '/api/health'])
    t.match(await call(second + path), { status: 500, text: 'StoreUnavailable' });
  await t.rejects(broken.authenticate({}), { name: 'StoreUnavailable' });
});

t.test('in development, e-mails link to the port of the server that mounts the middleware', async (t) => {
  const { url: emailSmtpUrl, next } = await mailSink(t);
  const { publicUrl: _, ...options } = testOptions(temporaryFolder(t));
  const backend = createServer({ ...options, emailSmtpUrl, middleware: true });
  t.teardown(() => backend.stop());
  const app = express();
  app.get('/mine', backend.requireUser, (request, response) => void response.send(request.saas.user.email));
  app.use(backend.middleware);
  const base = await listen(t, app);
  const { port } = new URL(base);
  t.equal((await call(`${base}/mine`)).status, 401);
  const { accessToken } = (await call(`${base}/api/auth/register`, undefined, ADA)).body.data;
  t.equal((await call(`${base}/mine`, accessToken)).text, ADA.email);
  await next();
  await call(`${base}/api/auth/forgot-password`, undefined, { email: ADA.email });
  t.match(readMail(await next()).text, `http://localhost:${port}/api/auth/reset-password?token=`);
  // A second server of the same application changes nothing: tokens name the address.
  const other = await listen(t, app);
  t.equal((await call(`${other}/mine`, accessToken)).text, ADA.email);
});
