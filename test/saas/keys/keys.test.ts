import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { promisify } from 'node:util';
import express from 'express';
import t from 'tap';
import { DAY, MINUTE } from '../../../src/core/kernel/clock.js';
import { keyCollection } from '../../../src/saas/keys/store.js';
import { createServer } from '../../../src/saas/server.js';
import { auditOf, errorOf, PASSWORD, saasApp, storeOf, testOptions } from '../../kit/app.js';
import { countedRandom } from '../../kit/random.js';
import { sentence } from '../../kit/sentences.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { blocksOf } from '../../package/documents/blocks.js';
import { RESET } from '../auth/kit.js';
import { keyed, listed, SECRET } from './kit.js';

const NEW = { name: 'Nightly build', scopes: ['files:read'] };

t.test('a key is shown once, acts for its user with its scopes, and ends at once', async (t) => {
  const app = await keyed(t);
  const ada = await app.person('ada');
  const { host, send } = app;
  const call = async (method: 'GET' | 'POST' | 'DELETE', url: string, payload?: object) =>
    host.inject({
      ...{ method, url: `/api${url}`, headers: { authorization: `Bearer ${ada.accessToken}` } },
      ...(payload && { payload }),
    });
  const created = await call('POST', '/user/keys', NEW);
  t.equal(created.statusCode, 201);
  const { key, secret } = created.json().data;
  t.match(secret, SECRET);
  const view = {
    ...{ id: key.id, name: 'Nightly build', scopes: ['files:read'], networks: [], userId: ada.id },
    createdAt: new Date(app.clock.now()).toISOString(),
    ...{ expiresAt: null, replacedBy: null, lastUsedAt: null, lastUsedFrom: null },
  };
  t.same(key, view);
  const list = await call('GET', '/user/keys');
  t.same(list.json().data.keys, [view]);
  t.ok(list.json().data.availableScopes.includes('files:read'), 'those of the application, too');
  t.notMatch(list.body, /hash|sk_/);

  t.match((await send(secret, 'GET /files')).body, {
    ...{ user: ada.id, key: { id: key.id, name: 'Nightly build' }, scopes: ['files:read'], isSession: false },
    ...{ actor: undefined, client: undefined },
  });
  const wrong = await send(secret, 'GET /api/user/profile');
  t.match(wrong, { status: 403, code: 'INSUFFICIENT_SCOPE', body: { message: /profile:read/ } });
  const unknown = await send(`sk_${'y'.repeat(43)}`, 'GET /files');
  t.match(unknown, { status: 401, headers: { 'www-authenticate': /invalid_token/ } });

  t.equal((await call('DELETE', `/user/keys/${key.id}`)).statusCode, 200);
  t.equal((await send(secret, 'GET /files')).code, 'UNAUTHENTICATED');
  t.equal((await call('DELETE', `/user/keys/${key.id}`)).statusCode, 404);
  const store = await storeOf(t, app);
  const told = (await auditOf(store)).filter(({ event }) => event.startsWith('keys.'));
  t.match(told, [
    { event: 'keys.created', subject: ada.id, detail: key.id },
    { event: 'keys.ended', subject: ada.id, detail: key.id },
  ]);
  const mail = await app.mail(sentence('mail.key-created.subject'));
  t.same(mail.to, [ada.email]);
  t.notMatch(mail.text, /Nightly/, 'no text that anyone chose');
});

t.test('the commands of the guide work as printed', async (t) => {
  const app = await keyed(t);
  const ada = await app.person('ada');
  const url = await app.host.listen({ port: 0, host: '127.0.0.1' });
  const [create, use] = blocksOf('docs/saas/api-keys.md').filter(({ language }) => language === 'sh');
  const run = async (text = '', env: Record<string, string> = {}) => {
    const command = text.replaceAll('https://app.example.com', url);
    const { stdout } = await promisify(execFile)('sh', ['-ec', command], { env: { ...process.env, ...env } });
    return JSON.parse(stdout);
  };
  const created = await run(create?.text, { ACCESS_TOKEN: ada.accessToken });
  t.match(created.data.secret, SECRET);
  t.match(await run(use?.text, { API_KEY: created.data.secret }), { user: ada.id });
});

