import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { sessionCollection, userCollection } from '../../../src/saas/auth/store.js';
import { customerCollection } from '../../../src/saas/billing/store.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { auditOf, PASSWORD, storeOf } from '../../kit/app.js';
import { sentence } from '../../kit/sentences.js';
import { waitUntil } from '../../kit/wait.js';
import { words } from '../../kit/words.js';
import { CHANGED, type MailedApp, MOVED, mailedApp, RESET, VERIFY, WELCOME } from './kit.js';

const NEW = 'a different sentence entirely';
const KEY = 'sk_test_51Qm7vLd0mXw4RkT9cYb2NfHs6';
const DAY = 24 * 60 * 60 * 1000;

/** All events that the host receives. */
function recordEvents({ server }: MailedApp): { name: string; event: Record<string, unknown> }[] {
  const received: { name: string; event: Record<string, unknown> }[] = [];
  for (const name of ['user.registered', 'user.verified', 'user.deleted', 'session.revoked'] as const) {
    server.fastify.saas.events.on(name, (event) => received.push({ name, event: { ...event } }));
  }
  return received;
}

const eventsOf = async (t: Test, app: MailedApp) =>
  (await auditOf(await storeOf(t, app))).map(({ event }) => event);

t.test('registration sends a welcome e-mail, and a verification link on request', async (t) => {
  const app = await mailedApp(t);
  const received = recordEvents(app);
  const { email, id, accessToken: token } = await app.signUp({ name: 'Ada' });
  const welcome = await app.nextMail();
  t.match(welcome, { to: [email], subject: WELCOME, text: sentence('mail.welcome.text', { email }) });
  t.match(received, [{ name: 'user.registered', event: { id: /^evt_/, userId: id, user: { email } } }]);

  for (const address of ['nobody@example.test', email]) {
    const answer = await app.post('/auth/resend-verification', { email: address });
    t.match(answer, { status: 200, body: { success: true, message: /has been sent/ } });
  }
  const link = await app.mail(VERIFY);
  t.strictSame(link.to, [email]);
  t.equal(
    (await app.post('/auth/verify-email', { token: `${link.token}x`, password: PASSWORD })).status,
    400,
  );
  const stored = await userCollection(await storeOf(t, app)).findOne({ id });
  const [now, end] = [app.clock.now(), stored?.verifyExpiresAt ?? 0];
  t.ok(Math.abs(end - now - DAY) < 60_000);
  app.clock.set(end);
  t.equal(
    (await app.post('/auth/verify-email', { token: link.token, password: PASSWORD })).status,
    400,
    'a day is over',
  );
  app.clock.set(now);
  t.equal((await app.post('/auth/verify-email', { token: link.token, password: PASSWORD })).status, 200);
  t.match(await app.post('/auth/verify-email', { token: link.token, password: NEW }), {
    status: 400,
    body: { error: { code: 'INVALID_TOKEN' } },
  });
  t.equal((await app.request('GET', '/api/user/profile', { token })).body.data.emailVerified, true);
  t.match(received.slice(1), [{ name: 'user.verified', event: { userId: id } }]);
  await app.post('/auth/resend-verification', { email });
  await app.close();
  t.equal(app.sink.mails.length, 2, 'a confirmed address needs no link');
});

t.test('emailNotifications turns off the welcome e-mail but no security e-mail', async (t) => {
  const app = await mailedApp(t);
  const settings = { emailNotifications: false, version: 0 };
  t.equal((await app.admin('PATCH', '/admin/api/settings', settings)).status, 200);
  const { email } = await app.signUp();
  await app.post('/auth/forgot-password', { email });
  t.match(await app.nextMail(), { subject: RESET });
});

