import fastify from 'fastify';
import t, { type Test } from 'tap';
import { consentCollection, grantCollection, sessionCollection } from '../../../src/idp/oidc/store.js';
import { clientCollection, principalCollection } from '../../../src/idp/provisioning/store.js';
import { identityProvider } from '../../../src/index.js';
import { auditOf, basic, PASSWORD } from '../../kit/app.js';
import {
  ADMIN_TOKEN,
  authorizePath,
  codeIn,
  type IdpApp,
  idpApp,
  idpOptions,
  idpStore,
} from '../../kit/idp.js';
import { mailSink } from '../../kit/mail.js';
import { enterConsole, makeOperator } from '../../kit/operator.js';
import { sentence } from '../../kit/sentences.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { browse, connect, connected, enterAccount, FIREFOX, HERE } from './kit.js';

const MINUTE = 60_000;

const eventsOf = async (t: Test, idp: IdpApp, sub: string) =>
  (await auditOf(await idpStore(t, idp))).filter(({ subject }) => subject === sub).map(({ event }) => event);

t.test('a person signs in to the account page, which lists sessions and applications', async (t) => {
  const { idp, human, page } = await connected(t);
  t.equal(page.status, 200);
  t.match(new URL(page.url).pathname, '/account');
  t.match(page.body, human.handle);
  t.match(
    page.body,
    /Where you are signed in[\s\S]*Unknown device<\/strong> <span class="status">this device/,
  );
  t.match(page.body, /Unknown device[\s\S]*127\.0\.0\.1/);
  t.match(page.body, /Connected applications[\s\S]*Shop[\s\S]*your name and user name/);
  t.match(page.headers.get('content-security-policy'), /default-src 'none'.*frame-ancestors 'none'/);
  t.match(page.headers.get('cache-control'), 'no-store');
  const german = await idp.request('GET', '/account', {
    headers: { accept: 'text/html', 'accept-language': 'de' },
  });
  t.match(german, { status: 401, text: 'weiter zu Ihrem Konto' });
  t.equal(german.headers['www-authenticate'], undefined, 'no browser may cache a password');
});

t.test('/ leads to the account, and /.well-known/change-password to the password page', async (t) => {
  for (const prefix of ['', '/id']) {
    const idp = await idpApp(t, { ...HERE, prefix });
    const [root, change] = [
      await idp.request('GET', '/'),
      await idp.request('GET', '/.well-known/change-password'),
    ];
    t.match(root, { status: 302, headers: { location: `${prefix}/account` } });
    t.match(change, { status: 302, headers: { location: `${prefix}/account/password` } });
    const human = await idp.makeHuman();
    const origin = await idp.listen();
    const { browser } = await browse(idp);
    const form = await browser.open(`${origin}${prefix}/.well-known/change-password`);
    const page = await browser.submit(form, { handle: human.handle, password: PASSWORD });
    t.match(new URL(page.url).pathname, `${prefix}/account/password`);
    t.match(page.body, /id="current"/);
  }
});

t.test(
  'sessions show the family of the browser, its system and the address block, and no more',
  async (t) => {
    const { idp, human, get } = await connected(t);
    await enterAccount(idp, human, { 'user-agent': FIREFOX });
    const page = await get();
    t.match(page.body, /<strong>Firefox on Linux<\/strong>/);
    t.equal(page.body.match(/Unknown device<\/strong>/g)?.length, 2, 'those without a User-Agent');
    const { items } = await sessionCollection(await idpStore(t, idp)).page({ sort: 'id', limit: 10 });
    t.match(items.at(-1), { browser: 'Firefox', system: 'Linux', place: '127.0.0.1' });
    t.notMatch(JSON.stringify(items), /140|rv:|X11/);
  },
);