t.test('a key is not in the store, and not in the export', async (t) => {
  const app = await keyed(t);
  const ada = await app.person('ada');
  const { secret } = await app.create(ada);
  await app.send(secret, 'GET /files');
  const exported = await ada.call('GET', '/user/export');
  t.match(exported.body.data.apiKeys, [{ name: 'Nightly build', userId: ada.id }]);
  t.notMatch(exported.text, /"hash"/);
  const { items } = await keyCollection(await storeOf(t, app)).page({ sort: 'id', limit: 10 });
  t.equal(items.length, 1);
  for (const text of [exported.text, JSON.stringify(items)]) t.notOk(text.includes(secret));
});

t.test('what a new key must be', async (t) => {
  const { clock, create, person } = await keyed(t);
  const ada = await person('ada');
  const refused = async (more: object, message: RegExp) => t.rejects(create(ada, more), message);
  await refused({ scopes: ['files:raed'] }, /must be of .*files:read.*Did you mean 'files:read'/);
  await refused({ scopes: [] }, /scopes/);
  await refused({ name: ' ' }, /name/);
  await refused({ networks: ['10.0.0.0/33'] }, /networks.*must be addresses or networks/);
  await refused({ networks: ['10.0.0.1.1'] }, /networks.*10\.0\.0\.1\.1/);
  await refused({ expiresAt: '2027-02-31T00:00:00Z' }, /expiresAt.*must be a time to come/);
  await refused({ expiresAt: '2027-02-30' }, /expiresAt/);
  await refused({ expiresAt: '2027-02-31T00:00:00+02:00' }, /must be a time to come/);
  await refused({ expiresAt: new Date(clock.now()).toISOString() }, /must be a time to come/);
});

t.test('creation and rotation need a recent sign-in, ending does not', async (t) => {
  const app = await keyed(t, { accessTokenTtl: 3600 });
  const ada = await app.person('ada');
  const { id } = await app.create(ada);
  app.clock.advance(11 * MINUTE);
  const created = await ada.call('POST', '/user/keys', { ...NEW, scopes: ['profile:read'] });
  t.equal(errorOf(created), 'REAUTHENTICATION_REQUIRED');
  const rotated = await ada.call('POST', `/user/keys/${id}/rotate`, {});
  t.equal(errorOf(rotated), 'REAUTHENTICATION_REQUIRED');
  t.equal((await ada.call('DELETE', `/user/keys/${id}`)).status, 200);
});

t.test('nobody reaches a key of another user or organization', async (t) => {
  const app = await keyed(t);
  const [ada, eve] = [await app.person('ada'), await app.person('eve')];
  const ours = await app.organize(ada);
  const theirs = await app.organize(eve, 'Theirs');
  const own = await app.create(ada);
  const shared = await app.create(ada, {}, ours.id);
  for (const path of [
    `/user/keys/${own.id}`,
    `/user/keys/${shared.id}`,
    `/organizations/${theirs.id}/keys/${shared.id}`,
  ]) {
    t.equal(errorOf(await eve.call('POST', `${path}/rotate`, {})), 'NOT_FOUND', path);
    t.equal(errorOf(await eve.call('DELETE', path)), 'NOT_FOUND', path);
  }
  t.equal(errorOf(await eve.call('GET', `/organizations/${ours.id}/keys`)), 'ORGANIZATION_NOT_FOUND');
  t.equal(errorOf(await ada.call('DELETE', `/user/keys/${shared.id}`)), 'NOT_FOUND', 'not of the user');
  await app.join(ada, ours.id, eve);
  for (const [method, path] of [
    ['GET', ''],
    ['POST', `/${shared.id}/rotate`],
    ['DELETE', `/${shared.id}`],
  ])
    t.equal(
      errorOf(
        await eve.call(
          String(method),
          `/organizations/${ours.id}/keys${path}`,
          method === 'POST' ? {} : undefined,
        ),
      ),
      'ROLE_REQUIRED',
    );
  t.equal((await app.send(shared.secret, 'GET /team')).status, 200);
});

