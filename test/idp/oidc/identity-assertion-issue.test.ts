import { discoverAndRequestJwtAuthGrant, exchangeJwtAuthGrant } from '@modelcontextprotocol/client';
import { calculateJwkThumbprint, createLocalJWKSet, decodeProtectedHeader, jwtVerify } from 'jose';
import t from 'tap';
import { ASSERTION_TOKEN } from '../../../src/idp/oidc/identity-assertions/trust.js';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import { actorProof } from '../../kit/delegations.js';
import {
  CHAT,
  ID_TOKEN,
  issuingWorld,
  REFRESH_TOKEN,
  THERE,
  trustIn,
} from '../../kit/identity-assertions.js';
import { claimsOf, ISSUER, idpApp, idpStore } from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';
import { dpopKey } from '../../kit/token-issuer.js';

/** Assertions for other authorization servers, by token exchange, and the whole way between two providers. */

t.test('a client exchanges an id_token, or a refresh token, for an assertion', async (t) => {
  const { idp, human, signIn, exchange } = await issuingWorld(t);
  const { tokens } = await signIn();
  const answer = await exchange(tokens.id_token, { resource: CHAT, scope: 'chat:read chat:admin' });
  t.match(answer, {
    status: 200,
    body: { issued_token_type: ASSERTION_TOKEN, token_type: 'N_A', expires_in: 300, scope: 'chat:read' },
  });
  t.notOk('refresh_token' in answer.body || 'id_token' in answer.body);
  const { access_token: assertion } = answer.body;
  t.match(decodeProtectedHeader(assertion), { typ: 'oauth-id-jag+jwt', alg: 'EdDSA' });
  const keys = createLocalJWKSet((await idp.request('GET', '/.well-known/jwks.json')).body);
  const { payload } = await jwtVerify(assertion, keys, { currentDate: new Date(idp.clock.now()) });
  t.match(payload, { iss: ISSUER, sub: human.sub, aud: THERE, client_id: 'wiki', resource: CHAT });
  t.match(payload, { scope: 'chat:read', amr: ['pwd'], acr: '0', jti: /^jti_/ });
  t.equal((payload.exp ?? 0) - (payload.iat ?? 0), 300);
  t.notOk('email' in payload || 'name' in payload || 'act' in payload);

  const by = { subject_token_type: REFRESH_TOKEN };
  const again = await exchange(tokens.refresh_token, by);
  t.match(again, { status: 200, body: { scope: 'chat:read chat:write' } });
  t.not(claimsOf(again.body.access_token).jti, payload.jti);
  t.equal((await exchange(tokens.refresh_token, by)).status, 200, 'the refresh token is not rotated');
});

t.test('what is no sign-in of this client gets no assertion', async (t) => {
  const { idp, client, trust, signIn, exchange } = await issuingWorld(t);
  const { tokens } = await signIn();
  const other = await idp.createClient();
  const { tokens: others } = await signIn('openid offline_access', other);
  const byRefresh = { subject_token_type: REFRESH_TOKEN };
  const invalid = { status: 400, body: { error: 'invalid_grant' } };
  t.match(await exchange(others.id_token), invalid, 'of another client');
  t.match(await exchange(others.refresh_token, byRefresh), invalid, 'of another client');
  t.match(await exchange(tokens.access_token), invalid, 'an access token');
  t.match(await exchange(tokens.refresh_token), invalid, 'a refresh token as an id_token');
  t.match(await exchange(tokens.id_token, byRefresh), invalid, 'an id_token as a refresh token');
  const assertion = (await exchange(tokens.id_token)).body.access_token;
  t.match(await exchange(assertion), invalid, 'an assertion');
  t.match(await exchange('x'), invalid);
  t.equal((await exchange('')).body.error, 'invalid_request');
  t.equal((await exchange(tokens.id_token, { subject_token_type: 'urn:x' })).body.error, 'invalid_request');
  t.equal((await exchange(tokens.id_token, { actor_token: 'x' })).body.error, 'invalid_request');
  t.equal((await exchange(tokens.id_token, { client_secret: 'wrong' })).status, 401);

  t.equal((await exchange(others.id_token, {}, other)).body.error, 'invalid_target', 'not allowed');
  t.equal((await exchange(tokens.id_token, { audience: 'https://x.test' })).body.error, 'invalid_target');
  t.equal((await exchange(tokens.id_token, { audience: undefined })).body.error, 'invalid_request');
  t.equal((await exchange(tokens.id_token, { resource: FILES })).body.error, 'invalid_target');
  t.equal((await exchange(tokens.id_token, { scope: 'chat:admin' })).body.error, 'invalid_scope');
  const open = await idp.createClient({ public: true });
  t.equal((await exchange(tokens.id_token, {}, open)).body.error, 'unauthorized_client');

  t.match(await exchange(`${tokens.refresh_token.slice(0, -1)}_`, byRefresh), invalid, 'no refresh token');
  t.equal((await idp.refresh(client, tokens.refresh_token)).status, 200);
  t.equal((await exchange(tokens.refresh_token, byRefresh)).status, 200);
  idp.clock.advance(3_600_000);
  t.match(await exchange(tokens.id_token), invalid, 'an expired id_token');
  await trust.removeAudience(THERE, COMMAND_SOURCE);
  t.equal((await exchange(tokens.refresh_token, byRefresh)).body.error, 'invalid_target', 'removed');
});

