import t from 'tap';
import { auditCollection } from '../../../src/core/ops/audit.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { onEngines } from '../../core/storage/engines.js';
import { decodeEntities, type Page } from '../../kit/agent.js';
import { auditOf, basic, errorOf, PASSWORD, saasApp, storeOf } from '../../kit/app.js';
import { codeAt, setUpFactor } from '../../kit/factors.js';
import { sentence } from '../../kit/sentences.js';
import { RESET, VERIFY } from '../auth/kit.js';
import { isAt, MINUTE, titleOf, visit } from '../pages/kit.js';
import { addPasskey, call, cookieOf, MODE, OPTIONS, ORIGIN, open, place, submit } from './kit.js';

const HOUR = 60 * MINUTE;

t.test('an operator signs in with the user account, changes something, and signs out', async (t) => {
  const app = await place(t);
  const customer = await app.signUp({ email: 'cora@example.test', name: 'Cora' });
  const ada = await app.person('ada');
  const role = await app.admin('POST', `/admin/api/users/${ada.id}/operator-role`, { role: 'owner' });
  t.equal(role.status, 200, role.text);
  const browser = await visit(app);
  const page = await browser.get('/operator?page=%2Fusers%3Fq%3Dcora');
  t.match([page.status, titleOf(page)], [401, sentence('user-sign-in.title')]);
  const found = await ada.signIn(browser, page);
  t.ok(isAt(found, '/admin/users'), found.url);
  t.match(found.body, /cora@example\.test/);
  t.match(decodeEntities(found.body), /ada<\/span> <a href="[^"]*account\/sign-out">Sign out/);

  const path = `/users/${customer.id}`;
  t.match((await submit(browser, `${path}/rename`, { name: 'Cora B.' })).body, /The name was changed/);
  t.match((await submit(browser, `${path}/note`, { note: 'Calls on Mondays' })).body, /The note was saved/);
  await submit(browser, `${path}/suspend`);
  const { version } = (await call(app, browser, 'GET', '/api/settings')).body.data;
  const body = { siteName: 'New', version };
  t.equal((await call(app, browser, 'PATCH', '/api/settings', { body })).status, 200);
  const records = await auditOf(await storeOf(t, app));
  const changes = records.filter(({ by }) => by !== undefined).map(({ event, by }) => `${event} ${by}`);
  t.match(changes, ['operator.role-changed operator', `user.renamed ${ada.id}`, `user.noted ${ada.id}`]);
  t.ok(
    changes.slice(1).every((change) => change.endsWith(` ${ada.id}`)),
    changes.join(),
  );
  const shown = (await open(browser, path)).body;
  t.match(shown, /by ada/, 'names instead of IDs');
  t.notMatch(shown, `by ${ada.id}`);

  const signOut = await browser.get('/sign-out');
  await browser.browser.submit(signOut);
  t.match((await open(browser)).headers.get('www-authenticate'), /^Basic realm="admin"/, 'signed out');
});

t.test('the credentials of the configuration stay as they are', async (t) => {
  const app = await place(t);
  await app.person('ada', { role: 'owner' });
  t.equal((await app.admin('GET', '/admin')).status, 200);
  const body = { siteName: 'X', version: 0 };
  t.equal((await app.admin('PATCH', '/admin/api/settings', body)).status, 200);
  for (const headers of [{}, { authorization: basic('operator', '') }]) {
    const none = await app.request('GET', '/admin', { headers });
    t.match([none.status, none.headers['www-authenticate']], [401, /^Basic realm="admin"/]);
  }
});

t.test('without the password of the configuration, only operators get in', async (t) => {
  const app = await place(t, {
    adminPassword: undefined,
    env: { NODE_ENV: 'production' },
    publicUrl: 'https://app.example.test',
  });
  const ada = await app.person('ada', { role: 'owner' });
  const browser = await ada.browse();
  t.equal((await open(browser)).status, 200);
  for (const password of ['', 'undefined']) {
    const headers = { authorization: basic('operator', password) };
    t.equal(errorOf(await app.request('GET', '/admin/api/settings', { headers })), 'ADMIN_NOT_CONFIGURED');
  }
  t.equal(errorOf(await app.request('GET', '/admin/api/settings')), 'ADMIN_NOT_CONFIGURED');
});

