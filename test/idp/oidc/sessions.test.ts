import t, { type Test } from 'tap';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import type { Agent, Page } from '../../kit/agent.js';
import { auditOf } from '../../kit/app.js';
import {
  authorizePath,
  type Credentials,
  claimsOf,
  codeIn,
  type IdpApp,
  idpApp,
  idpStore,
  type Parameters,
  type RegisteredClient,
} from '../../kit/idp.js';
import { sentence } from '../../kit/sentences.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** A person who has signed in at one application. */
async function signedIn(t: Test, more: Parameters = {}) {
  const idp = await idpApp(t);
  const [client, other, human] = [await idp.createClient(), await idp.createClient(), await idp.makeHuman()];
  const { browser, page } = await idp.visit(client, more);
  const end = await signIn(browser, page, human);
  return { idp, client, other, human, browser, end };
}

const signIn = (browser: Agent, page: Page, { handle, password }: Credentials) =>
  browser.submit(page, { handle, password });

const ask = async (idp: IdpApp, browser: Agent, client: RegisteredClient, more: Parameters = {}) =>
  browser.open((await idp.listen()) + authorizePath(client, more));

/** What the application receives when a page is submitted. */
async function redeemedClaims(idp: IdpApp, client: RegisteredClient, page: Page) {
  return claimsOf((await idp.redeem(client, codeIn(page.location))).body.id_token);
}

const errorOf = (page: Page) => new URL(page.location ?? 'none:').searchParams.get('error');
const isSignIn = (page: Page) => page.status === 200 && page.body.includes('type="password"');
const isConsent = (page: Page) => page.status === 200 && page.body.includes('value="deny"');
const allow = (browser: Agent, page: Page) => browser.submit(page, { decision: 'allow' });

async function trust(t: Test, idp: IdpApp, { id }: RegisteredClient) {
  await clientCollection(await idpStore(t, idp)).updateOne({ id }, { set: { trusted: true } });
}

t.test('a person signs in once and is asked for consent once by each further application', async (t) => {
  const { idp, client, other, human, browser, end } = await signedIn(t);
  const first = await redeemedClaims(idp, client, end);
  t.match(first, { sub: human.sub, sid: /^sid_[0-9a-f]{32}$/, auth_time: idp.clock.now() / SECOND });

  idp.clock.advance(MINUTE);
  const again = await ask(idp, browser, client);
  t.equal(again.status, 302, 'where the password was typed, nothing is asked');
  t.match(await redeemedClaims(idp, client, again), {
    sub: human.sub,
    sid: first.sid,
    auth_time: first.auth_time,
  });

  const asked = await ask(idp, browser, other, { state: 's', scope: 'openid profile' });
  t.ok(isConsent(asked));
  t.match(asked.body, human.handle);
  t.match(asked.body, /app\.example\.test/);
  t.match(asked.body, sentence('scope.profile'));
  t.notMatch(asked.body, sentence('scope.email'));
  t.match(
    asked.headers.get('content-security-policy'),
    /default-src 'none'; (?!.*form-action).*frame-ancestors 'none'/,
  );
  const allowed = await allow(browser, asked);
  t.equal(allowed.status, 303);
  t.match(allowed.location, /state=s&iss=/);
  t.match(await redeemedClaims(idp, other, allowed), { sub: human.sub, sid: first.sid, aud: other.id });
  t.equal((await ask(idp, browser, other)).status, 302, 'less than was allowed');
  t.ok(isConsent(await ask(idp, browser, other, { scope: 'openid email' })), 'more than was allowed');

  const events = (await auditOf(await idpStore(t, idp))).map(({ event }) => event);
  t.equal(events.filter((event) => event === 'login.succeeded').length, 1);
  t.equal(events.filter((event) => event === 'login.continued').length, 3);
});

t.test('a refused consent is reported to the application, and asked again next time', async (t) => {
  const { idp, other, browser } = await signedIn(t);
  const asked = await ask(idp, browser, other, { state: 's' });
  const denied = await browser.submit(asked, { decision: 'deny' });
  t.match(denied, { status: 303, location: /error=access_denied&.*state=s&iss=/ });
  t.ok(isConsent(await ask(idp, browser, other)));
  t.match((await browser.submit(asked, { decision: 'maybe' })).status, 400);
  t.match((await browser.submit(asked, { interaction: 'x'.repeat(43), decision: 'allow' })).status, 403);
});

