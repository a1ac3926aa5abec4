import t from 'tap';
import { Agent, type Page } from '../../kit/agent.js';
import { type Account, basic, PASSWORD, saasApp } from '../../kit/app.js';
import { optionsIn, SoftwareAuthenticator } from '../../kit/authenticator.js';
import { codeAt, FACTOR_KEY } from '../../kit/factors.js';
import { parseMetrics } from '../../kit/metrics.js';
import { sentence } from '../../kit/sentences.js';
import { mailedApp, RESET, VERIFY } from '../auth/kit.js';
import { KEY, provider as paymentProvider } from '../billing/kit.js';
import { EMAIL, HERE, headerOf, isAt, MINUTE, signIn, signUp, titleOf, visit, visitNew } from './kit.js';

const OTHER_PASSWORD = 'another horse battery staple';

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

t.test('a form of another site cannot sign a user in, up or out', async (t) => {
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
  const login = async (): Promise<Account> =>
    (await visitor.app.post('/auth/login', { email: EMAIL, password: PASSWORD }, { headers: firefox })).body
      .data;
  const first = await login();
  const page = await visitor.get();
  t.match(page.body, /Firefox on Linux/);
  const listed = await visitor.app.request('GET', '/api/auth/sessions', { token: first.accessToken });
  t.match(listed.body.data.sessions[0], { browser: 'Firefox', system: 'Linux', place: '127.0.0.1' });
  const ended = await visitor.browser.submit(page, {}, '/sessions/end');
  t.match(ended.body, sentence('account.done.session-ended'));
  t.equal(await visitor.app.me(first), 401);
  const others = [await login(), await login()];
  const done = await visitor.fill('', {}, '/sessions/end-others');
  t.match(done.body, sentence('account.done.sessions-ended'));
  for (const one of others) t.equal(await visitor.app.me(one), 401);
});

t.test('a user changes the name, the password and the address', async (t) => {
  const app = await mailedApp(t, HERE);
  const visitor = await visit(app);
  await signUp(visitor);
  t.match((await visitor.fill('', { name: 'Countess' }, '/name')).body, /value="Countess"/);

  const change = (current: string, password: string) =>
    visitor.fill('/password', { current_password: current, password, password_confirm: password });
  const wrong = await change('x', OTHER_PASSWORD);
  t.match([wrong.status, wrong.body], [401, sentence('account-password.wrong')]);
  const short = await change(PASSWORD, 'x');
  t.match([short.status, short.body], [422, sentence('password.short')]);
  const changed = await change(PASSWORD, OTHER_PASSWORD);
  t.match([changed.status, changed.body], [200, sentence('account.done.password-changed')]);

  const same = await visitor.fill('/address', { email: EMAIL, password: OTHER_PASSWORD });
  t.match([same.status, same.body], [422, sentence('user-address.same')]);
  const refused = await visitor.fill('/address', { email: 'new@example.test', password: PASSWORD });
  t.match([refused.status, refused.body], [401, sentence('account-delete.wrong')]);
  t.match(refused.body, /value="new@example\.test"/);
  const sent = await visitor.fill('/address', { email: 'new@example.test', password: OTHER_PASSWORD });
  t.match(sent.body, sentence('account.done.address-link-sent'));
  const token = await app.tokenIn(sentence('mail.confirm-address-change.subject'));
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
  await app.tokenIn(VERIFY);
  const token = await app.tokenIn(VERIFY);
  t.equal((await app.post('/auth/verify-email', { token, password: PASSWORD })).status, 200);
  t.match(titleOf(await signIn(visitor)), sentence('account.title'));
});

