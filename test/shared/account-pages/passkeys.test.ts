import { dirname } from 'node:path';
import t, { type Test } from 'tap';
import { mailCollection } from '../../../src/shared/email/store.js';
import { passkeyCollection, usedChallengeCollection } from '../../../src/shared/passkeys/store.js';
import type { Page } from '../../kit/agent.js';
import { auditOf, PASSWORD } from '../../kit/app.js';
import { optionsIn, SoftwareAuthenticator } from '../../kit/authenticator.js';
import { commandLine } from '../../kit/command-line.js';
import { FACTOR_KEY } from '../../kit/factors.js';
import {
  authorizePath,
  claimsOf,
  codeIn,
  type IdpApp,
  type IdpAppOptions,
  idpApp,
  idpStore,
  type Parameters,
} from '../../kit/idp.js';
import { makeOperator } from '../../kit/operator.js';
import { sentence } from '../../kit/sentences.js';
import { addFactor, addPasskey, browse, enterAccount, FIREFOX, HERE } from './kit.js';

/** Passkeys at the provider: the account page and sign-in, with an authenticator in software. */

const MINUTE = 60_000;

const ENABLED = { ...HERE, passkeys: true } satisfies IdpAppOptions;

const headers = { 'user-agent': FIREFOX };

/** A person with a passkey, in the browser in which it was added. */
async function withPasskey(
  t: Test,
  { handle, ...options }: IdpAppOptions & { handle?: string } = {},
  counter = 0,
) {
  const idp = await idpApp(t, { ...ENABLED, ...options });
  const human = await idp.makeHuman(handle === undefined ? {} : { handle });
  const entered = await enterAccount(idp, human, headers);
  const authenticator = new SoftwareAuthenticator(idp.server.fastify.idp.issuer(), { counter });
  const add = async (one = authenticator, fields: Record<string, string> = {}) => {
    // Forms of one millisecond have one challenge.
    idp.clock.advance(1);
    return addPasskey(entered, one, fields);
  };
  const added = await add();
  t.match(added.body, sentence('account.done.passkey-added'));
  return { idp, human, authenticator, add, added, ...entered };
}

/** Opens the sign-in form of a new application in a new browser, and signs in there with the passkey. */
async function signIn(idp: IdpApp, authenticator: SoftwareAuthenticator, more: Parameters = {}) {
  idp.clock.advance(1);
  const client = await idp.createClient();
  const { browser, page } = await idp.visit(client, more);
  const submit = (on: Page, credential = authenticator.get(optionsIn(on.body))) => {
    idp.clock.advance(1);
    return browser.submit(on, { credential }, '/authorize/passkey');
  };
  return { client, browser, page, submit, end: await submit(page) };
}

t.test('a person adds a passkey and signs in with it, without the password', async (t) => {
  const { idp, human, authenticator, added, get } = await withPasskey(t);
  t.match(added.body, /<strong>Firefox on Linux<\/strong>[\s\S]*Not used yet\.[\s\S]*Synchronized/);
  idp.clock.advance(MINUTE);
  const { client, end } = await signIn(idp, authenticator, { state: 'kept', acr_values: 'mfa' });
  t.match(end.location, /state=kept/);
  const { body } = await idp.redeem(client, codeIn(end.location));
  t.match(claimsOf(body.id_token), { sub: human.sub, amr: ['pop', 'user', 'mfa'], acr: 'mfa' });
  t.match((await get('/passkeys')).body, sentence('account-passkey.used'));
  t.match((await get()).body, 'Passkeys: 1.');
  const events = (await auditOf(await idpStore(t, idp))).map(({ event }) => event);
  t.ok(events.includes('passkey.added') && events.includes('login.succeeded'));
});

t.test('a passkey signs in to the account page, where the session counts as recent', async (t) => {
  const { idp, authenticator, human } = await withPasskey(t);
  const { browser, get } = await browse(idp);
  const page = await get('/passkeys');
  t.equal(page.status, 401);
  const credential = authenticator.get(optionsIn(page.body));
  const end = await browser.submit(page, { credential }, '/authorize/passkey');
  t.match(end, { status: 200, url: /\/account\/passkeys$/ });
  t.match((await get()).body, human.handle);
});

