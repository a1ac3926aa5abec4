import { dirname } from 'node:path';
import t, { type Test } from 'tap';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { passkeyCollection } from '../../../src/shared/passkeys/store.js';
import { mailedIdp, printReset } from '../../idp/provisioning/kit.js';
import type { Page } from '../../kit/agent.js';
import { auditOf, PASSWORD } from '../../kit/app.js';
import { optionsIn, SoftwareAuthenticator } from '../../kit/authenticator.js';
import { codeAt, FACTOR_KEY } from '../../kit/factors.js';
import { claimsOf, codeIn, type IdpAppOptions, idpApp, idpStore } from '../../kit/idp.js';
import { sentence } from '../../kit/sentences.js';
import { RESET } from '../../saas/auth/kit.js';
import { addFactor, addPasskey, browse, HERE } from './kit.js';

/** People who sign up with a passkey alone, and have no password. */

const ADA = { handle: 'ada@example.test', name: 'Ada' };
const ACTION = '/authorize/sign-up/passkey';

async function setUp(t: Test, options: IdpAppOptions = {}) {
  const idp = await idpApp(t, { ...HERE, passkeys: true, ...options });
  await idp.listen();
  const authenticator = new SoftwareAuthenticator(idp.server.fastify.idp.issuer());
  return { idp, authenticator };
}

/** Ada, who has signed up on her own, on her account page. */
async function signedUp(t: Test, options: IdpAppOptions = {}) {
  const { idp, authenticator } = await setUp(t, options);
  const account = await browse(idp);
  const form = await account.get('/sign-up');
  const credential = authenticator.create(optionsIn(form.body));
  const page = await account.browser.submit(form, { ...ADA, credential }, ACTION);
  idp.clock.advance(1);
  const signIn = async (on: Page, browser = account.browser) => {
    const assertion = authenticator.get(optionsIn(on.body));
    return browser.submit(on, { credential: assertion }, '/authorize/passkey');
  };
  return { idp, authenticator, page, signIn, ...account };
}

t.test(
  'a person signs up with a passkey within a request of an application, and signs in again',
  async (t) => {
    const { idp, authenticator } = await setUp(t);
    const client = await idp.createClient();
    const { browser, page } = await idp.visit(client, { prompt: 'create', scope: 'openid profile' });
    const credential = authenticator.create(optionsIn(page.body));
    const end = await browser.submit(page, { ...ADA, credential }, ACTION);
    const { body } = await idp.redeem(client, codeIn(end.location));
    const claims = claimsOf(body.id_token);
    t.match(claims, { name: 'Ada', preferred_username: ADA.handle, amr: ['pop', 'user', 'mfa'] });
    idp.clock.advance(1);
    const again = await idp.visit(client);
    const signed = authenticator.get(optionsIn(again.page.body));
    const second = await again.browser.submit(again.page, { credential: signed }, '/authorize/passkey');
    const redeemed = await idp.redeem(client, codeIn(second.location));
    t.equal(claimsOf(redeemed.body.id_token).sub, claims.sub);

    const principal = await principalCollection(await idpStore(t, idp)).findOne({ handle: ADA.handle });
    t.match(principal, { id: claims.sub, kind: 'human', state: 'active', passwordHash: undefined });
    const events = (await auditOf(await idpStore(t, idp))).map(({ event }) => event);
    t.ok(events.includes('account.registered') && events.includes('passkey.added'));
  },
);

t.test('no password opens an account without one', async (t) => {
  const { idp } = await signedUp(t);
  const { browser, get } = await browse(idp);
  for (const password of ['', PASSWORD, 'undefined', 'null']) {
    const refused = await browser.submit(await get(), { handle: ADA.handle, password });
    t.equal(refused.status, 401, password);
  }
});

