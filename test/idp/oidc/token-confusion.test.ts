import t, { type Test } from 'tap';
import { createCommit } from '../../../src/core/ops/commit.js';
import { ASSERTION_TOKEN, JWT_BEARER } from '../../../src/idp/oidc/identity-assertions/trust.js';
import { createKeys } from '../../../src/idp/oidc/keys.js';
import { TOKEN_EXCHANGE } from '../../../src/idp/oidc/tokens/request.js';
import { registrationTokenCollection } from '../../../src/idp/registration/store.js';
import { createRegistrationTokens } from '../../../src/idp/registration/tokens.js';
import { agentWithKey } from '../../kit/agent-keys.js';
import { basic, PASSWORD, saasApp } from '../../kit/app.js';
import { asserted, assertion, clientKey } from '../../kit/client-keys.js';
import { actorProof, type KeyedAgent, TYPES } from '../../kit/delegations.js';
import { begin, decide, deviceClient, poll } from '../../kit/device.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import {
  foreignAssertion,
  foreignIssuer,
  ID_TOKEN,
  REFRESH_TOKEN,
  THERE,
  trustIn,
} from '../../kit/identity-assertions.js';
import {
  ADMIN_TOKEN,
  claimsOf,
  codeIn,
  type IdpApp,
  ISSUER,
  idpApp,
  idpStore,
  type RegisteredClient,
  redemption,
  refreshing,
  SEED,
  search,
} from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { addResource, FILES } from '../../kit/resources.js';
import { dpopKey } from '../../kit/token-issuer.js';
import { mailedApp, RESET, VERIFY } from '../../saas/auth/kit.js';

/** Each kind of token at each endpoint of both products that takes a token: only the right one is accepted. */

const OTHER = 'https://other.example.test';

interface Caller {
  id: string;
  secret?: string;
}

interface World {
  idp: IdpApp;
  client: RegisteredClient;
  /** With a key instead of a secret. */
  keyed: RegisteredClient;
  /** Tokens that belong to this client and resource server, or to nobody in particular. */
  tokens: Record<string, string>;
  agent: KeyedAgent;
  files: Caller;
  other: Caller;
  /** New ones of the kinds that work once and that the authentication at another endpoint uses up. */
  again: Record<string, () => Promise<string>>;
  /** Of the bound token. */
  key: Awaited<ReturnType<typeof dpopKey>>;
}

