import t, { type Test } from 'tap';
import type { CreateServerOptions } from '../../../src/saas/server.js';
import { factorCollection } from '../../../src/shared/factors/store.js';
import {
  type Account,
  auditOf,
  copiedCode,
  errorOf,
  PASSWORD,
  type SaasApp,
  saasApp,
  storeOf,
} from '../../kit/app.js';
import { codeAt, FACTOR_KEY, setUpFactor } from '../../kit/factors.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { mailedApp, RESET, UNLOCK, VERIFY } from './kit.js';

/** Second factors of users: codes of an authenticator app, which the tests compute as an app does. */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;

const ENABLED = { factorEncryptionKey: FACTOR_KEY } satisfies CreateServerOptions;
const REQUIRED = { ...ENABLED, secondFactor: 'required' } satisfies CreateServerOptions;

/** A user with a second factor, which was set up in the first session. */
async function enrolled(t: Test) {
  const app = await mailedApp(t, ENABLED);
  const account = await app.signUp({ emailVerified: true });
  const { accessToken: token } = account;
  return { app, account, token, ...(await setUpFactor(app, token)) };
}

const login = (app: SaasApp, { email, password }: { email: string; password: string }) =>
  app.post('/auth/login', { email, password });

const begin = (app: SaasApp, token: string) => app.post('/user/second-factor/begin', undefined, { token });

/** The challenge after the right password. */
async function challenged(t: Test, app: SaasApp, account: Account): Promise<string> {
  const answer = await login(app, account);
  t.match(answer, { status: 401, body: { success: false, error: { code: 'SECOND_FACTOR_REQUIRED' } } });
  t.notOk(answer.text.includes('accessToken'));
  return answer.body.error.challenge;
}

const complete = (app: SaasApp, challenge: string, code: string) =>
  app.post('/auth/second-factor', { challenge, code });

const amrOf = async (app: SaasApp, token: string) =>
  (await app.request('GET', '/api/auth/me', { token })).body.data.session.amr;

t.test('a user sets up an authenticator app, and sign-in asks for its code', async (t) => {
  const { app, account, token, code } = await enrolled(t);
  const { body } = await app.request('GET', '/api/user/second-factor', { token });
  t.match(body.data, { enrolledAt: /^2/, recoveryCodesLeft: 10, requiredFrom: null });

  app.clock.advance(MINUTE);
  const challenge = await challenged(t, app, account);
  const wrong = await complete(app, challenge, '000000');
  t.match(wrong, { status: 401, body: { error: { code: 'INVALID_CODE' } } });
  const signedIn = await complete(app, challenge, code());
  t.equal(signedIn.status, 200, signedIn.text);
  const { accessToken, refreshToken, user } = signedIn.body.data;
  t.equal(user.id, account.id);
  t.same(await amrOf(app, accessToken), ['pwd', 'otp', 'mfa']);
  const refreshed = (await app.post('/auth/refresh', { refreshToken })).body.data;
  t.same(await amrOf(app, refreshed.accessToken), ['pwd', 'otp', 'mfa'], 'after a refresh, too');

  const events = (await auditOf(await storeOf(t, app))).map(({ event }) => event);
  for (const event of ['factor.enrolled', 'login.second-factor-required', 'factor.failed', 'login.succeeded'])
    t.ok(events.includes(event), event);
});

t.test('the enrolment contains a QR code, a link and text', async (t) => {
  const app = await saasApp(t, ENABLED);
  const { accessToken, email } = await app.signUp({ emailVerified: true });
  const { secret, uri, qr } = (await begin(app, accessToken)).body.data;
  t.match(secret, /^([A-Z2-7]{4} ){7}[A-Z2-7]{4}$/);
  t.match(qr, /^<svg /);
  const parsed = new URL(uri);
  t.equal(parsed.protocol, 'otpauth:');
  t.equal(parsed.searchParams.get('secret'), secret.replaceAll(' ', ''));
  t.match(decodeURIComponent(parsed.pathname), new RegExp(`${email}$`));
});