t.test('without a role or a second factor, a page says what is missing', async (t) => {
  const app = await place(t);
  const eve = await (await app.person('eve')).browse();
  const page = await eve.get('/operator');
  t.match([page.status, page.body], [403, sentence('user-operator.role')]);
  t.equal((await open(eve)).status, 401);
  t.equal((await call(app, eve, 'GET', '/api/settings')).status, 401);

  const bob = await app.person('bob', { role: 'owner', hasFactor: false });
  const single = await bob.browse();
  const missing = await open(single, '/users');
  t.match([missing.status, missing.body], [403, sentence('user-operator.factor')]);
  t.equal((await call(app, single, 'GET', '/api/settings')).status, 401);
});

t.test('the area closes with the next request when the role or the account ends', async (t) => {
  const app = await place(t);
  const { users } = app.server.fastify.saas;
  const stored = userCollection(await storeOf(t, app));
  const ends: Record<string, (id: string) => Promise<unknown>> = {
    'the role is removed': (id) =>
      app.admin('POST', `/admin/api/users/${id}/operator-role`, { role: 'none' }),
    'the address is not verified any more': (id) =>
      stored.changeOne({ id }, { set: { emailVerified: false } }),
    'the user is suspended': (id) => users.suspend({ id }),
    'the user is deleted': (id) => users.delete({ id }),
  };
  for (const [index, [name, end]] of Object.entries(ends).entries()) {
    const person = await app.person(`person-${index}`, { role: 'owner' });
    const browser = await person.browse();
    t.equal((await open(browser)).status, 200);
    await end(person.id);
    t.equal((await call(app, browser, 'GET', '/api/settings')).status, 401, name);
    t.not((await open(browser)).status, 200, name);
  }
});

t.test('no token of an operator opens the area, and nobody who acts as one', async (t) => {
  const app = await place(t, { apiKeys: true, userRoles: ['helper'], impersonationRoles: ['helper'] });
  const ada = await app.person('ada', { role: 'owner' });
  const { body } = await app.post('/user/keys', { name: 'mine', scopes: [] }, { token: ada.accessToken });
  const key = body?.data?.key?.secret ?? body?.data?.secret ?? 'key';
  for (const token of [ada.accessToken, ada.refreshToken, key]) {
    t.equal((await app.request('GET', '/admin/api/settings', { token })).status, 401);
    const page = await app.request('GET', '/admin', { token, headers: { accept: 'text/html' } });
    t.equal(page.status, 401);
  }
  const cookie = `saas-session=${ada.refreshToken}`;
  t.equal((await app.request('GET', '/admin/api/settings', { headers: { cookie } })).status, 401);

  const hal = await app.person('hal');
  await app.server.fastify.saas.users.setRoles({ id: hal.id }, ['helper']);
  const acting = await hal.browse();
  const bea = await app.person('bea');
  await acting.fill(`/impersonate?user=${bea.id}`, { reason: 'help' });
  t.match((await acting.get()).body, /acts as bea@example\.test/);
  await app.setRole(bea.id, 'owner');
  t.match(titleOf(await acting.get('')), /Sign in/, 'it ends when the user becomes an operator');
  t.equal((await open(acting)).status, 401);
  t.equal((await call(app, acting, 'GET', '/api/settings')).status, 401);
});

