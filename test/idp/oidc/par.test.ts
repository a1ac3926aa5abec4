import * as openid from 'openid-client';
import t, { type Test } from 'tap';
import { MINUTE, SECOND } from '../../../src/core/kernel/clock.js';
import { pushedRequestCollection } from '../../../src/idp/oidc/store.js';
import { decodeEntities } from '../../kit/agent.js';
import { basic } from '../../kit/app.js';
import { asserted, assertion, clientKey } from '../../kit/client-keys.js';
import { fetchOf, skewOf } from '../../kit/fetch.js';
import {
  CALLBACK,
  claimsOf,
  codeIn,
  ISSUER,
  idpApp,
  idpStore,
  type Parameters,
  type RegisteredClient,
  search,
  VERIFIER,
} from '../../kit/idp.js';
import { addResource, FILES } from '../../kit/resources.js';
import { dpopKey } from '../../kit/token-issuer.js';

/** Authorization requests that clients push (RFC 9126). */

const CHALLENGE = 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM';
const REQUEST = {
  redirect_uri: CALLBACK,
  response_type: 'code',
  scope: 'openid',
  state: 'af0ifjsldkj',
  code_challenge: CHALLENGE,
  code_challenge_method: 'S256',
};

async function start(t: Test, limits = false) {
  const idp = await idpApp(t, { limits });
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  const push = (more: Parameters = {}, by: RegisteredClient = client, headers: Record<string, string> = {}) =>
    idp.request('POST', '/par', {
      form: search({
        ...REQUEST,
        client_id: by.id,
        ...(by.secret !== undefined && { client_secret: by.secret }),
        ...more,
      }),
      headers,
    });
  const use = (request_uri: string, client_id: string | undefined = client.id, more: Parameters = {}) =>
    idp.request('GET', `/authorize?${search({ client_id, request_uri, ...more })}`, {
      headers: { authorization: basic(agent.handle, agent.password) },
    });
  return { idp, client, agent, push, use };
}

t.test('a pushed request is used once, by its client, within 90 seconds', async (t) => {
  const { idp, client, push, use } = await start(t);
  const pushed = await push();
  t.match(pushed, {
    status: 201,
    body: { request_uri: /^urn:ietf:params:oauth:request_uri:[\w-]{43}$/, expires_in: 90 },
  });
  t.equal(pushed.headers['cache-control'], 'no-store');
  const { request_uri: uri } = pushed.body;
  const stranger = await idp.createClient();
  t.match(await use(uri, stranger.id), { status: 400, body: { error: 'invalid_request' } });
  t.equal((await use(uri, '')).status, 400);
  // Other parameters of the address are ignored.
  const { headers } = await use(uri, client.id, {
    redirect_uri: 'https://evil.test',
    state: 'x',
    scope: 'email',
  });
  const code = codeIn(headers['location']);
  t.match(headers['location'], /^https:\/\/app\.example\.test\/cb\?.*state=af0ifjsldkj/);
  t.match(await use(uri), { status: 400, body: { error: 'invalid_request' } }, 'once');
  const answer = await idp.redeem(client, code, { code_verifier: VERIFIER });
  t.match(answer, { status: 200, body: { scope: 'openid' } });
  const same = (await push()).body.request_uri;
  const answers = await Promise.all([1, 2, 3, 4].map(() => use(same)));
  const codes = answers.filter(({ headers }) => /[?&]code=/.test(headers['location'] ?? ''));
  t.equal(codes.length, 1, 'at the same time, too');
  const late = (await push()).body.request_uri;
  idp.clock.advance(90 * SECOND);
  t.equal((await use(late)).status, 400, 'expired');
  t.equal((await use('urn:ietf:params:oauth:request_uri:x')).status, 400);
  t.equal((await use('https://app.example.test/request')).status, 400, 'no address is fetched');
});

