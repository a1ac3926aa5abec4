import { createLocalJWKSet, decodeProtectedHeader, jwtVerify } from 'jose';
import t from 'tap';
import { createKeys } from '../../../src/idp/oidc/keys.js';
import { createResourceServer } from '../../../src/resource-server/service.js';
import { claimsOf, type IdpApp, ISSUER, idpApp, type RegisteredClient, SEED } from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';

/** A second key for clients that cannot verify EdDSA. */

const KEY = `${'1f'.repeat(28)}a0c4d2e6`;
const OTHER = `${'2e'.repeat(28)}b1d5e3f7`;
const ES256 = { id_token_signed_response_alg: 'ES256' };

/** The id_token, verified with the published keys as a client does that knows its algorithm. */
async function verified(idp: IdpApp, idToken: string, client: RegisteredClient, alg: string) {
  const { body: jwks } = await idp.request('GET', '/jwks');
  return jwtVerify(idToken, createLocalJWKSet(jwks), {
    algorithms: [alg],
    issuer: ISSUER,
    audience: client.id,
    currentDate: new Date(idp.clock.now()),
  });
}

t.test(
  'a client that asks for ES256 gets it, at sign-in and with each refresh; others get EdDSA',
  async (t) => {
    const idp = await idpApp(t, { es256Key: KEY });
    const { body: metadata } = await idp.request('GET', '/.well-known/openid-configuration');
    t.same(metadata.id_token_signing_alg_values_supported, ['EdDSA', 'ES256']);
    const agent = await idp.mintAgent();
    for (const [more, alg] of [
      [ES256, 'ES256'],
      [{ id_token_signed_response_alg: 'EdDSA' }, 'EdDSA'],
      [{}, 'EdDSA'],
    ] as const) {
      const client = await idp.createClient(more);
      const scope = 'openid offline_access';
      const { body } = await idp.redeem(client, await idp.codeFor(client, agent, { scope, nonce: 'n' }));
      const first = await verified(idp, body.id_token, client, alg);
      t.match(first, { protectedHeader: { alg, typ: 'JWT' }, payload: { sub: agent.sub, nonce: 'n' } });
      const refreshed = (await idp.refresh(client, body.refresh_token)).body;
      await verified(idp, refreshed.id_token, client, alg);
      const repeated = (await idp.refresh(client, body.refresh_token)).body;
      await verified(idp, repeated.id_token, client, alg);
    }
  },
);

t.test('without an ES256 key the provider is as before, and refuses clients that ask for it', async (t) => {
  const [without, plain] = [await idpApp(t), await idpApp(t)];
  const { body: jwks } = await without.request('GET', '/jwks');
  t.same(
    jwks.keys.map(({ alg, kty }: { alg: string; kty: string }) => [alg, kty]),
    [['EdDSA', 'OKP']],
  );
  const metadata = (await without.request('GET', '/.well-known/openid-configuration')).text;
  t.match(metadata, '"id_token_signing_alg_values_supported":["EdDSA"]');
  const ofClients = /"(?:\w+_endpoint_auth|dpop)_signing_alg_values_supported":\[[^\]]*\]/g;
  t.notMatch(metadata.replaceAll(ofClients, ''), 'ES256', 'only keys of clients may have it');
  const redirect_uris = 'https://app.example.test/cb';
  const refused = await plain.admin('POST', '/v1/clients', { redirect_uris, ...ES256 });
  t.match(refused, {
    status: 400,
    body: {
      error: 'invalid_client_metadata',
      error_description: /id_token_signed_response_alg .*IDP_ES256_KEY/,
      details: [{ path: 'id_token_signed_response_alg', message: /EdDSA.*IDP_ES256_KEY/ }],
    },
  });
  for (const alg of ['RS256', 'none', 'ES384', 'HS256', '', null, 1]) {
    const answer = await plain.admin('POST', '/v1/clients', {
      redirect_uris,
      id_token_signed_response_alg: alg,
    });
    const details = [{ path: 'id_token_signed_response_alg', message: 'must be EdDSA or ES256' }];
    t.match(answer, { status: 400, body: { error: 'invalid_client_metadata', details } }, `${alg}`);
  }
});

