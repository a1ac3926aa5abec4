import t from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import { createClients } from '../../../src/idp/provisioning/clients.js';
import { clientCollection, principalCollection } from '../../../src/idp/provisioning/store.js';
import { auditOf, basic, PASSWORD } from '../../kit/app.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { ADMIN_TOKEN, type Credentials, comparable, type IdpApp, idpApp, idpStore } from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { countedRandom } from '../../kit/random.js';
import { REGISTRABLE, UNREGISTRABLE } from '../../kit/redirect-uris.js';

/** How the operator manages existing principals, and agents their own account. */

const change = (idp: IdpApp, sub: string, verb: 'disable' | 'enable') =>
  idp.admin('POST', `/v1/principals/${sub}/${verb}`);

const rotate = (idp: IdpApp, { handle, password }: Credentials, headers: Record<string, string> = {}) =>
  idp.request('POST', '/v1/agents/self/rotate', {
    headers: { authorization: basic(handle, password), ...headers },
  });

t.test('principals are listed by handle, one by one and by prefix, without secrets', async (t) => {
  const idp = await idpApp(t);
  const [human, agent] = [await idp.makeHuman({ handle: 'zoe', name: 'Zoe' }), await idp.mintAgent()];
  await idp.admin('POST', '/v1/invites', { handle: 'Ångström' });
  const { body, text } = await idp.admin('GET', '/v1/principals');
  t.match(body, { next: null, principals: [{ sub: agent.sub }, { sub: human.sub }, { handle: 'ångström' }] });
  t.strictSame(body.principals[1], {
    sub: human.sub,
    handle: 'zoe',
    kind: 'human',
    name: 'Zoe',
    state: 'active',
    created_at: '2040-01-01T00:00:00.000Z',
    updated_at: '2040-01-01T00:00:00.000Z',
  });
  t.notMatch(text, /hash|secret|password|epoch|argon2|inv_/i);
  t.strictSame((await idp.admin('GET', `/v1/principals/${human.sub}`)).body, body.principals[1]);
  for (const sub of ['u_0', `u_${'0'.repeat(32)}`, 'zoe', '%00', 'x'.repeat(65)]) {
    const { status } = await idp.admin('GET', `/v1/principals/${sub}`);
    t.ok(status === 404 || status === 400, sub);
  }
  for (const [prefix, found] of [
    ['zo', 1],
    ['ZOE', 1],
    ['zoe!', 0],
    ['a%CC%8Angs', 1],
    ['x', 0],
  ] as const) {
    const { principals } = (await idp.admin('GET', `/v1/principals?prefix=${prefix}`)).body;
    t.equal(principals.length, found, prefix);
  }
  for (const query of ['prefix=', 'prefix=%00', 'prefix=a%20b', 'prefix=a&prefix=b', 'after=x', 'after=']) {
    t.equal((await idp.admin('GET', `/v1/principals?${query}`)).status, 400, query);
  }
});

t.test('disabling takes effect on the next request and permanently revokes what was issued', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const confirmed = await idp.mintAgent();
  const own = { handle: 'chosen@example.test', password: PASSWORD };
  const chosen = { ...own, sub: (await idp.request('POST', '/v1/accounts', { body: own })).body.sub };
  const human = await idp.makeHuman();
  for (const who of [confirmed, chosen, human]) {
    const token = (await idp.redeem(client, await idp.codeFor(client, who))).body.access_token;
    const code = await idp.codeFor(client, who);
    t.match(await change(idp, who.sub, 'disable'), {
      status: 200,
      body: { sub: who.sub, state: 'disabled' },
    });
    const unknown = await idp.authorize(client, { ...who, handle: 'nobody@example.test' });
    t.strictSame(comparable(await idp.authorize(client, who)), comparable(unknown));
    t.equal((await rotate(idp, who)).status, 401);
    t.match(await idp.redeem(client, code), { status: 400, body: { error: 'invalid_grant' } });
    t.equal((await idp.userinfo(token)).status, 401);
    t.equal((await change(idp, who.sub, 'disable')).status, 200, 'twice is once');

    // Records of the same millisecond have no order.
    idp.clock.advance(1);
    t.match(await change(idp, who.sub, 'enable'), { status: 200, body: { state: 'active' } });
    t.equal((await change(idp, who.sub, 'enable')).status, 200);
    t.equal((await idp.userinfo(token)).status, 401, 'a stolen token does not come back to life');
    t.equal((await idp.redeem(client, code)).status, 400);
    t.equal((await idp.authorize(client, who)).status, 302, 'the password does');
  }
  const { browser, page } = await idp.visit(client);
  idp.clock.advance(1);
  await change(idp, human.sub, 'disable');
  t.equal(
    (await browser.submit(page, { handle: human.handle, password: human.password })).status,
    401,
    'nor does a form that was open',
  );
  const events = (await auditOf(await idpStore(t, idp))).filter(({ subject }) => subject === human.sub);
  t.match(JSON.stringify(events), /principal\.disabled.*principal\.enabled.*principal\.disabled/);
});

