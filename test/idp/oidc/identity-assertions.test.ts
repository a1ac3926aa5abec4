import { calculateJwkThumbprint } from 'jose';
import t from 'tap';
import { JWT_BEARER } from '../../../src/idp/oidc/identity-assertions/trust.js';
import {
  acceptingWorld,
  foreignIssuer,
  type IssuerKey,
  issuerKey,
  type Signed,
} from '../../kit/identity-assertions.js';
import { claimsOf, ISSUER, idpApp } from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';
import { dpopKey } from '../../kit/token-issuer.js';

/** Assertions of other providers, exchanged for access tokens. */

t.test(
  'an assertion of a trusted issuer is exchanged for an access token of the linked person',
  async (t) => {
    const { idp, files, foreign, client, person, sign, present } = await acceptingWorld(t);
    const now = Math.floor(idp.clock.now() / 1000);
    const claims = { auth_time: now - 60, amr: ['pwd', 'mfa'], acr: 'gold', email: 'eve@example.test' };
    const answer = await present(await sign({ claims }));
    t.match(answer, { status: 200, body: { token_type: 'Bearer', expires_in: 600, scope: 'files:read' } });
    t.same(Object.keys(answer.body).sort(), ['access_token', 'expires_in', 'scope', 'token_type']);
    const token = claimsOf(answer.body.access_token);
    t.match(token, { iss: ISSUER, aud: FILES, sub: person.sub, client_id: client.id, scope: 'files:read' });
    t.match(token, { auth_time: now - 60, amr: ['pwd', 'mfa'], acr: 'mfa', kind: 'human' });
    t.notOk('sid' in token || 'email' in token);
    t.equal((await introspect(idp, files, answer.body.access_token)).body.active, true);
    t.same(foreign.host.requests, ['/.well-known/openid-configuration', '/jwks']);
    await present(await sign());
    t.equal(foreign.host.requests.length, 2, 'the keys are cached');
    const { body: audit } = await idp.admin('GET', '/v1/audit');
    const accepted = audit.records?.find(
      (one: { event: string }) => one.event === 'identity_assertion.accepted',
    );
    if (audit.records)
      t.match(accepted, { subject: person.sub, detail: `${client.id} ${FILES} ${foreign.issuer}` });
  },
);

t.test('an assertion works once', async (t) => {
  const { sign, present } = await acceptingWorld(t);
  const assertion = await sign();
  const answers = await Promise.all(Array.from({ length: 10 }, () => present(assertion)));
  const [refused, ...others] = answers.filter(({ status }) => status !== 200);
  t.equal(others.length, 8, 'one use has tokens');
  t.match(refused, {
    status: 400,
    body: { error: 'invalid_grant', error_description: 'The assertion was used before.' },
  });
  // A request that is refused for another reason can be corrected.
  const second = await sign();
  t.equal((await present(second, { scope: 'files:other' })).body.error, 'invalid_scope');
  t.equal((await present(second)).status, 200);
});

t.test('signatures of other providers may be EdDSA, ES256, PS256 and RS256', async (t) => {
  for (const algorithm of ['EdDSA', 'ES256', 'PS256', 'RS256'] as const) {
    const { sign, present } = await acceptingWorld(t, {}, issuerKey(algorithm));
    t.equal((await present(await sign())).status, 200, algorithm);
  }
  const { sign, present } = await acceptingWorld(t, {}, issuerKey('RS256', 1024));
  const weak = await sign().catch(() => 'the library refuses to sign');
  t.equal((await present(weak)).body.error, 'invalid_grant', 'a short key');
});