t.test('a rotation replaces a key, which remains valid for the overlap', async (t) => {
  const app = await keyed(t);
  const ada = await app.person('ada');
  const expiresAt = new Date(app.clock.now() + 90 * DAY).toISOString();
  const { id, secret } = await app.create(ada, { expiresAt, networks: ['127.0.0.0/8'] });
  app.clock.advance(DAY);
  const { accessToken: token } = (await app.post('/auth/login', { email: ada.email, password: PASSWORD }))
    .body.data;
  const rotate = (key: string, body: object = {}) => app.post(`/user/keys/${key}/rotate`, body, { token });
  const answer = await rotate(id);
  t.equal(answer.status, 201);
  const { key, secret: next } = answer.body.data;
  t.match(key, { name: 'Nightly build', networks: ['127.0.0.0/8'], replacedBy: null });
  t.equal(Date.parse(key.expiresAt), app.clock.now() + 90 * DAY, 'the same lifetime');
  const [, before] = listed(await app.request('GET', '/api/user/keys', { token }));
  t.match(before, { id, replacedBy: key.id, expiresAt: new Date(app.clock.now() + DAY).toISOString() });
  for (const valid of [secret, next]) t.equal((await app.send(valid, 'GET /files')).status, 200);
  t.equal(errorOf(await rotate(id)), 'KEY_ENDED');
  app.clock.advance(DAY);
  t.match(await app.send(secret, 'GET /files'), { code: 'UNAUTHENTICATED', body: { message: /expired/ } });
  t.equal((await app.send(next, 'GET /files')).status, 200);

  const again = (await app.post('/auth/login', { email: ada.email, password: PASSWORD })).body.data
    .accessToken;
  const body = { overlapSeconds: 0 };
  const last = await app.post(`/user/keys/${key.id}/rotate`, body, { token: again });
  t.equal((await app.send(next, 'GET /files')).code, 'UNAUTHENTICATED', 'without an overlap');
  t.equal((await app.send(last.body.data.secret, 'GET /files')).status, 200);
  const tooLong = await app.post(
    `/user/keys/${last.body.data.key.id}/rotate`,
    { overlapSeconds: 604_801 },
    { token: again },
  );
  t.equal(errorOf(tooLong), 'VALIDATION_ERROR');
  const store = await storeOf(t, app);
  const names = (await auditOf(store)).map(({ event }) => event).filter((event) => event.startsWith('keys.'));
  t.same(names, ['keys.created', 'keys.rotated', 'keys.rotated']);
});

t.test('an overlap never prolongs a key', async (t) => {
  const app = await keyed(t);
  const ada = await app.person('ada');
  const end = app.clock.now() + 2 * MINUTE;
  const { id } = await app.create(ada, { expiresAt: new Date(end).toISOString() });
  t.equal((await ada.call('POST', `/user/keys/${id}/rotate`, {})).status, 201);
  const [, before] = listed(await ada.call('GET', '/user/keys'));
  t.match(before, { id, expiresAt: new Date(end).toISOString() });
});

t.test('a key of an organization is worth what its responsible member is', async (t) => {
  const app = await keyed(t);
  const [ada, bob] = [await app.person('ada'), await app.person('bob')];
  const { id } = await app.organize(ada);
  await app.join(ada, id, bob, 'admin');
  const key = await app.create(bob, {}, id);
  const team = (secret: string) => app.send(secret, 'GET /team');
  t.match((await team(key.secret)).body, {
    organization: { id, role: 'admin' },
    key: { id: key.id, organizationId: id },
  });
  t.equal((await app.send(key.secret, 'GET /projects')).status, 200);
  const { organizations, users } = app.host.saas;
  await organizations?.changeRole(id, bob.id, 'member');
  t.equal((await app.send(key.secret, 'GET /projects')).code, 'ROLE_REQUIRED', 'the role of now');
  await users.suspend({ id: bob.id });
  t.equal((await team(key.secret)).code, 'ACCOUNT_SUSPENDED');
  await users.unsuspend({ id: bob.id });
  t.equal((await team(key.secret)).status, 200);

  // Another member takes it over before bob leaves.
  const rotated = await ada.call('POST', `/organizations/${id}/keys/${key.id}/rotate`, {});
  t.match(rotated.body.data.key, {
    userId: ada.id,
    scopes: ['files:read', 'profile:read', 'billing:read', 'billing:write'],
  });
  await organizations?.removeMember(id, bob.id);
  t.equal((await team(key.secret)).code, 'ORGANIZATION_NOT_FOUND');
  t.equal((await team(rotated.body.data.secret)).status, 200);

  await users.delete({ id: bob.id });
  t.equal((await team(key.secret)).code, 'UNAUTHENTICATED');
  const keys = keyCollection(await storeOf(t, app));
  t.equal(await keys.count({ userId: bob.id }), 0);
  t.equal((await ada.call('DELETE', `/organizations/${id}`)).status, 200);
  t.equal((await team(rotated.body.data.secret)).code, 'UNAUTHENTICATED');
  t.equal(await keys.count(), 0);
});

