import t from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { createLinks } from '../../../src/idp/provisioning/links.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { auditOf, type Call, PASSWORD } from '../../kit/app.js';
import { ADMIN_TOKEN, comparable, type IdpApp, ISSUER, idpApp, idpStore } from '../../kit/idp.js';
import { sentence } from '../../kit/sentences.js';

const HANDLE = 'ada@example.test';
const DAY = 86_400_000;

const invite = (idp: IdpApp, more: Record<string, unknown> = {}) =>
  idp.admin('POST', '/v1/invites', { handle: HANDLE, ...more });

/** The path of a link. */
const pathOf = (url: string) => new URL(url).pathname;

async function invited(idp: IdpApp, more?: Record<string, unknown>): Promise<string> {
  const { status, text, body } = await invite(idp, more);
  if (status !== 201) throw new Error(`${status}: ${text}`);
  return pathOf(body.invite_url);
}

const accept = (idp: IdpApp, path: string, password: unknown = PASSWORD, more: Call = {}) =>
  idp.request('POST', path, { body: { password }, ...more });

const submit = (idp: IdpApp, path: string, form: Record<string, string>, headers = {}) =>
  idp.request('POST', path, { form, headers });

/** Actions that must fail for a person who has not accepted the invitation. */
async function isInert(idp: IdpApp): Promise<boolean> {
  const client = await idp.createClient();
  const tries = [PASSWORD, '', `agp_${'x'.repeat(43)}`].map((password) =>
    idp.authorize(client, { sub: '', handle: HANDLE, password }),
  );
  return (await Promise.all(tries)).every(({ status }) => status === 401);
}

t.test('an invitation is a link below the public address, returned once and stored as a hash', async (t) => {
  const idp = await idpApp(t);
  const { status, headers, body } = await invite(idp, { handle: 'Ada@Example.test', name: 'Ada' });
  t.equal(status, 201);
  t.equal(headers['cache-control'], 'no-store');
  const token = body.invite_url.slice(`${ISSUER}/invite/`.length);
  t.match(token, /^[0-9a-f]{32}[\w-]{43}$/);
  t.strictSame(body, {
    handle: HANDLE,
    invite_url: `${ISSUER}/invite/${token}`,
    expires_at: '2040-01-08T00:00:00.000Z',
    days: 7,
  });
  const stored = await principalCollection(await idpStore(t, idp)).findOne({ handle: HANDLE });
  t.match(stored, { kind: 'human', state: 'invited', name: 'Ada', linkHash: sha256(token) });
  const list = await idp.admin('GET', '/v1/principals');
  t.match(list.body.principals, [{ handle: HANDLE, state: 'invited', invite_expires_at: body.expires_at }]);
  const all = JSON.stringify([stored, list.body, await auditOf(await idpStore(t, idp))]);
  t.notOk(all.includes(token) || all.includes(token.slice(32)));
  t.ok(await isInert(idp));
});

t.test('an invitation needs a valid handle and 1 to 30 whole days', async (t) => {
  const idp = await idpApp(t);
  for (const days of [0, -1, 31, 1.5, 1e9, '7', '', null, true, [7], {}]) {
    const answer = await invite(idp, { days });
    t.match(answer, { status: 400, body: { error: 'invalid_days' } }, JSON.stringify(days));
  }
  for (const handle of ['ab', 'a b', 'a:b', 'cid_x', 'u_abc', null, 1, undefined]) {
    t.match(await invite(idp, { handle }), { status: 400, body: { error: 'invalid_request' } }, `${handle}`);
  }
  for (const kind of ['agent', 'Human', null, ['human']]) {
    t.match(await invite(idp, { kind }), { status: 400, body: { error: 'kind_not_allowed' } });
  }
  for (const password of [PASSWORD, '', null]) {
    t.match(await invite(idp, { password }), { status: 400, body: { details: [{ path: 'password' }] } });
  }
  t.equal(await principalCollection(await idpStore(t, idp)).count(), 0);
  for (const days of [1, 30]) {
    const { body } = await invite(idp, { handle: `days${days}`, days });
    t.match(body, { days, expires_at: new Date(idp.clock.now() + days * DAY).toISOString() });
  }
});

