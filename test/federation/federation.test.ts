import t, { type Test } from 'tap';
import { userCollection } from '../../src/auth/store.js';
import { type IdentityDocument, identityCollection } from '../../src/federation/store.js';
import { principalCollection } from '../../src/provisioning/store.js';
import type { CreateServerOptions } from '../../src/saas/server.js';
import { auditOf, PASSWORD, type SaasApp, saasApp, storeOf } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { codeAt, FACTOR_KEY } from '../kit/factors.js';
import { idpApp, idpStore } from '../kit/idp.js';
import { CLIENT, fakeGitHub, fakeProvider, VERIFIER, visitor } from './kit.js';

/** Sign-in with accounts of other providers. */

const MINUTE = 60_000;

/** An application whose users can sign in with the provider `acme`. */
async function withProvider(t: Test, options: Partial<CreateServerOptions> = {}) {
  const provider = await fakeProvider(t);
  const login = { acme: { issuer: provider.url, label: 'Acme', ...CLIENT } };
  const app = await saasApp(t, { login, ...options } as never);
  return { provider, app, browser: visitor(app) };
}

/** A user with a verified address. */
async function verified(t: Test, app: SaasApp, email?: string) {
  const account = await app.signUp(email === undefined ? {} : { email });
  await userCollection(await storeOf(t, app)).updateOne({ id: account.id }, { set: { emailVerified: true } });
  return account;
}

const errorOf = ({ body }: { body: { error?: { code: string } } }) => body.error?.code;

const me = async (app: SaasApp, token: string) =>
  (await app.request('GET', '/api/auth/me', { token })).body.data;

t.test('a person signs up with an account of a provider, and signs in with it again', async (t) => {
  const { provider, app, browser } = await withProvider(t);
  const { body } = await app.request('GET', '/api/auth/providers');
  t.same(body.data.providers, [{ name: 'acme', label: 'Acme' }]);

  const url = new URL(await browser.begin());
  t.equal(url.origin + url.pathname, `${provider.url}/authorize`);
  t.match(Object.fromEntries(url.searchParams), {
    ...{ client_id: CLIENT.clientId, response_type: 'code', scope: 'openid email profile' },
    ...{ code_challenge_method: 'S256', code_challenge: /^[\w-]{43}$/, state: /./, nonce: /./ },
    redirect_uri: 'http://app.example.test/api/auth/callback/acme',
  });
  const back = await browser.finish(provider.visit(url.href));
  t.equal(back.status, 303);
  t.match(back.headers['location'], /^http:\/\/app\.example\.test\/welcome\?ticket=[\w.-]+$/);
  t.same(browser.cookies(), {}, 'the cookie is used');
  const ticket = new URL(back.headers['location'] ?? '').searchParams.get('ticket') ?? '';
  const signedIn = await browser.exchange(ticket);
  t.equal(signedIn.status, 200, signedIn.text);
  const { user, accessToken } = signedIn.body.data;
  t.match(user, { email: 'ada@example.test', name: 'Ada Lovelace', emailVerified: true });
  t.match(await me(app, accessToken), { session: { amr: ['fed'] } });
  const { identities } = (await app.request('GET', '/api/user/identities', { token: accessToken })).body.data;
  t.match(identities, [{ provider: 'acme', label: 'Acme', email: 'ada@example.test' }]);

  // The address at the provider may change; the account stays.
  provider.person = { ...provider.person, email: 'other@example.test', email_verified: false };
  const again = await browser.exchange(await browser.ticket(provider.visit));
  t.equal(again.body.data.user.id, user.id);
  const stored = JSON.stringify(
    (await identityCollection(await storeOf(t, app)).page({ sort: 'id', limit: 9 })).items,
  );
  t.notMatch(stored, /provider-access/, 'no token of the provider is stored');
  const events = (await auditOf(await storeOf(t, app))).map(({ event }) => event);
  t.same(events, ['user.registered', 'identity.connected', 'login.succeeded']);
});