async function world(t: Test): Promise<World> {
  const idp = await idpApp(t, {
    ...{ limits: false, deviceFlow: true, clientRegistration: true },
    ...{ identityAssertions: 'both', loopbackDocuments: true },
  });
  const [files, other] = [await addResource(t, idp), await addResource(t, idp, OTHER)];
  const client = await deviceClient(t, idp);
  const human = await idp.makeHuman();
  const signIn = async (more: Record<string, string>) => {
    const { browser, page } = await idp.visit(client, more);
    const { location } = await browser.submit(page, { handle: human.handle, password: human.password });
    return { code: codeIn(location), session: Object.values(browser.cookies()).find(Boolean) ?? '' };
  };
  const opaque = (await idp.redeem(client, (await signIn({ scope: 'openid offline_access' })).code)).body;
  const scope = 'openid files:read offline_access';
  const jwt = (await idp.redeem(client, (await signIn({ scope, resource: FILES })).code)).body;
  const elsewhere = (await idp.redeem(client, (await signIn({ scope, resource: OTHER })).code)).body;
  const key = await dpopKey(idp.clock);
  const bind = async (form: string, claims = {}) => {
    const dpop = await key.prove({ method: 'POST', url: `${ISSUER}/token` }, { claims });
    return idp.request('POST', '/token', { form, headers: { dpop } });
  };
  const boundCode = redemption(client, (await signIn({ scope: 'openid' })).code);
  const nonce = (await bind(boundCode)).headers['dpop-nonce'];
  const bound = (await bind(boundCode, { nonce })).body;
  const agent = await agentWithKey(t, idp);
  const assert = () => assertion(agent.key, { clientId: agent.sub, issuer: ISSUER, now: idp.clock.now() });
  const ofAgent = (await askAsAgent(idp, await assert())).body;
  const delegate = async () => {
    const request = { requested_actor: agent.sub, resource: FILES, scope: 'files:read' };
    const { browser, page } = await idp.visit(client, request);
    const asked = await browser.submit(page, { handle: human.handle, password: human.password });
    const { location } = await browser.submit(asked, { decision: 'allow' });
    return codeIn(location);
  };
  const delegated = (await idp.redeem(client, await delegate(), await actorProof(idp, agent))).body;
  const pushed = await ask(idp, '/par', client, { response_type: 'code', redirect_uri: client.redirectUri });
  const trust = trustIn(await idpStore(t, idp), idp);
  const foreign = await foreignIssuer(t);
  const resources = [{ resource: FILES, scopes: ['files:read'] }];
  await trust.setIssuer(foreign.issuer, { clients: [client.id], resources }, COMMAND_SOURCE);
  await trust.link(foreign.issuer, '00u1', human.sub, COMMAND_SOURCE);
  const clients = [{ id: client.id, idThere: client.id }];
  await trust.setAudience(THERE, { clients, resources }, COMMAND_SOURCE);
  const issued = await ask(idp, '/token', client, { ...ASSERTION_REQUEST, subject_token: opaque.id_token });
  const { code, session } = await signIn({ scope: 'openid' });
  const device = (await begin(idp, client)).body;
  await decide(idp, human, device.user_code);
  const saas = await saasApp(t);
  const account = await saas.signUp();
  const signer = clientKey();
  const keyed = await idp.createClient({ jwks: { keys: [signer.jwk] } });
  const assertApplication = () =>
    assertion(signer, { clientId: keyed.id, issuer: ISSUER, now: idp.clock.now() });
  const store = await idpStore(t, idp);
  const registration = await createRegistrationTokens(registrationTokenCollection(store), {
    ...{ commit: createCommit(store), audit: SILENT_AUDIT, clock: idp.clock, random: idp.random },
  }).create({ uses: 3, days: 7 }, { ip: 'cli' });
  const { body: invited } = await idp.admin('POST', '/v1/invites', { handle: 'new@example.test' });
  const { sub, sid } = claimsOf(opaque.id_token);
  const events = { 'http://schemas.openid.net/event/backchannel-logout': {} };
  const now = Math.floor(idp.clock.now() / 1000);
  const logout = { iss: ISSUER, aud: client.id, iat: now, exp: now + 120, jti: 'jti_1', sub, sid, events };
  return {
    ...{ idp, client, keyed, agent, files, other, key },
    again: { 'assertion of an agent': assert, 'assertion of an application': assertApplication },
    tokens: {
      id_token: opaque.id_token,
      'opaque access token': opaque.access_token,
      'access token for a resource': jwt.access_token,
      'access token for another resource': elsewhere.access_token,
      'refresh token': opaque.refresh_token,
      'access token bound to a key': bound.access_token,
      'access token of an agent for a person': delegated.access_token,
      'token of a delegation': delegated.delegation_token,
      'access token of an agent for itself': ofAgent.access_token,
      'assertion of an agent': await assert(),
      'identity assertion for another server': issued.body.access_token,
      'identity assertion of another provider': await foreignAssertion(foreign, {
        ...{ client, sub: '00u1', now: idp.clock.now() },
      }),
      'DPoP proof': await key.prove({ method: 'GET', url: `${ISSUER}/userinfo` }),
      request_uri: pushed.body.request_uri,
      code,
      'device code': device.device_code,
      'user code': device.user_code,
      'admin token': ADMIN_TOKEN,
      'session cookie': session,
      'client secret': client.secret ?? '',
      'access token of saas-backend': account.accessToken,
      'refresh token of saas-backend': account.refreshToken,
      'assertion of an application': await assertApplication(),
      'initial access token': registration.token,
      invitation: invited.invite_url.split('/').at(-1),
      'secret of a resource server': files.secret,
      'logout token': await createKeys({ seeds: [SEED] }).sign(logout, 'EdDSA', 'logout+jwt'),
    },
  };
}

const ask = async (idp: IdpApp, path: string, caller: Caller, fields: Record<string, string>) =>
  idp.request('POST', path, {
    form: search(fields),
    headers: { authorization: basic(caller.id, caller.secret ?? '') },
  });

const exchange = async ({ idp, client, agent }: World, fields: Record<string, string>) =>
  ask(idp, '/token', client, {
    ...{ grant_type: TOKEN_EXCHANGE, subject_token_type: TYPES.delegation },
    ...(await actorProof(idp, agent)),
    ...fields,
  });