t.test(
  'the browser that is signed in confirms its address without a password, and no other one does',
  async (t) => {
    const app = await mailedApp(t, HERE);
    const [ada, eve] = [await visit(app), await visit(app)];
    await signUp(ada);
    await ada.fill('', {}, '/verification');
    const path = `/api/auth/verify-email?token=${await app.tokenIn(VERIFY)}`;
    await signUp(eve, 'eve@example.test');
    const asks = sentence('verify-email.password');
    const open = ({ browser, origin }: typeof ada) => browser.open(`${origin}${path}`);
    t.match((await open(eve)).body, asks, 'the user of another account');
    const page = await open(ada);
    t.notMatch(page.body, asks);
    t.match(page.body, EMAIL);
    const elsewhere = await app.request('POST', '/api/auth/verify-email', {
      form: page.form().fields,
      headers: { cookie: headerOf(ada.browser.cookies('/')), 'sec-fetch-site': 'cross-site' },
    });
    t.match([elsewhere.status, elsewhere.text], [400, asks], 'a page of another site');
    await ada.fill('/sign-out', {});
    t.match(
      [(await ada.browser.submit(page, {})).status, (await open(ada)).body],
      [400, asks],
      'after signing out',
    );
    await signIn(ada);
    t.match(titleOf(await ada.browser.submit(await open(ada), {})), sentence('verify-email.done'));
    t.notMatch((await ada.get()).body, sentence('account.unconfirmed'));
  },
);

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

const secretIn = ({ body }: Page) => /<code class="wrap" dir="ltr">([^<]*)/.exec(body)?.[1] ?? '';