t.test('an invited handle is taken and cannot be invited for another person', async (t) => {
  const idp = await idpApp(t);
  await invited(idp);
  const register = { handle: HANDLE, password: PASSWORD, kind: 'human' };
  t.equal((await idp.request('POST', '/v1/accounts', { body: register })).status, 409);
  t.equal((await idp.admin('POST', '/v1/agents', { handle: HANDLE })).status, 409);

  const [human, agent, disabled, deleted] = [
    await idp.makeHuman(),
    await idp.mintAgent(),
    await idp.mintAgent(),
    await idp.mintAgent(),
  ];
  await idp.admin('POST', `/v1/principals/${disabled.sub}/disable`);
  t.equal((await idp.admin('DELETE', `/v1/agents/${deleted.sub}`)).status, 204);
  const principals = principalCollection(await idpStore(t, idp));
  for (const { sub, handle } of [human, agent, disabled, deleted]) {
    const before = await principals.findOne({ id: sub });
    const answer = await invite(idp, { handle });
    t.match(answer, { status: 409, body: { error: 'handle_taken' } });
    t.notMatch(answer.text, /invite\//);
    t.strictSame(await principals.findOne({ id: sub }), before);
  }
});

t.test('a new invitation keeps the account and voids the older link', async (t) => {
  const idp = await idpApp(t);
  const older = await invited(idp);
  const newer = await invited(idp, { days: 1, name: 'Ada' });
  t.equal((await idp.request('GET', older)).status, 404);
  t.equal((await accept(idp, older)).status, 404);
  t.match(await accept(idp, newer), { status: 201, body: { handle: HANDLE, kind: 'human' } });
  t.equal((await invite(idp)).status, 409, 'and it cannot be invited again');
  t.equal(await principalCollection(await idpStore(t, idp)).count(), 1);
});

t.test('a person accepts an invitation without JavaScript and can then sign in', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const path = await invited(idp);
  const page = await idp.request('GET', path, { headers: { accept: 'text/html' } });
  t.match(page, { status: 200, text: new RegExp(`value="${HANDLE}"`) });
  const done = await submit(
    idp,
    path,
    { password: PASSWORD, password_confirm: PASSWORD },
    { origin: ISSUER, 'sec-fetch-site': 'same-origin' },
  );
  t.match(done, { status: 303, headers: { location: '/invite/done', 'set-cookie': undefined } });
  t.match(await idp.request('GET', '/invite/done'), { status: 200, text: sentence('invite-done.title') });
  const { browser, page: form } = await idp.visit(client);
  const end = await browser.submit(form, { handle: HANDLE, password: PASSWORD });
  t.match(end.location, /code=ac_/);
  const events = (await auditOf(await idpStore(t, idp))).map(({ event }) => event);
  for (const event of ['client.created', 'human.invited', 'invitation.accepted', 'login.succeeded']) {
    t.ok(events.includes(event), event);
  }
});