/** What is wrong with an assertion, and what the answer says. */
const WRONG: Record<string, { signed: (now: number) => Signed; says: RegExp }> = {
  'of another issuer': {
    signed: () => ({ claims: { iss: 'https://evil.example.test' } }),
    says: /not signed by/,
  },
  'of this provider itself': { signed: () => ({ claims: { iss: ISSUER } }), says: /not signed by/ },
  'without an issuer': { signed: () => ({ claims: { iss: undefined } }), says: /not signed by/ },
  'with an issuer that is a number': { signed: () => ({ claims: { iss: 5 } }), says: /not signed by/ },
  'with the type of a JWT': { signed: () => ({ header: { typ: 'JWT' } }), says: /not signed by/ },
  'with the type of an access token': {
    signed: () => ({ header: { typ: 'at+jwt' } }),
    says: /not signed by/,
  },
  'without a type': { signed: () => ({ header: { typ: undefined } }), says: /not signed by/ },
  'signed with an unpublished key': { signed: () => ({ key: issuerKey('EdDSA') }), says: /not signed by/ },
  'for another server': { signed: () => ({ claims: { aud: 'https://x.example.test' } }), says: /^aud/ },
  'for several servers': { signed: () => ({ claims: { aud: [ISSUER, 'https://x.test'] } }), says: /^aud/ },
  'of another client': { signed: () => ({ claims: { client_id: 'cid_other' } }), says: /^client_id/ },
  'without a client': { signed: () => ({ claims: { client_id: undefined } }), says: /^client_id/ },
  'without a subject': { signed: () => ({ claims: { sub: undefined } }), says: /^sub/ },
  'with an empty subject': { signed: () => ({ claims: { sub: '' } }), says: /^sub/ },
  'with a subject that is a list': {
    signed: () => ({ claims: { sub: ['00u1'] } }),
    says: /not signed by|^sub/,
  },
  'without an identifier': { signed: () => ({ claims: { jti: undefined } }), says: /^jti/ },
  'with a long identifier': { signed: () => ({ claims: { jti: 'x'.repeat(513) } }), says: /^jti/ },
  'without an end': { signed: () => ({ claims: { exp: undefined } }), says: /iat and exp/ },
  'without a beginning': { signed: () => ({ claims: { iat: undefined } }), says: /iat and exp/ },
  expired: { signed: (now) => ({ claims: { iat: now - 10, exp: now } }), says: /has expired/ },
  'from the future': {
    signed: (now) => ({ claims: { iat: now + 61, exp: now + 90 } }),
    says: /in the future/,
  },
  'not yet valid': { signed: (now) => ({ claims: { nbf: now + 61 } }), says: /not signed by/ },
  'that is valid for too long': { signed: (now) => ({ claims: { exp: now + 301 } }), says: /at most 300/ },
  'for an agent': { signed: () => ({ claims: { act: { sub: 'agent' } } }), says: /act is not supported/ },
  'with details': { signed: () => ({ claims: { authorization_details: [] } }), says: /not supported/ },
  'of a tenant': { signed: () => ({ claims: { tenant: 't1' } }), says: /tenant is not supported/ },
  'for a tenant': { signed: () => ({ claims: { aud_tenant: 't1' } }), says: /aud_tenant is not supported/ },
  'bound to a certificate': { signed: () => ({ claims: { cnf: { 'x5t#S256': 'x' } } }), says: /^cnf/ },
  'bound to a key': { signed: () => ({ claims: { cnf: { jkt: 'x' } } }), says: /Send a proof/ },
  'with resources that are no text': {
    signed: () => ({ claims: { resource: { a: FILES } } }),
    says: /^resource/,
  },
  'with a scope that is a list': { signed: () => ({ claims: { scope: ['files:read'] } }), says: /^scope/ },
  'about an unknown subject': { signed: () => ({ claims: { sub: '00u2' } }), says: /No active person/ },
  'about the user name of a person': {
    signed: () => ({ claims: { sub: 'human1@example.test', email: 'human1@example.test' } }),
    says: /No active person/,
  },
};

