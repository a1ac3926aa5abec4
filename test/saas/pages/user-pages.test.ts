import t, { type Test } from 'tap';
import { Agent, type Page } from '../../kit/agent.js';
import { basic, PASSWORD, type SaasApp, saasApp } from '../../kit/app.js';
import { optionsIn, SoftwareAuthenticator } from '../../kit/authenticator.js';
import { codeAt, FACTOR_KEY } from '../../kit/factors.js';
import { parseMetrics } from '../../kit/metrics.js';
import { sentence } from '../../kit/sentences.js';
import { mailedApp, RESET, VERIFY } from '../auth/kit.js';
import { KEY, provider as paymentProvider } from '../billing/kit.js';
import { CLIENT, fakeProvider } from '../login-providers/kit.js';

/** The pages for users of saas-backend, in a browser without scripts. */

const EMAIL = 'ada@example.test';
const OTHER_PASSWORD = 'another horse battery staple';
const MINUTE = 60_000;

type Options = Parameters<typeof saasApp>[1];

interface Visit {
  app: SaasApp;
  browser: Agent;
  origin: string;
  /** Opens a page below `/account`. */
  get(path?: string): Promise<Page>;
  /** Opens a page and submits its first form, or the one with this action. */
  fill(path: string, fields: Record<string, string>, action?: string): Promise<Page>;
}

const origins = new WeakMap<SaasApp, Promise<string>>();

/** A new browser. */
async function visit(app: SaasApp): Promise<Visit> {
  const listening = origins.get(app) ?? app.listen();
  origins.set(app, listening);
  // The name that the server assumes without a public URL.
  const origin = (await listening).replace('127.0.0.1', 'localhost');
  const browser = new Agent({ origin });
  const get = (path = '') => browser.open(`${origin}/account${path}`);
  return {
    ...{ app, browser, origin, get },
    fill: async (path, fields, action) => browser.submit(await get(path), fields, action),
  };
}

/** Without a public URL, the address is that of the test. */
const HERE = { publicUrl: undefined, accountPages: true } as unknown as NonNullable<Options>;

async function visitNew(t: Test, options: Options = {}): Promise<Visit> {
  return visit(await saasApp(t, { ...HERE, ...options }));
}

const signUp = (visitor: Visit, email = EMAIL, more = {}) =>
  visitor.fill('/sign-up', { email, name: 'Ada', password: PASSWORD, password_confirm: PASSWORD, ...more });

const signIn = (visitor: Visit, password = PASSWORD, path = '/sign-in') =>
  visitor.fill(path, { email: EMAIL, password });

const titleOf = ({ body }: Page) => /<h1>([^<]*)<\/h1>/.exec(body)?.[1] ?? '';
const isAt = (page: Page, path: string) => new URL(page.url).pathname === path;

t.test('without the option there are no pages', async (t) => {
  const app = await saasApp(t);
  for (const path of ['/account', '/account/sign-in', '/account/sign-up'])
    t.equal((await app.request('GET', path)).status, 404, path);
});

t.test('a visitor signs up, and the account page shows the account', async (t) => {
  const visitor = await visitNew(t);
  const closed = await visitor.get();
  t.match([closed.status, titleOf(closed)], [401, sentence('user-sign-in.title')]);
  const account = await signUp(visitor);
  t.match([account.status, titleOf(account)], [200, sentence('account.title')]);
  t.ok(isAt(account, '/account'));
  t.match(account.body, /ada@example\.test/);
  t.match(account.body, /value="Ada"/);
  t.match(account.body, sentence('account.this-device'));
  t.notMatch(account.body, sentence('account.applications'));
});

t.test('below a path that a proxy takes off, every link and form of the pages has it', async (t) => {
  const app = await saasApp(t, { ...HERE, publicUrl: 'http://app.example.test/app' });
  const browser = { accept: 'text/html', origin: 'http://app.example.test' };
  for (const path of ['/account', '/account/sign-in', '/account/sign-up']) {
    const { text } = await app.request('GET', path, { headers: browser });
    const targets = [...text.replaceAll('&#x2F;', '/').matchAll(/ (?:href|action|src)="(\/[^"]*)"/g)].map(
      ([, target]) => target,
    );
    t.ok(targets.length > 1, path);
    t.same(
      targets.filter((target) => !target?.startsWith('/app/')),
      [],
      path,
    );
  }
});