t.test('viewing an invitation does not use it up, and reveals nothing without the link', async (t) => {
  const idp = await idpApp(t);
  const path = await invited(idp);
  const { calls } = idp.random;
  for (let count = 0; count < 100; count++) {
    for (const method of ['GET', 'HEAD']) {
      const { status, headers } = await idp.request(method, path, { headers: { purpose: 'prefetch' } });
      t.equal(status, 200);
      t.match(headers, {
        'cache-control': 'no-store',
        'referrer-policy': 'same-origin',
        'x-frame-options': 'DENY',
        'content-security-policy': /default-src 'none'.*form-action 'self'; .*frame-ancestors 'none'/,
      });
    }
  }
  t.equal(idp.random.calls, calls);
  t.notMatch((await idp.request('GET', path)).text, /<script|https?:\/\/(?!id\.example)/);
  for (const method of ['PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
    t.equal((await idp.request(method, path)).status, method === 'OPTIONS' ? 404 : 405, method);
  }
  t.equal((await accept(idp, path)).status, 201);

  const expired = await invited(idp, { handle: 'late@example.test', days: 1 });
  idp.clock.advance(DAY);
  const dead = {
    used: [path, 410],
    expired: [expired, 410],
    'of another secret': [`${path.slice(0, -43)}${'x'.repeat(43)}`, 404],
    'of another principal': [`/invite/${'0'.repeat(32)}${path.slice(-43)}`, 404],
    shapeless: ['/invite/x', 404],
    long: [`/invite/${'x'.repeat(90)}`, 404],
    encoded: ['/invite/%00%e2%80%ae', 404],
  } as const;
  const texts = new Set<string>();
  for (const [name, [link, status]] of Object.entries(dead)) {
    const pages = [
      await idp.request('GET', link),
      await idp.request('GET', link, { headers: { accept: 'text/html' } }),
      await submit(idp, link, { password: `${PASSWORD}!` }),
      await submit(idp, link, { password: 'x', password_confirm: 'y' }),
    ];
    for (const page of pages) {
      t.equal(page.status, status, name);
      texts.add(JSON.stringify({ ...comparable(page), status: 0 }));
      t.notMatch(page.text, /@example\.test/);
    }
    const error = status === 404 ? 'link_unknown' : 'link_spent';
    t.match(await accept(idp, link, `${PASSWORD}!`), { status, body: { error } }, name);
  }
  t.equal(texts.size, 1, 'all pages are the same to the byte');
});

t.test('the request that has used a link can be repeated until the link expires', async (t) => {
  const idp = await idpApp(t);
  const path = await invited(idp, { days: 1 });
  const principals = principalCollection(await idpStore(t, idp));
  t.equal((await accept(idp, path)).status, 201);
  const stored = await principals.findOne({ handle: HANDLE });
  const form = { password: PASSWORD, password_confirm: PASSWORD };
  t.match(await accept(idp, path), { status: 201, body: { handle: HANDLE } });
  t.match(await submit(idp, path, form), { status: 303, headers: { location: '/invite/done' } });
  t.same(await principals.findOne({ handle: HANDLE }), stored, 'it changes nothing');
  const from = '192.0.2.1';
  for (let count = 0; count < 10; count++)
    t.equal((await accept(idp, path, `guess ${count}`, { from })).status, 410);
  const { status } = await accept(idp, path, PASSWORD, { from });
  t.equal(status, 410, 'passwords cannot be guessed with it');
  idp.clock.advance(DAY);
  t.equal((await accept(idp, path)).status, 410);
});

t.test('a link expires on time, before or after the purge', async (t) => {
  const idp = await idpApp(t);
  const path = await invited(idp, { days: 1 });
  idp.clock.advance(DAY - 1);
  t.equal((await idp.request('GET', path)).status, 200);
  idp.clock.advance(1);
  t.equal((await accept(idp, path)).status, 410);
  t.equal((await idp.request('GET', path)).status, 410);
  t.ok(await isInert(idp));
  t.equal((await accept(idp, await invited(idp))).status, 201, 'and can be made anew');
});

t.test('a refused password does not use up the link', async (t) => {
  const idp = await idpApp(t, { env: { NODE_ENV: 'production' } });
  const path = await invited(idp);
  const weak = [
    '',
    'short',
    'password',
    HANDLE,
    'x'.repeat(1025),
    `agp_${'x'.repeat(43)}`,
    'half\ufffd-password',
  ];
  for (const password of weak) {
    const answer = await accept(idp, path, password);
    t.match(
      answer,
      { status: 422, body: { error: 'weak_password', details: [{ path: 'password' }] } },
      password,
    );
    const page = await submit(idp, path, { password, password_confirm: password });
    t.match(page, { status: 422, text: /<form[\s\S]*role="alert"/ }, password);
  }
  const different = { password: PASSWORD, password_confirm: `${PASSWORD}!` };
  t.match(await accept(idp, path, 0, { body: different }), {
    status: 422,
    body: { error: 'passwords_differ' },
  });
  t.match(await submit(idp, path, different), { status: 422, text: sentence('password.differ') });
  for (const body of [{}, { password: null }, { password: ['x'] }, [], '{', { password: 1 }]) {
    t.equal((await accept(idp, path, 0, { body })).status, 400, JSON.stringify(body));
  }
  for (const form of ['', 'password=a&password=b', 'password_confirm=x']) {
    t.equal((await idp.request('POST', path, { form })).status, 400, form);
  }
  const type = { 'content-type': 'text/plain' };
  t.equal((await accept(idp, path, 0, { body: `{"password":"${PASSWORD}"}`, headers: type })).status, 415);
  t.equal((await accept(idp, path, 'x'.repeat(20_000))).status, 413);
  t.equal((await accept(idp, path)).status, 201);
});

t.test('another site cannot submit the form, and a program can', async (t) => {
  const idp = await idpApp(t);
  const path = await invited(idp);
  const foreign: Record<string, string>[] = [
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'cross-site', origin: ISSUER },
    { origin: 'https://evil.test' },
    { origin: 'null' },
    { origin: `${ISSUER}.evil.test` },
    { 'sec-fetch-site': 'same-origin', origin: 'https://evil.test' },
  ];
  for (const headers of foreign) {
    const answer = await submit(idp, path, { password: PASSWORD }, headers);
    t.match(answer, { status: 403, body: { error: 'foreign_form' } }, JSON.stringify(headers));
    t.equal((await accept(idp, path, PASSWORD, { headers })).status, 403);
  }
  const fetchOfNode = { 'sec-fetch-mode': 'cors' };
  t.equal((await accept(idp, path, PASSWORD, { headers: fetchOfNode })).status, 201);
});

