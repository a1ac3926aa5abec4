import t, { type Test } from 'tap';
import { loginCodeCollection } from '../../../src/saas/auth/sign-in/login-codes.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { identityCollection } from '../../../src/saas/login-providers/store.js';
import type { CreateServerOptions } from '../../../src/saas/server.js';
import { factorCollection } from '../../../src/shared/factors/store.js';
import { type Answer, auditOf, copiedCode, errorOf, PASSWORD, saasApp, storeOf } from '../../kit/app.js';
import { FACTOR_KEY, setUpFactor } from '../../kit/factors.js';
import { sentence } from '../../kit/sentences.js';
import { waitUntil } from '../../kit/wait.js';
import { type MailedApp, mailedApp, RESET, WELCOME } from './kit.js';

/** Sign-in with a code that is mailed, and the login token of the browser that requested it. */

const MINUTE = 60_000;
const CODE = sentence('mail.login-code.subject');
const EMAIL = 'ada@example.test';

type Options = Parameters<typeof mailedApp>[1];

async function codeApp(t: Test, options: Options = {}) {
  const app = await mailedApp(t, { emailLogin: true, ...options });
  const ask = (email: string, from?: string) =>
    app.post('/auth/email-login', { email }, from === undefined ? {} : { from });
  const redeem = (loginToken: string, code: string) =>
    app.post('/auth/email-login/redeem', { loginToken, code });
  const codeMail = async () => {
    const mail = await app.mail(CODE);
    return { ...mail, code: /^[0-9A-Z]{4}-[0-9A-Z]{4}$/m.exec(mail.text)?.[0] ?? '' };
  };
  return {
    ...app,
    ask,
    redeem,
    codeMail,
    /** The login token of a request, and the code of its mail. */
    async codeFor(email = EMAIL): Promise<{ loginToken: string; code: string }> {
      const { loginToken } = (await ask(email)).body.data;
      return { loginToken, code: (await codeMail()).code };
    },
    sessionOf: async (answer: Answer) =>
      (await app.request('GET', '/api/auth/me', { token: answer.body.data.accessToken })).body.data,
    /** The templates of the mails to an address. */
    async mailsTo(email: string): Promise<string[]> {
      const { body } = await app.admin('GET', `/admin/api/mails?q=${email}`);
      return (body.data.items as { template: string }[]).map(({ template }) => template);
    },
  };
}

/** A code that is not the given one. */
const wrong = (code: string) => code.replace(/.$/, (last) => (last === '7' ? '8' : '7'));

/** A user with a verified address. */
const verified = (app: MailedApp, email = EMAIL) => app.signUp({ email, emailVerified: true });

t.test('a mailed code signs in once, with the login token of its request', async (t) => {
  const app = await codeApp(t);
  const account = await verified(app);
  const asked = await app.ask('Ada@Example.test');
  t.match(asked, { status: 202, body: { success: true, data: { expiresIn: 600 } } });
  const { loginToken } = asked.body.data;
  const { code, to } = await app.codeMail();
  t.same(to, [EMAIL]);

  const store = await storeOf(t, app);
  const codes = loginCodeCollection(store);
  const { items } = await codes.page({ sort: 'id', limit: 9 });
  const stored = JSON.stringify(items);
  t.equal(items.length, 1);
  for (const secret of [EMAIL, code, code.replace('-', ''), loginToken]) t.notOk(stored.includes(secret));
  const typed = code.toLowerCase().replaceAll('0', 'o').replaceAll('1', 'l');
  const signedIn = await app.redeem(loginToken, ` ${copiedCode(typed)}`);
  t.equal(signedIn.status, 200, signedIn.text);
  t.equal(signedIn.body.data.user.id, account.id);
  t.match(Object.keys(signedIn.body.data).sort(), ['accessToken', 'expiresIn', 'refreshToken', 'user']);
  t.same((await app.sessionOf(signedIn)).session.amr, ['otp']);
  t.equal(await app.me(account), 200, 'the other sessions of a verified account continue');
  t.equal((await app.post('/auth/login', account)).status, 200, 'and its password');
  t.equal(errorOf(await app.redeem(loginToken, code)), 'CODE_EXPIRED', 'a code works once');

  const events = (await auditOf(store)).map(({ event }) => event);
  for (const event of ['login.code-requested', 'login.succeeded']) t.ok(events.includes(event), event);
  t.equal(await codes.count(), 0);
});

