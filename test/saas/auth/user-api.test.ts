import t from 'tap';
import { userCollection } from '../../../src/saas/auth/store.js';
import { auditOf, PASSWORD, saasApp, storeOf } from '../../kit/app.js';
import { CHANGED, MOVED, mailedApp, RESET, VERIFY, WELCOME } from './kit.js';

/** What a host does with users: `fastify.saas.users`. */

t.test('a host lists users by state, plan and registration, page by page', async (t) => {
  const app = await saasApp(t);
  const { users } = app.server.fastify.saas;
  const start = app.clock.now();
  const ids: string[] = [];
  for (const [index, email] of ['a@x.test', 'b@x.test', 'c@x.test', 'd@y.test'].entries()) {
    const { id } = await users.create({
      email,
      createdAt: start - 1000 * (4 - index),
      emailVerified: index > 0,
    });
    ids.push(id);
  }
  const [a, b, c, d] = ids as [string, string, string, string];
  const idsOf = async (filter: Parameters<typeof users.list>[0]) =>
    (await users.list(filter)).users.map(({ id }) => id);
  await users.suspend({ id: b });
  t.same(await idsOf({}), [d, c, b, a], 'the newest first');
  t.same(await idsOf({ state: 'active' }), [d, c, a]);
  t.same(await idsOf({ state: 'suspended' }), [b]);
  t.same(await idsOf({ state: 'unverified' }), [a]);
  t.same(await idsOf({ registeredSince: start - 2000 }), [d, c]);
  t.same(await idsOf({ registeredSince: start - 3000, state: 'active' }), [d, c]);
  const documents = userCollection(await storeOf(t, app));
  await documents.updateOne({ id: c }, { set: { subscriptionPlan: 'pro' } });
  t.same(await idsOf({ subscriptionPlan: 'pro' }), [c]);
  await users.grant({ id: d }, { plan: 'pro' });
  t.same(await idsOf({ subscriptionPlan: 'pro' }), [c], 'a grant is no subscription');
  t.same(await idsOf({ subscriptionPlan: 'free', state: 'active' }), [d, a]);

  const first = await users.list({ limit: 3 });
  t.equal(first.users.length, 3);
  const second = await users.list({ limit: 3, after: first.next as string });
  t.match(second, { users: [{ id: a }], next: null });

  t.same(
    (await users.search('C@')).users.map(({ id }) => id),
    [c],
  );
  t.same(
    (await users.search(d)).users.map(({ id }) => id),
    [d],
  );
  t.equal((await users.search('x.test')).users.length, 0, 'only the beginning');
  const wrong: [Promise<unknown>, string][] = [
    [users.search(''), 'text'],
    [users.search('ä'), 'text'],
    [users.list({ limit: 0 }), 'limit'],
    [users.list({ limit: 201 }), 'limit'],
    [users.list({ state: 'gone' as never }), 'state'],
    [users.list({ subscriptionPlan: '' }), 'subscriptionPlan'],
    [users.list({ plan: 'pro' } as never), 'plan'],
    [users.list({ registeredSince: -1 }), 'registeredSince'],
    [users.list({ after: 'nonsense' }), 'after'],
  ];
  for (const [call, path] of wrong)
    await t.rejects(call, { code: 'VALIDATION_ERROR', details: [{ path }] }, path);
  t.match(await users.get({ email: 'A@x.test' }), { id: a });
  await t.rejects(users.get({ id: 'usr_none' }), { code: 'NOT_FOUND' });
});

t.test(
  'an address that a host changes is unverified, gets a link, and the old one gets a notice',
  async (t) => {
    const app = await mailedApp(t);
    const { users } = app.server.fastify.saas;
    const ada = await app.signUp({ email: 'old@example.test' });
    await app.mail(WELCOME);
    await app.signUp({ email: 'taken@example.test' });
    await app.mail(WELCOME);
    await app.post('/auth/forgot-password', { email: ada.email });
    const reset = await app.tokenIn(RESET);

    await t.rejects(users.update({ id: ada.id }, { email: 'Taken@example.test' }), { code: 'EMAIL_TAKEN' });
    t.match(await users.update({ email: ada.email }, { email: 'New@example.test', name: 'Ada' }), {
      id: ada.id,
      email: 'new@example.test',
      name: 'Ada',
      emailVerified: false,
    });
    const mails = [await app.nextMail(), await app.nextMail()];
    t.match(
      mails.find(({ subject }) => MOVED.test(subject)),
      { to: ['old@example.test'] },
    );
    const verify = mails.find(({ subject }) => VERIFY.test(subject));
    t.match(verify, { to: ['new@example.test'] });
    t.equal(await app.me(ada), 200, 'sessions stay');
    const late = await app.post('/auth/reset-password', { token: reset, password: 'another long sentence' });
    t.equal(late.status, 400, 'earlier links are invalid');
    const verified = await app.post('/auth/verify-email', {
      token: verify?.token as string,
      password: PASSWORD,
    });
    t.equal(verified.status, 200);
    t.match(await users.find({ id: ada.id }), { emailVerified: true });

    await users.update({ id: ada.id }, { email: 'third@example.test', emailVerified: true });
    t.match(await app.nextMail(), { to: ['new@example.test'], subject: MOVED }, 'no link is needed');
    t.match(await users.get({ id: ada.id }), { email: 'third@example.test', emailVerified: true });
  },
);