t.test('each role sees and does what it may, and what nobody has thought of needs an owner', async (t) => {
  const app = await place(t, { webhooks: true, settingsEncryptionKey: 'Zk3tQ2vXw9ZbN4mLp6Jd3Hs8Fg1Yc5Ae' });
  const customer = await app.signUp({ email: 'cora@example.test', name: 'Cora' });
  const path = `/users/${customer.id}`;
  const owner = await app.person('owner', { role: 'owner' });
  const supporter = await app.person('supporter', { role: 'support' });
  const [reading, supporting, owning] = [
    await (await app.person('reader', { role: 'read-only' })).browse(),
    await supporter.browse(),
    await owner.browse(),
  ];
  const bodyOf = async (browser: typeof reading) => decodeEntities((await open(browser, path)).body);
  for (const text of ['/rename"', '/suspend"', 'Export all data']) {
    t.notMatch(await bodyOf(reading), text, `read-only: no ${text}`);
    t.match(await bodyOf(owning), text, `owner: ${text}`);
  }
  t.match(await bodyOf(reading), 'Cora');
  t.equal((await open(reading, '/settings')).status, 200);

  const refusals: [string, typeof reading, string, string, object?][] = [
    ['read-only: an action', reading, 'POST', `/api${path}/rename`, { name: 'X' }],
    ['read-only: a list as a file', reading, 'GET', '/users.csv'],
    ['read-only: an export', reading, 'POST', `/api${path}/export`],
    ['support: an export', supporting, 'POST', `/api${path}/export`],
    ['support: suspend', supporting, 'POST', `/api${path}/suspend`, {}],
    ['support: unsuspend', supporting, 'POST', `/api${path}/unsuspend`, {}],
    ['support: a deletion', supporting, 'POST', `/api${path}/delete`, { confirm: 'cora@example.test' }],
    ['support: a plan', supporting, 'POST', `/api${path}/grant`, { plan: 'pro' }],
    ['support: settings', supporting, 'PATCH', '/api/settings', { siteName: 'X', version: 0 }],
    ['support: a role', supporting, 'POST', `/api${path}/operator-role`, { role: 'owner' }],
    [
      'support: the own role',
      supporting,
      'POST',
      `/api/users/${supporter.id}/operator-role`,
      { role: 'owner' },
    ],
    ['support: the account of an owner', supporting, 'POST', `/api/users/${owner.id}/send-reset`, {}],
    ['support: the own account', supporting, 'POST', `/api/users/${supporter.id}/rename`, { name: 'Owner' }],
  ];
  for (const [name, browser, method, at, body] of refusals) {
    const answer = await call(app, browser, method, at, body ? { body } : {});
    t.match([answer.status, errorOf(answer)], [403, 'FORBIDDEN'], name);
    t.match(answer.body.message, /needs the role (support|owner), and yours is/, name);
  }
  for (const page of [`${path}/suspend`, `/users/${owner.id}/rename`])
    t.equal((await open(supporting, page)).status, 403, page);

  // The token of a form that the operator may open is not enough for one of another role.
  const allowed = await open(supporting, `${path}/rename`);
  const action = `${owning.origin}/admin${path}/suspend`;
  const forged: Page = { ...allowed, form: () => ({ ...allowed.form(), action }) };
  t.equal((await supporting.browser.submit(forged)).status, 403);
  for (const [verb, body] of [
    ['rename', { name: 'C' }],
    ['send-verification', {}],
    ['end-sessions', {}],
  ] as const)
    t.equal((await call(app, supporting, 'POST', `/api${path}/${verb}`, { body })).status, 200, verb);
  t.equal((await call(app, supporting, 'GET', '/users.csv')).status, 200);

  // Every change that names no role needs an owner: routes of the host's own settings, endpoints and whatever comes.
  const spec = (await app.request('GET', '/api/openapi.json')).body.paths as Record<string, object>;
  const changes = Object.entries(spec).flatMap(([at, methods]) =>
    at.startsWith('/admin/api/')
      ? Object.keys(methods)
          .filter((one) => one !== 'get')
          .map((one) => [one, at] as const)
      : [],
  );
  const open_ = new Set<string>();
  for (const [method, at] of changes) {
    const real = at
      .slice('/admin'.length)
      .replace('/users/{id}', path)
      .replace(/\{\w+\}/g, 'none_1');
    const answer = await call(app, supporting, method.toUpperCase(), real, { body: {} });
    if (errorOf(answer) !== 'FORBIDDEN') open_.add(at.replace('/admin/api/', ''));
  }
  t.same([...open_].sort(), SUPPORT);
});

