import t, { type Test } from 'tap';
import { userCollection } from '../../../src/saas/auth/store.js';
import { identityCollection } from '../../../src/saas/login-providers/store.js';
import type { CreateServerOptions } from '../../../src/saas/server.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { passkeyCollection } from '../../../src/shared/passkeys/store.js';
import { ADMIN, auditOf, PASSWORD, type SaasApp, saasApp, storeOf } from '../../kit/app.js';
import { type Deviation, SoftwareAuthenticator } from '../../kit/authenticator.js';
import { codeAt, FACTOR_KEY } from '../../kit/factors.js';
import { countedRandom } from '../../kit/random.js';
import { sentence } from '../../kit/sentences.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { type MailedApp, mailedApp, RESET, VERIFY } from '../auth/kit.js';

/** Passkeys of users over the JSON API, with an authenticator in software. */

const MINUTE = 60_000;
const ORIGIN = 'http://app.example.test';
const ENABLED = { passkeys: true } satisfies CreateServerOptions;

interface Begun {
  ceremony: string;
  /** As JSON. */
  options: string;
}

async function begin(app: SaasApp, path: string, body?: object, token?: string): Promise<Begun> {
  const answer = await app.request('POST', `/api${path}/begin`, {
    ...(body && { body }),
    ...(token !== undefined && { token }),
  });
  if (answer.status !== 200) throw new Error(answer.text);
  const { ceremony, options } = answer.body.data;
  return { ceremony, options: JSON.stringify(options) };
}

const errorOf = ({ body }: { body: { error?: { code: string } } }) => body.error?.code;

/** Submits the response to a ceremony. */
const submit = (
  app: SaasApp,
  path: string,
  { ceremony }: Begun,
  credential: string,
  { token, ...more }: { token?: string; name?: string; verificationToken?: string } = {},
) =>
  app.request('POST', `/api${path}`, {
    body: { ceremony, credential: JSON.parse(credential), ...more },
    ...(token !== undefined && { token }),
  });

async function signIn(app: SaasApp, authenticator: SoftwareAuthenticator, deviation?: Deviation, more = {}) {
  const begun = await begin(app, '/auth/passkey');
  return submit(app, '/auth/passkey', begun, authenticator.get(begun.options, deviation), more);
}

async function add(app: SaasApp, token: string, authenticator: SoftwareAuthenticator, more: object = {}) {
  const begun = await begin(app, '/user/passkeys', undefined, token);
  return submit(app, '/user/passkeys', begun, authenticator.create(begun.options), { token, ...more });
}

async function signUp(app: SaasApp, authenticator: SoftwareAuthenticator, email: string, name?: string) {
  const begun = await begin(app, '/auth/register/passkey', { email, ...(name && { name }) });
  return submit(app, '/auth/register/passkey', begun, authenticator.create(begun.options));
}

async function verify(t: Test, app: SaasApp, id: string): Promise<void> {
  const users = userCollection(await storeOf(t, app));
  await users.updateOne({ id }, { set: { emailVerified: true } });
}

/** A user with a verified address and a passkey beside the password. */
async function withPasskey(t: Test, options: Parameters<typeof saasApp>[1] = {}, counter = 0) {
  const app = await saasApp(t, { ...ENABLED, ...options });
  const account = await app.signUp({ name: 'Ada' });
  await verify(t, app, account.id);
  const authenticator = new SoftwareAuthenticator(ORIGIN, { counter });
  const added = await add(app, account.accessToken, authenticator);
  t.equal(added.status, 201, added.text);
  return { app, account, token: account.accessToken, authenticator, added };
}

const me = async (app: SaasApp, token: string) => (await app.request('GET', '/api/auth/me', { token })).body;
const list = async (app: SaasApp, token: string) =>
  (await app.request('GET', '/api/user/passkeys', { token })).body.data.passkeys;
const remove = (app: SaasApp, token: string, id: string, more: object = { password: PASSWORD }) =>
  app.request('POST', '/api/user/passkeys/remove', { token, body: { id, ...more } });
const eventsOf = async (t: Test, app: SaasApp) =>
  (await auditOf(await storeOf(t, app))).map(({ event }) => event);
