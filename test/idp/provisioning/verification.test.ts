import t, { type Test } from 'tap';
import { DAY } from '../../../src/core/kernel/clock.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { Agent } from '../../kit/agent.js';
import { auditOf, PASSWORD } from '../../kit/app.js';
import { authorizePath, type Credentials, claimsOf, type IdpApp, idpApp, idpStore } from '../../kit/idp.js';
import { sentence } from '../../kit/sentences.js';
import { CHANGED, RESET, VERIFY } from '../../saas/auth/kit.js';
import { enterAccount, HERE } from '../../shared/account-pages/kit.js';
import { mailedIdp } from './kit.js';

/** An address is verified by who holds both the mailbox and the account. */

const DONE = { status: 303, headers: { location: '/verify/done' } };
const CHOSEN = 'a new password of mine';

/** `email_verified` in the id_token and in userinfo, which must agree. */
async function isVerified(t: Test, idp: IdpApp, who: Credentials): Promise<boolean> {
  const client = await idp.createClient();
  const code = await idp.codeFor(client, who, { scope: 'openid email' });
  const { id_token: idToken, access_token: accessToken } = (await idp.redeem(client, code)).body;
  const { email, email_verified: verified } = claimsOf(idToken);
  t.match((await idp.userinfo(accessToken)).body, { email, email_verified: verified });
  return verified;
}

t.test('a person confirms the address by the mailed link and the password, once', async (t) => {
  const idp = await mailedIdp(t);
  const ada = await idp.makeHuman({ handle: 'ada@example.test' });
  const mail = await idp.mail(VERIFY);
  t.same(mail.to, [ada.handle]);
  const path = /https?:\S+\/verify\/\S+/.exec(mail.text)?.[0].replace('https://id.example.test', '') ?? '';
  for (let count = 0; count < 3; count++) {
    for (const method of ['GET', 'HEAD']) t.equal((await idp.request(method, path)).status, 200);
  }
  t.equal(await isVerified(t, idp, ada), false, 'opening the link verifies nothing');
  for (const [password, problem] of [
    ['wrong', sentence('verify-address.wrong')],
    [undefined, sentence('password.missing')],
  ] as const) {
    const form: Record<string, string> = password === undefined ? {} : { password };
    const wrong = await idp.request('POST', path, { form });
    t.equal(wrong.status, 401);
    t.match(wrong.text, problem);
  }
  t.equal(await isVerified(t, idp, ada), false);
  t.match(await idp.request('POST', path, { form: { password: ada.password } }), DONE);
  t.equal(await isVerified(t, idp, ada), true);
  t.equal((await idp.request('GET', path)).status, 410);
  const again = { form: { password: ada.password } };
  t.match(await idp.request('POST', path, again), DONE, 'the same request can be repeated');
  t.equal((await idp.request('POST', path, { form: { password: 'wrong' } })).status, 401, 'with a proof');
  const events = (await auditOf(await idpStore(t, idp))).map(({ event }) => event);
  t.equal(events.filter((event) => event === 'email.verified').length, 1);
  idp.clock.advance(DAY);
  t.equal((await idp.request('POST', path, again)).status, 410, 'until the link expires');
});

t.test('a person who is signed in confirms the address with a button', async (t) => {
  const idp = await mailedIdp(t, { publicUrl: undefined });
  const origin = (await idp.listen()).replace('127.0.0.1', 'localhost');
  const ada = await idp.makeHuman();
  const path = await idp.linkIn(VERIFY);
  const eve = await idp.makeHuman();
  const client = await idp.createClient();
  const signIn = async (who: Credentials) => {
    const browser = new Agent({ origin });
    await browser.submit(await browser.open(origin + authorizePath(client)), {
      handle: who.handle,
      password: who.password,
    });
    return browser;
  };
  const browser = await signIn(eve);
  t.match((await browser.open(origin + path)).body, 'type="password"', 'but not another person');
  const wrong = await browser.submit(await browser.open(origin + path), { password: `${eve.password}!` });
  t.equal(wrong.status, 401);
  t.equal(await isVerified(t, idp, ada), false);

  const own = await signIn(ada);
  const form = await own.open(origin + path);
  t.notMatch(form.body, 'type="password"');
  const done = await own.submit(form);
  t.match([done.status, done.url], [200, /\/verify\/done$/]);
  t.equal(await isVerified(t, idp, ada), true);
});

