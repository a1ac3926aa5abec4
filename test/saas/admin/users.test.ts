import t, { type Test } from 'tap';
import { sessionCollection, userCollection } from '../../../src/saas/auth/store.js';
import { readForm } from '../../kit/agent.js';
import {
  type Account,
  ADMIN,
  auditOf,
  PASSWORD,
  type SaasApp,
  SECRETS,
  saasApp,
  storeOf,
} from '../../kit/app.js';
import { countedRandom } from '../../kit/random.js';
import { subscriptionObject } from '../../kit/stripe-objects.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { mailedApp, RESET, VERIFY } from '../auth/kit.js';
import { shop, subscriptionEvent } from '../billing/kit.js';
import { follow, sendForm, submit } from './kit.js';

/** Users in the admin area: the list, the page of a user, and what the operator changes there. */

const get = (app: SaasApp, path: string) => app.admin('GET', path);
const act = (app: SaasApp, path: string, fields: object = {}) =>
  app.request('POST', `/admin/api/users/${path}`, { headers: ADMIN, body: fields, from: '203.0.113.9' });
const userOf = async (app: SaasApp, id: string) => (await get(app, `/admin/api/users/${id}`)).body.data;
const me = async (app: SaasApp, { accessToken: token }: Pick<Account, 'accessToken'>) =>
  (await app.request('GET', '/api/auth/me', { token })).status;
const login = (app: SaasApp, { email }: Pick<Account, 'email'>) =>
  app.request('POST', '/api/auth/login', { body: { email, password: PASSWORD } });

/** The records of changes by the operator about a user, without what every one of them contains. */
async function changesOf(t: Test, app: SaasApp, subject: string) {
  const store = await storeOf(t, app);
  const records = (await auditOf(store)).filter((record) => record.subject === subject && record.by);
  return records.map(({ event, by, ip, detail }) => {
    if (by !== SECRETS.adminUsername || ip !== '203.0.113.9')
      throw new Error(`${event} names ${by} at ${ip}`);
    return detail === undefined ? event : `${event} ${detail}`;
  });
}

t.test('the list shows suspended, unverified and closed accounts', async (t) => {
  const app = await saasApp(t);
  const [ada, bob] = [await app.signUp(), await app.signUp()];
  await app.server.fastify.saas.users.create({ email: 'eve@example.test', emailVerified: true });
  await act(app, `${bob.id}/suspend`);
  const emails = async (query: string) =>
    (await get(app, `/admin/api/users?${query}`)).body.data.items.map(
      ({ email }: { email: string }) => email,
    );
  t.same(await emails('show=suspended'), [bob.email]);
  t.same(await emails('show=deleting'), []);
  t.same((await emails('show=unverified')).sort(), [ada.email, bob.email]);
  const users = userCollection(await storeOf(t, app));
  await users.updateOne(
    { id: ada.id },
    { set: { suspendedAt: app.clock.now(), deletingAt: app.clock.now() } },
  );
  t.same(await emails('show=deleting'), [ada.email]);
  const both = await get(app, '/admin/users?q=a&show=suspended');
  t.equal(both.status, 400, 'no index serves both');
  t.equal((await get(app, '/admin/api/users?show=other')).status, 400);
  const { items } = (await get(app, '/admin/api/users?show=suspended')).body.data;
  const item = items.find(({ email }: { email: string }) => email === ada.email);
  t.match(item, { state: 'deleting', suspendedAt: /T/, granted: null, hasPassword: true });
});

t.test('the page of a user shows the account and everything stored about it', async (t) => {
  const app = await saasApp(t);
  const ada = await app.signUp({ name: 'Ada <b>' });
  await login(app, ada);
  const { status, text } = await get(app, `/admin/users/${ada.id}`);
  t.equal(status, 200);
  t.match(text, ada.email);
  t.match(text, 'Ada &lt;b&gt;');
  t.match(text, /Signed up[\s\S]*E-mail “Welcome”/, 'the timeline');
  t.match((await get(app, `/admin/users/${ada.id}?tab=audit`)).text, 'user.registered');
  t.match((await get(app, `/admin/users/${ada.id}?tab=e-mails`)).text, 'Welcome');
  t.equal((await get(app, `/admin/users/${ada.id}?tab=none`)).status, 200, 'an unknown part is the summary');
  const user = await userOf(app, ada.id);
  t.match(user, { id: ada.id, name: 'Ada <b>', state: 'active', emailVerified: false, customers: [] });
  t.notMatch(JSON.stringify(user), /argon2|hash\b/i);
  for (const path of [
    '/admin/users/usr_unknown',
    '/admin/api/users/usr_unknown',
    '/admin/users/usr_unknown/suspend',
  ])
    t.equal((await get(app, path)).status, 404, path);
});