t.test('a passkey replaces the code of an authenticator app, and steps a session up', async (t) => {
  const { idp, human, authenticator, ...account } = await withPasskey(t, { factorEncryptionKey: FACTOR_KEY });
  const { browser, origin } = account;
  const client = await idp.createClient();
  const path = origin + authorizePath(client, { scope: 'openid', acr_values: 'mfa' });
  const asked = await browser.open(path);
  t.match(asked.body, sentence('sign-in.passkey'), 'the session has a password only');
  const silent = await browser.open(`${path}&prompt=none`);
  t.match(silent.location, /error=login_required/);
  const credential = authenticator.get(optionsIn(asked.body));
  const end = await browser.submit(asked, { credential }, '/authorize/passkey');
  t.match(claimsOf((await idp.redeem(client, codeIn(end.location))).body.id_token), { acr: 'mfa' });
  t.match((await browser.open(`${path}&prompt=none`)).location, /code=/);

  await addFactor(account, idp);
  t.match((await signIn(idp, authenticator)).end.location, /code=/);
  const { browser: other, page } = await idp.visit(client);
  const { handle, password } = human;
  t.match((await other.submit(page, { handle, password })).body, sentence('second-factor.title'));
});

t.test('where everybody must have a second factor, a passkey is one', async (t) => {
  const idp = await idpApp(t, ENABLED);
  const human = await idp.makeHuman({ handle: 'ada' });
  const account = await enterAccount(idp, human);
  const authenticator = new SoftwareAuthenticator(idp.server.fastify.idp.issuer());
  await addPasskey(account, authenticator);
  await idp.server.stop();
  const ruled = await idpApp(t, {
    ...ENABLED,
    ...{ factorEncryptionKey: FACTOR_KEY, secondFactor: 'required', secondFactorGraceDays: 0 },
    ...{ databaseUri: idp.databaseUri, clock: idp.clock },
  });
  await ruled.listen();
  const moved = authenticator.at(ruled.server.fastify.idp.issuer());
  t.match((await signIn(ruled, moved)).end.location, /code=/);
  const { browser: other, page: form } = await ruled.visit(await ruled.createClient());
  const asked = await other.submit(form, { handle: human.handle, password: human.password });
  t.match(asked, { status: 200, body: /authenticator app/ });
});

t.test('one signature is accepted once, and only in the browser that got its form', async (t) => {
  const { idp, authenticator } = await withPasskey(t);
  const { page, submit, client } = await signIn(idp, authenticator);
  const credential = authenticator.get(optionsIn(page.body));
  const again = await submit(page, credential);
  t.equal(again.status, 401);
  t.match(again.body, /role="alert"[\s\S]*The passkey was not accepted/);
  t.not(optionsIn(again.body), optionsIn(page.body), 'the form has another challenge');
  t.match((await submit(again)).location, /code=/);

  const { page: theirs } = await idp.visit(client);
  const stolen = authenticator.get(optionsIn(theirs.body));
  const { interaction = '' } = theirs.form('/authorize/passkey').fields;
  const form = { interaction, credential: stolen };
  const foreign = await idp.request('POST', '/authorize/passkey', { form });
  t.match(foreign, { status: 403, body: { error: 'login_rejected' } });
  const { browser: other, page: own } = await idp.visit(client);
  const fixed = await other.submit(own, { credential: stolen }, '/authorize/passkey');
  t.equal(fixed.status, 401, 'the challenge of another form');
});

t.test('a form for a passkey expires, and another site cannot submit it', async (t) => {
  const { idp, authenticator } = await withPasskey(t);
  const client = await idp.createClient();
  const { browser, page } = await idp.visit(client);
  const credential = authenticator.get(optionsIn(page.body));
  const { interaction = '' } = page.form('/authorize/passkey').fields;
  const crossSite = await idp.request('POST', '/authorize/passkey', {
    form: { interaction, credential },
    headers: { cookie: browser.cookieHeader(), 'sec-fetch-site': 'cross-site' },
  });
  t.equal(crossSite.status, 403);
  idp.clock.advance(15 * MINUTE);
  t.equal((await browser.submit(page, { credential }, '/authorize/passkey')).status, 403);
});

t.test('a disabled person is refused like an unknown passkey, until the account is enabled', async (t) => {
  const { idp, human, authenticator } = await withPasskey(t);
  await idp.admin('POST', `/v1/principals/${human.sub}/disable`);
  const refused = await signIn(idp, authenticator);
  const unknown = await signIn(idp, new SoftwareAuthenticator(authenticator.origin));
  for (const { end } of [refused, unknown]) {
    t.equal(end.status, 401);
    t.match(end.body, sentence('sign-in.passkey-wrong'));
  }
  await idp.admin('POST', `/v1/principals/${human.sub}/enable`);
  t.match((await signIn(idp, authenticator)).end.location, /code=/);
});