t.test('a person ends one session, or all others', async (t) => {
  const { idp, client, human, tokens, get, act, origin } = await connected(t);
  const [second, third] = [
    await enterAccount(idp, human, { 'user-agent': FIREFOX }),
    await enterAccount(idp, human),
  ];
  t.match((await act('/sessions/end')).body, /role="status">The session has ended/);
  const isSignedIn = async ({ get }: Pick<typeof second, 'get'>) => (await get()).status === 200;
  t.same([await isSignedIn({ get }), await isSignedIn(second), await isSignedIn(third)], [true, true, false]);
  const done = await act('/sessions/end-others');
  t.match(done.body, /role="status">You are signed out everywhere else/);
  t.notMatch(done.body, 'sessions/end');
  t.same([await isSignedIn({ get }), await isSignedIn(second)], [true, false]);
  const silent = await second.browser.open(origin + authorizePath(client, { prompt: 'none' }));
  t.match(silent.location, /error=login_required/);
  t.equal(
    (await idp.refresh(client, tokens.refresh_token)).status,
    200,
    'applications are disconnected apart',
  );
  t.match(await eventsOf(t, idp, human.sub), /session\.ended[\s\S]*sessions\.ended/ as never);
});

t.test("a person ends no session and disconnects no application of another one's", async (t) => {
  const { idp, human, tokens, client } = await connected(t);
  const stranger = await enterAccount(idp, await idp.makeHuman());
  const sessions = sessionCollection(await idpStore(t, idp));
  const { items } = await sessions.page({ where: { sub: human.sub }, sort: 'id', limit: 10 });
  await enterAccount(idp, await idp.makeHuman());
  const own = await stranger.get();
  const { form = '' } = own.form('/name').fields;
  const cookie = `idp-session=${stranger.browser.cookies()['idp-session']}`;
  for (const sid of [...items.map(({ id }) => id), 'x', 'sid_x']) {
    const answer = await idp.request('POST', '/account/sessions/end', {
      form: { form, sid },
      headers: { cookie, accept: 'text/html' },
    });
    t.equal(answer.status, 303);
  }
  const answer = await idp.request('POST', '/account/applications/disconnect', {
    form: { form, client_id: client.id },
    headers: { cookie, accept: 'text/html' },
  });
  t.equal(answer.status, 303);
  t.equal(await sessions.count({ sub: human.sub }), items.length);
  t.equal((await idp.refresh(client, tokens.refresh_token)).status, 200);
});

t.test('a disconnected application loses its access at once and has to ask again', async (t) => {
  const { idp, client, human, tokens, act, browser, origin } = await connected(t);
  const other = await idp.createClient({ name: 'Other' });
  const kept = await connect(idp, other, human);
  const waiting = await idp.codeFor(client, human);
  const page = await act('/applications/disconnect', { client_id: client.id });
  t.match(page.body, /role="status">The application has been disconnected/);
  t.notMatch(page.body, 'Shop');
  t.match(page.body, 'Other');
  t.equal((await idp.userinfo(tokens.access_token)).status, 401);
  t.match(await idp.refresh(client, tokens.refresh_token), { status: 400, body: { error: 'invalid_grant' } });
  t.match(await idp.redeem(client, waiting), { status: 400, body: { error: 'invalid_grant' } });
  const headers = { authorization: basic(client.id, client.secret ?? '') };
  const inspected = await idp.request('POST', '/introspect', {
    form: { token: tokens.refresh_token },
    headers,
  });
  t.same(inspected.body, { active: false });
  t.equal((await idp.refresh(other, kept.refresh_token)).status, 200, 'others keep theirs');

  const asked = await browser.open(origin + authorizePath(client));
  t.match(asked.body, 'value="deny"', 'the consent is gone');
  const allowed = await browser.submit(asked, { decision: 'allow' });
  const again = await idp.redeem(client, codeIn(allowed.location));
  t.equal((await idp.userinfo(again.body.access_token)).status, 200, 'a new consent gives new access');
  t.equal((await idp.userinfo(tokens.access_token)).status, 401, 'which does not restore the old one');
  t.match((await browser.open(`${origin}/account`)).body, 'Shop');
  t.match(await eventsOf(t, idp, human.sub), /consent\.revoked/ as never);
});