t.test('a suspended user is rejected from the next request on, in every process', async (t) => {
  const folder = temporaryFolder(t);
  const here = await saasApp(t, { folder });
  const there = await saasApp(t, { folder, clock: here.clock, random: countedRandom('there') });
  const ada = await here.signUp();
  t.equal(await me(there, ada), 200);
  t.equal((await act(here, `${ada.id}/suspend`)).status, 200);
  t.equal(await me(there, ada), 401);
  t.equal((await login(there, ada)).body.error.code, 'ACCOUNT_SUSPENDED');
  t.match(await userOf(here, ada.id), { state: 'suspended' });
  const sent = await submit(here, `/admin/users/${ada.id}/unsuspend`);
  t.equal(sent.status, 303);
  t.equal((await login(there, ada)).status, 200);
  t.match((await follow(here, `/admin/users/${ada.id}/unsuspend`, sent)).text, 'role="status"');
  const records = await auditOf(await storeOf(t, here));
  t.match(
    records.filter(({ by }) => by),
    [
      { event: 'user.suspended', subject: ada.id, by: 'operator', ip: '203.0.113.9' },
      { event: 'user.unsuspended', subject: ada.id, by: 'operator', ip: '127.0.0.1' },
    ],
  );
});

t.test('the operator ends one session or all of them', async (t) => {
  const app = await saasApp(t);
  const ada = await app.signUp();
  const bob = await app.signUp();
  const second = (await login(app, ada)).body.data;
  const listed = async () => (await get(app, `/admin/api/users/${ada.id}/sessions`)).body.data.items;
  const [one, two] = await listed();
  t.same([one.state, two.state], ['active', 'active']);
  const { body } = await app.request('GET', '/api/auth/me', { token: second.accessToken });
  const { id } = body.data.session;
  t.equal((await act(app, `${bob.id}/sessions/${id}/end`)).status, 404, 'of another user');
  t.equal((await act(app, `${ada.id}/sessions/${id}/end`)).status, 200);
  t.equal(await me(app, second), 401);
  t.equal(await me(app, ada), 200);
  t.equal((await act(app, `${ada.id}/sessions/${id}/end`)).status, 404, 'it has ended');
  t.same((await listed()).map(({ state }: { state: string }) => state).sort(), ['active', 'ended']);
  t.equal((await act(app, `${ada.id}/end-sessions`)).status, 200);
  t.equal(await me(app, ada), 401);
  t.equal(await me(app, bob), 200);
  t.same(await changesOf(t, app, ada.id), [`session.revoked ${id}`, 'session.revoked all']);
  app.clock.advance(31 * 86_400_000);
  t.match(await listed(), [{ state: /ended|expired/ }, { state: /ended|expired/ }]);
});

t.test('the operator sends links that set a password and verify the address', async (t) => {
  const app = await mailedApp(t);
  const ada = await app.signUp();
  t.equal((await act(app, `${ada.id}/send-reset`)).status, 200);
  const reset = await app.mail(RESET);
  t.same(reset.to, [ada.email]);
  t.equal((await act(app, `${ada.id}/send-verification`)).status, 200);
  const { token } = await app.mail(VERIFY);
  t.equal((await app.post('/auth/verify-email', { token, password: PASSWORD })).status, 200);
  t.match(await userOf(app, ada.id), { emailVerified: true });
  const again = await act(app, `${ada.id}/send-verification`);
  t.equal(again.status, 400, 'verified already');
  await act(app, `${ada.id}/suspend`);
  t.equal((await submit(app, `/admin/users/${ada.id}/send-reset`)).status, 400, 'suspended');
  t.same(await changesOf(t, app, ada.id), [
    'password.reset-sent',
    'email.verification-sent',
    'user.suspended',
  ]);
});