t.test('the owner of an address takes over an account that someone else made with it', async (t) => {
  const idp = await mailedIdp(t);
  const mallory = await idp.makeHuman({ handle: 'ada@example.test', name: 'Call 555 0100 now' });
  const path = await idp.linkIn(VERIFY);
  t.equal((await idp.request('POST', path, { form: {} })).status, 401, 'the mailbox alone verifies nothing');
  t.equal(await isVerified(t, idp, mallory), false);

  await idp.forget('ada@example.test');
  const mail = await idp.mail(RESET);
  t.notMatch(mail.text, '555', 'the text of a stranger is not repeated');
  const reset = /\/invite\/\S+/.exec(mail.text)?.[0] ?? '';
  t.equal((await idp.request('POST', reset, { body: { password: CHOSEN } })).status, 201);
  const client = await idp.createClient();
  t.equal((await idp.authorize(client, mallory)).status, 401);
  t.equal(await isVerified(t, idp, { ...mallory, password: CHOSEN }), true, 'a mailed reset verifies');
  t.equal((await idp.request('GET', path)).status, 404, 'and ends the first link');
  await idp.mail(CHANGED);
});

t.test('what a stranger has left in an account does not stay with the owner of the address', async (t) => {
  const idp = await mailedIdp(t, HERE);
  const client = await idp.createClient({ name: 'Shop' });
  const connect = async (who: Credentials) => {
    const { browser, page } = await idp.visit(client, { scope: 'openid email' });
    return browser.submit(page, { handle: who.handle, password: who.password });
  };
  const reset = async (handle: string) => {
    await idp.forget(handle);
    const path = await idp.linkIn(RESET);
    t.equal((await idp.request('POST', path, { body: { password: CHOSEN } })).status, 201);
  };
  const mallory = await idp.makeHuman({ handle: 'ada@example.test', name: 'Call 555 0100 now' });
  await connect(mallory);
  await reset(mallory.handle);
  const { get } = await enterAccount(idp, { ...mallory, password: CHOSEN });
  t.match((await get()).body, sentence('account.no-applications'));
  t.notMatch((await get()).body, /Shop|555/);

  // The address is confirmed now: a later reset is that of the same person.
  await connect({ ...mallory, password: CHOSEN });
  await reset(mallory.handle);
  t.match((await (await enterAccount(idp, { ...mallory, password: CHOSEN })).get()).body, 'Shop');
});

t.test('agents and people with another user name get no mail', async (t) => {
  const idp = await mailedIdp(t);
  await idp.mintAgent({ handle: 'agent@example.test' });
  await idp.request('POST', '/v1/accounts', { body: { handle: 'chosen@example.test', password: PASSWORD } });
  await idp.makeHuman({ handle: 'ada' });
  const { body } = await idp.admin('POST', '/v1/invites', { handle: 'invited@example.test' });
  await idp.request('POST', new URL(body.invite_url).pathname, { body: { password: PASSWORD } });
  await idp.makeHuman({ handle: 'last@bücher.example' });
  await idp.mail(VERIFY);
  t.match(idp.sink.mails[0]?.raw, /^To: last@xn--bcher-kva\.example\r$/m, 'the first mail of all');
});