t.test('only a trusted client skips consent', async (t) => {
  const { idp, other, browser } = await signedIn(t);
  await trust(t, idp, other);
  t.equal((await ask(idp, browser, other, { scope: 'openid email profile' })).status, 302);
  t.ok(isConsent(await ask(idp, browser, other, { prompt: 'consent' })), 'unless it wants to know');
});

t.test('the session ends after an idle hour, and after twelve hours in any case', async (t) => {
  const { idp, client, browser } = await signedIn(t);
  idp.clock.advance(HOUR);
  t.ok(isSignIn(await ask(idp, browser, client)), 'an hour of rest');
  const busy = await signedIn(t);
  for (let half = 1; half < 24; half++) {
    busy.idp.clock.advance(HOUR / 2);
    t.equal((await ask(busy.idp, busy.browser, busy.client)).status, 302);
  }
  busy.idp.clock.advance(HOUR / 2);
  t.ok(isSignIn(await ask(busy.idp, busy.browser, busy.client)), 'twelve hours');
});

t.test('each sign-in starts a new session, ends the old one and never adopts a planted one', async (t) => {
  const { idp, client, human, browser, end } = await signedIn(t);
  const [first, cookies] = [await redeemedClaims(idp, client, end), browser.cookies()];
  t.same(Object.keys(cookies), ['__Host-idp', '__Host-idp-session']);
  idp.clock.advance(5 * SECOND);
  const form = await ask(idp, browser, client, { prompt: 'login' });
  t.ok(isSignIn(form));
  const second = await redeemedClaims(idp, client, await signIn(browser, form, human));
  t.not(second.sid, first.sid);
  t.equal(second.auth_time, first.auth_time + 5);
  t.not(browser.cookies()['__Host-idp-session'], cookies['__Host-idp-session']);
  const name = '__Host-idp-session';
  for (const value of [
    cookies[name] as string,
    'x'.repeat(75),
    '',
    `${'0'.repeat(32)}${'x'.repeat(43)}`,
    `${browser.cookies()[name]?.slice(0, 32)}${'x'.repeat(43)}`,
  ]) {
    const cookie = `${name}=${value}`;
    const answer = await idp.request('GET', authorizePath(client), { headers: { cookie } });
    t.equal(answer.status, 200, 'the form');
    t.notMatch(answer.headers['set-cookie'], /idp-session/);
  }
  const set = (await idp.visit(client)).page;
  const fresh = await idp.makeHuman();
  const { browser: third, page } = await idp.visit(client);
  const sent = await third.send(page, { handle: fresh.handle, password: fresh.password });
  t.match(
    sent.headers.getSetCookie().join(),
    /__Host-idp-session=[0-9a-f]{32}[\w-]{43}; Path=\/; HttpOnly; Secure; SameSite=Lax/,
  );
  t.notOk(set.headers.getSetCookie().join().includes('session'), 'who has not signed in has none');
});