t.test('disabling withdraws an invitation, and a new one is possible after enabling', async (t) => {
  const idp = await idpApp(t);
  const invite = async () => (await idp.admin('POST', '/v1/invites', { handle: 'ada' })).body;
  const path = new URL((await invite()).invite_url).pathname;
  const [{ sub }] = (await idp.admin('GET', '/v1/principals')).body.principals;
  t.match(await change(idp, sub, 'enable'), { status: 409, body: { error: 'wrong_state' } });
  t.match(await change(idp, sub, 'disable'), { status: 200, body: { state: 'disabled' } });
  t.equal((await idp.request('POST', path, { body: { password: PASSWORD } })).status, 404);
  t.match(await change(idp, sub, 'enable'), { status: 200, body: { state: 'invited' } });
  t.equal((await idp.request('POST', path, { body: { password: PASSWORD } })).status, 404);
  const again = new URL((await invite()).invite_url).pathname;
  t.match(await idp.request('POST', again, { body: { password: PASSWORD } }), { status: 201, body: { sub } });
});

t.test('a deleted agent is removed, and its handle stays reserved', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const [agent, disabled, human] = [await idp.mintAgent(), await idp.mintAgent(), await idp.makeHuman()];
  await change(idp, disabled.sub, 'disable');
  const token = (await idp.redeem(client, await idp.codeFor(client, agent))).body.access_token;
  for (const { sub } of [agent, disabled]) {
    t.match(await idp.admin('DELETE', `/v1/agents/${sub}`), { status: 204, text: '' });
    t.equal((await idp.admin('DELETE', `/v1/agents/${sub}`)).status, 404);
  }
  t.equal((await idp.admin('DELETE', `/v1/agents/${human.sub}`)).status, 404, 'people are not deleted so');
  t.equal((await idp.authorize(client, agent)).status, 401);
  t.equal((await idp.userinfo(token)).status, 401);
  for (const verb of ['disable', 'enable'] as const) {
    t.match(await change(idp, agent.sub, verb), { status: 409, body: { error: 'wrong_state' } });
  }
  const body = { handle: agent.handle, password: PASSWORD };
  t.equal((await idp.request('POST', '/v1/accounts', { body })).status, 409);
  t.equal((await idp.admin('POST', '/v1/agents', { handle: agent.handle })).status, 409);
  t.equal((await idp.admin('POST', '/v1/invites', { handle: agent.handle })).status, 409);
  const stored = await principalCollection(await idpStore(t, idp)).findOne({ id: agent.sub });
  t.match(stored, { state: 'deleted', handle: agent.handle });
  t.notMatch(JSON.stringify(stored), /Hash/);
});