/** For an identity assertion. */
const ASSERTION_REQUEST = {
  ...{ grant_type: TOKEN_EXCHANGE, requested_token_type: ASSERTION_TOKEN, audience: THERE },
  subject_token_type: ID_TOKEN,
};

const askAsAgent = (idp: IdpApp, text: string) =>
  idp.request('POST', '/token', {
    form: { grant_type: 'client_credentials', resource: FILES, scope: 'files:read', ...asserted(text) },
  });

/** Whether an endpoint of the provider accepts the token. */
const ENDPOINTS: Record<
  string,
  { accepts: string[]; isAccepted(world: World, token: string): Promise<boolean> }
> = {
  'userinfo, in the header': {
    accepts: ['opaque access token'],
    isAccepted: async ({ idp }, token) => (await idp.userinfo(token)).status === 200,
  },
  'userinfo, in the form': {
    accepts: ['opaque access token'],
    isAccepted: async ({ idp }, token) =>
      (await idp.request('POST', '/userinfo', { form: { access_token: token } })).status === 200,
  },
  'userinfo, with a proof': {
    accepts: ['access token bound to a key'],
    async isAccepted({ idp, key }, token) {
      const dpop = await key.prove({ method: 'GET', url: `${ISSUER}/userinfo`, token });
      const headers = { authorization: `DPoP ${token}`, dpop };
      return (await idp.request('GET', '/userinfo', { headers })).status === 200;
    },
  },
  'the assertion of an agent': {
    accepts: ['assertion of an agent'],
    isAccepted: async ({ idp }, token) => (await askAsAgent(idp, token)).status === 200,
  },
  'a pushed request': {
    accepts: ['request_uri'],
    isAccepted: async ({ idp, client }, token) =>
      (await idp.request('GET', `/authorize?${search({ client_id: client.id, request_uri: token })}`))
        .status === 200,
  },
  'introspection by a resource server': {
    accepts: [
      'access token for a resource',
      'access token of an agent for itself',
      'access token of an agent for a person',
    ],
    isAccepted: async ({ idp, files }, token) =>
      (await ask(idp, '/introspect', files, { token })).body.active,
  },
  'introspection by another resource server': {
    accepts: ['access token for another resource'],
    isAccepted: async ({ idp, other }, token) =>
      (await ask(idp, '/introspect', other, { token })).body.active,
  },
  'introspection by the client': {
    accepts: ['opaque access token', 'access token bound to a key', 'refresh token', 'token of a delegation'],
    isAccepted: async ({ idp, client }, token) =>
      (await ask(idp, '/introspect', client, { token })).body.active,
  },
  'code at /token': {
    accepts: ['code'],
    isAccepted: async ({ idp, client }, token) =>
      (await idp.request('POST', '/token', { form: redemption(client, token) })).status === 200,
  },
  'a refresh token for an identity assertion': {
    accepts: ['refresh token'],
    async isAccepted({ idp, client }, token) {
      const more = { subject_token: token, subject_token_type: REFRESH_TOKEN };
      return (await ask(idp, '/token', client, { ...ASSERTION_REQUEST, ...more })).status === 200;
    },
  },
  'refresh token at /token': {
    accepts: ['refresh token'],
    isAccepted: async ({ idp, client }, token) =>
      (await idp.request('POST', '/token', { form: refreshing(client, token) })).status === 200,
  },
  'device code at /token': {
    accepts: ['device code'],
    isAccepted: async ({ idp, client }, token) => (await poll(idp, client, token)).status === 200,
  },
  'the token of a delegation at /token': {
    accepts: ['token of a delegation'],
    isAccepted: async (one, token) => (await exchange(one, { subject_token: token })).status === 200,
  },
  'an access token that an agent hands on': {
    // The person has not permitted a second agent; what is refused for that was accepted as a token.
    accepts: ['access token of an agent for a person'],
    isAccepted: async (one, token) => {
      const more = { subject_token_type: TYPES.accessToken, resource: FILES };
      const { body } = await exchange(one, { subject_token: token, ...more });
      return /does not permit a further agent/.test(body.error_description);
    },
  },
  'the proof of an agent': {
    accepts: ['access token of an agent for itself', 'assertion of an agent'],
    async isAccepted(one, token) {
      const valid = one.tokens['token of a delegation'] ?? '';
      const actor = { actor_token: token, actor_token_type: TYPES.jwt };
      return (await exchange(one, { subject_token: valid, ...actor })).status === 200;
    },
  },
  'an identity assertion at /token': {
    accepts: ['identity assertion of another provider'],
    isAccepted: async ({ idp, client }, token) =>
      (await ask(idp, '/token', client, { grant_type: JWT_BEARER, assertion: token })).status === 200,
  },
  'an id_token for an identity assertion': {
    accepts: ['id_token'],
    isAccepted: async ({ idp, client }, token) =>
      (await ask(idp, '/token', client, { ...ASSERTION_REQUEST, subject_token: token })).status === 200,
  },
  'client secret': {
    accepts: ['client secret'],
    isAccepted: async ({ idp, client }, token) =>
      (await ask(idp, '/introspect', { id: client.id, secret: token }, { token: 'x' })).status === 200,
  },
  'the assertion of an application': {
    accepts: ['assertion of an application'],
    isAccepted: async ({ idp, keyed }, token) => {
      const form = search({ client_id: keyed.id, token: 'x', ...asserted(token) });
      return (await idp.request('POST', '/introspect', { form })).status === 200;
    },
  },
  'the registration of an application': {
    accepts: ['initial access token'],
    isAccepted: async ({ idp, client }, token) => {
      const body = { redirect_uris: [client.redirectUri] };
      return (await idp.request('POST', '/register', { body, token })).status === 201;
    },
  },
  'the account page': {
    accepts: [],
    isAccepted: async ({ idp }, token) => {
      const headers = { cookie: `__Host-idp=${token}; __Host-idp-session=${token}` };
      return (await idp.request('GET', '/account', { headers })).status === 200;
    },
  },
  'secret of a resource server': {
    accepts: ['secret of a resource server'],
    isAccepted: async ({ idp, files }, token) =>
      (await ask(idp, '/introspect', { id: files.id, secret: token }, { token: 'x' })).status === 200,
  },
  'the administrator': {
    accepts: ['admin token'],
    isAccepted: async ({ idp }, token) =>
      (await idp.request('GET', '/v1/resources', { token })).status === 200,
  },
  'an invitation': {
    accepts: ['invitation'],
    isAccepted: async ({ idp }, token) =>
      (await idp.request('GET', `/invite/${encodeURIComponent(token)}`)).status === 200,
  },
  'the hint of a sign-in': {
    accepts: ['id_token'],
    isAccepted: async ({ idp, client }, token) => {
      const { headers } = await idp.authorize(client, undefined, { id_token_hint: token, prompt: 'none' });
      return new URL(headers['location'] ?? '').searchParams.get('error') === 'login_required';
    },
  },
  'the session cookie': {
    accepts: [],
    isAccepted: async ({ idp, client }, token) => {
      const headers = { cookie: `__Host-idp=${token}; __Host-idp-session=${token}` };
      const path = `/authorize?${search({
        client_id: client.id,
        redirect_uri: client.redirectUri,
        response_type: 'code',
        prompt: 'none',
      })}`;
      const answer = await idp.request('GET', path, { headers });
      return new URL(answer.headers['location'] ?? '').searchParams.has('code');
    },
  },
  'the hint of a sign-out': {
    accepts: ['id_token'],
    isAccepted: async ({ idp }, token) =>
      (await idp.request('GET', `/logout?${search({ id_token_hint: token })}`)).status === 200,
  },
};

