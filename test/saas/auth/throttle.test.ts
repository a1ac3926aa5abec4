import argon2 from '@node-rs/argon2';
import t, { type Test } from 'tap';
import { userCollection } from '../../../src/saas/auth/store.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { type Answer, auditOf, basic, PASSWORD, type SaasApp, saasApp, storeOf } from '../../kit/app.js';
import { comparable } from '../../kit/idp.js';
import { sentence } from '../../kit/sentences.js';
import { waitUntil } from '../../kit/wait.js';
import { type MailedApp, mailedApp, RESET, UNLOCK, VERIFY, WELCOME } from './kit.js';

const MINUTE = 60_000;
const WRONG = 'not the password';
const VICTIM = 'victim@example.test';
const PRODUCTION = { env: { NODE_ENV: 'production' }, publicUrl: 'https://app.example.test' };

const login = (app: SaasApp, email: string, password: string, from = '127.0.0.1', headers = {}) =>
  app.request('POST', '/api/auth/login', { body: { email, password }, from, headers });

/** Repeats a request that many times and returns how often each status occurred. */
async function tally(
  count: number,
  call: (index: number) => Promise<Answer>,
): Promise<Record<number, number>> {
  const counts: Record<number, number> = {};
  for (let index = 0; index < count; index++) {
    const { status } = await call(index);
    counts[status] = (counts[status] ?? 0) + 1;
  }
  return counts;
}

function countHashing(t: Test): () => number {
  let verified = 0;
  const { verify } = argon2;
  t.intercept(argon2, 'verify', {
    value: (...args: Parameters<typeof verify>) => {
      verified++;
      return verify(...args);
    },
  });
  return () => verified;
}

/** Wrong passwords from that many addresses, each used for the first time. */
async function attack(app: SaasApp, email: string, sources = 70): Promise<Record<number, number>> {
  const spellings = [email, email.toUpperCase(), email.replace('e', 'E')];
  return tally(sources, (index) => login(app, spellings[index % 3] as string, WRONG, `198.51.100.${index}`));
}

t.test(
  'while an account is throttled, right and wrong passwords and unknown accounts are answered alike, without hashing',
  async (t) => {
    const app = await saasApp(t);
    const { email } = await app.signUp();
    const hashed = countHashing(t);
    for (const account of [email, 'nobody@example.test']) {
      t.same(await attack(app, account), { 401: 60, 429: 10 }, account);
    }
    t.equal(hashed(), 120);
    const answers = [
      await login(app, email, PASSWORD, '203.0.113.7'),
      await login(app, email, WRONG, '203.0.113.7'),
      await login(app, 'nobody@example.test', WRONG, '203.0.113.7'),
    ];
    t.equal(hashed(), 120);
    t.match(answers[0], { status: 429, body: { success: false, error: { code: 'RATE_LIMITED' } } });
    t.equal(answers[0]?.headers['retry-after'], String(36 * 60));
    for (const answer of answers) t.strictSame(comparable(answer), comparable(answers[0] as Answer));

    t.equal((await login(app, email, PASSWORD)).status, 200, 'where the owner registered, they are let in');
    app.clock.advance(36 * MINUTE);
    t.equal((await login(app, email, PASSWORD, '203.0.113.7')).status, 200, 'and elsewhere after the delay');
  },
);

