import { dirname } from 'node:path';
import t, { type Test } from 'tap';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { factorCollection } from '../../../src/shared/factors/store.js';
import { mailedIdp } from '../../idp/provisioning/kit.js';
import { decodeEntities, type Page } from '../../kit/agent.js';
import { auditOf, basic, PASSWORD } from '../../kit/app.js';
import { codeAt, FACTOR_KEY } from '../../kit/factors.js';
import {
  authorizePath,
  claimsOf,
  codeIn,
  type IdpApp,
  type IdpAppOptions,
  idpApp,
  idpStore,
} from '../../kit/idp.js';
import { makeOperator } from '../../kit/operator.js';
import { sentence } from '../../kit/sentences.js';
import { VERIFY } from '../../saas/auth/kit.js';
import { addFactor, enterAccount, HERE, secretIn } from './kit.js';

/** A second factor: codes of an authenticator app, which the tests compute as an app does. */

const SECOND = 1000;
const MINUTE = 60 * SECOND;

const ENABLED = { ...HERE, factorEncryptionKey: FACTOR_KEY } satisfies IdpAppOptions;

/** No server listens there, so that the mails stay in the store. */
const MAIL = { emailSmtpUrl: 'smtp://127.0.0.1:9' };

/** The mails that were enqueued, the oldest first. */
async function mailsOf(t: Test, idp: IdpApp): Promise<string[]> {
  const { items } = await mailCollection(await idpStore(t, idp)).page({ sort: 'id', limit: 100 });
  return items.map(({ template }) => template);
}

/** Where the button of the recovery codes leads. */
const hrefIn = (html: string): string =>
  decodeEntities(/<a class="button" href="([^"]+)"/.exec(html)?.[1] ?? '');

const recoveryCodesIn = ({ body }: Page): string[] =>
  [...body.matchAll(/<li><code>([a-z2-7-]+)<\/code>/g)].map(([, code = '']) => code);

/** A person with a second factor, in the browser in which it was set up. */
async function enrolled(t: Test, options: IdpAppOptions = {}) {
  const idp = await idpApp(t, { ...ENABLED, ...options });
  const human = await idp.makeHuman();
  const entered = await enterAccount(idp, human);
  const { secret, shown } = await addFactor(entered, idp);
  const codes = recoveryCodesIn(shown);
  t.equal(codes.length, 10);
  const code = () => codeAt(secret, idp.clock.now());
  return { idp, human, secret, codes, code, ...entered };
}

/** Signs in to an application as far as the page after the password. */
async function afterPassword(idp: IdpApp, who: { handle: string; password: string }, more = {}) {
  const client = await idp.createClient();
  const { browser, page } = await idp.visit(client, more);
  const asked = await browser.submit(page, { handle: who.handle, password: who.password });
  return { client, browser, asked };
}

t.test('a person sets up an authenticator app, and sign-in asks for its code', async (t) => {
  const { idp, human, code, get } = await enrolled(t);
  t.match((await get()).body, 'Sign-in asks for a code of your authenticator app.');

  idp.clock.advance(MINUTE);
  const { client, browser, asked } = await afterPassword(idp, human, { state: 'kept' });
  t.equal(asked.status, 200);
  t.match(asked.body, sentence('second-factor.title'));
  t.same(
    Object.keys(browser.cookies()).filter((name) => name.endsWith('session')),
    [],
    'no session yet',
  );
  const wrong = await browser.submit(asked, { code: '000000' });
  t.equal(wrong.status, 401);
  t.match(wrong.body, /role="alert"[\s\S]*The code is incorrect/);
  const end = await browser.submit(wrong, { code: code() });
  t.match(end.location, /state=kept/);
  const { body } = await idp.redeem(client, codeIn(end.location));
  t.match(claimsOf(body.id_token), { sub: human.sub, amr: ['pwd', 'otp', 'mfa'] });
});

t.test('a code works once, also for the page on which it was confirmed', async (t) => {
  const { idp, human, code, secret } = await enrolled(t);
  const first = await afterPassword(idp, human);
  t.equal((await first.browser.submit(first.asked, { code: code() })).status, 401, 'used at the enrolment');
  const next = codeAt(secret, idp.clock.now() + 30 * SECOND);
  t.match(
    (await first.browser.submit(first.asked, { code: next })).location,
    /code=/,
    'the clock of the phone is ahead',
  );
  const second = await afterPassword(idp, human);
  t.equal((await second.browser.submit(second.asked, { code: next })).status, 401);
  idp.clock.advance(2 * MINUTE);
  t.equal((await second.browser.submit(second.asked, { code: next })).status, 401, 'it has expired');
  const spaced = code().replace(/^.../, '$& ');
  t.match((await second.browser.submit(second.asked, { code: spaced })).location, /code=/);
});

