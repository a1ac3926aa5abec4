import t from 'tap';
import { createServer } from '../../../src/saas/server.js';
import { readForm } from '../../kit/agent.js';
import {
  auditOf,
  basic,
  PASSWORD,
  type SaasApp,
  SECRETS,
  saasApp,
  storeOf,
  testOptions,
} from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { collectRoutes } from '../../kit/fuzz/engine.js';
import { countedRandom } from '../../kit/random.js';
import { readRows } from '../../kit/sqlite.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** The settings as a form, without JavaScript. */

const ADMIN = { authorization: basic() };
const FORM = { ...ADMIN, 'content-type': 'application/x-www-form-urlencoded' };

const PATH = '/admin/settings';

/** The page of the settings with the values of its form. */
async function formOf(app: SaasApp, path = PATH) {
  const { text } = await app.admin('GET', path);
  return { text, values: readForm(`http://x${PATH}`, text).fields };
}

/** As a browser sends it, without the header of programs. */
const send = (app: SaasApp, values: Record<string, string>, headers: Record<string, string> = {}) =>
  app.request('POST', PATH, {
    body: new URLSearchParams(values).toString(),
    headers: { ...FORM, ...headers },
  });

t.test('the operator changes the settings in a form', async (t) => {
  const app = await saasApp(t);
  const { values } = await formOf(app);
  t.match(values, { siteName: 'SaaS', allowRegistration: 'on', emailNotifications: 'on', version: '0' });
  const { allowRegistration, ...unticked } = values;
  const answer = await send(app, { ...unticked, siteName: 'Caf\u00e9 <&>', maintenanceMode: 'on' });
  t.equal(answer.status, 303);
  const next = new URL(answer.headers['location'] ?? '', 'http://x/admin/settings');
  t.equal(next.pathname, '/admin/settings');
  const after = await formOf(app, next.pathname + next.search);
  t.match(after.text, 'role="status"');
  t.notMatch((await formOf(app)).text, 'role="status"');
  const { body } = await app.request('GET', '/admin/api/settings', { headers: ADMIN });
  t.same(body.data, {
    siteName: 'Caf\u00e9 <&>',
    allowRegistration: false,
    maintenanceMode: true,
    emailNotifications: true,
    version: 1,
  });
  const [record] = await auditOf(await storeOf(t, app));
  t.match(record, { event: 'settings.changed', by: SECRETS.adminUsername, ip: '127.0.0.1' });
});

t.test('a form based on outdated settings is refused and shows the current ones', async (t) => {
  const app = await saasApp(t);
  const { values } = await formOf(app);
  t.equal((await send(app, { ...values, siteName: 'First' })).status, 303);
  const late = await send(app, { ...values, siteName: 'Second' });
  t.equal(late.status, 409);
  t.match(late.headers['content-type'], 'text/html');
  t.match(late.text, 'role="alert"');
  const { fields: shown } = readForm(`http://x${PATH}`, late.text);
  t.match(shown, { siteName: 'First', version: '1' });
  t.equal((await send(app, { ...shown, siteName: 'Third' })).status, 303);
  for (const siteName of ['', 'a\u0000b', 'x'.repeat(201)]) {
    const wrong = await send(app, { ...shown, version: '2', siteName }, { accept: 'text/html' });
    t.equal(wrong.status, 400);
  }
});

t.test("another site cannot submit the form, even with the browser's credentials", async (t) => {
  const app = await saasApp(t);
  const { values } = await formOf(app);
  const { token = '', ...without } = values;
  const forged: [Record<string, string>, Record<string, string>?][] = [
    [without],
    [{ ...without, token: '' }],
    [{ ...without, token: token.replace(/.$/, token.endsWith('A') ? 'B' : 'A') }],
    [{ ...without, token: `9${token}` }],
    [{ ...without, token: `${app.clock.now() + 1000}.${'A'.repeat(43)}` }],
    [values, { 'sec-fetch-site': 'cross-site' }],
    [values, { 'sec-fetch-site': 'same-site' }],
    [without, { 'x-requested-with': 'test' }],
  ];
  for (const [body, headers] of forged) {
    const answer = await send(app, body, headers);
    t.equal(answer.status, 403, JSON.stringify(headers));
    t.equal(answer.body.error.code, 'CSRF_REJECTED');
  }
  const json = { ...ADMIN, 'content-type': 'application/json', 'x-requested-with': 'test' };
  const byJson = await app.request('POST', '/admin/settings', { body: without, headers: json });
  t.equal(byJson.status, 403, 'and not as JSON either');
  const asForm = await app.request('PATCH', '/admin/api/settings', {
    body: 'siteName=x&version=0',
    headers: FORM,
  });
  t.equal(asForm.status, 415, 'no other route reads forms');
  t.equal((await app.request('POST', '/admin/settings', { body: 'x=1' })).status, 401);

  const nothing = await app.request('POST', '/admin/settings', { body: 'null', headers: json });
  t.equal(nothing.status, 403, 'nothing holds no token');

  app.clock.advance(12 * 3_600_000);
  t.equal((await send(app, values)).status, 403, 'a token of yesterday');
  app.clock.advance(-13 * 3_600_000);
  t.equal((await send(app, values)).status, 403, 'a token of a clock that was put back');
  app.clock.advance(3_600_000);
  t.match((await formOf(app)).values, { version: '0' }, 'nothing was changed');
});