t.test(
  "when many addresses have exhausted an account's limit, its owner signs in by an e-mailed link",
  async (t) => {
    const app = await mailedApp(t);
    const { email, id } = await app.signUp();
    await app.mail(WELCOME);
    await attack(app, email);
    await attack(app, 'nobody@example.test');
    const attacked = await login(app, email, PASSWORD, '203.0.113.7');
    t.match(attacked, { status: 429, body: { message: /a link was sent to its e-mail address/ } });

    const mail = await app.mail(UNLOCK);
    t.same(mail.to, [email]);
    const page = await app.request('GET', `/api/auth/unlock?token=${mail.token}`, { from: '203.0.113.7' });
    t.match(page, { status: 200, text: sentence('unlock.submit') });
    t.equal(
      (await login(app, email, PASSWORD, '203.0.113.7')).status,
      429,
      'looking at the page changes nothing',
    );

    const unlock = (token: string, from = '203.0.113.7') => app.post('/auth/unlock', { token }, { from });
    t.match(await unlock(`${id}.${'x'.repeat(43)}`), {
      status: 400,
      body: { error: { code: 'INVALID_TOKEN' } },
    });
    t.match(await unlock(mail.token), { status: 200, body: { success: true } });
    t.equal((await login(app, email, PASSWORD, '203.0.113.7')).status, 200);
    t.equal((await login(app, email, PASSWORD, '203.0.113.8')).status, 429, 'this place and no other');
    t.match(await unlock(mail.token, '203.0.113.8'), { status: 400 }, 'once');
    t.match(await unlock(mail.token), { status: 200 }, 'a request whose answer was lost');

    app.clock.advance(59 * MINUTE);
    for (let index = 0; index < 10; index++) await attack(app, email, 20);
    const mails = mailCollection(await storeOf(t, app));
    t.equal(await mails.count({ userId: id }), 2, 'one link per hour');
    app.clock.advance(MINUTE);
    await attack(app, email);
    const late = await app.mail(UNLOCK);
    app.clock.advance(60 * MINUTE);
    t.match(await unlock(late.token), { status: 400 }, 'which is valid for an hour');
    const events = (await auditOf(await storeOf(t, app))).filter(({ event }) => event === 'login.unlocked');
    t.match(events, [{ subject: id, ip: '203.0.113.7' }]);
    t.notOk(app.sink.mails.some(({ to }) => to.includes('nobody@example.test')));
  },
);

const NEW = 'a different sentence entirely';

t.test('a new password or a new address voids the sign-in link', async (t) => {
  const changes: Record<string, (app: MailedApp, token: string) => Promise<Answer>> = {
    'a new password': (app, token) =>
      app.post('/user/password', { currentPassword: PASSWORD, newPassword: NEW }, { token }),
    async 'a new address'(app, token) {
      await app.post('/user/email', { email: 'new@example.test', password: PASSWORD }, { token });
      return app.post('/auth/verify-email', { token: await app.tokenIn(VERIFY), password: PASSWORD });
    },
  };
  for (const [name, change] of Object.entries(changes)) {
    const app = await mailedApp(t);
    const { email, accessToken } = await app.signUp();
    await attack(app, email);
    const token = await app.tokenIn(UNLOCK);
    t.equal((await change(app, accessToken)).status, 200, name);
    t.equal((await app.post('/auth/unlock', { token })).status, 400, name);
  }
});

t.test('a new password forgets the addresses known under an earlier password', async (t) => {
  const owner = { from: '203.0.113.7' };
  const link = async (app: MailedApp, path: string, subject: RegExp) => {
    await app.post(path, { email: VICTIM });
    return { token: await app.tokenIn(subject), password: NEW };
  };
  const renewals: Record<string, (app: MailedApp, token: string) => Promise<Answer>> = {
    'a registration that is taken over': async (app) =>
      app.post('/auth/verify-email', await link(app, '/auth/resend-verification', VERIFY), owner),
    'a reset': async (app) =>
      app.post('/auth/reset-password', await link(app, '/auth/forgot-password', RESET), owner),
    'a change of the password': (app, token) =>
      app.post('/user/password', { currentPassword: PASSWORD, newPassword: NEW }, { token, ...owner }),
    async 'an account after an earlier one'(app, token) {
      await app.post('/user/delete', { password: PASSWORD }, { token });
      return app.post('/auth/register', { email: VICTIM, password: NEW }, owner);
    },
  };
  for (const [name, renew] of Object.entries(renewals)) {
    const app = await mailedApp(t);
    const sources = (await storeOf(t, app)).collection<{ id: string }>('knownSources');
    const known = async () => (await sources.page({ sort: 'id', limit: 9 })).items.map(({ id }) => id);
    const { accessToken } = await app.signUp({ email: VICTIM });
    await waitUntil('the place of the registration', async () => (await known()).length === 1);
    for (const index of [1, 2]) await login(app, VICTIM, PASSWORD, `198.51.100.${index}`);
    const before = await known();
    t.equal(before.length, 3, name);
    t.ok((await renew(app, accessToken)).status < 300, name);
    await waitUntil(`${name}: the place of the owner alone`, async () => {
      const [only = '', ...others] = await known();
      return only !== '' && others.length === 0 && !before.includes(only);
    });
  }
});