t.test('a ticket is worth nothing without the verifier of the application, and expires', async (t) => {
  const { provider, app, browser } = await withProvider(t);
  const ticket = await browser.ticket(provider.visit);
  t.equal(errorOf(await browser.exchange(ticket, 'w'.repeat(43))), 'INVALID_TICKET');
  t.equal(errorOf(await browser.exchange(ticket.replace('v1.', 'v1.A'))), 'INVALID_TICKET');
  t.equal((await app.request('GET', '/api/auth/me', { token: ticket })).status, 401);
  await browser.begin();
  const [cookie = ''] = Object.values(browser.cookies());
  t.equal(errorOf(await browser.exchange(cookie)), 'INVALID_TICKET', 'a cookie is no ticket');
  app.clock.advance(10 * MINUTE);
  t.equal(errorOf(await browser.exchange(ticket)), 'INVALID_TICKET');
  t.equal(await userCollection(await storeOf(t, app)).count(), 0, 'nothing was created');
});

t.test('an account with the address is not taken over: its owner connects the provider', async (t) => {
  const { provider, app, browser } = await withProvider(t);
  const account = await app.signUp({ email: 'ada@example.test' });
  const ticket = await browser.ticket(provider.visit);
  t.match(await browser.exchange(ticket), { status: 409, body: { error: { code: 'ACCOUNT_EXISTS' } } });

  const connect = (token: string) =>
    app.request('POST', '/api/user/identities', { token, body: { ticket, codeVerifier: VERIFIER } });
  app.clock.advance(9 * MINUTE);
  const connected = await connect(account.accessToken);
  t.match(connected.body.data, { provider: 'acme' });
  t.same((await connect(account.accessToken)).body.data, connected.body.data, 'a repetition is no error');
  const other = await verified(t, app);
  t.equal(errorOf(await connect(other.accessToken)), 'IDENTITY_TAKEN');
  const signedIn = await browser.exchange(ticket);
  t.equal(signedIn.body.data.user.id, account.id);
});

t.test(
  'no provider with another address is connected before the address of the account is verified',
  async (t) => {
    const { provider, app, browser } = await withProvider(t);
    const stranger = await app.signUp({ email: 'victim@example.test' });
    const body = { ticket: await browser.ticket(provider.visit), codeVerifier: VERIFIER };
    const connect = () => app.request('POST', '/api/user/identities', { token: stranger.accessToken, body });
    t.match(await connect(), { status: 403, body: { error: { code: 'EMAIL_NOT_VERIFIED' } } });
    provider.lies = { claims: { email: 'victim@example.test', email_verified: false } };
    body.ticket = await browser.ticket(provider.visit);
    t.equal(errorOf(await connect()), 'EMAIL_NOT_VERIFIED', 'the provider has not verified it either');
    t.equal(await identityCollection(await storeOf(t, app)).count(), 0);

    const other = await app.signUp({ email: 'kim@example.test' });
    provider.lies = { claims: { email: '\u212aim@example.test', email_verified: true } };
    const lookalike = { ticket: await browser.ticket(provider.visit), codeVerifier: VERIFIER };
    const refused = await app.request('POST', '/api/user/identities', {
      ...{ token: other.accessToken, body: lookalike },
    });
    t.equal(errorOf(refused), 'EMAIL_NOT_VERIFIED', 'the Kelvin sign is no k');
  },
);

t.test('an address that the provider has not verified creates no account', async (t) => {
  const { provider, app, browser } = await withProvider(t);
  for (const claims of [{ email_verified: false }, { email_verified: undefined }, { email: undefined }]) {
    provider.lies = { claims };
    const refused = await browser.exchange(await browser.ticket(provider.visit));
    t.match(refused, { status: 403, body: { error: { code: 'PROVIDER_EMAIL_NOT_VERIFIED' } } });
  }
  t.equal(await identityCollection(await storeOf(t, app)).count(), 0);
  provider.lies = { claims: { email_verified: 'true' } };
  t.equal(
    (await browser.exchange(await browser.ticket(provider.visit))).status,
    200,
    'as some providers write it',
  );
});

