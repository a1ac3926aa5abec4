import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import express from 'express';
import Fastify from 'fastify';
import { calculateJwkThumbprint, type JWTPayload } from 'jose';
import t, { type Test } from 'tap';
import type { TokenIdentity } from '../../../src/core/http/identity.js';
import { toSeconds } from '../../../src/core/kernel/clock.js';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { type McpCall, protectMcp } from '../../../src/resource-server/mcp.js';
import { agentLinkCollection, linkId, linkOwner } from '../../../src/saas/agents/store.js';
import { saasBackend } from '../../../src/saas/plugin.js';
import { type CreateServerOptions, createServer } from '../../../src/saas/server.js';
import {
  type Account,
  auditOf,
  errorOf,
  openAt,
  PASSWORD,
  saasApp,
  storeOf,
  testOptions,
} from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { saasPluginOptions } from '../../kit/host.js';
import { listen } from '../../kit/listener.js';
import { mailSink } from '../../kit/mail.js';
import { countedRandom } from '../../kit/random.js';
import { stripeApi } from '../../kit/stripe.js';
import { World } from '../../kit/stripe-simulator.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { dpopKey, tokenIssuer } from '../../kit/token-issuer.js';
import { waitUntil } from '../../kit/wait.js';
import { RESET, readMails } from '../auth/kit.js';
import { KEY } from '../billing/kit.js';
import { CLIENT, fakeProvider, ticketIn } from '../login-providers/kit.js';
import { API, SITE, VERIFIER } from './kit.js';

/** What saas-backend accepts of an issuer that says whatever a test wants, and how hosts use it. */

const SUBJECT = 'prn_1';
const ACTOR = { sub: 'agt_1', sub_profile: 'ai_agent' };

async function withIssuer(t: Test, options: Omit<CreateServerOptions, 'clock' | 'random'> = {}) {
  const clock = fakeClock(Date.now());
  const issuer = await tokenIssuer(t, { clock, revocations: true });
  const agents = { agentIssuer: issuer.url, agentResource: API, agentClientId: 'app' };
  const app = await saasApp(t, { clock, publicUrl: SITE, ...agents, ...options });
  const store = await storeOf(t, app);
  const links = agentLinkCollection(store);
  const link = (userId: string, subject = SUBJECT) =>
    links.insert({
      ...{ id: linkId(issuer.url, subject), owner: linkOwner(issuer.url, userId), userId, subject },
      ...{ issuer: issuer.url, createdAt: clock.now() },
    });
  const claims = (): JWTPayload => {
    const now = toSeconds(clock.now());
    return {
      ...{ iss: issuer.url, aud: API, sub: SUBJECT, client_id: 'cli_1', jti: `at_${Math.random()}` },
      ...{ iat: now, exp: now + 600, kind: 'human', act: ACTOR, delegation: 'dlg_1' },
      scope: 'profile:read billing:read billing:write files:read',
    };
  };
  const token = (change: JWTPayload = {}, ...how: [object?]) =>
    issuer.sign({ ...claims(), ...change }, ...how);
  const ada = await app.signUp({ emailVerified: true });
  await link(ada.id);
  return { app, store, clock, issuer, agents, links, link, token, ada };
}

t.test('a token that is wrong in any way is refused', async (t) => {
  const { app, clock, issuer, token } = await withIssuer(t);
  const me = async (text: string) => (await app.request('GET', '/api/auth/me', { token: text })).status;
  t.equal(await me(await token()), 200);
  const now = toSeconds(clock.now());
  const other = await tokenIssuer(t, { clock });
  const wrong: Record<string, string> = {
    'another audience': await token({ aud: 'https://other.example.test/api' }),
    'another issuer': await token({ iss: 'https://id.example.test' }),
    'signed by another issuer': await token({}, undefined).then(async () =>
      issuer.sign({ iss: issuer.url, aud: API }, {}, other.keys.privateKey),
    ),
    expired: await token({ iat: now - 700, exp: now - 100 }),
    'an id_token': await token({}, { typ: 'JWT' }),
    'a list of revocations': await token({}, { typ: 'revocations+jwt' }),
  };
  for (const [name, text] of Object.entries(wrong)) t.equal(await me(text), 401, name);
  const agent = await app.request('GET', '/api/auth/me', { token: await token({ kind: 'agent' }) });
  t.equal(errorOf(agent), 'ACCOUNT_NOT_CONNECTED', 'an agent, although its subject is connected');
  t.equal(await me(await token({ sub: 'prn_2' })), 403, 'another person');
});

