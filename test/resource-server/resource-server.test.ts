import { KeyObject } from 'node:crypto';
import Fastify from 'fastify';
import {
  calculateJwkThumbprint,
  exportJWK,
  generateKeyPair,
  type JWTPayload,
  SignJWT,
  UnsecuredJWT,
} from 'jose';
import t, { type Test } from 'tap';
import { accessOf, type RevocationKind, revocationKey } from '../../src/core/http/revocation-list.js';
import { MINUTE, SECOND, toSeconds } from '../../src/core/kernel/clock.js';
import { type ProtectResourceOptions, protectResource } from '../../src/resource-server/plugin.js';
import { createResourceServer } from '../../src/resource-server/service.js';
import { saasApp } from '../kit/app.js';
import { type FakeClock, fakeClock } from '../kit/clock.js';
import { dpopKey, tokenIssuer } from '../kit/token-issuer.js';
import { waitUntil } from '../kit/wait.js';

const RESOURCE = 'https://api.example.test/files';
const PATH = '/files/1';
const METADATA = '/.well-known/oauth-protected-resource/files';

/** An application with a route for readers, one for writers, and one that needs a recent and strong sign-in. */
async function protectedApp(
  t: Test,
  {
    revocations = false,
    alg = 'EdDSA',
    clock = fakeClock(),
    ...options
  }: Partial<Omit<ProtectResourceOptions, 'clock'>> & {
    revocations?: boolean;
    alg?: string;
    clock?: FakeClock;
  } = {},
) {
  const issuer = await tokenIssuer(t, { clock, revocations, alg });
  const failures: unknown[] = [];
  const app = Fastify();
  t.teardown(() => app.close());
  await app.register(protectResource, {
    issuer: issuer.url,
    resource: RESOURCE,
    scopes: ['files:read', 'files:write'],
    clock,
    onFailure: (error) => failures.push(error),
    ...options,
  });
  const guard = app.protectedResource.requireToken;
  app.get(PATH, { onRequest: guard({ scopes: ['files:read'] }) }, async ({ accessToken }) => accessToken);
  app.post(PATH, { onRequest: guard({ scopes: ['files:write'] }) }, async () => ({ done: true }));
  app.delete(PATH, { onRequest: guard({ acr: ['mfa'], maxAge: 300 }) }, async () => ({ done: true }));

  const claims = (): JWTPayload => {
    const now = toSeconds(clock.now());
    const scope = 'files:read openid';
    return {
      ...{ iss: issuer.url, aud: RESOURCE, sub: 'usr_1', client_id: 'app_1', scope, jti: 'at_1' },
      ...{ iat: now, exp: now + 600, kind: 'human', auth_time: now - 10, acr: 'pwd', amr: ['pwd'] },
    };
  };
  const call = async (
    authorization?: string | string[],
    {
      method = 'GET',
      headers = {},
    }: { method?: 'GET' | 'POST' | 'DELETE'; headers?: Record<string, string> } = {},
  ) => {
    const response = await app.inject({
      ...{ method, url: PATH },
      headers: { ...(authorization !== undefined && { authorization: authorization as string }), ...headers },
    });
    const challenge = String(response.headers['www-authenticate'] ?? '');
    return { status: response.statusCode, body: response.json(), challenge, headers: response.headers };
  };
  const bearer = async (change: JWTPayload = {}) => `Bearer ${await issuer.sign({ ...claims(), ...change })}`;
  return { app, clock, issuer, failures, claims, call, bearer };
}