t.test('what is wrong with an assertion is refused, and it remains unused', async (t) => {
  const { idp, sign, present } = await acceptingWorld(t);
  for (const [name, { signed, says }] of Object.entries(WRONG)) {
    const answer = await present(await sign(signed(Math.floor(idp.clock.now() / 1000))));
    t.match(answer, { status: 400, body: { error: 'invalid_grant', error_description: says } }, name);
  }
  t.equal((await present('')).body.error, 'invalid_request');
  for (const text of ['x', 'a.b.c', '..', 'e30.e30.', `${'x'.repeat(9000)}`]) {
    t.equal((await present(text)).body.error, 'invalid_grant', text.slice(0, 10));
  }
});

t.test('a key that the header brings along, or a secret of the key set, signs nothing', async (t) => {
  const { foreign, sign, present } = await acceptingWorld(t);
  const own = issuerKey('EdDSA');
  const header = { jwk: own.jwk, jku: 'https://evil.example.test/jwks', kid: foreign.key.jwk.kid };
  t.equal((await present(await sign({ key: own, header }))).body.error, 'invalid_grant');
  const [, payload] = (await sign()).split('.');
  const none = Buffer.from(JSON.stringify({ alg: 'none', typ: 'oauth-id-jag+jwt' })).toString('base64url');
  t.equal((await present(`${none}.${payload}.`)).body.error, 'invalid_grant');
  t.same(
    foreign.host.requests.filter((path) => !/^\/(jwks|\.well-known)/.test(path)),
    [],
  );
});

t.test('resource and scope are what the assertion, the operator and the request allow', async (t) => {
  const { trust, foreign, client, sign, present } = await acceptingWorld(t);
  const both = { claims: { scope: 'files:write files:read files:admin' } };
  t.equal((await present(await sign(both))).body.scope, 'files:read files:write');
  t.equal((await present(await sign(both), { scope: 'files:read x' })).body.scope, 'files:read');
  t.equal((await present(await sign({ claims: { scope: 'files:admin' } }))).body.error, 'invalid_scope');
  t.equal((await present(await sign({ claims: { scope: undefined } }))).body.scope, 'files:read files:write');
  const narrow = { clients: [client.id], resources: [{ resource: FILES, scopes: ['files:read'] }] };
  await trust.setIssuer(foreign.issuer, narrow, COMMAND_SOURCE);
  t.equal((await present(await sign(both))).body.scope, 'files:read');

  const other = { claims: { resource: 'https://other.example.test' } };
  t.equal((await present(await sign(other))).body.error, 'invalid_target');
  t.equal((await present(await sign({ claims: { resource: [FILES, 'https://o.test'] } }))).status, 200);
  t.equal((await present(await sign({ claims: { resource: undefined } }))).status, 200);
  t.equal(
    (await present(await sign(), { resource: 'https://other.example.test' })).body.error,
    'invalid_target',
  );
  t.equal((await present(await sign(), { resource: FILES })).status, 200);
  const spelled = `${FILES}/`;
  t.equal((await present(await sign({ claims: { resource: spelled } }), { resource: spelled })).status, 200);
});

t.test('a resource that admits only agents, or none any more, gets no token', async (t) => {
  const { files, sign, present } = await acceptingWorld(t);
  await files.update(FILES, { principalKinds: ['agent'] }, COMMAND_SOURCE);
  t.equal((await present(await sign())).body.error, 'invalid_target');
  await files.remove(FILES, COMMAND_SOURCE);
  t.equal((await present(await sign())).body.error, 'invalid_target');
});

t.test('the client must be one that the issuer is trusted for, and authenticate', async (t) => {
  const { idp, sign, present } = await acceptingWorld(t);
  const other = await idp.createClient();
  const foreign = await sign({ claims: { client_id: other.id } });
  t.match((await present(foreign, {}, other)).body, {
    error: 'invalid_grant',
    error_description: /not signed/,
  });
  t.equal((await present(await sign(), { client_secret: 'wrong' })).status, 401);
  const open = await idp.createClient({ public: true });
  t.equal((await present(await sign(), {}, open)).body.error, 'unauthorized_client');
});