t.test('a response that is wrong in any way signs nobody in', async (t) => {
  const { provider, browser } = await withProvider(t);
  const now = Math.floor(Date.now() / 1000);
  for (const [name, lies] of Object.entries({
    'another nonce': { claims: { nonce: 'x' } },
    'no nonce': { claims: { nonce: undefined } },
    'another audience': { claims: { aud: 'another' } },
    'another issuer': { claims: { iss: 'https://evil.example.test' } },
    'no subject': { claims: { sub: undefined } },
    expired: { claims: { exp: now - 3600 } },
    'another key': { isSignedByAnother: true },
    'another issuer of the response': { responseIssuer: 'https://evil.example.test' },
  })) {
    provider.lies = lies;
    const back = await browser.finish(provider.visit(await browser.begin()));
    t.equal(back.headers['location'], 'http://app.example.test/welcome?error=login_failed', name);
  }
  provider.lies = {};
  const callback = provider.visit(await browser.begin());
  callback.searchParams.delete('code');
  callback.searchParams.set('error', 'access_denied');
  const denied = await browser.finish(callback);
  t.equal(denied.headers['location'], 'http://app.example.test/welcome?error=access_denied');
});

t.test('a response belongs to the browser, the provider and the sign-in that it answers', async (t) => {
  const provider = await fakeProvider(t);
  const evil = await fakeProvider(t);
  const login = { acme: { issuer: provider.url, ...CLIENT }, evil: { issuer: evil.url, ...CLIENT } };
  const app = await saasApp(t, { login });
  const browser = visitor(app);
  const expired = async (answer: Promise<{ status: number; text: string }>, why: string) =>
    t.match(await answer, { status: 400, text: /Sign-in expired/ }, why);

  const callback = provider.visit(await browser.begin());
  await expired(visitor(app).finish(callback), 'another browser (login CSRF)');
  const mixedUp = new URL(callback);
  mixedUp.pathname = mixedUp.pathname.replace('/acme', '/evil');
  await expired(browser.finish(mixedUp), 'the callback of another provider (mix-up)');
  const otherState = new URL(callback);
  const [id] = (otherState.searchParams.get('state') ?? '').split('.');
  otherState.searchParams.set('state', `${id}.${'x'.repeat(43)}`);
  await expired(browser.finish(otherState), 'another state');
  for (const state of ['', 'x', `${id}`]) {
    const odd = new URL(callback);
    odd.searchParams.set('state', state);
    await expired(browser.finish(odd), `state ${state}`);
  }
  t.equal((await browser.finish(callback)).status, 303, 'the right one');
  await expired(browser.finish(callback), 'a second time');
  const late = provider.visit(await browser.begin());
  app.clock.advance(10 * MINUTE);
  await expired(browser.finish(late), 'after ten minutes');

  const tabs = [await browser.begin(), await browser.begin()];
  for (const url of tabs) t.equal((await browser.finish(provider.visit(url))).status, 303, 'several tabs');
});

t.test('a browser keeps the three newest of the sign-ins that it has begun', async (t) => {
  const { provider, app, browser } = await withProvider(t);
  const begun: URL[] = [];
  for (let count = 0; count < 40; count++) {
    begun.push(provider.visit(await browser.begin()));
    app.clock.advance(1);
    t.ok(Object.keys(browser.cookies()).length <= 3, `after ${count + 1}`);
  }
  const statuses = [];
  for (const callback of begun.slice(-4)) statuses.push((await browser.finish(callback)).status);
  t.same(statuses, [400, 303, 303, 303]);

  const odd = ['', 'ä', 'a b', 'x@y', '1', '2', '3', '4'].map((id) => `saas-login-${id}=x`).join('; ');
  const query = new URLSearchParams({ returnTo: '/welcome', codeChallenge: 'c'.repeat(43) });
  const answer = await app.request('GET', `/api/auth/login/acme?${query}`, { headers: { cookie: odd } });
  const set = [answer.headers['set-cookie'] ?? []].flat().map((line) => line.split(';', 1)[0]);
  t.equal(answer.status, 303);
  t.match(set, ['saas-login-1=', 'saas-login-2=', /^saas-login-[0-9a-f]{20}=./]);
});