t.test('a token that is bound to a key needs a proof, which works once in all processes', async (t) => {
  const { app, clock, agents, token } = await withIssuer(t);
  const second = await saasApp(t, {
    ...{ clock, publicUrl: SITE, databaseUri: app.databaseUri },
    ...agents,
  });
  const key = await dpopKey(clock);
  const bound = await token({ cnf: { jkt: await calculateJwkThumbprint(key.jwk) } });
  const call = (at: typeof app, headers: Record<string, string>) =>
    at.request('GET', '/api/auth/me', { headers });
  const without = await call(app, { authorization: `Bearer ${bound}` });
  t.equal(without.status, 401);
  t.match(without.headers['www-authenticate'], /^DPoP .*resource_metadata=/);
  const proof = await key.prove({ method: 'GET', url: `${API}/auth/me`, token: bound });
  const proven = { authorization: `DPoP ${bound}`, dpop: proof };
  t.equal((await call(app, proven)).status, 200);
  t.equal((await call(second, proven)).status, 401, 'used at another process');
  const elsewhere = await key.prove({ method: 'GET', url: `${API}/user/profile`, token: bound });
  t.equal((await call(app, { authorization: `DPoP ${bound}`, dpop: elsewhere })).status, 401);
});

t.test('without the list of revoked tokens, agents are refused and people are not', async (t) => {
  const { app, issuer, token, ada } = await withIssuer(t);
  issuer.faults.set('/revocations', () => 500);
  const answer = await app.request('GET', '/api/auth/me', { token: await token() });
  t.match(answer, { status: 503, body: { error: { code: 'IDENTITY_PROVIDER_UNAVAILABLE' } } });
  t.equal((await app.request('GET', '/api/auth/me', { token: ada.accessToken })).status, 200);
});

t.test(
  'suspended and deleted users are refused, and a new owner of the address inherits no agents',
  async (t) => {
    const mails = await mailSink(t);
    const { app, links, link, token, ada } = await withIssuer(t, { emailSmtpUrl: mails.url });
    await app.listen();
    const me = async (text: string) => app.request('GET', '/api/auth/me', { token: text });
    await app.server.fastify.saas.users.suspend({ id: ada.id });
    t.match(await me(await token()), { status: 403, body: { error: { code: 'ACCOUNT_SUSPENDED' } } });
    await app.server.fastify.saas.users.unsuspend({ id: ada.id });
    t.equal((await me(await token())).status, 200);

    const stranger = await app.signUp();
    await link(stranger.id, 'prn_2');
    await app.post('/auth/forgot-password', { email: stranger.email });
    const { token: secret } = await readMails(mails, app.clock).mail(RESET);
    const reset = { token: secret, password: 'another battery staple horse' };
    t.equal((await app.post('/auth/reset-password', reset)).status, 200);
    t.equal(errorOf(await me(await token({ sub: 'prn_2' }))), 'ACCOUNT_NOT_CONNECTED');

    const eve = await app.signUp({ emailVerified: true });
    await link(eve.id, 'prn_3');
    t.equal((await me(await token({ sub: 'prn_3' }))).status, 200);
    const closed = await app.post('/user/delete', { password: PASSWORD }, { token: eve.accessToken });
    t.equal(closed.status, 200);
    t.equal(errorOf(await me(await token({ sub: 'prn_3' }))), 'ACCOUNT_NOT_CONNECTED');
    t.equal(await links.count(), 1, 'only that of the first user is left');
  },
);