/** The changes of support. */
const SUPPORT = [
  'deliveries/{id}/resend',
  'mails/all/retry',
  'mails/templates/{name}/test',
  'mails/{id}/retry',
  'users/all/end-sessions',
  'users/all/send-verification',
  'users/{id}/end-sessions',
  'users/{id}/note',
  'users/{id}/rename',
  'users/{id}/send-reset',
  'users/{id}/send-verification',
  'users/{id}/sessions/{session}/end',
  'webhooks/{id}/replay',
];

t.test('a change of many accounts needs the role that each of them needs', async (t) => {
  const app = await place(t);
  await app.signUp({ email: 'team.cora@example.test' });
  const supporter = await (await app.person('support', { role: 'support' })).browse();
  const owner = await app.person('team.owner', { role: 'owner' });
  const own = await owner.browse();
  const [mixed, plain] = ['/users/all/end-sessions?q=team.', '/users/all/end-sessions?q=team.c'];
  const body = (count: string) => ({ body: { confirm: count } });
  const refused = await call(app, supporter, 'POST', `/api${mixed}`, body('2'));
  t.match([refused.status, errorOf(refused)], [403, 'FORBIDDEN']);
  t.equal((await open(supporter, mixed)).status, 403);
  t.equal((await call(app, own, 'GET', '/api/settings')).status, 200, 'the sessions go on');
  t.equal((await call(app, supporter, 'POST', `/api${plain}`, body('1'))).status, 200);

  app.clock.advance(16 * MINUTE);
  t.equal(
    (await call(app, own, 'POST', `/api${plain}`, body('1'))).status,
    200,
    'support needs no recent sign-in',
  );
  const stale = await call(app, own, 'POST', `/api${mixed}`, body('2'));
  t.match([stale.status, errorOf(stale)], [401, 'REAUTHENTICATION_REQUIRED'], 'an owner does for operators');
  const page = await open(own, mixed);
  t.match([page.status, titleOf(page)], [401, sentence('user-sign-in.title')]);
});

t.test('owners need a recent sign-in, which leads back to the same form with its filter', async (t) => {
  const app = await place(t);
  const customer = await app.signUp({ email: 'cora@example.test' });
  const ada = await app.person('ada', { role: 'owner' });
  const browser = await ada.browse();
  const action = `/users/${customer.id}/suspend`;
  const form = await open(browser, action);
  const many = await open(browser, '/users/all/suspend?q=cora');
  const record = await open(browser, `/users/${customer.id}`);
  app.clock.advance(16 * MINUTE);
  t.equal((await open(browser, `/users/${customer.id}`)).status, 200, 'pages stay open');
  const json = await call(app, browser, 'POST', `/api${action}`, { body: {} });
  t.match([json.status, errorOf(json)], [401, 'REAUTHENTICATION_REQUIRED']);
  const stale = await browser.browser.submit(form);
  t.match([stale.status, titleOf(stale)], [401, sentence('user-sign-in.title')]);
  const user = async () => (await app.admin('GET', `/admin/api/users/${customer.id}`)).body.data;
  t.equal((await user()).state, 'active');
  const back = await ada.signIn(browser, stale);
  t.ok(isAt(back, `/admin${action}`), back.url);

  app.clock.advance(16 * MINUTE);
  const again = await ada.signIn(browser, await browser.browser.submit(many, { confirm: '1' }));
  t.match(again.url, /\/admin\/users\/all\/suspend\?q=cora$/, 'the filter stays');
  t.match(again.body, /Suspend: 1/);
  app.clock.advance(16 * MINUTE);
  const exported = await browser.browser.submit(record, {}, 'export');
  const shown = await ada.signIn(browser, exported);
  t.ok(isAt(shown, `/admin/users/${customer.id}`), `a form without a page of its own: ${shown.url}`);
});

t.test('after twelve hours, every role signs in again', async (t) => {
  const app = await place(t);
  for (const role of ['read-only', 'support'] as const) {
    const browser = await (await app.person(role, { role })).browse();
    app.clock.advance(11 * HOUR);
    t.equal((await call(app, browser, 'GET', '/api/settings')).status, 200, role);
    app.clock.advance(2 * HOUR);
    t.equal(errorOf(await call(app, browser, 'GET', '/api/settings')), 'REAUTHENTICATION_REQUIRED', role);
    t.equal(titleOf(await open(browser, '/users')), 'Sign in', role);
  }
});

