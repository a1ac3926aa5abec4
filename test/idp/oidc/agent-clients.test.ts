import * as openid from 'openid-client';
import t, { type Test } from 'tap';
import { DAY, SECOND } from '../../../src/core/kernel/clock.js';
import { delegationCollection } from '../../../src/idp/oidc/delegations/store.js';
import { TOKEN_EXCHANGE } from '../../../src/idp/oidc/tokens/request.js';
import type { AgentChange } from '../../../src/idp/provisioning/agents.js';
import { agentsIn, agentWithKey } from '../../kit/agent-keys.js';
import { auditOf, basic } from '../../kit/app.js';
import { asserted, assertion, clientKey, documentHost } from '../../kit/client-keys.js';
import { runProgram } from '../../kit/command-line.js';
import { signInAt, TYPES } from '../../kit/delegations.js';
import { skewOf } from '../../kit/fetch.js';
import {
  authorizePath,
  CALLBACK,
  claimsOf,
  codeIn,
  type IdpAppOptions,
  ISSUER,
  idpApp,
  idpStore,
  type Parameters,
  redemption,
  refreshing,
  search,
} from '../../kit/idp.js';
import { COMMAND_SOURCE, enterConsole, makeOperator } from '../../kit/operator.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';
import { sentence } from '../../kit/sentences.js';

/** Agents that are OAuth clients: an ordinary sign-in of a person lets the agent act for the person. */

const HERE = { publicUrl: undefined } as const;
const LOOPBACK = 'http://127.0.0.1/cb';

/** A provider with an API, an agent with a redirect URI, and a person who is signed in in a browser. */
async function start(t: Test, options: IdpAppOptions = {}) {
  const idp = await idpApp(t, { limits: false, ...options });
  const files = await addResource(t, idp, FILES, { sensitive: ['files:write'] });
  const agent = await agentWithKey(t, idp);
  const store = await idpStore(t, idp);
  const agents = agentsIn(store, idp);
  const change = (given: AgentChange, sub = agent.sub) => agents.change(sub, given, COMMAND_SOURCE);
  await change({ redirectUris: [CALLBACK] });
  const human = await idp.makeHuman();
  const browser = await signInAt(idp, human);
  const client = { id: agent.sub, redirectUri: CALLBACK };
  const ask = async (more: Parameters = {}, by = client) =>
    browser.open((await idp.listen()) + authorizePath(by, { resource: FILES, scope: 'files:read', ...more }));
  const allow = async (more: Parameters = {}, by = client) =>
    codeIn((await browser.submit(await ask(more, by), { decision: 'allow' })).location);
  /** With the key of the agent. */
  const proof = async (clientId = agent.sub, key = agent.key) =>
    asserted(
      await assertion(key, { clientId, issuer: idp.server.fastify.idp.issuer(), now: idp.clock.now() }),
    );
  const redeem = async (code: string, more: Parameters = {}) =>
    idp.redeem(client, code, { ...(await proof()), ...more });
  const refresh = async (token: string, more: Parameters = {}) =>
    idp.refresh(client, token, { ...(await proof()), ...more });
  const isActive = async (token: string) => (await introspect(idp, files, token)).body.active;
  const world = { idp, files, store, agent, agents, change, human, browser, client };
  return { ...world, ask, allow, proof, redeem, refresh, isActive };
}