t.test(
  'a code works once, a recovery code replaces it once, and neither works for another user',
  async (t) => {
    const { app, account, codes, code } = await enrolled(t);
    app.clock.advance(MINUTE);
    const used = code();
    t.equal((await complete(app, await challenged(t, app, account), copiedCode(used))).status, 200);
    t.equal(errorOf(await complete(app, await challenged(t, app, account), used)), 'INVALID_CODE');
    const recovery = ` ${copiedCode(codes[0]?.toUpperCase() ?? '')} `;
    const recovered = await complete(app, await challenged(t, app, account), recovery);
    t.equal(recovered.status, 200);
    const token = recovered.body.data.accessToken;
    t.same(await amrOf(app, token), ['pwd', 'rec', 'mfa']);
    t.equal(errorOf(await complete(app, await challenged(t, app, account), recovery)), 'INVALID_CODE');
    const state = await app.request('GET', '/api/user/second-factor', { token });
    t.equal(state.body.data.recoveryCodesLeft, 9);
  },
);

t.test('a challenge is worth nothing as a token, for another purpose, or after a change', async (t) => {
  const { app, account, token, code } = await enrolled(t);
  const challenge = await challenged(t, app, account);
  t.equal(await app.me({ accessToken: challenge }), 401);
  t.equal((await app.post('/auth/refresh', { refreshToken: challenge })).status, 401);
  const begun = await app.post('/auth/second-factor/begin', { challenge });
  t.equal(errorOf(begun), 'INVALID_CHALLENGE', 'a sign-in must not replace the factor');
  const forgery = challenge.replace(/\..{4}/, '.AAAA');
  for (const forged of [token, account.refreshToken, forgery, 'x', 'v1.'])
    t.equal(errorOf(await complete(app, forged, code())), 'INVALID_CHALLENGE');

  app.clock.advance(10 * MINUTE);
  t.equal(errorOf(await complete(app, challenge, code())), 'INVALID_CHALLENGE', 'it has expired');

  const before = await challenged(t, app, account);
  const change = { currentPassword: PASSWORD, newPassword: 'another long pass phrase' };
  t.equal((await app.post('/user/password', change, { token })).status, 200);
  t.equal(errorOf(await complete(app, before, code())), 'INVALID_CHALLENGE', 'the password was changed');
  const suspended = await challenged(t, app, { ...account, password: change.newPassword });
  await app.server.fastify.saas.users.suspend({ id: account.id });
  t.equal(errorOf(await complete(app, suspended, code())), 'INVALID_CHALLENGE');
});

t.test('a factor is set up once, and after the address is verified', async (t) => {
  const { app, token } = await enrolled(t);
  t.equal(errorOf(await begin(app, token)), 'FACTOR_EXISTS');
  const { accessToken } = await app.signUp();
  t.equal(errorOf(await begin(app, accessToken)), 'EMAIL_NOT_VERIFIED');
});

t.test('a session from before the enrolment cannot replace the factor', async (t) => {
  const app = await saasApp(t, ENABLED);
  const account = await app.signUp({ emailVerified: true });
  const { accessToken: thief } = (await login(app, account)).body.data;
  const { code } = await setUpFactor(app, account.accessToken);
  t.equal(errorOf(await begin(app, thief)), 'FACTOR_EXISTS');
  const confirmed = await app.post('/user/second-factor/confirm', { code: code() }, { token: thief });
  t.equal(errorOf(confirmed), 'FACTOR_CHANGED');
});

t.test('new recovery codes need a code, and the removal the password, too', async (t) => {
  const { app, account, token, codes, code } = await enrolled(t);
  app.clock.advance(MINUTE);
  const post = (path: string, body: object) => app.post(`/user/second-factor/${path}`, body, { token });
  t.equal(errorOf(await post('recovery-codes', { code: '123456' })), 'INVALID_CODE');
  const renewed = await post('recovery-codes', { code: code() });
  t.equal(renewed.body.data.recoveryCodes.length, 10);
  t.equal(errorOf(await post('recovery-codes', { code: codes[1] })), 'INVALID_CODE', 'an old one');

  app.clock.advance(MINUTE);
  t.equal(errorOf(await post('remove', { code: code(), password: 'wrong' })), 'INVALID_CREDENTIALS');
  t.equal(errorOf(await post('remove', { code: '123456', password: PASSWORD })), 'INVALID_CODE');
  t.equal((await post('remove', { code: code(), password: PASSWORD })).status, 200);
  t.equal((await login(app, account)).status, 200, 'the password is enough again');
  t.equal((await begin(app, token)).status, 200, 'another app can be set up');
  const mails = (await app.admin('GET', `/admin/api/mails?q=${account.id}`)).body.data.items;
  t.same(
    mails.map(({ template }: { template: string }) => template).sort(),
    ['second-factor-added', 'second-factor-removed', 'welcome'],
    'the owner gets a mail about each change, and none about a change that did not happen',
  );
});