t.test('a token for this resource is accepted, and the handler sees what it says', async (t) => {
  const { call, bearer, clock, issuer } = await protectedApp(t);
  const act = { sub: 'agt_1', act: { sub: 'agt_2' } };
  for (let time = 0; time < 3; time++) {
    t.match(await call(await bearer({ act })), {
      status: 200,
      body: {
        subject: 'usr_1',
        kind: 'human',
        clientId: 'app_1',
        scopes: ['files:read', 'openid'],
        actors: ['agt_1', 'agt_2'],
        id: 'at_1',
        expiresAt: clock.now() + 10 * MINUTE,
        authTime: clock.now() - 10 * SECOND,
        acr: 'pwd',
        amr: ['pwd'],
      },
    });
  }
  t.equal((await call((await bearer()).replace('Bearer', 'bearer  '))).status, 200, 'schemes have no case');
  t.same(issuer.requests, ['/.well-known/openid-configuration', '/jwks'], 'read once');
});

t.test('each 401 names the scopes that the route needs', async (t) => {
  const { app, bearer, call } = await protectedApp(t);
  const expired = await bearer({ exp: 1 });
  for (const authorization of [
    undefined,
    expired,
    await bearer({ aud: 'https://other.example.test' }),
    'Bearer x',
  ]) {
    t.match(
      await call(authorization),
      { status: 401, challenge: /scope="files:read"/ },
      String(authorization),
    );
    t.match(await call(authorization, { method: 'POST' }), { status: 401, challenge: /scope="files:write"/ });
  }
  t.notMatch((await call(expired, { method: 'DELETE' })).challenge, /scope=/, 'it needs none');
  await app.close();
});

t.test('metadata say where tokens come from, also to pages of other origins', async (t) => {
  const { app, issuer } = await protectedApp(t, {
    name: 'Files',
    documentation: 'https://docs.example.test/',
  });
  const response = await app.inject({ url: METADATA });
  t.equal(response.headers['access-control-allow-origin'], '*');
  t.same(response.json(), {
    resource: RESOURCE,
    authorization_servers: [issuer.url],
    bearer_methods_supported: ['header'],
    scopes_supported: ['files:read', 'files:write'],
    resource_name: 'Files',
    resource_documentation: 'https://docs.example.test/',
    dpop_signing_alg_values_supported: ['EdDSA', 'ES256'],
  });
});

t.test('a request without a token gets a challenge with the metadata and the scopes', async (t) => {
  const { call } = await protectedApp(t);
  for (const header of [undefined, '', 'Basic eDp5', 'Bearer', 'Bearer ä', 'Bearer a b']) {
    const { status, challenge, body, headers } = await call(header);
    t.equal(status, 401, String(header));
    t.equal(
      challenge,
      `Bearer scope="files:read", resource_metadata="https://api.example.test${METADATA}"`,
      'RFC 6750 §3.1: no error code without a token',
    );
    t.equal(body.error, 'invalid_token');
    t.equal(headers['cache-control'], 'no-store');
  }
});

t.test(
  'only tokens of this issuer for this resource are accepted, of the right type, within their time',
  async (t) => {
    const { call, bearer, issuer, claims, clock } = await protectedApp(t);
    const stranger = await generateKeyPair('EdDSA', { crv: 'Ed25519' });
    const es256 = await generateKeyPair('ES256');
    const now = toSeconds(clock.now());
    const refused: Record<string, string> = {
      'another resource': await bearer({ aud: 'https://api.example.test/other' }),
      'a resource below': await bearer({ aud: `${RESOURCE}/1` }),
      'no resource': await bearer({ aud: undefined as never }),
      'another issuer': await bearer({ iss: 'https://evil.test' }),
      expired: await bearer({ exp: now - 6 }),
      'without an end': await bearer({ exp: undefined as never }),
      'not yet valid': await bearer({ nbf: now + 60 }),
      'without a client': await bearer({ client_id: undefined }),
      'without a subject': await bearer({ sub: undefined as never }),
      'an id_token': `Bearer ${await issuer.sign(claims(), { typ: 'JWT' })}`,
      'without a type': `Bearer ${await issuer.sign(claims(), { typ: undefined as never })}`,
      'a list of revoked tokens': `Bearer ${await issuer.sign(claims(), { typ: 'revocations+jwt' })}`,
      'another key': `Bearer ${await issuer.sign(claims(), {}, stranger.privateKey)}`,
      'an unknown key': `Bearer ${await issuer.sign(claims(), { kid: 'k2' }, stranger.privateKey)}`,
      'another algorithm': `Bearer ${await issuer.sign(claims(), { alg: 'ES256' }, es256.privateKey)}`,
      unsigned: `Bearer ${new UnsecuredJWT(claims()).encode()}`,
      changed: `${(await bearer()).slice(0, -4)}AAAA`,
      opaque: `Bearer at_${'x'.repeat(43)}`,
    };
    for (const [name, header] of Object.entries(refused)) {
      const { status, challenge, body } = await call(header);
      t.equal(status, 401, name);
      t.match(challenge, /^Bearer error="invalid_token", error_description="The access token [^"]+", /, name);
      t.equal(body.error, 'invalid_token', name);
    }
    t.equal((await call(await bearer({ aud: ['https://x.test', RESOURCE] }))).status, 200, 'one of several');
  },
);

