import { readFileSync } from 'node:fs';
import { DatabaseSync } from '@photostructure/sqlite';
import Fastify from 'fastify';
import t from 'tap';
import { createIdentityServer } from '../../../src/idp/server.js';
import { saasBackend } from '../../../src/index.js';
import { figureCollections } from '../../../src/saas/billing/figures/store.js';
import { createServer } from '../../../src/saas/server.js';
import { basic, type SaasApp, SECRETS, saasApp, storeOf, testOptions } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { isTested, ON_FILE } from '../../kit/engine.js';
import { ADMIN_TOKEN, type IdpApp, idpApp, idpOptions } from '../../kit/idp.js';
import { type Exposition, parseMetrics } from '../../kit/metrics.js';
import { signWebhook } from '../../kit/sign-webhook.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';

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

t.test('the credentials of operators are required, and guesses are limited', async (t) => {
  const idp = await idpApp(t, { metrics: true });
  const foreign = await idp.request('GET', '/metrics', { token: 'wrong' });
  t.match(foreign, { status: 401, headers: { 'www-authenticate': /^Bearer realm="idp-admin"/ } });
  await scrapeIdp(idp);

  const app = await saasApp(t, { metrics: true, limits: true });
  for (const path of ['/metrics', '/api/metrics']) {
    const anonymous = await app.request('GET', path);
    t.equal(anonymous.status, 401);
    t.match(anonymous.headers['www-authenticate'], /^Basic realm="admin"/);
    t.equal(anonymous.headers['cache-control'], 'no-store');
    t.match((await app.request('GET', path, OPERATOR)).headers, {
      'content-type': /^text\/plain; version=0\.0\.4/,
      'cache-control': 'no-store',
    });
    await scrape(app, path);
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

t.test('without the option there is no route', async (t) => {
  const app = await saasApp(t);
  const idp = await idpApp(t);
  for (const path of ['/metrics', '/api/metrics'])
    t.equal((await app.request('GET', path, OPERATOR)).status, 404);
  t.equal((await idp.request('GET', '/metrics', { token: ADMIN_TOKEN })).status, 404);
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
  t.ok(metrics.sum('idp_store_call_duration_seconds_count', { collection: 'clients', operation: 'commit' }));
  const task = 'session-purge';
  t.equal(metrics.value('idp_job_runs_total', { task, outcome: 'success' }), 1);
  t.equal(metrics.value('idp_job_last_success_timestamp_seconds', { task }), clock.now() / 1000);
  t.equal(metrics.value('idp_job_lag_seconds', { task }), 0);
  t.equal(metrics.value('idp_purge_backlog_documents', { task }), 0);
  t.equal(metrics.value('idp_purge_removed_documents_total', { task }), 0);
});

t.test('the lag of a job and the backlog of a purge show that it does not run', async (t) => {
  const clock = fakeClock();
  const app = await saasApp(t, { metrics: true, clock });
  await app.signUp();
  await app.signUp();
  await app.listen();
  const succeeded = async () => {
    const metrics = await scrape(app);
    return metrics.value('saas_backend_job_runs_total', { task: 'session-purge', outcome: 'success' }) === 1;
  };
  await waitUntil('the purge has run', succeeded);
  const YEAR = 365 * 24 * 3600 * 1000;
  // The timers of this clock run when it is advanced step by step only.
  clock.set(clock.now() + YEAR);
  const metrics = await scrape(app);
  t.ok((metrics.value('saas_backend_job_lag_seconds', { task: 'session-purge' }) ?? 0) > 3600);
  t.equal(metrics.value('saas_backend_purge_backlog_documents', { task: 'session-purge' }), 2);
});

t.test('counters with known labels, the build and the accounts are present from the start', async (t) => {
  const app = await saasApp(t, { metrics: true, webhooks: true, settingsEncryptionKey: 'x'.repeat(43) });
  const first = await scrape(app);
  const present = {
    job_runs_total: { task: 'session-purge', outcome: 'failure' },
    purge_removed_documents_total: { task: 'session-purge' },
    webhook_attempts_total: { result: 'refused' },
    webhook_events_total: { outcome: 'failed' },
    throttle_refusals_total: { limit: 'requests' },
    scrape_errors_total: { metric: 'saas_backend_job_lag_seconds' },
  };
  for (const [name, labels] of Object.entries(present))
    t.equal(first.value(`saas_backend_${name}`, labels), 0, name);
  const { version } = JSON.parse(readFileSync(new URL('../../../../package.json', import.meta.url), 'utf8'));
  t.equal(first.value('saas_backend_build_info', { version, node: process.version }), 1);
  t.equal(first.value('saas_backend_users'), 0);
  await app.signUp();
  t.equal((await scrape(app)).value('saas_backend_users'), 1);

  const idp = await idpApp(t, { metrics: true });
  await idp.mintAgent();
  const counted = await scrapeIdp(idp);
  t.equal(counted.value('idp_build_info', { version, node: process.version }), 1);
  t.equal(counted.value('idp_principals'), 1);
  t.equal(counted.value('idp_agents'), 1);
});

t.test('subscriptions and the MRR are those of the last run of the job', async (t) => {
  const app = await saasApp(t, { metrics: true });
  const { dailyFigures } = figureCollections(await storeOf(t, app));
  const rest = { at: 1, movements: {}, incomplete: 0, withoutPlan: 0, trials: {}, trialsEnding: 0 };
  await dailyFigures.insert({ id: '2026-01-01', statuses: { active: 9 }, mrr: { eur: 900 }, ...rest });
  const statuses = { active: 3, trialing: 1 };
  await dailyFigures.insert({ id: '2026-01-02', statuses, mrr: { eur: 4000, usd: 1500 }, ...rest });
  const metrics = await scrape(app);
  const values = (name: string, label: string) =>
    metrics.series
      .filter((one) => one.name === `saas_backend_${name}`)
      .map(({ labels, value }) => [labels[label], value]);
  t.same(Object.fromEntries(values('subscriptions', 'status')), statuses);
  t.same(Object.fromEntries(values('mrr_minor_units', 'currency')), { eur: 4000, usd: 1500 });
});

t.test('a plugin serves its metrics below its prefix and counts no request of the host', async (t) => {
  const host = Fastify();
  t.teardown(() => host.close());
  const { host: _host, port: _port, logLevel: _level, ...options } = testOptions(temporaryFolder(t));
  await host.register(saasBackend, { ...options, metrics: true });
  host.get('/mine', async () => 'mine');
  await host.inject('/mine');
  await host.inject('/api/health');
  t.equal((await host.inject({ url: '/metrics', ...OPERATOR })).statusCode, 404);
  const saas = parseMetrics((await host.inject({ url: '/api/metrics', ...OPERATOR })).body);
  t.equal(saas.sum('saas_backend_http_requests_total'), 1);
  t.equal(saas.sum('saas_backend_http_requests_total', { route: '/api/health' }), 1);
});

t.test('webhook events are counted by outcome', async (t) => {
  const app = await saasApp(t, { metrics: true });
  const deliver = (event: object, secret: string = SECRETS.paymentWebhookSecret) => {
    const body = JSON.stringify(event);
    const headers = { 'stripe-signature': signWebhook(body, secret, app.clock.now()) };
    return app.request('POST', '/api/billing/webhook', { body, headers });
  };
  const event = (id: string, type: string) => ({
    id,
    type,
    created: Math.floor(app.clock.now() / 1000),
    data: { object: { id: 'in_1', object: 'invoice', customer: 'cus_unknown' } },
  });
  const unmatched = event('evt_1', 'invoice.payment_failed');
  t.match(await deliver(unmatched), { status: 200, body: { data: { outcome: 'unmatched' } } });
  t.match(await deliver(unmatched), { status: 200, body: { data: { outcome: 'duplicate' } } });
  t.match(await deliver(event('evt_2', 'a.type')), { status: 200, body: { data: { outcome: 'ignored' } } });
  t.equal((await deliver(unmatched, 'another secret')).status, 400);
  const metrics = await scrape(app);
  const outcomes = metrics.series
    .filter(({ name }) => name === 'saas_backend_webhook_events_total')
    .map(({ labels, value }) => [labels['outcome'], value]);
  t.same(
    Object.fromEntries(outcomes),
    { unmatched: 1, duplicate: 1, ignored: 1, rejected: 1, failed: 0, processed: 0, stale: 0 },
    'those that did not occur are present with 0',
  );
});

t.test('refusals of the throttle are counted by limit', async (t) => {
  const app = await saasApp(t, { metrics: true, limits: true });
  const guess = () =>
    app.request('GET', '/admin', { headers: { authorization: basic('x', 'y') }, from: '192.0.2.1' });
  for (let count = 0; count < 13; count++) await guess();
  t.equal((await guess()).status, 429);
  for (let count = 0; count < 302; count++) await app.request('GET', '/api/nothing', { from: '192.0.2.2' });
  const metrics = await scrape(app);
  t.equal(metrics.value('saas_backend_throttle_refusals_total', { limit: 'operator' }), 4);
  t.equal(metrics.value('saas_backend_throttle_refusals_total', { limit: 'requests' }), 2);
  t.equal(
    metrics.value('saas_backend_http_requests_total', { method: 'GET', route: 'unknown', status: '429' }),
    2,
  );
});

t.test('the outbox: its length and the age of the oldest mail', async (t) => {
  const app = await saasApp(t, { metrics: true });
  const empty = await scrape(app);
  t.equal(empty.value('saas_backend_mail_outbox_mails'), 0);
  t.equal(empty.value('saas_backend_mail_outbox_oldest_age_seconds'), 0);
  const enqueued = (count: number) =>
    waitUntil(
      `${count} mails`,
      async () => (await scrape(app)).value('saas_backend_mail_outbox_mails') === count,
    );
  await app.signUp();
  await enqueued(1);
  app.clock.advance(90_000);
  await app.signUp();
  await enqueued(2);
  t.equal((await scrape(app)).value('saas_backend_mail_outbox_oldest_age_seconds'), 90);
});

t.test('password hashing: what runs and what waits', async (t) => {
  const app = await saasApp(t, {
    metrics: true,
    hashing: { memoryCost: 16_384, timeCost: 2, parallelism: 1 },
  });
  const idle = await scrape(app);
  t.equal(idle.value('saas_backend_password_hashes_running'), 0);
  t.equal(idle.value('saas_backend_password_hashes_waiting'), 0);
  const body = { email: 'nobody@example.test', password: 'a wrong password' };
  const logins = Array.from({ length: 20 }, () => app.request('POST', '/api/auth/login', { body }));
  await waitUntil('hashes run and wait', async () => {
    const busy = await scrape(app);
    return (
      (busy.value('saas_backend_password_hashes_running') ?? 0) > 0 &&
      (busy.value('saas_backend_password_hashes_waiting') ?? 0) > 0
    );
  });
  await Promise.all(logins);
});

t.test('a scrape succeeds while the store fails, and guesses are still limited', ON_FILE, async (t) => {
  const app = await saasApp(t, { metrics: true, limits: true });
  const healthy = await scrape(app);
  t.ok(healthy.types.has('saas_backend_mail_outbox_mails'));
  const other = new DatabaseSync(app.file, { defensive: false });
  t.teardown(() => other.close());
  other.exec(`PRAGMA writable_schema = ON; BEGIN; CREATE TABLE changed (version);
    UPDATE sqlite_schema SET sql = 'damaged' WHERE name = 'mails'; COMMIT;`);
  const fails = async () => (await app.request('GET', '/admin', OPERATOR)).status === 503;
  await waitUntil('the store fails', fails);
  const failing = await scrape(app);
  t.notOk(failing.types.has('saas_backend_mail_outbox_mails'));
  t.notOk(failing.types.has('saas_backend_job_lag_seconds'));
  t.equal(failing.value('saas_backend_scrape_errors_total', { metric: 'saas_backend_mail_outbox_mails' }), 1);
  t.equal(failing.value('saas_backend_scrape_errors_total', { metric: 'saas_backend_job_lag_seconds' }), 1);
  const guess = () =>
    app.request('GET', '/metrics', { headers: { authorization: basic('x', 'y') }, from: '192.0.2.1' });
  for (let count = 0; count < 60; count++) t.equal((await guess()).status, 401);
  t.equal((await guess()).status, 429);
  t.equal((await app.request('GET', '/metrics', { ...OPERATOR, from: '192.0.2.1' })).status, 429);
  t.equal((await app.request('GET', '/metrics', OPERATOR)).status, 200, 'from elsewhere');
});

t.test(
  'metrics have names of Prometheus; docs/operate/metrics.md names exactly them, and dashboard and alerts no others',
  async (t) => {
    const read = (name: string) => readFileSync(new URL(`../../../../${name}`, import.meta.url), 'utf8');
    const settingsEncryptionKey = 'x'.repeat(43);
    const saas = await saasApp(t, { metrics: true, webhooks: true, settingsEncryptionKey });
    const idp = await idpApp(t, { metrics: true, emailSmtpUrl: 'smtp://127.0.0.1:9' });
    const scraped = [await scrape(saas), await scrapeIdp(idp)] as const;
    const exposed = scraped.flatMap(({ types }) => [...types.keys()]);
    t.ok(
      exposed.includes('process_resident_memory_bytes') &&
        exposed.includes('nodejs_eventloop_lag_p99_seconds'),
    );
    for (const [prefix, { types }] of [
      ['saas_backend_', scraped[0]],
      ['idp_', scraped[1]],
    ] as const)
      for (const [name, type] of types)
        if (!/^(process|nodejs)_/.test(name))
          t.same([name.startsWith(prefix), name.endsWith('_total')], [true, type === 'counter'], name);
    const own = exposed
      .map((name) => /^(?:saas_backend|idp)_(.*)/.exec(name)?.[1])
      .filter((name) => name !== undefined);
    const documented = [...read('docs/operate/metrics.md').matchAll(/^\| `(\w+)`/gm)].map(([, name]) => name);
    const absent = isTested('sqlite') ? [] : ['backup_last_success_timestamp_seconds'];
    t.same(documented.sort(), [...new Set([...own, ...absent])].sort());
    const dashboard = read('examples/grafana-dashboard.json');
    const used = [...dashboard.matchAll(/\$\{product\}_(\w+)/g)].map(([, name = '']) =>
      name.replace(/_bucket$/, ''),
    );
    const alerts = read('examples/prometheus-rules.yml').replace(/^ +summary: .*$/gm, '');
    const watched = [...alerts.matchAll(/\b(?:saas_backend|idp)_\w+/g)].map(([name]) => name);
    t.ok(used.length > 20 && watched.length > 20);
    t.same(
      used.filter((name) => ![...own, ...absent].includes(name)),
      [],
    );
    t.same(
      watched.filter((name) => !exposed.includes(name) && !absent.some((one) => name.endsWith(one))),
      [],
      'of each product itself',
    );
  },
);