t.test('the form token is valid in every process, and only for the same credentials', async (t) => {
  const folder = temporaryFolder(t);
  const here = await saasApp(t, { folder });
  const { clock } = here;
  const there = await saasApp(t, { folder, clock, random: countedRandom('there') });
  const changed = await saasApp(t, {
    folder,
    clock,
    random: countedRandom('changed'),
    adminPassword: 'Another:Kf82mQz71',
  });
  const { values } = await formOf(here);
  const headers = { authorization: basic('operator', 'Another:Kf82mQz71') };
  t.equal((await send(changed, values, headers)).status, 403);
  t.equal((await send(there, values)).status, 303);
});

t.test('the form and its redirect use the configured paths', async (t) => {
  const app = await saasApp(t);
  const origin = await app.listen();
  const answer = await fetch(`${origin}/admin/settings`, { headers: ADMIN });
  const { action, fields } = readForm(answer.url, await answer.text());
  const sent = await fetch(action, {
    method: 'POST',
    headers: { ...ADMIN, 'sec-fetch-site': 'same-origin' },
    body: new URLSearchParams({ ...fields, siteName: 'By a browser' }),
    redirect: 'follow',
  });
  t.equal(sent.status, 200);
  t.match(await sent.text(), 'By a browser');
});

/** What the admin area can change. Jobs, throttles, the audit and the attempts to send a mail change without it. */
const STATE = ['users', 'sessions', 'settings', 'subscriptions', 'payments', 'webhook_endpoints'];

t.test('no action takes what the page of another site sends, and no page changes anything', async (t) => {
  const options = testOptions(temporaryFolder(t));
  const server = createServer({
    ...options,
    ...{ clock: fakeClock(), webhooks: true, settingsEncryptionKey: 'settings-Kq8ZsT1mXe6YbN0cRj4HuPd9' },
    customSettings: { seats: { schema: { type: 'integer' }, default: 1 } },
  } as never);
  t.teardown(() => server.stop());
  const routes = collectRoutes(server.fastify);
  const inject = (method: string, url: string, headers = {}, payload: string | object = {}) =>
    server.fastify.inject({ method: method as 'POST', url, headers: { ...ADMIN, ...headers }, payload });
  const registered = await inject(
    'POST',
    '/api/auth/register',
    {},
    { email: 'ada@example.test', password: PASSWORD },
  );
  const { id } = registered.json().data.user;
  const sessions = (await inject('GET', `/admin/api/users/${id}/sessions`)).json().data.items;
  const file = options.databaseUri.replace('sqlite:', '');
  const state = () =>
    STATE.map((table) => JSON.stringify(readRows(file, `SELECT id, doc FROM ${table} ORDER BY id`)));
  const before = state();

  const changes = {
    name: 'Taken over',
    confirm: 'ada@example.test',
    plan: 'pro',
    siteName: 'Taken over',
    version: '0',
  };
  const token = `9${'9'.repeat(13)}.${'A'.repeat(43)}`;
  const form = new URLSearchParams({ ...changes, token }).toString();
  const json = JSON.stringify(changes);
  let actions = 0;
  for (const { method, url } of routes.filter((route) => /^\/admin\b/.test(route.url))) {
    const path = url.replace(':session', sessions[0].id).replace(':id', id);
    if (method === 'GET') {
      await inject('GET', path, { 'sec-fetch-site': 'cross-site' });
      continue;
    }
    actions++;
    for (const site of ['cross-site', 'same-site', undefined]) {
      const from = site ? { 'sec-fetch-site': site } : {};
      for (const [type, body] of [
        ['application/x-www-form-urlencoded', form],
        ['text/plain', json],
        ['application/json', json],
      ] as const) {
        const { statusCode } = await inject(method, path, { ...from, 'content-type': type }, body);
        t.ok([403, 415].includes(statusCode), `${method} ${path}, ${type} ${site}: ${statusCode}`);
      }
    }
  }
  t.ok(actions > 20, `${actions} actions`);
  t.same(state(), before);
});