t.test('requests count for each person and agent, from any address', async (t) => {
  const { app, token } = await withIssuer(t, { limits: true });
  const me = async (text: string, from: string) =>
    (await app.request('GET', '/api/auth/me', { token: text, from })).status;
  const [mine, other] = [await token(), await token({ act: { sub: 'agt_2' } })];
  for (let count = 0; count < 300; count++) await me(mine, `198.51.${count % 100}.7`);
  t.equal(await me(mine, '203.0.113.9'), 429);
  t.equal(await me(other, '203.0.113.9'), 200, 'another agent');
});

t.test('the Authorization header alone decides for whom a request is made', async (t) => {
  const { app, token, ada } = await withIssuer(t);
  const eve = await app.signUp();
  const cookie = `__Host-saas-session=${eve.refreshToken}`;
  const headers = { cookie, 'session-mode': 'cookie', origin: SITE, 'sec-fetch-site': 'same-origin' };
  const answer = await app.request('GET', '/api/auth/me', { token: await token(), headers });
  t.equal(answer.body.data.user.id, ada.id, 'not of the cookie');
  const people = await app.request('GET', '/api/auth/sessions', { token: await token(), headers });
  t.equal(errorOf(people), 'FORBIDDEN', 'the cookie adds nothing');
  const refreshed = await app.post('/auth/refresh', {}, { token: await token(), headers });
  t.equal(refreshed.status, 200, 'a refresh is of the session in the cookie');
  const { accessToken } = refreshed.body.data;
  t.equal((await app.request('GET', '/api/auth/me', { token: accessToken })).body.data.user.id, eve.id);
});

t.test('an agent changes the subscription under its own name', async (t) => {
  const world = new World(1, toSeconds(Date.now()));
  const api = await stripeApi(world);
  t.teardown(() => api.close());
  const { app, store, ada, token } = await withIssuer(t, { paymentSecretKey: KEY, paymentApiUrl: api.url });
  const post = (path: string, bearer: string, body: object = {}) =>
    app.request('POST', `/api/billing/${path}`, { token: bearer, body });
  const { body } = await post('create-checkout-session', ada.accessToken, { mode: 'setup' });
  const customer = String(api.sessions.get(body.data.sessionId)?.['customer']);
  Object.assign(world.subscribe(customer, ada.id, true), { status: 'active', price: 'price_basic' });
  await post('sync', ada.accessToken);
  const told: object[] = [];
  app.server.fastify.saas.events.on('subscription.updated', (event) => void told.push(event));

  const reader = await token({ scope: 'billing:read' });
  const refused = await post('subscription/cancel', reader);
  t.equal(refused.status, 403);
  t.match(
    refused.headers['www-authenticate'],
    /error="insufficient_scope".*scope="billing:read billing:write"/,
  );
  t.same(told, []);

  const writer = await token({ scope: 'billing:write' });
  t.match((await post('subscription/cancel', writer)).body.data, { cancelAtPeriodEnd: true });
  const actor = { client: 'cli_1', sub: 'agt_1', delegation: 'dlg_1' };
  await waitUntil('the event has come', async () => told.length === 1);
  t.match(told, [{ userId: ada.id, actor }]);
  const canceled = (await auditOf(store)).filter(({ event }) => event === 'subscription.canceled');
  t.match(canceled, [{ subject: ada.id, actor }]);

  t.match((await post('subscription/resume', ada.accessToken)).body.data, { cancelAtPeriodEnd: false });
  await waitUntil('the event has come', async () => told.length === 2);
  t.notOk(Object.hasOwn(told[1] ?? {}, 'actor'), 'a person has no actor');
  t.equal((await post('create-checkout-session', writer, { mode: 'setup' })).status, 403);
});