t.test('a user name that is taken is said so, and leaves no passkey behind', async (t) => {
  const { idp, authenticator } = await setUp(t);
  await idp.makeHuman({ handle: ADA.handle });
  const { browser, get } = await browse(idp);
  const form = await get('/sign-up');
  const credential = authenticator.create(optionsIn(form.body));
  const taken = await browser.submit(form, { ...ADA, credential }, ACTION);
  t.match(taken, { status: 409, body: /role="alert"[\s\S]*value="ada@example\.test"/ });
  t.equal(await passkeyCollection(await idpStore(t, idp)).count(), 0);
  const fields = { handle: 'bob@example.test', credential: '{}' };
  t.equal((await browser.submit(taken, fields, ACTION)).status, 422);
  t.equal((await browser.submit(form, { ...ADA, credential, name: '\u2800' }, ACTION)).status, 422);
});

t.test('a form for a sign-up works once, in its own browser, while sign-up is open', async (t) => {
  const { idp, authenticator } = await setUp(t);
  const { browser, get } = await browse(idp);
  const form = await get('/sign-up');
  const credential = authenticator.create(optionsIn(form.body));
  const { interaction = '' } = form.form(ACTION).fields;
  const foreign = { form: { interaction, credential, ...ADA } };
  t.equal((await idp.request('POST', ACTION, foreign)).status, 403);
  const other = await browse(idp);
  const late = await other.get('/sign-up');
  const expired = {
    ...ADA,
    credential: new SoftwareAuthenticator(authenticator.origin).create(optionsIn(late.body)),
  };
  t.equal((await browser.submit(form, { ...ADA, credential }, ACTION)).status, 200);
  t.equal((await browser.submit(form, { ...ADA, credential }, ACTION)).status, 422);
  idp.clock.advance(15 * 60_000);
  t.match(await other.browser.submit(late, { ...expired, handle: 'bob' }, ACTION), {
    status: 403,
    body: /value="bob"/,
  });
  const closed = await setUp(t, { disableSignup: true });
  t.equal((await closed.idp.request('POST', ACTION, foreign)).status, 403);
});

t.test('a person without a password deletes the account after a recent sign-in', async (t) => {
  const { idp, browser, get, signIn } = await signedUp(t);
  idp.clock.advance(15 * 60_000);
  const asked = await get('/delete');
  t.equal(asked.status, 401);
  const form = await signIn(asked);
  t.notMatch(form.body, 'type="password"');
  const differs = await browser.submit(form, { confirm: 'another' });
  t.equal(differs.status, 422);
  t.match((await browser.submit(differs, { confirm: ADA.handle })).url, /\/account\/deleted$/);
  t.equal(await passkeyCollection(await idpStore(t, idp)).count(), 0);
});

t.test('with a password, the deletion still requires it', async (t) => {
  const { idp } = await setUp(t);
  const human = await idp.makeHuman();
  const { browser, get } = await browse(idp);
  await browser.submit(await get(), { handle: human.handle, password: PASSWORD });
  const form = await get('/delete');
  const { form: token = '' } = form.form().fields;
  const fields = { form: token, confirm: human.handle };
  const headers = { cookie: browser.cookieHeader() };
  const bare = await idp.request('POST', '/account/delete', { form: fields, headers });
  t.equal(bare.status, 401);
  t.equal((await browser.submit(form, { confirm: human.handle, password: '' })).status, 401);
});

t.test('a link sets the first password, after which the pages ask for it', async (t) => {
  const { idp, get, signIn } = await signedUp(t);
  const page = await get('/password');
  t.match(page.body, /You have no password[\s\S]*href="[^"]*forgot-password"/);
  t.notMatch(page.body, 'type="password"');
  const [{ sub }] = (await idp.admin('GET', `/v1/principals?prefix=${ADA.handle}`)).body.principals;
  const chosen = { password: PASSWORD, password_confirm: PASSWORD };
  const set = await idp.request('POST', await printReset(t, idp, sub), { form: chosen });
  t.match(set, { status: 303, headers: { location: '/invite/done' } });
  const { browser: other, get: open } = await browse(idp);
  const account = await other.submit(await open(), { handle: ADA.handle, password: PASSWORD });
  t.match(account.body, sentence('account.title'));
  t.match((await open('/delete')).body, 'type="password"');
  t.match((await open('/password')).body, sentence('account-password.current'));
  t.match((await signIn(await get())).body, sentence('account.title'), 'the passkey stays');
});

