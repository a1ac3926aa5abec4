import t, { type Test } from 'tap';
import { DAY } from '../../../src/core/kernel/clock.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import { registrationTokenCollection } from '../../../src/idp/registration/store.js';
import { createRegistrationTokens } from '../../../src/idp/registration/tokens.js';
import { clientKey } from '../../kit/client-keys.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { CALLBACK, type Credentials, type IdpAppOptions, idpApp, idpStore } from '../../kit/idp.js';

/** Applications that register themselves (RFC 7591). */

const CLI = { ip: 'cli' };

async function start(t: Test, options: IdpAppOptions = {}) {
  const idp = await idpApp(t, { clientRegistration: true, ...options });
  const store = await idpStore(t, idp);
  const { clock, random } = idp;
  const tokens = createRegistrationTokens(registrationTokenCollection(store), {
    ...{ commit: createCommit(store), audit: SILENT_AUDIT, clock, random },
  });
  const register = (body: unknown, token?: string) =>
    idp.request('POST', '/register', { body, ...(token !== undefined && { token }) });
  return { idp, store, tokens, register };
}

const loginOf = ({ handle, password }: Credentials) => ({ handle, password });

const METADATA = { client_name: 'Tool', redirect_uris: [CALLBACK] };

t.test('an application registers itself with an initial access token', async (t) => {
  const { idp, tokens, register } = await start(t);
  const { token } = await tokens.create({ uses: 3, days: 7 }, CLI);
  const { status, headers, body } = await register(
    { ...METADATA, software_id: 'ignored', trusted: true },
    token,
  );
  t.equal(status, 201);
  t.equal(headers['cache-control'], 'no-store');
  t.match(body, {
    client_id: /^cid_/,
    client_secret: /^csec_/,
    client_secret_expires_at: 0,
    client_id_issued_at: Math.floor(idp.clock.now() / 1000),
    token_endpoint_auth_method: 'client_secret_basic',
    redirect_uris: [CALLBACK],
    grant_types: ['authorization_code', 'refresh_token'],
  });
  const open = (await register({ ...METADATA, token_endpoint_auth_method: 'none' }, token)).body;
  t.notOk('client_secret' in open);
  const { jwk } = clientKey();
  const keyed = (
    await register(
      { ...METADATA, token_endpoint_auth_method: 'private_key_jwt', jwks: { keys: [jwk] } },
      token,
    )
  ).body;
  t.match(keyed, { jwks: { keys: [{ kid: jwk.kid }] } });
  t.notOk('client_secret' in keyed);
  const { clients } = (await idp.admin('GET', '/v1/clients')).body;
  t.match(clients, Array(3).fill({ origin: 'dynamic', trusted: false, principal_kinds: ['human'] }));
  t.equal((await register(METADATA, token)).status, 401, 'three uses');

  const client = { id: body.client_id, secret: body.client_secret, redirectUri: CALLBACK };
  const { browser, page } = await idp.visit(client);
  t.match(page.body, 'has registered itself');
  const person = await idp.makeHuman();
  const { location = '' } = await browser.submit(page, loginOf(person));
  const code = new URL(location).searchParams.get('code') ?? '';
  t.equal((await idp.redeem(client, code)).status, 200);
  t.match(await idp.authorize(client, await idp.mintAgent()), { headers: { location: /access_denied/ } });
});

t.test('metadata is refused with the codes of RFC 7591, and costs no use', async (t) => {
  const { tokens, register, store } = await start(t);
  const { token } = await tokens.create({ uses: 1, days: 1 }, CLI);
  const cases: [code: string, body: unknown][] = [
    ['invalid_redirect_uri', { ...METADATA, redirect_uris: [] }],
    ['invalid_redirect_uri', { client_name: 'Tool' }],
    ['invalid_redirect_uri', { ...METADATA, redirect_uris: ['http://app.example.test/cb'] }],
    ['invalid_redirect_uri', { ...METADATA, redirect_uris: ['cursor://app/cb'] }],
    ['invalid_redirect_uri', { ...METADATA, redirect_uris: 'https://app.example.test/cb' }],
    ['invalid_client_metadata', { ...METADATA, token_endpoint_auth_method: 'client_secret_jwt' }],
    ['invalid_client_metadata', { ...METADATA, token_endpoint_auth_method: 'private_key_jwt' }],
    ['invalid_client_metadata', { ...METADATA, grant_types: ['implicit'] }],
    ['invalid_client_metadata', { ...METADATA, response_types: ['token'] }],
    ['invalid_client_metadata', { ...METADATA, client_name: 'a\u202eb' }],
    ['invalid_client_metadata', { ...METADATA, id_token_signed_response_alg: 'RS256' }],
    ['invalid_client_metadata', { ...METADATA, backchannel_logout_uri: 'http://10.0.0.1/' }],
  ];
  for (const [error, body] of cases)
    t.match(await register(body, token), { status: 400, body: { error } }, JSON.stringify(body));
  t.equal(await clientCollection(store).count(), 0);
  t.equal((await register(METADATA, token)).status, 201);
});

