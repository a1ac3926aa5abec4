import t, { type Test } from 'tap';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { type IdentityDocument, identityCollection } from '../../../src/saas/login-providers/store.js';
import type { CreateServerOptions } from '../../../src/saas/server.js';
import {
  type Account,
  type Answer,
  auditOf,
  errorOf,
  PASSWORD,
  type SaasApp,
  saasApp,
  storeOf,
} from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { FACTOR_KEY, setUpFactor } from '../../kit/factors.js';
import { idpApp, idpStore } from '../../kit/idp.js';
import { mailSink, readMail } from '../../kit/mail.js';
import { waitUntil } from '../../kit/wait.js';
import { CLIENT, fakeGitHub, fakeProvider, ticketIn, visitor } from './kit.js';

/** Sign-in with accounts of other providers. */

const MINUTE = 60_000;

/** An application whose users can sign in with the provider `acme`. */
async function withProvider(t: Test, options: Partial<CreateServerOptions> = {}) {
  const provider = await fakeProvider(t);
  const login = { acme: { issuer: provider.url, label: 'Acme', ...CLIENT } };
  const app = await saasApp(t, { login, ...options } as never);
  return { provider, app, browser: visitor(app) };
}

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
  const signedIn = await browser.exchange(ticketIn(back));
  t.equal(signedIn.status, 200, signedIn.text);
  const { user, accessToken } = signedIn.body.data;
  t.match(user, { email: 'ada@example.test', name: 'Ada Lovelace', emailVerified: true });
  t.match(await me(app, accessToken), { session: { amr: ['fed'] } });
  const { identities } = (await app.request('GET', '/api/user/identities', { token: accessToken })).body.data;
  t.match(identities, [{ provider: 'acme', label: 'Acme', email: 'ada@example.test' }]);

  // The address at the provider may change; the account stays.
  provider.person = { ...provider.person, email: 'other@example.test', email_verified: false };
  const again = await browser.signIn(provider.visit);
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

  app.clock.advance(9 * MINUTE);
  const connected = await browser.connect(account, ticket);
  t.match(connected.body.data, { provider: 'acme' });
  t.equal(errorOf(await browser.connect(account, ticket)), 'INVALID_TICKET', 'used');
  const again = await browser.connect(account, await browser.ticket(provider.visit));
  t.same(again.body.data, connected.body.data, 'a repetition is no error');
  const other = await app.signUp({ emailVerified: true });
  const spare = await browser.ticket(provider.visit);
  t.equal(errorOf(await browser.connect(other, spare)), 'IDENTITY_TAKEN');
  const signedIn = await browser.exchange(spare);
  t.equal(signedIn.body.data.user.id, account.id);
});

t.test(
  'no provider with another address is connected before the address of the account is verified',
  async (t) => {
    const { provider, app, browser } = await withProvider(t);
    const stranger = await app.signUp({ email: 'victim@example.test' });
    const connect = async (account = stranger) =>
      errorOf(await browser.connect(account, await browser.ticket(provider.visit)));
    t.equal(await connect(), 'EMAIL_NOT_VERIFIED');
    provider.lies = { claims: { email: 'victim@example.test', email_verified: false } };
    t.equal(await connect(), 'EMAIL_NOT_VERIFIED', 'the provider has not verified it either');
    t.equal(await identityCollection(await storeOf(t, app)).count(), 0);

    const other = await app.signUp({ email: 'kim@example.test' });
    provider.lies = { claims: { email: '\u212aim@example.test', email_verified: true } };
    t.equal(await connect(other), 'EMAIL_NOT_VERIFIED', 'the Kelvin sign is no k');
  },
);