t.test(
  'a token without the scopes of the route is refused with the scopes that it needs beside its own',
  async (t) => {
    const { call, bearer } = await protectedApp(t);
    const { status, challenge } = await call(await bearer(), { method: 'POST' });
    t.equal(status, 403);
    t.match(challenge, /^Bearer error="insufficient_scope", .*scope="files:read openid files:write"/);
    t.equal((await call(await bearer({ scope: 'files:write' }), { method: 'POST' })).status, 200);
    t.equal(
      (await call(await bearer({ scope: 'files:read2 files' }))).status,
      403,
      'scopes are compared whole',
    );
    t.equal((await call(await bearer({ scope: undefined }))).status, 403);
  },
);

t.test('a later hook demands more of the same token, whose proof is used up', async (t) => {
  const { app, issuer, claims, clock, bearer } = await protectedApp(t);
  const { requireToken } = app.protectedResource;
  // As an MCP server does, which reads in the body what is asked for.
  app.put<{ Body: { scopes: string[] } }>(PATH, {
    onRequest: requireToken({ scopes: ['files:read'] }),
    preHandler: requireToken(({ body }) => body as { scopes: string[] }),
    handler: async () => ({ done: true }),
  });
  const put = (authorization: string, scopes: string[], headers: Record<string, string> = {}) =>
    app.inject({ method: 'PUT', url: PATH, headers: { authorization, ...headers }, payload: { scopes } });
  t.equal((await put(await bearer(), [])).statusCode, 200);
  const refused = await put(await bearer(), ['files:write']);
  t.equal(refused.statusCode, 403);
  t.match(
    refused.headers['www-authenticate'],
    /^Bearer error="insufficient_scope", .*scope="files:read openid files:write"/,
  );
  const key = await dpopKey(clock, 'ES256');
  const token = await issuer.sign({ ...claims(), cnf: { jkt: await calculateJwkThumbprint(key.jwk) } });
  const proof = () =>
    key.prove({ method: 'PUT', url: `https://api.example.test${PATH}`, token }, { claims: {} });
  t.equal((await put(`DPoP ${token}`, ['files:read'], { dpop: await proof() })).statusCode, 200);
  const bound = await put(`DPoP ${token}`, ['files:write'], { dpop: await proof() });
  t.match(bound.headers['www-authenticate'], /^DPoP algs=.*error="insufficient_scope"/);
});

t.test('a route may demand a strong and recent sign-in', async (t) => {
  const { call, bearer, clock } = await protectedApp(t);
  const now = toSeconds(clock.now());
  for (const change of [
    { acr: 'pwd' },
    { acr: undefined },
    { acr: 'mfa', auth_time: now - 306 },
    { acr: 'mfa', auth_time: undefined },
  ]) {
    const { status, challenge } = await call(await bearer(change), { method: 'DELETE' });
    t.equal(status, 401);
    t.match(
      challenge,
      /error="insufficient_user_authentication", .*acr_values="mfa", max_age="300"/,
      'RFC 9470 §3',
    );
  }
  t.equal((await call(await bearer({ acr: 'mfa' }), { method: 'DELETE' })).status, 200);
});

