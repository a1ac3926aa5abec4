import { stringifyCookie } from 'cookie';
import t, { type Test } from 'tap';
import type { Agent, Page } from '../../kit/agent.js';
import { auditOf } from '../../kit/app.js';
import {
  authorizePath,
  codeIn,
  type IdpApp,
  idpApp,
  idpStore,
  type Parameters,
  SEED,
  search,
} from '../../kit/idp.js';

const HOUR = 3600_000;
const LEFT = 'https://app.example.test/left?from=idp';

/** A signed-in person, and what the application knows about the session. */
async function signedIn(t: Test) {
  const idp = await idpApp(t);
  const client = await idp.createClient({ post_logout_redirect_uris: [LEFT] });
  const human = await idp.makeHuman();
  const { browser, page } = await idp.visit(client);
  const signIn = async (browser: Agent, page: Page) => {
    const end = await browser.submit(page, { handle: human.handle, password: human.password });
    return (await idp.redeem(client, codeIn(end.location))).body.id_token as string;
  };
  const hint = await signIn(browser, page);
  const origin = await idp.listen();
  const logout = (more: Parameters = {}) => browser.open(`${origin}/logout?${search(more)}`);
  const isSignedIn = async (who: Agent = browser) =>
    (await who.open(origin + authorizePath(client, { prompt: 'none' }))).location?.includes('code=') === true;
  return { idp, client, human, browser, hint, origin, logout, isSignedIn, signIn };
}

const isDone = (page: Page) => page.status === 200 && page.body.includes('You are signed out');

t.test('an application signs its user out, who returns to a registered address', async (t) => {
  const { idp, client, human, browser, hint, logout, isSignedIn } = await signedIn(t);
  t.ok(await isSignedIn());
  const state = 's&t="é\r\n';
  const page = await logout({ id_token_hint: hint, post_logout_redirect_uri: LEFT, state });
  t.equal(page.status, 303);
  t.equal(page.location, `${LEFT}&state=${encodeURIComponent(state)}`);
  t.match(page.headers.get('cache-control'), /no-store/);
  t.notOk(await isSignedIn());
  t.same(Object.keys(browser.cookies()), ['__Host-idp'], 'the cookie is gone');
  const records = (await auditOf(await idpStore(t, idp))).filter(({ event }) => event === 'logout');
  t.match(records, [{ subject: human.sub }]);
  t.equal(records.length, 1);

  const again = { id_token_hint: hint, client_id: client.id, post_logout_redirect_uri: LEFT };
  t.equal((await logout(again)).location, LEFT, 'there is nothing to end any more');
  t.ok(isDone(await logout({ id_token_hint: hint })), 'nowhere to go');
});

t.test('an id_token_hint signs out without the cookie, by POST and when expired', async (t) => {
  const { idp, hint, isSignedIn, signIn, client } = await signedIn(t);
  const post = (form: Record<string, string>) => idp.request('POST', '/logout', { form });
  const other = await idp.visit(client);
  await signIn(other.browser, other.page);
  idp.clock.advance(HOUR / 2);
  t.ok((await isSignedIn()) && (await isSignedIn(other.browser)));
  idp.clock.advance(HOUR / 2 + 1000);
  const answer = await post({ id_token_hint: hint, post_logout_redirect_uri: LEFT, state: 's' });
  t.match(answer, { status: 303, headers: { location: `${LEFT}&state=s` } });
  t.notOk(await isSignedIn(), 'the session of the hint');
  t.ok(await isSignedIn(other.browser), 'and no other');
});

t.test('a hint of one person does not sign out another one in the same browser', async (t) => {
  const { idp, client, browser, hint, origin, logout, isSignedIn } = await signedIn(t);
  const { handle, password } = await idp.makeHuman();
  const page = await browser.open(origin + authorizePath(client, { prompt: 'login' }));
  await browser.submit(page, { handle, password });
  t.equal((await logout({ id_token_hint: hint, post_logout_redirect_uri: LEFT })).location, LEFT);
  t.ok(await isSignedIn());
});

t.test('without a hint the person is asked first', async (t) => {
  const { idp, client, human, browser, origin, logout, isSignedIn } = await signedIn(t);
  for (const more of [
    {},
    { client_id: client.id, post_logout_redirect_uri: LEFT },
    { post_logout_redirect_uri: 'https://evil.test/' },
  ]) {
    const page = await logout(more);
    t.match(page.body, human.handle);
    const leads = 'client_id' in more;
    const policy = page.headers.get('content-security-policy') ?? '';
    t.equal(policy.includes("form-action 'self';"), !leads);
    t.match(policy, "frame-ancestors 'none'");
    t.equal(page.location, undefined);
    t.ok(await isSignedIn());
  }
  const asked = await logout();
  const { confirm } = asked.form().fields as { confirm: string };
  const cookie = `__Host-idp-session=${browser.cookies()['__Host-idp-session']}`;
  const post = (form: Record<string, string>, headers = { cookie }) =>
    idp.request('POST', '/logout', { form, headers });
  t.match(await post({ confirm: 'x' }), { status: 403 });
  t.match(await post({ confirm: '' }), { status: 403 });
  t.match(await post({}), { status: 303, headers: { location: '/logout?' } }, 'asked by GET');
  t.match(await idp.request('POST', '/logout', { form: { confirm } }), { status: 303 }, 'without a cookie');
  t.ok(await isSignedIn(), 'nothing of that has signed out');

  const done = await browser.submit(asked);
  t.ok(isDone(done));
  t.equal(done.url, `${origin}/logout`);
  t.notOk(await isSignedIn());
  t.ok(isDone(await logout()), 'without a session');
  t.ok(isDone(await browser.submit(asked)), 'twice');
});