t.test('the operator removes the factor of a user who has lost the device and all codes', async (t) => {
  const { app, account } = await enrolled(t);
  const path = `/admin/api/users/${account.id}`;
  t.match((await app.admin('GET', path)).body.data.secondFactorSince, /^2/);
  const removed = await app.admin('POST', `${path}/remove-second-factor`);
  t.equal(removed.status, 200, removed.text);
  t.equal((await app.admin('GET', path)).body.data.secondFactorSince, null);
  t.equal((await app.admin('POST', `${path}/remove-second-factor`)).status, 400, 'there is none any more');
  t.equal((await login(app, account)).status, 200);
  const records = await auditOf(await storeOf(t, app));
  t.match(
    records.find(({ event }) => event === 'factor.removed'),
    { subject: account.id, by: 'operator' },
  );
});

t.test('routes can require a recent proof of the user, and a second factor', async (t) => {
  const app = await saasApp(t, { ...ENABLED, accessTokenTtl: 3600 });
  const { fastify } = app.server;
  t.equal(typeof fastify.saas.requireRecentAuth({ secondFactor: true }), 'function');
  const account = await app.signUp({ emailVerified: true });
  let token = account.accessToken;
  app.clock.advance(11 * MINUTE);
  const stale = await begin(app, token);
  t.match(stale, { status: 401, body: { error: { code: 'REAUTHENTICATION_REQUIRED' } } });
  t.match(stale.headers['www-authenticate'], /error="insufficient_user_authentication", max_age="600"$/);

  const prove = (body: object) => app.post('/auth/reauthenticate', body, { token });
  t.equal(errorOf(await prove({ password: 'wrong' })), 'INVALID_CREDENTIALS');
  t.equal((await begin(app, token)).status, 401);
  const { session, accessToken } = (await prove({ password: PASSWORD })).body.data;
  t.equal(Date.parse(session.authenticatedAt), app.clock.now());
  t.equal(errorOf(await begin(app, token)), 'UNAUTHENTICATED', 'stolen tokens of the old session');
  const refreshed = await app.post('/auth/refresh', { refreshToken: account.refreshToken });
  t.equal(errorOf(refreshed), 'INVALID_REFRESH_TOKEN');
  const { sessions } = (await app.request('GET', '/api/auth/sessions', { token: accessToken })).body.data;
  t.match(sessions, [{ id: session.id, current: true }], 'the new one has replaced it');
  token = accessToken;
  const { code } = await setUpFactor(app, token);

  app.clock.advance(11 * MINUTE);
  t.equal(errorOf(await prove({ password: PASSWORD })), 'SECOND_FACTOR_REQUIRED');
  t.equal(errorOf(await prove({ password: PASSWORD, code: '000000' })), 'INVALID_CODE');
  const proven = await prove({ password: PASSWORD, code: code() });
  t.same(proven.body.data.session.amr, ['pwd', 'otp', 'mfa']);
});

t.test('a host requires them for its own routes', async (t) => {
  const app = await saasApp(t, ENABLED);
  const { saas } = app.server.fastify;
  const { accessToken, email } = await app.signUp({ emailVerified: true });
  const open = async (options: Parameters<typeof saas.requireRecentAuth>[0], token: string) => {
    const request = { headers: { authorization: `Bearer ${token}` } } as never;
    return saas.requireRecentAuth(options)(request);
  };
  await t.resolves(open({}, accessToken));
  await t.rejects(open({ secondFactor: true }, accessToken), { code: 'SECOND_FACTOR_REQUIRED' });
  app.clock.advance(31 * SECOND);
  await t.rejects(open({ maxAge: 30 }, accessToken), { code: 'REAUTHENTICATION_REQUIRED' });
  await t.resolves(open({ maxAge: 31 }, accessToken));
  await t.rejects(open({}, 'x'), { code: 'UNAUTHENTICATED' });

  const { code } = await setUpFactor(app, accessToken);
  app.clock.advance(MINUTE);
  const { challenge } = (await login(app, { email, password: PASSWORD })).body.error;
  const { accessToken: strong } = (await complete(app, challenge, code())).body.data;
  await t.resolves(open({ secondFactor: true }, strong));
});

