import { createLocalJWKSet, jwtVerify } from 'jose';
import t, { type Test } from 'tap';
import { accessOf, isRevoked, type RevocationList } from '../../../src/core/http/revocation-list.js';
import { MINUTE, SECOND } from '../../../src/core/kernel/clock.js';
import { createResourceServer } from '../../../src/resource-server/service.js';
import { basic } from '../../kit/app.js';
import { grantedIn } from '../../kit/granted.js';
import {
  type Credentials,
  claimsOf,
  type IdpApp,
  ISSUER,
  idpApp,
  idpStore,
  type RegisteredClient,
  search,
} from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';
import { waitUntil } from '../../kit/wait.js';

const SCOPE = { resource: FILES, scope: 'openid files:read' };

/** The published list, verified as a resource server does. */
async function listOf(idp: IdpApp): Promise<RevocationList> {
  const { text, headers } = await idp.request('GET', '/revocations');
  t.match(headers['content-type'], 'application/revocations+jwt');
  const keys = createLocalJWKSet((await idp.request('GET', '/jwks')).body);
  const currentDate = new Date(idp.clock.now());
  const { payload } = await jwtVerify(text, keys, { issuer: ISSUER, typ: 'revocations+jwt', currentDate });
  return payload['revoked'] as RevocationList;
}

/** An application with an access token for the API, and whether the list and introspection call it revoked. */
async function withToken(t: Test, idp: IdpApp, who?: Credentials, scope = SCOPE) {
  const server = await addResource(t, idp).catch(async () => null);
  const [client, principal] = [await idp.createClient(), who ?? (await idp.mintAgent())];
  const tokenFor = async () => (await idp.redeem(client, await idp.codeFor(client, principal, scope))).body;
  const tokens = await tokenFor();
  const claims = claimsOf(tokens.access_token);
  const isListed = async (token = tokens.access_token) => isRevoked(claimsOf(token), await listOf(idp));
  return { client, principal, tokens, claims, tokenFor, isListed, server };
}

const revoke = (idp: IdpApp, client: RegisteredClient, token: string) =>
  idp.request('POST', '/revoke', {
    form: search({ token }),
    headers: { authorization: basic(client.id, client.secret) },
  });

t.test('without an API there is no list, and nothing is stored for one', async (t) => {
  const idp = await idpApp(t);
  t.equal((await idp.request('GET', '/revocations')).status, 404);
  const { body: metadata } = await idp.request('GET', '/.well-known/openid-configuration');
  t.notOk('revocation_list_uri' in metadata);
  const agent = await idp.mintAgent();
  t.equal((await idp.admin('POST', `/v1/principals/${agent.sub}/disable`)).status, 200);
  await addResource(t, idp);
  t.same(await listOf(idp), {});
  idp.clock.advance(2 * SECOND);
  const { body: later } = await idp.request('GET', '/.well-known/openid-configuration');
  t.equal(later.revocation_list_uri, `${ISSUER}/revocations`);
});

t.test('whatever ends what a token was issued for is listed, until the token has expired', async (t) => {
  const ends: [
    name: string,
    end: (idp: IdpApp, made: Awaited<ReturnType<typeof withToken>>) => Promise<unknown>,
  ][] = [
    ['the client revokes the token', (idp, { client, tokens }) => revoke(idp, client, tokens.access_token)],
    [
      'the client revokes the refresh token',
      (idp, { client, tokens }) => revoke(idp, client, tokens.refresh_token),
    ],
    [
      'an operator disables the principal',
      (idp, { principal }) => idp.admin('POST', `/v1/principals/${principal.sub}/disable`),
    ],
    [
      'the agent rotates its password',
      (idp, { principal }) =>
        idp.request('POST', '/v1/agents/self/rotate', {
          headers: { authorization: `Basic ${btoa(`${principal.handle}:${principal.password}`)}` },
        }),
    ],
  ];
  for (const [name, end] of ends) {
    const idp = await idpApp(t);
    const made = await withToken(t, idp, undefined, { ...SCOPE, scope: 'openid files:read offline_access' });
    const other = await withToken(t, idp);
    t.equal(await made.isListed(), false, name);
    await end(idp, made);
    await end(idp, made);
    t.equal(await made.isListed(), true, name);
    t.equal(await other.isListed(), false, `${name}: and no other token`);
    idp.clock.advance(12 * MINUTE);
    t.same(await listOf(idp), {}, `${name}: it has expired`);
  }
});