t.test('a client is never given EdDSA instead of ES256 after the key has been removed', async (t) => {
  const first = await idpApp(t, { es256Key: KEY });
  const client = await first.createClient(ES256);
  const agent = await first.mintAgent();
  const code = await first.codeFor(client, agent);
  const rest = { databaseUri: first.databaseUri, clock: first.clock };
  const without = await idpApp(t, rest);
  t.match(await without.redeem(client, code), { status: 400, body: { error: 'unauthorized_client' } });
  const again = await idpApp(t, { ...rest, es256Key: OTHER, es256KeyPrevious: KEY });
  const { body } = await again.redeem(client, code);
  t.equal(decodeProtectedHeader(body.id_token).alg, 'ES256', 'the code is still valid');
  await verified(again, body.id_token, client, 'ES256');
});

t.test('a rotated ES256 key keeps tokens and hints valid', async (t) => {
  const first = await idpApp(t, { es256Key: KEY, es256KeyNext: OTHER });
  const client = await first.createClient({
    ...ES256,
    post_logout_redirect_uris: 'https://app.example.test/out',
  });
  const agent = await first.mintAgent();
  const { body } = await first.redeem(client, await first.codeFor(client, agent));
  const rest = { databaseUri: first.databaseUri, clock: first.clock };
  const second = await idpApp(t, { ...rest, es256Key: OTHER, es256KeyPrevious: KEY });
  await verified(second, body.id_token, client, 'ES256');
  const kids = async (idp: IdpApp) =>
    (await idp.request('GET', '/jwks')).body.keys.map(({ kid }: { kid: string }) => kid).sort();
  t.same(await kids(first), await kids(second));
  const hinted = `id_token_hint=${body.id_token}&post_logout_redirect_uri=https://app.example.test/out`;
  t.match(await second.request('GET', `/logout?${hinted}`), { status: 303 });
  const next = (await second.redeem(client, await second.codeFor(client, agent))).body.id_token;
  t.not(decodeProtectedHeader(next).kid, decodeProtectedHeader(body.id_token).kid);
  await verified(second, next, client, 'ES256');
  const third = await idpApp(t, { ...rest, es256Key: OTHER });
  t.equal((await third.request('GET', `/logout?${hinted}`)).status, 400, 'unknown once it is unset');
});

t.test('the key of one algorithm does not verify a token of another', async (t) => {
  const keys = createKeys({ seeds: [SEED], es256Keys: [KEY] });
  const [eddsa, es256] = keys.jwks.keys;
  const claims = { iss: ISSUER, sub: 'u_1', aud: 'cid_1' };
  const token = await keys.sign(claims, 'ES256');
  t.match(await keys.verify(token), claims);
  const [, payload, signature] = token.split('.');
  for (const header of [
    { alg: 'ES256', kid: eddsa?.kid },
    { alg: 'EdDSA', kid: es256?.kid },
    { alg: 'HS256', kid: es256?.kid },
    { alg: 'none', kid: es256?.kid },
    { alg: 'ES256' },
  ]) {
    const forged = Buffer.from(JSON.stringify(header)).toString('base64url');
    t.equal(await keys.verify(`${forged}.${payload}.${signature}`), null, JSON.stringify(header));
  }
  const other = createKeys({ seeds: [SEED], es256Keys: [OTHER] });
  t.equal(await other.verify(token), null, 'a foreign key');
  const published = createKeys({ seeds: [SEED], es256Keys: [KEY], signsES256: false });
  t.same(published.algorithms, ['EdDSA'], 'a key that is only published does not sign');
  await t.rejects(published.sign(claims, 'ES256'), /no key for ES256/);
});