t.test('a pushed request lives until its code is issued, and the browser knows only its name', async (t) => {
  const { idp, client, push } = await start(t);
  const human = await idp.makeHuman();
  const secret = { state: 'state-of-the-app', nonce: 'nonce-of-the-app', login_hint: human.handle };
  const { request_uri } = (await push({ ...secret, scope: 'openid profile' })).body;
  const { browser } = await idp.visit(client);
  const origin = await idp.listen();
  const address = `${origin}/authorize?${search({ client_id: client.id, request_uri })}`;
  const first = await browser.open(address);
  idp.clock.advance(10 * MINUTE);
  const page = await browser.open(address);
  t.equal(page.status, 200, 'a reload, after longer than a client may wait with the first visit');
  const { fields } = page.form();
  t.equal(fields['handle'], human.handle);
  const readable = [page.body, Buffer.from(fields['interaction'] ?? '', 'base64url').toString()].join();
  for (const value of [secret.state, secret.nonce, CALLBACK, CHALLENGE]) t.notMatch(readable, value);
  const [, signUp = ''] = /href="([^"]*)">Create an account/.exec(page.body) ?? [];
  const form = await browser.open(origin + decodeEntities(signUp));
  t.match(form.body, /<h1>Create an account/);
  const [, back = ''] = /href="([^"]*)">Sign in</.exec(form.body) ?? [];
  t.match((await browser.open(origin + decodeEntities(back))).body, /<h1>Sign in/);
  await browser.open(`${origin}/account/forgot-password`);
  t.equal((await browser.open(address)).status, 200, 'and Back');
  const given = { handle: human.handle, password: human.password };
  const { location } = await browser.submit(first, given);
  t.match(location, /state=state-of-the-app/);
  t.match(
    await browser.submit(page, given),
    { status: 303 },
    'a form submitted twice leads to the application',
  );
  const again = await browser.open(address);
  t.match([again.status, again.body], [400, /a code has been issued for it/]);
  const tokens = await idp.redeem(client, codeIn(location), { code_verifier: VERIFIER });
  t.match(claimsOf(tokens.body.id_token), { nonce: secret.nonce, sub: human.sub });
});

t.test('what a pushed request asks of the person holds until they have done it', async (t) => {
  const { idp, client, push } = await start(t);
  const human = await idp.makeHuman();
  const given = { handle: human.handle, password: human.password };
  const { browser, page } = await idp.visit(client);
  await browser.submit(page, given);
  const origin = await idp.listen();
  const open = async (more: Parameters, link: Parameters = {}) => {
    const { request_uri } = (await push(more)).body;
    return browser.open(`${origin}/authorize?${search({ client_id: client.id, request_uri, ...link })}`);
  };
  idp.clock.advance(SECOND);
  t.match((await open({})).location, /code=/);
  for (const more of [{ prompt: 'login' }, { max_age: '0' }, { prompt: 'select_account' }])
    t.match((await open(more, { prompt: 'none', max_age: '9' })).body, /<h1>Sign in/, JSON.stringify(more));
  t.match((await open({ prompt: 'none' }, { page: 'sign-in' })).location, /code=/);
  t.match((await open({ prompt: 'create' })).body, /<h1>Create an account/);
  t.match((await open({ prompt: 'create' }, { page: 'sign-in' })).body, /<h1>Sign in/);
  const asked = await open({ prompt: 'consent' });
  const [, other = ''] = /href="([^"]*)">Use another account/.exec(asked.body) ?? [];
  t.match((await browser.open(origin + decodeEntities(other))).body, /<h1>Sign in/);
  t.match((await browser.submit(asked, { decision: 'allow' })).location, /code=/);
});

t.test('clients authenticate as at the token endpoint', async (t) => {
  const { idp, push, client } = await start(t);
  const key = clientKey();
  const signing = await idp.createClient({ jwks: { keys: [key.jwk] } });
  const text = await assertion(key, { clientId: signing.id, issuer: ISSUER, now: idp.clock.now() });
  t.equal((await push(asserted(text), { ...signing, secret: undefined } as never)).status, 201);
  t.equal((await push(asserted(text), { ...signing, secret: undefined } as never)).status, 401);
  const form = search({ ...REQUEST });
  const authorization = basic(client.id, client.secret ?? '');
  t.equal((await idp.request('POST', '/par', { form, headers: { authorization } })).status, 201);
  const open = await idp.createClient({ public: true });
  t.equal((await push({}, open)).status, 201);
  for (const wrong of [{ client_secret: 'x' }, { client_secret: undefined }, { client_id: 'cid_x' }])
    t.match(await push(wrong), { status: 401, body: { error: 'invalid_client' } });
  t.match(await push({ client_secret: undefined }, open), { status: 201 });
});