t.test('an address that the provider has not verified creates no account', async (t) => {
  const { provider, app, browser } = await withProvider(t);
  for (const claims of [{ email_verified: false }, { email_verified: undefined }, { email: undefined }]) {
    provider.lies = { claims };
    const refused = await browser.signIn(provider.visit);
    t.match(refused, { status: 403, body: { error: { code: 'PROVIDER_EMAIL_NOT_VERIFIED' } } });
  }
  t.equal(await identityCollection(await storeOf(t, app)).count(), 0);
  provider.lies = { claims: { email_verified: 'true' } };
  t.equal((await browser.signIn(provider.visit)).status, 200, 'as some providers write it');
});

t.test(
  'an operator trusts the addresses of a provider, and claims of Entra ID stand for its own',
  async (t) => {
    const provider = await fakeProvider(t);
    const strict = { issuer: provider.url, ...CLIENT };
    const app = await saasApp(t, {
      login: { acme: strict, directory: { ...strict, trustEmail: true } },
      limits: false,
    });
    let people = 0;
    const signUp = async (claims: Record<string, unknown>, at = 'acme') => {
      const email = `person${++people}@example.test`;
      provider.lies = {
        claims: { sub: email, email, email_verified: undefined, verified_primary_email: [email], ...claims },
      };
      return (await visitor(app, at).signIn(provider.visit)).status;
    };
    const none = { verified_primary_email: undefined };
    t.equal(await signUp({}), 200, 'the address is the verified one');
    t.equal(await signUp({ verified_primary_email: ['other@example.test'] }), 403);
    for (const isDomainVerified of [true, 1, '1', 'true'])
      t.equal(await signUp({ ...none, xms_edov: isDomainVerified }), 200, `xms_edov ${isDomainVerified}`);
    for (const isDomainVerified of [false, 0, '0', undefined])
      t.equal(await signUp({ ...none, xms_edov: isDomainVerified }), 403, `xms_edov ${isDomainVerified}`);
    t.equal(await signUp({ email_verified: false, xms_edov: true }), 403, 'the standard claim decides');
    for (const isVerified of [false, undefined]) {
      t.equal(await signUp({ ...none, email_verified: isVerified }), 403, `untrusted, ${isVerified}`);
      t.equal(
        await signUp({ ...none, email_verified: isVerified }, 'directory'),
        200,
        `trusted, ${isVerified}`,
      );
    }
  },
);

t.test('a provider without nonces signs people in, unless its metadata say otherwise', async (t) => {
  const provider = await fakeProvider(t);
  const plain = { issuer: provider.url, ...CLIENT };
  const attempt = async (metadata: object, nonce: unknown, option: object = {}) => {
    provider.lies = {
      metadata: { code_challenge_methods_supported: undefined, ...metadata },
      claims: { ...(nonce !== 'right' && { nonce }) },
    };
    const browser = visitor(await saasApp(t, { login: { acme: { ...plain, ...option } } }));
    return /\?(ticket|error)=/.exec((await browser.ticket(provider.visit)).replace(/^v1/, '?ticket='))?.[1];
  };
  t.equal(await attempt({}, undefined), 'ticket');
  t.equal(await attempt({}, 'right'), 'ticket');
  t.equal(await attempt({}, 'wrong'), 'error');
  t.equal(await attempt({ claims_supported: ['sub', 'nonce'] }, undefined), 'error');
  t.equal(await attempt({ code_challenge_methods_supported: ['S256'] }, undefined), 'error');
  t.equal(await attempt({ claims_supported: ['nonce'] }, undefined, { nonce: false }), 'ticket');
  t.equal(await attempt({ claims_supported: ['nonce'] }, 'wrong', { nonce: false }), 'error');
  t.equal(await attempt({}, undefined, { nonce: true }), 'error');
});

t.test('the scope of a token response may be a list, as Twitch sends it', async (t) => {
  const { provider, browser } = await withProvider(t);
  provider.lies = { tokens: { scope: ['openid', 'email'] } };
  t.equal((await browser.signIn(provider.visit)).status, 200);
  provider.lies = { tokens: { scope: 7 } };
  t.match(await browser.ticket(provider.visit), /login_failed/);
});