t.test('an ordinary sign-in of a person lets the agent act for the person', async (t) => {
  const { idp, files, store, agent, human, browser, ask, redeem, refresh, isActive } = await start(t);
  const page = await ask({ scope: 'openid files:read files:write offline_access' });
  t.match(page.body, new RegExp(`${agent.handle}[^.]*a program, asks to act for you`));
  for (const shown of ['Read your files', 'Change your files', 'sensitive', 'files.example.test'])
    t.match(page.body, shown);
  const { status, body } = await redeem(codeIn((await browser.submit(page, { decision: 'allow' })).location));
  t.equal(status, 200);
  t.strictSame(Object.keys(body).sort(), [
    'access_token',
    'expires_in',
    'refresh_token',
    'scope',
    'token_type',
  ]);
  t.match(body.refresh_token, /^rt_/);
  const claims = claimsOf(body.access_token);
  t.match(claims, {
    ...{ sub: human.sub, client_id: agent.sub, aud: FILES, scope: 'files:read files:write', kind: 'human' },
    ...{ act: { sub: agent.sub, sub_profile: 'ai_agent', iss: ISSUER }, delegation: /^dlg_/ },
  });
  t.notOk('sid' in claims);
  t.equal(await isActive(body.access_token), true);

  idp.clock.advance(3 * DAY);
  const next = await refresh(body.refresh_token, { scope: 'files:read' });
  t.match(next, { status: 200, body: { scope: 'files:read', refresh_token: /^rt_/ } });
  t.match(claimsOf(next.body.access_token), { sub: human.sub, act: { sub: agent.sub } });
  const stored = await delegationCollection(store).findOne({ id: claims.delegation });
  t.match(stored, { agent: agent.sub, person: human.sub, clientId: agent.sub, maxDepth: 1 });
  t.equal(Math.round(((stored?.expiresAt ?? 0) - (stored?.createdAt ?? 0)) / DAY), 30);
  const events = (await auditOf(store)).filter(({ event }) => event.startsWith('delegation.'));
  const detail = new RegExp(`"txn":"${claims.txn}".*"agent":"${agent.sub}".*"${claims.delegation}"`);
  t.match(
    events,
    // At the code and at the refresh.
    ['given', 'used', 'used'].map((one) => ({ event: `delegation.${one}`, subject: human.sub, detail })),
  );
  await files.remove(FILES, COMMAND_SOURCE);
  t.equal((await refresh(next.body.refresh_token)).status, 400);
});

t.test('the password of the agent is its client secret, also at the pushed request', async (t) => {
  const { idp, agent, human, browser, client, allow } = await start(t, HERE);
  const headers = { authorization: basic(agent.sub, agent.password) };
  const wrong = { authorization: basic(agent.sub, `${agent.password}x`) };
  const form = redemption(client, await allow());
  t.match(await idp.request('POST', '/token', { form, headers: wrong }), {
    status: 401,
    body: { error: 'invalid_client' },
  });
  const { status, body } = await idp.request('POST', '/token', { form, headers });
  t.equal(status, 200);
  t.match(claimsOf(body.access_token), { sub: human.sub, act: { sub: agent.sub } });
  const again = refreshing(client, body.refresh_token);
  t.equal((await idp.request('POST', '/token', { form: again, headers })).status, 200);
  t.equal((await idp.request('POST', '/token', { form: again, headers: wrong })).status, 401);
  t.equal((await idp.request('POST', '/token', { form: again })).status, 401, 'the client_id alone');

  const [, query = ''] = authorizePath(client, { resource: FILES, scope: 'files:read' }).split('?');
  t.equal((await idp.request('POST', '/par', { form: query })).status, 401);
  const pushed = await idp.request('POST', '/par', { form: query, headers });
  t.equal(pushed.status, 201);
  const named = search({ client_id: client.id, request_uri: pushed.body.request_uri });
  const page = await browser.open(`${await idp.listen()}/authorize?${named}`);
  t.ok(codeIn((await browser.submit(page, { decision: 'allow' })).location));
});

t.test('openid-client signs in and refreshes without an extra parameter', async (t) => {
  const { idp, agent, human, browser } = await start(t, HERE);
  await idp.listen();
  const issuer = idp.server.fastify.idp.issuer();
  const jwk = agent.key.privateKey.export({ format: 'jwk' });
  const key = await crypto.subtle.importKey('jwk', jwk, 'Ed25519', false, ['sign']);
  const ways = {
    key: openid.PrivateKeyJwt(key),
    password: openid.ClientSecretBasic(agent.password),
  };
  for (const [name, authentication] of Object.entries(ways)) {
    const own = { [openid.clockSkew]: skewOf(idp) };
    const config = await openid.discovery(new URL(issuer), agent.sub, own, authentication, {
      execute: [openid.allowInsecureRequests],
    });
    const verifier = openid.randomPKCECodeVerifier();
    const url = openid.buildAuthorizationUrl(config, {
      ...{ redirect_uri: CALLBACK, scope: 'openid files:read', resource: FILES },
      ...{ code_challenge_method: 'S256', code_challenge: await openid.calculatePKCECodeChallenge(verifier) },
    });
    const landed = await browser.submit(await browser.open(url.href), { decision: 'allow' });
    const checks = { pkceCodeVerifier: verifier };
    const tokens = await openid.authorizationCodeGrant(config, new URL(landed.location ?? ''), checks);
    t.match(claimsOf(tokens.access_token), { sub: human.sub, act: { sub: agent.sub } }, name);
    const next = await openid.refreshTokenGrant(config, tokens.refresh_token ?? '');
    t.match(claimsOf(next.access_token), { sub: human.sub, client_id: agent.sub, act: { sub: agent.sub } });
    await openid.tokenRevocation(config, next.refresh_token ?? '');
    const refused = openid.refreshTokenGrant(config, next.refresh_token ?? '').catch(({ error }) => error);
    t.equal(await refused, 'invalid_grant');
  }
});