t.test('where addresses must be confirmed, no answer reveals which are registered', async (t) => {
  const app = await mailedApp(t, { requireEmailVerification: true });
  const received = recordEvents(app);
  const register = async (email: string, password = PASSWORD) => {
    const calls = app.random.calls;
    const { status, body, headers } = await app.post('/auth/register', { email, password });
    const { date, 'x-request-id': id, ...others } = headers;
    return { answer: { status, body, others }, salted: app.random.calls > calls };
  };
  const first = await register('ada@example.test');
  t.match(first.answer, { status: 202, body: { success: true, message: /link/ } });
  t.notOk('data' in first.answer.body);
  const link = await app.mail(VERIFY);
  t.strictSame(link.to, ['ada@example.test']);

  const login = (password: string) => app.post('/auth/login', { email: 'ada@example.test', password });
  t.match(await login(PASSWORD), { status: 403, body: { error: { code: 'EMAIL_NOT_VERIFIED' } } });
  t.match(await login('wrong'), { status: 401, body: { error: { code: 'INVALID_CREDENTIALS' } } });

  const second = await register('ADA@example.test', NEW);
  t.same(second, first, 'the same answer and a hash, too');
  const way = await app.mail(RESET);
  t.strictSame(way.to, ['ada@example.test'], 'the owner gets a way in');
  t.equal(
    (await app.post('/auth/verify-email', { token: link.token, password: PASSWORD })).status,
    400,
    'a password chosen by another person is not confirmed',
  );
  t.equal((await login(NEW)).status, 401);
  t.equal((await app.post('/auth/reset-password', { token: way.token, password: NEW })).status, 200);
  t.equal((await login(NEW)).status, 200);
  t.match(await app.mail(WELCOME), { to: ['ada@example.test'] });
  t.match(
    received.map(({ name }) => name),
    ['user.registered', 'user.verified', 'session.revoked'],
  );

  const { accessToken: token } = (await login(NEW)).body.data;
  t.same((await register('ada@example.test')).answer, first.answer, 'also once it is confirmed');
  await register('eve@example.test');
  const change = (email: string) => app.post('/user/email', { email, password: NEW }, { token });
  const toTaken = await change('eve@example.test');
  const toFree = await change('free@example.test');
  t.equal(toTaken.status, 202);
  t.same(toTaken.body, toFree.body);
  await app.close();
  const { items } = await mailCollection(await storeOf(t, app)).page({ sort: 'id', limit: 100 });
  const toEve = items.filter(({ to }) => to === 'eve@example.test');
  t.equal(toEve.length, 1, 'nothing is sent to the owner of a taken address on behalf of others');
});

t.test('an e-mail field takes one plain address, and the answer reveals no internals', async (t) => {
  const app = await mailedApp(t);
  const register = (more: object) =>
    app.post('/auth/register', { email: 'Victim@Example.com', password: PASSWORD, ...more });
  const wrong: [string, string[]][] = [
    [
      'email',
      [
        ...words(`
          a＠evil.test victim@exam\u200bple.com victim@example.com. a@example.com,b@example.com
          "quoted"@example.com péter@example.com a@bücher.example a@b@example.com a@example @example.com
          a..b@example.com ${'a'.repeat(65)}@example.com a@${'b.'.repeat(130)}test`),
        ...['a @example.com', 'a@example.com\r\nBcc: b@example.com', ''],
      ],
    ],
    ['name', ['a\0b', 'a\r\nb', '\u202ecod.exe', '\ud800', 'a'.repeat(201)]],
    ['password', ['short', 'x'.repeat(1025), '\ud800 lone surrogate', 'ü'.repeat(3)]],
    ['fullName', ['Ada']],
  ];
  for (const [path, values] of wrong) {
    for (const value of values) {
      const answer = await register({ [path]: value });
      t.match(answer, { status: 400, body: { error: { details: [{ path }] } } }, JSON.stringify(value));
    }
  }
  t.equal(await userCollection(await storeOf(t, app)).count(), 0, 'nothing was stored');
  const { status, body } = await register({});
  t.equal(status, 201);
  t.same(Object.keys(body.data).sort(), ['accessToken', 'expiresIn', 'refreshToken', 'user']);
  const shown = ['createdAt', 'email', 'emailVerified', 'id', 'name', 'subscription'];
  t.same(Object.keys(body.data.user).sort(), shown);
  t.equal(body.data.user.email, 'victim@example.com');
  t.equal((await register({ email: 'VICTIM@example.COM' })).status, 409);
});