t.test('a used code or refresh token ends every token of its authorization', async (t) => {
  const idp = await idpApp(t);
  await addResource(t, idp);
  const [client, agent] = [await idp.createClient({ public: true }), await idp.mintAgent()];
  const code = await idp.codeFor(client, agent, SCOPE);
  const { access_token: first } = (await idp.redeem(client, code)).body;
  t.equal((await idp.redeem(client, code)).status, 400);
  t.equal(isRevoked(claimsOf(first), await listOf(idp)), true);

  const lasting = { ...SCOPE, scope: 'openid files:read offline_access' };
  const tokens = (await idp.redeem(client, await idp.codeFor(client, agent, lasting))).body;
  const next = (await idp.refresh(client, tokens.refresh_token)).body;
  idp.clock.advance(5 * MINUTE);
  await idp.refresh(client, next.refresh_token);
  idp.clock.advance(MINUTE);
  t.equal((await idp.refresh(client, tokens.refresh_token)).status, 400, 'reused');
  t.equal(isRevoked(claimsOf(next.access_token), await listOf(idp)), true);
});

t.test('tokens after an end are not affected by it', async (t) => {
  const idp = await idpApp(t);
  const person = await idp.makeHuman();
  const { isListed, tokenFor, tokens } = await withToken(t, idp, person);
  t.equal(await isListed(tokens.access_token), false);
  const { sub } = claimsOf(tokens.access_token);
  for (const state of ['disable', 'enable'])
    t.equal((await idp.admin('POST', `/v1/principals/${sub}/${state}`)).status, 200);
  t.equal(await isListed(tokens.access_token), true);
  const again = (await tokenFor()).access_token;
  t.equal(await isListed(again), false, 'in the same second');
});

t.test('a resource server learns of it while it waits, in each process', async (t) => {
  const idp = await idpApp(t);
  const { tokens, principal, server } = await withToken(t, idp);
  const origin = await idp.listen();
  const api = createResourceServer({
    issuer: ISSUER,
    resource: FILES,
    clock: idp.clock,
    fetch: (url, init) => fetch(url.replace(ISSUER, origin), init),
  });
  t.teardown(() => api.close());
  const request = new Request(FILES, { headers: { authorization: `Bearer ${tokens.access_token}` } });
  t.match(await api.verify(request), { subject: principal.sub, scopes: ['files:read'] });

  // Another process on the same store.
  const other = await idpApp(t, { databaseUri: idp.databaseUri, clock: idp.clock });
  t.equal((await other.admin('POST', `/v1/principals/${principal.sub}/disable`)).status, 200);
  await waitUntil('the resource server refuses the token', async () => {
    const refused = await api.verify(request).catch((error: unknown) => error);
    return (refused as { code?: string }).code === 'invalid_token';
  });
  t.same((await introspect(idp, server ?? { id: '' }, tokens.access_token)).body, { active: false });
});