t.test('the owner of an address takes over an account that someone else made with a passkey', async (t) => {
  const idp = await mailedIdp(t, { ...HERE, passkeys: true });
  await idp.listen();
  const thief = new SoftwareAuthenticator(idp.server.fastify.idp.issuer());
  const { browser, get } = await browse(idp);
  const form = await get('/sign-up');
  await browser.submit(form, { ...ADA, credential: thief.create(optionsIn(form.body)) }, ACTION);
  await idp.forget(ADA.handle);
  const chosen = { password: PASSWORD, password_confirm: PASSWORD };
  t.equal((await idp.request('POST', await idp.linkIn(RESET), { form: chosen })).status, 303);
  idp.clock.advance(1);
  const asked = await get();
  t.equal(asked.status, 401, 'the session has ended');
  const credential = thief.get(optionsIn(asked.body));
  t.equal((await browser.submit(asked, { credential }, '/authorize/passkey')).status, 401);

  const owner = new SoftwareAuthenticator(thief.origin);
  const { browser: own, get: open } = await browse(idp);
  await own.submit(await open(), { handle: ADA.handle, password: PASSWORD });
  await addPasskey({ browser: own, get: open }, owner);
  idp.clock.advance(60 * 60_000);
  await idp.forget(ADA.handle);
  const next = { password: `${PASSWORD}!`, password_confirm: `${PASSWORD}!` };
  t.equal((await idp.request('POST', await idp.linkIn(RESET), { form: next })).status, 303);
  const again = await open();
  const signed = owner.get(optionsIn(again.body));
  t.match(
    (await own.submit(again, { credential: signed }, '/authorize/passkey')).body,
    sentence('account.title'),
  );
});

t.test('the last passkey of a person without a password cannot be removed', async (t) => {
  const { authenticator, browser, get, idp } = await signedUp(t);
  const remove = async (id: string) => browser.submit(await get('/passkeys'), { id }, '/remove');
  t.match(await remove(authenticator.name), { status: 422, body: /role="alert"[\s\S]*your only passkey/ });
  const other = new SoftwareAuthenticator(authenticator.origin);
  await addPasskey({ browser, get }, other);
  t.match((await remove(authenticator.name)).body, sentence('account.done.passkey-removed'));
  t.equal(await passkeyCollection(await idpStore(t, idp)).count(), 1);
});

t.test('the owner takes the account over also while passkeys are not enabled', async (t) => {
  const { idp, authenticator } = await signedUp(t);
  const passkeys = passkeyCollection(await idpStore(t, idp));
  t.equal(await passkeys.count(), 1);
  await idp.server.stop();
  const off = await mailedIdp(t, { ...HERE, folder: dirname(idp.file) });
  await off.listen();
  await off.forget(ADA.handle);
  const chosen = { password: PASSWORD, password_confirm: PASSWORD };
  t.equal((await off.request('POST', await off.linkIn(RESET), { form: chosen })).status, 303);
  t.equal(await passkeyCollection(await idpStore(t, off)).count(), 0, authenticator.name);
});

t.test('a disabled person without a password is active again when enabled', async (t) => {
  const { idp, get, signIn } = await signedUp(t);
  const [{ sub }] = (await idp.admin('GET', `/v1/principals?prefix=${ADA.handle}`)).body.principals;
  await idp.admin('POST', `/v1/principals/${sub}/disable`);
  t.equal((await signIn(await get())).status, 401);
  t.match((await idp.admin('POST', `/v1/principals/${sub}/enable`)).body, { state: 'active' });
  idp.clock.advance(1);
  t.match((await signIn(await get())).body, sentence('account.title'));
});

t.test('a person without a password removes the second factor with its code', async (t) => {
  const { idp, ...account } = await signedUp(t, { factorEncryptionKey: FACTOR_KEY });
  const { browser, get } = account;
  const { secret } = await addFactor(account, idp);
  idp.clock.advance(60_000);
  const form = await get('/second-factor');
  t.equal((await browser.submit(form, { code: '000000' }, '/remove')).status, 401);
  const done = await browser.submit(form, { code: codeAt(secret, idp.clock.now()) }, '/remove');
  t.match(done.body, sentence('account.done.factor-removed'));
});
