import t from 'tap';
import { readForm } from '../../kit/agent.js';
import { auditOf, basic, type SaasApp, SECRETS, saasApp, storeOf } from '../../kit/app.js';
import { countedRandom } from '../../kit/random.js';
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