t.test(
  'an API that is removed ends its tokens, those of an API with its identifier later do not',
  async (t) => {
    const idp = await idpApp(t);
    const { tokens, client, principal, server } = await withToken(t, idp);
    const origin = await idp.listen();
    const api = createResourceServer({
      issuer: ISSUER,
      resource: FILES,
      clock: idp.clock,
      fetch: (url, init) => fetch(url.replace(ISSUER, origin), init),
    });
    t.teardown(() => api.close());
    const accepts = (token: string) =>
      api
        .verify(new Request(FILES, { headers: { authorization: `Bearer ${token}` } }))
        .then(() => 'accepted')
        .catch((error: { code: string }) => error.code);
    t.equal(await accepts(tokens.access_token), 'accepted');
    const path = '/.well-known/openid-configuration';
    t.equal(await server?.remove('https://unknown.example.test', COMMAND_SOURCE), null);
    t.equal(await accepts(tokens.access_token), 'accepted');
    await server?.remove(FILES, COMMAND_SOURCE);
    await waitUntil('the resource server refuses the token', async () => {
      return (await accepts(tokens.access_token)) === 'invalid_token';
    });

    await addResource(t, idp);
    idp.clock.advance(10 * SECOND);
    const next = (await idp.redeem(client, await idp.codeFor(client, principal, SCOPE))).body;
    t.equal(isRevoked(claimsOf(next.access_token), await listOf(idp)), false, 'registered again');
    t.equal(isRevoked(claimsOf(tokens.access_token), await listOf(idp)), true);
    await server?.remove(FILES, COMMAND_SOURCE);
    t.equal((await idp.request('GET', '/revocations')).status, 200, 'while tokens may be valid');
    idp.clock.advance(12 * MINUTE);
    t.equal((await idp.request('GET', '/revocations')).status, 404);
    t.notOk('revocation_list_uri' in (await idp.request('GET', path)).body);
  },
);

t.test(
  'a request that waits is answered when the list changes, at its limit, and when the server stops',
  async (t) => {
    const idp = await idpApp(t);
    const { client, tokens } = await withToken(t, idp);
    const url = `${await idp.listen()}/revocations`;
    const first = await fetch(url);
    const etag = first.headers.get('etag') ?? '';
    t.equal((await fetch(url, { headers: { 'if-none-match': etag } })).status, 304, 'without waiting');
    const wait = (seconds: number, known = etag) =>
      fetch(url, { headers: { 'if-none-match': known, prefer: `wait=${seconds}` } });
    const unchanged = await wait(1);
    t.equal(unchanged.status, 304);
    t.equal(unchanged.headers.get('preference-applied'), 'wait=1');

    const waiting = wait(25);
    const gone = new AbortController();
    const leaving = fetch(url, {
      headers: { 'if-none-match': etag, prefer: 'respond-async, wait=25' },
      signal: gone.signal,
    });
    await waitUntil('both wait', async () => (await fetch(url)).ok);
    gone.abort();
    await t.rejects(leaving);
    await revoke(idp, client, tokens.access_token);
    const changed = await waiting;
    t.equal(changed.status, 200);
    t.not(changed.headers.get('etag'), etag);

    const last = wait(25, changed.headers.get('etag') ?? '');
    await waitUntil('it waits', async () => (await fetch(url)).ok);
    await idp.server.stop();
    await last.then(({ status }) => t.ok([200, 304].includes(status)));
  },
);

t.test(
  'what is revoked for good stays so, and a generation is never replaced by an earlier one',
  async (t) => {
    const idp = await idpApp(t);
    const { revocations, commit } = grantedIn(await idpStore(t, idp), idp, { hasResources: true });
    const end = async (...ended: Parameters<typeof revocations.ending>) =>
      commit([await revocations.ending(...ended)]);
    const access = { client_id: 'app', sub: 'u' };
    await end('access', accessOf('app', 'u'), 3);
    await end('access', accessOf('app', 'u'), 2);
    t.equal(await revocations.includes({ ...access, consent: 2 }), true);
    t.equal(await revocations.includes({ ...access, consent: 3 }), false);
    await end('access', accessOf('app', 'u'));
    await end('access', accessOf('app', 'u'), 4);
    t.equal(await revocations.includes({ ...access, consent: 9 }), true, 'for good');

    await end('sub', 'u', 7);
    t.equal(await revocations.includes({ sub: 'u', epoch: 6 }), true);
    t.equal(await revocations.includes({ sub: 'u', epoch: 7 }), false);
    t.equal(await revocations.includes({ sub: 'x', act: { sub: 'u', epoch: 6 } }), true, 'as an actor');
  },
);