t.test('a removed issuer, a removed link and a disabled person end it', async (t) => {
  const { idp, files, trust, foreign, client, person, sign, present } = await acceptingWorld(t);
  const { access_token: token } = (await present(await sign())).body;
  t.equal((await introspect(idp, files, token)).body.active, true);
  await trust.unlink(foreign.issuer, '00u1', COMMAND_SOURCE);
  t.match((await present(await sign())).body, { error_description: /No active person/ });
  await trust.link(foreign.issuer, '00u1', person.sub, COMMAND_SOURCE);
  t.equal((await present(await sign())).status, 200);
  await idp.admin('POST', `/v1/principals/${person.sub}/disable`);
  t.match((await present(await sign())).body, { error_description: /No active person/ });
  t.equal((await introspect(idp, files, token)).body.active, false, 'and the tokens that it had');
  await idp.admin('POST', `/v1/principals/${person.sub}/enable`);
  t.equal((await present(await sign())).status, 200);
  await trust.removeIssuer(foreign.issuer, COMMAND_SOURCE);
  t.match((await present(await sign())).body, { error_description: /not signed/ });
  await trust.setIssuer(
    foreign.issuer,
    { clients: [client.id], resources: [{ resource: FILES, scopes: ['files:read'] }] },
    COMMAND_SOURCE,
  );
  t.match(
    (await present(await sign())).body,
    { error_description: /No active person/ },
    'its links are gone',
  );
});

t.test('the keys of an issuer change, and its metadata must be its own', async (t) => {
  const { idp, foreign, sign, present } = await acceptingWorld(t);
  t.equal((await present(await sign())).status, 200);
  const next: IssuerKey = { ...issuerKey('ES256'), jwk: { ...issuerKey('ES256').jwk, kid: 'next' } };
  const renewed = issuerKey('ES256');
  foreign.publish(renewed);
  idp.clock.advance(61_000);
  t.equal((await present(await sign({ key: renewed }))).status, 200, 'a new key is looked up');
  t.equal((await present(await sign({ key: next }))).body.error, 'invalid_grant');

  const second = await acceptingWorld(t);
  second.foreign.host.documents['/.well-known/openid-configuration'] = {
    issuer: 'https://other.example.test',
    jwks_uri: `${second.foreign.issuer}/jwks`,
  };
  t.equal(
    (await second.present(await second.sign())).body.error,
    'invalid_grant',
    'metadata of another issuer',
  );
});

t.test('nothing is fetched from an address that is not public', async (t) => {
  const { foreign, sign, present } = await acceptingWorld(t, { loopbackDocuments: false });
  t.equal((await present(await sign())).body.error, 'invalid_grant');
  t.same(foreign.host.requests, []);
});

t.test('an assertion that is bound to a key needs the proof of that key', async (t) => {
  const { idp, sign, present } = await acceptingWorld(t);
  const [key, other] = [await dpopKey(idp.clock), await dpopKey(idp.clock)];
  const url = `${ISSUER}/token`;
  const jkt = await calculateJwkThumbprint(key.jwk);
  const assertion = await sign({ claims: { cnf: { jkt } } });
  const first = await present(assertion, {}, undefined, { dpop: await key.prove({ method: 'POST', url }) });
  t.equal(first.body.error, 'use_dpop_nonce');
  const nonce = first.headers['dpop-nonce'];
  const prove = (by: typeof key) => by.prove({ method: 'POST', url }, { claims: { nonce } });
  t.equal(
    (await present(assertion, {}, undefined, { dpop: await prove(other) })).body.error,
    'invalid_grant',
  );
  const bound = await present(assertion, {}, undefined, { dpop: await prove(key) });
  t.match(bound, { status: 200, body: { token_type: 'DPoP' } });
  t.equal(claimsOf(bound.body.access_token).cnf.jkt, jkt);
});