t.test('an agent gets no assertion, neither for itself nor for a person', async (t) => {
  const { idp, client, exchange } = await issuingWorld(t);
  const agent = await idp.mintAgent();
  const own = (await idp.redeem(client, await idp.codeFor(client, agent, { scope: 'openid' }))).body;
  t.match(await exchange(own.id_token), { status: 400, body: { error: 'invalid_grant' } });
});

t.test('the end of the session, of the access, or of the person ends the assertions', async (t) => {
  type World = Awaited<ReturnType<typeof issuingWorld>>;
  type SignedIn = Awaited<ReturnType<World['signIn']>>;
  const ends: Record<string, (one: World, signedIn: SignedIn) => Promise<unknown>> = {
    'the session': async ({ idp }, { browser }) =>
      browser.submit(await browser.open(`${await idp.listen()}/logout`)),
    'the person': ({ idp, human }) => idp.admin('POST', `/v1/principals/${human.sub}/disable`),
    'the grant': ({ idp, client }, { tokens }) =>
      idp.request('POST', '/revoke', {
        form: { token: tokens.refresh_token, client_id: client.id, client_secret: client.secret ?? '' },
      }),
    'the client': async ({ idp, client }) =>
      clientCollection(await idpStore(t, idp)).deleteOne({ id: client.id }),
    'the consent': async ({ idp, client }, { browser }) => {
      const account = await browser.open(`${await idp.listen()}/account`);
      await browser.submit(account, { client_id: client.id }, '/applications/disconnect');
    },
  };
  for (const [name, end] of Object.entries(ends)) {
    const one = await issuingWorld(t);
    const signedIn = await one.signIn();
    const { id_token: idToken, refresh_token: refreshToken } = signedIn.tokens;
    t.equal((await one.exchange(idToken)).status, 200);
    await end(one, signedIn);
    const { status } = await one.exchange(idToken);
    t.ok(status === 400 || status === 401, `${name}: ${status}`);
    const byRefresh = await one.exchange(refreshToken, { subject_token_type: REFRESH_TOKEN });
    // What a person has allowed also for later outlives the session.
    t.equal(byRefresh.status === 200, name === 'the session', name);
  }
});

t.test('a token of a delegation becomes no assertion', async (t) => {
  const { delegationWorld } = await import('../../kit/delegations.js');
  const { idp, client, agent, delegate } = await delegationWorld(t, { identityAssertions: 'both' });
  const trust = trustIn(await idpStore(t, idp), idp);
  const clients = [{ id: client.id, idThere: client.id }];
  await trust.setAudience(THERE, { clients, resources: [{ resource: CHAT, scopes: [] }] }, COMMAND_SOURCE);
  const delegated = await delegate({ scope: 'openid files:read' });
  const kinds = { [ID_TOKEN]: delegated.id_token, [REFRESH_TOKEN]: delegated.delegation_token };
  for (const [type, token] of Object.entries(kinds)) {
    const form = {
      grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
      ...{ requested_token_type: ASSERTION_TOKEN, audience: THERE, subject_token_type: type },
      ...{ subject_token: token ?? 'none', client_id: client.id, client_secret: client.secret ?? '' },
    };
    t.equal((await idp.request('POST', '/token', { form })).body.error, 'invalid_grant', type);
    const acting = { ...form, ...(await actorProof(idp, agent)) };
    t.equal((await idp.request('POST', '/token', { form: acting })).body.error, 'invalid_request', type);
  }
});

t.test('a proof binds the assertion to a key', async (t) => {
  const { idp, signIn, exchange } = await issuingWorld(t);
  const { tokens } = await signIn();
  const key = await dpopKey(idp.clock);
  const prove = (claims = {}) => key.prove({ method: 'POST', url: `${ISSUER}/token` }, { claims });
  const first = await exchange(tokens.id_token, {}, undefined, { dpop: await prove() });
  t.equal(first.body.error, 'use_dpop_nonce');
  const nonce = first.headers['dpop-nonce'];
  const bound = await exchange(tokens.id_token, {}, undefined, { dpop: await prove({ nonce }) });
  t.match(bound, { status: 200, body: { token_type: 'N_A' } });
  t.same(claimsOf(bound.body.access_token).cnf, { jkt: await calculateJwkThumbprint(key.jwk) });
});