t.test('a provider submits its response as a form, as Apple does', async (t) => {
  const provider = await fakeProvider(t);
  const login = { apple: { issuer: provider.url, ...CLIENT, responseMode: 'form_post' as const } };
  const app = await saasApp(t, { login });
  const browser = visitor(app, 'apple');
  provider.lies = { claims: { name: undefined } };
  const url = await browser.begin();
  t.equal(new URL(url).searchParams.get('response_mode'), 'form_post');
  const callback = provider.visit(url);
  const name = { firstName: 'Ada', lastName: 'Lovelace' };
  callback.searchParams.set('user', JSON.stringify({ name, email: 'else@example.test' }));
  const hop = await browser.post(callback);
  t.equal(hop.status, 303);
  t.match(
    hop.headers['location'],
    /^\/api\/auth\/callback\/apple\?/,
    'browsers send no cookie with the form',
  );
  const back = await browser.finish(new URL(hop.headers['location'] ?? '', 'http://app.example.test'));
  const { user } = (await browser.exchange(ticketIn(back))).body.data;
  t.match(user, { email: 'ada@example.test', name: 'Ada Lovelace' }, 'only the name is taken from the form');

  const again = await browser.post(provider.visit(await browser.begin()), { cookies: true });
  t.match(again.headers['location'], /welcome\?ticket=/, 'with the cookie at once');
  const stranger = visitor(app, 'apple');
  const stray = await stranger.post(provider.visit(await browser.begin()));
  t.match(await stranger.finish(`http://app.example.test${stray.headers['location']}`), {
    status: 400,
    text: /Sign-in expired/,
  });
});

t.test('the issuer of a provider for many tenants is that of the tenant', async (t) => {
  const provider = await fakeProvider(t);
  const template = `${provider.url}/{tenantid}/v2.0`;
  const of = (tid: string) => ({ tid, iss: `${provider.url}/${tid}/v2.0` });
  const app = await saasApp(t, { login: { entra: { issuer: provider.url, ...CLIENT } } });
  const browser = visitor(app, 'entra');
  const metadata = { issuer: template, authorization_response_iss_parameter_supported: undefined };
  const visit = (url: string) => {
    const callback = provider.visit(url);
    callback.searchParams.delete('iss');
    return callback;
  };
  provider.lies = { metadata, claims: of('one') };
  const { user } = (await browser.signIn(visit)).body.data;
  t.equal((await browser.signIn(visit)).body.data.user.id, user.id);
  provider.lies = { metadata, claims: of('two') };
  t.equal(
    errorOf(await browser.signIn(visit)),
    'ACCOUNT_EXISTS',
    'the same subject of another tenant is another person',
  );
  for (const claims of [{ ...of('one'), tid: 'two' }, { ...of('one'), tid: undefined }, { tid: 'one' }]) {
    provider.lies = { metadata, claims };
    t.match(await browser.ticket(visit), /login_failed/, JSON.stringify(claims));
  }

  const refused = async (option: object, stated: object) => {
    provider.lies = { metadata: { ...metadata, ...stated } };
    const login = { entra: { issuer: provider.url, ...CLIENT, ...option } };
    return (await visitor(await saasApp(t, { login }), 'entra').start()).status;
  };
  t.equal(await refused({}, {}), 303);
  t.equal(await refused({}, { issuer: 'https://evil.example.test/{tenantid}' }), 502);
  t.equal(await refused({}, { issuer: 'https://evil.example.test' }), 502);
  t.equal(await refused({ trustEmail: true }, {}), 502, 'any tenant could claim any address');
});