t.test('a token that is bound to a key needs a proof of it, once, for this request', async (t) => {
  const { call, issuer, claims, clock } = await protectedApp(t);
  const url = `https://api.example.test${PATH}`;
  for (const alg of ['ES256', 'EdDSA'] as const) {
    const key = await dpopKey(clock, alg);
    const token = await issuer.sign({ ...claims(), cnf: { jkt: await calculateJwkThumbprint(key.jwk) } });
    const prove = (claims: JWTPayload = {}, header = {}) =>
      key.prove({ method: 'GET', url, token }, { claims, header });
    const send = (dpop: string) => call(`DPoP ${token}`, { headers: { dpop } });

    const proof = await prove();
    t.equal((await send(proof)).status, 200);
    t.match(await send(proof), {
      status: 401,
      challenge: /^DPoP algs="EdDSA ES256", error="invalid_dpop_proof"/,
    });
    t.equal((await send(await prove({ htu: `${url}?a=b#c` }))).status, 200, 'the query does not count');
    t.equal((await send(await prove({ htu: 'https://API.example.test:443/files/./1' }))).status, 200);

    const now = toSeconds(clock.now());
    const other = await dpopKey(clock);
    const { privateKey: secret } = await generateKeyPair('ES256', { extractable: true });
    const refused: Record<string, string> = {
      'another method': await prove({ htm: 'POST' }),
      'another address': await prove({ htu: 'https://api.example.test/files/2' }),
      'another host': await prove({ htu: `https://evil.test${PATH}` }),
      'no address': await prove({ htu: undefined }),
      'another token': await prove({ ath: 'x'.repeat(43) }),
      'no token': await prove({ ath: undefined }),
      'no id': await prove({ jti: undefined as never }),
      'a long id': await prove({ jti: 'x'.repeat(257) }),
      old: await prove({ iat: now - 61 }),
      'of the future': await prove({ iat: now + 11 }),
      'without a time': await prove({ iat: undefined as never }),
      'another type': await prove({}, { typ: 'JWT' }),
      'another key in the header': await prove({}, { jwk: other.jwk }),
      'a private key in the header': await prove({}, { jwk: await exportJWK(secret) }),
      'no key in the header': await prove({}, { jwk: undefined }),
      'no proof': 'x',
      'two proofs': `${await prove()}, ${await prove()}`,
    };
    for (const [name, dpop] of Object.entries(refused)) {
      const { status, challenge } = await send(dpop);
      t.equal(status, 401, name);
      t.match(challenge, /^DPoP .*error="invalid_dpop_proof"/, name);
    }
    const foreign = await other.prove({ method: 'GET', url, token });
    t.match(await send(foreign), { status: 401, challenge: /bound to another key/ });
    t.match(await call(`DPoP ${token}`), { status: 401, challenge: /Exactly one DPoP header/ });
    t.match(
      await call(`Bearer ${token}`, { headers: { dpop: await prove() } }),
      { status: 401, challenge: /^DPoP .*needs a DPoP proof/ },
      'RFC 9449 §7.1: never as a bearer token',
    );
  }
});

t.test('a bearer token is no DPoP token, and an API may accept those only', async (t) => {
  const open = await protectedApp(t);
  const key = await dpopKey(open.clock);
  const token = await open.issuer.sign(open.claims());
  const dpop = await key.prove({ method: 'GET', url: `https://api.example.test${PATH}`, token });
  t.match(await open.call(`DPoP ${token}`, { headers: { dpop } }), {
    status: 401,
    challenge: /bound to no key/,
  });

  const strict = await protectedApp(t, { requireDpop: true });
  t.match(await strict.call(await strict.bearer()), { status: 401, challenge: /^DPoP .*bound to a key/ });
  t.match(await strict.call(), { status: 401, challenge: /^DPoP algs="EdDSA ES256", scope=/ });
  const { dpop_bound_access_tokens_required: isRequired } = (
    await strict.app.inject({ url: METADATA })
  ).json();
  t.equal(isRequired, true);
});