t.test('the signature is the one that the operator has chosen, if there is a key', async (t) => {
  const es256Key = 'f3bd0c07a81fb932781ed52752f60cc89a6be5e51934fe01938ddb55d8f77802';
  const { client, trust, resources, signIn, exchange } = await issuingWorld(t, { es256Key });
  const { tokens } = await signIn();
  const clients = [{ id: client.id, idThere: 'wiki' }];
  await trust.setAudience(THERE, { clients, resources, algorithm: 'ES256' }, COMMAND_SOURCE);
  const { access_token: assertion } = (await exchange(tokens.id_token)).body;
  t.equal(decodeProtectedHeader(assertion).alg, 'ES256');
  await trust.setAudience(THERE, { clients, resources }, COMMAND_SOURCE);
  t.equal(decodeProtectedHeader((await exchange(tokens.id_token)).body.access_token).alg, 'EdDSA');
  const without = await issuingWorld(t);
  const named = [{ id: without.client.id, idThere: 'wiki' }];
  await without.trust.setAudience(THERE, { clients: named, resources, algorithm: 'ES256' }, COMMAND_SOURCE);
  const { id_token: token } = (await without.signIn()).tokens;
  t.equal((await without.exchange(token)).body.error, 'unauthorized_client');
});

t.test('without the option no assertion is issued, and id_tokens name no grant', async (t) => {
  const { idp, signIn, exchange } = await issuingWorld(t, { identityAssertions: 'accept' });
  const { tokens } = await signIn();
  t.notOk('txn' in claimsOf(tokens.id_token));
  t.equal((await exchange(tokens.id_token)).status, 400);
  const { body } = await idp.request('GET', '/.well-known/openid-configuration');
  t.notOk('identity_chaining_requested_token_types_supported' in body);
  const issuing = await idpApp(t, { identityAssertions: 'issue' });
  const metadata = (await issuing.request('GET', '/.well-known/oauth-authorization-server')).body;
  t.same(metadata.identity_chaining_requested_token_types_supported, [ASSERTION_TOKEN]);
  t.ok(metadata.grant_types_supported.includes('urn:ietf:params:oauth:grant-type:token-exchange'));
  t.notOk('authorization_grant_profiles_supported' in metadata);
});

t.test('the newest MCP client goes from a sign-in at one provider to a token of another', async (t) => {
  const ownAddress = { publicUrl: undefined, limits: false as const };
  const chat = await idpApp(t, { ...ownAddress, identityAssertions: 'accept', loopbackDocuments: true });
  await chat.listen();
  const chatUrl = chat.server.fastify.idp.issuer();
  const acme = await issuingWorld(t, { ...ownAddress, identityAssertions: 'issue' });
  await acme.idp.listen();
  const acmeUrl = acme.idp.server.fastify.idp.issuer();
  const files = await addResource(t, chat);
  const [there, person] = [await chat.createClient(), await chat.makeHuman()];

  // The operators of both agree on it.
  const resources = [{ resource: FILES, scopes: ['files:read'] }];
  const clients = [{ id: acme.client.id, idThere: there.id }];
  await acme.trust.setAudience(chatUrl, { clients, resources }, COMMAND_SOURCE);
  const trust = trustIn(await idpStore(t, chat), chat);
  await trust.setIssuer(acmeUrl, { clients: [there.id], resources }, COMMAND_SOURCE);
  await trust.link(acmeUrl, acme.human.sub, person.sub, COMMAND_SOURCE);

  const { tokens } = await acme.signIn();
  const granted = await discoverAndRequestJwtAuthGrant({
    ...{ idpUrl: acmeUrl, audience: chatUrl, resource: FILES, idToken: tokens.id_token },
    ...{ clientId: acme.client.id, clientSecret: acme.client.secret ?? '', scope: 'files:read' },
  });
  t.match(granted, { expiresIn: 300, scope: 'files:read' });
  const issued = await exchangeJwtAuthGrant({
    ...{ tokenEndpoint: `${chatUrl}/token`, jwtAuthGrant: granted.jwtAuthGrant },
    ...{ clientId: there.id, clientSecret: there.secret ?? '' },
  });
  t.match(claimsOf(issued.access_token), { iss: chatUrl, sub: person.sub, aud: FILES, client_id: there.id });
  t.equal((await introspect(chat, files, issued.access_token)).body.active, true);
  await t.rejects(
    exchangeJwtAuthGrant({
      ...{ tokenEndpoint: `${chatUrl}/token`, jwtAuthGrant: granted.jwtAuthGrant },
      ...{ clientId: there.id, clientSecret: there.secret ?? '' },
    }),
    /invalid_grant - The assertion was used before/,
  );
});