const templatesOf = async (t: Test, app: SaasApp) => {
  const { items } = await mailCollection(await storeOf(t, app)).page({ sort: 'id', limit: 50 });
  return items.map(({ template }) => template).filter((name) => name.startsWith('passkey-'));
};

t.test('a user adds a passkey and signs in with it, without the address and the password', async (t) => {
  const { app, account, token, authenticator, added } = await withPasskey(t);
  t.match(added.body.data, { id: authenticator.name, name: 'Passkey', backedUp: true, lastUsedAt: null });
  const options = JSON.parse((await begin(app, '/auth/passkey')).options);
  t.match(options, { rpId: 'app.example.test', userVerification: 'required' });
  t.notOk('allowCredentials' in options, 'any passkey of the host');

  app.clock.advance(MINUTE);
  const answer = await signIn(app, authenticator);
  t.match(answer, { status: 200, body: { data: { user: { id: account.id, email: account.email } } } });
  const { session } = (await me(app, answer.body.data.accessToken)).data;
  t.same(session.amr, ['pop', 'user', 'mfa']);
  const { refreshToken } = answer.body.data;
  const refreshed = await app.request('POST', '/api/auth/refresh', { body: { refreshToken } });
  t.same((await me(app, refreshed.body.data.accessToken)).data.session.amr, ['pop', 'user', 'mfa']);

  const body = { id: authenticator.name, name: 'Phone' };
  t.equal((await app.request('POST', '/api/user/passkeys/rename', { token, body })).status, 200);
  t.match(await list(app, token), [{ name: 'Phone', lastUsedAt: /^2/ }]);
  const unknown = await app.request('POST', '/api/user/passkeys/rename', {
    token,
    body: { id: 'x', name: 'x' },
  });
  t.equal(unknown.status, 404);
  const events = await eventsOf(t, app);
  for (const event of ['passkey.added', 'passkey.renamed', 'login.succeeded'])
    t.ok(events.includes(event), event);
});

t.test(
  'without the option there are no routes, and an account that is deleted leaves no passkey',
  async (t) => {
    const folder = temporaryFolder(t);
    const { app, account } = await withPasskey(t, { folder });
    await app.close();
    const off = await saasApp(t, { folder, random: countedRandom('off') });
    for (const path of ['/auth/passkey/begin', '/auth/passkey', '/auth/register/passkey', '/user/passkeys'])
      t.equal((await off.request('POST', `/api${path}`, { body: {} })).status, 404, path);
    const login = await off.request('POST', '/api/auth/login', {
      body: { email: account.email, password: PASSWORD },
    });
    const deleted = await off.request('POST', '/api/user/delete', {
      ...{ token: login.body.data.accessToken, body: { password: PASSWORD } },
    });
    t.equal(deleted.status, 200, deleted.text);
    t.equal(await passkeyCollection(await storeOf(t, off)).count(), 0);
  },
);

t.test('a signature is accepted once, for its own request, and before that expires', async (t) => {
  const { app, authenticator, token } = await withPasskey(t);
  const genuine = await signIn(app, authenticator);
  t.equal(genuine.status, 200);

  const begun = await begin(app, '/auth/passkey');
  const credential = authenticator.get(begun.options);
  t.equal((await submit(app, '/auth/passkey', begun, credential)).status, 200);
  const replayed = await submit(app, '/auth/passkey', begun, credential);
  t.match(replayed, { status: 401, body: { error: { code: 'INVALID_PASSKEY' } } });
  const other = await begin(app, '/auth/passkey');
  t.equal(
    errorOf(await submit(app, '/auth/passkey', other, credential)),
    'INVALID_PASSKEY',
    'other challenge',
  );

  const stranger = new SoftwareAuthenticator(ORIGIN);
  const handle = Buffer.from('usr_other').toString('base64url');
  const unknown = await signIn(app, stranger, { userHandle: handle });
  t.same([unknown.status, errorOf(unknown)], [401, 'INVALID_PASSKEY'], 'an unknown passkey');
  t.equal(unknown.body.message, replayed.body.message);

  const late = await begin(app, '/auth/passkey');
  const lateCredential = authenticator.get(late.options);
  app.clock.advance(10 * MINUTE);
  t.equal(errorOf(await submit(app, '/auth/passkey', late, lateCredential)), 'PASSKEY_EXPIRED');
  const forged = { ...late, ceremony: `${late.ceremony.slice(0, -4)}AAAA` };
  t.equal(errorOf(await submit(app, '/auth/passkey', forged, lateCredential)), 'PASSKEY_EXPIRED');
  app.clock.advance(-10 * MINUTE);
  const forAdding = await begin(app, '/user/passkeys', undefined, token);
  const misused = await submit(app, '/auth/passkey', forAdding, authenticator.get(forAdding.options));
  t.equal(errorOf(misused), 'PASSKEY_EXPIRED', 'the ceremony of another purpose');
});

