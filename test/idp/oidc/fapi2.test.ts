import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as openid from 'openid-client';
import t, { type Test } from 'tap';
import { MINUTE, SECOND } from '../../../src/core/kernel/clock.js';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import {
  type AssertionOptions,
  asserted,
  assertion,
  type ClientKey,
  clientKey,
} from '../../kit/client-keys.js';
import { runProgram } from '../../kit/command-line.js';
import { signInAt } from '../../kit/delegations.js';
import { fetchOf, skewOf } from '../../kit/fetch.js';
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
import { enterConsole, makeOperator } from '../../kit/operator.js';
import { addResource, FILES } from '../../kit/resources.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { dpopKey } from '../../kit/token-issuer.js';

/** Clients with the security profile FAPI 2.0. */

const TOKEN = { method: 'POST', url: `${ISSUER}/token` };
const READ = { resource: FILES, scope: 'openid files:read offline_access' };

async function start(
  t: Test,
  { algorithm = 'EdDSA', ...options }: IdpAppOptions & { algorithm?: Algorithm } = {},
) {
  const idp = await idpApp(t, { limits: false, ...options });
  await addResource(t, idp);
  const key = clientKey(algorithm);
  const body = { name: 'Bank', redirect_uris: [CALLBACK], jwks: { keys: [key.jwk] } };
  const { client_id: id } = (await idp.admin('POST', '/v1/clients', body)).body;
  const client = { id, redirectUri: CALLBACK };
  const clients = clientCollection(await idpStore(t, idp));
  await clients.updateOne({ id }, { set: { profile: 'fapi2' } });
  const human = await idp.makeHuman();
  const browser = await signInAt(idp, human);
  const proof = async (change: Partial<AssertionOptions> = {}, by = key) =>
    asserted(await assertion(by, { clientId: id, issuer: ISSUER, now: idp.clock.now(), ...change }));
  const push = async (more: Parameters = {}, change: Partial<AssertionOptions> = {}) => {
    const [, query = ''] = authorizePath(client, { ...READ, ...more }).split('?');
    return idp.request('POST', '/par', { form: `${query}&${search(await proof(change))}` });
  };
  const open = async (requestUri: string) =>
    browser.open(`${await idp.listen()}/authorize?${search({ client_id: id, request_uri: requestUri })}`);
  const allow = async () => {
    const page = await open((await push({ prompt: 'consent' })).body.request_uri);
    return codeIn((await browser.submit(page, { decision: 'allow' })).location);
  };
  const device = await dpopKey(idp.clock, 'EdDSA');
  let nonce: string | undefined;
  /** With the proof of a key, as clients repeat it with a nonce. */
  const send = async (form: () => Promise<string>, by = device) => {
    for (let attempt = 0; ; attempt++) {
      const dpop = await by.prove(TOKEN, { claims: nonce === undefined ? {} : { nonce } });
      const answer = await idp.request('POST', '/token', { form: await form(), headers: { dpop } });
      nonce = answer.headers['dpop-nonce'] ?? nonce;
      if (answer.body.error !== 'use_dpop_nonce' || attempt > 0) return answer;
    }
  };
  const redeeming = (code: string) => async () => redemption(client, code, await proof());
  const renewing =
    (token: string, more: Parameters = {}) =>
    async () =>
      refreshing(client, token, { ...(await proof()), ...more });
  const world = { idp, key, client, clients, human, browser, proof, push, open, allow };
  return { ...world, send, redeeming, renewing };
}

type Algorithm = ClientKey['algorithm'];