t.test('prompt and max_age are obeyed', async (t) => {
  const { idp, client, other, browser } = await signedIn(t, { scope: 'openid' });
  const table: [Parameters, 'silent' | 'login' | 'consent'][] = [
    [{}, 'silent'],
    [{ prompt: 'none' }, 'silent'],
    [{ prompt: 'login' }, 'login'],
    [{ prompt: 'select_account' }, 'login'],
    [{ prompt: 'consent' }, 'consent'],
    [{ prompt: 'login consent' }, 'login'],
    [{ prompt: 'unknown' }, 'silent'],
    [{ max_age: '11' }, 'silent'],
    [{ max_age: '10' }, 'login'],
    [{ max_age: '0' }, 'login'],
    [{ ui_locales: 'de fr' }, 'silent'],
    [{ max_age: '', prompt: '' }, 'silent'],
  ];
  idp.clock.advance(10 * SECOND);
  for (const [more, expected] of table) {
    const page = await ask(idp, browser, client, more);
    const found = isSignIn(page) ? 'login' : isConsent(page) ? 'consent' : 'silent';
    t.equal(found, expected, JSON.stringify(more));
    if (found === 'silent') t.ok(codeIn(page.location));
  }
  const { browser: stranger } = await idp.visit(client);
  const none: [Agent, RegisteredClient, Parameters, string][] = [
    [stranger, client, {}, 'login_required'],
    [browser, client, { max_age: '10' }, 'login_required'],
    [browser, other, {}, 'consent_required'],
    [browser, client, { prompt: 'none login' }, 'invalid_request'],
    [browser, client, { max_age: '-1' }, 'invalid_request'],
    [browser, client, { max_age: '1.5' }, 'invalid_request'],
  ];
  for (const [who, at, more, error] of none) {
    const page = await ask(idp, who, at, { prompt: 'none', state: 's', ...more });
    t.equal(errorOf(page), error, JSON.stringify(more));
    t.match(page.location, /state=s&iss=/);
  }
  t.ok(await idp.codeFor(client, await idp.mintAgent(), { prompt: 'none' }), 'Basic is a sign-in');
});

t.test('prompt=consent asks each time, and typing the password is the consent', async (t) => {
  const { idp, client, human, browser } = await signedIn(t, { prompt: 'consent' });
  const asked = await ask(idp, browser, client, { prompt: 'consent' });
  t.equal((await allow(browser, asked)).status, 303);
  t.ok(isConsent(await ask(idp, browser, client, { prompt: 'consent' })));
  const form = await ask(idp, browser, client, { prompt: 'login consent' });
  t.equal((await signIn(browser, form, human)).status, 303);
});

t.test('an id_token_hint restricts the answer to its person', async (t) => {
  const { idp, client, human, browser, end } = await signedIn(t);
  const { body } = await idp.redeem(client, codeIn(end.location));
  const mine = { id_token_hint: body.id_token as string };
  const another = await idp.makeHuman();
  const agent = await idp.mintAgent();
  const foreignHint = {
    id_token_hint: (await idp.redeem(client, await idp.codeFor(client, another))).body.id_token as string,
  };
  t.equal((await ask(idp, browser, client, { ...mine, prompt: 'none' })).status, 302);
  t.equal(errorOf(await ask(idp, browser, client, { ...foreignHint, prompt: 'none' })), 'login_required');
  const form = await ask(idp, browser, client, foreignHint);
  t.ok(isSignIn(form));
  t.equal(errorOf(await signIn(browser, form, human)), 'login_required', 'the wrong one');
  t.ok(codeIn((await signIn(browser, form, another)).location));
  const basic = await idp.authorize(client, agent, mine);
  t.match(basic.headers['location'], /error=login_required/);
  idp.clock.advance(2 * HOUR);
  const late = await ask(idp, browser, client, mine);
  t.ok(isSignIn(late), 'expired hints are good');
  for (const hint of ['x', `${body.id_token}x`, body.access_token]) {
    t.equal(errorOf(await ask(idp, browser, client, { id_token_hint: hint })), 'invalid_request');
  }
});

t.test('Basic starts no session and issues no sid', async (t) => {
  const { idp, client, human, browser, end } = await signedIn(t);
  const { sid } = await redeemedClaims(idp, client, end);
  const answer = await idp.authorize(client, human, { scope: 'openid offline_access' });
  t.equal(answer.headers['set-cookie'], undefined);
  const { body } = await idp.redeem(client, codeIn(answer.headers['location']));
  t.notOk('sid' in claimsOf(body.id_token), 'despite a session in another browser');
  t.notOk('sid' in claimsOf((await idp.refresh(client, body.refresh_token)).body.id_token));
  const logout = (hint: string) => idp.request('POST', '/logout', { form: { id_token_hint: hint } });
  t.equal((await logout(body.id_token)).status, 200);
  const again = await ask(idp, browser, client);
  t.equal((await redeemedClaims(idp, client, again)).sid, sid, 'it names no session, and so ends none');

  const { body: mine } = await idp.redeem(client, codeIn((await ask(idp, browser, client)).location));
  t.equal((await logout(mine.id_token)).status, 200);
  t.ok(isSignIn(await ask(idp, browser, client)), 'whatever a sid names, logout ends');
});