t.test('pages of listed origins below the host use passkeys, and no others', async (t) => {
  const corsOrigin = ['https://login.app.example.test', 'http://plain.app.example.test', 'https://evil.test'];
  const { app, authenticator } = await withPasskey(t, { corsOrigin });
  t.equal((await signIn(app, authenticator.at('https://login.app.example.test'))).status, 200);
  for (const origin of [
    'http://plain.app.example.test',
    'https://evil.test',
    'https://app.example.test.evil.test',
  ])
    t.equal(errorOf(await signIn(app, authenticator.at(origin))), 'INVALID_PASSKEY', origin);
});

t.test('a passkey is added by a recent session of a verified user only, for whom it was begun', async (t) => {
  const { app, token } = await withPasskey(t);
  const unverified = await app.signUp();
  const refused = await app.request('POST', '/api/user/passkeys/begin', { token: unverified.accessToken });
  t.match(refused, { status: 403, body: { error: { code: 'EMAIL_NOT_VERIFIED' } } });
  const begun = await begin(app, '/user/passkeys', undefined, token);
  const path = '/user/passkeys';
  const create = () => new SoftwareAuthenticator(ORIGIN).create(begun.options);
  const early = await submit(app, path, begun, create(), { token: unverified.accessToken });
  t.equal(errorOf(early), 'EMAIL_NOT_VERIFIED');
  await verify(t, app, unverified.id);
  const other = await submit(app, path, begun, create(), { token: unverified.accessToken });
  t.equal(errorOf(other), 'PASSKEY_EXPIRED', 'begun for another user');
  const foreign = new SoftwareAuthenticator('https://evil.test').create(begun.options);
  t.equal(errorOf(await submit(app, path, begun, foreign, { token })), 'PASSKEY_REJECTED');
  const credential = create();
  app.clock.advance(1000);
  t.equal((await submit(app, path, begun, credential, { token, name: 'Laptop' })).status, 201);
  t.equal(errorOf(await submit(app, path, begun, credential, { token })), 'PASSKEY_REJECTED', 'once');
  t.match(
    (await list(app, token)).map(({ name }: { name: string }) => name),
    ['Passkey', 'Laptop'],
  );

  for (let count = 2; count < 20; count++)
    t.equal((await add(app, token, new SoftwareAuthenticator(ORIGIN))).status, 201);
  const full = await app.request('POST', '/api/user/passkeys/begin', { token });
  t.match(full, { status: 409, body: { error: { code: 'TOO_MANY_PASSKEYS' } } });
  app.clock.advance(11 * MINUTE);
  const late = await app.request('POST', '/api/user/passkeys/begin', { token });
  t.match(late, { status: 401, body: { error: { code: 'REAUTHENTICATION_REQUIRED' } } });
});

t.test('a removal needs the password, and the last way to sign in stays', async (t) => {
  const { app, token, authenticator } = await withPasskey(t);
  t.equal((await remove(app, token, authenticator.name, {})).status, 400, 'no password');
  const wrong = await remove(app, token, authenticator.name, { password: 'wrong password' });
  t.equal(errorOf(wrong), 'INVALID_CREDENTIALS');
  t.equal((await remove(app, token, 'x')).status, 404);
  t.equal((await remove(app, token, authenticator.name)).status, 200);
  t.same(await list(app, token), []);
  t.equal(errorOf(await signIn(app, authenticator)), 'INVALID_PASSKEY');

  const [first, second] = [new SoftwareAuthenticator(ORIGIN), new SoftwareAuthenticator(ORIGIN)];
  const { data } = (await signUp(app, first, 'only@example.test')).body;
  await verify(t, app, data.user.id);
  t.equal(errorOf(await remove(app, data.accessToken, first.name, {})), 'LAST_LOGIN_METHOD');
  t.equal((await add(app, data.accessToken, second)).status, 201);
  t.equal((await remove(app, data.accessToken, second.name, {})).status, 200);
  app.clock.advance(11 * MINUTE);
  const late = await remove(app, data.accessToken, first.name, {});
  t.equal(errorOf(late), 'REAUTHENTICATION_REQUIRED');
});