t.test('the sign-in returns to pages of the area only', async (t) => {
  const app = await place(t);
  const browser = await (await app.person('ada', { role: 'read-only' })).browse();
  const returned = async (page: string) => {
    const query = new URLSearchParams({ page });
    const { location } = await browser.browser.get(`${browser.origin}/account/operator?${query}`);
    return location?.replace(browser.origin, '');
  };
  t.equal(await returned('/users?q=a'), '/admin/users?q=a');
  t.equal(await returned(''), '/admin');
  for (const page of [
    ...['https://evil.example', '//evil.example', '@evil.example', '.evil.example', '/../account'],
    ...['/%2e%2e/api', '\\..\\x', '/..//evil.example'],
  ])
    t.match(await returned(page), /^\/admin(\/|$)/, page);
});

t.test('changes of other sites are refused', async (t) => {
  const app = await place(t);
  const customer = await app.signUp();
  const browser = await (await app.person('ada', { role: 'owner' })).browse();
  const path = `/api/users/${customer.id}/rename`;
  const send = (headers: Record<string, string>) =>
    call(app, browser, 'POST', path, { body: { name: 'X' }, headers });
  t.equal((await send({})).status, 200);
  for (const headers of [{ 'sec-fetch-site': 'cross-site' }, { 'sec-fetch-site': 'same-site' }])
    t.not((await send(headers)).status, 200, JSON.stringify(headers));
  t.not((await send({ origin: 'https://evil.example' })).status, 200);
  const bare = await app.request('POST', `/admin${path}`, {
    headers: { cookie: browser.browser.cookieHeader() },
    body: { name: 'X' },
  });
  t.equal(errorOf(bare), 'CSRF_REJECTED');

  const form = await open(browser, `/users/${customer.id}/rename`);
  const other = await (await app.person('bob', { role: 'owner' })).browse();
  t.equal((await other.browser.submit(form, { name: 'Y' })).status, 403, 'a form of another operator');
});

t.test('a factor that is added after a password alone does not open the area', async (t) => {
  const app = await place(t, { publicUrl: ORIGIN, secondFactor: 'required', secondFactorGraceDays: 0 });
  const ada = await app.signUp({ email: 'ada@example.test', emailVerified: true });
  const passkey = await addPasskey(app, ada);
  t.equal(passkey.added.status, 201, passkey.added.text);
  // Begun before the role is given, confirmed after it.
  const login = () => app.post('/auth/login', { email: ada.email, password: PASSWORD });
  const { challenge } = (await login()).body.error ?? {};
  const begun = await app.post('/auth/second-factor/begin', { challenge });
  const code = codeAt(begun.body.data.secret, app.clock.now());
  await app.setRole(ada.id, 'owner');
  const confirmed = await app.post('/auth/second-factor/confirm', { challenge, code });
  t.match([confirmed.status, errorOf(confirmed)], [401, 'SECOND_FACTOR_REQUIRED']);
  const later = (await login()).body.error?.challenge;
  t.equal(
    errorOf(await app.post('/auth/second-factor/begin', { challenge: later })),
    'SECOND_FACTOR_REQUIRED',
  );

  const { accessToken: token } = ada;
  for (const [path, body] of [
    ['/user/second-factor/begin', undefined],
    ['/user/second-factor/confirm', { code }],
    ['/user/second-factor/recovery-codes', { code }],
    ['/user/second-factor/remove', { code, password: PASSWORD }],
    ['/user/passkeys/begin', undefined],
    ['/user/passkeys', { ceremony: 'x', credential: {} }],
    ['/user/passkeys/rename', { id: 'x', name: 'x' }],
    ['/user/passkeys/remove', { id: 'x', password: PASSWORD }],
    ['/user/email', { email: 'eve@example.test', password: PASSWORD }],
    ['/user/delete', { password: PASSWORD }],
  ] as const) {
    const answer = await app.post(path, body, { token });
    t.match([answer.status, errorOf(answer)], [401, 'SECOND_FACTOR_REQUIRED'], path);
  }
  const strong = (await passkey.signIn?.())?.body.data.accessToken;
  await setUpFactor(app, strong);
  t.equal(
    (await addPasskey(app, { accessToken: strong })).added.status,
    201,
    'with the passkey, everything works',
  );
});