t.test('the browser returns to the application only', async (t) => {
  const { app } = await withProvider(t, { corsOrigin: ['https://spa.example.test'] });
  const begin = (returnTo: string) =>
    app.request(
      'GET',
      `/api/auth/login/acme?${new URLSearchParams({ returnTo, codeChallenge: 'x'.repeat(43) })}`,
    );
  for (const returnTo of ['/a?b=c', 'https://spa.example.test/in', 'http://app.example.test/'])
    t.equal((await begin(returnTo)).status, 303, returnTo);
  for (const returnTo of [
    ...['https://evil.example.test/', '//evil.example.test/', '/\\evil.example.test', 'javascript:alert(1)'],
    ...['https://spa.example.test.evil.test/', 'https://u:p@spa.example.test/', '/a#b', ''],
  ])
    t.equal((await begin(returnTo)).status, 400, returnTo);
  t.equal(
    (await app.request('GET', `/api/auth/login/unknown?returnTo=/&codeChallenge=${'x'.repeat(43)}`)).status,
    404,
  );
  t.equal(
    (await app.request('GET', '/api/auth/login/acme?returnTo=/')).status,
    400,
    'a challenge is required',
  );
});

t.test('a provider that fails is answered 502, and works again when it does', async (t) => {
  const { provider, app, browser } = await withProvider(t);
  const callback = provider.visit(await browser.begin());
  provider.lies = { tokenStatus: 503 };
  t.match(await browser.finish(callback), { status: 502, text: /Sign-in is not available/ });
  provider.lies = {};
  t.match(await browser.ticket(provider.visit), /^v1\./);

  const gone = await saasApp(t, { login: { acme: { issuer: 'http://127.0.0.1:9', ...CLIENT } } });
  const query = new URLSearchParams({ returnTo: '/', codeChallenge: 'x'.repeat(43) });
  const answer = await gone.request('GET', `/api/auth/login/acme?${query}`);
  t.match(answer, { status: 502, text: /Sign-in is not available/ });
  t.ok(app);
});

t.test('sign-up obeys the operator, and a suspended account stays closed', async (t) => {
  const { provider, app, browser } = await withProvider(t);
  await app.admin('PATCH', '/admin/api/settings', { version: 0, allowRegistration: false });
  const refused = await browser.exchange(await browser.ticket(provider.visit));
  t.equal(errorOf(refused), 'REGISTRATION_DISABLED');
  const { version } = (await app.admin('GET', '/admin/api/settings')).body.data;
  await app.admin('PATCH', '/admin/api/settings', { version, allowRegistration: true });
  const { user } = (await browser.exchange(await browser.ticket(provider.visit))).body.data;
  await app.server.fastify.saas.users.suspend({ id: user.id });
  t.equal(errorOf(await browser.exchange(await browser.ticket(provider.visit))), 'ACCOUNT_SUSPENDED');
});

t.test('concurrent first sign-ins with one account of a provider create one user', async (t) => {
  const { provider, app, browser } = await withProvider(t, { limits: false });
  const ticket = await browser.ticket(provider.visit);
  const answers = await Promise.all(Array.from({ length: 50 }, () => browser.exchange(ticket)));
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
  t.equal(new Set(answers.map(({ body }) => body.data.user.id)).size, 1);
  t.equal(await userCollection(await storeOf(t, app)).count(), 1);
});