t.test('routes of a host admit agents for the scope that they state', async (t) => {
  const { clock, agents, app, token } = await withIssuer(t);

  const host = Fastify();
  t.teardown(() => host.close());
  const site = { clock, publicUrl: SITE, databaseUri: app.databaseUri, ...agents };
  await host.register(saasBackend, { ...saasPluginOptions(t), ...site });
  const config = { agentScope: 'files:read' };
  const { requireUser } = host.saas;
  host.get('/files', { onRequest: requireUser, config }, ({ saas }) => ({
    ...{ actor: saas.actor?.sub, isSession: saas.session !== null },
  }));
  host.get('/people', { onRequest: requireUser }, () => ({}));
  host.get('/pro', { onRequest: host.saas.requireEntitled(), config }, () => ({}));
  host.get('/recent', { onRequest: host.saas.requireRecentAuth(), config }, () => ({}));
  t.throws(
    () => host.get('/x', { config: { agentScope: 'files:read files:write' } }, () => ({})),
    /agentScope must be one scope/,
  );
  const get = (url: string, text: string) =>
    host.inject({ url, headers: { authorization: `Bearer ${text}` } });
  const all = await token();
  t.same((await get('/files', all)).json(), { actor: 'agt_1', isSession: false });
  t.equal((await get('/files', await token({ scope: 'profile:read' }))).statusCode, 403);
  t.equal((await get('/people', all)).statusCode, 403);
  t.match((await get('/pro', all)).json().message, /requires a subscription/);
  t.equal((await get('/recent', all)).statusCode, 403, 'an agent cannot sign in again');
  const metadata = await host.inject('/.well-known/oauth-protected-resource/api');
  t.ok(metadata.json().scopes_supported.includes('files:read'));
  const direct = await host.saas.authenticate({ authorization: `Bearer ${all}` }).catch((error) => error);
  t.match(direct, { statusCode: 401 }, 'where there is no route, people only');
});

t.test(
  'a route demands an approval: of an agent in its token and once, of a person by a recent sign-in',
  async (t) => {
    const { clock, agents, app, token, ada } = await withIssuer(t);
    const site = { clock, publicUrl: SITE, databaseUri: app.databaseUri, ...agents };
    const open = async (name: string) => {
      const host = Fastify();
      t.teardown(() => host.close());
      await host.register(saasBackend, { ...saasPluginOptions(t), ...site, random: countedRandom(name) });
      host.post(
        '/pay',
        { onRequest: host.saas.requireUser, config: { agentScope: 'files:read' } },
        (request) => request.saas.approve({ type: 'payment', amount: 12, creditor: 'Zoë' }),
      );
      host.get('/who', { onRequest: host.saas.requireUser }, async (request) => ({
        keys: Object.keys({ ...request.saas }),
        kind: typeof request.saas.approve,
      }));
      return (text: string, url: '/pay' | '/who' = '/pay') =>
        host.inject({
          method: url === '/pay' ? 'POST' : 'GET',
          url,
          headers: { authorization: `Bearer ${text}` },
        });
    };
    const hosts = [await open('one'), await open('two')] as const;
    const [pay] = hosts;
    const details = { type: 'payment', amount: 12, creditor: 'Zoë' };
    const refused = await pay(await token());
    t.match(refused.json(), { statusCode: 403, code: 'APPROVAL_REQUIRED' });
    const [, quoted = ''] =
      /authorization_details="((?:[^"\\]|\\.)*)"/.exec(String(refused.headers['www-authenticate'])) ?? [];
    t.same(JSON.parse(quoted.replaceAll(/\\(.)/g, '$1')), [details], 'what to ask for');
    t.equal(
      (await pay(await token({ authorization_details: [{ ...details, amount: 13 }] }))).statusCode,
      403,
    );

    const approved = await token({ authorization_details: [details], txn: 'gr_1' });
    const answers = await Promise.all(Array.from({ length: 50 }, (_, n) => hosts[n % 2]?.(approved)));
    const allowed = answers.filter((answer) => answer?.statusCode === 200);
    t.equal(allowed.length, 1, 'once in all processes');
    t.same(allowed[0]?.json(), { by: ada.id, txn: 'gr_1' });

    t.same((await pay(ada.accessToken)).json(), { by: ada.id });
    t.same((await pay(ada.accessToken, '/who')).json(), { keys: ['user', 'session'], kind: 'function' });
    clock.advance(11 * 60_000);
    const { body } = await app.post('/auth/refresh', { refreshToken: ada.refreshToken });
    t.match((await pay(body.data.accessToken)).json(), {
      statusCode: 401,
      code: 'REAUTHENTICATION_REQUIRED',
    });
  },
);