t.test('no answer of a provider is read beyond a limit, however small it is when compressed', async (t) => {
  for (const bomb of ['/.well-known/openid-configuration', '/token', '/jwks']) {
    const { provider, browser } = await withProvider(t);
    provider.lies = { bomb };
    const begun = await browser.begin().catch((error: Error) => error);
    if (begun instanceof Error) {
      t.match([bomb, begun.message], ['/.well-known/openid-configuration', /^502/]);
      continue;
    }
    t.match(await browser.finish(provider.visit(begun)), { status: 502, text: /not available/ }, bomb);
    provider.lies = {};
    t.match(await browser.ticket(provider.visit), /^v1\./, 'and works again when the provider does');
  }
});

t.test('a response that is wrong in any way starts no session', async (t) => {
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
  const { app, browser } = await withProvider(t, { corsOrigin: ['https://spa.example.test'] });
  const statusOf = async (returnTo: string) => (await browser.start({ returnTo })).status;
  for (const returnTo of ['/a?b=c', 'https://spa.example.test/in', 'http://app.example.test/'])
    t.equal(await statusOf(returnTo), 303, returnTo);
  for (const returnTo of [
    ...['https://evil.example.test/', '//evil.example.test/', '/\\evil.example.test', 'javascript:alert(1)'],
    ...['https://spa.example.test.evil.test/', 'https://u:p@spa.example.test/', '/a#b', ''],
  ])
    t.equal(await statusOf(returnTo), 400, returnTo);
  t.equal((await visitor(app, 'unknown').start()).status, 404);
  const unchallenged = await app.request('GET', '/api/auth/login/acme?returnTo=/');
  t.equal(unchallenged.status, 400, 'a challenge is required');
});

t.test('a provider that fails is answered 502, and works again when it does', async (t) => {
  const { provider, browser } = await withProvider(t);
  const callback = provider.visit(await browser.begin());
  provider.lies = { tokenStatus: 503 };
  t.match(await browser.finish(callback), { status: 502, text: /Sign-in is not available/ });
  provider.lies = {};
  t.match(await browser.ticket(provider.visit), /^v1\./);

  const gone = await saasApp(t, { login: { acme: { issuer: 'http://127.0.0.1:9', ...CLIENT } } });
  t.match(await visitor(gone).start(), { status: 502, text: /Sign-in is not available/ });
});

t.test('sign-up obeys the operator, and a suspended account stays closed', async (t) => {
  const { provider, app, browser } = await withProvider(t);
  await app.admin('PATCH', '/admin/api/settings', { version: 0, allowRegistration: false });
  const refused = await browser.signIn(provider.visit);
  t.equal(errorOf(refused), 'REGISTRATION_DISABLED');
  const { version } = (await app.admin('GET', '/admin/api/settings')).body.data;
  await app.admin('PATCH', '/admin/api/settings', { version, allowRegistration: true });
  const { user } = (await browser.signIn(provider.visit)).body.data;
  await app.server.fastify.saas.users.suspend({ id: user.id });
  t.equal(errorOf(await browser.signIn(provider.visit)), 'ACCOUNT_SUSPENDED');
});

t.test('a ticket is used once, by however many requests at the same time', async (t) => {
  const { provider, app, browser } = await withProvider(t, { limits: false });
  const race = async (use: () => Promise<Answer>) => {
    const answers = await Promise.all(Array.from({ length: 20 }, use));
    return [answers.filter(({ status }) => status === 200).length, new Set(answers.map(errorOf)).size];
  };
  const first = await browser.ticket(provider.visit);
  t.same(await race(() => browser.exchange(first)), [1, 2], 'a registration');
  const second = await browser.ticket(provider.visit);
  t.same(await race(() => browser.exchange(second)), [1, 2], 'a sign-in');
  t.equal(errorOf(await browser.exchange(second)), 'INVALID_TICKET');
  provider.lies = { claims: { sub: 'grace-1', email: 'grace@example.test' } };
  const grace = await app.signUp({ email: 'grace@example.test' });
  const third = await browser.ticket(provider.visit);
  t.same(await race(() => browser.connect(grace, third)), [1, 2], 'a connection');
  t.equal(errorOf(await browser.exchange(third)), 'INVALID_TICKET', 'nor for a sign-in');
});

