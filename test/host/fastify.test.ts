import basicAuth from '@fastify/basic-auth';
import cors from '@fastify/cors';
import formbody from '@fastify/formbody';
import jwt from '@fastify/jwt';
import fastify, { type FastifyInstance, type InjectOptions } from 'fastify';
import t, { type Test } from 'tap';
import { type SaasBackendOptions, saasBackend } from '../../src/index.js';
import { basic, PASSWORD, SECRETS, testOptions } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { countedRandom } from '../kit/random.js';
import { signWebhook } from '../kit/sign-webhook.js';
import { temporaryFolder } from '../kit/tmp.js';

/** An application that has set everything that a Fastify application can set, on its root. */
async function createHost(t: Test, lines: string[] = []): Promise<FastifyInstance> {
  const host = fastify({
    logger: { level: 'trace', stream: { write: (line: string) => void lines.push(line) } },
    genReqId: () => 'host-request',
  });
  t.teardown(() => host.close());
  await host.register(jwt, { secret: 'a secret of the host' });
  await host.register(basicAuth, {
    authenticate: { realm: 'host' },
    validate: async (name: string) => {
      if (name !== 'host') throw new Error('not the host');
    },
  });
  await host.register(cors, { origin: 'https://host.example' });
  await host.register(formbody);
  host.addSchema({ $id: 'User', type: 'object', properties: { nick: { type: 'string' } } });
  host.removeContentTypeParser('application/json');
  host.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, body, done) =>
    done(null, { parsedByHost: body }),
  );
  host.setValidatorCompiler(() => (data) => ({ value: { validatedByHost: data } }));
  host.setSerializerCompiler(() => (data) => JSON.stringify({ serializedByHost: data }));
  host.setErrorHandler((error: Error, _request, reply) =>
    reply.code(418).type('text/plain').send(`host error: ${error.message}`),
  );
  host.setNotFoundHandler((request, reply) =>
    reply.code(404).type('text/plain').send(`host 404: ${request.url}`),
  );
  host.addHook('onRequest', async (_request, reply) => void reply.header('x-host', 'yes'));

  const schema = { body: { type: 'object' }, response: { 200: { $ref: 'User#' } } };
  host.post('/echo', { schema }, async (request) => request.body);
  host.get('/sign', async () => host.jwt.sign({ host: true, iat: 0 }));
  host.get('/verify', { onRequest: (request) => request.jwtVerify() }, async (request) => request.user);
  host.get('/basic', { onRequest: host.basicAuth }, async () => 'basic');
  host.get('/user', async (request) => ({ saas: typeof request.saas }));
  host.get('/throws', async () => {
    throw new Error('of the host');
  });
  return host;
}

function ours(t: Test, more: SaasBackendOptions = {}): SaasBackendOptions {
  const { host: _, port: __, logLevel: ___, ...options } = testOptions(temporaryFolder(t));
  return { ...options, clock: fakeClock(), random: countedRandom(), ...more };
}

const json = { 'content-type': 'application/json' };

/** What is asked of a host, with us and without. */
const OUTSIDE: InjectOptions[] = [
  { method: 'GET', url: '/' },
  { method: 'GET', url: '/nothing?x=1' },
  { method: 'GET', url: '/throws' },
  { method: 'GET', url: '/sign' },
  { method: 'GET', url: '/verify' },
  { method: 'GET', url: '/verify', headers: { authorization: 'Bearer garbage' } },
  { method: 'GET', url: '/basic' },
  { method: 'GET', url: '/basic', headers: { authorization: basic('host', 'x') } },
  { method: 'GET', url: '/user' },
  { method: 'HEAD', url: '/user' },
  {
    method: 'OPTIONS',
    url: '/echo',
    headers: { origin: 'https://host.example', 'access-control-request-method': 'POST' },
  },
  { method: 'POST', url: '/echo', headers: json, payload: '{"a":1}' },
  { method: 'POST', url: '/echo', headers: json, payload: '{broken' },
  { method: 'POST', url: '/echo', headers: { 'content-type': 'text/plain' }, payload: 'text' },
  {
    method: 'POST',
    url: '/echo',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    payload: 'a=1',
  },
  { method: 'POST', url: '/echo', headers: { 'content-type': 'image/png' }, payload: 'x' },
  { method: 'POST', url: '/echo', headers: { ...json, 'content-encoding': 'gzip' }, payload: '{}' },
  { method: 'GET', url: '/%zz' },
  { method: 'GET', url: '/apis' },
  { method: 'GET', url: '/administration' },
  { method: 'GET', url: '/health' },
];

t.test('outside our prefixes a host answers byte for byte as without us', async (t) => {
  const [alone, together] = [await createHost(t), await createHost(t)];
  await together.register(saasBackend, ours(t));
  for (const options of OUTSIDE) {
    const [before, after] = [await alone.inject(options), await together.inject(options)];
    const { date: _, ...headers } = before.headers;
    const { date: __, ...headersAfter } = after.headers;
    t.equal(after.statusCode, before.statusCode, `${options.method} ${options.url}`);
    t.same(headersAfter, headers);
    const typeOfOurs = options.url === '/user' ? after.body.replace('"object"', '"undefined"') : after.body;
    t.equal(typeOfOurs, before.body);
  }
});