t.test('a sign-out with client_id alone returns to a registered address with the state', async (t) => {
  const { client, logout, browser, isSignedIn } = await signedIn(t);
  const asked = { client_id: client.id, post_logout_redirect_uri: LEFT, state: 'a b&c' };
  const target = `${LEFT}&state=a%20b%26c`;
  const page = await logout(asked);
  t.equal(page.status, 200);
  t.ok(await isSignedIn(), 'not before the person has confirmed it');
  const left = await browser.submit(page);
  t.match([left.status, left.location], [303, target]);
  t.notOk(await isSignedIn());
  t.equal((await browser.submit(page)).location, target, 'twice');
  t.equal((await logout(asked)).location, target, 'the session is over already');
  const changed = await browser.submit(page, { post_logout_redirect_uri: 'https://evil.test/' });
  t.match([changed.status, changed.location], [400, undefined]);
});

t.test('an invalid hint or address leads to an error page, never a redirect', async (t) => {
  const { idp, client, hint, logout, isSignedIn } = await signedIn(t);
  const other = await idp.createClient({ post_logout_redirect_uris: ['https://other.example.test/'] });
  const [header, payload, signature] = hint.split('.') as [string, string, string];
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const claims = JSON.parse(Buffer.from(payload, 'base64url').toString());
  const head = JSON.parse(Buffer.from(header, 'base64url').toString());
  const uri = { post_logout_redirect_uri: LEFT };
  const table: [string, Parameters][] = [
    ['no token', { ...uri, id_token_hint: 'x' }],
    ['empty', { ...uri, id_token_hint: '' }],
    ['alg none', { ...uri, id_token_hint: `${encode({ alg: 'none' })}.${payload}.` }],
    ['alg none, our kid', { ...uri, id_token_hint: `${encode({ ...head, alg: 'none' })}.${payload}.` }],
    ['changed', { ...uri, id_token_hint: `${header}.${encode({ ...claims, sub: 'u_0' })}.${signature}` }],
    ['another key', { ...uri, id_token_hint: `${encode({ ...head, kid: 'x' })}.${payload}.${signature}` }],
    ['not registered', { id_token_hint: hint, post_logout_redirect_uri: 'https://evil.test/' }],
    ['longer', { id_token_hint: hint, post_logout_redirect_uri: `${LEFT}&x` }],
    ['empty address', { id_token_hint: hint, post_logout_redirect_uri: '' }],
    ["another client's", { id_token_hint: hint, post_logout_redirect_uri: 'https://other.example.test/' }],
    ['another client', { ...uri, id_token_hint: hint, client_id: other.id }],
    ['no hint, not registered', { client_id: client.id, post_logout_redirect_uri: 'https://evil.test/' }],
    ['no hint, unknown client', { client_id: 'cid_0', post_logout_redirect_uri: LEFT }],
  ];
  for (const [name, more] of table) {
    const page = await logout(more);
    t.equal(page.status, 400, name);
    t.match(page.headers.get('content-type'), /html/);
    t.equal(page.location, undefined);
    const answer = await idp.request('POST', '/logout', { form: search(more) });
    t.match(answer, { status: 400, body: { error: 'invalid_request' } }, name);
  }
  const twice = await idp.request('GET', `/logout?${search({ id_token_hint: hint })}&id_token_hint=${hint}`);
  t.match(twice, { status: 400, body: { error: 'invalid_request' } });
  t.equal((await idp.request('HEAD', `/logout?id_token_hint=${hint}`)).status, 405);
  t.ok(await isSignedIn());

  const foreign = await idpApp(t, { ed25519Seed: 'ab34'.repeat(16) });
  t.equal((await foreign.request('GET', `/logout?id_token_hint=${hint}`)).status, 400, 'another provider');
  const renamed = await idpApp(t, { publicUrl: 'https://staging.example.test' });
  t.equal((await renamed.request('GET', `/logout?id_token_hint=${hint}`)).status, 400, 'with the same key');
});

t.test('a hint is accepted for as long as its key is published', async (t) => {
  const { idp, client, browser, hint, signIn } = await signedIn(t);
  const other = await idp.visit(client);
  const otherHint = await signIn(other.browser, other.page);
  await idp.server.stop();
  const rest = { databaseUri: idp.databaseUri, clock: idp.clock, ed25519Seed: 'ab34'.repeat(16) };
  const rotated = await idpApp(t, { ...rest, ed25519SeedPrevious: SEED });
  const dropped = await idpApp(t, rest);
  const silently = (idp: IdpApp, who: Agent, hint: string) => {
    const path = authorizePath(client, { prompt: 'none', id_token_hint: hint });
    return idp.request('GET', path, { headers: { cookie: stringifyCookie(who.cookies()) } });
  };
  const signOut = (idp: IdpApp, hint: string) =>
    idp.request('POST', '/logout', { form: { id_token_hint: hint, post_logout_redirect_uri: LEFT } });

  t.match((await silently(rotated, browser, hint)).headers['location'], /[?&]code=ac_/);
  t.match((await silently(dropped, browser, hint)).headers['location'], /error=invalid_request/);
  t.match(await signOut(dropped, hint), { status: 400, body: { error: 'invalid_request' } });
  t.match((await silently(rotated, browser, hint)).headers['location'], /[?&]code=ac_/, 'nothing has ended');

  t.match(await signOut(rotated, hint), { status: 303, headers: { location: LEFT } });
  t.match((await silently(rotated, browser, hint)).headers['location'], /error=login_required/);
  const still = await silently(rotated, other.browser, otherHint);
  t.match(still.headers['location'], /[?&]code=ac_/, 'and no other session has ended');
});