t.test('an agent rotates its own password, and the old one is void at once', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const own = { handle: 'chosen@example.test', password: PASSWORD };
  const chosen = { ...own, sub: (await idp.request('POST', '/v1/accounts', { body: own })).body.sub };
  for (const agent of [await idp.mintAgent(), chosen]) {
    const token = (await idp.redeem(client, await idp.codeFor(client, agent))).body.access_token;
    const { status, headers, body } = await rotate(idp, agent);
    t.equal(status, 200);
    t.equal(headers['cache-control'], 'no-store');
    t.match(body.password, /^agp_[\w-]{43}$/);
    t.strictSame(body, { sub: agent.sub, handle: agent.handle, password: body.password });
    t.match(await rotate(idp, agent), { status: 401, body: { error: 'invalid_credentials' } });
    t.equal((await idp.authorize(client, agent)).status, 401);
    t.equal((await idp.userinfo(token)).status, 401);
    const renewed = { ...agent, password: body.password };
    t.equal((await idp.authorize(client, renewed)).status, 302);

    const answers = await Promise.all(Array.from({ length: 20 }, () => rotate(idp, renewed)));
    const winners = answers.filter(({ status }) => status === 200);
    t.equal(winners.length, 1);
    t.ok(answers.every(({ status }) => status === 200 || status === 401));
    const last = { ...agent, password: winners[0]?.body.password };
    t.equal((await idp.authorize(client, last)).status, 302);
  }
  const stored = await principalCollection(await idpStore(t, idp)).findOne({ id: chosen.sub });
  t.equal(stored?.passwordHash, undefined);

  const agent = await idp.mintAgent();
  const human = await idp.makeHuman();
  t.equal((await rotate(idp, human)).status, 401, 'people have no such password');
  t.equal(
    (await rotate(idp, { ...agent, password: 'wrong' })).headers['www-authenticate']?.slice(0, 5),
    'Basic',
  );
  t.equal((await idp.admin('POST', '/v1/agents/self/rotate')).status, 401, 'nor has the administrator');
  for (const headers of [
    { origin: 'https://evil.test' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-mode': 'navigate' },
  ]) {
    t.match(await rotate(idp, agent, headers), { status: 400, body: { error: 'browser_basic' } });
  }
  t.equal((await rotate(idp, agent)).status, 200);
});

t.test('failed password rotations count as failed sign-ins', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const agent = await idp.mintAgent();
  const wrong = { ...agent, password: `agp_${'x'.repeat(43)}` };
  for (let count = 0; count < 10; count++) {
    t.equal((await (count % 2 ? rotate(idp, wrong) : idp.authorize(client, wrong))).status, 401);
  }
  t.equal((await rotate(idp, wrong)).status, 429);
  t.equal((await idp.authorize(client, wrong)).status, 429);
  t.equal((await idp.authorize(client, agent)).status, 302, 'a right secret of 256 bits is accepted');
  t.equal((await rotate(idp, agent)).status, 200);
});

const URI = 'https://app.example.test/cb';

const NO_STRINGS = ['', null, 1, { $ne: '' }];

t.test('the secret of a client is returned once, and a public client has none', async (t) => {
  const idp = await idpApp(t);
  const { status, headers, body } = await idp.admin('POST', '/v1/clients', {
    name: 'App',
    redirect_uris: URI,
  });
  t.equal(status, 201);
  t.equal(headers['cache-control'], 'no-store');
  t.match(body.client_id, /^cid_[\w-]{22,}$/);
  t.match(body.client_secret, /^csec_[\w-]{43}$/);
  const { client_secret: secret, ...shown } = body;
  t.strictSame(shown, {
    client_id: body.client_id,
    client_name: 'App',
    redirect_uris: [URI],
    post_logout_redirect_uris: [],
    public: false,
    strict: false,
    token_endpoint_auth_method: 'client_secret_basic',
    principal_kinds: ['agent', 'human'],
    trusted: false,
    created_at: '2040-01-01T00:00:00.000Z',
  });
  const clients = clientCollection(await idpStore(t, idp));
  t.equal((await clients.findOne({ id: body.client_id }))?.secretHash, sha256(secret));

  idp.clock.advance(1);
  const whole = {
    client_name: 'Native',
    redirect_uris: ['com.example.app:/cb', 'http://127.0.0.1/cb'],
    post_logout_redirect_uris: 'https://app.example.test/bye',
    public: true,
    principal_kinds: ['human'],
  };
  const native = (await idp.admin('POST', '/v1/clients', whole)).body;
  t.match(native, { ...whole, post_logout_redirect_uris: ['https://app.example.test/bye'] });
  t.notOk('client_secret' in native);

  const list = await idp.admin('GET', '/v1/clients');
  t.strictSame(list.body, { clients: [shown, native], next: null });
  t.notMatch(list.text, /csec_|secret(?!_basic)/i);
  const created = (await auditOf(await idpStore(t, idp))).filter(({ event }) => event === 'client.created');
  t.same(
    created.map(({ subject }) => subject),
    [body.client_id, native.client_id],
  );
});

