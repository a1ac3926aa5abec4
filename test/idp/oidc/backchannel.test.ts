import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createLocalJWKSet, jwtVerify } from 'jose';
import t, { type Test } from 'tap';
import { isPublicAddress } from '../../../src/core/kernel/addresses.js';
import { HOUR, MINUTE, SECOND } from '../../../src/core/kernel/clock.js';
import type { Audit } from '../../../src/core/ops/audit.js';
import { effectOf } from '../../../src/core/ops/commit.js';
import { createOutbound } from '../../../src/core/outbound/request.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { createLogoutRequest } from '../../../src/idp/oidc/backchannel/request.js';
import { createBackchannelLogout } from '../../../src/idp/oidc/backchannel/service.js';
import { logoutNoticeCollection } from '../../../src/idp/oidc/backchannel/store.js';
import { type SessionDocument, sessionCollection } from '../../../src/idp/oidc/store.js';
import { fakeClock } from '../../kit/clock.js';
import { NO_EFFECT, SILENT_AUDIT } from '../../kit/effects.js';
import { grantedIn } from '../../kit/granted.js';
import { authorizePath, claimsOf, codeIn, idpApp, idpStore, type RegisteredClient } from '../../kit/idp.js';
import { oidcOn } from '../../kit/oidc.js';
import { COMMAND_SOURCE, enterConsole, makeOperator } from '../../kit/operator.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';

/** Applications are told that a session has ended. */

