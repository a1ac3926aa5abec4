import t, { type Test } from 'tap';
import { collectionNames } from '../../../src/core/storage/inspect.js';
import { openStore } from '../../../src/core/storage/open.js';
import { createRecovery } from '../../../src/idp/provisioning/recovery.js';
import { type PrincipalCollection, principalCollection } from '../../../src/idp/provisioning/store.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { factorCollection } from '../../../src/shared/factors/store.js';
import { PASSWORD } from '../../kit/app.js';
import { FACTOR_KEY } from '../../kit/factors.js';
import { comparable, type IdpApp, idpApp, idpStore } from '../../kit/idp.js';
import { enterConsole, makeOperator } from '../../kit/operator.js';
import { sentence } from '../../kit/sentences.js';
import { CHANGED, RESET, VERIFY } from '../../saas/auth/kit.js';
import { linkOf, mailedIdp, printReset } from './kit.js';

/** Forgotten passwords: a link to the mailbox that the user name is, and the same answer for every user name. */

const CHOSEN = 'a new password of mine';
const SENT = { status: 303, headers: { location: '/account/forgot-password/sent' } };

t.test('a person who forgot the password chooses a new one by a mailed link, once', async (t) => {
  const idp = await mailedIdp(t);
  const client = await idp.createClient();
  const ada = await idp.makeHuman({ handle: 'Ada@Example.test' });
  const code = await idp.codeFor(client, ada, { scope: 'openid offline_access' });
  const tokens = (await idp.redeem(client, code)).body;
  t.match(await idp.forget('ADA@example.test'), SENT);
  const mail = await idp.mail(RESET);
  t.same(mail.to, ['ada@example.test']);
  const path = linkOf(mail.text);
  t.match(path, /^\/invite\/[\w-]{75}$/);
  for (const method of ['GET', 'HEAD', 'GET']) t.equal((await idp.request(method, path)).status, 200, method);
  t.equal((await idp.authorize(client, ada)).status, 302, 'the old password works until the link is used');
  const used = await idp.request('POST', path, {
    form: { password: CHOSEN, password_confirm: CHOSEN },
    headers: { 'user-agent': 'Mozilla/5.0 Firefox/140.0' },
  });
  t.match(used, { status: 303, headers: { location: '/invite/done' } });
  t.equal((await idp.authorize(client, ada)).status, 401, 'the old password has ended');
  t.equal((await idp.authorize(client, { ...ada, password: CHOSEN })).status, 302);
  t.equal((await idp.refresh(client, tokens.refresh_token)).status, 400, 'refresh tokens have ended');
  t.equal((await idp.userinfo(tokens.access_token)).status, 401);
  for (const call of [undefined, { form: { password: PASSWORD } }]) {
    const again = await idp.request(call ? 'POST' : 'GET', path, call);
    t.equal(again.status, 410);
    t.match(again.text, 'account&#x2F;forgot-password', 'with a way to a new link');
  }
  const changed = await idp.mail(CHANGED);
  t.same(changed.to, ['ada@example.test']);
  for (const origin of [
    / UTC$/m,
    sentence('mail.origin.when'),
    sentence('mail.origin.address', { ipAddress: '127.0.0.1' }),
    sentence('mail.origin.browser', { browser: 'Firefox' }),
  ])
    t.match(changed.text, origin);
});

t.test('every user name gets the same answer, and only an active person gets a mail', async (t) => {
  const idp = await mailedIdp(t, { limits: false });
  const ada = await idp.makeHuman({ handle: 'ada@example.test' });
  const named = await idp.makeHuman({ handle: 'ada' });
  const agent = await idp.mintAgent({ handle: 'agent@example.test' });
  const chosen = { handle: 'chosen@example.test', password: PASSWORD };
  await idp.request('POST', '/v1/accounts', { body: chosen });
  const disabled = await idp.makeHuman({ handle: 'disabled@example.test' });
  await idp.admin('POST', `/v1/principals/${disabled.sub}/disable`);
  const deleted = await idp.mintAgent({ handle: 'deleted@example.test' });
  await idp.admin('DELETE', `/v1/agents/${deleted.sub}`);
  await idp.admin('POST', '/v1/invites', { handle: 'invited@example.test' });
  const others = [named, agent, chosen, disabled, deleted].map(({ handle }) => handle);
  const strange = [
    'invited@example.test',
    'nobody@example.test',
    '',
    ':',
    'cid_x@example.test',
    'x'.repeat(1024),
  ];
  const first = comparable(await idp.forget(ada.handle));
  t.match(first, SENT);
  for (const handle of [...others, ...strange, '\u0000', '\u202e@example.test']) {
    t.same(comparable(await idp.forget(handle)), first, handle);
  }
  t.same(
    comparable(await idp.request('POST', '/account/forgot-password', { body: { handle: '\ud800' } })),
    first,
  );
  t.same((await idp.mail(RESET)).to, [ada.handle]);
  await idp.server.stop();
  t.same(await templatesIn(t, idp), ['password-reset', 'verify-email', 'verify-email']);
});