t.test('an application that needs no consent is listed and disconnected as well', async (t) => {
  const { idp, human, get, act, browser, origin } = await connected(t);
  const trusted = await idp.createClient({ name: 'Intranet' });
  await clientCollection(await idpStore(t, idp)).updateOne({ id: trusted.id }, { set: { trusted: true } });
  await act('/applications/disconnect');
  const silent = await browser.open(origin + authorizePath(trusted));
  t.notMatch((await get()).body, 'Intranet', 'without a refresh token, there is nothing to revoke');
  t.ok(codeIn(silent.location));
  const lasting = await browser.open(origin + authorizePath(trusted, { scope: 'openid offline_access' }));
  const tokens = (await idp.redeem(trusted, codeIn(lasting.location))).body;
  t.match((await get()).body, 'Intranet');
  await act('/applications/disconnect');
  t.equal((await idp.refresh(trusted, tokens.refresh_token)).status, 400);
  t.notMatch((await get()).body, 'Intranet');

  const byBasic = await idp.createClient({ name: 'Script' });
  const code = await idp.codeFor(byBasic, human, { scope: 'openid offline_access' });
  const { refresh_token: token } = (await idp.redeem(byBasic, code)).body;
  t.match((await get()).body, 'Script');
  await act('/applications/disconnect');
  t.equal((await idp.refresh(byBasic, token)).status, 400);
});

t.test('an application that refuses the person is not listed as connected', async (t) => {
  const { idp, human, get, act, browser, origin } = await connected(t);
  await act('/applications/disconnect');
  const robots = await idp.createClient({ name: 'Robots', principal_kinds: ['agent'] });
  const more = { scope: 'openid offline_access' };
  const refused = await browser.open(origin + authorizePath(robots, more));
  t.match(refused.location, /error=access_denied/);
  const byBasic = await idp.authorize(robots, human, more);
  t.match(byBasic.headers['location'], /error=access_denied/);
  t.match((await get()).body, sentence('account.no-applications'));
});

t.test('a person changes the name, which applications see', async (t) => {
  const { idp, human, tokens, act, get } = await connected(t);
  t.match(
    (await act('/name', { name: 'Ada Lovelace' })).body,
    /role="status">The name has been saved[\s\S]*value="Ada Lovelace"/,
  );
  t.match((await idp.userinfo(tokens.access_token)).body, { name: 'Ada Lovelace' });
  for (const name of ['\u202e', ' ', 'x'.repeat(201), 'a\u0000b']) {
    const rejected = await act('/name', { name });
    t.equal(rejected.status, 422, JSON.stringify(name));
    t.match(rejected.body, /<title>Error: [\s\S]*name is not possible/);
  }
  t.match((await get()).body, 'value="Ada Lovelace"');
  await act('/name', { name: '' });
  t.match(
    (await idp.userinfo(tokens.access_token)).body,
    { name: human.handle },
    'without one, the user name',
  );
  t.match(await eventsOf(t, idp, human.sub), /account\.renamed/ as never);
});

t.test('what cannot be undone requires a sign-in within the last 15 minutes', async (t) => {
  const { idp, client, human, tokens, get, browser } = await connected(t);
  await enterAccount(idp, human);
  const page = await get();
  idp.clock.advance(15 * MINUTE + 1);
  for (const action of ['/sessions/end', '/sessions/end-others', '/applications/disconnect']) {
    const asked = await browser.submit(page, {}, action);
    t.match(asked, { status: 401, body: 'to continue to your account' }, action);
    t.match(asked.body, `value="${human.handle}"`);
  }
  t.equal((await get('/delete')).status, 401);
  t.equal((await get()).status, 200, 'the page itself stays open');
  t.equal((await idp.refresh(client, tokens.refresh_token)).status, 200, 'nothing has happened');
  t.equal(await sessionCollection(await idpStore(t, idp)).count({ sub: human.sub }), 3);
  const deletion = await browser.submit(await get('/delete'), { handle: human.handle, password: PASSWORD });
  t.match(new URL(deletion.url).pathname, '/account/delete');
});