t.test('the scopes name the resource, and without any the agent gets what it may have', async (t) => {
  const { files, agent, ask, allow, redeem } = await start(t, HERE);
  const implied = await redeem(await allow({ resource: undefined }));
  t.match(claimsOf(implied.body.access_token), { aud: FILES, scope: 'files:read' });
  t.match((await ask({ resource: undefined, scope: 'openid' })).location, /error=invalid_target/);
  t.match((await ask({ resource: undefined, scope: undefined })).location, /error=invalid_target/);
  await files.update(FILES, { sensitive: [] }, COMMAND_SOURCE);
  await files.permissions.withdraw('*', files, COMMAND_SOURCE);
  await files.permissions.allow(
    agent.sub,
    FILES,
    { scopes: ['files:read'], delegatedOnly: true },
    COMMAND_SOURCE,
  );
  const page = await ask({ scope: undefined });
  t.match(page.body, 'Read your files');
  t.notMatch(page.body, 'Change your files', 'for which the agent has no permission');
  t.match((await redeem(await allow({ scope: undefined }))).body, { scope: 'files:read' });
});

t.test('requests of an agent that are not complete are refused', async (t) => {
  const { idp, agent, human, browser, client, ask, allow, redeem } = await start(t, HERE);
  const other = await agentWithKey(t, idp);
  await addResource(t, idp, 'https://people.example.test', { principalKinds: ['human'] });
  const cases: [Parameters, string][] = [
    [{ resource: undefined, scope: 'openid' }, 'invalid_target.*exactly%20one%20resource'],
    [{ resource: 'https://people.example.test', scope: undefined }, 'access_denied'],
    [{ requested_actor: other.sub }, 'invalid_request.*asks%20for%20itself'],
    [{ delegation_max_depth: '4' }, 'invalid_request'],
    [{ code_challenge: undefined, code_challenge_method: undefined }, 'invalid_request.*PKCE'],
    [{ prompt: 'none' }, 'consent_required'],
  ];
  for (const [more, error] of cases)
    t.match((await ask(more)).location, new RegExp(`error=${error}`), JSON.stringify(more));
  t.match((await ask({ redirect_uri: 'https://evil.example.test/cb' })).status, 400);
  t.match((await browser.submit(await ask(), { decision: 'deny' })).location, /error=access_denied/);
  const request = { resource: FILES, scope: 'files:read' };
  const self = await idp.authorize(client, agent, request);
  t.match(self.headers['location'], /error=access_denied/, 'the agent itself');
  t.equal((await idp.authorize(client, human, request)).status, 401, 'HTTP Basic of a person');
  const unlisted = { id: other.sub, redirectUri: CALLBACK };
  t.equal((await ask({}, unlisted)).status, 400, 'an agent without a redirect URI is no client');
  t.match((await ask({ requested_actor: agent.sub })).body, sentence('delegation.title'), 'itself');

  const code = await allow();
  const stolen = asserted(
    await assertion(other.key, {
      ...{ clientId: other.sub, issuer: idp.server.fastify.idp.issuer(), now: idp.clock.now() },
    }),
  );
  t.equal((await idp.redeem(unlisted, code, stolen)).status, 401, 'another agent');
  t.match(await redeem(code, { code_verifier: 'x'.repeat(43) }), { body: { error: 'invalid_grant' } });
  t.equal((await redeem(code)).status, 200);
  t.equal((await redeem(code)).status, 400, 'once');
});

