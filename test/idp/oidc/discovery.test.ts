import { once } from 'node:events';
import { connect } from 'node:net';
import fastify from 'fastify';
import t from 'tap';
import { identityProvider } from '../../../src/index.js';
import { basic } from '../../kit/app.js';
import { authorizePath, ISSUER, idpApp, idpOptions } from '../../kit/idp.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** RFC 8037, appendix A. */
const KNOWN_SEED = '9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60';
const KNOWN_KEY = {
  kty: 'OKP',
  crv: 'Ed25519',
  x: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo',
  kid: 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k',
  use: 'sig',
  alg: 'EdDSA',
};
const OPENID_CONFIGURATION = '/.well-known/openid-configuration';

t.test('the key set is derived from the seed, in any letter case', async (t) => {
  for (const ed25519Seed of [KNOWN_SEED, KNOWN_SEED.toUpperCase()]) {
    const idp = await idpApp(t, { ed25519Seed });
    for (const path of ['/.well-known/jwks.json', '/jwks']) {
      const { status, body } = await idp.request('GET', path);
      t.equal(status, 200);
      t.strictSame(body, { keys: [KNOWN_KEY] });
    }
  }
});

t.test('the next and the previous key are published beside the signing key', async (t) => {
  const seeds = { ed25519SeedNext: 'ab34'.repeat(16), ed25519SeedPrevious: 'c0de'.repeat(16) };
  const idp = await idpApp(t, { ed25519Seed: KNOWN_SEED, ...seeds });
  const { keys } = (await idp.request('GET', '/jwks')).body;
  t.strictSame(keys[0], KNOWN_KEY);
  t.equal(new Set(keys.map(({ kid }: { kid: string }) => kid)).size, 3);
  for (const key of keys) t.same(Object.keys(key), Object.keys(KNOWN_KEY));

  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  const { id_token: idToken } = (await idp.redeem(client, await idp.codeFor(client, agent))).body;
  const header = JSON.parse(Buffer.from(idToken.split('.')[0], 'base64url').toString());
  t.strictSame(header, { alg: 'EdDSA', typ: 'JWT', kid: KNOWN_KEY.kid });
});

const METHODS = ['client_secret_basic', 'client_secret_post', 'private_key_jwt'];