t.test('a shorter period of grace applies to accounts whose period has begun', async (t) => {
  const folder = temporaryFolder(t);
  const before = await saasApp(t, { ...REQUIRED, folder, secondFactorGraceDays: 7 });
  const account = await before.signUp({ emailVerified: true });
  t.equal((await login(before, account)).status, 200);
  const { clock } = before;
  const longer = await saasApp(t, { ...REQUIRED, folder, clock, secondFactorGraceDays: 30 });
  clock.advance(6 * DAY);
  t.equal((await login(longer, account)).status, 200);
  const shorter = await saasApp(t, { ...REQUIRED, folder, clock, secondFactorGraceDays: 0 });
  t.equal(errorOf(await login(shorter, account)), 'SECOND_FACTOR_ENROLMENT_REQUIRED');
  t.equal(errorOf(await login(longer, account)), 'SECOND_FACTOR_ENROLMENT_REQUIRED', 'and stays');
});

t.test('an operator requires a second factor of everybody, after a period of grace', async (t) => {
  const app = await saasApp(t, { ...REQUIRED, secondFactorGraceDays: 3 });
  const account = await app.signUp();
  const during = await login(app, account);
  t.equal(during.status, 200);
  const { accessToken: token } = during.body.data;
  const { requiredFrom } = (await app.request('GET', '/api/user/second-factor', { token })).body.data;
  t.equal(Date.parse(requiredFrom), app.clock.now() + 3 * DAY);

  app.clock.advance(3 * DAY - 1);
  t.equal((await login(app, account)).status, 200);
  app.clock.advance(1);
  t.equal(errorOf(await login(app, account)), 'EMAIL_NOT_VERIFIED', 'the address comes first');
  await app.server.fastify.saas.users.update({ id: account.id }, { emailVerified: true });
  const asked = await login(app, account);
  t.match(asked, { status: 401, body: { error: { code: 'SECOND_FACTOR_ENROLMENT_REQUIRED' } } });
  const { challenge } = asked.body.error;
  t.equal(errorOf(await complete(app, challenge, '000000')), 'INVALID_CHALLENGE', 'it is for the enrolment');

  const { secret } = (await app.post('/auth/second-factor/begin', { challenge })).body.data;
  const confirm = (code: string) => app.post('/auth/second-factor/confirm', { challenge, code });
  t.equal(errorOf(await confirm('000000')), 'INVALID_CODE');
  const done = await confirm(codeAt(secret, app.clock.now()));
  t.equal(done.status, 200, done.text);
  t.equal(done.body.data.recoveryCodes.length, 10);
  t.same(await amrOf(app, done.body.data.accessToken), ['pwd', 'otp', 'mfa']);
  t.equal(errorOf(await login(app, account)), 'SECOND_FACTOR_REQUIRED');

  const late = await app.post('/auth/second-factor/begin', { challenge });
  t.equal(errorOf(late), 'FACTOR_EXISTS', 'the challenge cannot replace the factor');
});

t.test(
  'without an encryption key there are no routes, and no server starts that would ignore factors',
  async (t) => {
    const plain = await saasApp(t);
    const { accessToken: token } = await plain.signUp();
    for (const [method, path] of [
      ['GET', '/user/second-factor'],
      ['POST', '/user/second-factor/begin'],
      ['POST', '/auth/second-factor'],
    ] as const) {
      t.equal((await plain.request(method, `/api${path}`, { token })).status, 404, path);
    }
    t.throws(
      () => plain.server.fastify.saas.requireRecentAuth({ secondFactor: true }),
      /FACTOR_ENCRYPTION_KEY/,
    );
    await t.rejects(
      saasApp(t, { secondFactor: 'required' }),
      /SECOND_FACTOR=required requires FACTOR_ENCRYPTION_KEY/,
    );

    const folder = t.testdir();
    const first = await saasApp(t, { ...ENABLED, folder });
    const account = await first.signUp({ emailVerified: true });
    const { secret } = (await begin(first, account.accessToken)).body.data;
    await first.close();
    const pending = await saasApp(t, { folder });
    await pending.close();
    const again = await saasApp(t, { ...ENABLED, folder });
    const { accessToken } = (await login(again, account)).body.data;
    const code = codeAt(secret, again.clock.now());
    await again.post('/user/second-factor/confirm', { code }, { token: accessToken });
    await again.close();
    await t.rejects(
      saasApp(t, { folder }),
      /FACTOR_ENCRYPTION_KEY is not set, but accounts have a second factor/,
    );
  },
);