t.test('of eight rotations of one secret at the same time one is made, and its secret works', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const store = await idpStore(t, idp);
  const clients = createClients(clientCollection(store), {
    ...{
      commit: createCommit(store),
      audit: SILENT_AUDIT,
      clock: idp.clock,
      random: countedRandom('rotations'),
    },
  } as never);
  const rotate = () => clients.rotate(client.id, { atOnce: true }, COMMAND_SOURCE);
  const rotated = await Promise.all(Array.from({ length: 8 }, rotate));
  const [secret = '', ...more] = rotated.filter((one) => one !== null);
  t.equal(more.length, 0);
  const code = await idp.codeFor(client, await idp.mintAgent());
  t.equal((await idp.redeem({ ...client, secret }, code)).status, 200);
});

t.test('client metadata that is not supported is refused by its name', async (t) => {
  const idp = await idpApp(t);
  const unsupported = { trusted: true, client_secret: 'mine', client_uri: URI };
  const answer = await idp.admin('POST', '/v1/clients', { redirect_uris: URI, ...unsupported });
  t.match(answer, { status: 400, body: { error: 'invalid_client_metadata', details: Array } });
  t.match(
    answer.body.error_description,
    /not supported: trusted, client_secret, client_uri\. Supported: name, /,
  );
  t.same(
    answer.body.details.map(({ path }: { path: string }) => path),
    Object.keys(unsupported),
  );
  const many = Object.fromEntries(Array.from({ length: 900 }, (_, index) => [`${index}${'x'.repeat(3)}`, 1]));
  const bounded = await idp.admin('POST', '/v1/clients', { redirect_uris: URI, ...many });
  t.equal(bounded.body.details.length, 20);
  t.equal(await clientCollection(await idpStore(t, idp)).count(), 0);
});

t.test('redirect URIs are https, http to a loopback address, or a reverse-DNS scheme', async (t) => {
  const idp = await idpApp(t, { env: { NODE_ENV: 'production' } });
  for (const uri of REGISTRABLE) {
    for (const uris of [uri, [uri]]) {
      const answer = await idp.admin('POST', '/v1/clients', { redirect_uris: uris });
      t.match(answer, { status: 201, body: { redirect_uris: [uri] } }, uri);
    }
  }
  for (const uri of [...UNREGISTRABLE, ...NO_STRINGS]) {
    const name = JSON.stringify(uri)?.slice(0, 60);
    const answer = await idp.admin('POST', '/v1/clients', { redirect_uris: [URI, uri] });
    t.match(answer, { status: 400, body: { error: 'invalid_request' } }, name);
    const bye = { redirect_uris: URI, post_logout_redirect_uris: [uri] };
    t.equal((await idp.admin('POST', '/v1/clients', bye)).status, 400, name);
  }
  const two = { redirect_uris: [URI, 'http://x.test/'], post_logout_redirect_uris: ['*'] };
  const { details } = (await idp.admin('POST', '/v1/clients', two)).body;
  t.match(details, [{ path: 'redirect_uris.1' }, { path: 'post_logout_redirect_uris.0' }]);
  t.equal(await clientCollection(await idpStore(t, idp)).count(), 2 * REGISTRABLE.length);

  const development = await idpApp(t);
  t.equal(
    (await development.admin('POST', '/v1/clients', { redirect_uris: 'http://app.test/cb' })).status,
    201,
  );
});