t.test('registration can be closed, and maintenance closes everything but the admin area', async (t) => {
  const app = await mailedApp(t, { emailLogin: true });
  const account = await app.signUp();
  const set = async (body: object) =>
    t.equal((await app.admin('PATCH', '/admin/api/settings', body)).status, 200);
  await set({ allowRegistration: false, version: 0 });
  const answer = await app.post('/auth/register', { email: 'new@example.test', password: PASSWORD });
  t.match(answer, { status: 403, body: { error: { code: 'REGISTRATION_DISABLED' } } });
  await set({ maintenanceMode: true, version: 1 });
  const closed = [
    ...['/auth/login', '/auth/forgot-password', '/auth/reset-password', '/auth/verify-email', '/user/delete'],
    ...['/auth/email-login', '/auth/email-login/redeem'],
  ];
  for (const path of closed) t.equal((await app.post(path, {})).status, 503, path);
  const page = await app.request('GET', '/api/auth/reset-password?token=x');
  t.equal(page.status, 503);
  t.match(page.headers['content-type'], /^text\/html/);
  t.equal(await app.me(account), 503);
  t.equal((await app.post('/auth/refresh', { refreshToken: account.refreshToken })).status, 200);
  t.equal((await app.admin('GET', '/admin')).status, 200);
});

t.test('the audit log records who did what from where, and no secret', async (t) => {
  const app = await mailedApp(t);
  const { email, accessToken: token, id } = await app.signUp();
  await app.post('/auth/forgot-password', { email });
  const reset = await app.tokenIn(RESET);
  await app.post('/user/email', { email: 'new@example.test', password: 'wrong' }, { token });
  await app.post('/user/email', { email: 'new@example.test', password: PASSWORD }, { token });
  const change = await app.tokenIn(VERIFY);
  await app.post('/auth/verify-email', { token: change }, { token });
  await app.post('/user/password', { currentPassword: 'wrong', newPassword: NEW }, { token });
  await app.post('/user/password', { currentPassword: PASSWORD, newPassword: NEW }, { token });
  await app.post('/user/delete', { password: 'wrong' }, { token });
  await app.post('/user/delete', { password: NEW }, { token });
  const records = await auditOf(await storeOf(t, app));
  t.same(
    records.map(({ event }) => event).sort(),
    words(`
      user.registered password.forgotten email.change-refused email.change-asked email.changed
      password.change-refused password.changed user.deletion-refused user.closed user.deleted`).sort(),
  );
  for (const record of records) t.match(record, { subject: id, ip: '127.0.0.1', at: Number });
  const all = JSON.stringify(records);
  for (const secret of [PASSWORD, NEW, reset, change, token, email]) t.notOk(all.includes(secret));
});

t.test('changing the password requires the current one and ends all other sessions at once', async (t) => {
  const app = await mailedApp(t);
  const received = recordEvents(app);
  const account = await app.signUp();
  const { email, accessToken: token, id } = account;
  const other = (await app.post('/auth/login', { email, password: PASSWORD })).body.data;
  const change = (body: object) => app.post('/user/password', body, { token });
  t.equal(
    (await change({ currentPassword: 'wrong', newPassword: NEW })).body.error.code,
    'INVALID_CREDENTIALS',
  );
  t.equal((await change({ currentPassword: PASSWORD, newPassword: 'short' })).status, 400);
  t.equal((await change({ newPassword: NEW })).status, 400);
  t.equal((await app.post('/user/password', { currentPassword: PASSWORD, newPassword: NEW })).status, 401);
  t.equal(await app.me(other), 200);

  t.equal((await change({ currentPassword: PASSWORD, newPassword: NEW })).status, 200);
  t.equal(await app.me(account), 200, 'this session goes on');
  t.equal((await app.post('/auth/refresh', { refreshToken: account.refreshToken })).status, 200);
  t.equal(await app.me(other), 401);
  t.match(received.at(-1), { name: 'session.revoked', event: { userId: id, scope: 'others' } });
  t.strictSame((await app.mail(CHANGED)).to, [email]);
  t.ok((await eventsOf(t, app)).includes('password.changed'));
  for (let count = 0; count < 10; count++) await change({ currentPassword: 'wrong', newPassword: PASSWORD });
  t.equal((await change({ currentPassword: NEW, newPassword: PASSWORD })).status, 429, 'as at the login');
});