t.test('an address may attempt 30 logins a minute, successful or not', async (t) => {
  const app = await saasApp(t, PRODUCTION);
  const { email } = await app.signUp();
  t.same(await tally(25, (index) => login(app, `${index}@example.test`, WRONG)), { 401: 25 });
  t.equal((await login(app, email, PASSWORD)).status, 200, 'a success does not reset it');
  t.same(await tally(10, (index) => login(app, `${30 + index}@example.test`, WRONG)), { 401: 4, 429: 6 });
  const refused = await login(app, email, PASSWORD);
  t.match(refused, { status: 429, headers: { 'retry-after': '60' } });
  app.clock.advance(MINUTE);
  t.equal((await login(app, email, PASSWORD)).status, 200);
});

t.test('an address may register 10 accounts an hour', async (t) => {
  const app = await saasApp(t, PRODUCTION);
  const register = (index: number) =>
    app.request('POST', '/api/auth/register', {
      body: { email: `${index}@example.test`, password: PASSWORD },
    });
  t.same(await tally(15, register), { 201: 10, 429: 5 });
  t.equal(await userCollection(await storeOf(t, app)).count(), 10);
  const again = await register(0);
  t.match(again, { status: 429, headers: { 'retry-after': '3600' } }, 'also for who is known');
  app.clock.advance(60 * MINUTE);
  t.equal((await register(10)).status, 201);
});

t.test('an address may send 300 requests a minute, apart from probes and webhooks', async (t) => {
  const app = await saasApp(t, { limits: true });
  const open = () => app.request('GET', '/api/settings/public');
  t.same(await tally(200, open), { 200: 200 });
  t.same(await tally(99, () => app.request('GET', '/api/nothing')), { 404: 99 }, 'what is not there counts');
  t.same(await tally(2, open), { 200: 1, 429: 1 });
  t.match(await open(), {
    status: 429,
    body: { error: { code: 'RATE_LIMITED' } },
    headers: { 'retry-after': '60' },
  });
  t.equal((await app.request('GET', '/api/nothing')).status, 429);
  for (const path of ['/api/health', '/api/ready', '/health', '/ready']) {
    t.equal((await app.request('GET', path)).status, 200, path);
  }
  t.equal((await app.request('POST', '/api/billing/webhook', { body: {} })).status, 400);
  t.equal((await app.request('GET', '/api/settings/public', { from: '192.0.2.1' })).status, 200);
});

t.test(
  "request limits apply in production and to remote addresses, not to a developer's own machine",
  async (t) => {
    const attempts = async (app: SaasApp, from?: string) =>
      tally(31, (index) => login(app, `${index}@example.test`, WRONG, from));
    const development = await saasApp(t);
    t.same(await attempts(development), { 401: 31 });
    t.same(await attempts(development, '::1'), { 401: 31 });
    t.same(await attempts(development, '192.0.2.1'), { 401: 30, 429: 1 });
    t.same(
      await tally(20, () => login(development, 'one@example.test', WRONG)),
      { 401: 10, 429: 10 },
      'failures do',
    );
    t.same(await attempts(await saasApp(t, { limits: true })), { 401: 30, 429: 1 });

    const unbound = await saasApp(t, { ...PRODUCTION, limits: false });
    t.same(await tally(50, () => login(unbound, 'one@example.test', WRONG, '192.0.2.1')), { 401: 50 });
  },
);

t.test('ten wrong credentials a minute close the admin area to that address', async (t) => {
  const app = await saasApp(t);
  const visit = (authorization?: string, from = '127.0.0.1') =>
    app.request('GET', '/admin', { from, headers: authorization ? { authorization } : {} });
  t.same(await tally(50, () => visit()), { 401: 50 }, 'a visit without credentials is no attempt');
  const burst = await Promise.all(Array.from({ length: 100 }, () => visit(basic('operator', WRONG))));
  t.equal(burst.filter(({ status }) => status === 401).length, 10);
  const [right, wrong] = [await visit(basic()), await visit(basic('operator', WRONG))];
  t.match(right, { status: 429, headers: { 'retry-after': '60', 'www-authenticate': undefined } });
  t.strictSame(comparable(right), comparable(wrong));
  t.equal((await visit(basic(), '192.0.2.1')).status, 200, 'and to no other');
  app.clock.advance(MINUTE);
  t.same(await tally(50, () => visit(basic())), { 200: 50 });
});