t.test('the export tells whether there is a factor, and a deleted account leaves none behind', async (t) => {
  const { app, token, account, code } = await enrolled(t);
  const exported = await app.request('GET', '/api/user/export', { token });
  t.match(exported.body.data.secondFactor, { recoveryCodesLeft: 10 });
  t.notOk(exported.text.includes(code()));
  t.equal((await app.post('/user/delete', { password: PASSWORD }, { token })).status, 200);
  t.equal(await factorCollection(await storeOf(t, app)).findOne({ id: account.id }), null);
});

t.test('a link with a new password that takes an account over removes its former factor', async (t) => {
  const NEW = 'another long pass phrase';
  const { app, account, token } = await enrolled(t);
  const VICTIM = 'victim@example.test';
  t.equal((await app.post('/user/email', { email: VICTIM, password: PASSWORD }, { token })).status, 202);
  const link = await app.tokenIn(VERIFY);
  t.equal((await app.post('/auth/verify-email', { token: link, password: NEW })).status, 200);
  const taken = { email: VICTIM, password: NEW };
  t.equal((await login(app, taken)).status, 200, 'the owner of the new address');
  t.equal(await factorCollection(await storeOf(t, app)).count({ confirmedAt: { gt: 0 } }), 0);
  const records = await auditOf(await storeOf(t, app));
  t.match(
    records.find(({ event }) => event === 'factor.removed'),
    { subject: account.id },
  );
  const mails = (await app.admin('GET', `/admin/api/mails?q=${account.id}`)).body.data.items;
  t.notOk(mails.some(({ template }: { template: string }) => template === 'second-factor-removed'));

  const own = await enrolled(t);
  await own.app.post('/auth/forgot-password', { email: own.account.email });
  const reset = { token: await own.app.tokenIn(RESET), password: NEW };
  t.equal((await own.app.post('/auth/reset-password', reset)).status, 200);
  const after = await login(own.app, { ...own.account, password: NEW });
  t.equal(errorOf(after), 'SECOND_FACTOR_REQUIRED', 'a verified address keeps its factor');

  const moved = await enrolled(t);
  await moved.app.server.fastify.saas.users.update({ id: moved.account.id }, { email: VICTIM });
  await moved.app.post('/auth/forgot-password', { email: VICTIM });
  const theirs = { token: await moved.app.tokenIn(RESET), password: NEW };
  t.equal((await moved.app.post('/auth/reset-password', theirs)).status, 200);
  t.equal((await login(moved.app, taken)).status, 200, 'by a reset, too');
});

t.test('an account with a second factor moves to another address after a recent sign-in only', async (t) => {
  const { app, token, code } = await enrolled(t);
  app.clock.advance(11 * MINUTE);
  const move = (token: string) =>
    app.post('/user/email', { email: 'new@example.test', password: PASSWORD }, { token });
  t.equal(errorOf(await move(token)), 'REAUTHENTICATION_REQUIRED');
  const proof = { password: PASSWORD, code: code() };
  const renewed = await app.post('/auth/reauthenticate', proof, { token });
  t.equal((await move(renewed.body.data.accessToken)).status, 202);
});

t.test('who knows a password cannot keep its owner from giving the code', async (t) => {
  const { app, account, code } = await enrolled(t);
  const { email } = account;
  const challenge = async (from: string) =>
    (await app.post('/auth/login', { email, password: PASSWORD }, { from })).body.error?.challenge;
  const give = async (given: string, from: string) =>
    app.post('/auth/second-factor', { challenge: await challenge(from), code: given }, { from });
  for (let index = 0; index < 60; index++)
    t.equal(errorOf(await give('000000', `198.51.100.${index}`)), 'INVALID_CODE');
  app.clock.advance(MINUTE);
  const elsewhere = '203.0.113.7';
  t.match(await give(code(), elsewhere), { status: 429, body: { message: /a link was sent to its e-mail/ } });
  t.equal((await give(code(), '127.0.0.1')).status, 200, 'where the owner has given one before');
  const link = await app.tokenIn(UNLOCK);
  t.equal((await app.post('/auth/unlock', { token: link }, { from: elsewhere })).status, 200);
  app.clock.advance(MINUTE);
  t.equal((await give(code(), elsewhere)).status, 200, 'and elsewhere by a mailed link');
});