t.test('an account without a password is closed with a recent sign-in, and keeps one way in', async (t) => {
  const { provider, app, browser } = await withProvider(t, { accessTokenTtl: 3600 });
  const first = (await browser.exchange(await browser.ticket(provider.visit))).body.data;
  const token = first.accessToken;
  const [identity] = (await app.request('GET', '/api/user/identities', { token })).body.data.identities;
  const disconnect = () => app.request('DELETE', `/api/user/identities/${identity.id}`, { token });
  t.equal(errorOf(await disconnect()), 'LAST_LOGIN_METHOD');
  const identities = identityCollection(await storeOf(t, app));
  const { id: _, ...known } = (await identities.findOne({ id: identity.id })) as IdentityDocument;
  await identities.insert({ ...known, id: 'other', provider: 'removed' });
  t.equal(
    errorOf(await disconnect()),
    'LAST_LOGIN_METHOD',
    'a provider that is not configured any more is no way in',
  );
  await identities.deleteOne({ id: 'other' });
  const login = { email: 'ada@example.test', password: PASSWORD };
  t.equal((await app.request('POST', '/api/auth/login', { body: login })).status, 401);

  app.clock.advance(11 * MINUTE);
  const close = (body: object) => app.request('POST', '/api/user/delete', { token, body });
  t.equal(errorOf(await close({})), 'REAUTHENTICATION_REQUIRED');
  const recent = (await browser.exchange(await browser.ticket(provider.visit))).body.data.accessToken;
  const closed = await app.request('POST', '/api/user/delete', { token: recent, body: {} });
  t.equal(closed.status, 200, closed.text);
  const store = await storeOf(t, app);
  t.equal(await identityCollection(store).count(), 0);

  const account = await app.signUp();
  const missing = await app.request('POST', '/api/user/delete', { token: account.accessToken, body: {} });
  t.match(missing, { status: 400, body: { error: { details: [{ path: 'password' }] } } });
});

t.test('a provider is disconnected from an account that has a password', async (t) => {
  const { provider, app, browser } = await withProvider(t);
  const { accessToken: token } = await app.signUp({ email: 'ada@example.test' });
  const body = { ticket: await browser.ticket(provider.visit), codeVerifier: VERIFIER };
  const { id } = (await app.request('POST', '/api/user/identities', { token, body })).body.data;
  const { accessToken: other } = await app.signUp();
  t.equal((await app.request('DELETE', `/api/user/identities/${id}`, { token: other })).status, 404);
  t.equal((await app.request('DELETE', `/api/user/identities/${id}`, { token })).status, 200);
  t.equal(errorOf(await browser.exchange(body.ticket)), 'ACCOUNT_EXISTS');
});

t.test('a second factor is asked for after a sign-in at a provider, too', async (t) => {
  const { provider, app, browser } = await withProvider(t, { factorEncryptionKey: FACTOR_KEY });
  const { accessToken: token } = (await browser.exchange(await browser.ticket(provider.visit))).body.data;
  const { secret } = (await app.request('POST', '/api/user/second-factor/begin', { token })).body.data;
  const confirmation = { code: codeAt(secret, app.clock.now()) };
  await app.request('POST', '/api/user/second-factor/confirm', { token, body: confirmation });
  app.clock.advance(MINUTE);
  const asked = await browser.exchange(await browser.ticket(provider.visit));
  t.equal(errorOf(asked), 'SECOND_FACTOR_REQUIRED');
  const body = { challenge: asked.body.error.challenge, code: codeAt(secret, app.clock.now()) };
  const signedIn = await app.request('POST', '/api/auth/second-factor', { body });
  const { session } = await me(app, signedIn.body.data.accessToken);
  t.same(session.amr, ['fed', 'otp', 'mfa']);
});