t.test('the pages of factors are closed to a session of a password alone', async (t) => {
  const app = await place(t);
  const bob = await app.person('bob', { role: 'support', hasFactor: false });
  const browser = await bob.browse();
  for (const path of ['/second-factor', '/passkeys']) t.equal((await browser.get(path)).status, 401, path);
  const { headers } = await browser.get('/password');
  const form = await browser.get('/password');
  t.ok(headers);
  for (const path of ['/second-factor/begin', '/passkeys/add', '/second-factor/confirm']) {
    const action = `${browser.origin}/account${path}`;
    const forged: Page = { ...form, form: () => ({ ...form.form(), action }) };
    t.equal((await browser.browser.submit(forged, { code: '123456' })).status, 401, path);
  }
  t.equal(
    (await (await (await app.person('eve', { hasFactor: false })).browse()).get('/passkeys')).status,
    200,
  );
});

t.test('an account that has a new owner has no role', async (t) => {
  const app = await place(t, { emailLogin: true });
  const users = userCollection(await storeOf(t, app));
  /** An account that was registered with another person's address, and got a role when it was verified. */
  const taken = async (email: string) => {
    const { id } = await app.signUp({ email });
    await app.setRole(id, 'owner');
    return id;
  };
  const roleOf = async (id: string) => (await users.findOne({ id }))?.operatorRole;
  const verified = await taken('verified@example.test');
  await app.post('/auth/resend-verification', { email: 'verified@example.test' });
  const token = await app.tokenIn(VERIFY);
  const link = { token, password: 'another long passphrase' };
  t.equal((await app.post('/auth/verify-email', link)).status, 200);
  t.equal(await roleOf(verified), undefined, 'the link of a verification with another password');

  const reset = await taken('reset@example.test');
  await app.post('/auth/forgot-password', { email: 'reset@example.test' });
  const password = 'another long passphrase';
  t.equal(
    (await app.post('/auth/reset-password', { token: await app.tokenIn(RESET), password })).status,
    200,
  );
  t.equal(await roleOf(reset), undefined, 'a new password for an address that was not verified');

  const kept = await app.person('kept', { role: 'owner' });
  await app.post('/auth/forgot-password', { email: kept.email });
  t.equal(
    (await app.post('/auth/reset-password', { token: await app.tokenIn(RESET), password })).status,
    200,
  );
  t.equal(await roleOf(kept.id), 'owner', 'the owner of a verified address stays');

  const coded = await taken('coded@example.test');
  const asked = await app.post('/auth/email-login', { email: 'coded@example.test' });
  const { text } = await app.mail(sentence('mail.login-code.subject'));
  const code = /^[0-9A-Z]{4}-[0-9A-Z]{4}$/m.exec(text)?.[0];
  const { loginToken } = asked.body.data;
  const redeemed = await app.post('/auth/email-login/redeem', { loginToken, code });
  t.equal(redeemed.status, 200, redeemed.text);
  t.equal(await roleOf(coded), undefined, 'a mailed code');
});

t.test('a password alone does not make the session of a passkey recent', async (t) => {
  const app = await place(t, { publicUrl: ORIGIN });
  const people = {
    ada: await app.signUp({ emailVerified: true }),
    eve: await app.signUp({ emailVerified: true }),
  };
  for (const [name, person] of Object.entries(people)) {
    const passkey = await addPasskey(app, person);
    if (name === 'ada') await app.setRole(person.id, 'owner');
    const signedIn = await passkey.signIn?.();
    if (!signedIn) throw new Error('There is no passkey.');
    const settings = (cookie: string) => app.request('GET', '/admin/api/settings', { headers: { cookie } });
    if (name === 'ada') t.equal((await settings(cookieOf(signedIn))).status, 200);
    const { accessToken: token } = signedIn.body.data;
    const again = await app.post('/auth/reauthenticate', { password: PASSWORD }, { token, headers: MODE });
    t.equal(again.status, 200, again.text);
    const isStrong = again.body.data.session.amr.includes('mfa');
    t.equal(isStrong, name === 'eve', name);
    t.equal((await settings(cookieOf(again))).status, 401, name);
  }
});