t.test('revoked tokens are refused as soon as the list says so', async (t) => {
  const { call, bearer, issuer } = await protectedApp(t, { revocations: true });
  const claims = {
    txn: 'gr_1',
    sid: 'ses_1',
    delegation: 'dlg_1',
    act: { sub: 'agt_1', act: { sub: 'agt_2' } },
  };
  t.equal((await call(await bearer(claims))).status, 200);
  const cases: [kind: RevocationKind, value: string, valid: number | true, other: JWTPayload][] = [
    ['jti', 'at_1', true, { jti: 'at_2' }],
    ['txn', 'gr_1', true, { txn: 'gr_2' }],
    ['sid', 'ses_1', true, { sid: 'ses_2' }],
    ['delegation', 'dlg_1', true, { delegation: 'dlg_2' }],
    ['sub', 'usr_1', true, { sub: 'usr_2' }],
    ['sub', 'usr_1', 3, { epoch: 3 }],
    ['sub', 'agt_1', 1, { act: { sub: 'agt_2' } }],
    ['sub', 'agt_2', 1, { act: { sub: 'agt_1' } }],
    ['sub', 'agt_2', 5, { act: { sub: 'agt_1', act: { sub: 'agt_2', epoch: 5 } } }],
    ['client_id', 'app_1', true, { client_id: 'app_2' }],
    ['access', accessOf('app_1', 'usr_1'), 1, { client_id: 'app_2' }],
    ['access', accessOf('app_1', 'usr_1'), 1, { sub: 'usr_2' }],
    ['access', accessOf('app_1', 'usr_1'), 2, { consent: 2 }],
  ];
  for (const [kind, value, valid, other] of cases) {
    for (const [list, status] of [
      [{}, 200],
      [{ [revocationKey(kind, value)]: valid }, 401],
    ] as const) {
      issuer.revoke(list);
      await waitUntil('the list is read', () => issuer.waiting > 0);
      t.equal((await call(await bearer(claims))).status, status, `${kind} ${value}`);
    }
    t.match(await call(await bearer(claims)), { status: 401, challenge: /The access token was revoked/ });
    t.equal((await call(await bearer({ ...claims, ...other }))).status, 200, JSON.stringify(other));
  }
});

t.test('a list that the issuer begins to publish later is followed', async (t) => {
  const { call, bearer, issuer, clock } = await protectedApp(t);
  t.equal((await call(await bearer())).status, 200);
  issuer.metadata = { revocation_list_uri: `${issuer.url}/revocations` };
  issuer.revoke({ [revocationKey('jti', 'at_1')]: true });
  t.equal((await call(await bearer())).status, 200, 'not at once');
  clock.advance(10 * SECOND);
  issuer.faults.set('/.well-known/openid-configuration', () => 503);
  t.equal((await call(await bearer())).status, 200, 'the keys are still known');
  issuer.faults.clear();
  clock.advance(SECOND);
  t.equal((await call(await bearer())).status, 401);
});

t.test('no token is accepted while the list is older than allowed, and any once it is back', async (t) => {
  const { call, bearer, issuer, clock, failures } = await protectedApp(t, { revocations: true });
  t.equal((await call(await bearer())).status, 200);
  issuer.faults.set('/revocations', () => 503);
  issuer.revoke({});
  await waitUntil('the list is followed', () => failures.length > 0);
  clock.advance(30 * SECOND);
  t.equal((await call(await bearer())).status, 200, 'the last list counts for a while');
  clock.advance(SECOND);
  const refused = await call(await bearer());
  t.match(refused, {
    status: 503,
    headers: { 'retry-after': '1' },
    body: { error: 'temporarily_unavailable' },
  });
  issuer.faults.clear();
  await waitUntil('the list is followed', async () => (await call(await bearer())).status === 200);
});

