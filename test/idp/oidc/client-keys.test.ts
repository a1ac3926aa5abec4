import { generateKeyPairSync } from 'node:crypto';
import t, { type Test } from 'tap';
import { MINUTE, SECOND } from '../../../src/core/kernel/clock.js';
import { basic } from '../../kit/app.js';
import {
  type AssertionOptions,
  asserted,
  assertion,
  type ClientKey,
  clientKey,
  documentHost,
} from '../../kit/client-keys.js';
import { CALLBACK, type IdpAppOptions, ISSUER, idpApp, redemption } from '../../kit/idp.js';

/** Clients that authenticate with a key instead of a secret (private_key_jwt). */

async function start(t: Test, options: IdpAppOptions = {}, more: Record<string, unknown> = {}) {
  const idp = await idpApp(t, options);
  const key = clientKey();
  const client = await idp.createClient({ jwks: { keys: [key.jwk] }, ...more });
  const agent = await idp.mintAgent();
  const sign = (change: Partial<AssertionOptions> = {}, by: ClientKey = key) =>
    assertion(by, { clientId: client.id, issuer: ISSUER, now: idp.clock.now(), ...change });
  const signed = async (change?: Partial<AssertionOptions>, by?: ClientKey) =>
    asserted(await sign(change, by));
  const code = () => idp.codeFor({ ...client, secret: '' }, agent);
  const redeem = async (more: Record<string, string | undefined>) =>
    idp.redeem({ ...client, secret: '' }, await code(), { client_secret: undefined, ...more });
  return { idp, key, client, agent, sign, signed, code, redeem };
}

t.test('a client with a key has no secret, signs in, introspects and revokes', async (t) => {
  for (const algorithm of ['EdDSA', 'ES256', 'PS256', 'RS256'] as const) {
    const key = clientKey(algorithm);
    const { idp, client, signed, redeem } = await start(t, {}, { jwks: { keys: [key.jwk] } });
    t.notOk(client.secret);
    const { clients } = (await idp.admin('GET', '/v1/clients')).body;
    t.match(clients, [
      { token_endpoint_auth_method: 'private_key_jwt', public: false, jwks: { keys: [key.jwk] } },
    ]);
    const { status, body } = await redeem(await signed({}, key));
    t.match({ status, body }, { status: 200, body: { token_type: 'Bearer' } }, algorithm);
    const about = async (path: string) =>
      idp.request('POST', path, { form: { token: body.access_token, ...(await signed({}, key)) } });
    t.match(await about('/introspect'), { status: 200, body: { active: true, client_id: client.id } });
    t.equal((await about('/revoke')).status, 200);
    t.equal((await idp.userinfo(body.access_token)).status, 401);
  }
});

t.test('Ed25519 is another name of EdDSA, and client_id may be left out', async (t) => {
  const { signed, redeem } = await start(t);
  const form = { ...(await signed({ header: { alg: 'Ed25519', kid: undefined } })), client_id: undefined };
  t.equal((await redeem(form)).status, 200);
});

