import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import Fastify from 'fastify';
import t from 'tap';
import { createIdentityServer } from '../../src/idp/server.js';
import { identityProvider, saasBackend } from '../../src/index.js';
import { createServer } from '../../src/saas/server.js';
import { basic, type SaasApp, SECRETS, saasApp, testOptions } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { ADMIN_TOKEN, type IdpApp, idpApp, idpOptions } from '../kit/idp.js';
import { type Exposition, parseMetrics } from '../kit/metrics.js';
import { temporaryFolder } from '../kit/tmp.js';
import { waitUntil } from '../kit/wait.js';

const OPERATOR = { headers: { authorization: basic() } };

async function scrape(app: SaasApp, path = '/metrics'): Promise<Exposition> {
  const answer = await app.request('GET', path, OPERATOR);
  if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`);
  return parseMetrics(answer.text);
}

async function scrapeIdp(app: IdpApp): Promise<Exposition> {
  const answer = await app.request('GET', '/metrics', { token: ADMIN_TOKEN });
  if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`);
  return parseMetrics(answer.text);
}

t.test('saas-backend: the credentials of the admin area are required', async (t) => {
  const app = await saasApp(t, { metrics: true, limits: true });
  for (const path of ['/metrics', '/api/metrics']) {
    const anonymous = await app.request('GET', path);
    t.equal(anonymous.status, 401);
    t.match(anonymous.headers['www-authenticate'], /^Basic realm="admin"/);
    t.equal(anonymous.headers['cache-control'], 'no-store');
    const answer = await app.request('GET', path, OPERATOR);
    t.match(answer, {
      status: 200,
      headers: { 'content-type': /^text\/plain; version=0\.0\.4/, 'cache-control': 'no-store' },
    });
    parseMetrics(answer.text);
  }
  const guess = (from: string) =>
    app.request('GET', '/metrics', {
      headers: { authorization: basic(SECRETS.adminUsername, 'wrong') },
      from,
    });
  for (let count = 0; count < 10; count++) t.equal((await guess('192.0.2.1')).status, 401);
  t.equal((await guess('192.0.2.1')).status, 429, 'guesses are limited as in the admin area');
  t.equal((await app.request('GET', '/admin', { ...OPERATOR, from: '192.0.2.1' })).status, 429);
  t.equal((await app.request('GET', '/metrics', OPERATOR)).status, 200, 'from elsewhere');
});

t.test('idp: the administrator token is required', async (t) => {
  const app = await idpApp(t, { metrics: true, limits: true });
  const anonymous = await app.request('GET', '/metrics');
  t.equal(anonymous.status, 401);
  t.match(anonymous.headers['www-authenticate'], /^Bearer realm="idp-admin"/);
  const answer = await app.request('GET', '/metrics', { token: ADMIN_TOKEN });
  t.match(answer, { status: 200, headers: { 'cache-control': 'no-store' } });
  parseMetrics(answer.text);
  const guess = () => app.request('GET', '/metrics', { token: 'wrong' });
  for (let count = 0; count < 10; count++) t.equal((await guess()).status, 401);
  t.equal((await guess()).status, 429);
});

t.test('metrics require credentials in the configuration', async (t) => {
  const { adminPassword: _password, ...saas } = testOptions(temporaryFolder(t));
  const production = { NODE_ENV: 'production', METRICS: 'true', IDP_METRICS: 'true' };
  t.throws(() => createServer({ ...saas, env: production, publicUrl: 'https://app.example' }), {
    message: /METRICS requires ADMIN_PASSWORD\..*Set ADMIN_PASSWORD, or unset METRICS\./s,
  });
  const { adminToken: _token, ...idp } = idpOptions(temporaryFolder(t));
  t.throws(() => createIdentityServer({ ...idp, env: production }), {
    message: /IDP_METRICS requires IDP_ADMIN_TOKEN\./,
  });
});