t.test('a list with another signature, type or issuer is none', async (t) => {
  const { call, bearer, issuer, failures } = await protectedApp(t, { revocations: true });
  const sign = issuer.sign;
  const stranger = await generateKeyPair('EdDSA', { crv: 'Ed25519' });
  let forge: typeof sign = (claims, header) => sign(claims, header, stranger.privateKey);
  issuer.sign = (claims, header = {}, key) =>
    header.typ === 'revocations+jwt' ? forge(claims, header, key) : sign(claims, header, key);
  t.equal((await call(await bearer())).status, 503);
  for (const next of [
    (claims: JWTPayload) => sign(claims, { typ: 'at+jwt' }),
    (claims: JWTPayload, header = {}) => sign({ ...claims, iss: 'https://evil.test' }, header),
    (claims: JWTPayload, header = {}) => sign({ ...claims, revoked: { x: 'y' } }, header),
    (claims: JWTPayload, header = {}) => sign({ ...claims, exp: 1 }, header),
  ]) {
    forge = next;
    const before = failures.length;
    await waitUntil('the list is followed', () => failures.length > before || issuer.waiting > 0);
    t.equal((await call(await bearer())).status, 503);
  }
  forge = sign;
  await waitUntil('the list is followed', async () => (await call(await bearer())).status === 200);
});

t.test('an issuer that cannot be reached is no reason to accept or to blame a token', async (t) => {
  const { call, bearer, issuer, clock, failures } = await protectedApp(t);
  issuer.faults.set('/.well-known/openid-configuration', () => 'cut');
  t.equal((await call(await bearer())).status, 503);
  issuer.faults.clear();
  t.equal((await call(await bearer())).status, 503, 'no further attempt within a second');
  t.equal(issuer.requests.length, 1);
  t.ok(failures.length > 0);
  clock.advance(SECOND);
  issuer.metadata = { issuer: 'https://evil.test' };
  t.equal((await call(await bearer())).status, 503, 'metadata of another issuer');
  clock.advance(SECOND);
  issuer.metadata = {};
  issuer.faults.set('/jwks', () => 500);
  t.equal((await call(await bearer())).status, 503);
  issuer.faults.clear();
  t.equal((await call(await bearer())).status, 200);
});

t.test('any server can verify a request of fetch', async (t) => {
  const clock = fakeClock();
  const issuer = await tokenIssuer(t, { clock });
  const server = createResourceServer({ issuer: issuer.url, resource: RESOURCE, clock });
  await server.ready();
  const key = await dpopKey(clock);
  const [iat, url] = [toSeconds(clock.now()), `${RESOURCE}/1`];
  const claims = {
    iss: issuer.url,
    aud: RESOURCE,
    sub: 'agt_1',
    client_id: 'agt_1',
    jti: 'at_1',
    iat,
    exp: iat + 60,
  };
  const token = await issuer.sign({ ...claims, cnf: { jkt: await calculateJwkThumbprint(key.jwk) } });
  const [first, second] = [
    await key.prove({ method: 'GET', url, token }),
    await key.prove({ method: 'GET', url, token }),
  ];
  const request = (dpop: string, authorization = `DPoP ${token}`) =>
    new Request(url, { headers: { authorization, dpop } });
  t.match(await server.verify(request(first)), { subject: 'agt_1', actors: [], scopes: [] });
  await t.rejects(server.verify(request(first)), { code: 'invalid_dpop_proof', statusCode: 401 });
  const twice = request(second);
  twice.headers.append('dpop', await key.prove({ method: 'GET', url, token }));
  await t.rejects(server.verify(twice), { code: 'invalid_dpop_proof' });
  await t.rejects(server.verify(new Request(url)), { code: 'missing_token', statusCode: 401 });
  server.close();
});