t.test(
  'production refuses common and personal words as new passwords without using up the link',
  async (t) => {
    const app = await mailedApp(t, {
      env: { NODE_ENV: 'production' },
      publicUrl: 'https://app.example.test',
    });
    await app.admin('PATCH', '/admin/api/settings', { siteName: 'Wonderful Site', version: 0 });
    const email = 'ada.lovelace@example.test';
    const refused = (path: string) => ({
      status: 422,
      body: { error: { code: 'WEAK_PASSWORD', details: [{ path }] } },
    });
    for (const password of [
      ...['password', 'PASSWORD', 'qwertyuiop', 'Iloveyou', 'trustno1', '1234567890'],
      ...[email, 'Ada.Lovelace@Example.TEST', 'ada.lovelace', 'ADA.LOVELACE', 'wonderful site'],
    ])
      t.match(await app.post('/auth/register', { email, password }), refused('password'), password);
    const registered = await app.post('/auth/register', { email, password: 'lovelace, ada' });
    t.equal(registered.status, 201);
    const change = { currentPassword: 'lovelace, ada', newPassword: email };
    const { accessToken: token } = registered.body.data;
    t.match(await app.post('/user/password', change, { token }), refused('newPassword'));
    await app.post('/auth/forgot-password', { email });
    const link = await app.tokenIn(RESET);
    const reset = (password: string) => app.post('/auth/reset-password', { token: link, password });
    t.match(await reset('password1'), refused('password'));
    t.equal((await reset(NEW)).status, 200);

    const warnings: string[] = [];
    const development = await mailedApp(t);
    // Others have an object first: a database server has another clock.
    development.server.fastify.log.warn = ((line: unknown) =>
      typeof line === 'string' && warnings.push(line)) as never;
    t.equal((await development.post('/auth/register', { email, password: 'password' })).status, 201);
    t.match(warnings, [/password/], 'development only warns');
  },
);

t.test(
  'an address changes when the link sent to the new one is followed, which voids links sent to the old one',
  async (t) => {
    const app = await mailedApp(t);
    const { email, accessToken: token, id } = await app.signUp({ name: 'Ada' });
    const taken = await app.signUp();
    const change = (to: string, password = PASSWORD) =>
      app.post('/user/email', { email: to, password }, { token });
    t.equal((await change('new@example.test', 'wrong')).body.error.code, 'INVALID_CREDENTIALS');
    t.equal((await change(email)).status, 400);
    t.match(await change(taken.email), { status: 409, body: { error: { code: 'EMAIL_TAKEN' } } });
    t.equal((await change('first@example.test')).status, 202);
    const older = await app.mail(VERIFY);
    t.equal((await change('New@Example.test')).status, 202);
    const newer = await app.mail(VERIFY);
    t.strictSame(newer.to, ['new@example.test']);
    t.match(newer.subject, sentence('mail.confirm-address-change.subject', { siteName: 'SaaS' }));
    const shown = { email: 'new@example.test', siteName: 'SaaS' };
    t.match(newer.text, sentence('mail.confirm-address-change.text', shown));
    for (const detail of [sentence('mail.origin.address'), /person1@/])
      t.notMatch(newer.text, detail, 'the new mailbox may belong to someone else');
    await app.post('/auth/forgot-password', { email });
    const reset = await app.tokenIn(RESET);
    const verify = async (given: string) =>
      (await app.post('/auth/verify-email', { token: given }, { token })).status;
    t.equal(await verify(older.token), 400, 'the newest takes the place of the older');
    t.equal(await verify(newer.token), 200);
    t.equal(await verify(newer.token), 200, 'repeated, without another effect');
    const notice = await app.mail(MOVED);
    const changed = sentence('mail.email-changed.text', { newEmail: 'new@example.test', email });
    t.match(notice, { to: [email], text: changed });
    t.equal((await app.post('/auth/reset-password', { token: reset, password: NEW })).status, 400);
    t.match((await app.request('GET', '/api/user/profile', { token })).body.data, {
      id,
      email: 'new@example.test',
      emailVerified: true,
    });
    t.equal((await app.post('/auth/login', { email, password: PASSWORD })).status, 401);

    await change('third@example.test');
    const third = await app.tokenIn(VERIFY);
    await app.post('/auth/register', { email: 'third@example.test', password: PASSWORD });
    t.equal(await verify(third), 409, 'the address was taken first');
    await change('fourth@example.test');
    const fourth = await app.tokenIn(VERIFY);
    t.equal(await verify(fourth), 200);
    t.match(await app.mail(MOVED), { text: /fourth@example.test/ }, 'and the notice names what became true');

    await change('fifth@example.test');
    const fifth = await app.tokenIn(VERIFY);
    await app.post('/user/password', { currentPassword: PASSWORD, newPassword: NEW }, { token });
    t.equal(await verify(fifth), 400, 'a new password voids a pending change');
  },
);