t.test('a scheme without a dot is registered only if the operator allows it', async (t) => {
  const closed = await idpApp(t);
  const open = await idpApp(t, { nativeSchemes: ['cursor'] });
  const uri = 'cursor://app/callback';
  const refused = await closed.admin('POST', '/v1/clients', { redirect_uris: uri, public: true });
  t.match(refused, { status: 400, body: { error: 'invalid_request' } });
  const { body: client } = await open.admin('POST', '/v1/clients', { redirect_uris: uri, public: true });
  t.match(client, { redirect_uris: [uri] });
  for (const other of [
    'cursors://app/callback',
    'vscode://app/callback',
    'javascript:alert(1)',
    `${uri}?code=x`,
  ])
    t.equal((await open.admin('POST', '/v1/clients', { redirect_uris: other })).status, 400, other);
  const { page } = await open.visit({ id: client.client_id, redirectUri: uri });
  t.match(page.body, 'cursor:');
});

t.test('the management API accepts one JSON object of the right types', async (t) => {
  const idp = await idpApp(t, { limits: false });
  const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
    idp.request('POST', path, { body, headers: { authorization: `Bearer ${ADMIN_TOKEN}`, ...headers } });
  const invalid = { status: 400, body: { error: 'invalid_request' } };
  const person = { handle: 'ada', password: PASSWORD };
  const accepted = {
    ...{ '/v1/accounts': person, '/v1/agents': { handle: 'ada' } },
    ...{ '/v1/invites': { handle: 'ada' }, '/v1/clients': { redirect_uris: URI } },
  };
  for (const [path, right] of Object.entries(accepted)) {
    for (const body of ['', 'null', '[]', '"x"', '{', '{}', '['.repeat(16_000), '{"__proto__":{"a":1}}'])
      t.match(await post(path, body), invalid, `${path} ${body.slice(0, 50)}`);
    for (const name of [null, 1, ['x'], 'x'.repeat(201), 'a\0b', 'a\u202eb', 'a\ud800'])
      t.match(await post(path, { ...right, name }), invalid, `${path} ${JSON.stringify(name)}`);
    t.equal((await post(path, { ...right, name: 'x'.repeat(120_000) })).status, 413, path);
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/jsonx', ''])
      t.equal((await post(path, JSON.stringify(right), { 'content-type': type })).status, 415, type);
    t.equal((await post(path, JSON.stringify(right), { 'content-encoding': 'gzip' })).status, 415, path);
  }
  const wrong: Record<string, unknown[]> = {
    redirect_uris: [null, [], '', {}, 1, [[]], [null], Array(51).fill(URI)],
    public: ['true', 1, null, []],
    principal_kinds: [[], 'human', ['Human'], ['human', 'human'], [null], {}],
  };
  for (const [name, values] of Object.entries(wrong)) {
    for (const value of values)
      t.match(await post('/v1/clients', { redirect_uris: URI, [name]: value }), invalid, name);
  }
  const store = await idpStore(t, idp);
  t.equal(await clientCollection(store).count(), 0);
  t.equal(await principalCollection(store).count(), 0);
});

t.test('a long list of principals or clients comes in pages, each once', async (t) => {
  const idp = await idpApp(t, { limits: false });
  for (let index = 0; index < 205; index++) {
    await idp.admin('POST', '/v1/agents', { handle: `${index % 2 ? 'odd' : 'even'}-${index}` });
    await idp.createClient({ public: true });
  }
  for (const [path, list, count] of [
    ['/v1/principals?', 'principals', 205],
    ['/v1/principals?prefix=odd&', 'principals', 102],
    ['/v1/clients?', 'clients', 205],
  ] as const) {
    const seen: string[] = [];
    let after = '';
    for (let pages = 0; pages < 4; pages++) {
      const { body } = await idp.admin('GET', path + after);
      seen.push(...body[list].map((one: { sub?: string; client_id: string }) => one.sub ?? one.client_id));
      if (body.next === null) break;
      after = `after=${encodeURIComponent(body.next)}`;
    }
    t.equal(seen.length, count, path);
    t.equal(new Set(seen).size, count, path);
  }
  for (const query of ['after=x', 'after=', 'after=%00', 'after=a&after=b', `after=${'x'.repeat(1025)}`])
    t.equal((await idp.admin('GET', `/v1/clients?${query}`)).status, 400, query);
});