/** The access tokens of others: their algorithm, type and claims. */
const VENDORS = {
  'Auth0, RS256': { alg: 'RS256', typ: 'JWT', claims: { azp: 'app_1', scope: 'files:read' } },
  'Auth0 with the profile of RFC 9068': {
    alg: 'RS256',
    typ: 'at+jwt',
    claims: { client_id: 'app_1', jti: 'x', scope: 'files:read' },
  },
  'Okta, without a type': {
    alg: 'RS256',
    typ: undefined,
    claims: { cid: 'app_1', jti: 'AT.x', scp: ['files:read'] },
  },
  'Entra, whose key names no algorithm': {
    alg: 'RS256',
    typ: 'JWT',
    claims: { azp: 'app_1', uti: 'x', scp: 'files:read openid' },
  },
  'Keycloak, ES256': { alg: 'ES256', typ: 'JWT', claims: { azp: 'app_1', jti: 'x', scope: 'files:read' } },
} as const;

for (const [name, { alg, typ, claims: own }] of Object.entries(VENDORS)) {
  t.test(`access tokens of other issuers are accepted by their rules: ${name}`, async (t) => {
    const rules = typ === 'at+jwt' ? {} : { typ: 'JWT' as const };
    const { call, issuer, claims } = await protectedApp(t, { alg, audience: 'api://files', ...rules });
    const { iss, sub, iat, exp } = claims();
    const token = { ...{ iss, sub, iat, exp, aud: 'api://files' }, ...own } as JWTPayload;
    const header = { alg, typ: typ as string };
    const bearer = async (change: JWTPayload = {}, more = {}) =>
      `Bearer ${await issuer.sign({ ...token, ...change }, { ...header, ...more })}`;
    t.match(await call(await bearer()), { status: 200, body: { subject: sub, clientId: 'app_1' } });
    const now = Number(iat);
    for (const [what, header] of Object.entries({
      'the resource as the audience': await bearer({ aud: RESOURCE }),
      'no audience': await bearer({ aud: undefined as never }),
      expired: await bearer({ exp: now - 6 }),
      'without an end': await bearer({ exp: undefined as never }),
      'without a subject': await bearer({ sub: undefined as never }),
      'another type': await bearer({}, { typ: typ === 'at+jwt' ? 'JWT' : 'logout+jwt' }),
      'signed with the public key as a secret': `Bearer ${await issuer.confuse(token, { typ: typ as string })}`,
      unsigned: `Bearer ${new UnsecuredJWT(token).encode()}`,
    }))
      t.equal((await call(header)).status, 401, what);
  });
}

t.test('algorithms are pinned for each issuer', async (t) => {
  const { call, issuer, claims } = await protectedApp(t, { alg: 'RS256', algorithms: ['ES256'] });
  t.equal((await call(`Bearer ${await issuer.sign(claims(), { alg: 'RS256' })}`)).status, 401);
  const other = await protectedApp(t, { alg: 'RS256' });
  // A key of WebCrypto has one hash only.
  const key = KeyObject.from(other.issuer.keys.privateKey);
  const token = await new SignJWT(other.claims())
    .setProtectedHeader({ alg: 'RS512', typ: 'at+jwt', kid: 'k1' })
    .sign(key);
  t.equal((await other.call(`Bearer ${token}`)).status, 401);
});