t.test('people sign in with GitHub, by their number and their verified primary address', async (t) => {
  const github = await fakeGitHub(t);
  const app = await saasApp(t, { login: { github: { url: github.url, ...CLIENT } } });
  const browser = visitor(app, 'github');
  const url = new URL(await browser.begin());
  t.equal(url.searchParams.get('scope'), 'read:user user:email');
  const { user } = (await browser.exchange(await browser.ticket(github.visit))).body.data;
  t.match(user, { email: 'ada@example.test', name: 'Ada Lovelace' });
  github.user = { id: 42, login: 'renamed', name: null };
  github.emails = [{ email: 'new@example.test', primary: true, verified: false }];
  const again = await browser.exchange(await browser.ticket(github.visit));
  t.equal(again.body.data.user.id, user.id);
  github.user = { id: 43, login: 'ada', name: null };
  t.equal(errorOf(await browser.exchange(await browser.ticket(github.visit))), 'PROVIDER_EMAIL_NOT_VERIFIED');
});

t.test('people sign in with our own provider', async (t) => {
  const idp = await idpApp(t, { publicUrl: undefined, clock: fakeClock(Date.now()) });
  const origin = await idp.listen();
  const issuer = origin.replace('127.0.0.1', 'localhost');
  const redirect = 'http://app.example.test/api/auth/callback/idp';
  const client = await idp.createClient({ redirect_uris: [redirect] });
  const human = await idp.makeHuman({ handle: 'ada@example.test', name: 'Ada' });
  const principals = principalCollection(await idpStore(t, idp));
  await principals.updateOne({ id: human.sub }, { set: { emailVerifiedAt: 1 } });
  const login = { idp: { issuer, clientId: client.id, clientSecret: client.secret ?? '' } };
  const app = await saasApp(t, { login });
  const browser = visitor(app, 'idp');
  const visit = async (url: string) => {
    const { browser: agent } = await idp.visit(client);
    const form = await agent.open(url.replace(issuer, origin));
    const end = await agent.submit(form, { handle: human.handle, password: human.password });
    return new URL(end.location ?? '');
  };
  const { user } = (await browser.exchange(await browser.ticket(visit))).body.data;
  t.match(user, { email: 'ada@example.test', name: 'Ada', emailVerified: true });
  t.equal((await browser.exchange(await browser.ticket(visit))).body.data.user.id, user.id);
});

t.test(
  'a configuration that cannot work is refused with every reason, and without providers there are no routes',
  async (t) => {
    for (const [login, reason] of [
      [{ acme: { clientId: 'x' } }, /LOGIN_PROVIDERS needs an issuer for acme/],
      [{ 'A b': { issuer: 'https://a.test', clientId: 'x' } }, /must name each provider/],
      [{ google: { clientId: 'x', url: 'https://a.test' } }, /has a url for google/],
      [{ github: { clientId: 'x' } }, /needs a clientSecret for github/],
      [{ acme: { issuer: 'https://a.test', clientId: 'x', secret: 'y' } }, /LOGIN_PROVIDERS/],
    ] as const)
      await t.rejects(saasApp(t, { login: login as never }), reason);
    const plain = await saasApp(t);
    t.equal((await plain.request('GET', '/api/auth/providers')).status, 404);
    const { accessToken: token } = await plain.signUp();
    t.equal((await plain.request('GET', '/api/user/identities', { token })).status, 404);
  },
);

t.test('the host rejects a registration with a provider, of which nothing stays', async (t) => {
  const methods: string[] = [];
  const { provider, app, browser } = await withProvider(t, {
    hooks: {
      async beforeRegister({ email, name, method }) {
        methods.push(`${email} ${name} ${method}`);
        const identities = identityCollection(await storeOf(t, app));
        t.equal(await identities.count(), 0, 'a crash in the hook leaves nothing behind');
        return { reason: 'NOT_INVITED', message: 'Ask for an invitation.' };
      },
    },
  });
  const back = await browser.finish(provider.visit(await browser.begin()));
  const ticket = new URL(back.headers['location'] ?? '').searchParams.get('ticket') ?? '';
  const answer = await browser.exchange(ticket);
  t.equal(errorOf(answer), 'REGISTRATION_REJECTED');
  t.same(methods, ['ada@example.test Ada Lovelace provider']);
  const store = await storeOf(t, app);
  t.equal(await userCollection(store).count(), 0);
  t.equal(await identityCollection(store).count(), 0);
});