t.test('the operator changes the name of a user', async (t) => {
  const app = await saasApp(t);
  const ada = await app.signUp({ name: 'Ada' });
  t.equal((await act(app, `${ada.id}/rename`, { name: 'Ada Lovelace' })).status, 200);
  t.equal((await act(app, `${ada.id}/rename`, { name: 'Ada Lovelace' })).status, 200);
  t.equal((await act(app, `${ada.id}/rename`, { name: 'a\u0000b' })).status, 400);
  const wrong = await submit(app, `/admin/users/${ada.id}/rename`, { name: '   ' });
  t.equal(wrong.status, 400, 'the form has the rules of the API');
  t.match(wrong.text, /id="problem-name" role="alert"/);
  t.equal((await submit(app, `/admin/users/${ada.id}/rename`, { name: '' })).status, 303);
  t.equal((await userOf(app, ada.id)).name, '');
  const store = await storeOf(t, app);
  const details = (await auditOf(store))
    .filter(({ event }) => event === 'user.renamed')
    .map(({ detail }) => detail);
  t.same(details, [
    '{"before":{"name":"Ada"},"after":{"name":"Ada Lovelace"}}',
    '{"before":{"name":"Ada Lovelace"},"after":{"name":null}}',
  ]);
});

t.test('the operator grants a plan until a day, changes it and withdraws it', async (t) => {
  const app = await saasApp(t);
  const ada = await app.signUp();
  const entitled = () => app.server.fastify.saas.entitles(ada.id, 'pro');
  t.equal((await act(app, `${ada.id}/grant`, { plan: 'pro', until: '2040-01-01' })).status, 200);
  t.ok(await entitled(), 'on the last day');
  const { billing } = app.server.fastify.saas;
  t.match(await billing.get(ada.id), { status: 'granted', plan: 'pro', entitled: true });
  t.match(await billing.get('usr_unknown'), { status: 'none', plan: 'free', entitled: false });
  const form = async (verb: string) => (await app.admin('GET', `/admin/users/${ada.id}/${verb}`)).text;
  t.match(await form('grant'), /value="pro"[\s\S]*value="2040-01-01"/, 'the form shows what is stored');
  app.clock.advance(86_400_000);
  t.notOk(await entitled(), 'on the day after');
  for (const until of ['2039-12-31', '2040-02-31', '2041-13-01', 'soon'])
    t.equal((await act(app, `${ada.id}/grant`, { plan: 'pro', until })).status, 400, until);
  t.equal((await act(app, `${ada.id}/grant`, { plan: 'free' })).status, 400);
  t.equal((await submit(app, `/admin/users/${ada.id}/grant`, { plan: 'pro', until: '' })).status, 303);
  t.ok(await entitled());
  t.match(await userOf(app, ada.id), { granted: { plan: 'pro', until: null } });
  t.equal((await act(app, `${ada.id}/revoke-grant`)).status, 200);
  t.notOk(await entitled());
  const store = await storeOf(t, app);
  const records = (await auditOf(store)).filter(({ event }) => event.startsWith('plan.'));
  t.match(records, [
    { by: 'operator', detail: 'pro until 2040-01-02T00:00:00.000Z' },
    { by: 'operator', detail: 'pro, before: pro until 2040-01-02T00:00:00.000Z' },
    { by: 'operator', detail: 'pro' },
  ]);
});

t.test('the operator syncs the subscriptions of a user with the provider', async (t) => {
  const { app, api, buyer, subscribe, subscription } = await shop(t);
  const ada = await buyer();
  const truth = subscribe(ada);
  t.match(await subscription(ada), { status: 'none' });
  t.equal((await act(app, `${ada.id}/resync`)).status, 200);
  t.match(await subscription(ada), { status: truth.status });
  t.match(await userOf(app, ada.id), { customers: [{ id: ada.customer }] });
  api.fault = () => ({ status: 500, body: '{}' });
  t.equal((await act(app, `${ada.id}/resync`)).body.error.code, 'PAYMENT_PROVIDER_ERROR');
  api.fault = () => undefined;
  const bob = await app.signUp();
  t.equal((await act(app, `${bob.id}/resync`)).status, 400, 'without a customer');
  t.same(await changesOf(t, app, ada.id), [
    `user.resynced {"before":{"${truth.id}":null},"after":{"${truth.id}":"${truth.status}"}}`,
  ]);
  const plain = await saasApp(t);
  const eve = await plain.signUp();
  t.notMatch((await get(plain, `/admin/users/${eve.id}`)).text, 'Sync with');
  t.equal((await act(plain, `${eve.id}/resync`)).status, 404, 'nothing to sync with');
});