t.test('sessions are listed and revoked one by one, each only by its owner', async (t) => {
  const app = await mailedApp(t);
  const received = recordEvents(app);
  const [mine, other] = [await app.signUp(), await app.signUp()];
  app.clock.advance(1000);
  const second = (await app.post('/auth/login', { email: mine.email, password: PASSWORD })).body.data;
  const list = async (token: string) =>
    (await app.request('GET', '/api/auth/sessions', { token })).body.data.sessions;
  const sessions = await list(mine.accessToken);
  t.match(sessions, [{ current: false }, { current: true }]);
  const times = ['authenticatedAt', 'createdAt', 'expiresAt', 'refreshedAt'];
  t.same(Object.keys(sessions[0]).sort(), ['amr', 'current', 'id', 'place', ...times].sort());
  const [{ id }] = sessions;
  const end = (token: string, which = id) => app.request('DELETE', `/api/auth/sessions/${which}`, { token });
  t.equal((await end(other.accessToken)).status, 404);
  t.equal((await end(mine.accessToken, 'ses_unknown')).status, 404);
  t.equal((await end(mine.accessToken, '%00')).status, 400);
  t.equal(await app.me(second), 200);
  t.equal((await end(mine.accessToken)).status, 200);
  t.equal(await app.me(second), 401);
  t.equal((await end(mine.accessToken)).status, 404, 'it has ended');
  t.match(received.at(-1), { name: 'session.revoked', event: { scope: 'local', sessionId: id } });
  t.same((await list(mine.accessToken)).length, 1);
  await userCollection(await storeOf(t, app)).updateOne({ id: mine.id }, { set: { suspendedAt: 1 } });
  t.equal(await app.me(mine), 401, 'a suspension holds at once');
});

t.test('an error in one event listener does not affect the request or other listeners', async (t) => {
  const app = await mailedApp(t);
  const { events } = app.server.fastify.saas;
  let received = 0;
  events.on('user.registered', () => {
    throw new Error('a bug of the host');
  });
  events.once('user.registered', async () => {
    throw new Error('another one');
  });
  const count = () => void received++;
  events.on('user.registered', count);
  await app.signUp();
  await app.signUp();
  events.off('user.registered', count);
  await app.signUp();
  t.equal(received, 2);
});