t.test('discovery lists exactly the supported features', async (t) => {
  const idp = await idpApp(t);
  const { status, headers, body, text } = await idp.request('GET', OPENID_CONFIGURATION);
  t.equal(status, 200);
  t.strictSame(body, {
    issuer: ISSUER,
    authorization_endpoint: `${ISSUER}/authorize`,
    token_endpoint: `${ISSUER}/token`,
    pushed_authorization_request_endpoint: `${ISSUER}/par`,
    userinfo_endpoint: `${ISSUER}/userinfo`,
    revocation_endpoint: `${ISSUER}/revoke`,
    introspection_endpoint: `${ISSUER}/introspect`,
    end_session_endpoint: `${ISSUER}/logout`,
    jwks_uri: `${ISSUER}/.well-known/jwks.json`,
    response_types_supported: ['code'],
    response_modes_supported: ['query', 'form_post'],
    grant_types_supported: ['authorization_code', 'refresh_token'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['EdDSA'],
    dpop_signing_alg_values_supported: ['EdDSA', 'ES256'],
    acr_values_supported: ['0'],
    scopes_supported: ['openid', 'email', 'profile', 'offline_access'],
    claims_supported: [
      ...['iss', 'sub', 'aud', 'exp', 'iat', 'auth_time', 'jti', 'amr', 'acr', 'nonce', 'sid'],
      ...['kind', 'sub_profile', 'name', 'preferred_username', 'updated_at', 'email', 'email_verified'],
      ...['given_name', 'family_name', 'nickname', 'picture', 'locale'],
    ],
    token_endpoint_auth_methods_supported: [...METHODS, 'none'],
    token_endpoint_auth_signing_alg_values_supported: ['EdDSA', 'Ed25519', 'ES256', 'PS256', 'RS256'],
    revocation_endpoint_auth_methods_supported: [...METHODS, 'none'],
    revocation_endpoint_auth_signing_alg_values_supported: ['EdDSA', 'Ed25519', 'ES256', 'PS256', 'RS256'],
    introspection_endpoint_auth_methods_supported: METHODS,
    introspection_endpoint_auth_signing_alg_values_supported: ['EdDSA', 'Ed25519', 'ES256', 'PS256', 'RS256'],
    code_challenge_methods_supported: ['S256'],
    authorization_response_iss_parameter_supported: true,
    prompt_values_supported: ['none', 'login', 'consent', 'select_account', 'create'],
    ui_locales_supported: ['en', 'ar', 'de'],
    backchannel_logout_supported: true,
    backchannel_logout_session_supported: true,
    claims_parameter_supported: false,
    request_parameter_supported: false,
    request_uri_parameter_supported: false,
  });
  t.equal(headers['content-type'], 'application/json; charset=utf-8');
  const oauth = await idp.request('GET', '/.well-known/oauth-authorization-server');
  t.equal(oauth.text, text, 'RFC 8414 says the same');

  const endpoints = Object.values(body as Record<string, unknown>).flatMap((value) =>
    typeof value === 'string' && value !== ISSUER ? value.slice(ISSUER.length) : [],
  );
  for (const path of endpoints) {
    const statuses = [await idp.request('GET', path), await idp.request('POST', path)].map((a) => a.status);
    t.not(Math.min(...statuses), 404, `${path} is there`);
  }
});

t.test('discovery documents are readable from every origin and cacheable for five minutes', async (t) => {
  const idp = await idpApp(t);
  for (const path of [OPENID_CONFIGURATION, '/.well-known/oauth-authorization-server', '/jwks']) {
    const { headers } = await idp.request('GET', path, { headers: { origin: 'https://spa.example.test' } });
    t.match(headers, {
      'cache-control': 'public, max-age=300',
      'access-control-allow-origin': '*',
      'cross-origin-resource-policy': 'cross-origin',
      'x-content-type-options': 'nosniff',
      'strict-transport-security': /max-age=\d+/,
    });
    t.equal(headers['access-control-allow-credentials'], undefined);
  }
});

t.test('other origins may call the endpoints of clients and nothing else', async (t) => {
  const idp = await idpApp(t, { deviceFlow: true, mcp: true });
  const allowed = async (path: string, method: string) => {
    const headers = { origin: 'https://spa.example.test', 'access-control-request-method': method };
    return (await idp.request('OPTIONS', path, { headers })).headers['access-control-allow-origin'];
  };
  t.equal(await allowed('/token', 'POST'), '*');
  t.equal(await allowed('/userinfo', 'GET'), '*');
  for (const path of ['/revoke', '/par', '/device_authorization', '/register'])
    t.equal(await allowed(path, 'POST'), '*', path);
  for (const path of [
    '/introspect',
    '/device',
    '/authorize',
    '/authorize/login',
    '/v1/accounts',
    '/v1/agents',
    '/v1/clients',
  ]) {
    t.equal(await allowed(path, 'POST'), undefined, path);
    const answer = await idp.request('POST', path, { headers: { origin: 'https://spa.example.test' } });
    t.equal(answer.headers['access-control-allow-origin'], undefined, path);
  }
});

t.test('the issuer is the configured one, byte for byte, whatever Host header a request has', async (t) => {
  const idp = await idpApp(t);
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  const honest = (await idp.request('GET', OPENID_CONFIGURATION)).text;
  const lies: Record<string, string>[] = [
    { host: 'evil.test' },
    { host: 'id.example.test.evil.test:80' },
    { 'x-forwarded-host': 'evil.test', 'x-forwarded-proto': 'http', 'x-forwarded-port': '1' },
    { 'x-original-host': 'evil.test', 'x-original-url': 'https://evil.test/' },
    { 'x-forwarded-prefix': '/evil', forwarded: 'host=evil.test;proto=http' },
  ];
  for (const headers of lies) {
    t.equal((await idp.request('GET', OPENID_CONFIGURATION, { headers })).text, honest);
    const authorization = basic(agent.handle, agent.password);
    const answer = await idp.request('GET', authorizePath(client), {
      headers: { ...headers, authorization },
    });
    const location = new URL(answer.headers['location'] as string);
    t.equal(location.searchParams.get('iss'), ISSUER);
    const form = { grant_type: 'authorization_code', code: location.searchParams.get('code') as string };
    const credentials = {
      redirect_uri: client.redirectUri,
      client_id: client.id,
      client_secret: client.secret as string,
    };
    const tokens = await idp.request('POST', '/token', { headers, form: { ...form, ...credentials } });
    const claims = JSON.parse(Buffer.from(tokens.body.id_token.split('.')[1], 'base64url').toString());
    t.equal(claims.iss, ISSUER);
  }
  const headers = { host: 'id.example.test:80@evil.test' };
  const refused = await idp.request('GET', OPENID_CONFIGURATION, { headers });
  t.equal(refused.status, 400, 'what is no host at all');
  t.notMatch(JSON.stringify([refused.headers, refused.text]), 'evil');

  const { hostname, port } = new URL(await idp.listen());
  const socket = connect(Number(port), hostname);
  socket.end(
    `GET http://evil.test${OPENID_CONFIGURATION} HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n`,
  );
  let answer = '';
  socket.setEncoding('utf8').on('data', (chunk) => {
    answer += chunk;
  });
  await once(socket, 'close');
  t.ok(answer.endsWith(honest), 'a target in absolute form');
});

t.test(
  'one trailing slash of the issuer is removed, and the host application can read the issuer',
  async (t) => {
    const { host, port, logLevel, ...options } = idpOptions(temporaryFolder(t));
    const app = fastify();
    t.teardown(() => app.close());
    await app.register(identityProvider, { ...options, publicUrl: `${ISSUER}/` });
    t.equal((await app.inject(OPENID_CONFIGURATION)).json().issuer, ISSUER);
    t.equal(app.idp.issuer(), ISSUER);

    const twice = fastify().register(identityProvider, options).register(identityProvider, options);
    await t.rejects(async () => twice.ready(), /already registered on this instance/);
    await twice.close();
  },
);

t.test('an issuer with a path is also described at the location of RFC 8414', async (t) => {
  const publicUrl = `${ISSUER}/tenant/idp`;
  const mounted = await idpApp(t, { publicUrl, prefix: '/tenant/idp' });
  const behindProxy = await idpApp(t, { publicUrl });
  for (const idp of [mounted, behindProxy]) {
    const { body, text } = await idp.request('GET', OPENID_CONFIGURATION);
    t.equal(body.issuer, publicUrl);
    t.equal(body.token_endpoint, `${publicUrl}/token`);
    const inserted = await idp.server.fastify.inject('/.well-known/oauth-authorization-server/tenant/idp');
    t.equal(inserted.statusCode, 200);
    t.equal(inserted.body, text);
    t.equal(inserted.headers['access-control-allow-origin'], '*');
  }
  const root = '/.well-known/oauth-authorization-server';
  t.equal((await mounted.server.fastify.inject(root)).statusCode, 404);
  const open = await idpApp(t, { publicUrl, prefix: '/tenant/idp', mcp: true });
  t.equal((await open.server.fastify.inject(root)).json().issuer, publicUrl, 'for clients of MCP');
});