t.test('its log lines stay its own, outside', async (t) => {
  const logs = await Promise.all(
    [false, true].map(async (withUs) => {
      const lines: string[] = [];
      const host = await createHost(t, lines);
      if (withUs) await host.register(saasBackend, ours(t));
      await host.ready();
      lines.length = 0;
      for (const url of ['/user?x=1', '/throws', '/nothing']) await host.inject(url);
      return lines.map((line) => ({ ...JSON.parse(line), time: 0, responseTime: 0 }));
    }),
  );
  t.ok(logs[0]?.length);
  t.same(logs[1], logs[0]);
});

t.test('inside, nothing of the host’s ways shows', async (t) => {
  const host = await createHost(t);
  const options = ours(t);
  await host.register(saasBackend, options);
  const send = (method: 'GET' | 'POST', url: string, more: InjectOptions = {}) =>
    host.inject({ method, url, ...more });

  const registered = await send('POST', '/api/auth/register', {
    payload: { email: 'Ada@example.test', password: PASSWORD },
  });
  t.equal(registered.statusCode, 201, 'our parser, our validator');
  t.equal(registered.json().data.user.email, 'ada@example.test', 'our serializer');
  t.not(registered.headers['x-request-id'], 'host-request');
  const wrong = await send('POST', '/api/auth/login', { payload: { email: null } });
  t.equal(wrong.statusCode, 400);
  t.equal(wrong.json().error.code, 'VALIDATION_ERROR', 'our error handler');
  const missing = await send('GET', '/api/nothing');
  t.equal(missing.statusCode, 404);
  t.equal(missing.json().error.code, 'NOT_FOUND', 'our 404');
  const form = await send('POST', '/api/auth/login', {
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    payload: 'email=a@example.test&password=x',
  });
  t.equal(form.statusCode, 415, 'no form parser of the host');
  const headers = { authorization: `Bearer ${host.jwt.sign({ sub: registered.json().data.user.id })}` };
  t.equal((await send('GET', '/api/auth/me', { headers })).statusCode, 401, 'no token of the host');
  const asHost = { headers: { authorization: basic('host', 'x') } };
  t.equal((await send('GET', '/admin', asHost)).statusCode, 401, 'no password of the host');
  t.match((await send('GET', '/admin', { headers: { authorization: basic() } })).body, '<!doctype html>');

  const event = JSON.stringify({ type: 'x', data: { object: { id: 'o' } } });
  const signature = signWebhook(event, SECRETS.paymentWebhookSecret, options.clock?.now() ?? 0);
  const webhook = await send('POST', '/api/billing/webhook', {
    headers: { ...json, 'payment-signature': signature },
    payload: event,
  });
  t.equal(webhook.statusCode, 200, 'the raw body');
});

t.test('a host’s own routes ask us who is there', async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  await host.register(saasBackend, ours(t, { prefix: '/backend/v1', adminPath: '/backend/admin' }));
  host.get('/mine', { onRequest: host.saas.requireUser }, async (request) => request.saas.user.email);
  const payload = { email: 'ada@example.test', password: PASSWORD };
  const registered = await host.inject({ method: 'POST', url: '/backend/v1/auth/register', payload });
  const { accessToken, user } = registered.json().data;
  const mine = await host.inject({ url: '/mine', headers: { authorization: `Bearer ${accessToken}` } });
  t.equal(mine.body, 'ada@example.test');
  const refused = await host.inject('/mine');
  t.equal(refused.statusCode, 401);
  t.equal(refused.headers['www-authenticate'], 'Bearer realm="api"');
  t.match(await host.saas.users.find({ email: 'ADA@example.test' }), { id: user.id });
  t.throws(() => Object.assign(host.saas, { requireUser: null }), TypeError, 'frozen');
  t.equal((await host.inject('/api/auth/me')).statusCode, 404);
  t.equal((await host.inject('/backend/admin')).statusCode, 401);
});

t.test('[15] a host with its own rules for other origins keeps them', async (t) => {
  const host = await createHost(t);
  await host.register(saasBackend, ours(t, { corsOrigin: ['https://app.example'] }));
  const answer = await host.inject({ url: '/api/auth/me', headers: { origin: 'https://app.example' } });
  t.equal(answer.headers['access-control-allow-origin'], 'https://host.example');
});

t.test('what cannot be mounted does not boot', async (t) => {
  const twice = fastify();
  t.teardown(() => twice.close());
  await twice.register(saasBackend, ours(t));
  await t.rejects(async () => {
    await twice.register(saasBackend, ours(t));
  }, /registered on this instance already/);
  const wrong = fastify();
  t.teardown(() => wrong.close());
  await t.rejects(async () => {
    await wrong.register(saasBackend, ours(t, { prefix: '/' }));
  }, /'prefix' must be a path/);
});