t.test('an application that expects another person receives an error, and no session starts', async (t) => {
  const { idp, authenticator } = await withPasskey(t);
  const [client, other] = [await idp.createClient(), await idp.makeHuman()];
  const tokens = await idp.redeem(client, await idp.codeFor(client, other));
  const { browser, page } = await idp.visit(client, { id_token_hint: tokens.body.id_token });
  const credential = authenticator.get(optionsIn(page.body));
  const end = await browser.submit(page, { credential }, '/authorize/passkey');
  t.match(end.location, /error=login_required/);
  const names = Object.keys(browser.cookies());
  t.same(
    names.filter((name) => name.endsWith('session')),
    [],
  );
});

t.test('failures are limited by address, and a right passkey is always accepted', async (t) => {
  const { idp, authenticator } = await withPasskey(t, { limits: true });
  const stranger = new SoftwareAuthenticator(authenticator.origin);
  let { submit, end } = await signIn(idp, stranger);
  for (let count = 1; count < 10; count++) end = await submit(end);
  t.equal(end.status, 401);
  const throttled = await submit(end);
  t.equal(throttled.status, 429);
  t.match(throttled.body, /role="alert"[\s\S]*<form/);
  t.match((await signIn(idp, authenticator)).end.location, /code=/);
  idp.clock.advance(MINUTE);
  submit = (await signIn(idp, stranger)).submit;
  t.equal((await submit(throttled)).status, 403, 'the form of another browser');
});

t.test('passkeys have names, are listed, and a removed one no longer signs in', async (t) => {
  const { idp, authenticator, add, browser, get } = await withPasskey(t);
  const phone = new SoftwareAuthenticator(authenticator.origin);
  t.match((await add(phone, { name: 'Phone <1>' })).body, 'Phone &lt;1&gt;');
  t.match((await add(new SoftwareAuthenticator(authenticator.origin), { name: '' })).body, /role="alert"/);
  const fields = { id: phone.name, name: 'Work phone' };
  const renamed = await browser.submit(await get('/passkeys'), fields, '/rename');
  t.match(renamed.body, /The name of the passkey has been saved[\s\S]*<strong>Work phone<\/strong>/);
  const blank = await browser.submit(await get('/passkeys'), { ...fields, name: '\u2800' }, '/rename');
  t.match(blank, { status: 422, body: /role="alert"[\s\S]*Use 1 to 200 characters/ });
  t.match((await signIn(idp, phone)).end.location, /code=/);

  const removed = await browser.submit(await get('/passkeys'), { id: phone.name }, '/remove');
  t.match(removed.body, sentence('account.done.passkey-removed'));
  t.notMatch(removed.body, 'Work phone');
  t.equal((await signIn(idp, phone)).end.status, 401);
  t.match((await signIn(idp, authenticator)).end.location, /code=/);
});

t.test('the browser learns which passkeys the account has, and for whom a new one is', async (t) => {
  const { human, authenticator, added } = await withPasskey(t);
  t.match(JSON.parse(optionsIn(added.body)), {
    user: { id: Buffer.from(human.sub).toString('base64url'), name: human.handle },
    excludeCredentials: [{ id: authenticator.name, transports: ['internal'] }],
    authenticatorSelection: { residentKey: 'required', userVerification: 'required' },
    attestation: 'none',
  });
});

t.test('a passkey is added in a recent session of its own browser only', async (t) => {
  const { idp, authenticator, get, browser } = await withPasskey(t);
  const page = await get('/passkeys');
  const other = new SoftwareAuthenticator(authenticator.origin);
  const credential = other.create(optionsIn(page.body));
  const theirs = await enterAccount(idp, await idp.makeHuman());
  const foreign = await theirs.browser.submit(await theirs.get('/passkeys'), { credential }, '/add');
  t.equal(foreign.status, 422);
  const { form = '' } = page.form('/add').fields;
  const bare = await idp.request('POST', '/account/passkeys/add', { form: { form, credential, name: 'x' } });
  t.equal(bare.status, 401);
  idp.clock.advance(15 * MINUTE);
  const late = await browser.submit(page, { credential }, '/add');
  t.match(late, { status: 401, body: sentence('sign-in.passkey') });
  t.equal((await signIn(idp, other)).end.status, 401);
});