t.test('a person signs up with a passkey and no password', async (t) => {
  const app = await saasApp(t, ENABLED);
  const authenticator = new SoftwareAuthenticator(ORIGIN);
  const answer = await signUp(app, authenticator, 'Ada@example.test', 'Ada');
  t.match(answer, {
    status: 201,
    body: { data: { user: { email: 'ada@example.test', name: 'Ada', emailVerified: false } } },
  });
  const { user, accessToken: token } = answer.body.data;
  t.same((await me(app, token)).data.session.amr, ['pop', 'user', 'mfa']);
  t.match(await signIn(app, authenticator), { status: 200, body: { data: { user: { id: user.id } } } });
  const login = await app.request('POST', '/api/auth/login', {
    body: { email: 'ada@example.test', password: PASSWORD },
  });
  t.equal(errorOf(login), 'INVALID_CREDENTIALS');

  const taken = new SoftwareAuthenticator(ORIGIN);
  t.match(await signUp(app, taken, 'ada@example.test'), {
    status: 409,
    body: { error: { code: 'EMAIL_TAKEN' } },
  });
  t.equal(errorOf(await signIn(app, taken)), 'INVALID_PASSKEY');
  const foreign = new SoftwareAuthenticator('https://evil.test');
  t.equal(errorOf(await signUp(app, foreign, 'eve@example.test')), 'PASSKEY_REJECTED');
  const passkeys = passkeyCollection(await storeOf(t, app));
  t.equal(await passkeys.count(), 1, 'no other passkey is left');
  await app.admin('PATCH', '/admin/api/settings', { allowRegistration: false, version: 0 });
  const refused = await signUp(app, new SoftwareAuthenticator(ORIGIN), 'new@example.test');
  t.equal(errorOf(refused), 'REGISTRATION_DISABLED');
  t.equal(await passkeys.count(), 1);
});

t.test('the host rejects a registration with a passkey, which is not stored', async (t) => {
  const methods: string[] = [];
  let rejects = true;
  const app = await saasApp(t, {
    ...ENABLED,
    hooks: {
      accessTokenClaims: () => Promise.reject(new Error('no')),
      beforeRegister({ email, method }) {
        methods.push(`${email} ${method}`);
        return rejects ? { reason: 'NOT_INVITED', message: 'Ask for an invitation.' } : undefined;
      },
    },
  });
  const answer = await signUp(app, new SoftwareAuthenticator(ORIGIN), 'Ada@example.test');
  t.match(answer, { status: 403, body: { message: 'Ask for an invitation.' } });
  t.equal(errorOf(answer), 'REGISTRATION_REJECTED');
  t.equal(await passkeyCollection(await storeOf(t, app)).count(), 0);
  t.same(methods, ['ada@example.test passkey']);
  rejects = false;
  const failed = await signUp(app, new SoftwareAuthenticator(ORIGIN), 'Ada@example.test');
  t.equal(failed.status, 503);
  t.equal(await passkeyCollection(await storeOf(t, app)).count(), 0, 'nor without its claims');
});