t.test('without the option there is no route, and the module is not loaded', async (t) => {
  const app = await saasApp(t);
  const idp = await idpApp(t);
  for (const path of ['/metrics', '/api/metrics'])
    t.equal((await app.request('GET', path, OPERATOR)).status, 404);
  t.equal((await idp.request('GET', '/metrics', { token: ADMIN_TOKEN })).status, 404);

  const kit = (name: string) => fileURLToPath(new URL(`../kit/${name}.js`, import.meta.url));
  const loads = (options: object) => {
    const script = `
      import { createRequire } from 'node:module';
      import { createServer } from ${JSON.stringify(fileURLToPath(new URL('../../src/saas/server.js', import.meta.url)))};
      import { createIdentityServer } from ${JSON.stringify(fileURLToPath(new URL('../../src/idp/server.js', import.meta.url)))};
      const { saas, idp } = ${JSON.stringify(options)};
      for (const server of [createServer(saas), createIdentityServer(idp)]) {
        await server.start();
        await server.stop();
      }
      const { cache } = createRequire(${JSON.stringify(kit('app'))});
      console.log(Object.keys(cache).some((file) => file.includes('prom-client')));
    `;
    const run = spawnSync(process.execPath, ['--input-type=module', '--eval', script], { encoding: 'utf8' });
    t.equal(run.status, 0, run.stderr);
    return run.stdout.trim();
  };
  const saas = { ...testOptions(temporaryFolder(t)) };
  const identity = { ...idpOptions(temporaryFolder(t)) };
  t.equal(loads({ saas, idp: identity }), 'false');
  t.equal(loads({ saas: { ...saas, metrics: true }, idp: identity }), 'true', 'the check works');
});

t.test('requests are counted by route, and unknown paths as one', async (t) => {
  const app = await saasApp(t, { metrics: true });
  const before = await scrape(app);
  const { accessToken } = await app.signUp();
  for (let count = 0; count < 3; count++) await app.request('GET', '/api/auth/me', { token: accessToken });
  await app.request('GET', '/api/auth/me');
  await app.request('POST', '/api/auth/login', { body: '{' });
  for (const path of ['/a', '/api/b?c=d', '/admin/e', '/api/auth/me/f']) await app.request('GET', path);
  const text = (await app.request('GET', '/metrics', OPERATOR)).text;
  const after = parseMetrics(text);
  const count = (labels: Record<string, string>) =>
    after.sum('saas_backend_http_requests_total', labels) -
    before.sum('saas_backend_http_requests_total', labels);

  t.equal(count({ method: 'GET', route: '/api/auth/me', status: '200' }), 3);
  t.equal(count({ method: 'GET', route: '/api/auth/me', status: '401' }), 1);
  t.equal(count({ method: 'POST', route: '/api/auth/register', status: '201' }), 1);
  t.equal(count({ method: 'POST', route: '/api/auth/login', status: '400' }), 1);
  t.equal(count({ method: 'GET', route: 'unknown', status: '404' }), 4);
  t.equal(count({ route: '/metrics' }), 1, 'the first scrape');
  t.equal(count({}), 11, 'nothing else');
  t.equal(
    after.value('saas_backend_http_request_duration_seconds_count', { method: 'GET', route: '/api/auth/me' }),
    4,
  );
  t.notMatch(text, /c=d|me\/f/);
});

t.test('names follow the rules of Prometheus', async (t) => {
  for (const [prefix, { types }] of [
    ['saas_backend_', await scrape(await saasApp(t, { metrics: true }))],
    ['idp_', await scrapeIdp(await idpApp(t, { metrics: true }))],
  ] as const) {
    const own = [...types].filter(([name]) => !/^(process|nodejs)_/.test(name));
    t.ok(types.has('process_resident_memory_bytes') && types.has('nodejs_eventloop_lag_p99_seconds'));
    t.ok(own.length > 3);
    for (const [name, type] of own) {
      t.ok(name.startsWith(prefix), name);
      t.equal(name.endsWith('_total'), type === 'counter', name);
    }
  }
});