t.test('a deleted account ends at once, everywhere, and its user name stays taken', async (t) => {
  const { idp, client, human, tokens, get, browser, origin } = await connected(t);
  const second = await enterAccount(idp, human);
  const waiting = await idp.codeFor(client, human);
  const form = await get('/delete');
  t.match(form.body, `Type ${human.handle} to confirm`);
  const table: [Record<string, string>, number, RegExp][] = [
    [{ confirm: 'another', password: PASSWORD }, 422, sentence('account-delete.differs')],
    [{ confirm: '', password: PASSWORD }, 422, sentence('account-delete.differs')],
    [{ confirm: human.handle, password: 'wrong' }, 401, sentence('account-delete.wrong')],
  ];
  for (const [fields, status, sentence] of table) {
    const rejected = await browser.submit(form, fields);
    t.equal(rejected.status, status);
    t.match(rejected.body, sentence);
    t.notMatch(rejected.body, PASSWORD);
  }
  t.equal((await second.get()).status, 200);

  const done = await browser.submit(form, { confirm: human.handle, password: PASSWORD });
  t.match(done, { status: 200, body: '<h1>Account deleted' });
  t.notOk('idp-session' in browser.cookies());
  t.equal((await second.get()).status, 401);
  t.match(
    (await second.browser.open(origin + authorizePath(client, { prompt: 'none' }))).location,
    /login_required/,
  );
  t.equal((await idp.userinfo(tokens.access_token)).status, 401);
  t.equal((await idp.refresh(client, tokens.refresh_token)).status, 400);
  t.equal((await idp.redeem(client, waiting)).status, 400);
  t.equal((await idp.authorize(client, human)).status, 401);
  t.match(
    await idp.request('POST', '/v1/accounts', {
      body: { handle: human.handle, password: PASSWORD, kind: 'human' },
    }),
    {
      status: 409,
    },
  );
  const store = await idpStore(t, idp);
  const document = await principalCollection(store).findOne({ id: human.sub });
  t.match(document, { state: 'deleted', passwordHash: undefined, name: undefined });
  t.equal(await sessionCollection(store).count({ sub: human.sub }), 0);
  t.equal(await consentCollection(store).count(), 0);
  t.match(await eventsOf(t, idp, human.sub), /human\.deleted/ as never);

  idp.clock.advance(26 * 60 * MINUTE);
  await idpApp(t, { ...HERE, databaseUri: idp.databaseUri, clock: idp.clock });
  const grants = grantCollection(store);
  await waitUntil('the purge of grants', async () => (await grants.count()) === 0);
});

t.test('sessions and consents of a person whom the operator deletes are removed at once', async (t) => {
  const { idp, human } = await connected(t);
  const { act } = await enterConsole(idp, await makeOperator(t, idp));
  t.equal((await act(`/principals/${human.sub}/delete`, { confirm: human.handle })).status, 200);
  const store = await idpStore(t, idp);
  t.equal((await principalCollection(store).findOne({ id: human.sub }))?.state, 'deleted');
  t.equal(await sessionCollection(store).count({ sub: human.sub }), 0);
  t.equal(await consentCollection(store).count(), 0);
});

t.test('a deletion that is submitted twice says that the account is deleted', async (t) => {
  const { idp, human, get, browser } = await connected(t);
  const form = await get('/delete');
  const fields = { confirm: human.handle, password: PASSWORD };
  const answers = await Promise.all([browser.send(form, fields), browser.send(form, fields)]);
  for (const answer of answers) t.match(answer, { status: 303, location: /\/account\/deleted$/ });
  const events = await eventsOf(t, idp, human.sub);
  t.equal(events.filter((event) => event === 'human.deleted').length, 1);
});

t.test('a throttled deletion stays a form', async (t) => {
  const { get, browser, human, idp } = await connected(t, { limits: true });
  const form = await get('/delete');
  const wrong = { confirm: human.handle, password: 'wrong sentence' };
  for (let count = 0; count < 10; count++) t.equal((await browser.submit(form, wrong)).status, 401);
  const throttled = await browser.submit(form, wrong);
  t.equal(throttled.status, 429);
  t.match(throttled.body, /role="alert"[\s\S]*too many attempts[\s\S]*<form/);
  t.notMatch(throttled.body, 'wrong sentence');
  idp.clock.advance(MINUTE);
  t.equal((await browser.submit(throttled, { confirm: human.handle, password: PASSWORD })).status, 200);
});

