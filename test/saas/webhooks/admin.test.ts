import { readFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { collectionNames } from '../../../src/core/storage/inspect.js';
import { ATTENTION_EVENTS } from '../../../src/saas/admin/attention.js';
import { AGENT_EVENTS } from '../../../src/saas/agents/schemas.js';
import { AUTH_EVENTS } from '../../../src/saas/auth/events.js';
import { BILLING_EVENTS } from '../../../src/saas/billing/notifications.js';
import {
  ADMIN,
  type Answer,
  auditOf,
  PASSWORD,
  type SaasApp,
  SECRETS,
  saasApp,
  storeOf,
} from '../../kit/app.js';
import { waitUntil } from '../../kit/wait.js';
import { submit } from '../admin/kit.js';
import { KEY, type Received, receiver, verify } from './kit.js';

/** Webhooks through the admin area: endpoints, deliveries, and the events of accounts. */

const webhooksApp = (t: Test, more: object = {}) =>
  saasApp(t, { webhooks: true, settingsEncryptionKey: KEY, ...more });

const act = async (app: SaasApp, path: string, body: object = {}): Promise<Answer> =>
  app.admin('POST', `/admin/api/${path}`, body);
const data = async (app: SaasApp, path: string) => (await app.admin('GET', `/admin/api/${path}`)).body.data;

/** Adds an endpoint; returns its ID and its secret. */
async function add(app: SaasApp, url: string, more: object = {}) {
  const { status, body, text } = await act(app, 'endpoints/create', { url, ...more });
  if (status !== 200) throw new Error(text);
  return body.data as { endpointId: string; secret: string };
}

const typesOf = (received: readonly Received[]) => received.map(({ event }) => event.type);

t.test('without the option, there are no routes, collections or pages of webhooks', async (t) => {
  const app = await saasApp(t);
  for (const path of ['/admin/endpoints', '/admin/deliveries', '/admin/api/endpoints'])
    t.equal((await app.admin('GET', path)).status, 404, path);
  t.notMatch((await app.admin('GET', '/admin/')).text, 'endpoints');
  t.notMatch((await collectionNames(app.databaseUri)).join(), /webhook_(endpoints|deliveries)/);
});

t.test('every event of an account reaches an endpoint, with what listeners get and no secrets', async (t) => {
  const hook = await receiver(t);
  const app = await webhooksApp(t);
  const { secret } = await add(app, hook.url);
  const heard: { id: string }[] = [];
  const { events } = app.server.fastify.saas;
  const names = [
    'user.registered',
    'session.revoked',
    'user.suspended',
    'user.unsuspended',
    'user.deleted',
  ] as const;
  for (const name of names) events.on(name, (event) => void heard.push(event));
  const ada = await app.signUp();
  const bob = await app.signUp();
  const logout = { body: { refreshToken: ada.refreshToken, scope: 'local' } };
  await app.request('POST', '/api/auth/logout', logout);
  await act(app, `users/${bob.id}/suspend`);
  await act(app, `users/${bob.id}/unsuspend`);
  const again = await app.request('POST', '/api/auth/login', {
    body: { email: ada.email, password: PASSWORD },
  });
  const { accessToken } = again.body.data;
  const changed = await app.request('POST', '/api/user/password', {
    body: { currentPassword: PASSWORD, newPassword: `${PASSWORD}!` },
    token: accessToken,
  });
  t.equal(changed.status, 200, changed.text);
  const closed = { body: { password: `${PASSWORD}!` }, token: accessToken };
  t.equal((await app.request('POST', '/api/user/delete', closed)).status, 200);
  const expected = [
    ...['user.registered', 'user.registered', 'session.revoked', 'session.revoked', 'user.suspended'],
    ...['user.unsuspended', 'session.revoked', 'session.revoked', 'user.deleted'],
  ];
  await waitUntil('all events', () => hook.received.length >= expected.length);
  t.same(typesOf(hook.received).sort(), expected.sort());
  t.same(
    hook.received.map(({ event }) => event.data['id']).sort(),
    heard.map(({ id }) => id).sort(),
    'the same IDs as in fastify.saas.events',
  );
  for (const request of hook.received) verify(request, secret);
  const sent = hook.received.map(({ body, headers }) => body + JSON.stringify(headers)).join();
  const { adminUsername: _, ...secrets } = SECRETS;
  for (const hidden of [
    PASSWORD,
    ada.accessToken,
    ada.refreshToken,
    accessToken,
    secret,
    ...Object.values(secrets),
  ])
    t.notOk(sent.includes(hidden));
  t.notMatch(sent, /hash|\$argon2|token/i);
});

t.test('the operator adds, changes, disables and removes an endpoint', async (t) => {
  const hook = await receiver(t);
  const app = await webhooksApp(t);
  const wrong = await act(app, 'endpoints/create', { url: 'http://example.com/hook' });
  t.match(wrong, {
    status: 400,
    body: { error: { details: [{ path: 'url', message: 'must begin with https://' }] } },
  });
  const unknown = await act(app, 'endpoints/create', { url: hook.url, events: 'user.registred' });
  t.match(unknown.body.error.details, [{ path: 'events', message: /user\.registred/ }]);
  t.equal((await act(app, 'endpoints/create', {})).status, 400);

  const shown = await submit(app, '/admin/endpoints/create', {
    url: hook.url,
    description: 'CRM',
    events: ['user.registered', 'user.deleted'],
  });
  t.equal(shown.status, 200);
  const [secret = ''] = /whsec_[A-Za-z0-9+/&#x;]+={0,1}/.exec(shown.text) ?? [];
  t.match(secret, /^whsec_/);
  const { items } = await data(app, 'endpoints');
  const [{ id }] = items;
  t.match(items, [
    { url: hook.url, description: 'CRM', events: ['user.registered', 'user.deleted'], state: 'enabled' },
  ]);
  const page = await app.admin('GET', `/admin/endpoints/${id}`);
  t.match(page.text, 'CRM');
  for (const text of [
    page.text,
    JSON.stringify(await data(app, `endpoints/${id}`)),
    (await app.admin('GET', '/admin/endpoints.csv')).text,
  ])
    t.notMatch(text, /whsec_|v1\./, 'the secret is not shown again');

  const update = `/admin/endpoints/${id}/update`;
  const form = (await app.admin('GET', update)).text;
  t.strictSame(
    [...form.matchAll(/value="([\w.]+)" checked/g)].map(([, name]) => name),
    ['user.registered', 'user.deleted'],
  );
  t.match(
    form,
    /<legend>Organization<\/legend>\s*<label class="switch"><input type="checkbox" name="events"/,
  );
  const one = { url: hook.url, events: 'user.deleted' };
  t.equal((await submit(app, update, one)).status, 303);
  t.match(await data(app, `endpoints/${id}`), { events: ['user.deleted'] });
  const refused = await submit(app, update, { url: 'no', events: ['user.deleted', 'invoice.paid'] });
  t.equal(refused.status, 400);
  t.equal(refused.text.match(/ checked/g)?.length, 2, 'the choice stays');
  t.equal((await submit(app, update, { ...one, events: 'user.registred' })).status, 400);

  t.equal((await submit(app, update, { url: `${hook.url}/new` })).status, 303);
  t.match(await data(app, `endpoints/${id}`), { url: `${hook.url}/new`, description: '', events: [] });
  const rotated = await act(app, `endpoints/${id}/rotate`, { atOnce: 'no' });
  t.match(rotated.body.data, { endpointId: id, secret: /^whsec_/ });
  t.match(await data(app, `endpoints/${id}`), { previousSecretUntil: String });
  t.match((await submit(app, `/admin/endpoints/${id}/rotate`, { atOnce: 'yes' })).text, 'whsec_');
  t.match(await data(app, `endpoints/${id}`), { previousSecretUntil: null });

  t.equal((await submit(app, `/admin/endpoints/${id}/disable`, {})).status, 303);
  t.match(await data(app, `endpoints/${id}`), { state: 'disabled' });
  t.match(await act(app, `endpoints/${id}/test`), {
    status: 409,
    body: { error: { code: 'ENDPOINT_DISABLED' } },
  });
  await app.signUp();
  t.equal((await submit(app, `/admin/endpoints/${id}/enable`, {})).status, 303);
  t.match((await act(app, `endpoints/${id}/test`)).body.data, { deliveryId: /^dlv_/ });
  await waitUntil('the test event', () => hook.received.length === 1);
  t.match(hook.received, [{ path: '/new', event: { type: 'webhook.test', data: { endpointId: id } } }]);
  t.equal((await submit(app, `/admin/endpoints/${id}/remove`, {})).status, 303);
  for (const path of [`endpoints/${id}`, 'endpoints/whe_0', 'deliveries/dlv_0'])
    t.equal((await app.admin('GET', `/admin/api/${path}`)).status, 404, path);
  t.same((await data(app, 'deliveries')).items, []);
  const audited = (await auditOf(await storeOf(t, app))).map(({ event }) => event);
  t.same(
    audited.filter((event) => event.startsWith('webhook.')),
    [
      ...['endpoint-created', 'endpoint-changed', 'endpoint-changed', 'secret-rotated', 'secret-rotated'],
      ...['endpoint-disabled', 'endpoint-enabled', 'tested', 'endpoint-removed'],
    ].map((name) => `webhook.${name}`),
  );
});

t.test('deliveries show their payload, attempts and the escaped answer, and are sent again', async (t) => {
  const hook = await receiver(t);
  const app = await webhooksApp(t, { metrics: true });
  const { endpointId } = await add(app, hook.url, { events: 'user.registered' });
  hook.state.answer = (_, response) => response.writeHead(500).end('<script>alert(1)</script>');
  await app.signUp({ name: '<b>Ada</b>' });
  await waitUntil(
    'an attempt is stored',
    async () => (await data(app, 'deliveries')).items[0]?.lastResult !== null,
  );
  const { items } = await data(app, `deliveries?status=pending&event=user.registered&endpoint=${endpointId}`);
  t.match(items, [{ status: 'pending', attempts: 1, lastResult: 'status 500', nextAttemptAt: String }]);
  const [{ id }] = items;
  for (const filter of ['status=failed', 'event=user.deleted', 'endpoint=whe_1'])
    t.same((await data(app, `deliveries?${filter}`)).items, [], filter);
  const page = await app.admin('GET', `/admin/deliveries/${id}`);
  t.match(page.text, '&lt;script&gt;alert(1)&lt;');
  t.notMatch(page.text, /<script>alert|<b>Ada/);
  t.match(await data(app, `deliveries/${id}`), {
    answer: '<script>alert(1)</script>',
    history: [{ result: 'status 500' }],
  });
  t.match(await act(app, `deliveries/${id}/resend`), {
    status: 409,
    body: { error: { code: 'DELIVERY_PENDING' } },
  });
  t.match((await app.admin('GET', '/admin/endpoints')).text, 'Failing');
  const metrics = async () => (await app.request('GET', '/api/metrics', { headers: ADMIN })).text;
  app.clock.advance(2000);
  t.match(await metrics(), /webhook_pending_deliveries 1\n/);
  t.match(await metrics(), /webhook_oldest_pending_age_seconds 2\n/);
  t.match(await metrics(), /webhook_attempts_total\{result="refused"\} 1\n/);

  hook.state.answer = undefined;
  await act(app, `endpoints/${endpointId}/disable`);
  await act(app, `endpoints/${endpointId}/enable`);
  t.match(await metrics(), /webhook_failed_deliveries 1\n/);
  t.match((await app.admin('GET', `/admin/deliveries/${id}`)).text, 'Send again');
  t.equal((await submit(app, `/admin/deliveries/${id}/resend`, {})).status, 303);
  await waitUntil(
    'it is delivered',
    async () => (await data(app, `deliveries/${id}`)).status === 'delivered',
  );
  t.same((await act(app, `endpoints/${endpointId}/resend`)).body.data, { count: 0 });
  t.match(await data(app, `endpoints/${endpointId}`), { state: 'enabled', lastSuccessAt: String });
  t.equal(hook.received.length, 2);
  t.equal(hook.received[0]?.headers['webhook-id'], hook.received[1]?.headers['webhook-id']);
});

t.test('the overview names endpoints that fail or were disabled for it', async (t) => {
  const hook = await receiver(t);
  hook.state.answer = (_, response) => response.writeHead(500).end();
  const app = await webhooksApp(t);
  const named = async () => {
    const { attention } = await data(app, 'overview');
    return attention
      .map(({ name }: { name: string }) => name)
      .filter((name: string) => /endpoint/.test(name));
  };
  const { endpointId } = await add(app, hook.url);
  t.same(await named(), []);
  await act(app, `endpoints/${endpointId}/test`);
  await waitUntil(
    'the failure',
    async () => (await data(app, `endpoints/${endpointId}`)).state === 'failing',
  );
  t.same(await named(), ['failing-endpoints']);
  hook.state.answer = (_, response) => response.writeHead(410).end();
  await act(app, `endpoints/${endpointId}/test`);
  await waitUntil('the end', async () => (await data(app, `endpoints/${endpointId}`)).state === 'disabled');
  t.same(await named(), ['disabled-endpoints']);
  await act(app, `endpoints/${endpointId}/enable`);
  await act(app, `endpoints/${endpointId}/disable`);
  t.same(await named(), [], 'what the operator disables needs no attention');
});

t.test('every event is documented', async (t) => {
  const page = readFileSync(new URL('../../../../docs/saas/webhooks.md', import.meta.url), 'utf8');
  for (const name of Object.keys({ ...AUTH_EVENTS, ...BILLING_EVENTS, ...AGENT_EVENTS, ...ATTENTION_EVENTS }))
    t.ok(page.includes(`\`${name}\``), name);
});