/** The tests of these tokens; the last one uses them up. */
const shared = world(t);

t.test('what /revoke does not own, it does not revoke', async (t) => {
  const { idp, client, files, tokens } = await world(t);
  const stranger = await idp.createClient();
  for (const token of Object.values(tokens)) {
    t.equal((await ask(idp, '/revoke', stranger, { token })).status, 200);
  }
  const { isAccepted: isActive } = ENDPOINTS['introspection by a resource server'] as never as {
    isAccepted(world: Pick<World, 'idp' | 'files'>, token: string): Promise<boolean>;
  };
  const jwt = tokens['access token for a resource'] ?? '';
  t.equal(await isActive({ idp, files }, jwt), true);
  t.equal((await idp.userinfo(tokens['opaque access token'] ?? '')).status, 200);
  t.equal(
    (await ask(idp, '/revoke', files, { token: jwt })).status,
    401,
    'a resource server revokes nothing',
  );
  // Neither does an id_token with the claims of an access token.
  t.equal((await ask(idp, '/revoke', client, { token: tokens['id_token'] ?? '' })).status, 200);
  t.equal(await isActive({ idp, files }, jwt), true);
});

t.test('saas-backend accepts no token of the provider', async (t) => {
  const { tokens } = await shared;
  const saas = await saasApp(t);
  const { accessToken, refreshToken } = await saas.signUp();
  const foreign = Object.entries(tokens).filter(([kind]) => !kind.endsWith('of saas-backend'));
  for (const [kind, token] of [...foreign, ['its own refresh token', refreshToken] as const]) {
    t.equal((await saas.request('GET', '/api/auth/me', { token })).status, 401, kind);
  }
  for (const [kind, token] of [...foreign, ['its own access token', accessToken] as const]) {
    const answer = await saas.request('POST', '/api/auth/refresh', { body: { refreshToken: token } });
    t.equal(answer.status, 401, kind);
  }
  t.equal((await saas.request('GET', '/api/auth/me', { token: accessToken })).status, 200);
});