t.test('deleting a user needs the address as confirmation and cancels the subscriptions', async (t) => {
  const { app, api, buyer, deliver, subscribe } = await shop(t);
  const ada = await buyer();
  const truth = subscribe(ada);
  await deliver(subscriptionEvent('created', 0, subscriptionObject(truth)));
  for (const confirm of [undefined, '', 'ada', `${ada.email} `])
    t.equal((await act(app, `${ada.id}/delete`, confirm === undefined ? {} : { confirm })).status, 400);
  const wrong = await submit(app, `/admin/users/${ada.id}/delete`, { confirm: 'yes' });
  t.equal(wrong.status, 400);
  t.match(wrong.text, `must be ${ada.email}`);
  t.equal(await me(app, ada), 200, 'nothing happened');

  api.fault = () => ({ status: 500, body: '{}' });
  const failed = await act(app, `${ada.id}/delete`, { confirm: ada.email });
  t.equal(failed.body.error.code, 'PAYMENT_PROVIDER_ERROR');
  t.equal(await me(app, ada), 401, 'the account is closed at once');
  t.match(await userOf(app, ada.id), { state: 'deleting' });
  api.fault = () => undefined;
  await act(app, `${ada.id}/suspend`);
  const sent = await submit(app, `/admin/users/${ada.id}/delete`, { confirm: ada.email });
  t.equal(sent.status, 303);
  t.equal(truth.status, 'canceled');
  t.equal((await get(app, `/admin/api/users/${ada.id}`)).status, 404);
  const store = await storeOf(t, app);
  t.equal(await userCollection(store).findOne({ id: ada.id }), null);
  t.equal(await sessionCollection(store).count({ userId: ada.id }), 0);
  const events = (await auditOf(store)).filter(({ by, subject }) => by && subject === ada.id);
  t.match(events, [
    { event: 'user.closed', ip: '203.0.113.9' },
    { event: 'user.deleted', ip: '127.0.0.1' },
  ]);
});

t.test('the operator may delete a suspended user', async (t) => {
  const app = await saasApp(t);
  const ada = await app.signUp();
  await act(app, `${ada.id}/suspend`);
  t.equal((await act(app, `${ada.id}/delete`, { confirm: ada.email })).status, 200);
  t.equal((await login(app, ada)).status, 401);
});

t.test('the export of the operator is the export of the user, and is audited', async (t) => {
  const app = await saasApp(t);
  const ada = await app.signUp({ name: 'Ada' });
  await act(app, `${ada.id}/rename`, { name: 'Ada Lovelace' });
  const byUser = await app.request('GET', '/api/user/export', { token: ada.accessToken });
  const byOperator = await act(app, `${ada.id}/export`);
  t.equal(byOperator.status, 200);
  t.match(byOperator.headers, { 'content-disposition': `attachment; filename="${ada.id}.json"` });
  // A mail may be sent in between.
  const { audit, mails, ...rest } = byOperator.body.data;
  t.same({ ...rest, audit: [], mails: [] }, { ...byUser.body.data, audit: [], mails: [] });
  t.equal(mails.length, byUser.body.data.mails.length);
  const recorded = audit.map(({ event, ip }: { event: string; ip: string }) => `${event} ${ip}`);
  t.same(recorded.sort(), ['user.exported operator', 'user.registered 127.0.0.1', 'user.renamed operator']);
  t.notMatch(byUser.text, '203.0.113.9', 'the address of the operator is not the data of the user');
  await act(app, `${ada.id}/suspend`);
  t.match((await act(app, `${ada.id}/export`)).body.data.user, { suspendedAt: /^2040-/ });
  const page = await get(app, `/admin/users/${ada.id}`);
  t.match(page.text, `action="${ada.id}&#x2F;export"`);
  const forged = await sendForm(app, `/admin/users/${ada.id}/export`, { a: 'b' });
  t.equal(forged.status, 403);
  t.equal((await get(app, `/admin/users/${ada.id}/export`)).status, 405, 'a GET exports nothing');
  t.equal((await act(app, 'usr_unknown/export')).status, 404);
});