t.test('permissions decide, at the page, at the code and at each refresh', async (t) => {
  const { idp, files, agent, ask, allow, redeem, refresh, isActive } = await start(t, HERE);
  const permit = (terms: object) =>
    files.permissions.allow(agent.sub, FILES, { scopes: ['files:read'], ...terms }, COMMAND_SOURCE);
  const withdraw = async (subject: string) => {
    await files.permissions.withdraw(subject, files, COMMAND_SOURCE);
    await files.settled();
    // Tokens of this moment may be of another process, whose clock differs.
    idp.clock.advance(10 * SECOND);
  };
  await withdraw('*');
  t.match((await ask()).location, /error=access_denied.*has%20no%20permission/);
  await permit({ delegatedOnly: true });
  t.match((await ask({ scope: 'files:read files:write' })).location, /error=access_denied/);
  const { body } = await redeem(await allow());
  t.equal(await isActive(body.access_token), true);
  const code = await allow();
  await withdraw(agent.sub);
  t.equal(await isActive(body.access_token), false);
  t.match(await redeem(code), { status: 400, body: { error: 'invalid_target' } });
  t.match(await refresh(body.refresh_token), { status: 400 });
  await permit({ networks: ['192.0.2.0/24'] });
  t.match(await redeem(code), { status: 400, body: { error: 'invalid_target' } }, 'from another network');
  await permit({});
  const next = await redeem(code);
  t.equal(next.status, 200);
  t.equal((await refresh(next.body.refresh_token)).status, 200);
});

t.test('an agent as a client gets nothing else', async (t) => {
  const { idp, agent, client, allow, proof, redeem, isActive } = await start(t, {
    ...HERE,
    deviceFlow: true,
  });
  const { body } = await redeem(await allow());
  const refused = async (form: Record<string, string>, error: string, status = 400) =>
    t.match(
      await idp.request('POST', '/token', { form: search({ ...form, ...(await proof()) }) }),
      { status, body: { error } },
      JSON.stringify(form),
    );
  const exchanged = { grant_type: TOKEN_EXCHANGE, subject_token: body.refresh_token, resource: FILES };
  for (const type of [TYPES.delegation, 'urn:ietf:params:oauth:token-type:refresh_token'])
    await refused(
      { ...exchanged, subject_token_type: type },
      type === TYPES.delegation ? 'unauthorized_client' : 'invalid_request',
    );
  await refused(
    { grant_type: 'urn:ietf:params:oauth:grant-type:device_code', device_code: 'dc_x' },
    'unauthorized_client',
  );
  const device = { form: search({ scope: 'openid', ...(await proof()) }) };
  t.ok((await idp.request('POST', '/device_authorization', device)).status >= 400);
  t.match(await idp.refresh(client, body.refresh_token.replace('rt_', 'dt_'), await proof()), {
    status: 400,
  });
  t.equal((await idp.userinfo(body.access_token)).status, 401);
  t.equal(await isActive(body.access_token), true);
  const own = { grant_type: 'client_credentials', resource: FILES, ...(await proof()) };
  const token = (await idp.request('POST', '/token', { form: search(own) })).body.access_token;
  t.match(claimsOf(token), { sub: agent.sub, client_id: agent.sub });
  t.notOk('act' in claimsOf(token), 'for itself as before');
});

t.test('whatever ends the agent, the delegation or what the agent is ends the tokens', async (t) => {
  type World = Awaited<ReturnType<typeof start>>;
  const ends: Record<string, (world: World, token: string) => Promise<unknown>> = {
    'the agent is disabled': ({ idp, agent }) => idp.admin('POST', `/v1/principals/${agent.sub}/disable`),
    'the person is disabled': ({ idp, human }) => idp.admin('POST', `/v1/principals/${human.sub}/disable`),
    'the agent loses a key': ({ agent }) => agent.keys.remove(agent.sub, agent.keyId),
    'the agent is no client any more': ({ change }) => change({ redirectUris: null }),
    'another permission replaces it': ({ allow }) => allow(),
    'the person ends it': async ({ idp, browser }) =>
      browser.submit(await browser.open(`${await idp.listen()}/account`), {}, '/account/delegations/end'),
    'an operator ends it': async ({ idp, agent }) => {
      const { get, act } = await enterConsole(idp, await makeOperator(t, idp, 'olga'));
      const { body } = await get(`/principals/${agent.sub}?tab=acts-for-people`);
      const [, end = ''] = /href="\.\.\/(principals\/[^"]*\/delegations\/[^"]*\/end)"/.exec(body) ?? [];
      return act(`/${end}`);
    },
  };
  for (const [name, end] of Object.entries(ends)) {
    const world = await start(t, HERE);
    const { agent, allow, redeem, refresh, proof, isActive } = world;
    const second = clientKey('ES256', 'second');
    await agent.keys.add(agent.sub, second);
    const { body } = await redeem(await allow());
    t.equal(await isActive(body.access_token), true, name);
    await end(world, body.access_token);
    t.equal(await isActive(body.access_token), false, name);
    const later = await refresh(body.refresh_token, await proof(agent.sub, second));
    t.ok(later.status >= 400, `${name}: ${later.status}`);
  }
});