/** The names of all mails in the store, sorted. */
async function templatesIn(t: Test, idp: IdpApp): Promise<string[]> {
  const store = await openStore(idp.databaseUri);
  t.teardown(() => store.close());
  const { items } = await mailCollection(store).page({ sort: 'id', limit: 100 });
  return items.map(({ template }) => template).sort();
}

t.test('a request for a link does the same work for every user name before its response', async (t) => {
  const idp = await idpApp(t);
  const { handle } = await idp.makeHuman();
  const calls: string[] = [];
  const recorded = (name: string, result?: unknown) => async () => {
    calls.push(name);
    return result;
  };
  const principals = { findOne: recorded('find', null) } as unknown as PrincipalCollection;
  const tasks: (() => Promise<unknown>)[] = [];
  const { forgotPassword } = createRecovery(principals, {
    commit: recorded('commit') as never,
    mails: {
      passwordReset: () => ({ stored: { mailedLinkHash: '', mailedLinkExpiresAt: 0 }, mail: undefined }),
    },
    throttle: { count: recorded('count') as never, tryCountKey: recorded('count key', true) as never },
    addresses: { accountOf: async (name) => name },
    backgroundTasks: { run: (_what, work) => void tasks.push(work) },
    audit: { recordFailure: recorded('audit') as never },
  });
  for (const one of [handle, 'nobody@example.test', 'nobody']) {
    calls.length = 0;
    await forgotPassword(one, { ip: '192.0.2.1', isDisconnected: () => false });
    t.same(calls, ['count'], 'the account is looked up after the response');
  }
  for (const task of tasks) await task();
  t.match(calls, ['count', 'count key', 'find', 'audit']);
});

t.test('requests are limited by address block and by account, which the answer does not show', async (t) => {
  const idp = await mailedIdp(t, { limits: true });
  const { handle } = await idp.makeHuman({ handle: 'ada@example.test' });
  const paths = [];
  for (let count = 1; count <= 5; count++) {
    t.match(await idp.forget(handle, { from: `192.0.2.${count}` }), SENT);
    if (count <= 3) paths.push(await idp.linkIn(RESET));
  }
  for (let count = 1; count < 10; count++)
    t.match(await idp.forget(`no${count}@a.test`, { from: '192.0.2.1' }), SENT);
  const refused = await idp.forget('last@a.test', {
    from: '192.0.2.1',
    headers: { accept: 'text/html' },
  });
  t.match(refused, { status: 429, headers: { 'retry-after': /^\d+$/ } });
  t.match(refused.text, /value="last@a\.test"/, 'the form is shown again');
  t.match(refused.text, 'There were too many attempts');
  await idp.server.stop();
  const sent = (await templatesIn(t, idp)).filter((template) => template === 'password-reset');
  t.equal(sent.length, 3, 'three mails in a quarter of an hour');
});

t.test('each mailed link replaces the one before', async (t) => {
  const idp = await mailedIdp(t);
  const { handle } = await idp.makeHuman();
  await idp.forget(handle);
  const old = await idp.linkIn(RESET);
  await idp.forget(handle);
  const current = await idp.linkIn(RESET);
  t.equal((await idp.request('GET', old)).status, 404);
  t.equal((await idp.request('GET', current)).status, 200);
  idp.clock.advance(3_600_000);
  t.equal((await idp.request('GET', current)).status, 410, 'and expires after an hour');
});

t.test('a mailed link and the link of an operator do not end each other until one is used', async (t) => {
  const use = (idp: IdpApp, path: string) => idp.request('POST', path, { body: { password: CHOSEN } });
  for (const isMailedUsed of [true, false]) {
    const idp = await mailedIdp(t, { limits: false });
    const principals = principalCollection(await idpStore(t, idp));
    const ada = await idp.makeHuman();
    const operators = async () => {
      const { linkHash } = (await principals.findOne({ id: ada.sub })) ?? {};
      return linkHash;
    };
    const printed = await printReset(t, idp, ada.sub);
    const hash = await operators();
    await idp.forget(ada.handle);
    const mailed = await idp.linkIn(RESET);
    t.equal(await operators(), hash);
    for (const path of [printed, mailed]) t.equal((await idp.request('GET', path)).status, 200, path);
    const [used, other] = isMailedUsed ? [mailed, printed] : [printed, mailed];
    t.equal((await use(idp, used)).status, 201);
    t.match(await use(idp, other), { status: 404 }, 'the other link has ended');
    const { emailVerifiedAt } = (await principals.findOne({ id: ada.sub })) ?? {};
    t.equal(emailVerifiedAt !== undefined, isMailedUsed, 'only a mailed link verifies the address');
  }
});