t.test('a sign-up that is not possible stays a form, with the reason at its field', async (t) => {
  const visitor = await visitNew(t);
  await visitor.app.signUp({ email: 'taken@example.test' });
  const cases: [object, RegExp][] = [
    [{ email: 'nobody' }, sentence('user-sign-up.email-invalid')],
    [{ email: 'taken@example.test' }, sentence('user-sign-up.email-taken')],
    [{ name: '​' }, sentence('account.name-invalid')],
    [{ password: 'short', password_confirm: 'short' }, sentence('password.short')],
    [{ password_confirm: 'different' }, sentence('password.differ')],
  ];
  for (const [wrong, reason] of cases) {
    const page = await signUp(visitor, EMAIL, wrong);
    t.ok(page.status >= 400 && page.status < 500, JSON.stringify(wrong));
    t.match([titleOf(page), page.body], [sentence('user-sign-up.title'), reason]);
    t.match(page.body, /aria-invalid="true"/);
    t.notMatch(page.body, new RegExp(PASSWORD));
  }
  await visitor.app.admin('PATCH', '/admin/api/settings', { version: 0, allowRegistration: false });
  t.match(await visitor.get('/sign-up'), { status: 403, body: /closed/ });
  t.notMatch((await visitor.get('/sign-in')).body, /sign-up/);
});

t.test('sign-in leads to where the visitor wanted to go, and nowhere else', async (t) => {
  const visitor = await visitNew(t, { corsOrigin: ['https://spa.example.test'] });
  await visitor.app.signUp({ email: EMAIL });
  const wrong = await signIn(visitor, 'wrong horse battery staple');
  t.match([wrong.status, wrong.body], [401, sentence('user-sign-in.wrong')]);
  t.match(wrong.body, /value="ada@example\.test"/, 'the address is kept');

  const opened = await visitor.get('/sessions-are-here?x=1');
  t.equal(opened.status, 404);
  const at = async (returnTo: string) => {
    const fresh = await visit(visitor.app);
    const page = await fresh.get(`/sign-in?${new URLSearchParams({ return_to: returnTo })}`);
    return (await fresh.browser.send(page, { email: EMAIL, password: PASSWORD })).location;
  };
  const { origin } = visitor;
  t.equal(await at('/welcome?a=b#c'), `${origin}/welcome?a=b#c`);
  t.equal(await at('https://spa.example.test/in'), 'https://spa.example.test/in');
  for (const returnTo of [
    ...['https://evil.example.test/', '//evil.example.test', '/\\evil.example.test', '/.//evil.example.test'],
    ...['javascript:alert(1)', 'https://u:p@spa.example.test/', 'data:text/html,x', ''],
  ])
    t.ok([`${origin}/account`, `${origin}/`].includes((await at(returnTo)) ?? ''), returnTo);

  const back = await visitor.get('/address');
  t.equal(back.status, 401);
  const page = await visitor.browser.submit(back, { email: EMAIL, password: PASSWORD });
  t.ok(isAt(page, '/account/address'), 'the page that was asked for');
});

t.test('a form of another site signs nobody in, up or out', async (t) => {
  const { app } = await visitNew(t);
  await app.signUp({ email: EMAIL });
  const form = { 'content-type': 'application/x-www-form-urlencoded', accept: 'text/html' };
  const credentials = new URLSearchParams({ email: EMAIL, password: PASSWORD });
  const filled = new URLSearchParams({
    ...{ email: 'eve@example.test', name: '', password: PASSWORD, password_confirm: PASSWORD },
  });
  const bodies: Record<string, URLSearchParams> = {
    '/account/sign-in': credentials,
    '/account/sign-up': filled,
    '/account/forgot-password': new URLSearchParams({ email: EMAIL }),
  };
  for (const [path, body] of Object.entries(bodies)) {
    for (const headers of [
      { origin: 'https://evil.example.test' },
      { origin: 'null' },
      { 'sec-fetch-site': 'cross-site' },
      { origin: 'https://evil.example.test', 'sec-fetch-site': 'cross-site' },
    ]) {
      const answer = await app.request('POST', path, {
        body: String(body),
        headers: { ...form, ...headers },
      });
      t.match(
        [answer.status, answer.headers['set-cookie']],
        [403, undefined],
        `${path} ${JSON.stringify(headers)}`,
      );
      t.match(answer.text, sentence('errors.FORM_REJECTED.title'));
    }
  }
});

t.test('the session is that of the API, and is rotated and revoked like it', async (t) => {
  const visitor = await visitNew(t);
  const { app, browser } = visitor;
  await signUp(visitor);
  const cookie = () => browser.cookies()['saas-session'] ?? '';
  const first = cookie();
  await visitor.get();
  t.equal(cookie(), first, 'a new token is not exchanged');
  app.clock.advance(15 * MINUTE + 1);
  await visitor.get();
  const second = cookie();
  t.not(second, first, 'one that is as old as an access token is');
  const refreshed = await app.request('POST', '/api/auth/refresh', {
    headers: { 'session-mode': 'cookie', cookie: `saas-session=${second}` },
  });
  t.equal(refreshed.status, 200, 'the API accepts it');

  app.clock.advance(31_000);
  const thief = new Agent({ origin: visitor.origin, headers: { cookie: `saas-session=${first}` } });
  t.equal((await thief.open(`${visitor.origin}/account`)).status, 401);
  t.equal((await visitor.get()).status, 401, 'a token that is used again ends the session');
});