/** Applications that receive logout tokens, each at a path of its own. */
async function receiver(t: Test) {
  const received: { path: string; type: string | undefined; token: string }[] = [];
  const server = createServer(async (request, response) => {
    const form = new URLSearchParams(Buffer.concat(await request.toArray()).toString());
    received.push({
      path: request.url ?? '',
      type: request.headers['content-type'],
      token: form.get('logout_token') ?? '',
    });
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  return { received, url: `http://127.0.0.1:${port}` };
}

/** A person who is signed in at two applications that are told about it, and at one that is not. */
async function signedIn(t: Test) {
  const idp = await idpApp(t, { publicUrl: undefined });
  const { received, url } = await receiver(t);
  const register = (name?: string) =>
    idp.createClient(name === undefined ? {} : { backchannel_logout_uri: `${url}/${name}` });
  const [first, second, third] = [await register('first'), await register('second'), await register()];
  const human = await idp.makeHuman();
  const { browser, page } = await idp.visit(first);
  const signInPage = await browser.submit(page, { handle: human.handle, password: human.password });
  const tokensOf = async (client: RegisteredClient, location: string | undefined) =>
    (await idp.redeem(client, codeIn(location))).body;
  const tokens = await tokensOf(first, signInPage.location);
  for (const client of [second, third]) {
    const consent = await browser.open((await idp.listen()) + authorizePath(client));
    const allowed = await browser.submit(consent, { decision: 'allow' });
    await tokensOf(client, allowed.location);
  }
  const { sid } = claimsOf(tokens.id_token);
  /** What the two applications have received. */
  const notices = async () => {
    await waitUntil('two notices', () => received.length >= 2);
    return received.splice(0).sort((one, other) => one.path.localeCompare(other.path));
  };
  return {
    idp,
    browser,
    human,
    first,
    second,
    third,
    tokens,
    sid,
    notices,
    received,
    origin: await idp.listen(),
  };
}

t.test('every application of a session receives one logout token when the person signs out', async (t) => {
  const { idp, browser, human, first, second, sid, notices, received, origin } = await signedIn(t);
  const page = await browser.open(`${origin}/logout`);
  await browser.submit(page);
  const told = await notices();
  t.same(
    told.map(({ path, type }) => [path, type]),
    ['/first', '/second'].map((path) => [path, 'application/x-www-form-urlencoded']),
  );
  const { body: metadata } = await idp.request('GET', '/.well-known/openid-configuration');
  t.match(metadata, { backchannel_logout_supported: true, backchannel_logout_session_supported: true });
  const { body: jwks } = await idp.request('GET', '/jwks');
  for (const [index, client] of [first, second].entries()) {
    const { payload, protectedHeader } = await jwtVerify(told[index]?.token ?? '', createLocalJWKSet(jwks), {
      issuer: metadata.issuer,
      audience: client.id,
      typ: 'logout+jwt',
      currentDate: new Date(idp.clock.now()),
    });
    t.match(protectedHeader, { alg: 'EdDSA', kid: String });
    t.strictSame(payload, {
      iss: metadata.issuer,
      aud: client.id,
      sub: human.sub,
      sid,
      iat: idp.clock.now() / SECOND,
      exp: idp.clock.now() / SECOND + 120,
      jti: payload.jti,
      events: { 'http://schemas.openid.net/event/backchannel-logout': {} },
    });
  }
  const left = logoutNoticeCollection(await idpStore(t, idp));
  await waitUntil('the notices are removed', async () => (await left.count()) === 0);
  t.same(received, []);
});

const ENDINGS: Record<string, (signed: Awaited<ReturnType<typeof signedIn>>, t: Test) => Promise<unknown>> = {
  'an application signs the person out': ({ idp, tokens }) =>
    idp.request('GET', `/logout?id_token_hint=${tokens.id_token}`),
  'the principal is disabled': ({ idp, human }) => idp.admin('POST', `/v1/principals/${human.sub}/disable`),
  'the person changes the password': async ({ browser, human, origin }) => {
    const page = await browser.open(`${origin}/account/password`);
    const chosen = 'another sentence altogether';
    await browser.submit(page, {
      current_password: human.password,
      password: chosen,
      password_confirm: chosen,
    });
  },
  'another person signs in at the same browser': async ({ idp, browser, first, origin }) => {
    const other = await idp.makeHuman();
    const page = await browser.open(origin + authorizePath(first, { prompt: 'login' }));
    await browser.submit(page, { handle: other.handle, password: other.password });
  },
  'an operator ends the session': async ({ idp, human, sid }, t) => {
    const operator = await makeOperator(t, idp, 'operator@example.test');
    const { act } = await enterConsole(idp, operator);
    await act(`/principals/${human.sub}/sessions/${sid}/end`);
  },
};

for (const [what, end] of Object.entries(ENDINGS)) {
  t.test(`the applications are notified when ${what}`, async (t) => {
    const signed = await signedIn(t);
    await end(signed, t);
    const told = await signed.notices();
    t.same(
      told.map(({ path, token }) => [path, claimsOf(token).sid, claimsOf(token).sub]),
      ['/first', '/second'].map((path) => [path, signed.sid, signed.human.sub]),
    );
  });
}

t.test('a session that the same person renews ends for the applications with the renewed one', async (t) => {
  const { browser, human, first, sid, notices, received, origin } = await signedIn(t);
  const page = await browser.open(origin + authorizePath(first, { prompt: 'login' }));
  await browser.submit(page, { handle: human.handle, password: human.password });
  t.same(received, []);
  await browser.submit(await browser.open(`${origin}/logout`));
  await waitUntil('three notices', () => received.length >= 3);
  const told = (await notices()).map(({ path, token }) => [path, claimsOf(token).sid === sid]);
  t.same(
    told.sort((one, other) => String(one).localeCompare(String(other))),
    [
      ['/first', false],
      ['/first', true],
      ['/second', true],
    ],
    'the first application knows both sessions',
  );
});

t.test('a back-channel logout URI is an https address', async (t) => {
  const idp = await idpApp(t, { env: { NODE_ENV: 'production' } });
  const redirect_uris = 'https://app.example.test/cb';
  const create = (uri: unknown) =>
    idp.admin('POST', '/v1/clients', { redirect_uris, backchannel_logout_uri: uri });
  for (const wrong of [
    'http://app.example.test/out',
    'com.example.app:/out',
    'https://a:b@x.test/',
    'x',
    1,
    null,
  ]) {
    t.match(await create(wrong), { status: 400, body: { error: 'invalid_request' } }, String(wrong));
  }
  const { body } = await create('https://app.example.test/out?a=1');
  t.match(body, {
    backchannel_logout_uri: 'https://app.example.test/out?a=1',
    backchannel_logout_session_required: true,
  });
  const none = await create('');
  t.notOk('backchannel_logout_uri' in none.body);
});

/** The sender alone, with an application whose answers the test decides. */
async function laboratory(t: Test) {
  const uri = `sqlite:${temporaryFolder(t)}/idp.db`;
  const clock = fakeClock();
  const random = countedRandom();
  const attempts: { uri: string; at: number }[] = [];
  const warnings: unknown[] = [];
  let count = 0;
  const state = {
    status: 200 as number | Error,
    /** Of single applications. */
    of: {} as Record<string, number | Error>,
  };
  const make = async () => {
    const store = await openStore(uri);
    t.teardown(() => store.close());
    const [notices, sessions] = [logoutNoticeCollection(store), sessionCollection(store)];
    await store.ready();
    const recording: Audit = {
      ...SILENT_AUDIT,
      entry: (record) => effectOf(recordsIn(store).inserting({ id: `record ${++count}`, ...record })),
    };
    const granted = grantedIn(store, { clock, random }, { audit: recording });
    const shared = oidcOn(store, granted, {
      directory: {
        findClient: async (id) =>
          id === 'gone' ? null : ({ id, backchannelLogoutUri: `https://${id}.test/` } as never),
      },
      log: { warn: (...record: unknown[]) => void warnings.push(record) },
    });
    const service = createBackchannelLogout({
      ...shared,
      async post(address) {
        attempts.push({ uri: address, at: clock.now() });
        const status = state.of[new URL(address).hostname.replace('.test', '')] ?? state.status;
        if (status instanceof Error) throw status;
        return status;
      },
      postPing: async () => 204,
    });
    const run = () => service.jobs.send.run({ term: 1, signal: new AbortController().signal });
    return { ...granted, service, notices, sessions, run, store };
  };
  const first = await make();
  const { commit, service, sessions, store } = first;
  /** A client that gets a code in a session. */
  const remember = async (id: string, session: SessionDocument, scope = 'openid') =>
    commit([await service.notice({ id, backchannelLogoutUri: `https://${id}.test/` }, session, scope)]);
  /** A session with these clients. */
  const beginWith = async (scope: string, clients: string[]): Promise<SessionDocument> => {
    const session = {
      id: `sid_${String(++count).padStart(32, '0')}`,
      ...{ tokenHash: 'x', sub: `u_${count}`, authTime: clock.now(), createdAt: clock.now() },
      expiresAt: clock.now() + HOUR,
    };
    await sessions.insert(session);
    for (const id of clients) await remember(id, session, scope);
    return session;
  };
  const begin = (...clients: string[]) => beginWith('openid', clients);
  const end = async ({ id }: SessionDocument, by = first) =>
    by.commit([by.sessions.deleting({ id }), await by.endSession(id)]);
  const records = async () => (await recordsIn(store).page({ sort: 'id', limit: 10 })).items;
  return { ...first, make, begin, beginWith, remember, end, clock, state, attempts, warnings, records };
}

const recordsIn = (store: Store) =>
  store.collection<{ id: string; event: string; subject?: string; detail?: string }>('records');

t.test('an application that fails is notified again for nine hours, others at once', async (t) => {
  const laboratoryOf = await laboratory(t);
  const { begin, end, run, notices, service, clock, state, attempts, records, warnings } = laboratoryOf;
  const session = await begin('app', 'gone');
  await run();
  t.same(attempts, [], 'the session continues');
  await end(session);
  state.status = 503;
  for (let hours = 0; hours < 24 * 60; hours++) {
    await run();
    clock.advance(MINUTE);
    state.status = hours % 2 === 0 ? new Error('connect ECONNREFUSED') : 302;
  }
  t.equal(attempts.length, 8);
  const [begun, last] = [attempts[0]?.at ?? 0, attempts.at(-1)?.at ?? 0];
  t.ok(last - begun > 8 * HOUR && last - begun < 10 * HOUR);
  t.match(await records(), [{ event: 'logout.undelivered', subject: session.sub, detail: /^app: / }]);
  t.equal(warnings.length, 1);

  const purge = () => service.jobs.purge.run({ term: 1, signal: new AbortController().signal });
  clock.advance(6 * 24 * HOUR);
  await purge();
  const { items } = await service.failures.list({ after: undefined, limit: 10 });
  t.match(items, [{ clientId: 'app', sub: session.sub, attempts: 8, lastFailure: /./, dueAt: undefined }]);
  clock.advance(2 * 24 * HOUR);
  await purge();
  t.equal(await notices.count(), 0, 'operators see it for a week');
});

t.test('operators see what fails, and retry it before it is due or after it was given up', async (t) => {
  const { begin, end, run, service, clock, state, attempts } = await laboratory(t);
  const failures = async () => (await service.failures.list({ after: undefined, limit: 10 })).items;
  const [one, two] = [await begin('app'), await begin('app', 'other')];
  state.of['app'] = 503;
  await end(one);
  await run();
  const since = clock.now();
  clock.advance(SECOND);
  await end(two);
  await run();
  const [latest, earliest] = await failures();
  t.match(earliest, {
    clientId: 'app',
    sub: one.sub,
    failingSince: since,
    attempts: 1,
    lastFailure: 'status 503',
  });
  t.match(latest, { sub: two.sub, dueAt: clock.now() + 30 * SECOND });
  t.equal(await service.failures.count(10), 2, 'a delivered notice is none');
  const id = earliest?.id ?? '';
  t.match(await service.failures.find(id), { id });

  t.equal(await service.failures.retry(id, NO_EFFECT), true);
  await run();
  t.equal(attempts.length, 4, 'before it is due');
  t.match(await service.failures.find(id), { failingSince: since, attempts: 2 });
  for (let hours = 0; hours < 24; hours++) {
    clock.advance(HOUR);
    await run();
  }
  const given = await service.failures.find(id);
  t.match([given?.attempts, given?.dueAt], [8, undefined], 'given up');
  delete state.of['app'];
  t.equal(await service.failures.retry(id, NO_EFFECT), true);
  await run();
  t.equal(await service.failures.find(id), null, 'a success removes it');
  t.equal(await service.failures.retry(id, NO_EFFECT), false);
  t.equal(await service.failures.retry('none', NO_EFFECT), false);
});

t.test('an application that cannot be reached delays no other, whatever waits for it', async (t) => {
  const { begin, end, run, notices, clock, state, attempts } = await laboratory(t);
  state.of['dead'] = new Error('The operation timed out.');
  state.of['ill'] = 503;
  const sessions = [];
  for (let count = 0; count < 30; count++) {
    sessions.push(await begin('dead', 'ill', 'well'));
  }
  for (const session of sessions) await end(session);
  await run();
  const told = (name: string) => attempts.filter(({ uri }) => uri === `https://${name}.test/`).length;
  t.equal(told('well'), 30);
  t.equal(told('ill'), 30, 'it answers, each time');
  t.ok(told('dead') <= 3, `${told('dead')}: once for each batch at most`);
  delete state.of['dead'];
  for (let minutes = 0; minutes < 3; minutes++) {
    clock.advance(MINUTE);
    await run();
  }
  t.ok(told('dead') >= 30);
  state.of['ill'] = 200;
  clock.advance(HOUR);
  await run();
  t.equal(await notices.count(), 0);
});

t.test('an application with refresh tokens is notified long after the sign-in', async (t) => {
  const { beginWith, remember, notices, service, run, sessions, commit, endSessions, clock, attempts } =
    await laboratory(t);
  const session = await beginWith('openid offline_access', ['lasting']);
  const purge = () => service.jobs.purge.run({ term: 1, signal: new AbortController().signal });
  // The session has expired, and its refresh tokens are in use.
  await sessions.deleteOne({ id: session.id });
  clock.advance(60 * 24 * HOUR);
  await purge();
  await commit([await endSessions({ id: session.sub }, COMMAND_SOURCE)]);
  await run();
  t.equal(attempts.length, 1);

  const other = await beginWith('openid', ['lasting']);
  await remember('lasting', other, 'openid offline_access');
  clock.advance(60 * 24 * HOUR);
  await purge();
  t.equal(await notices.count(), 1, 'asked for later');
  clock.advance(32 * 24 * HOUR);
  await purge();
  t.equal(await notices.count(), 0);
});

t.test('concurrent ends and processes tell each application once', async (t) => {
  const { begin, end, run, make, attempts, notices } = await laboratory(t);
  const others = await Promise.all([make(), make(), make()]);
  const session = await begin('one', 'two', 'three');
  await Promise.all([...others, ...others].map((other) => end(session, other as never)));
  await Promise.all([run(), ...others.map((other) => other.run())]);
  t.same(attempts.map(({ uri }) => uri).sort(), [
    'https://one.test/',
    'https://three.test/',
    'https://two.test/',
  ]);
  t.equal(await notices.count(), 0);
});

t.test('an attempt cut off by the end of its process is repeated a minute later', async (t) => {
  const { begin, end, run, make, notices, clock, attempts } = await laboratory(t);
  const session = await begin('app');
  await end(session);
  const [notice] = (await notices.page({ sort: 'id', limit: 1 })).items;
  await notices.updateOne(
    { id: notice?.id ?? '' },
    { set: { dueAt: clock.now() + MINUTE }, inc: { attempts: 1 } },
  );
  await run();
  t.same(attempts, []);
  clock.advance(MINUTE);
  await (await make()).run();
  t.equal(attempts.length, 1);
});

t.test(
  'the end of all sessions of a principal concerns those before it, however late it is told',
  async (t) => {
    const { begin, remember, run, commit, endSessions, notices, attempts } = await laboratory(t);
    const session = await begin('app');
    await commit([await endSessions({ id: session.sub }, COMMAND_SOURCE)]);
    // The person has signed in again before the job runs.
    await remember('app', { ...session, id: 'sid_later', epoch: 1 });
    await run();
    t.equal(attempts.length, 1);
    await commit([await endSessions({ id: session.sub, epoch: 1 }, COMMAND_SOURCE)]);
    await run();
    t.equal(attempts.length, 2);
    t.equal(await notices.count(), 0);
  },
);

t.test('the application of a session is notified at the end of the session that continues it', async (t) => {
  const { begin, end, run, commit, sessions, continueSession, notices, attempts } = await laboratory(t);
  const [session, next] = [await begin('app'), await begin()];
  await commit([sessions.deleting({ id: session.id }), continueSession(session.id, next.id)]);
  await run();
  t.same(attempts, []);
  await end(next);
  await run();
  t.equal(attempts.length, 1);

  const [first, second] = [await begin('app'), await begin()];
  await commit([sessions.deleting({ id: first.id }), continueSession(first.id, second.id)]);
  await end(second);
  await run();
  t.equal(attempts.length, 2, 'also if that ends before the job runs');
  t.equal(await notices.count(), 0);
});

t.test('only public addresses are called, whatever a name resolves to', async (t) => {
  const { received, url } = await receiver(t);
  let lookups = 0;
  const resolvesTo = (...addresses: string[]) =>
    ((_name: string, _options: object, callback: (...answer: unknown[]) => void) => {
      lookups++;
      callback(
        null,
        addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
      );
    }) as never;
  const { port } = new URL(url);
  const refused = /its address is not public|it is not https/;
  const posting = (...given: Parameters<typeof createOutbound>) =>
    createLogoutRequest(createOutbound(...given));
  const internal = [
    ...['10.1.2.3', '172.31.0.1', '192.168.1.1', '169.254.169.254', '100.64.0.1', '0.0.0.0', '224.0.0.1'],
    ...['255.255.255.255', '::', 'fe80::1', 'fd00::1', 'ff02::1', '3fff::1', '5f00::1', '::ffff:a00:1'],
    ...['64:ff9b::7f00:1', '2002:7f00:1::', '::127.0.0.1'],
  ];
  for (const address of [...internal, '127.0.0.1', '::1', '::ffff:127.0.0.1']) {
    const host = address.includes(':') ? `[${address}]` : address;
    await t.rejects(posting({ reach: 'public' })(`https://${host}:${port}/`, 'x'), refused, address);
    for (const answer of [[address], ['93.184.216.34', address]]) {
      const post = posting({ reach: 'public', lookup: resolvesTo(...answer) });
      await t.rejects(post(`https://app.example.com:${port}/`, 'x'), refused, `a name of ${answer}`);
    }
  }
  for (const address of internal) {
    const post = posting({ reach: 'loopback', lookup: resolvesTo(address) });
    for (const scheme of ['http', 'https'])
      await t.rejects(
        post(`${scheme}://app.example.com:${port}/`, 'x'),
        refused,
        `beyond this machine: ${address}`,
      );
  }
  for (const address of ['93.184.216.34', '8.8.8.8', '223.255.255.1', '2606:4700::1111', '2a00:1450::1'])
    t.ok(isPublicAddress(address), address);
  await t.rejects(posting({ reach: 'public' })(url, 'x'), refused);
  t.same(received, []);
  t.equal(await posting({ reach: 'loopback' })(`${url}/here`, 'x'), 200);
  lookups = 0;
  const post = posting({ reach: 'private', lookup: resolvesTo('127.0.0.1') });
  t.equal(await post(`http://app.example.com:${port}/out`, 'x'), 200);
  t.equal(lookups, 1, 'the connection is made to the address that was checked');
  t.match(received, [{ path: '/here' }, { path: '/out', token: 'x' }]);
});

t.test('a redirect is not followed and a body is not read', async (t) => {
  let written = 0;
  const server = createServer((request, response) => {
    if (request.url === '/redirect') {
      response.writeHead(302, { location: '/elsewhere' }).end();
    } else if (request.url === '/endless') {
      const write = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(65_536))) written += 65_536;
        response.once('drain', write);
      };
      write();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const impatient = createLogoutRequest(createOutbound({ reach: 'private', timeoutMs: 50 }));
  await t.rejects(impatient(`http://127.0.0.1:${port}/slow`, 'x'), 'a slow application');
  const post = createLogoutRequest(createOutbound({ reach: 'private' }));
  t.equal(await post(`http://127.0.0.1:${port}/redirect`, 'x'), 302);
  t.equal(await post(`http://127.0.0.1:${port}/endless`, 'x'), 200);
  t.ok(written < 64 * 1024 * 1024);
});