t.test(
  'where addresses are confirmed first, the passkey and the mailed link do it in one step',
  async (t) => {
    const app = await mailedApp(t, { ...ENABLED, requireEmailVerification: true });
    const authenticator = new SoftwareAuthenticator(ORIGIN);
    const answer = await signUp(app, authenticator, 'ada@example.test');
    t.match(answer, { status: 202, body: { success: true } });
    const verificationToken = await app.tokenIn(VERIFY);
    t.equal(errorOf(await signIn(app, authenticator)), 'EMAIL_NOT_VERIFIED');

    const other = new SoftwareAuthenticator(ORIGIN);
    await signUp(app, other, 'eve@example.test');
    await app.tokenIn(VERIFY);
    t.equal(errorOf(await signIn(app, other, {}, { verificationToken })), 'INVALID_TOKEN', 'of another');
    const confirmed = await signIn(app, authenticator, {}, { verificationToken });
    t.match(confirmed, { status: 200, body: { data: { user: { emailVerified: true } } } });
    t.equal((await signIn(app, authenticator, {}, { verificationToken })).status, 200, 'a repetition');
    app.clock.advance(24 * 60 * MINUTE);
    t.equal(errorOf(await signIn(app, authenticator, {}, { verificationToken })), 'INVALID_TOKEN', 'expired');
    t.equal((await signIn(app, authenticator)).status, 200);

    const again = new SoftwareAuthenticator(ORIGIN);
    const repeated = await signUp(app, again, 'ada@example.test');
    t.same([repeated.status, repeated.text], [202, answer.text], 'the same for an existing account');
    await app.mail(RESET);
    t.equal(errorOf(await signIn(app, again)), 'INVALID_PASSKEY');
    t.equal(await passkeyCollection(await storeOf(t, app)).count(), 2);
  },
);

/** A stranger has signed up with the address of someone else. */
async function hijacked(t: Test, options: Parameters<typeof mailedApp>[1] = {}) {
  const app = await mailedApp(t, { ...ENABLED, ...options });
  const authenticator = new SoftwareAuthenticator(ORIGIN);
  const { data } = (await signUp(app, authenticator, 'owner@example.test')).body;
  return { app, authenticator, token: data.accessToken as string, id: data.user.id as string };
}

const linkFor = async (app: MailedApp, path: string, subject: RegExp) => {
  await app.post(path, { email: 'owner@example.test' });
  return app.tokenIn(subject);
};

t.test('the owner of an address gets an account without the passkeys of a stranger', async (t) => {
  for (const [path, subject, use] of [
    ['/auth/forgot-password', RESET, '/auth/reset-password'],
    ['/auth/resend-verification', VERIFY, '/auth/verify-email'],
  ] as const) {
    const { app, authenticator, token, id } = await hijacked(t);
    const link = await linkFor(app, path, subject);
    t.equal((await app.post(use, { token: link, password: PASSWORD })).status, 200);
    t.equal(errorOf(await signIn(app, authenticator)), 'INVALID_PASSKEY', use);
    t.equal((await app.request('GET', '/api/auth/me', { token })).status, 401);
    t.equal(await passkeyCollection(await storeOf(t, app)).count({ account: id }), 0);
    t.same(await templatesOf(t, app), [], 'the owner hears nothing of passkeys');
  }
});

t.test(
  'a new address with a new password ends the passkeys, and a session that confirms it keeps them',
  async (t) => {
    const move = async (isOwner: boolean) => {
      const login = { github: { clientId: 'x', clientSecret: 'x' } };
      const { app, authenticator, token, id } = await hijacked(t, { login });
      await verify(t, app, id);
      const identities = identityCollection(await storeOf(t, app));
      const identity = { provider: 'github', issuer: 'https://github.com', subject: '1', createdAt: 1 };
      await identities.insert({ id: 'theirs', userId: id, ...identity });
      const email = 'victim@example.test';
      t.equal((await app.request('POST', '/api/user/email', { token, body: { email } })).status, 202);
      const link = await app.tokenIn(VERIFY);
      const body = isOwner ? { token: link } : { token: link, password: PASSWORD };
      const confirmed = await app.request('POST', '/api/auth/verify-email', {
        body,
        ...(isOwner && { token }),
      });
      t.equal(confirmed.status, 200, confirmed.text);
      t.equal(await identities.count(), isOwner ? 1 : 0, 'connected providers');
      return signIn(app, authenticator);
    };
    t.equal(errorOf(await move(false)), 'INVALID_PASSKEY');
    t.equal((await move(true)).status, 200);
  },
);