t.test('the account page says that the address is not confirmed, and sends a new link', async (t) => {
  const idp = await mailedIdp(t, { ...HERE, limits: true });
  const ada = await idp.makeHuman();
  const first = await idp.linkIn(VERIFY);
  const { page, browser, get, act } = await enterAccount(idp, ada);
  t.match(page.body, 'This e-mail address is not confirmed.');
  t.match((await act('/account/verification')).body, /role="status"[^<]*A link is on its way/);
  const second = await idp.linkIn(VERIFY);
  t.equal((await idp.request('GET', first)).status, 404, 'a new link replaces the previous one');
  for (let count = 0; count < 2; count++) t.equal((await act('/account/verification')).status, 200);
  const throttled = await act('/account/verification');
  t.equal(throttled.status, 429);
  t.match(throttled.body, /role="alert"[\s\S]*too many[\s\S]*<form/i);

  const form = await get();
  idp.clock.advance(15 * 60_000);
  t.equal((await browser.submit(form, {}, '/account/verification')).status, 200);
  t.not(second, await idp.linkIn(VERIFY));
  await idp.linkIn(VERIFY);
  const last = await idp.linkIn(VERIFY);
  t.match(await idp.request('POST', last, { form: { password: ada.password } }), DONE);
  t.notMatch((await get()).body, 'not confirmed');
  t.match(
    (await browser.submit(form, {}, '/account/verification')).body,
    sentence('account.done.address-confirmed'),
  );
});

t.test('without an e-mail address or a mail server, the account page has no such form', async (t) => {
  const idp = await mailedIdp(t, HERE);
  const bob = await idp.makeHuman({ handle: 'bob' });
  t.notMatch((await enterAccount(idp, bob)).page.body, /confirmed|verification/);
  const silent = await idpApp(t, HERE);
  const eve = await silent.makeHuman();
  const { page } = await enterAccount(silent, eve);
  t.notMatch(page.body, /confirmed|verification/);
  t.equal((await silent.request('POST', '/account/verification', { form: { form: 'x' } })).status, 404);
});

t.test('wrong passwords at the link count as failed sign-ins', async (t) => {
  const idp = await mailedIdp(t, { limits: true });
  const ada = await idp.makeHuman();
  const path = await idp.linkIn(VERIFY);
  const call = { from: '192.0.2.9', headers: { accept: 'text/html' }, form: { password: 'wrong' } };
  const statuses = [];
  for (let count = 0; count < 30; count++) statuses.push((await idp.request('POST', path, call)).status);
  t.ok(statuses.includes(429), 'they are limited');
  t.equal(statuses[0], 401);
  const right = { ...call, form: { password: ada.password } };
  t.equal((await idp.request('POST', path, right)).status, 429, 'whether or not the password is right');
});

t.test('a link is neither valid as the other kind nor after the account was disabled', async (t) => {
  const idp = await mailedIdp(t, { limits: false });
  const ada = await idp.makeHuman();
  const path = await idp.linkIn(VERIFY);
  const asReset = path.replace('verify', 'invite');
  t.equal((await idp.request('POST', asReset, { body: { password: CHOSEN } })).status, 404);
  await idp.forget(ada.handle);
  const asVerification = (await idp.linkIn(RESET)).replace('invite', 'verify');
  t.equal((await idp.request('POST', asVerification, { form: { password: PASSWORD } })).status, 404);
  await idp.admin('POST', `/v1/principals/${ada.sub}/disable`);
  await idp.admin('POST', `/v1/principals/${ada.sub}/enable`);
  t.equal((await idp.request('POST', path, { form: { password: PASSWORD } })).status, 404);
  const principals = principalCollection(await idpStore(t, idp));
  t.equal((await principals.findOne({ id: ada.sub }))?.emailVerifiedAt, undefined);
});

t.test('a used verification link does not set a password', async (t) => {
  const idp = await mailedIdp(t);
  await idp.makeHuman();
  const path = await idp.linkIn(VERIFY);
  t.match(await idp.request('POST', path, { form: { password: PASSWORD } }), DONE);
  const asReset = path.replace('verify', 'invite');
  t.equal((await idp.request('POST', asReset, { body: { password: PASSWORD } })).status, 410);
});