t.test('Express: allowAgents states the scope for the guards that follow', async (t) => {
  const { clock, agents, app, token, ada } = await withIssuer(t);
  const backend = createServer({
    ...testOptions(temporaryFolder(t)),
    ...{ clock, publicUrl: SITE, databaseUri: app.databaseUri, ...agents, middleware: true },
  });
  t.teardown(() => backend.stop());
  const host = express();
  host.use(backend.middleware);
  host.get('/files', backend.allowAgents('files:read'), backend.requireUser, (request, response) => {
    response.json({ id: request.saas.user.id, actor: request.saas.actor?.sub });
  });
  host.get('/people', backend.requireUser, (_request, response) => {
    response.json({});
  });
  const server = createHttpServer(host).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const get = async (path: string, text = '') =>
    fetch(url + path, { headers: text === '' ? {} : { authorization: `Bearer ${text}` } });
  t.same(await (await get('/files', await token())).json(), { id: ada.id, actor: 'agt_1' });
  t.equal((await get('/files', ada.accessToken)).status, 200);
  t.equal((await get('/people', await token())).status, 403);
  t.match((await get('/files')).headers.get('www-authenticate'), /scope="files:read", resource_metadata=/);
  const metadata = await get('/.well-known/oauth-protected-resource/api');
  t.ok(((await metadata.json()) as { scopes_supported: string[] }).scopes_supported.includes('files:read'));
  t.throws(() => backend.allowAgents(''), /agentScope must be one scope/);
});

t.test('an MCP endpoint inside saasBackend knows the person, in Fastify and in Express', async (t) => {
  const { clock, agents, app, token, ada, issuer } = await withIssuer(t);
  const resource = `${SITE}/mcp`;
  const other = await tokenIssuer(t, { clock });
  const shared = { clock, publicUrl: SITE, databaseUri: app.databaseUri, ...agents };
  const mcp = {
    resource,
    scopes: ['files:read'],
    otherIssuers: [{ issuer: other.url }],
    handler: ({ response, saas }: McpCall<TokenIdentity>) => {
      response.end(JSON.stringify({ id: saas.user.id, actor: saas.actor?.sub, session: saas.session }));
    },
  };
  const inFastify = Fastify();
  t.teardown(() => inFastify.close());
  await inFastify.register(saasBackend, {
    ...saasPluginOptions(t),
    ...{ ...shared, random: countedRandom('host') },
  });
  protectMcp(inFastify, { ...inFastify.saas.agentTokens(), ...mcp });

  const backend = createServer({ ...testOptions(temporaryFolder(t)), ...shared, middleware: true });
  t.teardown(() => backend.stop());
  const inExpress = express();
  inExpress.use(backend.middleware, express.json());
  t.teardown(protectMcp(inExpress, { ...(await backend.agentTokens()), ...mcp }).close);

  const claims = { aud: resource, scope: 'files:read' };
  const urls = [await inFastify.listen({ host: '127.0.0.1', port: 0 }), await listen(t, inExpress)];
  for (const url of urls) {
    const call = async (text: string) => {
      const headers = { authorization: `Bearer ${text}`, 'content-type': 'application/json' };
      const answer = await fetch(`${url}/mcp`, { method: 'POST', headers, body: '{}' });
      return { status: answer.status, json: await answer.json() };
    };
    const metadata = await fetch(`${url}/.well-known/oauth-protected-resource/mcp`);
    t.match(await metadata.json(), { resource, authorization_servers: [issuer.url, other.url] });
    const ofApi = await fetch(`${url}/.well-known/oauth-protected-resource/api`);
    t.match(await ofApi.json(), { resource: API }, 'each path has its own');
    t.match(await call(await token(claims)), {
      status: 200,
      json: { id: ada.id, actor: 'agt_1', session: null },
    });
    t.equal((await call(await token())).status, 401, 'a token of the API is none of the endpoint');
    t.equal((await call(ada.accessToken)).status, 401, 'nor is that of a session');
    const unknown = { status: 403, json: { error: 'ACCOUNT_NOT_CONNECTED' } };
    t.match(await call(await token({ ...claims, sub: 'prn_2' })), unknown);
    t.match(await call(await token({ ...claims, kind: 'agent' })), unknown);
    const now = toSeconds(clock.now());
    const stranger = {
      iss: other.url,
      sub: SUBJECT,
      client_id: 'cli_1',
      jti: 'at_2',
      iat: now,
      exp: now + 600,
    };
    t.match(await call(await other.sign({ ...stranger, ...claims })), unknown, 'of another issuer');
  }
  t.equal((await app.request('GET', '/api/auth/me', { token: await token(claims) })).status, 401);

  const without = await saasApp(t);
  t.throws(() => without.server.fastify.saas.agentTokens(), /AGENT_ISSUER/);
});