t.test('without a usable token nothing is registered', async (t) => {
  const { idp, tokens, register } = await start(t);
  const expired = await tokens.create({ uses: 5, days: 1 }, CLI);
  const revoked = await tokens.create({ uses: 5, days: 30 }, CLI);
  t.ok(await tokens.revoke(revoked.created.id, CLI));
  idp.clock.advance(DAY);
  for (const token of [undefined, '', 'x', expired.token, revoked.token, revoked.created.id]) {
    const answer = await register(METADATA, token);
    t.match(answer, { status: 401, body: { error: 'invalid_token' } }, String(token));
    t.match(answer.headers['www-authenticate'], /^Bearer /);
  }
  t.equal(
    (await idp.admin('POST', '/register', METADATA)).status,
    401,
    'the administrator token is another one',
  );
  const { token } = await tokens.create({ uses: 1, days: 1 }, CLI);
  for (const path of ['/v1/clients', '/v1/principals', '/userinfo'])
    t.equal((await idp.request('GET', path, { token })).status, 401, path);
});

t.test('wrong tokens of an address are limited', async (t) => {
  const { register } = await start(t, { limits: true });
  const statuses = [];
  for (let attempt = 0; attempt < 11; attempt++) statuses.push((await register(METADATA, 'x')).status);
  t.same(statuses, [...Array(10).fill(401), 429]);
});

t.test('a client that registered itself ends after 30 days without use', async (t) => {
  const { idp, tokens, register, store } = await start(t);
  const { token } = await tokens.create({ uses: 2, days: 1 }, CLI);
  const make = async () => {
    const { body } = await register({ ...METADATA, token_endpoint_auth_method: 'none' }, token);
    return { id: body.client_id, redirectUri: CALLBACK };
  };
  const [used, unused] = [await make(), await make()];
  idp.clock.advance(20 * DAY);
  const { browser, page } = await idp.visit(used);
  const person = await idp.makeHuman();
  t.ok((await browser.submit(page, loginOf(person))).location);
  idp.clock.advance(10 * DAY);
  t.equal((await idp.authorize(used)).status, 200);
  t.equal((await idp.authorize(unused)).status, 400);
  idp.clock.advance(20 * DAY);
  t.equal((await idp.authorize(used)).status, 400);
  t.equal(await clientCollection(store).count(), 2, 'the purge deletes them');
});

t.test('with IDP_MCP, a client registers itself without a token, as a public client for a day', async (t) => {
  const { idp, register } = await start(t, { clientRegistration: false, mcp: true });
  const { body: metadata } = await idp.request('GET', '/.well-known/oauth-authorization-server');
  t.match(metadata, {
    registration_endpoint: /\/register$/,
    client_id_metadata_document_supported: true,
    token_endpoint_auth_methods_supported: [String, String, String, 'none'],
  });
  const loopback = 'http://127.0.0.1:33418/cb';
  const { status, body } = await register({
    ...METADATA,
    redirect_uris: [CALLBACK, loopback],
    grant_types: ['authorization_code', 'refresh_token'],
    token_endpoint_auth_method: 'client_secret_post',
    backchannel_logout_uri: 'https://victim.example.test/',
  });
  t.equal(status, 201);
  t.match(body, { client_id: /^cid_/, token_endpoint_auth_method: 'none' }, 'whatever it states');
  t.notOk('client_secret' in body || 'backchannel_logout_uri' in body);
  for (const uri of [
    'cursor://app/cb',
    'com.example.app:/cb',
    'http://app.example.test/cb',
    'javascript:alert(1)',
  ])
    t.match(await register({ ...METADATA, redirect_uris: [CALLBACK, uri] }), {
      status: 400,
      body: { error: 'invalid_redirect_uri' },
    });
  t.equal((await register(METADATA, 'x')).status, 401, 'a wrong token is none');

  const client = { id: body.client_id, redirectUri: CALLBACK };
  const { browser, page } = await idp.visit(client, { scope: 'openid' });
  t.match(page.body, 'has registered itself');
  const { location = '' } = await browser.submit(page, loginOf(await idp.makeHuman()));
  const tokens = (await idp.redeem(client, new URL(location).searchParams.get('code') ?? '')).body;
  t.match(
    tokens,
    { scope: 'openid offline_access', refresh_token: /^rt_/ },
    'it has stated that it refreshes',
  );
  const unused = (await register(METADATA)).body;
  const plain = { id: unused.client_id, redirectUri: CALLBACK };
  t.equal((await idp.authorize(plain)).status, 200);
  idp.clock.advance(DAY);
  t.equal((await idp.authorize(client)).status, 200, 'a person has signed in');
  t.equal((await idp.authorize(plain)).status, 400);
  t.equal((await idp.refresh(client, tokens.refresh_token)).status, 200);
});

t.test('registrations without a token are limited for an address', async (t) => {
  const { register } = await start(t, { mcp: true, limits: true });
  const statuses = [];
  for (let attempt = 0; attempt < 21; attempt++) statuses.push((await register(METADATA)).status);
  t.same(statuses, [...Array(20).fill(201), 429]);
});

t.test('the routes exist only if they are configured', async (t) => {
  const idp = await idpApp(t);
  t.equal((await idp.request('POST', '/register', { body: METADATA })).status, 404);
  const off = (await idp.request('GET', '/.well-known/openid-configuration')).body;
  t.notOk('registration_endpoint' in off);
  t.notOk('client_id_metadata_document_supported' in off);
  const { idp: on } = await start(t);
  const { body } = await on.request('GET', '/.well-known/openid-configuration');
  t.match(body, { registration_endpoint: /\/register$/ });
});