t.test('other secrets do not open an invitation', async (t) => {
  const idp = await idpApp(t);
  const path = await invited(idp);
  const token = path.slice('/invite/'.length);
  const [agent, client] = [await idp.mintAgent(), await idp.createClient()];
  const code = await idp.codeFor(client, agent);
  const { access_token: access, id_token: jwt } = (await idp.redeem(client, code)).body;
  const others = [code, access, jwt.slice(0, 90), agent.password, client.secret, ADMIN_TOKEN, sha256(token)];
  const tampered = [
    token.slice(1),
    `${token}x`,
    token.toUpperCase(),
    `${token.slice(0, -1)}_`,
    token.slice(32),
  ];
  for (const other of [...others, ...tampered]) {
    const answer = await accept(idp, `/invite/${encodeURIComponent(String(other))}`);
    t.match(answer, { status: 404, body: { error: /link_unknown|not_found/ } });
  }
  t.equal((await idp.userinfo(token)).status, 401, 'and the link opens nothing else');
  t.match(await idp.redeem(client, token), { status: 400 });
  t.equal((await accept(idp, path)).status, 201);
});

t.test('a flood of invalid links never reaches argon2', async (t) => {
  const idp = await idpApp(t);
  const path = await invited(idp);
  const { calls } = idp.random;
  const paths = [
    `/invite/${'0'.repeat(32)}${'x'.repeat(43)}`,
    `${path.slice(0, -43)}${'x'.repeat(43)}`,
  ] as const;
  await Promise.all(Array.from({ length: 200 }, (_, index) => accept(idp, paths[index % 2 ? 0 : 1])));
  // Each hash draws a salt.
  t.equal(idp.random.calls, calls);
});