t.test('during maintenance, operators sign in again, and nobody else', async (t) => {
  const app = await place(t);
  const ada = await app.person('ada', { role: 'owner' });
  const eve = await app.person('eve');
  const { version } = (await app.admin('GET', '/admin/api/settings')).body.data;
  await app.admin('PATCH', '/admin/api/settings', { maintenanceMode: true, version });
  const browser = await visit(app);
  const page = await browser.get('/operator?page=%2Fsettings');
  t.match([page.status, titleOf(page)], [401, sentence('user-sign-in.title')]);
  t.ok(isAt(await ada.signIn(browser, page), '/admin/settings'));
  t.equal((await browser.get()).status, 503, 'the account page is closed');
  app.clock.advance(16 * MINUTE);
  const again = await ada.signIn(browser, await open(browser, `/users/${eve.id}/suspend`));
  t.ok(isAt(again, `/admin/users/${eve.id}/suspend`), again.url);

  const other = await visit(app);
  const refused = await eve.signIn(other, await other.get('/operator'));
  t.equal(refused.status, 503);
  t.notOk(other.browser.cookies()['saas-session'], 'no session');
  t.equal((await other.get('/sign-in')).status, 503);
  const { items } = (await app.admin('GET', `/admin/api/users/${eve.id}/sessions`)).body.data;
  t.equal(
    items.filter(({ state }: { state: string }) => state === 'active').length,
    1,
    'only that of before',
  );
});

t.test('users cannot give themselves a role', async (t) => {
  const app = await place(t);
  const eve = await app.person('eve');
  const { accessToken: token } = eve;
  const given = { operatorRole: 'owner', publicMetadata: { operatorRole: 'owner' } };
  await app.request('PATCH', '/api/user/profile', { token, body: { name: 'Eve', ...given } });
  await app.post('/auth/register', { email: 'new@example.test', password: PASSWORD, ...given });
  const { users } = app.server.fastify.saas;
  await users.update({ id: eve.id }, given as object).catch(() => undefined);
  await users.create({ email: 'made@example.test', ...given } as never).catch(() => undefined);
  t.same((await app.admin('GET', '/admin/api/users?show=operators')).body.data.items, []);
});

t.test('a role ends what opened the account before, and a suspension ends the role', async (t) => {
  const app = await place(t);
  const ada = await app.person('ada');
  const before = await ada.browse();
  const give = (role: string) => app.admin('POST', `/admin/api/users/${ada.id}/operator-role`, { role });
  t.equal((await give('owner')).status, 200);
  t.equal(await app.me(ada), 401, 'a session from before the role');
  t.match(titleOf(await before.get('')), /Sign in/);
  const during = await ada.browse();
  t.equal((await call(app, during, 'GET', '/api/users')).status, 200);

  t.equal((await app.admin('POST', `/admin/api/users/${ada.id}/suspend`)).status, 200);
  t.equal((await give('owner')).status, 400, 'none while it is suspended');
  t.equal((await app.admin('POST', `/admin/api/users/${ada.id}/unsuspend`)).status, 200);
  t.equal((await call(app, await ada.browse(), 'GET', '/api/users')).status, 401, 'it does not come back');
});

t.test('the session that a removed factor has opened ends with it', async (t) => {
  const app = await place(t);
  const [ada, bob] = [await app.person('ada', { role: 'support' }), await app.person('bob')];
  const [operator, user] = [await ada.browse(), await bob.browse()];
  for (const { id } of [ada, bob])
    t.equal((await app.admin('POST', `/admin/api/users/${id}/remove-second-factor`)).status, 200);
  t.match(titleOf(await operator.get('')), /Sign in/);
  t.notMatch(titleOf(await user.get('')), /Sign in/, 'others stay signed in');
});