t.test(
  'a sign-in with a passkey during which the owner takes the account over gives no access',
  async (t) => {
    let takeOver: (() => Promise<unknown>) | undefined;
    const hooks = {
      /** Runs after the account was read, and before the session is stored. */
      async accessTokenClaims() {
        const run = takeOver;
        takeOver = undefined;
        await run?.();
        return {};
      },
    };
    const { app, authenticator } = await hijacked(t, { hooks });
    const link = await linkFor(app, '/auth/forgot-password', RESET);
    takeOver = () => app.post('/auth/reset-password', { token: link, password: PASSWORD });
    const { body } = await signIn(app, authenticator);
    t.equal(takeOver, undefined, 'taken over meanwhile');
    t.equal((await app.request('GET', '/api/auth/me', { token: body.data?.accessToken })).status, 401);
    t.equal(errorOf(await signIn(app, authenticator)), 'INVALID_PASSKEY');
  },
);

t.test('a forgotten password at a verified address keeps the passkeys', async (t) => {
  const { app, authenticator, id } = await hijacked(t);
  await verify(t, app, id);
  const link = await linkFor(app, '/auth/forgot-password', RESET);
  t.equal((await app.post('/auth/reset-password', { token: link, password: PASSWORD })).status, 200);
  t.equal((await signIn(app, authenticator)).status, 200);
});

t.test('a suspended user is refused, and a deleted one leaves nothing behind', async (t) => {
  const { app, account, token, authenticator } = await withPasskey(t);
  const { saas } = app.server.fastify;
  await saas.users.suspend({ id: account.id });
  t.match(await signIn(app, authenticator), { status: 403, body: { error: { code: 'ACCOUNT_SUSPENDED' } } });
  await saas.users.unsuspend({ id: account.id });
  const session = await signIn(app, authenticator);
  t.equal(session.status, 200);
  t.equal((await app.request('GET', '/api/user/passkeys', { token })).status, 401, 'the earlier session');
  const deleted = await app.request('POST', '/api/user/delete', {
    ...{ token: session.body.data.accessToken, body: { password: PASSWORD } },
  });
  t.equal(deleted.status, 200);
  t.equal(errorOf(await signIn(app, authenticator)), 'INVALID_PASSKEY');
  t.equal(await passkeyCollection(await storeOf(t, app)).count(), 0);
});

t.test('a passkey is enough where a second factor is required, or set up', async (t) => {
  const rule = {
    factorEncryptionKey: FACTOR_KEY,
    secondFactor: 'required',
    secondFactorGraceDays: 0,
  } as const;
  const { app, account, token, authenticator } = await withPasskey(t, { factorEncryptionKey: FACTOR_KEY });
  const { body } = await app.request('POST', '/api/user/second-factor/begin', { token });
  const code = codeAt(body.data.secret, app.clock.now());
  await app.request('POST', '/api/user/second-factor/confirm', { token, body: { code } });
  const login = await app.request('POST', '/api/auth/login', {
    body: { email: account.email, password: PASSWORD },
  });
  t.equal(errorOf(login), 'SECOND_FACTOR_REQUIRED');
  t.equal((await signIn(app, authenticator)).status, 200);

  const strict = await saasApp(t, { ...ENABLED, ...rule });
  const only = new SoftwareAuthenticator(ORIGIN);
  await signUp(strict, only, 'ada@example.test');
  t.equal((await signIn(strict, only)).status, 200);
});

t.test('a passkey satisfies a route that requires a second factor', async (t) => {
  const { app, authenticator, token } = await withPasskey(t);
  const guard = app.server.fastify.saas.requireRecentAuth({ secondFactor: true });
  const request = (accessToken: string) =>
    guard({ headers: { authorization: `Bearer ${accessToken}` } } as never).then(
      () => 'open',
      ({ code }) => code,
    );
  t.equal(await request(token), 'SECOND_FACTOR_REQUIRED');
  t.equal(await request((await signIn(app, authenticator)).body.data.accessToken), 'open');
});