t.test('of fifty redemptions one succeeds, and fifty refreshes leave one token that works', async (t) => {
  const { idp, store, allow, redeem, refresh, isActive } = await start(t, HERE);
  const code = await allow();
  const redeemed = await Promise.all(Array.from({ length: 50 }, () => redeem(code)));
  const won = redeemed.filter(({ status }) => status === 200);
  t.equal(won.length, 1);
  t.equal(await isActive(won[0]?.body.access_token), false, 'a repeated code ends what it gave');
  t.equal(await delegationCollection(store).count({ revokedAt: null }), 0);
  const first = (await redeem(await allow())).body;
  const answers = await Promise.all(Array.from({ length: 50 }, () => refresh(first.refresh_token)));
  t.ok(answers.every(({ status }) => status === 200));
  t.same(
    [...new Set(answers.map(({ body }) => body.refresh_token))],
    [first.refresh_token],
    'of a client that authenticates, it stays the same',
  );
  idp.clock.advance(31 * SECOND);
  const next = await refresh(first.refresh_token);
  t.equal(await isActive(next.body.access_token), true);
});

/** An agent that presents itself with metadata. */
async function withMetadata(t: Test, more: Record<string, unknown>) {
  const world = await start(t, { ...HERE, clientIdMetadata: true, loopbackDocuments: true });
  const host = await documentHost(t);
  const id = `${host.url}/client.json`;
  const document = { client_id: id, client_name: 'Its own name', redirect_uris: [CALLBACK], ...more };
  host.documents['/client.json'] = document;
  await world.change({ redirectUris: null, clientMetadata: id });
  return { ...world, id, document, host, client: { id, redirectUri: CALLBACK } };
}

t.test('an agent presents itself with metadata and a key', async (t) => {
  const key = clientKey();
  const method = { token_endpoint_auth_method: 'private_key_jwt', jwks: { keys: [key.jwk] } };
  const { idp, agent, human, id, client, ask, allow, proof } = await withMetadata(t, method);
  const page = await ask({}, client);
  t.match(page.body, `(<code>${agent.handle}</code>)`);
  t.notMatch(page.body, /Its own name|has registered itself|not verified/);
  const code = await allow({}, client);
  t.equal((await idp.redeem(client, code, await proof(id))).status, 401, 'not with the key of the agent');
  const { status, body } = await idp.redeem(client, code, await proof(id, key));
  t.equal(status, 200);
  t.match(claimsOf(body.access_token), { sub: human.sub, client_id: id, act: { sub: agent.sub } });
  const next = await idp.refresh(client, body.refresh_token, await proof(id, key));
  t.match(claimsOf(next.body.access_token), { client_id: id, act: { sub: agent.sub } });
  const own = search({ grant_type: 'client_credentials', resource: FILES, ...(await proof(id, key)) });
  t.match(await idp.request('POST', '/token', { form: own }), { body: { error: 'unauthorized_client' } });
});