t.test('nobody acts as an operator', async (t) => {
  const app = await place(t, { userRoles: ['helper'], impersonationRoles: ['helper'] });
  const sam = await app.person('sam', { role: 'support' });
  await app.server.fastify.saas.users.setRoles({ id: sam.id }, ['helper']);
  const [olga, cora] = [await app.person('olga', { role: 'owner' }), await app.signUp()];
  const browser = await sam.browse();
  t.equal((await browser.get(`/impersonate?user=${cora.id}`)).status, 200);
  t.equal((await browser.get(`/impersonate?user=${olga.id}`)).status, 403);
});

t.test('the audit finds what an operator has done, under a name that nobody else can choose', async (t) => {
  const app = await place(t);
  const [sam, cora] = [await app.person('sam', { role: 'support' }), await app.signUp()];
  const browser = await sam.browse();
  const renamed = await call(app, browser, 'POST', `/api/users/${cora.id}/rename`, { body: { name: 'C' } });
  t.equal(renamed.status, 200, renamed.text);
  const [refused] = [await call(app, browser, 'POST', `/api/users/${cora.id}/delete`, { body: {} })];
  t.equal(refused.status, 403);
  for (const by of [sam.id, sam.email]) {
    const { body } = await app.admin('GET', `/admin/api/audit?q=by:${by}`);
    t.match(body.data.items, [{ event: 'user.renamed', by: sam.id }], by);
  }
  t.match((await app.admin('GET', '/admin/audit')).text, `sam (${sam.email})`);
  const refusals = await app.admin('GET', '/admin/api/audit?event=admin.refused');
  t.equal(refusals.body.data.items.length, 1);
  const found = await app.admin('GET', '/admin/api/users?q=sam&show=operators');
  t.match(found.body.data.items, [{ id: sam.id }]);
});

await onEngines((engine, fresh) =>
  t.test(`${engine}: a role needs a verified address and a factor`, async (t) => {
    const uri = fresh(t);
    const app = await saasApp(t, { ...OPTIONS, databaseUri: uri });
    const give = (id: string, role = 'owner') => {
      // Records of one millisecond have no order.
      app.clock.advance(1);
      return app.admin('POST', `/admin/api/users/${id}/operator-role`, { role });
    };
    const weak = await app.signUp({ email: 'weak@example.test', emailVerified: true });
    const refused = await give(weak.id);
    t.match([refused.status, refused.text], [400, /confirmed address and a passkey or a second factor/]);
    await app.post('/user/second-factor/begin', undefined, { token: weak.accessToken });
    t.equal((await give(weak.id)).status, 400, 'a factor that is not confirmed');
    await setUpFactor(app, weak.accessToken);
    const users = userCollection(await storeOf(t, app));
    await users.changeOne({ id: weak.id }, { set: { emailVerified: false } });
    t.equal((await give(weak.id)).status, 400, 'an address that is not verified');
    await users.changeOne({ id: weak.id }, { set: { emailVerified: true } });
    t.equal((await give(weak.id)).status, 200);
    t.equal((await give(weak.id, 'support')).status, 200);
    t.equal((await give(weak.id, 'king')).status, 400);
    const list = await app.admin('GET', '/admin/api/users?show=operators');
    t.match(list.body.data.items, [{ id: weak.id, operatorRole: 'support' }]);
    const removed = await app.admin('POST', `/admin/api/users/${weak.id}/remove-second-factor`, {});
    t.equal(removed.status, 200);
    t.equal((await give(weak.id, 'owner')).status, 400, 'without the factor, no other role');
    t.equal((await give(weak.id, 'none')).status, 200);
    t.same((await app.admin('GET', '/admin/api/users?show=operators')).body.data.items, []);
    const { items: records } = await auditCollection(await storeOf(t, app)).page({ sort: 'id', limit: 100 });
    const details = records
      .filter(({ event }) => event === 'operator.role-changed')
      .map(({ by, subject, detail }) => [by, subject, detail]);
    const change = (before: string | null, after: string | null) => [
      ...['operator', weak.id],
      JSON.stringify({ before: { role: before }, after: { role: after } }),
    ];
    t.same(details, [change(null, 'owner'), change('owner', 'support'), change('support', null)]);
  }),
);