t.test('openid-client keeps the profile, also with Ed25519', async (t) => {
  for (const algorithm of ['EdDSA', 'ES256'] as const) {
    const { idp, key, client, human, browser } = await start(t, { algorithm });
    const name = algorithm === 'EdDSA' ? 'Ed25519' : { name: 'ECDSA', namedCurve: 'P-256' };
    const jwk = key.privateKey.export({ format: 'jwk' });
    const signing = await crypto.subtle.importKey('jwk', jwk, name, false, ['sign']);
    const config = await openid.discovery(
      new URL(ISSUER),
      client.id,
      { [openid.clockSkew]: skewOf(idp) },
      openid.PrivateKeyJwt(signing),
      { [openid.customFetch]: fetchOf(idp) as openid.CustomFetch },
    );
    const DPoP = openid.getDPoPHandle(
      config,
      await openid.randomDPoPKeyPair(algorithm === 'EdDSA' ? 'Ed25519' : algorithm),
    );
    const pushing = async () => {
      const verifier = openid.randomPKCECodeVerifier();
      const parameters = {
        ...{ redirect_uri: CALLBACK, ...READ, state: 'state' },
        ...{
          code_challenge: await openid.calculatePKCECodeChallenge(verifier),
          code_challenge_method: 'S256',
        },
      };
      const { pathname, search } = await openid.buildAuthorizationUrlWithPAR(config, parameters, { DPoP });
      return { verifier, address: `${await idp.listen()}${pathname}${search}` };
    };
    const refused = await pushing();
    const denied = await browser.submit(await browser.open(refused.address), { decision: 'deny' });
    const no = new URL(denied.location ?? '').searchParams;
    t.match(
      Object.fromEntries(no),
      { error: 'access_denied', iss: ISSUER, state: 'state' },
      'a person says no',
    );

    const { verifier, address } = await pushing();
    await browser.open(address);
    const reloaded = await browser.open(address);
    const landed = new URL((await browser.submit(reloaded, { decision: 'allow' })).location ?? '');
    t.equal(landed.searchParams.get('iss'), ISSUER);
    const checks = { pkceCodeVerifier: verifier, idTokenExpected: true, expectedState: 'state' };
    const tokens = await openid.authorizationCodeGrant(config, landed, checks, undefined, { DPoP });
    t.equal(tokens.token_type, 'dpop');
    t.match(claimsOf(tokens.access_token), { sub: human.sub, cnf: { jkt: String } });
    const next = await openid.refreshTokenGrant(config, tokens.refresh_token ?? '', undefined, { DPoP });
    t.equal(next.token_type, 'dpop');
    t.equal(next.refresh_token, tokens.refresh_token, 'no rotation');
    await openid.tokenRevocation(config, next.refresh_token ?? '');
  }
});

t.test('a request must be pushed, with PKCE, and survives a reload until its code', async (t) => {
  const { idp, client, browser, push, open } = await start(t);
  const direct = await browser.open((await idp.listen()) + authorizePath(client, READ));
  t.match(direct.location, /error=invalid_request.*must%20push.*iss=/);
  t.equal((await idp.authorize(client, await idp.mintAgent(), READ)).status, 302);
  t.match(await push({ code_challenge: undefined, code_challenge_method: undefined }), {
    status: 400,
    body: { error: 'invalid_request' },
  });
  t.match(await push({ code_challenge_method: 'plain' }), { status: 400 });
  const { body } = await push();
  t.ok(body.expires_in < 600);
  for (let visits = 0; visits < 3; visits++) t.match((await open(body.request_uri)).body, 'Read your files');
  const allowed = await browser.submit(await open(body.request_uri), { decision: 'allow' });
  t.ok(codeIn(allowed.location));
  t.match((await open(body.request_uri)).body, /was used/);
});