t.test('public metadata must return to the web, and is no agent without its link', async (t) => {
  const world = await withMetadata(t, {});
  const { idp, agent, human, id, client, host, document, change, ask, allow, isActive } = world;
  const { body } = await idp.redeem(client, await allow({}, client));
  t.match(claimsOf(body.access_token), { sub: human.sub, client_id: id, act: { sub: agent.sub } });
  const races = await Promise.all(Array.from({ length: 50 }, () => idp.refresh(client, body.refresh_token)));
  t.ok(races.every(({ status }) => status === 200));
  t.equal(new Set(races.map(({ body: { refresh_token: one } }) => one)).size, 1);
  t.not(
    races[0]?.body.refresh_token,
    body.refresh_token,
    'nothing else proves the client, so it is replaced',
  );
  const next = await idp.refresh(client, races[0]?.body.refresh_token);
  t.equal(next.status, 200);

  const other = await agentWithKey(t, idp);
  const problem = (given: AgentChange, sub?: string) => change(given, sub).catch(({ details }) => details[0]);
  t.match(await problem({ clientMetadata: id }, other.sub), { message: 'is that of another agent' });
  t.match(await problem({ clientMetadata: 'http://files.example.test/c' }), { message: 'is not https' });
  t.match(await problem({ redirectUris: ['https://*.test/cb'] }), { path: 'redirect_uris.0' });

  const ordinary = await allow({}, client);
  await change({ clientMetadata: null });
  t.equal(await isActive(next.body.access_token), false);
  t.equal((await idp.redeem(client, ordinary)).status, 400);
  t.equal((await idp.refresh(client, next.body.refresh_token)).status, 400);
  t.match((await ask({}, client)).body, sentence('consent.allow'), 'an ordinary client');
  const asOrdinary = await allow({ scope: 'files:read offline_access', prompt: 'consent' }, client);
  const plain = (await idp.redeem(client, asOrdinary)).body;
  t.notOk('act' in claimsOf(plain.access_token));
  await change({ clientMetadata: id }, other.sub);
  t.equal(
    (await idp.refresh(client, plain.refresh_token)).status,
    400,
    'what others allowed is not the agent',
  );

  await idp.admin('POST', `/v1/principals/${other.sub}/disable`);
  t.match((await ask({}, client)).body, /has been stopped/, 'and not an ordinary client');
  await idp.admin('POST', `/v1/principals/${other.sub}/enable`);
  host.documents['/client.json'] = { ...document, redirect_uris: [CALLBACK, LOOPBACK] };
  idp.clock.advance(2 * DAY);
  const refused = await ask({}, client);
  t.match(refused.body, /must name private_key_jwt, or https redirect URIs alone/);
  await idp.admin('DELETE', `/v1/agents/${other.sub}`);
  await change({ clientMetadata: id });
});

t.test('commands on the host make an agent a client, and the API and the console show it', async (t) => {
  const { idp, store, agent } = await start(t, HERE);
  const type = (...args: string[]) =>
    runProgram('idp', ['agent', ...args, '--json'], { IDP_DATABASE_URI: idp.databaseUri });
  const metadata = 'https://scout.example.test/client.json';
  const uris = `${CALLBACK},${LOOPBACK}`;
  t.match(await type('update', agent.handle, '--redirect-uris', uris, '--client-metadata', metadata), {
    code: 0,
    json: { redirect_uris: [CALLBACK, LOOPBACK], client_metadata: metadata },
  });
  const seen = async () => (await idp.admin('GET', `/v1/principals/${agent.sub}`)).body;
  t.match(await seen(), { redirect_uris: [CALLBACK, LOOPBACK], client_metadata: metadata });
  const { get } = await enterConsole(idp, await makeOperator(t, idp, 'olga'));
  const { body } = await get(`/principals/${agent.sub}`);
  for (const shown of [CALLBACK, LOOPBACK, metadata]) t.match(body, shown);
  const changed = (await auditOf(store)).find(({ event }) => event === 'agent.changed');
  t.match(changed, { event: 'agent.changed', subject: agent.sub, ip: 'cli', detail: new RegExp(metadata) });
  t.match(await type('mint', 'two@example.test', '--client-metadata', metadata), {
    code: 1,
    err: /another agent/,
  });
  t.match(await type('mint', 'two@example.test', '--redirect-uris', 'ftp://x'), {
    code: 1,
    err: /must be https/,
  });
  t.match(await type('update', agent.handle, '--redirect-uris', '', '--client-metadata', ''), { code: 0 });
  t.notOk('redirect_uris' in (await seen()) || 'client_metadata' in (await seen()));
  const minted = await type(
    'mint',
    'two@example.test',
    '--redirect-uris',
    CALLBACK,
    '--client-metadata',
    metadata,
  );
  t.equal(minted.code, 0);
  t.match((await idp.admin('GET', `/v1/principals/${minted.json.sub}`)).body, { client_metadata: metadata });
});