t.test('a second factor is set up and asked for, also to confirm a sign-in', async (t) => {
  const app = await mailedApp(t, { ...HERE, factorEncryptionKey: FACTOR_KEY });
  const visitor = await visit(app);
  await signUp(visitor);
  const first = await visitor.get('/second-factor');
  t.notMatch(first.body, /second-factor\/begin/, 'not before the address is confirmed');
  const sent = await visitor.fill('', {}, '/verification');
  t.match(sent.body, sentence('account.done.link-sent'));
  const token = await app.tokenIn(VERIFY);
  await app.post('/auth/verify-email', { token, password: PASSWORD });

  const begun = await visitor.fill('/second-factor', {}, '/begin');
  const code = () => codeAt(secretIn(begun), app.clock.now());
  const codes = await visitor.browser.submit(begun, { code: code() }, '/confirm');
  t.match(titleOf(codes), sentence('account-recovery-codes.title'));

  const other = await visit(app);
  const step = await signIn(other, PASSWORD, '/sign-in?return_to=%2Faccount%2Fsign-out');
  t.match(titleOf(step), sentence('second-factor.title'));
  t.same(other.browser.cookies(), {}, 'there is no session yet');
  const wrong = await other.browser.submit(step, { code: '000000' });
  t.match([wrong.status, wrong.body], [401, sentence('second-factor.wrong')]);
  app.clock.advance(MINUTE);
  const done = await other.browser.submit(wrong, { code: code() });
  t.ok(isAt(done, '/account/sign-out'), 'the destination survives the step');

  app.clock.advance(11 * MINUTE);
  const late = await visitor.get('/second-factor');
  t.equal(late.status, 401, 'a recent sign-in is needed');
  const again = await visitor.browser.submit(late, { email: EMAIL, password: PASSWORD });
  t.ok(isAt(await visitor.browser.submit(again, { code: code() }), '/account/second-factor'));
  const removed = await visitor.fill('/second-factor', { password: PASSWORD, code: '000000' }, '/remove');
  t.equal(removed.status, 401, 'a code is needed');
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
  const wrong = await visitor.browser.submit(step, { code: '000000' });
  t.same([wrong.status, secretIn(wrong)], [401, secretIn(step)], 'the same secret');
  const codes = await visitor.browser.submit(wrong, { code: codeAt(secretIn(step), app.clock.now()) });
  t.match(titleOf(codes), sentence('account-recovery-codes.title'));
  t.match(titleOf(await visitor.get()), sentence('account.title'));
});

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
  const login = await app.post('/auth/login', { email: EMAIL, password: PASSWORD });
  const owner = { id: login.body.data.user.id };
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

  const customer = String([...api.sessions.values()][0]?.['customer']);
  Object.assign(api.world.subscribe(customer, owner.id, true), {
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
  for (const session of ['cs_foreign', '{CHECKOUT_SESSION_ID}']) {
    const foreign = await visitor.get(`/billing?checkout=success&session_id=${session}`);
    t.match([foreign.status, foreign.body], [200, sentence('user-billing.no-plan')], session);
  }
  const calls = api.calls.length;
  const headers = { cookie: headerOf(visitor.browser.cookies()) };
  const { status } = await app.request('HEAD', `/account${returned}`, { headers });
  t.same([status, api.calls.length], [405, calls], 'HEAD fetches nothing');
  const subscribed = await visitor.get(returned);
  t.match(subscribed.body, sentence('user-billing.renews'), 'before any webhook arrives');
  t.match(subscribed.body, sentence('user-billing.current'));
  const preview = await visitor.browser.submit(subscribed, {}, '/change');
  t.match([titleOf(preview), preview.body], [sentence('user-billing-change.title'), /basic/i]);
  const changed = await visitor.browser.submit(preview);
  t.match([changed.status, changed.body], [200, sentence('user-billing.changed')]);
  const back = await visitor.browser.submit(changed, {}, '/change');
  const later = await visitor.browser.submit(back, { when: 'period_end' });
  t.match([later.status, later.body], [200, sentence('user-billing.scheduled')]);
  const undone = await visitor.browser.submit(later, {}, '/undo');
  t.match([undone.status, undone.body], [200, sentence('user-billing.undone')]);
  t.notMatch(undone.body, /billing\/undo/);
  api.declines = 'authentication_required';
  const confirmed = await visitor.browser.send(back, {}, '/change');
  t.match(confirmed.location, /^https:\/\/invoice\.example\.test\//, 'the bank asks for a confirmation');
  api.declines = undefined;
  await visitor.browser.submit(await visitor.get('/billing'), {}, '/undo');
  const cancelled = await visitor.browser.submit(undone, {}, '/cancel');
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
  const late = await app.request('GET', `/account${returned}`, { headers });
  t.same([late.status, api.calls.length], [303, ended + 1], 'before the call is given up and repeated');
});

t.test('a plan with seats is not offered to a user, for whom it would do nothing', async (t) => {
  const api = await paymentProvider(t);
  const team = { name: 'Team of many', prices: ['price_pro'], seats: 'limit' as const };
  const pageWith = async (plans: object) => {
    const visitor = await visitNew(t, {
      ...{ paymentSecretKey: KEY, paymentApiUrl: api.url, organizations: true },
      billing: { plans: { team, ...plans } },
    });
    await signUp(visitor);
    return (await visitor.get('/billing')).body;
  };
  const both = await pageWith({ basic: { name: 'Basic for one', prices: ['price_basic'] } });
  t.match(both, 'Basic for one');
  t.notMatch(both, team.name);
  t.notMatch(await pageWith({}), 'id="plans"', 'no heading without a plan');
});

t.test('a user adds an add-on to the plan, removes it and uses a promotion code', async (t) => {
  const api = await paymentProvider(t);
  const recurring = { interval: 'month', usage_type: 'licensed' };
  const visitor = await visitNew(t, {
    ...{ paymentSecretKey: KEY, paymentApiUrl: api.url },
    billing: {
      plans: {
        basic: { prices: ['price_basic'], checkout: { promotionCodes: true } },
        storage: { name: 'Storage', prices: ['price_pro'], independent: true },
      },
    },
  });
  api.prices.set('price_pro', { id: 'price_pro', object: 'price', active: true, currency: 'eur', recurring });
  api.promotionCodes.push({ id: 'launch', code: 'LAUNCH', active: true });
  const { app } = visitor;
  await signUp(visitor);
  const login = await app.post('/auth/login', { email: EMAIL, password: PASSWORD });
  const { accessToken: token, user } = login.body.data;
  await app.request('POST', '/api/billing/create-checkout-session', { token, body: { mode: 'setup' } });
  const customer = String([...api.sessions.values()][0]?.['customer']);
  const truth = Object.assign(api.world.subscribe(customer, user.id, true), {
    ...{ status: 'active', price: 'price_basic', quantity: 1, trialEnd: null },
  });
  await app.request('POST', '/api/billing/sync', { token, body: {} });
  const confirm = await visitor.browser.submit(await visitor.get('/billing'), {}, '/add-on');
  t.match(titleOf(confirm), sentence('user-billing-add-on.title'));
  const added = await visitor.browser.submit(confirm);
  t.match([added.status, added.body], [200, sentence('user-billing.added')]);
  t.match(truth.addOns, [{ price: 'price_pro' }]);
  const wrong = await visitor.browser.submit(added, { code: 'NONE' }, '/code');
  t.match([wrong.status, wrong.body], [422, sentence('user-billing.problems.PROMOTION_NOT_VALID')]);
  const discounted = await visitor.browser.submit(added, { code: 'LAUNCH' }, '/code');
  t.match([discounted.status, discounted.body], [200, sentence('user-billing.discounted')]);
  const removed = await visitor.browser.submit(discounted, {}, '/remove-add-on');
  t.match([removed.status, removed.body], [200, sentence('user-billing.removed')]);
  t.same(truth.addOns, []);
});

t.test('a mailed code signs in, in the browser that asked for it', async (t) => {
  const app = await mailedApp(t, { ...HERE, emailLogin: true });
  await app.signUp({ email: EMAIL });
  const visitor = await visit(app);
  t.match((await visitor.get('/sign-in')).body, sentence('user-sign-in.code'));
  const invalid = await visitor.fill('/sign-in/code', { email: 'ada' });
  t.match([invalid.status, invalid.body], [422, sentence('user-sign-up.email-invalid')]);
  const entering = await visitor.fill('/sign-in/code?return_to=%2Faccount%2Fsign-out', { email: EMAIL });
  t.match(titleOf(entering), sentence('user-code.title'));
  const mail = await app.mail(sentence('mail.login-code.subject'));
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

t.test('a passkey creates an account and signs in', async (t) => {
  const app = await mailedApp(t, { ...HERE, passkeys: true });
  const visitor = await visit(app);
  const { browser, origin } = visitor;
  const authenticator = new SoftwareAuthenticator(origin);
  const form = (await visitor.get('/sign-up')).form();
  const post = (more: object) =>
    app.request('POST', '/account/sign-up/passkey', {
      body: String(new URLSearchParams({ ...form.fields, email: EMAIL, name: 'Ada', ...more })),
      headers: { 'content-type': 'application/x-www-form-urlencoded', accept: 'text/html', origin },
    });
  const invalid = { status: 422, text: sentence('user-sign-up.email-invalid') };
  t.match(await post({ email: 'ada' }), invalid);
  const begun = await post({});
  t.match([begun.status, begun.text], [200, sentence('user-sign-up-passkey.title')]);
  const ceremony = /name="ceremony" value="([^"]*)"/.exec(begun.text)?.[1] ?? '';
  const action = `${origin}/account/sign-up/passkey/finish`;
  const step: Page = {
    ...(await visitor.get('/sign-up')),
    form: () => ({ method: 'post', action, fields: { ceremony } }),
  };
  const nothing = await browser.submit(step, { credential: 'x' });
  t.match([nothing.status, titleOf(nothing)], [400, sentence('user-sign-up.title')]);
  const created = await browser.submit(step, { credential: authenticator.create(optionsIn(begun.text)) });
  t.match([created.status, titleOf(created)], [200, sentence('account.title')]);
  t.match((await visitor.get('/password')).body, sentence('account-password.none'));
  await visitor.fill('/sign-out', {});

  app.clock.advance(1);
  const query = '?return_to=%2Faccount%2Fpasskeys';
  const page = await visitor.get(`/sign-in${query}`);
  t.match(page.headers.get('content-security-policy'), /script-src 'sha256-/);
  const wrong = await browser.submit(page, { credential: '{}' }, `/passkey${query}`);
  t.match([wrong.status, wrong.body], [401, sentence('sign-in.passkey-wrong')]);
  app.clock.advance(1);
  const fresh = await visitor.get(`/sign-in${query}`);
  const credential = authenticator.get(optionsIn(fresh.body));
  const signedIn = await browser.submit(fresh, { credential }, `/passkey${query}`);
  t.ok(isAt(signedIn, '/account/passkeys'));
  const kept = await browser.submit(signedIn, {}, '/remove');
  t.equal(kept.status, 422, 'the last one stays without another way to sign in');
});

t.test('maintenance mode closes the pages, and says so', async (t) => {
  const visitor = await visitNew(t);
  await signUp(visitor);
  await visitor.app.admin('PATCH', '/admin/api/settings', { version: 0, maintenanceMode: true });
  visitor.app.clock.advance(3000);
  t.match(await visitor.get(), { status: 503, body: /<h1>/ });
});