t.test('a recovery code replaces the app once, however it is typed', async (t) => {
  const { idp, human, codes, get } = await enrolled(t);
  const [one = '', two = ''] = codes;
  const first = await afterPassword(idp, human);
  const typed = ` ${one.toUpperCase().replaceAll('-', ' ')} `;
  t.match((await first.browser.submit(first.asked, { code: typed })).location, /code=/);
  const second = await afterPassword(idp, human);
  t.equal((await second.browser.submit(second.asked, { code: one })).status, 401);
  t.match((await second.browser.submit(second.asked, { code: two })).location, /code=/);
  t.match((await get('/second-factor')).body, 'Recovery codes left: 8.');
  const events = (await auditOf(await idpStore(t, idp))).map(({ event }) => event);
  t.equal(events.filter((event) => event === 'factor.recovery-code-used').length, 2);
});

t.test('new recovery codes and the removal require a code', async (t) => {
  const { idp, human, codes, code, browser, get } = await enrolled(t);
  const [old = '', other = ''] = codes;
  idp.clock.advance(MINUTE);
  t.equal(
    (await browser.submit(await get('/second-factor'), { code: '123456' }, '/recovery-codes')).status,
    401,
  );
  const form = await get('/second-factor');
  const renewed = await browser.submit(form, { code: code() }, '/recovery-codes');
  const fresh = recoveryCodesIn(renewed);
  t.equal(fresh.length, 10);
  t.notOk(fresh.some((one) => codes.includes(one)));
  const { browser: elsewhere, asked } = await afterPassword(idp, human);
  t.equal((await elsewhere.submit(asked, { code: old })).status, 401);

  idp.clock.advance(MINUTE);
  const removal = { password: PASSWORD, code: code() };
  t.equal(
    (await browser.submit(await get('/second-factor'), { ...removal, password: 'x' }, '/remove')).status,
    401,
  );
  t.equal(
    (await browser.submit(await get('/second-factor'), { ...removal, code: other }, '/remove')).status,
    401,
  );
  const done = await browser.submit(await get('/second-factor'), removal, '/remove');
  t.match(done.body, sentence('account.done.factor-removed'));
  const { asked: end } = await afterPassword(idp, human);
  t.match(end.location, /code=/);
});

t.test(
  'a second factor is set up once the address is confirmed, so that its owner can take the account over',
  async (t) => {
    const idp = await mailedIdp(t, ENABLED);
    const human = await idp.makeHuman();
    const { browser, get } = await enterAccount(idp, human);
    const asked = await get('/second-factor');
    t.match(asked.body, 'Confirm your e-mail address first');
    t.notMatch(asked.body, '<form');
    const { form = '' } = (await get()).form('/name').fields;
    const cookie = `idp-session=${browser.cookies()['idp-session']}`;
    for (const [action, fields] of [
      ['begin', { form }],
      ['confirm', { form, code: '000000' }],
    ] as const) {
      const answer = await idp.request('POST', `/account/second-factor/${action}`, {
        form: fields,
        headers: { cookie },
      });
      t.match(answer, { status: 303, headers: { location: '/account/second-factor' } });
    }
    t.equal(await factorCollection(await idpStore(t, idp)).count(), 0);

    await idp.request('POST', await idp.linkIn(VERIFY), { form: { password: PASSWORD } });
    const begun = await browser.submit(await get('/second-factor'), {}, '/begin');
    t.match(secretIn(begun.body), /^[A-Z2-7]{16,}$/);
  },
);

t.test('a form submitted twice shows the same recovery codes', async (t) => {
  const idp = await idpApp(t, ENABLED);
  const { browser, get } = await enterAccount(idp, await idp.makeHuman());
  const begun = await browser.submit(await get('/second-factor'), {}, '/begin');
  const fields = { code: codeAt(secretIn(begun.body), idp.clock.now()) };
  const [one, other] = [
    await browser.submit(begun, fields, '/confirm'),
    await browser.submit(begun, fields, '/confirm'),
  ];
  t.same(recoveryCodesIn(one), recoveryCodesIn(other));
  t.equal(recoveryCodesIn(one).length, 10);
});