t.test('a new owner of an address and a deleted account have no keys, also without the option', async (t) => {
  const app = await keyed(t);
  const stranger = await app.signUp({ email: 'grace@example.test' });
  const { secret } = await app.create({ ...stranger, call: app.request });
  t.equal((await app.send(secret, 'GET /files')).status, 200);
  const without = await saasApp(t, {
    ...{ clock: app.clock, random: countedRandom('without'), databaseUri: app.databaseUri },
    emailSmtpUrl: app.sink.url,
  });
  t.equal((await without.request('GET', '/api/user/profile', { token: secret })).status, 401);
  t.equal((await without.request('GET', '/api/user/keys', { token: stranger.accessToken })).status, 404);
  await without.post('/auth/forgot-password', { email: stranger.email });
  await without.server.start();
  const reset = { token: await app.tokenIn(RESET), password: 'another battery staple horse' };
  t.equal((await without.post('/auth/reset-password', reset)).status, 200);
  t.equal((await app.send(secret, 'GET /files')).code, 'UNAUTHENTICATED');
  const store = await storeOf(t, app);
  t.match(
    (await auditOf(store)).filter(({ event }) => event === 'keys.ended'),
    [{ subject: stranger.id }],
  );

  const ada = await app.person('ada');
  await app.create(ada);
  const closed = await without.post('/user/delete', { password: PASSWORD }, { token: ada.accessToken });
  t.equal(closed.status, 200);
  t.equal(await keyCollection(store).count(), 0);
});

t.test('a key is accepted from its networks only, and a refusal is in the audit', async (t) => {
  const app = await keyed(t);
  const ada = await app.person('ada');
  const networks = ['203.0.113.0/24', '2001:db8:7::/48', '198.51.100.7'];
  const { id, secret } = await app.create(ada, { networks });
  const from = async (address: string) => (await app.send(secret, 'GET /files', {}, address)).code ?? 'ok';
  for (const address of [
    '203.0.113.0',
    '203.0.113.255',
    '2001:db8:7:9::1',
    '198.51.100.7',
    '::ffff:203.0.113.9',
  ])
    t.equal(await from(address), 'ok', address);
  for (const address of ['203.0.112.255', '203.0.114.0', '2001:db8:8::1', '198.51.100.8', '127.0.0.1', '::1'])
    t.equal(await from(address), 'FORBIDDEN', address);
  const refused = (await auditOf(await storeOf(t, app))).filter(({ event }) => event === 'keys.refused');
  t.match(refused[0], { subject: ada.id, detail: id, ip: '203.0.112.255' });
  t.equal((await app.send(`sk_${'z'.repeat(43)}`, 'GET /files')).code, 'UNAUTHENTICATED');
});

t.test('the last use is known within five minutes, and is written that often only', async (t) => {
  const app = await keyed(t);
  const ada = await app.person('ada');
  const { id, secret } = await app.create(ada);
  const keys = keyCollection(await storeOf(t, app));
  const lastUse = async () => (await keys.findOne({ id }))?.lastUsedAt;
  const first = app.clock.now();
  await app.send(secret, 'GET /files', {}, '2001:db8:7:9::1');
  await waitUntil('the use is written', async () => (await lastUse()) === first);
  t.match(listed(await ada.call('GET', '/user/keys')), [{ lastUsedFrom: '2001:db8:7:9::/64' }]);
  app.clock.advance(5 * MINUTE - 1);
  await app.send(secret, 'GET /files');
  app.clock.advance(1);
  await app.send(secret, 'GET /files');
  await waitUntil('the use is written', async () => (await lastUse()) === first + 5 * MINUTE);
});

t.test('requests count for each key from any address, and guesses for each address', async (t) => {
  const app = await keyed(t, { limits: true });
  const ada = await app.person('ada');
  const [mine, other] = [await app.create(ada), await app.create(ada)];
  for (let count = 0; count < 300; count++)
    await app.send(mine.secret, 'GET /files', {}, `198.51.${count % 100}.7`);
  t.equal((await app.send(mine.secret, 'GET /files', {}, '203.0.113.9')).status, 429);
  t.equal((await app.send(other.secret, 'GET /files', {}, '203.0.113.9')).status, 200, 'another key');
  const guess = (count: number) =>
    app.send(`sk_${String(count).padStart(43, 'g')}`, 'GET /files', {}, '203.0.113.77');
  const codes: (string | undefined)[] = [];
  for (let count = 0; count < 14; count++) codes.push((await guess(count)).code);
  t.same([codes[0], codes.at(-1)], ['UNAUTHENTICATED', 'RATE_LIMITED']);
  t.equal(
    (await app.send(other.secret, 'GET /files', {}, '203.0.113.77')).status,
    200,
    'a right key is accepted',
  );
});