t.test('of 50 concurrent acceptances one succeeds', async (t) => {
  const idp = await idpApp(t, { limits: false });
  const client = await idp.createClient();
  const path = await invited(idp);
  const passwords = Array.from({ length: 50 }, (_, index) => `${PASSWORD} ${index}`);
  const answers = await Promise.all(passwords.map((password) => accept(idp, path, password)));
  const statuses = answers.map(({ status }) => status);
  t.same(statuses.toSorted(), [201, ...Array(49).fill(410)]);
  const signIns = await Promise.all(
    passwords.map((password) => idp.authorize(client, { sub: '', handle: HANDLE, password })),
  );
  t.same(
    signIns.map(({ status }) => status),
    statuses.map((status) => (status === 201 ? 302 : 401)),
    'only the winner signs in',
  );
});

t.test('a link without an account reads as much from the store as one with an account', async (t) => {
  const idp = await idpApp(t);
  const principals = principalCollection(await idpStore(t, idp));
  await invited(idp, { handle: 'first@example.test' });
  const id = (await invited(idp)).slice('/invite/'.length, -43);
  const readsFor = async (id: string, setup: object | null, code: string) => {
    const reads: string[] = [];
    const counting = {
      async page(query: Parameters<typeof principals.page>[0]) {
        const page = await principals.page(query);
        reads.push(...page.items.map(() => 'principal'));
        return page;
      },
    };
    const look = async () => reads.push('setup') && setup;
    const links = createLinks(counting as never, { firstOperator: { look }, clock: idp.clock } as never);
    await t.rejects(links.look(id + 'x'.repeat(43), false), { code });
    return reads.sort();
  };
  for (const other of [id, id.replace(/.{8}$/, '0'.repeat(8)), 'f'.repeat(32)])
    t.same(await readsFor(other, null, 'link_unknown'), ['principal', 'setup']);
  const expired = { expiresAt: 1, hasExpired: true };
  t.same(
    await readsFor(id, expired, 'link_unknown'),
    ['principal', 'setup'],
    'not that of the first operator',
  );
  t.same(await readsFor('f'.repeat(32), expired, 'link_spent'), ['principal', 'setup']);
});

t.test('people are invited and agents minted while sign-up is closed', async (t) => {
  const idp = await idpApp(t, { disableSignup: true });
  await idp.mintAgent();
  t.match(await accept(idp, await invited(idp)), { status: 201, body: { handle: HANDLE, kind: 'human' } });
});

t.test('invitations require the admin token and share the counter of agents', async (t) => {
  const idp = await idpApp(t);
  for (const [token, error] of [
    [undefined, 'unauthenticated'],
    ['wrong', 'invalid_token'],
  ] as const) {
    const answer = await idp.request('POST', '/v1/invites', { body: '{', ...(token && { token }) });
    t.match(answer, { status: 401, body: { error } });
  }
  const many = Array.from({ length: 60 }, (_, index) => index);
  for (const index of many) {
    const path = index % 2 ? '/v1/invites' : '/v1/agents';
    const call = { token: ADMIN_TOKEN, from: '192.0.2.1', body: { handle: `some${index}` } };
    t.equal((await idp.request('POST', path, call)).status, 201);
  }
  for (const path of ['/v1/invites', '/v1/agents']) {
    const call = { token: ADMIN_TOKEN, from: '192.0.2.1', body: { handle: 'one-more' } };
    t.equal((await idp.request('POST', path, call)).status, 429);
  }
});

t.test('under a path of a host all links point below it', async (t) => {
  const idp = await idpApp(t, { prefix: '/idp', publicUrl: `${ISSUER}/tenant/idp` });
  const { body } = await invite(idp);
  t.match(body.invite_url, `${ISSUER}/tenant/idp/invite/`);
  const path = new URL(body.invite_url).pathname.slice('/tenant/idp'.length);
  const { text } = await idp.request('GET', path);
  t.match(text.replaceAll('&#x2F;', '/'), `action="/tenant/idp${path}"`);
  const done = await submit(idp, path, { password: PASSWORD }, { origin: ISSUER });
  t.equal(done.headers['location'], '/tenant/idp/invite/done');
});