t.test('the person sees the application, and ends its tokens', async (t) => {
  const { idp, files, client, person, sign, present } = await acceptingWorld(t);
  const { access_token: token } = (await present(await sign())).body;
  const { browser, page } = await idp.visit(await idp.createClient());
  await browser.submit(page, { handle: person.handle, password: person.password });
  const account = await browser.open(`${await idp.listen()}/account`);
  t.match(account.body, /An application/);
  const answer = await browser.submit(account, { client_id: client.id }, '/applications/disconnect');
  t.ok(answer.status < 400);
  t.equal((await introspect(idp, files, token)).body.active, false);
});

t.test('without the option, the grant is not supported, and the metadata does not name it', async (t) => {
  const { idp, sign, present } = await acceptingWorld(t, { identityAssertions: 'issue' });
  t.equal((await present(await sign())).body.error, 'unsupported_grant_type');
  const path = '/.well-known/openid-configuration';
  t.notOk((await idp.request('GET', path)).body.grant_types_supported.includes(JWT_BEARER));
  const accepting = await idpApp(t, { identityAssertions: 'accept' });
  await addResource(t, accepting);
  const { body } = await accepting.request('GET', path);
  t.ok(body.grant_types_supported.includes(JWT_BEARER));
  t.same(body.authorization_grant_profiles_supported, ['urn:ietf:params:oauth:grant-profile:id-jag']);
  t.notOk('identity_chaining_requested_token_types_supported' in body);
});

t.test('an error names what is wrong with a trusted issuer', async (t) => {
  const { trust, foreign, client } = await acceptingWorld(t);
  const resources = [{ resource: FILES, scopes: ['files:read'] }];
  type Refused = { details: { path: string; message: string }[] };
  const problemOf = (change: Promise<unknown>) =>
    change.then(
      () => 'none',
      ({ details: [first] }: Refused) => `${first?.path} ${first?.message}`,
    );
  const set = (issuer: string, clients: string[], allowed = resources) =>
    problemOf(trust.setIssuer(issuer, { clients, resources: allowed }, COMMAND_SOURCE));
  for (const issuer of [
    'http://i.example',
    'https://a:b@i.example',
    'i.example',
    'https://i.example?x',
    ISSUER,
  ])
    t.match(await set(issuer, [client.id]), /^issuer must /, issuer);
  t.match(await set(foreign.issuer, []), /^clients must name/);
  t.match(await set(foreign.issuer, ['cid_unknown']), /^clients cid_unknown is not registered/);
  t.match(await set(foreign.issuer, [client.id], []), /^resources must name/);
  const unknown = [{ resource: 'https://x.example.test', scopes: [] }];
  t.match(await set(foreign.issuer, [client.id], unknown), /^resources https:.* is not registered/);
  const admin = [{ resource: FILES, scopes: ['files:admin'] }];
  t.match(await set(foreign.issuer, [client.id], admin), /has no scope files:admin/);
  t.match(await problemOf(trust.link(foreign.issuer, '', 'u_1', COMMAND_SOURCE)), /^subject must be/);
  t.equal(await trust.link('https://unknown.example', 'x', 'u_1', COMMAND_SOURCE), null);
  t.equal((await trust.listIssuers()).items.length, 1);
  t.match((await trust.listLinks(foreign.issuer)).items, [{ subject: '00u1' }]);
});

t.test('a subject of one issuer is unknown at another', async (t) => {
  const { client, trust, sign, present } = await acceptingWorld(t);
  const second = await foreignIssuer(t);
  const resources = [{ resource: FILES, scopes: ['files:read'] }];
  await trust.setIssuer(second.issuer, { clients: [client.id], resources }, COMMAND_SOURCE);
  const forged = await sign({ key: second.key, claims: { iss: second.issuer } });
  t.match((await present(forged)).body, { error_description: /No active person/ });
  const mixed = await sign({ key: second.key });
  t.match((await present(mixed)).body, { error_description: /not signed/ }, 'with the key of the other');
});