t.test('idp: requests, calls of the store, jobs and purges', async (t) => {
  const clock = fakeClock();
  const app = await idpApp(t, { metrics: true, clock });
  await app.request('GET', '/.well-known/openid-configuration');
  const client = await app.createClient();
  await app.visit(client);
  await waitUntil('the jobs have run', async () => {
    const { series } = await scrapeIdp(app);
    const succeeded = series.filter(
      ({ name, labels }) => name === 'idp_job_runs_total' && labels['outcome'] === 'success',
    );
    return succeeded.length >= 5;
  });
  const metrics = await scrapeIdp(app);
  const labels = { method: 'GET', route: '/.well-known/openid-configuration', status: '200' };
  t.equal(metrics.value('idp_http_requests_total', labels), 1);
  t.ok(metrics.sum('idp_store_call_duration_seconds_count', { collection: 'clients', operation: 'insert' }));
  const job = 'session-purge';
  t.equal(metrics.value('idp_job_runs_total', { job, outcome: 'success' }), 1);
  t.equal(metrics.value('idp_job_last_success_timestamp_seconds', { job }), clock.now() / 1000);
  t.equal(metrics.value('idp_job_lag_seconds', { job }), 0);
  t.equal(metrics.value('idp_purge_backlog_documents', { job }), 0);
  t.equal(metrics.value('idp_purge_removed_documents_total', { job }), 0);
});

t.test('the lag of a job and the backlog of a purge show that it does not run', async (t) => {
  const clock = fakeClock();
  const app = await saasApp(t, { metrics: true, clock });
  await app.signUp();
  await app.signUp();
  await app.listen();
  const succeeded = async () => {
    const metrics = await scrape(app);
    return metrics.value('saas_backend_job_runs_total', { job: 'session-purge', outcome: 'success' }) === 1;
  };
  await waitUntil('the purge has run', succeeded);
  const YEAR = 365 * 24 * 3600 * 1000;
  // The timers of this clock run when it is advanced step by step only.
  clock.set(clock.now() + YEAR);
  const metrics = await scrape(app);
  t.ok((metrics.value('saas_backend_job_lag_seconds', { job: 'session-purge' }) ?? 0) > 3600);
  t.equal(metrics.value('saas_backend_purge_backlog_documents', { job: 'session-purge' }), 2);
});

t.test('a plugin serves its metrics below its prefix and counts no request of the host', async (t) => {
  const host = Fastify();
  t.teardown(() => host.close());
  const { host: _host, port: _port, logLevel: _level, ...options } = testOptions(temporaryFolder(t));
  const { host: _h, port: _p, logLevel: _l, publicUrl: _u, ...idp } = idpOptions(temporaryFolder(t));
  await host.register(saasBackend, { ...options, metrics: true });
  await host.register(identityProvider, {
    ...idp,
    prefix: '/id',
    publicUrl: 'http://x.example.test/id',
    metrics: true,
  });
  host.get('/mine', async () => 'mine');
  await host.inject('/mine');
  await host.inject('/api/health');
  await host.inject('/id/health');
  t.equal((await host.inject({ url: '/metrics', ...OPERATOR })).statusCode, 404);
  const saas = parseMetrics((await host.inject({ url: '/api/metrics', ...OPERATOR })).body);
  t.equal(saas.sum('saas_backend_http_requests_total'), 1);
  t.equal(saas.sum('saas_backend_http_requests_total', { route: '/api/health' }), 1);
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}` };
  const identity = parseMetrics((await host.inject({ url: '/id/metrics', headers })).body);
  t.equal(identity.sum('idp_http_requests_total'), 1);
  t.equal(identity.sum('idp_http_requests_total', { route: '/id/health' }), 1);
});