t.test(
  'no token of either product is a mailed secret of saas-backend, and none of those is a token',
  async (t) => {
    const { tokens } = await shared;
    const saas = await mailedApp(t, { emailLogin: true });
    const { accessToken, email } = await saas.signUp();
    await saas.request('POST', '/api/auth/resend-verification', { body: { email } });
    const verify = await saas.tokenIn(VERIFY);
    // A reset link replaces the verification link of the same account.
    const other = await saas.signUp();
    await saas.request('POST', '/api/auth/forgot-password', { body: { email: other.email } });
    const reset = await saas.tokenIn(RESET);
    t.ok(verify && reset);
    const mailed = { 'mailed link of a verification': verify, 'mailed link of a reset': reset };
    const redeems: Record<string, (token: string) => Promise<number>> = {
      'mailed link of a reset': async (token) =>
        (
          await saas.request('POST', '/api/auth/reset-password', {
            body: { token, password: 'another horse battery staple' },
          })
        ).status,
      'mailed link of a verification': async (token) =>
        (await saas.request('POST', '/api/auth/verify-email', { body: { token, password: PASSWORD } }))
          .status,
      'mailed code': async (token) =>
        (
          await saas.request('POST', '/api/auth/email-login/redeem', {
            body: { loginToken: token, code: 'ABCD-EFGH' },
          })
        ).status,
    };
    const all = { ...tokens, ...mailed, 'its own access token': accessToken };
    for (const [place, redeem] of Object.entries(redeems)) {
      for (const [kind, token] of Object.entries(all).filter(([kind]) => kind !== place))
        t.ok((await redeem(token)) >= 400, `${place}: ${kind}`);
    }
    for (const [kind, token] of Object.entries(mailed)) {
      t.equal((await saas.request('GET', '/api/auth/me', { token })).status, 401, kind);
      const body = { refreshToken: token };
      t.equal((await saas.request('POST', '/api/auth/refresh', { body })).status, 401, kind);
    }
    for (const [kind, token] of Object.entries(mailed))
      t.equal(await redeems[kind]?.(token), 200, `${kind} itself`);
  },
);

t.test('each endpoint of the provider accepts its own kind of token only', async (t) => {
  const one = await shared;
  const kinds = Object.keys(one.tokens);
  for (const [name, { accepts, isAccepted }] of Object.entries(ENDPOINTS)) {
    t.ok(accepts.every((kind) => kinds.includes(kind)));
    for (const kind of kinds.filter((kind) => !accepts.includes(kind)))
      t.equal(await isAccepted(one, one.tokens[kind] ?? ''), false, `${name}: ${kind}`);
  }
  // Afterwards and in this order, because some can be used once: what the wrong endpoint has refused is still valid at the right one.
  for (const [name, { accepts, isAccepted }] of Object.entries(ENDPOINTS)) {
    for (const kind of accepts) {
      const token = (await one.again[kind]?.()) ?? one.tokens[kind] ?? '';
      t.equal(await isAccepted(one, token), true, `${name}: ${kind}`);
    }
  }
});
