import argon2 from '@node-rs/argon2';
import t, { type Test } from 'tap';
import { userCollection } from '../../../src/saas/auth/store.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { type Answer, auditOf, basic, PASSWORD, type SaasApp, saasApp, storeOf } from '../../kit/app.js';
import { comparable } from '../../kit/idp.js';
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

t.test('guesses from one address never lock out the owner at another', async (t) => {
  const app = await saasApp(t);
  const { email } = await app.signUp();
  let fresh = 0;
  for (let guesses = 0; guesses < 60; guesses++) {
    const { status, headers } = await login(app, email, WRONG, '198.51.100.1');
    if (status === 429) app.clock.advance(Number(headers['retry-after']) * 1000);
    const answer = await login(app, email, PASSWORD, `192.0.2.${fresh++}`);
    t.equal(answer.status, 200);
  }
});

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
    t.match(page, { status: 200, text: /Allow this device to sign in/ });
    t.equal(
      (await login(app, email, PASSWORD, '203.0.113.7')).status,
      429,
      'looking at the page changes nothing',
    );

    const unlock = (token: string) => app.post('/auth/unlock', { token }, { from: '203.0.113.7' });
    t.match(await unlock(`${id}.${'x'.repeat(43)}`), {
      status: 400,
      body: { error: { code: 'INVALID_TOKEN' } },
    });
    t.match(await unlock(mail.token), { status: 200, body: { success: true } });
    t.equal((await login(app, email, PASSWORD, '203.0.113.7')).status, 200);
    t.equal((await login(app, email, PASSWORD, '203.0.113.8')).status, 429, 'this place and no other');
    t.match(await unlock(mail.token), { status: 400 }, 'once');

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

t.test('a new password or a new address voids the sign-in link', async (t) => {
  const linkAfter = async (change: (app: MailedApp, token: string) => Promise<void>) => {
    const app = await mailedApp(t);
    const { email, accessToken } = await app.signUp();
    await attack(app, email);
    const link = await app.tokenIn(UNLOCK);
    await change(app, accessToken);
    return (await app.post('/auth/unlock', { token: link })).status;
  };
  const keep = async () => undefined;
  t.equal(await linkAfter(keep), 200, 'a link is valid until then');

  const newPassword = async (app: MailedApp, token: string) => {
    const body = { currentPassword: PASSWORD, newPassword: 'a different sentence entirely' };
    t.equal((await app.post('/user/password', body, { token })).status, 200);
  };
  t.equal(await linkAfter(newPassword), 400, 'a new password');

  const newAddress = async (app: MailedApp, token: string) => {
    const body = { email: 'new@example.test', password: PASSWORD };
    t.equal((await app.post('/user/email', body, { token })).status, 202);
    const verification = { token: await app.tokenIn(VERIFY), password: PASSWORD };
    t.equal((await app.post('/auth/verify-email', verification)).status, 200);
  };
  t.equal(await linkAfter(newAddress), 400, 'a new address');
});

t.test('a new password forgets the addresses known under an earlier password', async (t) => {
  const NEW = 'a different sentence entirely';
  /** Signs in with the first password from many addresses, which later no longer count as the owner's. */
  const check = async (name: string, makeNew: (app: MailedApp) => Promise<string>, options = {}) => {
    const app = await mailedApp(t, options);
    const from = (index: number) => `198.51.100.${index}`;
    const email = await makeNew({
      ...app,
      tokenIn: async (subject) => {
        await tally(70, (index) => login(app, VICTIM, PASSWORD, from(index)));
        return app.tokenIn(subject);
      },
    });
    t.same(await tally(70, (index) => login(app, email, WRONG, from(index))), { 401: 60, 429: 10 }, name);
    t.equal((await login(app, email, NEW, '203.0.113.7')).status, 200, `${name}: the place of the owner is`);
  };
  const owner = { from: '203.0.113.7' };
  const register = (app: MailedApp) => app.post('/auth/register', { email: VICTIM, password: PASSWORD });

  await check(
    'a registration that is taken over',
    async (app) => {
      await register(app);
      const token = await app.tokenIn(VERIFY);
      t.equal((await app.post('/auth/verify-email', { token, password: NEW }, owner)).status, 200);
      return VICTIM;
    },
    { requireEmailVerification: true },
  );
  await check('a reset', async (app) => {
    await register(app);
    await app.post('/auth/forgot-password', { email: VICTIM });
    const token = await app.tokenIn(RESET);
    t.equal((await app.post('/auth/reset-password', { token, password: NEW }, owner)).status, 200);
    return VICTIM;
  });
  await check('a change of the password', async (app) => {
    const { accessToken: token } = (await register(app)).body.data;
    await app.tokenIn(WELCOME);
    const change = { currentPassword: PASSWORD, newPassword: NEW };
    t.equal((await app.post('/user/password', change, { token, ...owner })).status, 200);
    return VICTIM;
  });
  await check('an account after an earlier one', async (app) => {
    const { accessToken: token } = (await register(app)).body.data;
    await app.tokenIn(WELCOME);
    t.equal((await app.post('/user/delete', { password: PASSWORD }, { token, ...owner })).status, 200);
    const again = { email: VICTIM, password: NEW };
    t.equal((await app.post('/auth/register', again, owner)).status, 201);
    await app.mail(WELCOME);
    return VICTIM;
  });
});