t.test('nothing reveals whether an address has an account, not even wrong codes', async (t) => {
  const app = await codeApp(t);
  await verified(app, 'known@example.test');
  const suspended = await verified(app, 'suspended@example.test');
  await app.server.fastify.saas.users.suspend({ id: suspended.id });
  const settings = await app.admin('GET', '/admin/api/settings');
  const closed = { allowRegistration: false, version: settings.body.data.version };
  t.equal((await app.admin('PATCH', '/admin/api/settings', closed)).status, 200);

  const codes = loginCodeCollection(await storeOf(t, app));
  const seen: unknown[][] = [];
  for (const name of ['known', 'suspended', 'unknown']) {
    const asked = await app.ask(`${name}@example.test`);
    const { loginToken } = asked.body.data;
    await waitUntil('the request is stored', async () => (await codes.count()) > seen.length);
    const answers: unknown[] = [asked.status];
    for (let count = 0; count < 7; count++) answers.push(errorOf(await app.redeem(loginToken, 'ABCD-EFGH')));
    seen.push(answers);
  }
  t.same(seen[1], seen[0]);
  t.same(seen[2], seen[0]);
  t.same(seen[0]?.slice(-3), ['INVALID_CODE', 'CODE_EXPIRED', 'CODE_EXPIRED']);
  await app.codeMail();
  t.same(await app.mailsTo('suspended@example.test'), ['welcome']);
  t.same(await app.mailsTo('unknown@example.test'), []);
});

t.test('a code works only in the browser that requested it', async (t) => {
  const app = await codeApp(t);
  await verified(app);
  const { loginToken: ofEve } = (await app.ask('eve@example.test')).body.data;
  await app.codeMail();
  const { loginToken, code } = await app.codeFor();
  t.equal(errorOf(await app.redeem(ofEve, code)), 'INVALID_CODE', 'the token of another request');
  for (const forged of [`${loginToken}x`, loginToken.slice(0, -2), 'v1.x', 'x'])
    t.equal(errorOf(await app.redeem(forged, code)), 'CODE_EXPIRED', forged.slice(-8));
  const { accessToken } = await app.signUp();
  t.equal(errorOf(await app.redeem(accessToken, code)), 'CODE_EXPIRED');
  t.equal((await app.post('/auth/email-login/redeem', { code })).status, 400, 'the code alone');
  t.equal((await app.redeem(loginToken, code)).status, 200, 'none of these has used it');
});

