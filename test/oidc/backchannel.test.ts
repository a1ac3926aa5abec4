import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createLocalJWKSet, jwtVerify } from 'jose';
import t, { type Test } from 'tap';
import { isPublicAddress } from '../../src/kernel/addresses.js';
import { HOUR, MINUTE, SECOND } from '../../src/kernel/clock.js';
import { createLogoutRequest } from '../../src/oidc/backchannel/request.js';
import { createBackchannelLogout } from '../../src/oidc/backchannel/service.js';
import { announceEnd, logoutNoticeCollection } from '../../src/oidc/backchannel/store.js';
import { type SessionDocument, sessionCollection } from '../../src/oidc/store.js';
import { openStore } from '../../src/storage/open.js';
import { fakeClock } from '../kit/clock.js';
import {
  authorizePath,
  claimsOf,
  codeIn,
  ISSUER,
  idpApp,
  idpStore,
  type RegisteredClient,
} from '../kit/idp.js';
import { makeOperator } from '../kit/operator.js';
import { countedRandom } from '../kit/random.js';
import { temporaryFolder } from '../kit/tmp.js';
import { waitUntil } from '../kit/wait.js';
import { onMongod } from '../storage/mongod.js';

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

t.test('every application of a session is told once that the person has signed out', async (t) => {
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
  'an operator ends the session': async ({ idp, human, sid, origin }, t) => {
    const operator = await makeOperator(t, idp, 'operator@example.test');
    const { Agent } = await import('../kit/agent.js');
    const browser = new Agent({ origin });
    const form = await browser.open(`${origin}/admin/`);
    await browser.submit(form, { handle: operator.handle, password: operator.password });
    await browser.submit(await browser.open(`${origin}/admin/principals/${human.sub}/sessions/${sid}/end`));
  },
};

for (const [what, end] of Object.entries(ENDINGS)) {
  t.test(`the applications are told when ${what}`, async (t) => {
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
async function laboratory(t: Test, uri: string) {
  const clock = fakeClock();
  const random = countedRandom();
  const attempts: { uri: string; at: number }[] = [];
  const warnings: unknown[] = [];
  const audit: { event: string; subject?: string; detail?: string }[] = [];
  const state = { status: 200 as number | Error, principal: true, epoch: undefined as number | undefined };
  const make = async () => {
    const store = await openStore(uri);
    t.teardown(() => store.close());
    const [notices, sessions] = [logoutNoticeCollection(store), sessionCollection(store)];
    await store.ready();
    const service = createBackchannelLogout({
      notices,
      sessions,
      directory: {
        findClient: async (id) =>
          id === 'gone' ? null : ({ id, backchannelLogoutUri: `https://${id}.test/` } as never),
        findPrincipal: async (id) => (state.principal ? ({ id, epoch: state.epoch } as never) : null),
      },
      keys: { sign: async () => 'token' },
      async post(address) {
        attempts.push({ uri: address, at: clock.now() });
        if (state.status instanceof Error) throw state.status;
        return state.status;
      },
      issuer: () => ISSUER,
      wake() {},
      audit: { record: async (record) => void audit.push(record as never) },
      clock,
      random,
      log: { warn: (...record: unknown[]) => void warnings.push(record) },
    });
    const run = () => service.jobs.send.run({ term: 1, signal: new AbortController().signal });
    return { service, notices, sessions, run };
  };
  const first = await make();
  let count = 0;
  /** A session with these clients. */
  const begin = async (...clients: string[]): Promise<SessionDocument> => {
    const session = {
      id: `sid_${String(++count).padStart(32, '0')}`,
      ...{ tokenHash: 'x', sub: `u_${count}`, authTime: clock.now(), createdAt: clock.now() },
      expiresAt: clock.now() + HOUR,
    };
    await first.sessions.insert(session);
    for (const id of clients)
      await first.service.remember({ id, backchannelLogoutUri: `https://${id}.test/` }, session);
    return session;
  };
  const end = ({ id }: SessionDocument, by = first) =>
    by.service.endSession(id, () => by.sessions.deleteOne({ id }));
  return { ...first, make, begin, end, clock, state, attempts, warnings, audit };
}

function forEngine(engine: string, fresh: (t: Test) => string): void {
  t.test(`${engine}: an application that fails is told again for nine hours, others at once`, async (t) => {
    const { begin, end, run, notices, clock, state, attempts, audit, warnings } = await laboratory(
      t,
      fresh(t),
    );
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
    t.equal(await notices.count(), 0);
    t.match(audit, [{ event: 'logout.undelivered', subject: session.sub, detail: /^app: / }]);
    t.equal(warnings.length, 1);
  });

  t.test(`${engine}: concurrent ends and processes tell each application once`, async (t) => {
    const { begin, end, run, make, attempts, notices } = await laboratory(t, fresh(t));
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

  t.test(`${engine}: an end that was announced and did not happen tells nobody`, async (t) => {
    const { begin, end, run, notices, clock, attempts } = await laboratory(t, fresh(t));
    const session = await begin('app');
    // The process ended before it deleted the session.
    await announceEnd(notices, { session: session.id }, clock.now());
    for (let seconds = 0; seconds < 90; seconds += 5) {
      await run();
      clock.advance(5 * SECOND);
    }
    t.same(attempts, []);
    t.match(await notices.findOne({ session: session.id }), { dueAt: undefined });
    await end(session);
    await run();
    t.equal(attempts.length, 1, 'the real end is told');
  });

  t.test(`${engine}: an attempt cut off by the end of its process is repeated a minute later`, async (t) => {
    const { begin, end, run, make, notices, clock, attempts } = await laboratory(t, fresh(t));
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
    `${engine}: a principal that is disabled on the host ends its sessions for the applications`,
    async (t) => {
      const { begin, run, notices, state, clock, attempts } = await laboratory(t, fresh(t));
      const session = await begin('app');
      await announceEnd(notices, { sub: session.sub }, clock.now());
      state.epoch = 1;
      await run();
      t.equal(attempts.length, 1);
    },
  );

  t.test(`${engine}: an application that is remembered while its session ends is told`, async (t) => {
    const { begin, end, service, run, attempts } = await laboratory(t, fresh(t));
    const session = await begin();
    await end(session);
    await service.remember({ id: 'late', backchannelLogoutUri: 'https://late.test/' }, session);
    await run();
    t.same(
      attempts.map(({ uri }) => uri),
      ['https://late.test/'],
    );
  });
}

forEngine('SQLite', (t) => `sqlite:${temporaryFolder(t)}/idp.db`);
await onMongod((server) => forEngine('MongoDB', (t) => server.fresh(t)));

t.test('notices of sessions that have expired are removed', async (t) => {
  const { begin, service, notices, clock } = await laboratory(t, `sqlite:${temporaryFolder(t)}/idp.db`);
  await begin('app');
  const purge = () => service.jobs.purge.run({ term: 1, signal: new AbortController().signal });
  clock.advance(36 * HOUR);
  await purge();
  t.equal(await notices.count(), 1);
  clock.advance(SECOND);
  await purge();
  t.equal(await notices.count(), 0);
});

t.test('only public addresses are called, whatever a name resolves to', async (t) => {
  const { received, url } = await receiver(t);
  const resolvesTo = (...addresses: string[]) =>
    ((_name: string, _options: object, callback: (...answer: unknown[]) => void) =>
      callback(
        null,
        addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
      )) as never;
  const { port } = new URL(url);
  const refused = /its address is not public|it is not https/;
  for (const address of [
    ...['127.0.0.1', '10.1.2.3', '172.31.0.1', '192.168.1.1', '169.254.169.254', '100.64.0.1', '0.0.0.0'],
    ...['224.0.0.1', '255.255.255.255', '::1', '::', 'fe80::1', 'fd00::1', 'ff02::1'],
    ...['::ffff:127.0.0.1', '::ffff:a00:1', '64:ff9b::7f00:1', '2002:7f00:1::', '::127.0.0.1'],
  ]) {
    const host = address.includes(':') ? `[${address}]` : address;
    const direct = createLogoutRequest({ allowPrivate: false });
    await t.rejects(direct(`https://${host}:${port}/`, 'x'), refused, address);
    for (const answer of [[address], ['93.184.216.34', address]]) {
      const post = createLogoutRequest({ allowPrivate: false, lookup: resolvesTo(...answer) });
      await t.rejects(post(`https://app.example.com:${port}/`, 'x'), refused, `a name of ${answer}`);
    }
  }
  for (const address of ['93.184.216.34', '8.8.8.8', '223.255.255.1', '2606:4700::1111', '2a00:1450::1'])
    t.ok(isPublicAddress(address), address);
  await t.rejects(createLogoutRequest({ allowPrivate: false })(url, 'x'), refused);
  t.same(received, []);
  const post = createLogoutRequest({ allowPrivate: true, lookup: resolvesTo('127.0.0.1') });
  t.equal(await post(`http://app.example.com:${port}/out`, 'x'), 200);
  t.match(received, [{ path: '/out', token: 'x' }]);
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
    } else response.writeHead(500).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const post = createLogoutRequest({ allowPrivate: true });
  t.equal(await post(`http://127.0.0.1:${port}/redirect`, 'x'), 302);
  t.equal(await post(`http://127.0.0.1:${port}/endless`, 'x'), 200);
  t.ok(written < 64 * 1024 * 1024);
});