t.test('concurrent logins with the right password from a new address are never refused', async (t) => {
  const app = await saasApp(t);
  const { email } = await app.signUp();
  const answers = await Promise.all(
    Array.from({ length: 30 }, () => login(app, email, PASSWORD, '203.0.113.7')),
  );
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
});

t.test('refusals are summarised in the audit log instead of adding a record each', async (t) => {
  const app = await saasApp(t);
  const { email } = await app.signUp();
  await tally(500, () => login(app, email, WRONG));
  const records = await auditOf(await storeOf(t, app));
  t.ok(records.length < 15, `${records.length} records`);
});

t.test('neither headers nor another address of the same /64 change how a client is counted', async (t) => {
  const app = await saasApp(t, { limits: true });
  const forged = (index: number) => ({
    'x-forwarded-for': [`10.0.0.${index}`, 'a', '::ffff:1.2.3.4', '1, '.repeat(1000)][index % 4] as string,
    forwarded: `for=10.0.0.${index}`,
    'x-real-ip': `10.0.0.${index}`,
  });
  const spread = await tally(40, (index) =>
    login(app, `${index}@example.test`, WRONG, `2001:db8:1:2:${index}::${index}`, forged(index)),
  );
  t.same(spread, { 401: 30, 429: 10 });
  const mapped = await tally(40, (index) =>
    login(app, `${index}@example.test`, WRONG, index % 2 ? '::ffff:192.0.2.9' : '192.0.2.9', forged(index)),
  );
  t.same(mapped, { 401: 30, 429: 10 });
  t.equal((await login(app, 'x@example.test', WRONG, '2001:db8:1:3::1')).status, 401);

  const proxied = await saasApp(t, { trustProxy: ['10.1.0.0/16'] });
  const behind = await tally(40, (index) =>
    login(proxied, `${index}@example.test`, WRONG, '10.1.0.1', {
      'x-forwarded-for': `10.0.0.${index}, 203.0.113.7`,
    }),
  );
  t.same(behind, { 401: 30, 429: 10 }, 'a trusted proxy names the last hop before it');
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

t.test(
  "production refuses common passwords, the user's address and the site's name as passwords",
  async (t) => {
    const app = await saasApp(t, PRODUCTION);
    await app.admin('PATCH', '/admin/api/settings', { siteName: 'Wonderful Site', version: 0 });
    const email = 'ada.lovelace@example.test';
    const register = (password: string) =>
      app.request('POST', '/api/auth/register', { body: { email, password } });
    for (const password of [
      ...['password', 'PASSWORD', 'qwertyuiop', 'Iloveyou', 'trustno1', '1234567890'],
      ...[email, 'Ada.Lovelace@Example.TEST', 'ada.lovelace', 'ADA.LOVELACE', 'wonderful site'],
    ]) {
      const { status, body } = await register(password);
      t.match({ status, body }, { status: 422, body: { error: { code: 'WEAK_PASSWORD' } } }, password);
      t.match(body.error.details, [{ path: 'password', message: /^is / }]);
    }
    const { status, body } = await register('lovelace, ada');
    t.equal(status, 201);
    const change = await app.request('POST', '/api/user/password', {
      body: { currentPassword: 'lovelace, ada', newPassword: 'password' },
      token: body.data.accessToken,
    });
    t.match(change, { status: 422, body: { error: { details: [{ path: 'newPassword' }] } } });

    const lines: string[] = [];
    const development = await saasApp(t);
    development.server.fastify.log.warn = ((line: string) => lines.push(line)) as never;
    const person = { email: 'ada@example.test', password: 'password' };
    t.equal((await development.request('POST', '/api/auth/register', { body: person })).status, 201);
    t.same(lines, ['A new password is one of the most common passwords. Production rejects it.']);
  },
);

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