t.test('an assertion that is not one of this client for this issuer is refused', async (t) => {
  const { idp, key, sign, signed, redeem } = await start(t);
  const other = await idp.createClient({ jwks: { keys: [clientKey('EdDSA', 'other').jwk] } });
  const seconds = Math.floor(idp.clock.now() / SECOND);
  const claims: Record<string, Record<string, unknown>> = {
    'no aud': { aud: undefined },
    'the token endpoint as aud': { aud: `${ISSUER}/token` },
    'the issuer with a slash': { aud: `${ISSUER}/` },
    'two audiences': { aud: [ISSUER, 'https://other.example'] },
    'another issuer': { iss: 'https://other.example' },
    'another subject': { sub: other.id },
    'no iss': { iss: undefined },
    'no exp': { exp: undefined },
    expired: { exp: seconds },
    'valid for too long': { exp: seconds + 301 },
    'not yet valid': { nbf: seconds + 61 },
    'exp as text': { exp: String(seconds + 60) },
    'no jti': { jti: undefined },
    'an empty jti': { jti: '' },
    'a long jti': { jti: 'x'.repeat(257) },
    'a number as jti': { jti: 1 },
  };
  for (const [name, change] of Object.entries(claims)) {
    const answer = await redeem(await signed({ claims: change }));
    t.match(answer, { status: 401, body: { error: 'invalid_client' } }, name);
  }
  const foreign = clientKey();
  const text = await sign();
  const [head = '', payload = '', signature = ''] = text.split('.');
  const unsigned = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${payload}.`;
  const texts: Record<string, string> = {
    'a foreign key with this kid': await sign({}, foreign),
    'another kind of token': await sign({ header: { typ: 'at+jwt' } }),
    unsigned,
    'another payload': `${head}.${Buffer.from('{}').toString('base64url')}.${signature}`,
    'no signature': `${head}.${payload}.`,
    garbage: 'x.y.z',
    long: `${text}${'A'.repeat(8192)}`,
    'an assertion of another client': await sign({ clientId: other.id }),
  };
  for (const [name, client_assertion] of Object.entries(texts)) {
    const answer = await redeem(asserted(client_assertion));
    t.match(answer, { status: 401, body: { error: 'invalid_client' } }, name);
  }
  t.equal((await redeem(await signed({ claims: { exp: seconds + 300, aud: [ISSUER] } }))).status, 200);
  t.equal((await redeem(await signed({ header: { typ: 'client-authentication+jwt' } }, key))).status, 200);
});

t.test('IDP_CLIENT_ASSERTIONS also accepts what libraries for OpenID Connect Core send', async (t) => {
  const { idp, signed, redeem } = await start(t, { clientAssertions: 'token-endpoint' });
  const seconds = Math.floor(idp.clock.now() / SECOND);
  const statusOf = async (claims: Record<string, unknown>) => (await redeem(await signed({ claims }))).status;
  for (const claims of [{}, { aud: `${ISSUER}/token` }, { aud: [`${ISSUER}/token`], exp: seconds + 3600 }])
    t.equal(await statusOf(claims), 200, JSON.stringify(claims));
  for (const claims of [
    { aud: `${ISSUER}/revoke` },
    { aud: [ISSUER, `${ISSUER}/token`] },
    { exp: seconds + 3601 },
  ])
    t.equal(await statusOf(claims), 401, JSON.stringify(claims));
  const once = await signed({ claims: { aud: `${ISSUER}/token` } });
  t.same([(await redeem(once)).status, (await redeem(once)).status], [200, 401], 'and once');
});

t.test('tokens of the provider are no assertions', async (t) => {
  const { idp, redeem, signed } = await start(t);
  const { body } = await redeem(await signed());
  for (const token of [body.id_token, body.access_token]) {
    const answer = await redeem(asserted(token));
    t.match(answer, { status: 401, body: { error: 'invalid_client' } });
  }
  t.equal((await idp.userinfo((await signed()).client_assertion)).status, 401);
});

t.test('an assertion is used once, also if the request fails', async (t) => {
  const { idp, client, signed, redeem } = await start(t);
  const first = await signed();
  t.equal((await redeem(first)).status, 200);
  t.match(await redeem(first), { status: 401, body: { error_description: /used before/ } });
  const second = await signed();
  const wrong = redemption({ ...client, secret: '' }, 'ac_x', { client_secret: undefined, ...second });
  t.match((await idp.request('POST', '/token', { form: wrong })).body, { error: 'invalid_grant' });
  t.equal((await redeem(second)).status, 401);
});

t.test('a client has one authentication method', async (t) => {
  const { idp, client, signed, redeem, code } = await start(t);
  t.match(await redeem({}), { status: 401, body: { error: 'invalid_client' } }, 'client_id alone');
  t.equal((await redeem({ client_secret: 'x' })).status, 401);
  t.match(await redeem({ ...(await signed()), client_secret: 'x' }), { status: 400 });
  t.match(await redeem({ ...(await signed()), client_assertion_type: 'jwt' }), { status: 400 });
  t.match(await redeem({ ...(await signed()), client_assertion_type: undefined }), { status: 400 });
  const both = await idp.request('POST', '/token', {
    form: redemption({ ...client, secret: '' }, await code(), {
      client_secret: undefined,
      ...(await signed()),
    }),
    headers: { authorization: basic(client.id, 'x') },
  });
  t.equal(both.status, 400);
  const introspected = await idp.request('POST', '/introspect', {
    form: { token: 'x', client_id: client.id },
  });
  t.equal(introspected.status, 401);

  const withSecret = await idp.createClient();
  const form = { ...(await signed({ clientId: withSecret.id })), client_id: withSecret.id };
  t.equal((await idp.request('POST', '/revoke', { form: { token: 'x', ...form } })).status, 401);
  const open = await idp.createClient({ public: true });
  const opened = { ...(await signed({ clientId: open.id })), client_id: open.id };
  t.equal((await idp.request('POST', '/revoke', { form: { token: 'x', ...opened } })).status, 401);
});

t.test('a client may sign with an RSA key, by the algorithm that it names or by both', async (t) => {
  const [first, second] = [clientKey('RS256', 'first'), clientKey('PS256', 'second')];
  const as = (key: ClientKey, algorithm: ClientKey['algorithm']): ClientKey => ({ ...key, algorithm });
  const jwks = { keys: [{ ...first.jwk, alg: 'RS256' }, second.jwk] };
  const { redeem, signed } = await start(t, {}, { jwks });
  const statusOf = async (key: ClientKey, header = {}) =>
    (await redeem(await signed({ header }, key))).status;
  t.equal(await statusOf(first), 200);
  t.equal(await statusOf(as(first, 'PS256')), 401, 'the key is for RS256');
  for (const algorithm of ['RS256', 'PS256'] as const)
    t.equal(await statusOf(as(second, algorithm)), 200, algorithm);
  t.equal(await statusOf(as(clientKey('RS256', 'first'), 'RS256')), 401, 'a foreign key');
  const curve = await start(t);
  const rsa = clientKey('RS256', curve.key.jwk.kid);
  t.equal(
    (await curve.redeem(await curve.signed({}, rsa))).status,
    401,
    'a key on a curve verifies no RS256',
  );
});

/** Half of a modulus of 2048 bits, which has 2047. */
const shifted = (n: string): string => {
  const half = BigInt(`0x${Buffer.from(n, 'base64url').toString('hex')}`) >> 1n;
  return Buffer.from((half | 1n).toString(16), 'hex').toString('base64url');
};

t.test('only public keys on Ed25519 and P-256 and of RSA can be registered', async (t) => {
  const idp = await idpApp(t);
  const rsa = clientKey('RS256').jwk;
  const modulus = (bits: number) => generateKeyPairSync('rsa', { modulusLength: bits }).publicKey;
  const even = Buffer.from(rsa.n ?? '', 'base64url');
  even[even.length - 1] = 0;
  const { jwk, privateKey } = clientKey();
  const ec = clientKey('ES256').jwk;
  const sets: Record<string, unknown> = {
    'no set': [jwk],
    text: 'x',
    empty: { keys: [] },
    private: { keys: [privateKey.export({ format: 'jwk' })] },
    symmetric: { keys: [{ kty: 'oct', k: 'c2VjcmV0' }] },
    'a tiny RSA key': { keys: [{ kty: 'RSA', n: 'AQAB', e: 'AQAB' }] },
    'RSA with 2047 bits': { keys: [{ ...rsa, n: shifted(rsa.n ?? '') }] },
    'RSA with 1024 bits': { keys: [modulus(1024).export({ format: 'jwk' })] },
    'RSA with 4104 bits': { keys: [{ ...rsa, n: Buffer.alloc(513, 255).toString('base64url') }] },
    'RSA with 64 Kbit': { keys: [{ ...rsa, n: 'A'.repeat(8192) }] },
    'RSA with an even modulus': { keys: [{ ...rsa, n: even.toString('base64url') }] },
    'RSA with a zero before the modulus': { keys: [{ ...rsa, n: `AA${rsa.n}` }] },
    'RSA without a modulus': { keys: [{ ...rsa, n: undefined }] },
    'RSA with the exponent 3': { keys: [{ ...rsa, e: 'Aw' }] },
    'RSA with an even exponent': { keys: [{ ...rsa, e: 'AQAC' }] },
    'RSA with a long exponent': { keys: [{ ...rsa, e: 'AQAAAAE' }] },
    'RSA for PS512': { keys: [{ ...rsa, alg: 'PS512' }] },
    'RSA for encryption': { keys: [{ ...rsa, alg: 'RSA-OAEP' }] },
    'a private RSA key': { keys: [{ ...rsa, p: 'AQAB' }] },
    'one of two': { keys: [jwk, { kty: 'RSA', n: 'AQAB', e: 'AQAB' }] },
    'another algorithm': { keys: [{ ...jwk, alg: 'ES256' }] },
    'for encryption': { keys: [{ ...jwk, use: 'enc' }] },
    'a point beside the curve': { keys: [{ ...ec, y: ec.x }] },
    'no coordinate': { keys: [{ ...ec, y: undefined }] },
    'a long kid': { keys: [{ ...jwk, kid: 'x'.repeat(257) }] },
    'a kid that no store accepts': { keys: [{ ...jwk, kid: 'a\0' }] },
    'eleven keys': { keys: Array(11).fill(jwk) },
  };
  for (const [name, jwks] of Object.entries(sets)) {
    const answer = await idp.admin('POST', '/v1/clients', { redirect_uris: CALLBACK, jwks });
    t.match(answer, { status: 400, body: { error: 'invalid_request', details: [{ path: 'jwks' }] } }, name);
  }
  for (const jwks_uri of [
    '',
    'x',
    'http://app.example.test/k',
    'ftp://a.test/k',
    'https://u:p@a.test/k',
    'https://a.test/#k',
  ]) {
    const answer = await idp.admin('POST', '/v1/clients', { redirect_uris: CALLBACK, jwks_uri });
    t.match(answer, { status: 400, body: { error: 'invalid_request' } }, jwks_uri);
  }
  const jwks = { keys: [jwk] };
  for (const more of [
    { jwks, public: true },
    { jwks, jwks_uri: 'https://a.test/k' },
  ])
    t.equal((await idp.admin('POST', '/v1/clients', { redirect_uris: CALLBACK, ...more })).status, 400);
});

t.test('the keys that a client publishes are read, cached and read again for a new key', async (t) => {
  const host = await documentHost(t);
  const [first, second] = [clientKey('EdDSA', 'first'), clientKey('ES256', 'second')];
  host.documents['/jwks'] = { keys: [{ kty: 'RSA', n: 'AQAB', e: 'AQAB' }, first.jwk] };
  const more = { jwks: undefined, jwks_uri: `${host.url}/jwks` };
  const { idp, redeem, signed } = await start(t, { loopbackDocuments: true }, more);
  for (let use = 0; use < 3; use++) t.equal((await redeem(await signed({}, first))).status, 200);
  t.same(host.requests, ['/jwks'], 'cached');

  host.documents['/jwks'] = { keys: [second.jwk] };
  t.equal((await redeem(await signed({}, second))).status, 401, 'not again within a minute');
  t.equal(host.requests.length, 1);
  idp.clock.advance(MINUTE + 1);
  t.equal((await redeem(await signed({}, second))).status, 200);
  t.equal((await redeem(await signed({}, first))).status, 401, 'the old key is gone');
  t.equal(host.requests.length, 2);

  host.answer = (_, response) => void response.writeHead(500).end();
  idp.clock.advance(10 * MINUTE);
  t.equal((await redeem(await signed({}, second))).status, 200, 'a copy serves while the host has a problem');
  t.equal(host.requests.length, 3);
  idp.clock.advance(24 * 60 * MINUTE);
  t.equal((await redeem(await signed({}, second))).status, 401, 'for a day');

  host.answer = (_, response) =>
    void response
      .writeHead(200, { 'content-type': 'application/jwk-set+json' })
      .end(JSON.stringify({ keys: [second.jwk] }));
  idp.clock.advance(MINUTE + 1);
  t.equal((await redeem(await signed({}, second))).status, 200);
});

t.test('without the option, keys on this machine are not read', async (t) => {
  const host = await documentHost(t);
  const key = clientKey();
  host.documents['/jwks'] = { keys: [key.jwk] };
  const more = { jwks: undefined, jwks_uri: `${host.url}/jwks` };
  const { redeem, signed } = await start(t, {}, more);
  t.equal((await redeem(await signed({}, key))).status, 401);
  t.same(host.requests, []);
});

t.test('failed assertions of an address are limited, correct ones are not', async (t) => {
  const { idp, signed, client } = await start(t, { limits: true });
  const revoke = async (fields: Record<string, string>) =>
    (await idp.request('POST', '/revoke', { form: { token: 'x', client_id: client.id, ...fields } })).status;
  const foreign = clientKey();
  const wrong = asserted(
    await assertion(foreign, { clientId: client.id, issuer: ISSUER, now: idp.clock.now() }),
  );
  const statuses = [];
  for (let attempt = 0; attempt < 62; attempt++) statuses.push(await revoke(wrong));
  t.equal(statuses.filter((status) => status === 401).length, 60);
  t.equal(statuses.at(-1), 429);
  t.equal(await revoke(await signed()), 200);
});