/** The part of the payment provider that deletion needs. */
async function provider(t: Test, { isDown }: { isDown(): boolean }) {
  const calls: string[] = [];
  const server = createServer((request, response) => {
    const path = (request.url ?? '').replace(/\?.*$/, '');
    calls.push(`${request.method} ${path}`);
    response.setHeader('content-type', 'application/json');
    if (isDown()) {
      response.writeHead(400).end('{"error":{"type":"invalid_request_error"}}');
      return;
    }
    const listed = path === '/v1/subscriptions' ? [{ id: 'sub_1' }, { id: 'sub_2' }] : [{ id: 'cs_1' }];
    const isList = request.method === 'GET';
    response.end(JSON.stringify(isList ? { object: 'list', data: listed, has_more: false } : { id: 'x' }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { calls, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

t.test('deletion cancels the subscription, removes stored data and frees the address', async (t) => {
  const { calls, url } = await provider(t, { isDown: () => false });
  const app = await mailedApp(t, { paymentSecretKey: KEY, paymentApiUrl: url });
  const received = recordEvents(app);
  const account = await app.signUp();
  const { id, email, accessToken: token } = account;
  const store = await storeOf(t, app);
  await customerCollection(store).insert({ id: 'cus_1', ownerId: id, createdAt: 1 });
  const leave = (password: string) => app.post('/user/delete', { password }, { token });
  t.equal((await leave('wrong')).status, 401);
  t.equal(await app.me(account), 200);
  t.match(await leave(PASSWORD), { status: 200, body: { success: true } });
  t.strictSame(calls, [
    'GET /v1/checkout/sessions',
    'POST /v1/checkout/sessions/cs_1/expire',
    'GET /v1/subscriptions',
    'DELETE /v1/subscriptions/sub_1',
    'DELETE /v1/subscriptions/sub_2',
  ]);
  t.equal(await app.me(account), 401);
  t.equal((await app.post('/auth/refresh', { refreshToken: account.refreshToken })).status, 401);
  t.equal((await app.post('/auth/login', { email, password: PASSWORD })).status, 401);
  t.equal(await userCollection(store).findOne({ id }), null);
  t.equal(await customerCollection(store).findOne({ ownerId: id }), null);
  t.equal(await sessionCollection(store).count({ userId: id }), 0);
  t.equal(await mailCollection(store).count({ userId: id }), 0);
  t.match(
    received.filter(({ name }) => name === 'user.deleted'),
    [{ event: { userId: id } }],
  );
  t.ok((await eventsOf(t, app)).includes('user.deleted'));
  const again = await app.signUp({ email });
  t.not(again.id, id);
});

t.test(
  'when the payment provider fails, deletion closes the account at once and a job completes it',
  async (t) => {
    let isDown = true;
    const { url } = await provider(t, { isDown: () => isDown });
    const app = await mailedApp(t, { paymentSecretKey: KEY, paymentApiUrl: url });
    const received = recordEvents(app);
    const account = await app.signUp();
    const { id, email, accessToken: token } = account;
    const store = await storeOf(t, app);
    await customerCollection(store).insert({ id: 'cus_1', ownerId: id, createdAt: 1 });
    const answer = await app.post('/user/delete', { password: PASSWORD }, { token });
    t.match(answer, { status: 502, body: { error: { code: 'PAYMENT_PROVIDER_ERROR' }, message: /closed/ } });
    t.notMatch(answer.text, KEY);
    t.equal(await app.me(account), 401);
    t.equal(
      (await app.post('/auth/login', { email, password: PASSWORD })).body.error.code,
      'ACCOUNT_SUSPENDED',
    );
    await app.close();

    isDown = false;
    app.clock.advance(61_000);
    const next = await mailedApp(t, {
      paymentSecretKey: KEY,
      paymentApiUrl: url,
      databaseUri: app.databaseUri,
      clock: app.clock,
      sink: app.sink,
    });
    const gone = new Promise((resolve) => next.server.fastify.saas.events.once('user.deleted', resolve));
    t.match(await gone, { userId: id });
    t.equal(await userCollection(store).findOne({ id }), null);
    t.notOk(received.some(({ name }) => name === 'user.deleted'));
  },
);

t.test('the purge removes expired documents and nothing else', async (t) => {
  const app = await mailedApp(t);
  const { email, accessToken } = await app.signUp();
  const sessions = sessionCollection(await storeOf(t, app));
  app.clock.advance(8 * DAY);
  t.equal(await app.me({ accessToken }), 401, 'it has ended before it is purged');
  const { clock, random, sink } = app;
  const next = await mailedApp(t, { databaseUri: app.databaseUri, clock, random, sink });
  const fresh = (await next.post('/auth/login', { email, password: PASSWORD })).body.data;
  await waitUntil('the purge', async () => (await sessions.count()) === 1);
  t.equal(await next.me(fresh), 200);
});

t.test(
  'no mail to an address that its holder has not confirmed repeats the name of the account',
  async (t) => {
    const app = await mailedApp(t, { emailLogin: true });
    const advertisement = 'Claim your prize at https://evil.example';
    const { email, id, accessToken: token } = await app.signUp({ name: advertisement });
    const mails = [await app.nextMail()];
    await app.post('/auth/forgot-password', { email });
    mails.push(await app.nextMail());
    await app.post('/auth/resend-verification', { email });
    mails.push(await app.nextMail());
    await app.post('/auth/email-login', { email });
    mails.push(await app.nextMail());
    await app.post('/user/password', { currentPassword: PASSWORD, newPassword: `${PASSWORD} 2` }, { token });
    mails.push(await app.nextMail());
    t.equal(new Set(mails.map(({ subject }) => subject)).size, 5);
    for (const { subject, text } of mails) t.notMatch(text, /prize|evil/, subject);

    await app.server.fastify.saas.users.update({ id }, { emailVerified: true, name: 'Ada' });
    await app.post('/auth/forgot-password', { email });
    t.match((await app.mail(RESET)).text, /Ada/, 'a confirmed one does');
  },
);

t.test('spaces around an address and a name are ignored, in requests and in code', async (t) => {
  const app = await mailedApp(t);
  const body = { email: ' Ada@Example.test\u00a0', password: PASSWORD, name: ' Ada ' };
  const registered = await app.request('POST', '/api/auth/register', { body });
  t.match(registered.body.data?.user, { email: 'ada@example.test', name: 'Ada' }, registered.text);
  const signedIn = await app.post('/auth/login', { email: 'ada@example.test ', password: PASSWORD });
  t.equal(signedIn.status, 200);
  const { users } = app.server.fastify.saas;
  t.match(await users.create({ email: ' bob@example.test', name: ' Bob\t' }), {
    ...{ email: 'bob@example.test', name: 'Bob' },
  });
  t.equal((await users.find({ email: 'Bob@example.test ' }))?.name, 'Bob');
  const { id } = await users.get({ email: 'bob@example.test' });
  t.match(await users.update({ id }, { email: ' robert@example.test', name: ' Robert ' }), {
    ...{ email: 'robert@example.test', name: 'Robert' },
  });
});

t.test('every way in which an account is created or changed has its event', async (t) => {
  const app = await mailedApp(t);
  const { events, users } = app.server.fastify.saas;
  const received: string[] = [];
  for (const name of ['user.registered', 'user.updated'] as const)
    events.on(name, ({ user }) => void received.push(`${name} ${user.email} ${user.name}`));
  const take = () => received.splice(0);
  const { id } = await users.create({ email: 'bob@example.test', name: 'Bob' });
  t.same(take(), ['user.registered bob@example.test Bob']);
  await t.rejects(users.create({ email: 'bob@example.test' }), { code: 'EMAIL_TAKEN' });
  await users.update({ id }, { name: 'Robert', publicMetadata: { team: 7 } });
  await users.update({ id }, { name: 'Robert' });
  t.same(take(), ['user.updated bob@example.test Robert'], 'none without a change');

  const { accessToken: token } = await app.signUp({ email: 'ada@example.test', name: 'Ada' });
  for (const _ of ['once', 'twice'])
    await app.request('PATCH', '/api/user/profile', { token, body: { name: 'Ada L' } });
  t.same(take(), ['user.registered ada@example.test Ada', 'user.updated ada@example.test Ada L']);
  await app.post('/user/email', { email: 'lovelace@example.test', password: PASSWORD }, { token });
  const link = { token: await app.tokenIn(VERIFY), password: PASSWORD };
  t.equal((await app.post('/auth/verify-email', link)).status, 200);
  t.same(take(), ['user.updated lovelace@example.test Ada L']);
});