t.test('the second step belongs to the browser and the password before it', async (t) => {
  const { idp, human, code } = await enrolled(t);
  idp.clock.advance(MINUTE);
  const { asked, client } = await afterPassword(idp, human);
  const { interaction = '' } = asked.form().fields;
  const foreign = await idp.request('POST', '/authorize/second-factor', {
    form: { interaction, code: code() },
  });
  t.match(foreign, { status: 403, body: { error: 'login_rejected' } });

  // The form for the password proves nothing.
  const { browser, page } = await idp.visit(client);
  const skipped = page.form().fields['interaction'] ?? '';
  const answer = await idp.request('POST', '/authorize/second-factor', {
    form: { interaction: skipped, code: code() },
    headers: { cookie: browser.cookieHeader('/authorize') },
  });
  t.match(answer, { status: 403, body: { error: 'login_rejected' } });

  const late = await afterPassword(idp, human);
  idp.clock.advance(16 * MINUTE);
  const again = await late.browser.submit(late.asked, { code: code() });
  t.match([again.status, again.form().action], [403, /login$/], 'the password is asked for again');
  t.match(again.body, sentence('sign-in.expired'));
});

t.test('a new password or a disabled account ends a sign-in that waits for its code', async (t) => {
  const { idp, human, code, browser: own, get } = await enrolled(t);
  idp.clock.advance(MINUTE);
  const { browser, asked } = await afterPassword(idp, human);
  const changed = { current_password: PASSWORD, password: `${PASSWORD}!`, password_confirm: `${PASSWORD}!` };
  t.equal((await own.submit(await get('/password'), changed)).status, 200);
  t.equal((await browser.submit(asked, { code: code() })).status, 403);

  const again = await afterPassword(idp, { ...human, password: `${PASSWORD}!` });
  t.equal(again.asked.status, 200);
  await idp.admin('POST', `/v1/principals/${human.sub}/disable`);
  idp.clock.advance(MINUTE);
  t.equal((await again.browser.submit(again.asked, { code: code() })).status, 403);
});

t.test('HTTP Basic does not bypass the second factor, and agents have none', async (t) => {
  const { idp, human } = await enrolled(t);
  const client = await idp.createClient();
  const other = await idp.makeHuman();
  t.equal((await idp.authorize(client, other)).status, 302);
  const refused = await idp.request('GET', authorizePath(client), {
    headers: { authorization: basic(human.handle, human.password) },
  });
  t.match(refused, { status: 401, body: { error: 'invalid_credentials' } });
  const agent = await idp.mintAgent();
  t.equal((await idp.authorize(client, agent)).status, 302);
});

t.test('an application asks for the second factor by acr_values', async (t) => {
  const idp = await idpApp(t, ENABLED);
  const [client, human] = [await idp.createClient(), await idp.makeHuman()];
  const account = await enterAccount(idp, human);
  const { browser, origin } = account;
  const scope = { scope: 'openid', acr_values: 'mfa' };
  const without = await browser.open(origin + authorizePath(client, scope));
  const allowed = await browser.submit(without, { decision: 'allow' });
  t.match(claimsOf((await idp.redeem(client, codeIn(allowed.location))).body.id_token), {
    acr: '0',
    amr: ['pwd'],
  });

  const { secret } = await addFactor(account, idp);
  const silent = await browser.open(origin + authorizePath(client, { ...scope, prompt: 'none' }));
  t.match(silent.location, /error=login_required/);
  idp.clock.advance(MINUTE);
  const form = await browser.open(origin + authorizePath(client, scope));
  const asked = await browser.submit(form, { handle: human.handle, password: human.password });
  const end = await browser.submit(asked, { code: codeAt(secret, idp.clock.now()) });
  t.match(claimsOf((await idp.redeem(client, codeIn(end.location))).body.id_token), {
    acr: 'mfa',
    amr: ['pwd', 'otp', 'mfa'],
  });
  const again = await browser.open(origin + authorizePath(client, scope));
  t.match(again.location, /code=/, 'the session has it');
});

t.test('guesses at codes are limited, and the form stays', async (t) => {
  const { idp, human, code } = await enrolled(t, { limits: true });
  idp.clock.advance(MINUTE);
  const { browser, asked } = await afterPassword(idp, human);
  for (let count = 0; count < 10; count++)
    t.equal((await browser.submit(asked, { code: '000000' })).status, 401);
  const throttled = await browser.submit(asked, { code: code() });
  t.equal(throttled.status, 429);
  t.match(throttled.body, /role="alert"[\s\S]*<form/);
  idp.clock.advance(MINUTE);
  t.match((await browser.submit(throttled, { code: code() })).location, /code=/);
});