t.test('of several issuers, each speaks for itself only, by its own rules', async (t) => {
  const clock = fakeClock();
  const strange = await tokenIssuer(t, { clock, alg: 'ES256' });
  const rules = {
    issuer: strange.url,
    jwksUri: `${strange.url}/jwks`,
    audience: 'api://x',
    typ: 'JWT',
  } as const;
  const { app, call, bearer, issuer, claims } = await protectedApp(t, { clock, otherIssuers: [rules] });
  t.equal((await call(await bearer())).status, 200);
  const theirs = { ...claims(), iss: strange.url, aud: 'api://x' };
  const sign = async (change: JWTPayload, header = {}) =>
    `Bearer ${await strange.sign({ ...theirs, ...change }, { alg: 'ES256', typ: 'JWT', ...header })}`;
  t.equal((await call(await sign({}))).status, 200);
  t.same(strange.requests, ['/jwks'], 'no metadata are read where the keys are named');
  t.equal((await call(await sign({ iss: issuer.url }))).status, 401, 'in the name of the other issuer');
  t.equal((await call(await sign({ iss: issuer.url, aud: RESOURCE }, { typ: 'at+jwt' }))).status, 401);
  t.equal((await call(await bearer({ iss: strange.url, aud: 'api://x' }))).status, 401);
  t.equal((await call(await bearer({ aud: 'api://x' }))).status, 401, 'the audience of the other issuer');
  t.equal((await call(await sign({ aud: RESOURCE }))).status, 401);
  t.equal((await call(`Bearer ${await issuer.sign(claims(), { typ: 'JWT' })}`)).status, 401);
  t.equal((await call(await sign({ iss: 'https://evil.test' }))).status, 401);
  t.same((await app.inject({ url: METADATA })).json().authorization_servers, [issuer.url]);
  strange.faults.set('/jwks', () => 503);
  t.equal((await call(await bearer())).status, 200, 'one that fails does not affect the others');
});

t.test('access tokens of saas-backend are verified with its public keys', async (t) => {
  const jwtAccessKey = '8f1d0a6be37c942518f0ad6c3b7e95d2406c1fb8e29a7d530123456789abcdef';
  const publicUrl = 'https://app.example.test';
  const backend = await saasApp(t, { publicUrl, jwtAccessKey, jwtAccessAudience: RESOURCE });
  const { accessToken, refreshToken, id } = await backend.signUp();
  const jwksUri = `${await backend.listen()}/api/auth/jwks`;
  const serverFor = (resource: string) => {
    const server = createResourceServer({ issuer: publicUrl, jwksUri, resource, clock: backend.clock });
    t.teardown(() => server.close());
    const request = (token: string) =>
      new Request(resource, { headers: { authorization: `Bearer ${token}` } });
    return (token: string) => server.verify(request(token));
  };
  const verify = serverFor(RESOURCE);
  t.match(await verify(accessToken), { subject: id, clientId: publicUrl, scopes: [] });
  await t.rejects(verify(refreshToken), { code: 'invalid_token' });
  await t.rejects(serverFor('https://other.example.test')(accessToken), { code: 'invalid_token' });
  backend.clock.advance(16 * MINUTE);
  await t.rejects(verify(accessToken), { code: 'invalid_token', message: /expired/ });
});

t.test('a configuration that is not safe is refused with every reason', async (t) => {
  const create =
    (issuer: string, resource: string, maxRevocationSilence = 30) =>
    () =>
      createResourceServer({ issuer, resource, maxRevocationSilence }).close();
  t.throws(
    create('http://idp.test', 'http://api.test?x#y', 1),
    /issuer must be.*resource must be.*resource must have no query.*maxRevocationSilence must be/s,
  );
  t.doesNotThrow(create('https://idp.test', 'http://localhost:3000/mcp'));
  const issuer = 'https://idp.test';
  const rules = { issuer, resource: 'https://api.test' };
  for (const [more, problem] of [
    [{ algorithms: ['HS256'] }, /algorithms must be of public keys/],
    [{ algorithms: ['none'] }, /algorithms must be of public keys/],
    [{ typ: 'at' as 'JWT' }, /typ must be/],
    [{ audience: '' }, /audience must not be empty/],
    [{ jwksUri: 'http://idp.test/jwks' }, /jwksUri must be/],
    [{ otherIssuers: [{ issuer: 'http://other.test' }] }, /issuer must be/],
    [{ otherIssuers: [{ issuer }] }, /name each issuer once/],
  ] as const)
    t.throws(() => createResourceServer({ ...rules, ...more }), problem);
});