t.test('an owner has 50 keys, of which those that were replaced or have expired do not count', async (t) => {
  const app = await keyed(t);
  const ada = await app.person('ada');
  const { id } = await app.organize(ada);
  const short = new Date(app.clock.now() + MINUTE).toISOString();
  const made = [await app.create(ada), await app.create(ada, { expiresAt: short })];
  for (let count = 2; count < 50; count++) made.push(await app.create(ada));
  await t.rejects(app.create(ada), /TOO_MANY_KEYS/);
  await app.create(ada, {}, id);
  t.equal(
    (await ada.call('POST', `/user/keys/${made[0]?.id}/rotate`, {})).status,
    201,
    'a rotation needs no room',
  );
  await t.rejects(app.create(ada), /TOO_MANY_KEYS/);
  app.clock.advance(MINUTE);
  await app.create(ada);
  await t.rejects(app.create(ada), /TOO_MANY_KEYS/);
});

t.test('keys that expired 30 days ago are purged', async (t) => {
  const app = await keyed(t);
  const ada = await app.person('ada');
  await app.create(ada, { expiresAt: new Date(app.clock.now() + MINUTE).toISOString() });
  const { id } = await app.create(ada);
  const keys = keyCollection(await storeOf(t, app));
  /** Another process, which purges as it starts. */
  const start = async (seed: string) => {
    const { clock, databaseUri } = app;
    const { server } = await saasApp(t, { clock, databaseUri, apiKeys: true, random: countedRandom(seed) });
    return server;
  };
  app.clock.advance(29 * DAY);
  await (await start('first')).stop();
  t.equal(await keys.count(), 2);
  app.clock.advance(2 * DAY);
  await start('second');
  await waitUntil('the key is gone', async () => (await keys.count()) === 1);
  t.ok(await keys.findOne({ id }));
});

t.test('Express: allowAgents states the scope for keys, too', async (t) => {
  const app = await keyed(t);
  const ada = await app.person('ada');
  const { id: organization } = await app.organize(ada);
  const backend = createServer({
    ...testOptions(temporaryFolder(t)),
    ...{
      clock: app.clock,
      databaseUri: app.databaseUri,
      middleware: true,
      apiKeys: true,
      organizations: true,
    },
  });
  t.teardown(() => backend.stop());
  const express_ = express();
  express_.use(backend.middleware);
  express_.get('/files', backend.allowAgents('files:read'), backend.requireUser, (request, response) => {
    response.json({ user: request.saas.user.id, key: request.saas.key?.name });
  });
  express_.get('/team', backend.allowAgents('files:read'), backend.requireMember(), (request, response) => {
    response.json({ organization: request.saas.organization.id });
  });
  express_.get('/people', backend.requireUser, (_request, response) => {
    response.json({});
  });
  const server = createHttpServer(express_).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const get = async (path: string, token: string) => {
    const answer = await fetch(url + path, { headers: { authorization: `Bearer ${token}` } });
    return { status: answer.status, body: await answer.json() };
  };
  const networks = ['127.0.0.1'];
  const mine = await app.create(ada, { networks });
  const ours = await app.create(ada, { networks }, organization);
  t.match(await get('/files', mine.secret), { status: 200, body: { user: ada.id, key: 'Nightly build' } });
  t.match(await get('/team', ours.secret), { status: 200, body: { organization } });
  t.match(await get('/files', ours.secret), { status: 403, body: { error: { code: 'FORBIDDEN' } } });
  t.equal((await get('/people', mine.secret)).status, 403);
  t.equal((await get('/files', `${mine.secret}x`)).status, 401);
  t.equal((await get('/files', (await app.create(ada, { networks: ['192.0.2.1'] })).secret)).status, 403);
});

t.test('a key that changes a subscription is named in the audit', async (t) => {
  const app = await keyed(t);
  const ada = await app.person('ada');
  const { id, secret } = await app.create(ada);
  const me = await app.request('GET', '/api/auth/me', { token: secret });
  t.match(me.body.data, { user: { id: ada.id }, session: null, key: { id, name: 'Nightly build' } });
  const direct = await app.host.saas
    .authenticate({ authorization: `Bearer ${secret}` })
    .catch((error) => error);
  t.match(direct, { statusCode: 401 }, 'where there is no route, people only');
});