t.test(
  'concurrent first sign-ins create one user, also beside a registration with the address',
  async (t) => {
    const { provider, app, browser } = await withProvider(t, { limits: false });
    const tickets = [await browser.ticket(provider.visit), await browser.ticket(provider.visit)];
    const answers = await Promise.all(tickets.map((ticket) => browser.exchange(ticket)));
    const [one, two] = answers.map(({ body }) => body.data?.user.id);
    t.ok(one);
    t.equal(one, two);

    const email = 'grace@example.test';
    provider.lies = { claims: { sub: 'grace-1', email } };
    const third = await browser.ticket(provider.visit);
    const both = await Promise.all([
      browser.exchange(third),
      app.post('/auth/register', { email, password: PASSWORD }),
    ]);
    t.equal(both.filter(({ status }) => status < 300).length, 1);
    t.ok(both.some((answer) => ['ACCOUNT_EXISTS', 'EMAIL_TAKEN'].includes(errorOf(answer) ?? '')));
  },
);

t.test('a sign-in at a provider is as recent as the provider says', async (t) => {
  const { provider, app, browser } = await withProvider(t, { accessTokenTtl: 3600 });
  const secondsAgo = (seconds: number) => Math.floor(app.clock.now() / 1000) - seconds;
  const signIn = async (authTime: number | undefined) => {
    provider.lies = { claims: { auth_time: authTime } };
    return (await browser.signIn(provider.visit)).body.data.accessToken;
  };
  const authenticatedAt = async (token: string) =>
    Date.parse((await me(app, token)).session.authenticatedAt) / 1000;
  const close = (token: string) => app.post('/user/delete', {}, { token });
  const DAY = 24 * 60 * 60;
  const registered = await signIn(secondsAgo(DAY));
  t.equal(await authenticatedAt(registered), secondsAgo(DAY));
  t.equal(errorOf(await close(registered)), 'REAUTHENTICATION_REQUIRED', 'also for a new account');
  t.equal(errorOf(await close(await signIn(secondsAgo(601)))), 'REAUTHENTICATION_REQUIRED');
  t.equal(await authenticatedAt(await signIn(secondsAgo(-3000))), secondsAgo(0), 'never in the future');

  const url = new URL(await browser.begin({ prompt: 'login' }));
  t.match(Object.fromEntries(url.searchParams), { prompt: 'login', max_age: '600' });
  provider.lies = { claims: { auth_time: secondsAgo(DAY) } };
  const stale = await browser.finish(provider.visit(url.href));
  t.match(stale.headers['location'], /error=login_failed/, 'the provider has not asked');
  provider.lies = { claims: { auth_time: secondsAgo(5) } };
  const recent = (await browser.signIn(provider.visit, { prompt: 'login' })).body.data;
  t.equal((await close(recent.accessToken)).status, 200);
});

t.test('the owner reads in a mail that a provider was connected and disconnected', async (t) => {
  const sink = await mailSink(t);
  const { provider, app, browser } = await withProvider(t, { emailSmtpUrl: sink.url });
  const account = await app.signUp({ email: 'ada@example.test' });
  const other = await app.signUp({ emailVerified: true });
  await app.listen();
  const connect = async (owner: Account) => browser.connect(owner, await browser.ticket(provider.visit));
  const about = () =>
    sink.mails
      .map((mail) => ({ to: mail.to, subject: readMail(mail).headers['subject'] ?? '' }))
      .filter(({ subject }) => subject.startsWith('Acme'));
  const { id } = (await connect(account)).body.data;
  await connect(account);
  await connect(other);
  await waitUntil('the first mail', () => about().length === 1);
  const disconnect = async ({ accessToken: token }: Account) =>
    (await app.request('DELETE', `/api/user/identities/${id}`, { token })).status;
  t.equal(await disconnect(other), 404);
  t.equal(await disconnect(account), 200);
  await waitUntil('the second mail', () => about().length === 2);
  t.match(about(), [
    { to: [account.email], subject: /connected to your account at/ },
    { to: [account.email], subject: /disconnected from your account at/ },
  ]);
  t.equal(errorOf(await browser.signIn(provider.visit)), 'ACCOUNT_EXISTS');
});

