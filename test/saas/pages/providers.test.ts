import t from 'tap';
import type { Page } from '../../kit/agent.js';
import { PASSWORD } from '../../kit/app.js';
import { sentence } from '../../kit/sentences.js';
import { CLIENT, fakeProvider } from '../login-providers/kit.js';
import { EMAIL, headerOf, isAt, MINUTE, signIn, titleOf, visit, visitNew } from './kit.js';

/** The pages for users, with accounts of other providers. */

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
    t.match(ended.url, /done=cancelled/, 'begun by another user');
    t.equal(await connections(eve), 0);

    await visitor.fill('/sign-out', {});
    await signIn(visitor);
    const begunBefore = await begin();
    await visitor.fill('/sign-out', {});
    await signIn(visitor);
    const session = await browser.open(begunBefore);
    t.match(session.url, /done=cancelled/, 'begun in another session of the same user');

    app.clock.advance(9 * MINUTE);
    const late = await begin();
    app.clock.advance(2 * MINUTE);
    const again = await browser.open(late);
    t.equal(again.status, 401, 'the sign-in is no longer recent');
    t.equal(await connections(ada), 0);

    await signIn(visitor, PASSWORD, '/providers');
    const back = await browser.get(await begin());
    const { searchParams } = new URL(back.location ?? '');
    const state = JSON.stringify({ purpose: 'connection', codeVerifier: 'v'.repeat(43) });
    const forged = { 'saas-page-login': Buffer.from(state).toString('base64url') };
    const cookie = headerOf({ ...browser.cookies('/account'), ...forged });
    const stray = await app.request('GET', `/account/providers/return?${searchParams}`, {
      headers: { accept: 'text/html', cookie },
    });
    t.match(stray.headers['location'], /done=cancelled/, 'a cookie that these pages have not set');
    t.notMatch(
      Buffer.from(browser.cookies('/account')['saas-page-login'] ?? '', 'base64url').toString(),
      /connection/,
      'the state cannot be read',
    );
    const connected = await browser.open(back.location ?? '');
    t.match(connected.url, /done=connected/);
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
    t.same([renewed.status, isAt(renewed, '/account/providers')], [200, true]);
  },
);
