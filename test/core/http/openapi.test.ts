import fastify from 'fastify';
import t from 'tap';
import { access } from '../../../src/core/http/routes.js';
import { streamJson, streamText } from '../../../src/core/http/streams.js';
import { saasBackend } from '../../../src/index.js';
import { type Answer, saasApp, testOptions } from '../../kit/app.js';
import { createHost } from '../../kit/host.js';
import { ISSUER, idpApp } from '../../kit/idp.js';
import { checkAnswers, problemOf, saasPaths } from '../../kit/openapi.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** The OpenAPI documents of both products. */

t.test('saas-backend serves its document with the operations that it has', async (t) => {
  const app = await saasApp(t);
  const { status, headers, body } = await app.request('GET', '/api/openapi.json');
  t.equal(status, 200);
  t.match(headers['content-type'], /^application\/json/);
  t.equal(body.openapi, '3.1.0');
  t.same(body.servers, [{ url: 'http://app.example.test' }]);
  t.ok(body.paths['/api/auth/sessions/{id}'].delete);
  t.ok(body.paths['/admin/api/users/{id}'].get);
  t.ok(body.paths['/health'].get);
  t.notOk(body.paths['/api/auth/email-login'], 'not configured');
  t.notOk(body.paths['/metrics'], 'not configured');
  const tags = body.tags.map(({ name }: { name: string }) => name);
  t.notOk(tags.includes('Other sign-ins'));

  const other = await saasApp(t, { emailLogin: true, prefix: '/v2', adminPath: '/office' });
  const { paths } = (await other.request('GET', '/v2/openapi.json')).body;
  t.ok(paths['/v2/auth/email-login'].post);
  t.ok(paths['/office/api/users'].get);
  t.notOk(paths['/api/auth/login']);
  t.notOk(paths['/admin/api/users']);

  const none = await saasApp(t, { adminPath: false });
  const without = (await none.request('GET', '/api/openapi.json')).body.paths;
  t.same(
    Object.keys(without).filter((path) => path.startsWith('/admin')),
    [],
  );
});

t.test('operations name the DPoP scheme where the server accepts bound access tokens', async (t) => {
  const agents = {
    agentIssuer: 'https://id.example.test',
    agentResource: 'https://app.example.test/api',
    agentClientId: 'cid_app',
  };
  const bearer = { accessToken: [] };
  const bound = { boundAccessToken: [] };
  const schemesOf = async (app: { request(method: string, path: string): Promise<Answer> }, at = '') => {
    const { paths, components } = (await app.request('GET', `${at}/openapi.json`)).body;
    return { paths, scheme: components.securitySchemes.boundAccessToken?.scheme };
  };
  for (const [options, expected, scheme] of [
    [agents, [bearer, bound], 'DPoP'],
    [{}, [bearer], undefined],
  ] as const) {
    const found = await schemesOf(await saasApp(t, options), '/api');
    t.same(found.paths['/api/auth/me'].get.security, expected);
    t.same(found.paths['/api/auth/sessions'].get.security, [bearer], 'for people only');
    t.equal(found.scheme, scheme);
  }
  const { paths, scheme } = await schemesOf(await idpApp(t));
  t.same(paths['/userinfo'].get.security, [bearer, bound]);
  t.same(paths['/userinfo'].post.security, [bearer, bound, {}], 'or a form');
  t.equal(scheme, 'DPoP');
});

t.test('idp serves its document below its issuer', async (t) => {
  const app = await idpApp(t);
  const { body } = await app.request('GET', '/openapi.json');
  t.same(body.servers, [{ url: ISSUER }]);
  t.ok(body.paths['/token'].post && body.paths['/v1/principals/{sub}'].get);

  const below = await idpApp(t, { prefix: '/id', publicUrl: `${ISSUER}/id` });
  const { servers, paths } = (await below.request('GET', '/openapi.json')).body;
  t.same(servers, [{ url: `${ISSUER}/id` }]);
  t.ok(paths['/token'].post);
});