t.test('an account without a password is closed with a recent sign-in, and keeps one way in', async (t) => {
  const { provider, app, browser } = await withProvider(t, { accessTokenTtl: 3600 });
  const first = (await browser.signIn(provider.visit)).body.data;
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
  t.equal((await app.post('/auth/login', login)).status, 401);

  app.clock.advance(11 * MINUTE);
  t.equal(errorOf(await app.post('/user/delete', {}, { token })), 'REAUTHENTICATION_REQUIRED');
  const recent = (await browser.signIn(provider.visit)).body.data.accessToken;
  const closed = await app.post('/user/delete', {}, { token: recent });
  t.equal(closed.status, 200, closed.text);
  t.equal(await identities.count(), 0);

  const account = await app.signUp();
  const missing = await app.post('/user/delete', {}, { token: account.accessToken });
  t.match(missing, { status: 400, body: { error: { details: [{ path: 'password' }] } } });
});

t.test('a second factor is asked for after a sign-in at a provider, too', async (t) => {
  const { provider, app, browser } = await withProvider(t, { factorEncryptionKey: FACTOR_KEY });
  const { accessToken: token } = (await browser.signIn(provider.visit)).body.data;
  const { code } = await setUpFactor(app, token);
  app.clock.advance(MINUTE);
  const ticket = await browser.ticket(provider.visit);
  const asked = await browser.exchange(ticket);
  t.equal(errorOf(asked), 'SECOND_FACTOR_REQUIRED');
  t.equal(errorOf(await browser.exchange(ticket)), 'INVALID_TICKET', 'the challenge continues');
  const { challenge } = asked.body.error;
  const signedIn = await app.post('/auth/second-factor', { challenge, code: code() });
  const { session } = await me(app, signedIn.body.data.accessToken);
  t.same(session.amr, ['fed', 'otp', 'mfa']);
});

t.test('people sign in with GitHub, by their number and their verified primary address', async (t) => {
  const github = await fakeGitHub(t);
  const app = await saasApp(t, { login: { github: { url: github.url, ...CLIENT } } });
  const browser = visitor(app, 'github');
  const url = new URL(await browser.begin());
  t.equal(url.searchParams.get('scope'), 'read:user user:email');
  const { user } = (await browser.signIn(github.visit)).body.data;
  t.match(user, { email: 'ada@example.test', name: 'Ada Lovelace' });
  github.user = { id: 42, login: 'renamed', name: null };
  github.emails = [{ email: 'new@example.test', primary: true, verified: false }];
  const again = await browser.signIn(github.visit);
  t.equal(again.body.data.user.id, user.id);
  github.user = { id: 43, login: 'ada', name: null };
  t.equal(errorOf(await browser.signIn(github.visit)), 'PROVIDER_EMAIL_NOT_VERIFIED');
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
  const { user } = (await browser.signIn(visit)).body.data;
  t.match(user, { email: 'ada@example.test', name: 'Ada', emailVerified: true });
  t.equal((await browser.signIn(visit)).body.data.user.id, user.id);
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
      [{ github: { clientId: 'x', clientSecret: 'y', trustEmail: true } }, /has trustEmail for github/],
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
  t.equal(errorOf(await browser.signIn(provider.visit)), 'REGISTRATION_REJECTED');
  t.same(methods, ['ada@example.test Ada Lovelace provider']);
  const store = await storeOf(t, app);
  t.equal(await userCollection(store).count(), 0);
  t.equal(await identityCollection(store).count(), 0);
});
