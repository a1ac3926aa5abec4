import t from 'tap';
import { userCollection } from '../../../src/saas/auth/store.js';
import { auditOf, errorOf, PASSWORD, type SaasApp, saasApp, storeOf } from '../../kit/app.js';
import { runProgram } from '../../kit/command-line.js';
import { mailedApp, RESET, VERIFY } from './kit.js';

/** The operator suspends and reactivates accounts. */

const login = (app: SaasApp, email: string, password = PASSWORD) =>
  app.request('POST', '/api/auth/login', { body: { email, password } });

t.test('a suspension takes effect on the next request and permanently ends every session', async (t) => {
  const app = await saasApp(t);
  const { users, events } = app.server.fastify.saas;
  const received: string[] = [];
  for (const name of ['user.suspended', 'user.unsuspended', 'session.revoked'] as const) {
    events.on(name, ({ userId }) => void received.push(`${name} ${userId}`));
  }
  const ada = await app.signUp();
  const second = (await login(app, ada.email)).body.data;
  const other = await app.signUp();

  t.equal((await users.find({ id: ada.id }))?.suspendedAt, null);
  const answer = await users.suspend({ email: ada.email.toUpperCase() });
  t.match(answer, { id: ada.id, suspendedAt: new Date(app.clock.now()).toISOString() });
  for (const { accessToken, refreshToken } of [ada, second]) {
    t.equal(await app.me({ accessToken }), 401);
    t.equal(errorOf(await app.post('/auth/refresh', { refreshToken })), 'INVALID_REFRESH_TOKEN');
  }
  t.match(await login(app, ada.email), { status: 403, body: { error: { code: 'ACCOUNT_SUSPENDED' } } });
  t.equal(await app.me(other), 200, 'no other account');

  app.clock.advance(1000);
  t.equal((await users.suspend({ id: ada.id })).suspendedAt, answer.suspendedAt, 'once');
  t.match(await users.unsuspend({ id: ada.id }), { id: ada.id, suspendedAt: null });
  t.match(await users.unsuspend({ id: ada.id }), { suspendedAt: null });
  for (const { accessToken, refreshToken } of [ada, second]) {
    t.equal(await app.me({ accessToken }), 401, 'sessions from before have ended for good');
    t.equal(errorOf(await app.post('/auth/refresh', { refreshToken })), 'INVALID_REFRESH_TOKEN');
  }
  const back = await login(app, ada.email);
  t.equal(back.status, 200);
  t.equal(await app.me(back.body.data), 200);

  t.same(received, [`session.revoked ${ada.id}`, `user.suspended ${ada.id}`, `user.unsuspended ${ada.id}`]);
  for (const by of [{ id: 'usr_nobody' }, { email: 'nobody@example.test' }, { email: 'no address' }]) {
    await t.rejects(users.suspend(by), { code: 'NOT_FOUND' });
    await t.rejects(users.unsuspend(by), { code: 'NOT_FOUND' });
  }
  const records = (await auditOf(await storeOf(t, app))).filter(({ event }) => /suspend|failed/.test(event));
  t.equal(records.length, 3, 'each once');
  t.match(records, [
    { event: 'user.suspended', subject: ada.id, ip: 'local' },
    { event: 'login.failed', subject: ada.id, detail: 'ACCOUNT_SUSPENDED' },
    { event: 'user.unsuspended', subject: ada.id, ip: 'local' },
  ]);
});

t.test('a link sent before a suspension never works again', async (t) => {
  const app = await mailedApp(t);
  const { users } = app.server.fastify.saas;
  const { id, email, accessToken: token } = await app.signUp();
  await app.post('/auth/forgot-password', { email });
  const reset = await app.tokenIn(RESET);
  await app.post('/auth/resend-verification', { email });
  const verify = await app.tokenIn(VERIFY);
  await app.post('/user/email', { email: 'new@example.test', password: PASSWORD }, { token });
  const change = await app.tokenIn(VERIFY);
  const follow = async () => {
    const answers = [
      await app.post('/auth/reset-password', { token: reset, password: 'another good password' }),
      await app.post('/auth/verify-email', { token: verify }),
      await app.post('/auth/verify-email', { token: change }),
    ];
    return answers.map(({ body }) => body.error?.code);
  };
  await users.suspend({ id });
  const invalid = ['INVALID_TOKEN', 'INVALID_TOKEN', 'INVALID_TOKEN'];
  t.same(await follow(), invalid);
  const mails = app.sink.mails.length;
  t.equal((await app.post('/auth/forgot-password', { email })).status, 200);
  await users.unsuspend({ id });
  t.same(await follow(), invalid);
  t.equal(app.sink.mails.length, mails, 'nor does a suspended account get a new one');
  t.equal((await login(app, email)).status, 200);
});

t.test('an account that is being deleted cannot be reactivated', async (t) => {
  const app = await saasApp(t);
  const { id } = await app.signUp();
  await userCollection(await storeOf(t, app)).updateOne({ id }, { set: { suspendedAt: 1, deletingAt: 1 } });
  const { users } = app.server.fastify.saas;
  await t.rejects(users.unsuspend({ id }), { code: 'NOT_FOUND' });
  await t.rejects(users.suspend({ id }), { code: 'NOT_FOUND' });
  t.match(await users.find({ id }), { suspendedAt: '1970-01-01T00:00:00.001Z' });
});

t.test('saas-backend user suspend takes effect in a running server at once', async (t) => {
  const app = await saasApp(t);
  const ada = await app.signUp({ email: 'ada@example.test' });
  const command = (...args: string[]) =>
    runProgram('saas-backend', ['user', ...args], { DATABASE_URI: app.databaseUri });
  const statuses = async () => [await app.me(ada), (await login(app, ada.email)).status];
  // The server has verified and cached the token.
  t.same(await statuses(), [200, 200]);

  const paid = { subscriptionStatus: 'past_due' };
  await userCollection(await storeOf(t, app)).updateOne({ id: ada.id }, { set: paid });
  const done = await command('suspend', ada.email, '--json');
  t.equal(done.code, 0, done.err);
  t.match(done.err, /The subscription continues to be charged/);
  t.match(JSON.parse(done.out), { email: ada.email, suspendedAt: /Z$/ });
  t.same(await statuses(), [401, 403]);
  t.match(await command('show', ada.email), { code: 0, out: /state +suspended since \d{4}-/ });

  t.match(await command('unsuspend', ada.email), { code: 0, out: /state +open/ });
  t.same(await statuses(), [401, 200]);

  t.match(await command('suspend', 'nobody@example.test'), { code: 1, err: 'The user was not found.\n' });
  t.match(await command('show', 'nobody@example.test'), { code: 1, err: /no user nobody@example\.test/ });
  t.match(await command('suspend'), { code: 2, err: /missing required argument 'user'/ });
});