t.test('developers read the documents as pages, which production does not have', async (t) => {
  const [development, live] = [await idpApp(t), await idpApp(t, { env: { NODE_ENV: 'production' } })];
  const page = await development.request('GET', '/docs');
  t.equal(page.status, 200);
  t.match(page.headers['content-security-policy'], "script-src 'self';");
  t.match(page.text, 'href="openapi.json"', 'also without JavaScript');
  const files = [...page.text.matchAll(/(?:src|href)="(docs\/[^"]+)"/g)].map(([, file]) => `/${file}`);
  t.equal(files.length, 3);
  for (const file of files) {
    const { status, headers, text } = await development.request('GET', file);
    t.equal(status, 200, file);
    t.match(headers['content-type'], file.endsWith('.css') ? 'text/css' : 'text/javascript');
    t.equal(headers['x-content-type-options'], 'nosniff');
    t.ok(text.length > 50);
  }
  for (const file of ['/docs', ...files]) t.equal((await live.request('GET', file)).status, 404);
});

t.test('the description of a host includes the routes only if it asks', async (t) => {
  const { host: _host, port: _port, logLevel: _level, ...options } = testOptions(temporaryFolder(t));
  for (const openapi of [false, true]) {
    const host = await createHost(t, {
      last: async (app) => void (await app.register(saasBackend, { ...options, openapi })),
    });
    await host.ready();
    const { paths } = host.swagger() as unknown as {
      paths: Record<string, Record<string, { summary?: string; operationId?: string }> | undefined>;
    };
    t.equal(paths['/api/auth/register']?.['post']?.summary, openapi ? 'Create an account' : undefined);
    t.equal(paths['/admin/api/users']?.['get']?.operationId, openapi ? 'adminListUsers' : undefined);
    t.notOk(paths['/admin/users'], 'a page');
    await host.close();
  }
});

t.test('an answer that the document does not describe is found', async (t) => {
  const problem = (status: number, payload: unknown, type = 'application/json') =>
    problemOf(
      saasPaths({}),
      { method: 'GET', routeOptions: { url: '/api/auth/me', config: { access: 'user' } } } as never,
      { status, type, payload: JSON.stringify(payload) },
    );
  const error = (code: string) => ({ success: false, message: 'x', error: { code, requestId: 'x' } });
  t.equal(problem(401, error('TOKEN_EXPIRED')), undefined);
  t.match(problem(401, error('INVALID_CODE')), /does not fit/);
  t.match(problem(418, error('TOKEN_EXPIRED')), /not in the document/);
  t.match(problem(401, { error: 'unauthenticated' }), /does not fit/);
  t.match(problem(200, { success: true, data: {} }), /does not fit/);
  t.match(problem(200, 'x', 'text/plain'), /does not have/);
});

t.test('a stream that the document does not describe is found', async (t) => {
  const problems: string[] = [];
  const app = fastify();
  t.teardown(() => app.close());
  checkAnswers({ fail: (problem) => problems.push(problem) }, app, saasPaths({}));
  async function* pages() {
    yield [{ id: 'ses_1' }];
    yield [{ id: 'ses_2' }];
  }
  const value = { success: true, data: { sessions: pages() } };
  async function* text() {
    yield 'a,b';
  }
  app.get('/api/user/export', { config: access('user') }, (request, reply) =>
    streamJson(request, reply, value),
  );
  app.get('/api/auth/me', { config: access('user') }, (request, reply) =>
    streamText(request, reply.type('text/csv'), text()),
  );
  const { body } = await app.inject('/api/user/export');
  t.equal(body, '{"success":true,"data":{"sessions":[{"id":"ses_1"},{"id":"ses_2"}]}}');
  await app.inject('/api/auth/me');
  t.match(problems, [/^GET \/api\/user\/export 200 does not fit the document: /, /200 is text\/csv, which/]);
});