/** Every route, with what a form of it contains. */
const ROUTES: [method: string, path: string, fields?: Record<string, string>][] = [
  ['GET', '/account'],
  ['POST', '/account/name', { name: 'Mine' }],
  ['POST', '/account/sessions/end', { sid: `sid_${'0'.repeat(32)}` }],
  ['POST', '/account/sessions/end-others', {}],
  ['POST', '/account/verification', {}],
  ['POST', '/account/applications/disconnect', { client_id: 'cid_1' }],
  ['POST', '/account/delegations/end', { delegation: 'dlg_1' }],
  ['POST', '/account/agents/stop', { agent: 'u_1' }],
  ['GET', '/account/receipts/gr_1'],
  ['GET', '/account/password'],
  ['POST', '/account/password', { current_password: PASSWORD, password: 'mine', password_confirm: 'mine' }],
  ['GET', '/account/delete'],
  ['POST', '/account/delete', { confirm: 'x', password: PASSWORD }],
];

t.test('neither tokens, nor Basic, nor agents open the account pages', async (t) => {
  const { idp, human, tokens } = await connected(t, { emailSmtpUrl: (await mailSink(t)).url });
  const agent = await idp.mintAgent();
  const principals = principalCollection(await idpStore(t, idp));
  const before = (await principals.page({ sort: 'id', limit: 10 })).items;
  for (const authorization of [
    `Bearer ${ADMIN_TOKEN}`,
    `Bearer ${tokens.access_token}`,
    basic(human.handle, PASSWORD),
    basic(agent.handle, agent.password),
  ]) {
    for (const [method, path, fields] of ROUTES) {
      const form = fields && { form: 'x', ...fields };
      const headers = { authorization, accept: 'text/html' };
      const answer = await idp.request(method, path, { headers, ...(form && { form }) });
      t.match(answer, { status: 401, text: 'to continue to your account' }, `${method} ${path}`);
      const json = await idp.request(method, path, { headers: { authorization }, ...(form && { form }) });
      t.match(json, { status: 401, body: { error: 'sign_in_first' } });
    }
  }
  t.strictSame((await principals.page({ sort: 'id', limit: 10 })).items, before);
  t.equal((await enterAccount(idp, agent)).page.status, 401, 'an agent fails like a wrong password');
});

t.test('a form without the token of its session is refused', async (t) => {
  const { idp, browser, get } = await connected(t, { emailSmtpUrl: (await mailSink(t)).url });
  const stranger = await enterAccount(idp, await idp.makeHuman());
  const foreign = stranger.page.form('/name').fields['form'] as string;
  const old = (await get()).form('/name').fields['form'] as string;
  const cookie = `idp-session=${browser.cookies()['idp-session']}`;
  for (const [method, path, fields] of ROUTES) {
    if (method === 'GET') continue;
    for (const form of [foreign, '', 'x', old.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'))]) {
      const answer = await idp.request('POST', path, { form: { form, ...fields }, headers: { cookie } });
      t.match(answer, { status: 403, body: { error: 'login_rejected' } }, path);
    }
    t.equal((await idp.request('POST', path, { form: { ...fields }, headers: { cookie } })).status, 400);
  }
  t.equal((await get()).status, 200);
});

t.test(
  'at the root of a host, only the page for the password exists, unless the host asks for all',
  async (t) => {
    for (const [more, status] of [
      [{}, 404],
      [{ accountPages: true }, 401],
      [{ prefix: '/id', publicUrl: 'https://id.example.test/id' }, 401],
      [{ prefix: '/id', publicUrl: 'https://id.example.test/id', accountPages: false }, 404],
    ] as const) {
      const { host, port, logLevel, ...options } = idpOptions(temporaryFolder(t));
      const app = fastify();
      t.teardown(() => app.close());
      await app.register(identityProvider, { ...options, ...more });
      const prefix = 'prefix' in more ? more.prefix : '';
      const get = async (url: string) => app.inject({ url: prefix + url, headers: { accept: 'text/html' } });
      t.equal((await get('/account')).statusCode, status);
      t.equal((await get('/')).statusCode, status === 404 ? 404 : 302);
      const password = await get('/account/password');
      t.equal(password.statusCode, 401);
      t.equal(password.body.includes('Create an account'), status === 401);
      t.equal(/href="[^"]*account"/.test((await get('/invite/done')).body), status === 401);
    }
  },
);