t.test('in an organization, an agent may what its person may, and no more', async (t) => {
  const { clock, agents, app, token, ada } = await withIssuer(t);
  const host = Fastify();
  t.teardown(() => host.close());
  await host.register(saasBackend, {
    ...saasPluginOptions(t),
    ...{ clock, random: countedRandom('host'), publicUrl: SITE, databaseUri: app.databaseUri, ...agents },
    ...{
      organizations: true,
      organizationRoles: { member: ['files:read'], admin: ['files:read', 'files:write'] },
    },
  });
  const { organizations, requirePermission } = host.saas;
  if (!organizations) throw new Error('organizations are enabled');
  const config = { agentScope: 'files:read' };
  host.get('/files', { onRequest: requirePermission('files:read'), config }, ({ saas }) => saas.organization);
  host.get('/trash', { onRequest: requirePermission('files:write'), config }, () => ({}));
  host.get('/people', { onRequest: requirePermission('files:read') }, () => ({}));
  const bob = await app.signUp({ emailVerified: true });
  const { id } = await organizations.create(bob.id, { name: 'Engines' });
  await organizations.addMember(id, ada.id);
  const text = await token();
  const get = async (url: string, bearer = text, organization = id) => {
    const headers = { authorization: `Bearer ${bearer}`, 'x-organization': organization };
    const answer = await host.inject({ url, headers });
    return { status: answer.statusCode, body: answer.json() };
  };
  t.match(await get('/files'), { status: 200, body: { id, role: 'member' } });
  t.match(await get('/trash'), { status: 403, body: { code: 'ROLE_REQUIRED' } }, 'the role is the ceiling');
  t.match(await get('/people'), { status: 403 }, 'the route admits people only');
  t.match(await get('/files', await token({ scope: 'profile:read' })), { status: 403 }, 'so is the scope');
  t.equal((await get(`/api/organizations/${id}/members`)).status, 403, 'agents manage nothing');
  await organizations.changeRole(id, ada.id, 'admin');
  t.equal((await get('/trash')).status, 200);
  await organizations.removeMember(id, ada.id);
  t.match(await get('/files'), { status: 404, body: { code: 'ORGANIZATION_NOT_FOUND' } });
  t.match(await get('/files', text, ''), { status: 404 });
});