t.test('an API chooses the signature of its access tokens, and accepts no other', async (t) => {
  const idp = await idpApp(t, { es256Key: KEY, limits: false });
  const files = await addResource(t, idp, FILES, { algorithm: 'ES256' });
  const mail = await addResource(t, idp, 'https://mail.example.test');
  const [client, agent] = [await idp.createClient({ public: true }), await idp.mintAgent()];
  const scope = 'openid files:read offline_access';
  const code = await idp.codeFor(client, agent, { scope, resource: FILES });
  const { body } = await idp.redeem(client, code);
  const tokens = [body, (await idp.refresh(client, body.refresh_token)).body].map((one) => one.access_token);
  const own = { client_id: agent.sub, client_secret: agent.password };
  const ask = async (resource: string) =>
    idp.request('POST', '/token', { form: { grant_type: 'client_credentials', ...own, resource } });
  tokens.push((await ask(FILES)).body.access_token);
  const { body: jwks } = await idp.request('GET', '/jwks');
  const verify = async (token: string, audience: string, alg: string) =>
    jwtVerify(token, createLocalJWKSet(jwks), {
      ...{ algorithms: [alg], issuer: ISSUER, audience, typ: 'at+jwt' },
      currentDate: new Date(idp.clock.now()),
    });
  for (const token of tokens) {
    await verify(token, FILES, 'ES256');
    t.equal((await introspect(idp, files, token)).body.active, true);
  }
  t.equal(decodeProtectedHeader(body.id_token).alg, 'EdDSA', 'the client has its own');
  const plain = (await ask(mail.identifier)).body.access_token;
  await verify(plain, mail.identifier, 'EdDSA');

  // The claims of a token, signed by the key that is not that of the API.
  const forge = async (token: string, alg: 'EdDSA' | 'ES256') =>
    createKeys({ seeds: [SEED], es256Keys: [KEY] }).sign(claimsOf(token), alg, 'at+jwt');
  const [eddsa, es256] = [await forge(tokens[0] ?? '', 'EdDSA'), await forge(plain, 'ES256')];
  t.equal((await introspect(idp, files, eddsa)).body.active, false);
  t.equal((await introspect(idp, mail, es256)).body.active, false);
  t.equal((await introspect(idp, mail, await forge(plain, 'EdDSA'))).body.active, true);

  const server = createResourceServer({
    ...{ issuer: ISSUER, resource: FILES, clock: idp.clock, jwksUri: 'https://idp.example.test/jwks' },
    fetch: async () => Response.json(jwks),
  });
  t.teardown(() => server.close());
  const request = (token: string) => new Request(FILES, { headers: { authorization: `Bearer ${token}` } });
  t.match(await server.verify(request(tokens[0] ?? '')), { subject: agent.sub });

  await files.update(FILES, { algorithm: 'EdDSA' }, COMMAND_SOURCE);
  const next = (await ask(FILES)).body.access_token;
  await verify(next, FILES, 'EdDSA');
  for (const token of [next, ...tokens])
    t.equal((await introspect(idp, files, token)).body.active, true, 'what it had signed before stays valid');
  t.match((await idp.admin('GET', '/v1/resources')).body.resources, [
    { resource: FILES, access_token_signing_alg: 'EdDSA' },
    { access_token_signing_alg: 'EdDSA' },
  ]);
});

t.test('without the key, an API for ES256 gives no token and uses nothing up', async (t) => {
  const first = await idpApp(t, { es256Key: KEY, limits: false });
  await addResource(t, first, FILES, { algorithm: 'ES256' });
  const [client, agent] = [await first.createClient({ public: true }), await first.mintAgent()];
  const codeOf = async () =>
    first.codeFor(client, agent, { scope: 'openid files:read offline_access', resource: FILES });
  const [code, other] = [await codeOf(), await codeOf()];
  const { refresh_token: token } = (await first.redeem(client, other)).body;
  const without = await idpApp(t, { databaseUri: first.databaseUri, clock: first.clock, limits: false });
  const refused = { status: 400, body: { error: 'invalid_target', error_description: /IDP_ES256_KEY/ } };
  t.match(await without.redeem(client, code), refused);
  t.match(await without.refresh(client, token), refused);
  const form = { grant_type: 'client_credentials', resource: FILES };
  const own = { client_id: agent.sub, client_secret: agent.password };
  t.match(await without.request('POST', '/token', { form: { ...form, ...own } }), refused);
  t.equal((await first.redeem(client, code)).status, 200);
  t.equal((await first.refresh(client, token)).status, 200);
});