t.test('changing the password or disabling the account ends a mailed link', async (t) => {
  const idp = await mailedIdp(t, { limits: false });
  const ada = await idp.makeHuman();
  await idp.forget(ada.handle);
  const path = await idp.linkIn(RESET);
  await idp.admin('POST', `/v1/principals/${ada.sub}/disable`);
  await idp.admin('POST', `/v1/principals/${ada.sub}/enable`);
  t.equal((await idp.request('POST', path, { body: { password: CHOSEN } })).status, 404);

  await idp.forget(ada.handle);
  const second = await idp.linkIn(RESET);
  const { browser, page } = await idp.visit(await idp.createClient());
  await browser.submit(page, { handle: ada.handle, password: ada.password });
  const form = await browser.open(`${await idp.listen()}/account/password`);
  const fields = { current_password: ada.password, password: CHOSEN, password_confirm: CHOSEN };
  t.match(await browser.submit(form, fields), { status: 200 });
  t.equal((await idp.request('GET', second)).status, 404);
  t.match((await idp.mail(CHANGED)).text, sentence('mail.origin.when'), 'and the person is told');
});

t.test('deleting an account deletes its mails', async (t) => {
  const idp = await mailedIdp(t);
  const [ada, eve] = [await idp.makeHuman(), await idp.makeHuman()];
  await idp.mail(VERIFY);
  await idp.mail(VERIFY);
  const operator = await makeOperator(t, idp);
  const { act } = await enterConsole(idp, operator);
  t.equal((await act(`/principals/${ada.sub}/delete`, { confirm: ada.handle })).status, 200);
  const { items } = await mailCollection(await idpStore(t, idp)).page({ sort: 'id', limit: 10 });
  t.same(new Set(items.map(({ userId }) => userId)), new Set([eve.sub, operator.sub]));
});

t.test('without a mail server the page says whom to ask, and nothing is loaded or stored', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const { page } = await idp.visit(client);
  t.match(page.body, 'href="&#x2F;account&#x2F;forgot-password"');
  const { status, text } = await idp.request('GET', '/account/forgot-password');
  t.equal(status, 200);
  t.match(text, 'Ask the operator of <code>https:&#x2F;&#x2F;id.example.test</code>');
  t.notMatch(text, '<form');
  const post = (path: string) => idp.request('POST', path, { form: { handle: 'ada@example.test' } });
  t.equal((await post('/account/forgot-password')).status, 405);
  t.equal((await post('/verify/x')).status, 404);
  t.notOk((await collectionNames(idp.databaseUri)).includes('mails'));
  t.match(await collectionNames((await mailedIdp(t)).databaseUri), /mails/, 'as it is with one');
});

t.test('a form of another site sends no mail', async (t) => {
  const idp = await mailedIdp(t);
  const { handle } = await idp.makeHuman();
  for (const headers of [{ 'sec-fetch-site': 'cross-site' }, { origin: 'https://evil.test' }]) {
    t.equal((await idp.forget(handle, { headers })).status, 403);
  }
  await idp.server.stop();
  t.same(await templatesIn(t, idp), ['verify-email']);
});

t.test(
  'a mailed link gives an unconfirmed account to its owner without the second factor of a stranger',
  async (t) => {
    const idp = await mailedIdp(t, { factorEncryptionKey: FACTOR_KEY });
    const store = await idpStore(t, idp);
    const now = idp.clock.now();
    // Set up before a mail server was configured: without one, no address can be confirmed.
    const factor = {
      lastStep: 0,
      recovery: [],
      confirmedAt: now,
      secret: 'v1.x',
      version: 1,
      rev: 1,
      updatedAt: now,
    };
    const reset = async (handle: string) => {
      const { sub } = await idp.makeHuman({ handle });
      await factorCollection(store).insert({ id: sub, ...factor });
      await idp.forget(handle);
      const path = await idp.linkIn(RESET);
      return {
        sub,
        use: () => idp.request('POST', path, { form: { password: CHOSEN, password_confirm: CHOSEN } }),
      };
    };
    const { sub, use } = await reset('ada@example.test');
    t.equal((await use()).status, 303);
    t.equal((await factorCollection(store).findOne({ id: sub }))?.confirmedAt, undefined);

    const confirmed = await reset('bob@example.test');
    await principalCollection(store).updateOne({ id: confirmed.sub }, { set: { emailVerifiedAt: now } });
    t.equal((await confirmed.use()).status, 303);
    t.equal(
      (await factorCollection(store).findOne({ id: confirmed.sub }))?.confirmedAt,
      now,
      'a confirmed one keeps it',
    );
  },
);