t.test('/.well-known/change-password leads to the password page', async (t) => {
  const url = '/.well-known/change-password';
  t.equal((await (await saasApp(t)).request('GET', url)).status, 404, 'there are no pages');
  const visitor = await visitNew(t, { accountPath: '/me' });
  t.match(await visitor.app.request('GET', url), { status: 302, headers: { location: '/me/password' } });
  await visitor.app.signUp({ email: EMAIL });
  const signInPage = await visitor.browser.open(visitor.origin + url);
  const page = await visitor.browser.submit(signInPage, { email: EMAIL, password: PASSWORD });
  t.match([page.status, titleOf(page)], [200, sentence('account-password.title')]);
  t.ok(isAt(page, '/me/password'));
});

t.test('a page reads the user and the session once', async (t) => {
  const visitor = await visitNew(t, { metrics: true });
  await signUp(visitor);
  const reads = async (collection: string) => {
    const { text } = await visitor.app.request('GET', '/metrics', { headers: { authorization: basic() } });
    const labels = { collection, operation: 'findOne' };
    return parseMetrics(text).sum('saas_backend_store_call_duration_seconds_count', labels);
  };
  const [users, sessions] = [await reads('users'), await reads('sessions')];
  t.equal((await visitor.get('/password')).status, 200);
  t.equal((await reads('users')) - users, 1);
  t.equal((await reads('sessions')) - sessions, 1);
});

t.test('signing out ends the session, and only by the form', async (t) => {
  const visitor = await visitNew(t);
  await signUp(visitor);
  const stolen = visitor.browser.cookies()['saas-session'] ?? '';
  const forged = await visitor.browser.send(await visitor.get('/sign-out'), { form: 'x' });
  t.equal(forged.status, 403);
  t.equal((await visitor.get()).status, 200);
  const out = await visitor.fill('/sign-out', {});
  t.match(out.body, sentence('user-sign-in.signed-out'));
  t.same(visitor.browser.cookies(), {});
  const thief = new Agent({ origin: visitor.origin, headers: { cookie: `saas-session=${stolen}` } });
  t.equal((await thief.open(`${visitor.origin}/account`)).status, 401);
});