t.test('the secret is encrypted in the store, and a key rotation keeps it readable', async (t) => {
  const { idp, human, secret } = await enrolled(t);
  const stored = await factorCollection(await idpStore(t, idp)).findOne({ id: human.sub });
  t.notMatch(JSON.stringify(stored), secret);
  const next = 'Zx8cV4bN1mQ7wE3rT9yU5iO2pA6sD0fG';
  const later = await idpApp(t, {
    ...HERE,
    databaseUri: idp.databaseUri,
    clock: idp.clock,
    factorEncryptionKey: next,
    factorEncryptionKeyPrevious: FACTOR_KEY,
  });
  idp.clock.advance(MINUTE);
  const { browser, asked } = await afterPassword(later, human);
  t.match((await browser.submit(asked, { code: codeAt(secret, idp.clock.now()) })).location, /code=/);
});

t.test('the metadata lists the class with a second factor only where there is one', async (t) => {
  const metadata = (idp: IdpApp) => idp.request('GET', '/.well-known/openid-configuration');
  t.strictSame((await metadata(await idpApp(t))).body.acr_values_supported, ['0']);
  for (const options of [ENABLED, { passkeys: true }])
    t.strictSame((await metadata(await idpApp(t, options))).body.acr_values_supported, ['0', 'mfa']);
});

t.test('without an encryption key, no page and no route mentions a second factor', async (t) => {
  const idp = await idpApp(t, HERE);
  const { page } = await enterAccount(idp, await idp.makeHuman());
  t.notMatch(page.body, /factor|authenticator/i);
  for (const path of ['/account/second-factor', '/authorize/second-factor']) {
    t.equal((await idp.request('POST', path, { form: { form: 'x' } })).status, 404);
  }
});

t.test('a deleted account leaves no factor behind', async (t) => {
  const { idp, human, browser, get } = await enrolled(t);
  const done = await browser.submit(await get('/delete'), { confirm: human.handle, password: PASSWORD });
  t.equal(done.status, 200);
  t.equal(await factorCollection(await idpStore(t, idp)).count(), 0);
});

t.test('a rule requires a second factor of everybody, after a period of grace', async (t) => {
  const idp = await idpApp(t, { ...ENABLED, secondFactor: 'required', secondFactorGraceDays: 2 });
  const human = await idp.makeHuman();
  const agent = await idp.mintAgent();
  const { page } = await enterAccount(idp, human);
  t.match(
    page.body,
    /Sign-in requires it from <time|Sign-in requires it from \w/,
    'the account page says when',
  );
  idp.clock.advance(2 * 24 * 60 * MINUTE - 1);
  const client = await idp.createClient();
  t.equal((await idp.authorize(client, human)).status, 302);

  idp.clock.advance(1);
  const { browser, asked } = await afterPassword(idp, human, { state: 'kept', prompt: 'login' });
  t.match(asked.body, sentence('second-factor-enrolment.title'));
  t.notOk(
    Object.keys(browser.cookies()).some((name) => name.endsWith('session')),
    'no session yet',
  );
  t.equal((await idp.authorize(client, human)).status, 401, 'HTTP Basic cannot set one up');
  t.equal((await idp.authorize(client, agent)).status, 302, 'agents are no people');
  const other = await afterPassword(idp, human);
  const secret = secretIn(other.asked.body);
  const wrong = await browser.submit(asked, { code: '000000' });
  t.equal(wrong.status, 401);
  t.match(wrong.body, /role="alert"[\s\S]*The code is incorrect/);
  t.equal(secretIn(wrong.body), secret, 'the app that was scanned last');
  const shown = await browser.submit(wrong, { code: codeAt(secret, idp.clock.now()) });
  t.equal(recoveryCodesIn(shown).length, 10);
  const end = await browser.open(new URL(hrefIn(shown.body), shown.url).href);
  t.match(end.location, /state=kept/, 'the application gets its response');
  t.match(end.location, /code=/);

  idp.clock.advance(MINUTE);
  const next = await afterPassword(idp, human);
  t.match(next.asked.body, sentence('second-factor.title'));
  const late = await other.browser.submit(other.asked, { code: codeAt(secret, idp.clock.now()) });
  t.equal(late.status, 409, 'the form cannot replace the factor');
});

