import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import cors from '@fastify/cors';
import fastify from 'fastify';
import t, { type Test } from 'tap';
import { createIdentityServer, createServer, identityProvider, saasBackend } from '../../src/index.js';
import { PASSWORD, testOptions } from '../kit/app.js';
import { pluginOptions } from '../kit/host.js';
import { ADMIN_TOKEN, idpOptions } from '../kit/idp.js';
import { temporaryFolder } from '../kit/tmp.js';

const admin = { authorization: `Bearer ${ADMIN_TOKEN}` };

t.test('at the root of a host, preflights for other routes stay with the host', async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  await host.register(identityProvider, pluginOptions(idpOptions(temporaryFolder(t))));
  await host.register(saasBackend, pluginOptions(testOptions(temporaryFolder(t))));
  host.options('*', async () => 'preflight of the host');
  host.get('/tokens', async () => 'of the host');
  await host.ready();

  const preflight = async (url: string) => {
    const headers = { origin: 'https://spa.example', 'access-control-request-method': 'POST' };
    const answer = await host.inject({ method: 'OPTIONS', url, headers });
    return [answer.statusCode, answer.headers['access-control-allow-origin'] ?? answer.body];
  };
  t.same(await preflight('/token'), [204, '*']);
  t.same(await preflight('/jwks'), [204, '*']);
  for (const path of ['/authorize', '/v1/agents', '/tokens', '/']) {
    t.same(await preflight(path), [200, 'preflight of the host'], path);
  }
  t.equal((await host.inject('/tokens')).body, 'of the host');
  t.equal((await host.inject('/nothing')).json().error, 'Not Found', 'and so does its 404');
  t.equal((await host.inject('/jwks')).statusCode, 200);
  t.equal((await host.inject('/api/settings/public')).statusCode, 200);
});

t.test('a host without a configured address uses the one it listens at', async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  await host.register(
    async (instance) => {
      const { publicUrl: _, ...options } = pluginOptions(idpOptions(temporaryFolder(t)));
      await instance.register(identityProvider, { ...options, prefix: '/idp' });
    },
    { prefix: '/v1' },
  );
  const url = await host.listen({ host: '127.0.0.1', port: 0 });
  const discovery = await fetch(`${url}/v1/idp/.well-known/openid-configuration`);
  const { issuer } = (await discovery.json()) as { issuer: string };
  t.equal(issuer, `http://localhost:${new URL(url).port}/v1/idp`);
});

t.test('@fastify/cors of the host works beside the plugins, registered before or after', async (t) => {
  for (const isFirst of [true, false]) {
    const host = fastify();
    t.teardown(() => host.close());
    if (isFirst) await host.register(cors, { origin: 'https://host.example' });
    await host.register(identityProvider, pluginOptions(idpOptions(temporaryFolder(t))));
    if (!isFirst) await host.register(cors, { origin: 'https://host.example' });
    await host.ready();
    t.equal((await host.inject('/jwks')).statusCode, 200);
  }
});

t.test('the token endpoint answers JSON for any Accept header', async (t) => {
  const server = createIdentityServer(idpOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  const headers = { accept: 'text/html, image/gif, image/jpeg, *; q=.2' };
  const token = await server.fastify.inject({ method: 'POST', url: '/token', headers });
  t.equal(token.json().error, 'invalid_client');
  const page = await server.fastify.inject({ url: '/authorize?client_id=x', headers });
  t.match(page.headers['content-type'], 'text/html');
});

t.test('our body limits apply even if the host accepts more', async (t) => {
  const host = fastify({ bodyLimit: 10 * 1024 * 1024 });
  t.teardown(() => host.close());
  await host.register(identityProvider, pluginOptions(idpOptions(temporaryFolder(t))));
  await host.register(saasBackend, pluginOptions(testOptions(temporaryFolder(t))));
  const headers = { ...admin, 'content-type': 'application/json' };
  const post = async (url: string, bytes: number) => {
    const payload = JSON.stringify({ handle: 'x'.repeat(bytes) });
    return (await host.inject({ method: 'POST', url, headers, payload })).statusCode;
  };
  t.equal(await post('/v1/agents', 17 * 1024), 413);
  t.equal(await post('/v1/agents', 15 * 1024), 400);
  t.equal(await post('/token', 65 * 1024), 413);
  t.equal(await post('/api/auth/login', 17 * 1024), 413);
});

t.test('behind a Unix socket, where clients have no address, all routes work', async (t: Test) => {
  const server = createServer(testOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  const socketPath = join(temporaryFolder(t), 's');
  await server.fastify.listen({ path: socketPath });
  const body = JSON.stringify({ email: 'ada@example.test', password: PASSWORD });
  const headers = { 'content-type': 'application/json', 'content-length': String(body.length) };
  const status = (path: string, method: string, payload?: string) =>
    new Promise<number | undefined>((resolve, reject) => {
      const options = { socketPath, path, method, ...(payload && { headers }) };
      const request = httpRequest(options, (response) => resolve(response.resume().statusCode));
      request.on('error', reject).end(payload);
    });
  t.equal(await status('/api/auth/register', 'POST', body), 201);
  t.equal(await status('/api/auth/login', 'POST', body), 200);
  t.equal(await status('/admin', 'GET'), 401);
});