t.test('of concurrent connections one succeeds', async (t) => {
  const provider = await fakeProvider(t);
  const agents = { agentIssuer: provider.url, agentResource: API, agentClientId: CLIENT.clientId };
  const databaseUri = `sqlite:${temporaryFolder(t)}/saas.db`;
  const options = { databaseUri, publicUrl: SITE, agentClientSecret: CLIENT.clientSecret, ...agents };
  const [app, other] = [await saasApp(t, options), await saasApp(t, options)];
  const ticketFor = async (sub: string) => {
    provider.person = { sub };
    const query = new URLSearchParams({ returnTo: '/x', codeChallenge: sha256(VERIFIER) });
    const begun = await app.request('GET', `/api/auth/agents/connect?${query}`);
    const callback = provider.visit(begun.headers['location'] ?? '');
    const cookie = String(begun.headers['set-cookie']).split(';')[0] ?? '';
    return ticketIn(await app.request('GET', callback.pathname + callback.search, { headers: { cookie } }));
  };
  const connect = async (at: typeof app, { accessToken: token }: Account, ticket: string) =>
    errorOf(await at.post('/user/agent-account', { ticket, codeVerifier: VERIFIER }, { token })) ??
    'connected';
  const people = await Promise.all([0, 1, 2, 3].map(() => app.signUp({ emailVerified: true })));
  const ticket = await ticketFor('one');
  const results = await Promise.all(
    people.map((one, index) => connect(index % 2 ? other : app, one, ticket)),
  );
  t.same(results.toSorted(), ['INVALID_TICKET', 'INVALID_TICKET', 'INVALID_TICKET', 'connected']);
  const eve = people[results.indexOf('INVALID_TICKET')] as Account;
  const tickets = [await ticketFor('two'), await ticketFor('three')] as const;
  const both = await Promise.all([connect(app, eve, tickets[0]), connect(other, eve, tickets[1])]);
  t.equal(both.filter((result) => result === 'connected').length, 1, 'a user gets one account');
  const links = agentLinkCollection(await openAt(t, databaseUri));
  t.equal(await links.count({ userId: eve.id }), 1);
  provider.lies = { claims: { kind: 'agent' } };
  t.match(await ticketFor('agent'), /^none/, 'an agent cannot be connected as a person');
});

t.test(
  'a part of the configuration is refused, and without it nothing exists and nothing is loaded',
  async (t) => {
    await t.rejects(
      saasApp(t, { agentIssuer: 'https://id.example.test' }),
      /AGENT_RESOURCE and AGENT_CLIENT_ID/,
    );
    await t.rejects(saasApp(t, { agentResource: API }), /Agents need AGENT_ISSUER/);
    const app = await saasApp(t);
    const { accessToken: token } = await app.signUp();
    for (const path of ['/api/user/agent-account', '/api/auth/agents/connect'])
      t.equal((await app.request('GET', path, { token })).status, 404);
    t.equal((await app.request('GET', '/api/auth/me')).headers['www-authenticate'], 'Bearer realm="api"');

    const loads = (options: object) => {
      const server = new URL('../../../src/saas/server.js', import.meta.url).href;
      // The hook runs in a thread of its own.
      const hook = `
        import { writeSync } from 'node:fs';
        export async function load(url, context, next) {
          writeSync(2, url + '\\n');
          return next(url, context);
        }`;
      const script = `
        import { register } from 'node:module';
        register(${JSON.stringify(`data:text/javascript,${encodeURIComponent(hook)}`)});
        const { createServer } = await import(${JSON.stringify(server)});
        const server = createServer(${JSON.stringify(options)});
        await server.start();
        await server.stop();`;
      const run = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
        encoding: 'utf8',
      });
      t.equal(run.status, 0, run.stderr);
      t.match(run.stderr, /src.saas.plugin.js/, 'the modules are seen');
      return /src.(resource-server|login-providers.providers|agents.(module|service|access|plugin)\b)/.test(
        run.stderr,
      );
    };
    const options = testOptions(temporaryFolder(t));
    t.equal(loads(options), false);
    const agents = { agentIssuer: 'https://id.example.test', agentResource: API, agentClientId: 'x' };
    t.equal(loads({ ...options, ...agents }), true, 'the check works');
  },
);