t.test('every token is bound to a key, and no refresh gets one that is not', async (t) => {
  const { idp, client, clients, allow, send, redeeming, renewing } = await start(t);
  await addResource(t, idp, 'https://other.example.test');
  const code = await allow();
  const bare = async (form: () => Promise<string>) => idp.request('POST', '/token', { form: await form() });
  const missing = { status: 400, body: { error: 'invalid_dpop_proof' } };
  t.match(await bare(redeeming(code)), missing);
  const { status, body } = await send(redeeming(code));
  t.match({ status, body }, { status: 200, body: { token_type: 'DPoP' } }, 'the code is still valid');
  t.match(await bare(renewing(body.refresh_token)), missing);
  t.match(await bare(renewing(body.refresh_token, { resource: FILES })), missing);
  t.equal((await send(renewing(body.refresh_token))).body.token_type, 'DPoP');
  t.match(await idp.userinfo(body.access_token), { status: 401 });

  await clients.updateOne({ id: client.id }, { unset: ['profile'] });
  t.match(await bare(renewing(body.refresh_token)), missing, 'also after the profile was removed');
  t.equal((await send(renewing(body.refresh_token))).body.token_type, 'DPoP');

  await clients.updateOne({ id: client.id }, { set: { profile: 'fapi2' } });
  const late = await allow();
  idp.clock.advance(MINUTE + SECOND);
  t.match(await send(redeeming(late)), { status: 400, body: { error: 'invalid_grant' } }, 'after a minute');
});

t.test(
  'only an assertion for the issuer, with times and an algorithm of the profile, authenticates',
  async (t) => {
    for (const [algorithm, options] of [
      ['EdDSA', { clientAssertions: 'token-endpoint' }],
      ['ES256', {}],
      ['PS256', {}],
    ] as [Algorithm, IdpAppOptions][]) {
      const { idp, push, client } = await start(t, { algorithm, ...options });
      const seconds = Math.floor(idp.clock.now() / 1000);
      const claims = (given: Record<string, unknown>) => push({}, { claims: given });
      t.equal((await push()).status, 201, algorithm);
      for (const good of [{ iat: seconds + 10 }, { nbf: seconds + 10 }, { iat: undefined }])
        t.equal((await claims(good)).status, 201, JSON.stringify(good));
      for (const bad of [
        { aud: [ISSUER] },
        { aud: [ISSUER, 'https://other.example.test'] },
        { aud: `${ISSUER}/token` },
        { aud: `${ISSUER}/par` },
        { iat: seconds + 61 },
        { iat: String(seconds + 61) },
        { nbf: seconds + 61 },
        { exp: seconds - 1 },
        { exp: undefined },
        { jti: undefined },
      ])
        t.match(await claims(bad), { status: 401, body: { error: 'invalid_client' } }, JSON.stringify(bad));
      const [, query = ''] = authorizePath(client, READ).split('?');
      t.equal((await idp.request('POST', '/par', { form: query })).status, 401, 'the client_id alone');
    }
    const { push } = await start(t, { algorithm: 'RS256' });
    t.match(await push(), { status: 401, body: { error_description: /PS256, ES256 or EdDSA/ } }, 'RS256');
  },
);

t.test('the operator gives a client with keys the profile, and takes it back', async (t) => {
  const { idp, clients } = await start(t);
  const file = join(temporaryFolder(t), 'jwks.json');
  writeFileSync(file, JSON.stringify({ keys: [clientKey().jwk] }));
  const type = (...args: string[]) =>
    runProgram('idp', ['client', ...args, '--json'], { IDP_DATABASE_URI: idp.databaseUri });
  t.match(await type('create', CALLBACK, '--profile', 'fapi2'), { code: 1, err: /needs a client with keys/ });
  const created = await type('create', CALLBACK, '--name', 'Bank', '--jwks', file, '--profile', 'fapi2');
  t.match(created.json, { profile: 'fapi2', token_endpoint_auth_method: 'private_key_jwt' });
  const { client_id: id } = created.json;
  const { get } = await enterConsole(idp, await makeOperator(t, idp, 'olga'));
  t.match((await get(`/clients/${id}`)).body, 'FAPI 2.0');
  t.notOk('profile' in (await type('update', id, '--profile', 'none')).json);
  t.equal((await clients.findOne({ id }))?.profile, undefined);
  const plain = await idp.createClient();
  t.match(await type('update', plain.id, '--profile', 'fapi2'), { code: 1, err: /needs a client with keys/ });
  const stolen = { name: 'Mine', redirect_uris: [CALLBACK], profile: 'fapi2' };
  t.match(await idp.admin('POST', '/v1/clients', stolen), { status: 400 }, 'commands on the host alone');
});