t.test('a request is validated when it is pushed', async (t) => {
  const { idp, push } = await start(t);
  await addResource(t, idp);
  const cases: [Parameters, string][] = [
    [{ redirect_uri: 'https://evil.test' }, 'invalid_request'],
    [{ redirect_uri: undefined }, 'invalid_request'],
    [{ response_type: 'token' }, 'unsupported_response_type'],
    [{ response_type: undefined }, 'invalid_request'],
    [{ code_challenge_method: 'plain' }, 'invalid_request'],
    [{ request_uri: 'urn:ietf:params:oauth:request_uri:x' }, 'request_uri_not_supported'],
    [{ request: 'x.y.z' }, 'request_not_supported'],
    [{ resource: 'https://unknown.example.test' }, 'invalid_target'],
    [{ resource: FILES, scope: 'files:delete' }, 'invalid_scope'],
    [{ id_token_hint: 'x' }, 'invalid_request'],
    [{ dpop_jkt: 'x' }, 'invalid_request'],
  ];
  for (const [more, error] of cases)
    t.match(await push(more), { status: 400, body: { error } }, JSON.stringify(more));
  t.equal((await push({ state: 'x'.repeat(8 * 1024) })).status, 413);
  const requests = pushedRequestCollection(await idpStore(t, idp));
  t.equal(await requests.count({}), 0, 'nothing is stored');
  t.match(await push({ resource: FILES, scope: 'openid files:read', nonce: '\u0000' }), { status: 201 });
  t.equal(await requests.count({}), 1);
});

t.test('a proof at /par binds the code to its key', async (t) => {
  const { idp, client, push, use } = await start(t);
  await addResource(t, idp);
  const key = await dpopKey(idp.clock);
  const at = { method: 'POST', url: `${ISSUER}/par` };
  const { headers, body } = await push({}, client, { dpop: await key.prove(at) });
  t.equal(body.error, 'use_dpop_nonce');
  const nonce = headers['dpop-nonce'];
  const prove = async () => ({ dpop: await key.prove(at, { claims: { nonce } }) });
  t.equal((await push({ dpop_jkt: 'A'.repeat(43) }, client, await prove())).body.error, 'invalid_dpop_proof');
  const pushed = await push({}, client, await prove());
  const code = codeIn((await use(pushed.body.request_uri)).headers['location']);
  const answer = await idp.redeem(client, code, { code_verifier: VERIFIER });
  t.match(answer, { status: 400, body: { error: 'invalid_dpop_proof' } });
});

t.test('an address pushes a bounded number of requests for public clients', async (t) => {
  const { idp, push } = await start(t, true);
  const open = await idp.createClient({ public: true });
  const statuses = [];
  for (let round = 0; round < 62; round++) statuses.push((await push({}, open)).status);
  t.equal(statuses.filter((status) => status === 201).length, 60);
  t.equal(statuses.at(-1), 429);
  t.equal((await push()).status, 201, 'clients that authenticate are not limited');
});

t.test('openid-client pushes a request with DPoP', async (t) => {
  const { idp, client, agent } = await start(t);
  await addResource(t, idp);
  const config = await openid.discovery(
    new URL(ISSUER),
    client.id,
    { [openid.clockSkew]: skewOf(idp) },
    openid.ClientSecretPost(client.secret ?? ''),
    { [openid.customFetch]: fetchOf(idp) as openid.CustomFetch },
  );
  const DPoP = openid.getDPoPHandle(config, await openid.randomDPoPKeyPair('ES256'));
  const verifier = openid.randomPKCECodeVerifier();
  const target = await openid.buildAuthorizationUrlWithPAR(
    config,
    {
      redirect_uri: CALLBACK,
      scope: 'openid offline_access',
      code_challenge: await openid.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
    },
    { DPoP },
  );
  t.same([...target.searchParams.keys()].sort(), ['client_id', 'request_uri']);
  const answer = await idp.request('GET', target.pathname + target.search, {
    headers: { authorization: basic(agent.handle, agent.password) },
  });
  const landed = new URL(answer.headers['location'] ?? '');
  const checks = { pkceCodeVerifier: verifier, idTokenExpected: true };
  const tokens = await openid.authorizationCodeGrant(config, landed, checks, undefined, { DPoP });
  t.equal(tokens.token_type, 'dpop');
  const claims = await openid.fetchUserInfo(config, tokens.access_token, agent.sub, { DPoP });
  t.equal(claims.sub, agent.sub);
  const next = await openid.refreshTokenGrant(config, tokens.refresh_token ?? '', undefined, { DPoP });
  t.equal(next.token_type, 'dpop');
});