t.test('what a filter shows is changed one by one, after the number was typed', async (t) => {
  const app = await saasApp(t);
  const [ada, bob] = [await app.signUp(), await app.signUp()];
  await app.server.fastify.saas.users.create({ email: 'eve@example.test', emailVerified: true });
  const list = '/admin/users?show=unverified';
  const page = '/admin/users/all/suspend?show=unverified';
  t.match((await get(app, list)).text, 'users&#x2F;all&#x2F;suspend?show&#x3D;unverified');
  t.notMatch((await get(app, '/admin/users')).text, 'all&#x2F;suspend', 'never for all users');
  const shown = (await get(app, page)).text;
  t.match(shown, 'Suspend: 2');
  t.match(shown, ada.email);
  t.notMatch(shown, 'eve@example.test');
  t.notMatch(
    (await get(app, `${page}&token=planted4711`)).text,
    'planted4711',
    'of the query, only filters are repeated',
  );
  const wrong = await submit(app, page, { confirm: '3' });
  t.equal(wrong.status, 400);
  t.match(wrong.text, 'must be 2');
  t.equal(await me(app, ada), 200, 'nothing was changed');
  const old = readForm('http://x/', shown).fields;
  await app.server.fastify.saas.users.update({ id: bob.id }, { emailVerified: true });
  const eve = await app.signUp();
  const changed = await sendForm(app, page, { ...old, confirm: '2' });
  t.match([changed.status, changed.text], [409, 'The list has changed']);
  t.equal(await me(app, eve), 200, 'who was not shown is not changed');
  await app.server.fastify.saas.users.update({ id: bob.id }, { emailVerified: false });
  await app.server.fastify.saas.users.update({ id: eve.id }, { emailVerified: true });
  const done = await submit(app, page, { confirm: '2' });
  t.equal(done.status, 303);
  t.match((await follow(app, page, done)).text, 'All of them were changed.');
  t.same([await me(app, ada), await me(app, bob)], [401, 401]);
  t.match(
    (await auditOf(await storeOf(t, app)))
      .filter(({ subject }) => subject === bob.id)
      .map(({ event, by }) => `${event} ${by}`)
      .join(),
    `user.suspended ${SECRETS.adminUsername}`,
  );
  const bare = await get(app, '/admin/users/all/suspend');
  t.match([bare.status, bare.text], [400, 'Narrow the list']);
  const none = await submit(app, page, { confirm: '0' });
  t.equal(none.status, 303, 'who is suspended already is passed over');
});

t.test('what a search by any part of a name shows is changed, and nobody else', async (t) => {
  const app = await saasApp(t);
  const ada = await app.signUp({ email: 'ada.lovelace@example.test' });
  const eve = await app.signUp({ email: 'eve@example.test', name: 'Lovelace' });
  const bob = await app.signUp({ email: 'vela@example.test', name: 'Ce Love' });
  const page = '/admin/users/all/suspend?q=OVELACE';
  t.match((await get(app, '/admin/users?q=OVELACE')).text, 'users&#x2F;all&#x2F;suspend?q&#x3D;OVELACE');
  const shown = (await get(app, page)).text;
  t.match(shown, 'Suspend: 2');
  for (const { email } of [ada, eve]) t.match(shown, email);
  t.notMatch(shown, bob.email);
  await app.signUp({ email: 'late@example.test', name: 'Glovelace' });
  const fields = { ...readForm('http://x/', shown).fields, confirm: '2' };
  t.match((await sendForm(app, page, fields)).text, 'must be 3');
  t.match((await sendForm(app, page, { ...fields, confirm: '3' })).text, 'The list has changed');
  t.same([await me(app, ada), await me(app, eve)], [200, 200], 'nothing was changed');
  t.equal((await submit(app, page, { confirm: '3' })).status, 303);
  t.same([await me(app, ada), await me(app, eve), await me(app, bob)], [401, 401, 200]);
});

t.test('a plan is granted to all that a filter shows, also by the API', async (t) => {
  const app = await saasApp(t);
  const [ada, bob] = [await app.signUp(), await app.signUp()];
  const path = '/admin/api/users/all/grant?show=unverified';
  const past = await app.admin('POST', path, { plan: 'pro', until: '2001-01-01', confirm: '2' });
  t.equal(past.status, 400);
  t.match(past.text, 'must be today or a later date', 'a wrong field is wrong for all');
  t.equal((await app.admin('POST', path, { plan: 'pro' })).status, 400, 'the API needs the number, too');
  t.equal((await app.admin('POST', path, { plan: 'pro', confirm: '2' })).status, 200);
  for (const { id } of [ada, bob]) t.match((await userOf(app, id)).granted, { plan: 'pro' });
  t.equal(
    (await app.admin('POST', '/admin/api/users/all/grant?show=x', { plan: 'pro', confirm: '2' })).status,
    400,
  );
  t.equal((await app.request('POST', path, { body: { plan: 'pro', confirm: '2' } })).status, 401);
});