t.test('the link is harmless for mail scanners, and says where the request came from', async (t) => {
  const app = await codeApp(t, { emailLoginUrlRelative: 'enter-code?lang=en' });
  await verified(app);
  const headers = { 'user-agent': 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0' };
  const source = { headers, from: '203.0.113.7' };
  const asked = await app.post('/auth/email-login', { email: EMAIL }, source);
  const { text, code } = await app.codeMail();
  const plain = code.replace('-', '');
  t.ok(text.includes(`http://app.example.test/enter-code?lang=en&code=${plain}\n`), text);
  t.match(text, /203\.0\.113\.7/);
  t.match(text, /Firefox/);
  for (const method of ['GET', 'HEAD']) {
    for (const path of ['/api/auth/email-login', '/api/auth/email-login/redeem'])
      t.equal((await app.request(method, `${path}?code=${plain}`)).status, 405);
  }
  t.equal((await app.redeem(asked.body.data.loginToken, plain)).status, 200);

  await app.post('/auth/email-login', { email: 'stranger@example.test' }, source);
  t.notMatch((await app.codeMail()).text, /203\.0\.113|Firefox/, 'a mistyped address discloses nothing');
});

t.test('without a page of the application, the mail contains the code alone', async (t) => {
  const app = await codeApp(t);
  await app.ask(EMAIL);
  const { text, subject, code } = await app.codeMail();
  t.notMatch(text, /code=|undefined|\n\n\n/);
  t.notOk(subject.includes(code), 'the subject is shown on locked screens');
  t.match(text, /expires after 10 minutes/);
});

t.test('five wrong codes end a request, also if they are sent at once', async (t) => {
  const app = await codeApp(t);
  await verified(app);
  const { loginToken, code } = await app.codeFor();
  const answers = await Promise.all(
    Array.from({ length: 30 }, (_, number) => app.redeem(loginToken, `ABCD-EF${number + 10}`)),
  );
  const errors = answers.map(errorOf);
  t.equal(errors.filter((error) => error === 'INVALID_CODE').length, 5);
  t.equal(errors.filter((error) => error === 'CODE_EXPIRED').length, 25);
  t.equal(errorOf(await app.redeem(loginToken, code)), 'CODE_EXPIRED', 'the right one comes too late');

  const again = await app.codeFor();
  for (let count = 0; count < 4; count++)
    t.equal(errorOf(await app.redeem(again.loginToken, wrong(again.code))), 'INVALID_CODE');
  t.equal((await app.redeem(again.loginToken, again.code)).status, 200, 'the fifth one is right');
});

t.test('a code expires after ten minutes, also if the clock is set back', async (t) => {
  const app = await codeApp(t);
  await verified(app);
  const first = await app.codeFor();
  app.clock.advance(10 * MINUTE);
  t.equal(errorOf(await app.redeem(first.loginToken, first.code)), 'CODE_EXPIRED');
  const second = await app.codeFor();
  app.clock.advance(10 * MINUTE - 1);
  t.equal((await app.redeem(second.loginToken, second.code)).status, 200);
  const third = await app.codeFor();
  app.clock.advance(-2 * MINUTE);
  t.equal(errorOf(await app.redeem(third.loginToken, third.code)), 'CODE_EXPIRED');
});

t.test('a code ends with whatever ends all sessions', async (t) => {
  const app = await codeApp(t);
  const account = await verified(app);
  const users = userCollection(await storeOf(t, app));
  const { saas } = app.server.fastify;
  let password = PASSWORD;
  const login = async () => (await app.post('/auth/login', { email: EMAIL, password })).body.data;
  const endings: Record<string, () => Promise<unknown>> = {
    'a new password': async () => {
      const body = { currentPassword: password, newPassword: 'another long pass phrase' };
      const { accessToken: token } = await login();
      t.equal((await app.post('/user/password', body, { token })).status, 200);
      password = body.newPassword;
    },
    'a reset': async () => {
      await app.post('/auth/forgot-password', { email: EMAIL });
      password = 'a third long pass phrase';
      const token = await app.tokenIn(RESET);
      t.equal((await app.post('/auth/reset-password', { token, password })).status, 200);
    },
    'a logout everywhere': async () => {
      const { refreshToken } = await login();
      t.equal((await app.post('/auth/logout', { refreshToken, scope: 'global' })).status, 200);
    },
    'a suspension': async () => {
      await saas.users.suspend({ id: account.id });
      await saas.users.unsuspend({ id: account.id });
    },
    'a change of the address': async () =>
      users.updateOne({ id: account.id }, { set: { email: 'new@example.test' } }),
  };
  for (const [name, end] of Object.entries(endings)) {
    const { loginToken, code } = await app.codeFor();
    await end();
    t.equal(errorOf(await app.redeem(loginToken, code)), 'CODE_EXPIRED', name);
    app.clock.advance(16 * MINUTE);
  }
  t.equal(await users.count(), 1, 'no account was created for the former address');

  const { loginToken, code } = await app.codeFor('new@example.test');
  const { accessToken: token } = (await app.post('/auth/login', { email: 'new@example.test', password })).body
    .data;
  t.equal((await app.post('/user/delete', { password }, { token })).status, 200);
  t.equal(errorOf(await app.redeem(loginToken, code)), 'CODE_EXPIRED', 'a deletion');
  t.equal(await users.count(), 0, 'a deleted account is not created again');
});

t.test('requests of strangers end no code of the owner, and use up no mail of known locations', async (t) => {
  const app = await codeApp(t, { limits: true });
  await verified(app);
  const { loginToken, code } = await app.codeFor();
  for (let count = 0; count < 9; count++) {
    t.equal((await app.ask(EMAIL, `203.0.113.${count}`)).status, 202);
    if (count < 5) await app.codeMail();
  }
  t.equal((await app.mailsTo(EMAIL)).filter((name) => name === 'login-code').length, 6);
  t.equal((await app.redeem(loginToken, code)).status, 200, 'the code of the owner signs in');
  const again = await app.codeFor();
  t.equal((await app.redeem(again.loginToken, again.code)).status, 200, 'the owner gets another one');
});

t.test('an account that a stranger registered belongs to the owner of the address alone', async (t) => {
  const app = await codeApp(t, {
    factorEncryptionKey: FACTOR_KEY,
    login: { acme: { issuer: 'https://acme.example.test', clientId: 'x' } },
  });
  const stranger = await app.signUp({ email: EMAIL });
  const store = await storeOf(t, app);
  await userCollection(store).updateOne({ id: stranger.id }, { set: { verifyHash: 'x'.repeat(43) } });
  // Both need a verified address today; neither may outlast the stranger.
  const now = app.clock.now();
  await factorCollection(store).insert({
    ...{ id: stranger.id, secret: 'v1.x', version: 1, lastStep: 0, recovery: [], rev: 1 },
    ...{ confirmedAt: now, updatedAt: now },
  });
  await identityCollection(store).insert({
    ...{ id: 'x'.repeat(43), userId: stranger.id, provider: 'acme' },
    ...{ issuer: 'https://acme.example.test', subject: 'eve', createdAt: now },
  });
  const events: string[] = [];
  for (const name of ['user.verified', 'session.revoked'] as const)
    app.server.fastify.saas.events.on(name, ({ userId }) => void events.push(`${name} ${userId}`));

  const { loginToken, code } = await app.codeFor();
  const signedIn = await app.redeem(loginToken, code);
  t.equal(signedIn.status, 200, signedIn.text);
  t.match(signedIn.body.data.user, { id: stranger.id, emailVerified: true });
  t.equal((await app.sessionOf(signedIn)).user.id, stranger.id);
  t.equal(await app.me(stranger), 401, 'the session of the stranger has ended');
  const { refreshToken } = stranger;
  t.equal(errorOf(await app.post('/auth/refresh', { refreshToken })), 'INVALID_REFRESH_TOKEN');
  t.equal(
    errorOf(await app.post('/auth/login', { email: EMAIL, password: PASSWORD })),
    'INVALID_CREDENTIALS',
  );
  t.equal(await identityCollection(store).count(), 0);
  t.equal(await factorCollection(store).count(), 0);
  const user = await userCollection(store).findOne({ id: stranger.id });
  t.equal(user?.passwordHash, undefined);
  t.equal(user?.verifyHash, undefined, 'no link of the stranger works');
  t.same(events, [`user.verified ${stranger.id}`, `session.revoked ${stranger.id}`]);
  t.ok((await app.mailsTo(EMAIL)).includes('password-changed'));
  const audited = (await auditOf(store)).map(({ event }) => event);
  for (const event of ['account.taken-over', 'email.verified']) t.ok(audited.includes(event), event);

  const next = await app.codeFor();
  const again = await app.redeem(next.loginToken, next.code);
  t.equal(again.status, 200);
  t.equal((await app.sessionOf(signedIn)).user.id, stranger.id, 'the sessions of the owner continue');
});

t.test('a code is the first factor: the second one is demanded', async (t) => {
  const app = await codeApp(t, { factorEncryptionKey: FACTOR_KEY });
  const { accessToken: token } = await verified(app);
  const factor = await setUpFactor(app, token);
  const { loginToken, code } = await app.codeFor();
  const demanded = await app.redeem(loginToken, code);
  t.match(demanded, { status: 401, body: { error: { code: 'SECOND_FACTOR_REQUIRED' } } });
  t.equal(errorOf(await app.redeem(loginToken, code)), 'CODE_EXPIRED', 'the code is used');
  app.clock.advance(MINUTE);
  t.equal(errorOf(await app.redeem(loginToken, code)), 'CODE_EXPIRED', 'for good');
  const { challenge } = demanded.body.error;
  const signedIn = await app.post('/auth/second-factor', { challenge, code: factor.code() });
  t.equal(signedIn.status, 200, signedIn.text);
  t.same((await app.sessionOf(signedIn)).session.amr, ['otp', 'mfa']);
});

t.test('a new address gets an account without a password, while registration is allowed', async (t) => {
  const app = await codeApp(t);
  const registered: string[] = [];
  app.server.fastify.saas.events.on('user.registered', ({ user }) => void registered.push(user.email));
  const { loginToken, code } = await app.codeFor();
  t.equal(await userCollection(await storeOf(t, app)).count(), 0, 'none before the code is used');
  const signedIn = await app.redeem(loginToken, code);
  t.match(signedIn.body.data?.user, { email: EMAIL, emailVerified: true }, signedIn.text);
  t.same(registered, [EMAIL]);
  t.match((await app.nextMail()).subject, WELCOME);
  t.same((await app.sessionOf(signedIn)).session.amr, ['otp']);
  const user = await userCollection(await storeOf(t, app)).findOne({ email: EMAIL });
  t.equal(user?.passwordHash, undefined);

  const late = await app.codeFor('late@example.test');
  const { version } = (await app.admin('GET', '/admin/api/settings')).body.data;
  await app.admin('PATCH', '/admin/api/settings', { allowRegistration: false, version });
  app.clock.advance(5000);
  t.equal(errorOf(await app.redeem(late.loginToken, late.code)), 'REGISTRATION_DISABLED');
  const own = await app.codeFor();
  t.equal((await app.redeem(own.loginToken, own.code)).status, 200, 'existing accounts sign in');
});

t.test('the host rejects a new account for a mailed code, which is then used', async (t) => {
  const seen: object[] = [];
  let rejects = true;
  const app = await codeApp(t, {
    hooks: {
      beforeRegister(registration) {
        seen.push(registration);
        return rejects ? { reason: 'NOT_INVITED', message: 'Ask for an invitation.' } : undefined;
      },
    },
  });
  const { loginToken, code } = await app.codeFor();
  const rejected = await app.redeem(loginToken, code);
  t.equal(errorOf(rejected), 'REGISTRATION_REJECTED');
  t.equal(await userCollection(await storeOf(t, app)).count(), 0);
  rejects = false;
  t.equal(errorOf(await app.redeem(loginToken, code)), 'CODE_EXPIRED');
  app.clock.advance(MINUTE);
  const next = await app.codeFor();
  t.equal((await app.redeem(next.loginToken, next.code)).status, 200);
  t.same(
    seen,
    Array.from({ length: 2 }, () => ({ email: EMAIL, method: 'code', ip: '127.0.0.1' })),
  );
  const own = await app.codeFor();
  t.equal((await app.redeem(own.loginToken, own.code)).status, 200);
  t.equal(seen.length, 2, 'existing accounts sign in without it');
});

t.test('with required confirmation, a code confirms the address of a registration', async (t) => {
  const app = await codeApp(t, { requireEmailVerification: true });
  t.equal((await app.post('/auth/register', { email: EMAIL, password: PASSWORD })).status, 202);
  t.equal(errorOf(await app.post('/auth/login', { email: EMAIL, password: PASSWORD })), 'EMAIL_NOT_VERIFIED');
  const { loginToken, code } = await app.codeFor();
  const signedIn = await app.redeem(loginToken, code);
  t.match(signedIn.body.data?.user, { emailVerified: true }, signedIn.text);
  t.match((await app.mail(WELCOME)).to, [EMAIL]);
});

t.test('requests are limited by client, and mails by address', async (t) => {
  const app = await codeApp(t, { limits: true });
  await verified(app);
  const statuses = [];
  for (let count = 0; count < 4; count++) statuses.push((await app.ask(EMAIL, '203.0.113.1')).status);
  t.same(statuses, [202, 202, 202, 429]);
  for (let count = 0; count < 3; count++) t.equal((await app.ask(EMAIL, '203.0.114.1')).status, 202);
  const last = (await app.ask(EMAIL, '203.0.115.1')).body.data;
  for (let count = 0; count < 6; count++) await app.codeMail();
  t.equal(errorOf(await app.redeem(last.loginToken, 'ABCD-EFGH')), 'CODE_EXPIRED', 'no code was mailed');
  t.equal((await app.mailsTo(EMAIL)).filter((name) => name === 'login-code').length, 6);
  app.clock.advance(16 * MINUTE);
  const { loginToken, code } = await app.codeFor();
  t.equal((await app.redeem(loginToken, code)).status, 200);

  app.clock.advance(16 * MINUTE);
  const errors = [];
  let next = await app.codeFor();
  for (let count = 0; count < 11; count++) {
    if (count > 0 && count % 5 === 0) next = await app.codeFor();
    errors.push(errorOf(await app.redeem(next.loginToken, wrong(next.code))));
  }
  t.same(errors, [...Array(10).fill('INVALID_CODE'), 'RATE_LIMITED']);
  t.equal((await app.redeem(next.loginToken, next.code)).status, 200, 'a right code is always accepted');
});

t.test('the location of a sign-in with a code is known to the account', async (t) => {
  const app = await codeApp(t, { limits: true });
  await verified(app);
  const sources = (await storeOf(t, app)).collection('knownSources');
  await waitUntil('the location of the registration is known', async () => (await sources.count()) === 1);
  const { loginToken, code } = await app.codeFor();
  const given = { loginToken, code };
  const from = '203.0.113.9';
  t.equal((await app.post('/auth/email-login/redeem', given, { from })).status, 200);
  t.equal(await sources.count(), 2);
});

t.test('it is off unless it is enabled', async (t) => {
  const app = await saasApp(t, {} satisfies CreateServerOptions);
  for (const path of ['email-login', 'email-login/redeem'])
    t.equal((await app.request('POST', `/api/auth/${path}`, { body: {} })).status, 404);
});