t.test('a password that a host sets ends every session, and the user gets a notice', async (t) => {
  const app = await mailedApp(t);
  const { users } = app.server.fastify.saas;
  const ada = await app.signUp();
  await app.mail(WELCOME);
  const password = 'a sentence of the operator';
  const ended: unknown[] = [];
  app.server.fastify.saas.events.on('session.revoked', (event) => ended.push(event));
  await t.rejects(users.update({ id: ada.id }, { password: 'short' }), { code: 'VALIDATION_ERROR' });
  await users.update({ id: ada.id }, { password });
  t.match(await app.mail(CHANGED), { to: [ada.email] });
  t.equal(await app.me(ada), 401);
  t.match(ended, [{ userId: ada.id, scope: 'global' }]);
  const login = async (given: string) =>
    (await app.post('/auth/login', { email: ada.email, password: given })).status;
  t.equal(await login(ada.password), 401);
  t.equal(await login(password), 200);
  const [record] = (await auditOf(await storeOf(t, app))).filter(({ event }) => event === 'user.updated');
  t.match(record, { subject: ada.id, ip: 'local', detail: /"password":"set"/ });
  t.notMatch(record?.detail, password);
});

t.test('an update refuses what creation refuses, and changes nothing', async (t) => {
  const app = await saasApp(t);
  const { users } = app.server.fastify.saas;
  const { id } = await users.create({ email: 'a@example.test', name: 'Ada' });
  const before = await users.get({ id });
  const wrong: [object, string][] = [
    [{ email: 'no address' }, 'email'],
    [{ name: 'a\u202eb' }, 'name'],
    [{ emailVerified: 'yes' }, 'emailVerified'],
    [{ password: 7 }, 'password'],
    [{ publicMetadata: [] }, 'publicMetadata'],
    [{ publicMetadata: null }, 'publicMetadata'],
    [{ privateMetadata: { a: 1n } }, 'privateMetadata'],
    [{ privateMetadata: { a: 'x'.repeat(8192) } }, 'privateMetadata'],
    [{ nickname: 'x' }, 'nickname'],
  ];
  for (const [change, path] of wrong)
    await t.rejects(
      users.update({ id }, { ...{ name: 'Eve' }, ...change } as never),
      { code: 'VALIDATION_ERROR', details: [{ path }] },
      path,
    );
  t.same(await users.get({ id }), before);
  t.same(await users.update({ id }, { name: 'Ada', email: 'A@example.test' }), before, 'nothing to change');
  t.notOk((await users.update({ id }, { name: '' })).name);
  await users.delete({ id });
  await t.rejects(users.update({ id }, { name: 'x' }), { code: 'NOT_FOUND' });
});