const register = (app: SaasApp, number: number, headers = {}, from = '203.0.113.1') =>
  app.request('POST', '/api/auth/register', {
    ...{ body: { email: `one${number}@example.test`, password: PASSWORD }, headers, from },
  });

t.test('an operator sets the limits per address, for a whole class behind one', async (t) => {
  const app = await saasApp(t, {
    ...{ limits: true, maxRegistrationsPerHour: 30, maxLoginsPerMinute: 40 },
    ...{ maxMailRequestsPerHour: 12, maxRequestsPerMinute: 400 },
  });
  t.same(await tally(31, (index) => register(app, index)), { 201: 30, 429: 1 });
  const nobody = (index: number) => login(app, `nobody${index}@example.test`, WRONG, '203.0.113.2');
  t.same(await tally(41, nobody), { 401: 40, 429: 1 });
  const forgotten = (index: number) =>
    app.request('POST', '/api/auth/forgot-password', {
      ...{ body: { email: `no${index}@example.test` }, from: '203.0.113.3' },
    });
  t.same(await tally(13, forgotten), { 200: 12, 429: 1 });
  const settings = () => app.request('GET', '/api/auth/me', { from: '203.0.113.4' });
  t.same(await tally(401, settings), { 401: 400, 429: 1 });
  await t.rejects(
    saasApp(t, { maxRegistrationsPerHour: 10_001 }),
    /MAX_REGISTRATIONS_PER_HOUR .*must be a whole number from 1 to 10000/,
  );
});

t.test(
  'a server with the shared secret calls for its users, who are limited by their own addresses',
  async (t) => {
    const secret = 'caller-Tz5kWm8QbX2nVr7LdP4yHs9GcJ3f';
    const app = await saasApp(t, { limits: true, callerSecret: secret });
    const caller = (more = {}) => ({ 'x-caller-secret': secret, ...more });
    t.same(await tally(15, (index) => register(app, index, caller())), { 201: 15 });
    const forUser = (ip: string) => caller({ 'x-end-user-ip': ip });
    t.same(await tally(11, (index) => register(app, 100 + index, forUser('203.0.113.9'))), {
      201: 10,
      429: 1,
    });
    t.equal((await register(app, 200, forUser('203.0.113.10'))).status, 201, 'another user');
    const records = await auditOf(await storeOf(t, app));
    t.same(
      new Set(records.filter(({ event }) => event === 'user.registered').map(({ ip }) => ip)),
      new Set(['caller', '203.0.113.9', '203.0.113.10']),
    );

    const wrong = await register(app, 300, { 'x-caller-secret': secret.replace('f', 'g') });
    t.match(wrong, { status: 400, body: { error: { details: [{ path: 'x-caller-secret' }] } } });
    const nowhere = await register(app, 300, forUser('nowhere'));
    t.match(nowhere, { status: 400, body: { error: { details: [{ path: 'x-end-user-ip' }] } } });
    const forged = (index: number) => register(app, 400 + index, { 'x-end-user-ip': `192.0.2.${index}` });
    t.same(await tally(11, forged), { 201: 10, 429: 1 }, 'without the secret, the header means nothing');
    const guesses = (index: number) =>
      login(app, 'one0@example.test', WRONG, '203.0.113.1', forUser(`198.51.100.${index}`));
    t.same(await tally(61, guesses), { 401: 60, 429: 1 }, 'the limits of an account remain');
    await t.rejects(
      saasApp(t, { callerSecret: 'short' }),
      /CALLER_SECRET .*must be text of 32 or more characters/,
    );
  },
);

t.test('requests for e-mails from many blocks of one IPv6 /48 are limited together', async (t) => {
  const app = await saasApp(t, { limits: true });
  const forgotten = (from: string) => (index: number) =>
    app.request('POST', '/api/auth/forgot-password', {
      ...{ body: { email: `no${index}@example.test` }, from: `${from}:${index.toString(16)}::1` },
    });
  const ofOneBlock = (index: number) =>
    app.request('POST', '/api/auth/forgot-password', {
      ...{ body: { email: `one${index}@example.test` }, from: '2001:db8:1:ffff::1' },
    });
  t.same(await tally(60, ofOneBlock), { 200: 10, 429: 50 }, 'what one block is refused does not count');
  t.same(await tally(60, forgotten('2001:db8:1')), { 200: 40, 429: 20 });
  t.same(await tally(1, forgotten('2001:db8:2')), { 200: 1 }, 'others are not affected');
});