t.test('sessions are listed with their devices, and end one by one or all at once', async (t) => {
  const visitor = await visitNew(t);
  await signUp(visitor);
  const firefox = { 'user-agent': 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0' };
  const login = async () => {
    const body = { email: EMAIL, password: PASSWORD };
    const answer = await visitor.app.request('POST', '/api/auth/login', { body, headers: firefox });
    return answer.body.data.accessToken;
  };
  const me = async (token: string) => (await visitor.app.request('GET', '/api/auth/me', { token })).status;
  const token = await login();
  const page = await visitor.get();
  t.match(page.body, /Firefox on Linux/);
  const listed = await visitor.app.request('GET', '/api/auth/sessions', { token });
  t.match(listed.body.data.sessions[0], { browser: 'Firefox', system: 'Linux', place: '127.0.0.1' });
  t.match(
    (await visitor.browser.submit(page, {}, '/sessions/end')).body,
    sentence('account.done.session-ended'),
  );
  t.equal(await me(token), 401);
  const tokens = [await login(), await login()];
  const done = await visitor.fill('', {}, '/sessions/end-others');
  t.match(done.body, sentence('account.done.sessions-ended'));
  for (const one of tokens) t.equal(await me(one), 401);
});

t.test('a user changes the name, the password and the address', async (t) => {
  const app = await mailedApp(t, HERE);
  const visitor = await visit(app);
  await signUp(visitor);
  t.match((await visitor.fill('', { name: 'Countess' }, '/name')).body, /value="Countess"/);

  const wrong = await visitor.fill('/password', {
    ...{ current_password: 'x', password: OTHER_PASSWORD, password_confirm: OTHER_PASSWORD },
  });
  t.match([wrong.status, wrong.body], [401, sentence('account-password.wrong')]);
  const short = await visitor.fill('/password', {
    ...{ current_password: PASSWORD, password: 'x', password_confirm: 'x' },
  });
  t.match([short.status, short.body], [422, sentence('password.short')]);
  const changed = await visitor.fill('/password', {
    ...{ current_password: PASSWORD, password: OTHER_PASSWORD, password_confirm: OTHER_PASSWORD },
  });
  t.match(
    [changed.status, changed.body],
    [200, sentence('account.done.password-changed')],
    'this session goes on',
  );

  const same = await visitor.fill('/address', { email: EMAIL, password: OTHER_PASSWORD });
  t.match([same.status, same.body], [422, sentence('user-address.same')]);
  const refused = await visitor.fill('/address', { email: 'new@example.test', password: PASSWORD });
  t.match([refused.status, refused.body], [401, sentence('account-delete.wrong')]);
  t.match(refused.body, /value="new@example\.test"/);
  const sent = await visitor.fill('/address', { email: 'new@example.test', password: OTHER_PASSWORD });
  t.match(sent.body, sentence('account.done.address-link-sent'));
  const token = await app.tokenIn(/^Confirm your new address/);
  const confirmed = await app.post('/auth/verify-email', { token, password: OTHER_PASSWORD });
  t.equal(confirmed.status, 200);
  t.match((await visitor.get()).body, /new@example\.test/);
});

t.test('an address that must be confirmed is confirmed first', async (t) => {
  const app = await mailedApp(t, { ...HERE, requireEmailVerification: true });
  const visitor = await visit(app);
  const sent = await signUp(visitor);
  t.match(
    [sent.status, titleOf(sent), sent.body],
    [200, sentence('user-sign-up-sent.title'), /ada@example\.test/],
  );
  const early = await signIn(visitor);
  t.match([early.status, titleOf(early)], [403, sentence('user-unverified.title')]);
  const token = await app.tokenIn(VERIFY);
  t.ok(token);
  const second = await app.tokenIn(VERIFY);
  t.equal((await app.post('/auth/verify-email', { token: second, password: PASSWORD })).status, 200);
  t.match(titleOf(await signIn(visitor)), sentence('account.title'));
});

t.test('a forgotten password is replaced by a mailed link', async (t) => {
  const app = await mailedApp(t, HERE);
  await app.signUp({ email: EMAIL });
  const visitor = await visit(app);
  const invalid = await visitor.fill('/forgot-password', { email: 'ada' });
  t.match([invalid.status, invalid.body], [422, sentence('user-sign-up.email-invalid')]);
  const unknown = await visitor.fill('/forgot-password', { email: 'nobody@example.test' });
  const known = await visitor.fill('/forgot-password', { email: EMAIL });
  t.equal(unknown.body, known.body, 'the page does not tell who has an account');
  t.ok(await app.tokenIn(RESET));
});

t.test('a second factor is set up, asked for, and removed', async (t) => {
  const app = await mailedApp(t, { ...HERE, factorEncryptionKey: FACTOR_KEY });
  const visitor = await visit(app);
  await signUp(visitor);
  const first = await visitor.get('/second-factor');
  t.notMatch(first.body, /second-factor\/begin/, 'not before the address is confirmed');
  const account = await visitor.get();
  t.notMatch(account.body, /was mailed/, 'a registration mails no link');
  t.match(
    (await visitor.browser.submit(account, {}, '/verification')).body,
    sentence('account.done.link-sent'),
  );
  const token = await app.tokenIn(VERIFY);
  await app.post('/auth/verify-email', { token, password: PASSWORD });

  const begun = await visitor.fill('/second-factor', {}, '/begin');
  const secret = (/<code class="wrap" dir="ltr">([^<]*)/.exec(begun.body)?.[1] ?? '').replaceAll(' ', '');
  const codes = await visitor.browser.submit(begun, { code: codeAt(secret, app.clock.now()) }, '/confirm');
  t.match(titleOf(codes), sentence('account-recovery-codes.title'));
  const recovery = [...codes.body.matchAll(/<li><code>([^<]*)/g)].map(([, code]) => code ?? '');

  const other = await visit(app);
  const step = await signIn(other, PASSWORD, '/sign-in?return_to=%2Faccount%2Fsign-out');
  t.match(titleOf(step), sentence('second-factor.title'));
  t.same(other.browser.cookies(), {}, 'there is no session yet');
  const wrong = await other.browser.submit(step, { code: '000000' });
  t.match([wrong.status, wrong.body], [401, sentence('second-factor.wrong')]);
  app.clock.advance(MINUTE);
  const done = await other.browser.submit(wrong, { code: codeAt(secret, app.clock.now()) });
  t.ok(isAt(done, '/account/sign-out'), 'the destination survives the step');

  app.clock.advance(11 * MINUTE);
  const late = await visitor.get('/second-factor');
  t.equal(late.status, 401, 'a recent sign-in is needed');
  const again = await visitor.browser.submit(late, { email: EMAIL, password: PASSWORD });
  const manage = await visitor.browser.submit(again, { code: recovery[0] ?? '' });
  t.ok(isAt(manage, '/account/second-factor'));
  const removed = await visitor.browser.submit(
    manage,
    { password: PASSWORD, code: recovery[1] ?? '' },
    '/remove',
  );
  t.match(removed.body, sentence('account.done.factor-removed'));
});

t.test('a required second factor is set up at sign-in', async (t) => {
  const app = await mailedApp(t, {
    ...{ ...HERE, factorEncryptionKey: FACTOR_KEY, secondFactor: 'required', secondFactorGraceDays: 0 },
    requireEmailVerification: true,
  });
  const visitor = await visit(app);
  await signUp(visitor);
  const token = await app.tokenIn(VERIFY);
  await app.post('/auth/verify-email', { token, password: PASSWORD });
  const step = await signIn(visitor);
  t.match(titleOf(step), sentence('second-factor-enrolment.title'));
  const secret = (/<code class="wrap" dir="ltr">([^<]*)/.exec(step.body)?.[1] ?? '').replaceAll(' ', '');
  const wrong = await visitor.browser.submit(step, { code: '000000' });
  t.match([wrong.status, wrong.body], [401, new RegExp(secret.slice(0, 4))], 'the same secret');
  const codes = await visitor.browser.submit(wrong, { code: codeAt(secret, app.clock.now()) });
  t.match(titleOf(codes), sentence('account-recovery-codes.title'));
  t.match(titleOf(await visitor.get()), sentence('account.title'));
});

t.test('sign-ins that are abandoned at a provider do not lock the browser out', async (t) => {
  const provider = await fakeProvider(t);
  const visitor = await visitNew(t, { login: { acme: { issuer: provider.url, ...CLIENT } } });
  const { app, browser, origin } = visitor;
  for (let count = 0; count < 40; count++) {
    const begun = await browser.follow(await browser.get(`${origin}/account/sign-in/with/acme`));
    t.equal(begun.status, 303, `sign-in ${count + 1}`);
    app.clock.advance(1000);
  }
  t.equal((await visitor.get('/sign-in')).status, 200);
});

t.test('an account of another provider signs in, is connected and disconnected', async (t) => {
  const provider = await fakeProvider(t);
  const visitor = await visitNew(t, { login: { acme: { issuer: provider.url, ...CLIENT, label: 'Acme' } } });
  const { app, browser } = visitor;
  const away = async (page: Page) => browser.open(provider.visit(page.location ?? page.url).href);
  const start = async () => browser.follow(await browser.get(`${visitor.origin}/account/sign-in/with/acme`));

  t.match((await visitor.get('/sign-in')).body, /Continue with Acme/);
  const registered = await away(await start());
  t.match([titleOf(registered), registered.body], [sentence('account.title'), /ada@example\.test/]);
  await visitor.fill('/sign-out', {});
  t.match(titleOf(await away(await start())), sentence('account.title'));
  const last = await visitor.fill('/providers', {}, '/disconnect');
  t.match([last.status, last.body], [409, sentence('user-providers.last')]);
  await visitor.fill('/sign-out', {});

  const grace = await app.signUp({ email: 'grace@example.test' });
  provider.person = { sub: 'grace-1', email: 'grace@example.test', email_verified: true };
  const taken = await away(await start());
  t.match(
    [taken.status, taken.body],
    [409, sentence('user-sign-in.account-exists')],
    'no account is taken over by its address',
  );
  await visitor.fill('/sign-in', { email: grace.email, password: PASSWORD });
  const connecting = await visitor.fill('/providers', {}, '/connect');
  const connected = await away(connecting);
  t.match([connected.url, connected.body], [/\/account\/providers/, sentence('user-providers.connected')]);
  t.match(
    (await visitor.fill('/providers', {}, '/disconnect')).body,
    sentence('user-providers.disconnected'),
  );

  const denied = await start();
  const callback = provider.visit(denied.location ?? denied.url);
  callback.searchParams.delete('code');
  callback.searchParams.set('error', 'access_denied');
  const cancelled = await browser.open(callback.href);
  t.match([cancelled.status, cancelled.body], [401, sentence('user-sign-in.cancelled')]);
  const foreign = await visit(app);
  const stray = await foreign.browser.open(`${visitor.origin}/account/sign-in/return?ticket=v1.x`);
  t.match(
    [stray.status, stray.body],
    [401, sentence('user-sign-in.expired')],
    'a response that this browser did not ask for',
  );
});

t.test(
  'a connection is completed in the session that has begun it, and while its sign-in is recent',
  async (t) => {
    const provider = await fakeProvider(t);
    const visitor = await visitNew(t, {
      login: { acme: { issuer: provider.url, ...CLIENT, label: 'Acme' } },
      limits: false,
    });
    const { app, browser, origin } = visitor;
    const [ada, eve] = [await app.signUp({ email: EMAIL }), await app.signUp({ email: 'eve@example.test' })];
    const connections = async ({ accessToken: token }: { accessToken: string }) =>
      (await app.request('GET', '/api/user/identities', { token })).body.data.identities.length;
    /** The address of the callback. */
    const begin = async () => {
      const away = await visitor.fill('/providers', {}, '/connect');
      return provider.visit(away.location ?? away.url).href;
    };
    provider.person = { ...provider.person, email: EMAIL };

    await signIn(visitor);
    const begunByAda = await begin();
    await visitor.fill('/sign-out', {});
    await visitor.fill('/sign-in', { email: eve.email, password: PASSWORD });
    const ended = await browser.open(begunByAda);
    t.match([ended.url, ended.body], [/done=cancelled/, /No account was connected/], 'begun by another user');
    t.equal(await connections(eve), 0);

    await visitor.fill('/sign-out', {});
    await signIn(visitor);
    const session = await browser.open(
      await begin().then(async (callback) => {
        await visitor.fill('/sign-out', {});
        await signIn(visitor);
        return callback;
      }),
    );
    t.match(session.url, /done=cancelled/, 'begun in another session of the same user');

    app.clock.advance(9 * MINUTE);
    const late = await begin();
    app.clock.advance(2 * MINUTE);
    const again = await browser.open(late);
    t.match([again.status, titleOf(again)], [401, 'Sign in'], 'the sign-in is no longer recent');
    t.equal(await connections(ada), 0);

    await signIn(visitor, PASSWORD, '/providers');
    const back = await browser.get(await begin());
    const { searchParams } = new URL(back.location ?? '');
    const forged = Buffer.from(
      JSON.stringify({ purpose: 'connection', codeVerifier: 'v'.repeat(43) }),
    ).toString('base64url');
    const cookies = { ...browser.cookies('/account'), 'saas-page-login': forged };
    const stray = await app.request('GET', `/account/providers/return?${searchParams}`, {
      headers: {
        accept: 'text/html',
        cookie: Object.entries(cookies)
          .map(([name, value]) => `${name}=${value}`)
          .join('; '),
      },
    });
    t.match(stray.headers['location'], /done=cancelled/, 'a cookie that these pages have not set');
    t.notMatch(
      Buffer.from(browser.cookies('/account')['saas-page-login'] ?? '', 'base64url').toString(),
      /connection/,
      'the state cannot be read',
    );
    const connected = await browser.open(back.location ?? '');
    t.match([connected.url, connected.body], [/done=connected/, /The account is connected/]);
    t.ok(connected.url.startsWith(origin));

    app.clock.advance(11 * MINUTE);
    const closed = await visitor.get('/providers');
    t.equal(closed.status, 401);
    t.match(closed.body, /Acme/);
    const link = `${origin}/account/sign-in/with/acme?return_to=%2Faccount%2Fproviders`;
    const begun = await browser.follow(await browser.get(link));
    const { prompt, max_age } = Object.fromEntries(new URL(begun.location ?? '').searchParams);
    t.match([prompt, max_age], ['login', '600'], 'the provider asks the person again');
    const renewed = await browser.open(provider.visit(begun.location ?? '').href);
    t.match([renewed.status, titleOf(renewed)], [200, 'Sign-in with other accounts']);
  },
);

t.test('the account is exported and deleted', async (t) => {
  const visitor = await visitNew(t);
  await signUp(visitor);
  const file = await visitor.get('/export');
  t.match(file.headers.get('content-disposition'), /attachment/);
  t.equal(JSON.parse(file.body).data.user.email, EMAIL);
  const differs = await visitor.fill('/delete', { confirm: 'x', password: PASSWORD });
  t.equal(differs.status, 422);
  const wrong = await visitor.fill('/delete', { confirm: EMAIL, password: 'wrong horse' });
  t.match([wrong.status, wrong.body], [401, sentence('account-delete.wrong')]);
  const deleted = await visitor.fill('/delete', { confirm: EMAIL, password: PASSWORD });
  t.match(titleOf(deleted), sentence('account-deleted.title'));
  t.same(visitor.browser.cookies(), {});
  t.equal((await signIn(visitor)).status, 401);
});

t.test('a user buys, changes, cancels and resumes a plan', async (t) => {
  const api = await paymentProvider(t);
  const visitor = await visitNew(t, {
    ...{ paymentSecretKey: KEY, paymentApiUrl: api.url },
    billing: { plans: { pro: { prices: ['price_pro'] }, basic: { prices: ['price_basic'] } } },
  });
  const { app } = visitor;
  await signUp(visitor);
  t.match((await visitor.get()).body, sentence('user-billing.title'));
  const page = await visitor.get('/billing');
  t.match([page.status, page.body], [200, sentence('user-billing.no-plan')]);
  t.match(page.body, sentence('user-billing.no-invoices'));
  const { users } = app.server.fastify.saas;
  const owner = { id: (await me(app)).id };
  await users.grant(owner, { plan: 'pro', until: app.clock.now() + 86_400_000 });
  const granted = await visitor.get('/billing');
  t.match(granted.body, sentence('user-billing.ends'));
  t.notMatch(granted.body, sentence('user-billing.renews'), 'a granted plan');
  await users.revokeGrant(owner);
  const forged = await visitor.browser.send(page, { form: 'x' }, '/checkout');
  t.match([forged.status, api.sessions.size], [403, 0]);
  const leaving = await visitor.browser.submit(page, {}, '/checkout');
  t.notOk(
    (leaving.location ?? visitor.origin).startsWith(visitor.origin),
    'the payment page of the provider',
  );
  t.equal(api.sessions.size, 1);

  const { id } = await me(app);
  const customer = String([...api.sessions.values()][0]?.['customer']);
  Object.assign(api.world.subscribe(customer, id, true), {
    ...{ status: 'active', price: 'price_pro', quantity: 1, trialEnd: null },
  });
  const order = api.calls.find(({ path, method }) => path === '/v1/checkout/sessions' && method === 'POST');
  const [sessionId = ''] = api.sessions.keys();
  const success = order?.form.get('success_url')?.replace('{CHECKOUT_SESSION_ID}', sessionId) ?? '';
  const returned = success.slice(`${visitor.origin}/account`.length);
  t.equal(returned, `/billing?checkout=success&session_id=${sessionId}`);
  api.fault = () => ({ status: 500, body: '{}' });
  t.equal((await visitor.get(returned)).status, 200, 'an outage, which the webhook makes up for');
  api.fault = () => undefined;
  const foreign = await visitor.get('/billing?checkout=success&session_id=cs_foreign');
  t.match([foreign.status, foreign.body], [200, sentence('user-billing.no-plan')]);
  const unknown = await visitor.get('/billing?checkout=success&session_id={CHECKOUT_SESSION_ID}');
  t.match([unknown.status, unknown.body], [200, sentence('user-billing.no-plan')], 'no ID');
  const calls = api.calls.length;
  const cookie = Object.entries(visitor.browser.cookies()).map((pair) => pair.join('='));
  const { status } = await app.request('HEAD', `/account${returned}`, {
    headers: { cookie: cookie.join('; ') },
  });
  t.same([status, api.calls.length], [405, calls], 'HEAD fetches nothing');
  const subscribed = await visitor.get(returned);
  t.match(subscribed.body, sentence('user-billing.renews'), 'before any webhook arrives');
  t.match(subscribed.body, sentence('user-billing.current'));
  const preview = await visitor.browser.submit(subscribed, {}, '/change');
  t.match([titleOf(preview), preview.body], [sentence('user-billing-change.title'), /basic/i]);
  const changed = await visitor.browser.submit(preview);
  t.match([changed.status, changed.body], [200, sentence('user-billing.changed')]);
  const cancelled = await visitor.browser.submit(changed, {}, '/cancel');
  t.match(cancelled.body, sentence('user-billing.ends'));
  t.notMatch(cancelled.body, /billing\/cancel/);
  const resumed = await visitor.browser.submit(cancelled, {}, '/resume');
  t.match(resumed.body, sentence('user-billing.resumed'));
  const portal = await visitor.browser.send(resumed, {}, '/portal');
  t.notOk(portal.location?.startsWith(visitor.origin));

  api.fault = () => ({ status: 500, body: '{}' });
  const failed = await visitor.browser.submit(resumed, {}, '/cancel');
  t.match(
    [failed.status, failed.body],
    [502, sentence('user-billing.problems.PAYMENT_PROVIDER_ERROR')],
    'an outage says so',
  );
  const ended = api.calls.length;
  api.fault = () => 'hang';
  const late = await app.request('GET', `/account${returned}`, { headers: { cookie: cookie.join('; ') } });
  t.same([late.status, api.calls.length], [303, ended + 1], 'before the call is given up and repeated');
});

/** The user of the tests at the API. */
async function me(app: SaasApp): Promise<{ id: string; token: string }> {
  const { body } = await app.request('POST', '/api/auth/login', {
    body: { email: EMAIL, password: PASSWORD },
  });
  return { id: body.data.user.id, token: body.data.accessToken };
}

t.test('a mailed code signs in, in the browser that asked for it', async (t) => {
  const app = await mailedApp(t, { ...HERE, emailLogin: true });
  await app.signUp({ email: EMAIL });
  const visitor = await visit(app);
  t.match((await visitor.get('/sign-in')).body, sentence('user-sign-in.code'));
  const invalid = await visitor.fill('/sign-in/code', { email: 'ada' });
  t.match([invalid.status, invalid.body], [422, sentence('user-sign-up.email-invalid')]);
  const entering = await visitor.fill('/sign-in/code?return_to=%2Faccount%2Fsign-out', { email: EMAIL });
  t.match(titleOf(entering), sentence('user-code.title'));
  const mail = await app.mail(/code/);
  const link = /(http:\S*sign-in\/code\/enter\S*)/.exec(mail.text)?.[1] ?? '';

  const elsewhere = await visit(app);
  const dead = await elsewhere.browser.open(link);
  t.match([dead.status, dead.body], [400, sentence('user-code-elsewhere.title')]);
  const wrong = await visitor.browser.submit(entering, { code: 'AAAA-AAAA' });
  t.match([wrong.status, wrong.body], [401, sentence('user-code.wrong')]);
  const linked = await visitor.browser.open(link);
  t.match(titleOf(linked), sentence('user-code.title'), 'a GET uses no code');
  const done = await visitor.browser.submit(linked);
  t.ok(isAt(done, '/account/sign-out'), 'the destination survives');
  const again = await visit(app);
  const spent = await again.browser.submit(entering, { code: linked.form().fields['code'] ?? '' });
  t.match([spent.status, titleOf(spent)], [401, sentence('user-code-request.title')], 'without the cookie');
});

t.test('a passkey creates an account, signs in, and is added to and removed from an account', async (t) => {
  const app = await mailedApp(t, { ...HERE, passkeys: true });
  const visitor = await visit(app);
  const { browser, origin } = visitor;
  const authenticator = new SoftwareAuthenticator(origin);
  const next = () => app.clock.advance(1);
  const form = (await visitor.get('/sign-up')).form();
  const typed = { ...form.fields, email: EMAIL, name: 'Ada', password: '', password_confirm: '' };
  const post = (fields: Record<string, string>) =>
    app.request('POST', '/account/sign-up/passkey', {
      body: String(new URLSearchParams(fields)),
      headers: { 'content-type': 'application/x-www-form-urlencoded', accept: 'text/html', origin },
    });
  t.match(await post({ ...typed, email: 'ada' }), {
    status: 422,
    text: sentence('user-sign-up.email-invalid'),
  });
  const begun = await post(typed);
  t.match([begun.status, begun.text], [200, sentence('user-sign-up-passkey.title')]);
  const ceremony = /name="ceremony" value="([^"]*)"/.exec(begun.text)?.[1] ?? '';
  const step: Page = {
    ...(await visitor.get('/sign-up')),
    form: () => ({
      method: 'post',
      action: `${origin}/account/sign-up/passkey/finish`,
      fields: { ceremony },
    }),
  };
  const nothing = await browser.submit(step, { credential: 'x' });
  t.match([nothing.status, titleOf(nothing)], [400, sentence('user-sign-up.title')]);
  const created = await browser.submit(step, { credential: authenticator.create(optionsIn(begun.text)) });
  t.match([created.status, titleOf(created)], [200, sentence('account.title')]);
  t.match((await visitor.get('/password')).body, sentence('account-password.none'));
  await visitor.fill('/sign-out', {});

  next();
  const page = await visitor.get('/sign-in');
  t.match(page.body, /autocomplete="username webauthn"/);
  t.match(page.headers.get('content-security-policy'), /script-src 'sha256-/);
  const wrong = await browser.submit(page, { credential: '{}' }, '/passkey');
  t.match([wrong.status, wrong.body], [401, sentence('sign-in.passkey-wrong')]);
  next();
  const fresh = await visitor.get('/sign-in?return_to=%2Faccount%2Fpasskeys');
  const credential = authenticator.get(optionsIn(fresh.body));
  const signedIn = await browser.submit(fresh, { credential }, 'passkey?return_to=%2Faccount%2Fpasskeys');
  t.ok(isAt(signedIn, '/account/passkeys'));
  const replayed = await (await visit(app)).browser.submit(
    fresh,
    { credential },
    'passkey?return_to=%2Faccount%2Fpasskeys',
  );
  t.equal(replayed.status, 401, 'a response works once');

  t.match(signedIn.body, /Confirm your|confirm/, 'no further one before the address is confirmed');
  const kept = await browser.submit(signedIn, {}, '/remove');
  t.match([kept.status, kept.body], [422, /last|only/], 'the last one stays without another way to sign in');
});

t.test('maintenance mode closes the pages, and says so', async (t) => {
  const visitor = await visitNew(t);
  await signUp(visitor);
  await visitor.app.admin('PATCH', '/admin/api/settings', { version: 0, maintenanceMode: true });
  visitor.app.clock.advance(3000);
  t.match(await visitor.get(), { status: 503, body: /<h1>/ });
});