t.test('disabling a person ends the session, and agents never have one', async (t) => {
  const { idp, client, human, browser } = await signedIn(t);
  await idp.admin('POST', `/v1/principals/${human.sub}/disable`);
  t.ok(isSignIn(await ask(idp, browser, client)));
  await idp.admin('POST', `/v1/principals/${human.sub}/enable`);
  t.ok(isSignIn(await ask(idp, browser, client)));

  const agent = await idp.mintAgent();
  const answer = await idp.authorize(client, agent);
  t.equal(answer.headers['set-cookie'], undefined);
  const { body } = await idp.redeem(client, codeIn(answer.headers['location']));
  t.notOk('sid' in claimsOf(body.id_token));
  const headers = { cookie: '__Host-idp-session=x', authorization: 'Basic eDp5' };
  t.match(await idp.request('GET', authorizePath(client), { headers }), {
    status: 400,
    body: { error: 'browser_basic' },
  });
});

t.test('a consent page is valid only for its person, browser and session', async (t) => {
  const { idp, client, other, human, browser } = await signedIn(t);
  const asked = await ask(idp, browser, other);
  const { interaction } = asked.form().fields;
  const form = { interaction: interaction as string, decision: 'allow' };
  const consent = (headers: Record<string, string>) =>
    idp.request('POST', '/authorize/consent', { form, headers });
  const cookies = browser.cookies();
  const cookie = (names: string[]) => names.map((name) => `${name}=${cookies[name]}`).join('; ');
  t.match(await consent({}), { status: 403, body: { error: 'login_rejected' } });
  t.match(await consent({ cookie: cookie(['__Host-idp-session']) }), { status: 403 });
  const both = cookie(['__Host-idp', '__Host-idp-session']);
  t.match(await consent({ cookie: both, 'sec-fetch-site': 'cross-site' }), { status: 403 });
  const start = { status: 200, text: /type="password"/ };
  t.match(await consent({ cookie: cookie(['__Host-idp']) }), start, 'signed out meanwhile');
  const stranger = await idp.makeHuman();
  await signIn(browser, await ask(idp, browser, client, { prompt: 'login' }), stranger);
  Object.assign(cookies, browser.cookies());
  const unasked = await consent({ cookie: cookie(['__Host-idp', '__Host-idp-session']) });
  t.match(unasked, { status: 200, text: /value="deny"/ }, 'another person without a consent');
  const form2 = await ask(idp, browser, other, { prompt: 'login' });
  const nobody = await idp.makeHuman();
  await signIn(browser, form2, nobody);
  Object.assign(cookies, browser.cookies());
  const late = await consent({ cookie: cookie(['__Host-idp', '__Host-idp-session']) });
  t.match(late, { status: 303, headers: { location: /[?&]code=/ } }, 'another person with a consent');
  const code = codeIn(late.headers['location']);
  t.equal(claimsOf((await idp.redeem(other, code)).body.id_token).sub, nobody.sub);
  t.not(nobody.sub, human.sub);
});

t.test('a consent page left open allows no more than current settings do', async (t) => {
  const { idp, client, other, human, browser, end } = await signedIn(t);
  await redeemedClaims(idp, client, end);
  const asked = await ask(idp, browser, other, { max_age: '60' });
  t.ok(isConsent(asked));
  idp.clock.advance(MINUTE);
  const late = await allow(browser, asked);
  t.ok(isSignIn(late), 'the password is too old by now');
  const answered = await redeemedClaims(idp, other, await signIn(browser, late, human));
  t.equal(answered.auth_time, idp.clock.now() / SECOND);
});

t.test('a refused consent cannot be overridden by another open page', async (t) => {
  const { idp, other, human, browser } = await signedIn(t);
  const asked = await ask(idp, browser, other);
  const elsewhere = await ask(idp, browser, other, { prompt: 'login' });
  t.ok(codeIn((await signIn(browser, elsewhere, human)).location));
  t.equal(errorOf(await browser.submit(asked, { decision: 'deny' })), 'access_denied');
});