t.test('a deleted account leaves no passkey behind, deleted by its user or an operator', async (t) => {
  const { idp, human, browser, get, authenticator, origin } = await withPasskey(t);
  const passkeys = passkeyCollection(await idpStore(t, idp));
  t.equal(await passkeys.count(), 1);
  await browser.submit(await get('/delete'), { confirm: human.handle, password: PASSWORD });
  t.equal(await passkeys.count(), 0);
  t.equal((await signIn(idp, authenticator)).end.status, 401);

  const other = await idp.makeHuman();
  await addPasskey(await enterAccount(idp, other), new SoftwareAuthenticator(authenticator.origin));
  t.equal(await passkeys.count(), 1);
  const operator = await makeOperator(t, idp);
  const { browser: admin } = await enterAccount(idp, operator);
  const action = await admin.open(`${origin}/admin/principals/${other.sub}/delete`);
  t.equal((await admin.submit(action, { confirm: other.handle })).status, 200);
  t.equal(await passkeys.count(), 0);
});

t.test('without the option, a deleted account leaves no passkey behind either', async (t) => {
  const { idp, human } = await withPasskey(t);
  await idp.server.stop();
  const off = await idpApp(t, { ...HERE, folder: dirname(idp.file) });
  const { browser, get } = await enterAccount(off, human);
  t.equal(await passkeyCollection(await idpStore(t, off)).count(), 1);
  await browser.submit(await get('/delete'), { confirm: human.handle, password: PASSWORD });
  t.equal(await passkeyCollection(await idpStore(t, off)).count(), 0);
});

t.test('the person gets a mail when a passkey was added or removed, also by a command', async (t) => {
  const { idp, human, authenticator, browser, get, add } = await withPasskey(t, {
    emailSmtpUrl: 'smtp://127.0.0.1:9',
    handle: 'ada@example.test',
  });
  const mails = mailCollection(await idpStore(t, idp));
  const sent = async () => {
    const { items } = await mails.page({ where: { userId: human.sub }, sort: 'id', limit: 100 });
    return items.filter((mail) => mail.template.startsWith('passkey-'));
  };
  t.match(await sent(), [{ to: 'ada@example.test', template: 'passkey-added' }]);
  await browser.submit(await get('/passkeys'), { id: authenticator.name }, '/remove');
  t.same((await sent()).map(({ template }) => template).sort(), ['passkey-added', 'passkey-removed']);
  await add(new SoftwareAuthenticator(authenticator.origin));
  const env = { IDP_DATABASE_URI: idp.databaseUri, IDP_EMAIL_SMTP_URL: 'smtp://127.0.0.1:9' };
  const { type } = commandLine(t, env);
  t.equal((await type(['principal', 'remove-passkeys', human.handle])).code, 0);
  t.equal((await sent()).filter((mail) => mail.template === 'passkey-removed').length, 2);
});

t.test('used challenges are deleted when their forms have expired', async (t) => {
  const { idp, authenticator } = await withPasskey(t);
  await signIn(idp, authenticator);
  const used = usedChallengeCollection(await idpStore(t, idp));
  t.equal(await used.count(), 2);
  for (const { expiresAt } of (await used.page({ sort: 'expiresAt', limit: 10 })).items) {
    t.ok(expiresAt > idp.clock.now() + 15 * MINUTE);
  }
  await signIn(idp, new SoftwareAuthenticator('http://elsewhere.test'));
  t.equal(await used.count(), 2, 'without a sign-in, none is stored');
});

t.test('without the option, no page, script and route mentions passkeys', async (t) => {
  const idp = await idpApp(t, HERE);
  const client = await idp.createClient();
  const { page } = await idp.visit(client);
  t.notMatch(page.body, /passkey|webauthn|<script/i);
  t.notMatch(page.headers.get('content-security-policy'), 'script-src');
  const account = await enterAccount(idp, await idp.makeHuman());
  t.notMatch(account.page.body, /passkey/i);
  for (const path of ['/account/passkeys/add', '/authorize/passkey']) {
    t.equal((await idp.request('POST', path, { form: { form: 'x' } })).status, 404);
  }
  t.equal((await account.get('/passkeys')).status, 404);
});