t.test('the operator sees and removes the passkeys of a user, who gets one mail', async (t) => {
  const { app, account, token } = await withPasskey(t);
  await add(app, token, new SoftwareAuthenticator(ORIGIN));
  t.same(await templatesOf(t, app), ['passkey-added', 'passkey-added']);
  const path = `/admin/users/${account.id}`;
  const page = await app.request('GET', path, { headers: ADMIN });
  t.match(page.text, /Passkeys<\/dt>\s*<dd[^>]*>\s*2/);
  t.match(page.text, 'Remove the passkeys');
  const api = `/admin/api/users/${account.id}`;
  t.equal((await app.admin('GET', api)).body.data.passkeys, 2);
  t.equal((await app.admin('POST', `${api}/remove-passkeys`, {})).status, 200);
  t.equal((await app.admin('POST', `${api}/remove-passkeys`, {})).status, 400, 'there is none any more');
  t.equal((await app.admin('GET', api)).body.data.passkeys, 0);
  const records = await auditOf(await storeOf(t, app));
  t.match(
    records.find(({ event }) => event === 'passkey.removed'),
    { subject: account.id, by: 'operator' },
  );
  t.equal((await templatesOf(t, app)).filter((name) => name === 'passkey-removed').length, 1);
  const plain = await saasApp(t);
  const other = await plain.signUp();
  t.notMatch((await plain.request('GET', `/admin/users/${other.id}`, { headers: ADMIN })).text, 'Passkeys');
});

t.test('the export of an account contains its passkeys without their keys', async (t) => {
  const { app, token, authenticator } = await withPasskey(t);
  const { text, body } = await app.request('GET', '/api/user/export', { token });
  t.match(body.data.passkeys, [{ id: authenticator.name, name: 'Passkey' }]);
  t.notMatch(text, 'publicKey');
});

t.test('a user gets an e-mail when a passkey was added or removed', async (t) => {
  const app = await mailedApp(t, ENABLED);
  const account = await app.signUp();
  await verify(t, app, account.id);
  const authenticator = new SoftwareAuthenticator(ORIGIN);
  await add(app, account.accessToken, authenticator);
  const added = await app.mail(sentence('mail.passkey-added.subject'));
  t.match(added, { to: [account.email], text: sentence('mail.passkey-added.text') });
  t.equal((await remove(app, account.accessToken, authenticator.name)).status, 200);
  t.match(
    (await app.mail(sentence('mail.passkey-removed.subject'))).text,
    sentence('mail.passkey-removed.text'),
  );
});

t.test('every new passkey is reported, whatever another user or an earlier one was called', async (t) => {
  const { app, account, token, authenticator } = await withPasskey(t);
  const eve = await app.signUp();
  await verify(t, app, eve.id);
  const copied = await add(app, eve.accessToken, authenticator);
  t.equal(errorOf(copied), 'PASSKEY_REJECTED', 'the ID is taken');
  t.equal((await remove(app, token, authenticator.name)).status, 200);
  app.clock.advance(1000);
  t.equal((await add(app, token, authenticator)).status, 201, 'the same again');
  const mails = mailCollection(await storeOf(t, app));
  const { items } = await mails.page({ where: { userId: account.id }, sort: 'id', limit: 50 });
  const names = items.map(({ template }) => template).filter((name) => name.startsWith('passkey-'));
  t.same(names.sort(), ['passkey-added', 'passkey-added', 'passkey-removed']);
});

t.test('a mailed code gives the account to the owner of its address, without the passkeys', async (t) => {
  const { app, authenticator, id } = await hijacked(t, { emailLogin: true });
  const email = 'owner@example.test';
  const asked = await app.post('/auth/email-login', { email });
  const { loginToken } = asked.body.data;
  const { text } = await app.mail(sentence('mail.login-code.subject'));
  const code = /^[0-9A-Z]{4}-[0-9A-Z]{4}$/m.exec(text)?.[0] ?? '';
  const redeemed = await app.post('/auth/email-login/redeem', { loginToken, code });
  t.equal(redeemed.status, 200, redeemed.text);
  t.equal(errorOf(await signIn(app, authenticator)), 'INVALID_PASSKEY');
  t.equal(await passkeyCollection(await storeOf(t, app)).count({ account: id }), 0);
  const token = redeemed.body.data.accessToken;
  const own = new SoftwareAuthenticator(ORIGIN);
  t.equal((await add(app, token, own)).status, 201);
  t.equal((await remove(app, token, own.name, {})).status, 200, 'a code can always be mailed');
});