t.test('a rule for operators applies to them only', async (t) => {
  const idp = await idpApp(t, { ...ENABLED, secondFactor: 'operators', secondFactorGraceDays: 0 });
  const [human, operator] = [await idp.makeHuman(), await makeOperator(t, idp)];
  t.match((await enterAccount(idp, human)).page.body, sentence('account.sessions'));
  const { browser, page } = await enterAccount(idp, operator);
  t.match(page.body, sentence('second-factor-enrolment.title'));
  const code = codeAt(secretIn(page.body), idp.clock.now());
  const shown = await browser.submit(page, { code });
  const account = await browser.open(new URL(hrefIn(shown.body), shown.url).href);
  t.match(account.body, 'Sign-in asks for a code of your authenticator app.');
});

t.test('a required factor is set up after the address is confirmed', async (t) => {
  const options = { ...MAIL, secondFactor: 'required', secondFactorGraceDays: 0 } as const;
  const idp = await idpApp(t, { ...ENABLED, ...options });
  const human = await idp.makeHuman({ handle: 'ada@example.test' });
  const { page } = await enterAccount(idp, human);
  t.equal(page.status, 403);
  t.match(page.body, 'A link was sent to ada@example.test.');
  t.equal(secretIn(page.body), '');
  t.same(await mailsOf(t, idp), ['verify-email', 'verify-email'], 'after the sign-up, and now');
  for (let times = 0; times < 5; times++) {
    t.equal((await enterAccount(idp, human)).page.status, 403, 'more sign-ins than mails are allowed');
  }
});

t.test('a person whose invitation has verified the address sets the factor up at once', async (t) => {
  const options = { ...MAIL, secondFactor: 'required', secondFactorGraceDays: 0 } as const;
  const idp = await idpApp(t, { ...ENABLED, ...options, trustedEmailDomains: ['example.test'] });
  const ada = { handle: 'ada@example.test', password: PASSWORD };
  const { body } = await idp.admin('POST', '/v1/invites', { handle: ada.handle, send: true });
  await idp.request('POST', new URL(body.invite_url).pathname, { body: { password: PASSWORD } });
  const { client, browser, asked } = await afterPassword(idp, ada, { scope: 'openid email' });
  t.match(asked.body, sentence('second-factor-enrolment.title'));
  const shown = await browser.submit(asked, { code: codeAt(secretIn(asked.body), idp.clock.now()) });
  const { location } = await browser.open(new URL(hrefIn(shown.body), shown.url).href);
  t.match(claimsOf((await idp.redeem(client, codeIn(location))).body.id_token), { email_verified: true });
  const account = await browser.open(`${await idp.listen()}/account`);
  t.notMatch(account.body, sentence('account.unconfirmed'));
  t.same((await mailsOf(t, idp)).toSorted(), ['invitation', 'second-factor-added']);
});

t.test('the person gets a mail about each change, also when a command makes it', async (t) => {
  const idp = await idpApp(t, { ...ENABLED, ...MAIL });
  const human = await idp.makeHuman({ handle: 'ada@example.test' });
  const principals = principalCollection(await idpStore(t, idp));
  await principals.updateOne({ id: human.sub }, { set: { emailVerifiedAt: 1 } });
  const account = await enterAccount(idp, human);
  const { browser, get } = account;
  // Later than the mail of the sign-up.
  idp.clock.advance(MINUTE);
  const { secret } = await addFactor(account, idp);
  t.same((await mailsOf(t, idp)).slice(-1), ['second-factor-added']);
  idp.clock.advance(MINUTE);
  const removal = { password: PASSWORD, code: codeAt(secret, idp.clock.now()) };
  await browser.submit(await get('/second-factor'), removal, '/remove');
  t.same((await mailsOf(t, idp)).slice(-1), ['second-factor-removed']);
});

t.test('without the key, no server starts that would ignore the second factors', async (t) => {
  const { idp } = await enrolled(t);
  await idp.server.stop();
  await t.rejects(
    idpApp(t, { ...HERE, folder: dirname(idp.file) }),
    /IDP_FACTOR_ENCRYPTION_KEY is not set, but accounts have a second factor/,
  );
  await t.rejects(idpApp(t, { secondFactor: 'operators' }), /requires IDP_FACTOR_ENCRYPTION_KEY/);
});