t.test('only the host and the export of the user contain private metadata', async (t) => {
  const app = await saasApp(t);
  const { users } = app.server.fastify.saas;
  const ada = await app.signUp();
  const token = ada.accessToken;
  const privateMetadata = { crmId: 'kanarienvogel', list: [1, { deep: null }] };
  const publicMetadata = { theme: 'dark', __proto: 1, 'a.b$c': '', ['\u0000']: '\ud800' };
  const updated = await users.update({ id: ada.id }, { privateMetadata, publicMetadata });
  t.same(updated.privateMetadata, privateMetadata);
  t.same(updated.publicMetadata, publicMetadata, 'every JSON object is stored');
  t.same((await users.update({ id: ada.id }, { privateMetadata: { list: null } })).privateMetadata, {
    crmId: 'kanarienvogel',
  });

  const me = await app.request('GET', '/api/auth/me', { token });
  t.same(me.body.data.user.publicMetadata, publicMetadata);
  const login = await app.post('/auth/login', { email: ada.email, password: ada.password });
  const refreshed = await app.post('/auth/refresh', { refreshToken: ada.refreshToken });
  const profile = await app.request('PATCH', '/api/user/profile', { token, body: { name: 'Ada' } });
  const list = await app.admin('GET', '/admin/api/users');
  for (const { text } of [me, login, refreshed, profile, list]) t.notMatch(text, 'kanarienvogel');
  const payload = Buffer.from(login.body.data.accessToken.split('.')[1], 'base64url').toString();
  t.notMatch(payload, /theme|kanarienvogel/, 'tokens contain no metadata');

  const exported = await app.request('GET', '/api/user/export', { token });
  t.match(exported.body.data.user, {
    publicMetadata: { theme: 'dark' },
    privateMetadata: { crmId: 'kanarienvogel' },
  });
  const page = await app.admin('GET', `/admin/api/users/${ada.id}`);
  t.match(page.body.data, { privateMetadata: { crmId: 'kanarienvogel' } });
  t.match((await app.admin('GET', `/admin/users/${ada.id}`)).text, /Private metadata<\/dt><dd>\{&quot;crmId/);
  const [record] = (await auditOf(await storeOf(t, app))).filter(({ event }) => event === 'user.updated');
  t.notMatch(record?.detail, 'kanarienvogel');

  const cleared = await users.update({ id: ada.id }, { privateMetadata: { crmId: null } });
  t.notOk('privateMetadata' in cleared, 'absent if it is empty');
  const created = await users.create({ email: 'b@example.test', privateMetadata: { a: 1 } });
  t.same(created.privateMetadata, { a: 1 });
});

t.test('of concurrent changes of metadata, none is lost', async (t) => {
  const COUNT = 20;
  const { users } = (await saasApp(t)).server.fastify.saas;
  const { id } = await users.create({ email: 'a@example.test', publicMetadata: { removed: true } });
  const merges = Array.from({ length: COUNT }, (_, index) =>
    users.update(
      { id },
      { publicMetadata: { [`key${index}`]: index }, privateMetadata: { [`key${index}`]: 1 } },
    ),
  );
  await Promise.all([...merges, users.update({ id }, { publicMetadata: { removed: null }, name: 'Ada' })]);
  const { publicMetadata = {}, privateMetadata = {}, name } = await users.get({ id });
  t.equal(Object.keys(publicMetadata).length, COUNT);
  t.equal(Object.keys(privateMetadata).length, COUNT);
  t.equal(name, 'Ada');
});

t.test('a host deletes an account, and ends and lists sessions', async (t) => {
  const app = await mailedApp(t);
  const { users, events } = app.server.fastify.saas;
  const ada = await app.signUp();
  await app.mail(WELCOME);
  const other = await app.post('/auth/login', { email: ada.email, password: ada.password });
  const { sessions } = await users.sessions.list({ id: ada.id });
  t.match(sessions, [{ state: 'active' }, { state: 'active' }]);
  const me = await app.request('GET', '/api/auth/me', { token: other.body.data.accessToken });
  await users.sessions.revoke({ email: ada.email }, me.body.data.session.id);
  await t.rejects(users.sessions.revoke({ id: ada.id }, me.body.data.session.id), { code: 'NOT_FOUND' });
  t.equal(await app.me({ accessToken: other.body.data.accessToken }), 401);
  t.equal(await app.me(ada), 200);
  const page = await users.sessions.list({ id: ada.id }, { limit: 1 });
  t.equal(page.sessions.length, 1);
  t.ok(page.next);
  await users.sessions.revokeAll({ id: ada.id });
  t.equal(await app.me(ada), 401);

  await users.sendPasswordReset({ id: ada.id });
  t.match(await app.mail(RESET), { to: [ada.email] });
  await users.sendVerification({ id: ada.id });
  t.match(await app.mail(VERIFY), { to: [ada.email] });

  const deleted: unknown[] = [];
  events.on('user.deleted', (event) => deleted.push(event));
  await users.delete({ email: ada.email });
  t.equal(await users.find({ id: ada.id }), null);
  t.match(deleted, [{ userId: ada.id }]);
  await t.rejects(users.delete({ id: ada.id }), { code: 'NOT_FOUND' });
  await t.rejects(users.sessions.list({ id: ada.id }), { code: 'NOT_FOUND' });
});
