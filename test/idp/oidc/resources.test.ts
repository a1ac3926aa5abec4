import { createLocalJWKSet, decodeProtectedHeader, jwtVerify } from 'jose';
import t from 'tap';
import { revocationKey } from '../../../src/core/http/revocation-list.js';
import { revocationCollection } from '../../../src/idp/oidc/revocations/service.js';
import { sessionCollection } from '../../../src/idp/oidc/store.js';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import type { ResourceInput } from '../../../src/idp/resources/administration.js';
import { basic, PASSWORD } from '../../kit/app.js';
import {
  ADMIN_TOKEN,
  authorizePath,
  type Credentials,
  claimsOf,
  codeIn,
  type IdpApp,
  ISSUER,
  idpApp,
  idpStore,
  type Parameters,
  type RegisteredClient,
  redemption,
} from '../../kit/idp.js';
import { COMMAND_SOURCE, makeOperator } from '../../kit/operator.js';
import { addResource, FILES, FILES_INPUT, introspect, resourcesIn } from '../../kit/resources.js';

const SECOND = 1000;
const MAIL = 'https://mail.example.test/v1';
const READ = { resource: FILES, scope: 'openid files:read' };

/** An application, an agent, and the tokens of a complete flow. */
async function flow(idp: IdpApp, more: Parameters = READ, who?: Credentials) {
  const [client, principal] = [await idp.createClient(), who ?? (await idp.mintAgent())];
  const code = await idp.codeFor(client, principal, more);
  return { client, principal, code, tokens: (await idp.redeem(client, code)).body };
}

/** /authorize with several resources. */
function authorizeAll(
  idp: IdpApp,
  client: RegisteredClient,
  who: Credentials,
  resources: string[],
  scope = 'openid files:read mail:send offline_access',
) {
  const named = resources.map((one) => `&resource=${encodeURIComponent(one)}`).join('');
  return idp.request('GET', authorizePath(client, { scope }) + named, {
    headers: { authorization: basic(who.handle, who.password) },
  });
}

const errorIn = (location: string | undefined) => {
  const { searchParams } = new URL(location ?? 'none:');
  return { error: searchParams.get('error'), description: searchParams.get('error_description') };
};

async function verify(idp: IdpApp, token: string, audience = FILES) {
  const keys = createLocalJWKSet((await idp.request('GET', '/jwks')).body);
  const currentDate = new Date(idp.clock.now());
  return jwtVerify(token, keys, { issuer: ISSUER, audience, typ: 'at+jwt', currentDate });
}

t.test('a token for a resource is a JWT of RFC 9068 without personal data', async (t) => {
  const idp = await idpApp(t);
  await addResource(t, idp, FILES, { tokenLifetimeSeconds: 300 });
  const scope = 'openid profile email files:write files:read';
  const [agent, human] = [await idp.mintAgent({ name: 'Robot' }), await idp.makeHuman({ name: 'Ada' })];
  const now = idp.clock.now() / SECOND;
  for (const who of [agent, human]) {
    const { client, tokens } = await flow(idp, { resource: FILES, scope }, who);
    t.match(tokens, { token_type: 'Bearer', expires_in: 300 });
    t.equal(tokens.scope, 'openid email profile files:read files:write');
    const { payload, protectedHeader } = await verify(idp, tokens.access_token);
    t.match(protectedHeader, { alg: 'EdDSA', typ: 'at+jwt', kid: /^[\w-]{43}$/ });
    t.strictSame(payload, {
      iss: ISSUER,
      sub: who.sub,
      aud: FILES,
      client_id: client.id,
      scope: 'files:read files:write',
      iat: now,
      exp: now + 300,
      jti: payload.jti,
      txn: payload['txn'],
      kind: who === agent ? 'agent' : 'human',
      sub_profile: who === agent ? 'ai_agent' : 'user',
      ...(who === human && { auth_time: now, acr: '0', amr: ['pwd'] }),
    });
    t.match(payload, { jti: /^[\w-]{43}$/, txn: /^gr_[0-9a-f]{32}$/ });
    t.match(claimsOf(tokens.id_token), { aud: client.id, name: who === agent ? 'Robot' : 'Ada' });
    t.equal((await idp.userinfo(tokens.access_token)).body.error, 'invalid_token');
  }
});

t.test('an API gives no token to those who registered themselves, unless the operator says so', async (t) => {
  const idp = await idpApp(t, { adminToken: ADMIN_TOKEN, inviteToken: 'i'.repeat(40) });
  const files = await addResource(t, idp, FILES, { admitsSelfRegistered: false });
  const [client, person] = [await idp.createClient(), await idp.makeHuman()];
  const given = { handle: 'stranger@example.test', password: PASSWORD };
  const { sub } = (await idp.request('POST', '/v1/accounts', { body: given })).body;
  const stranger = { sub, ...given };
  const minted = await idp.mintAgent();
  const credentials = ({ sub, password }: Credentials) =>
    idp.request('POST', '/token', {
      form: { grant_type: 'client_credentials', resource: FILES, scope: 'files:write' },
      headers: { authorization: basic(sub, password) },
    });
  const REFUSED = /does not admit people who registered themselves|has no permission/;
  t.match(await credentials(stranger), {
    status: 400,
    body: { error: 'invalid_target', error_description: REFUSED },
  });
  t.equal((await credentials(minted)).status, 200, 'created by the operator, also without a vouched address');
  for (const who of [stranger, person]) {
    const { headers } = await idp.authorize(client, who, READ);
    t.match(errorIn(headers['location']), { error: 'access_denied', description: REFUSED });
    t.equal((await idp.authorize(client, who)).status, 302, 'without the API they sign in');
  }
  const { browser, page } = await idp.visit(client, READ);
  t.notMatch(page.body, /Create an account/, 'sign-up would lead to nothing');
  const signedIn = await browser.submit(page, { handle: person.handle, password: person.password });
  t.match(errorIn(signedIn.location), { error: 'access_denied', description: REFUSED });
  const create = await idp.authorize(client, undefined, { ...READ, prompt: 'create' });
  t.match(errorIn(create.headers['location']), { error: 'access_denied', description: REFUSED });

  await files.update(FILES, { admitsSelfRegistered: true }, COMMAND_SOURCE);
  t.equal((await credentials(stranger)).status, 200);
  t.match((await idp.visit(client, READ)).page.body, /Create an account/);
  const more = { ...READ, scope: 'openid files:read offline_access' };
  const { tokens } = await flow(idp, more, person);
  const code = await idp.codeFor(client, person, more);
  await files.update(FILES, { admitsSelfRegistered: false }, COMMAND_SOURCE);
  t.match(await idp.redeem(client, code), { status: 400, body: { error: 'invalid_target' } });
  t.ok(tokens.refresh_token);

  const operator = await makeOperator(t, idp);
  t.match(
    (await idp.authorize(client, operator, READ)).headers['location'],
    /code=/,
    'an operator is known to the operator of the machine',
  );
});

t.test('a refresh gets no token for an API that no longer admits its owner', async (t) => {
  const idp = await idpApp(t);
  const files = await addResource(t, idp);
  const scope = 'openid files:read offline_access';
  const { client, tokens } = await flow(idp, { ...READ, scope }, await idp.makeHuman());
  await files.update(FILES, { admitsSelfRegistered: false }, COMMAND_SOURCE);
  t.match(await idp.refresh(client, tokens.refresh_token), {
    status: 400,
    body: { error: 'invalid_target', error_description: /registered themselves/ },
  });
  await files.update(FILES, { admitsSelfRegistered: true }, COMMAND_SOURCE);
  t.equal((await idp.refresh(client, tokens.refresh_token)).status, 200, 'the refresh token was not used up');
});

t.test('a client with id_tokens of another algorithm gets access tokens with EdDSA', async (t) => {
  const idp = await idpApp(t, { es256Key: 'a1b2'.repeat(16) });
  await addResource(t, idp);
  const client = await idp.createClient({ id_token_signed_response_alg: 'ES256' });
  const code = await idp.codeFor(client, await idp.mintAgent(), READ);
  const { id_token: idToken, access_token: accessToken } = (await idp.redeem(client, code)).body;
  t.equal(decodeProtectedHeader(idToken).alg, 'ES256');
  t.equal((await verify(idp, accessToken)).protectedHeader.alg, 'EdDSA');
});

t.test('without a resource in the request, everything is as before', async (t) => {
  const idp = await idpApp(t);
  const files = await addResource(t, idp);
  const { client, tokens } = await flow(idp, { scope: 'openid files:read unknown' });
  t.match(tokens, { access_token: /^at_/, expires_in: 3600, scope: 'openid' });
  t.equal((await idp.userinfo(tokens.access_token)).status, 200);
  t.strictSame((await introspect(idp, files, tokens.access_token)).body, { active: false });
  t.match((await introspect(idp, client, tokens.access_token)).body, { active: true, aud: client.id });
});

t.test('an unknown resource is refused, and ignored while no resource is registered', async (t) => {
  const idp = await idpApp(t);
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  const unknown = [
    'https://other.example.test',
    `${FILES}/v1`,
    `${FILES}//`,
    `${FILES}#part`,
    `${FILES}?a=1`,
    `${FILES} ${MAIL}`,
    `${FILES}\0`,
    '\ud800',
    'files',
    ' ',
    'x'.repeat(1000),
  ];
  for (const resource of unknown) {
    const code = await idp.codeFor(client, agent, { resource });
    const { status, body } = await idp.redeem(client, code, { resource });
    t.match([status, body.access_token], [200, /^at_/], `${resource} without any resource`);
  }
  await addResource(t, idp);
  await addResource(t, idp, MAIL, { scopes: [{ name: 'mail:send', description: 'Send' }] });
  for (const resource of unknown) {
    const { headers } = await idp.authorize(client, agent, { resource, state: 's' });
    t.equal(errorIn(headers['location']).error, 'invalid_target', resource);
    t.match(headers['location'], /[?&]state=s&iss=/);
    const code = await idp.codeFor(client, agent, READ);
    t.match(await idp.redeem(client, code, { resource }), { status: 400, body: { error: 'invalid_target' } });
    t.equal((await idp.redeem(client, code, { resource: FILES })).status, 200, 'the code remains valid');
  }
  const many = await authorizeAll(
    idp,
    client,
    agent,
    Array.from({ length: 6 }, (_, index) => `https://r${index}.test`),
  );
  t.equal(errorIn(many.headers['location']).error, 'invalid_target');
  const twice = await authorizeAll(idp, client, agent, [FILES, FILES, MAIL]);
  t.match(twice.headers['location'], /code=/, 'the same resource twice');
});

t.test('a scope that no named resource has is refused', async (t) => {
  const idp = await idpApp(t);
  await addResource(t, idp);
  await addResource(t, idp, MAIL, { scopes: [{ name: 'mail:send', description: 'Send' }] });
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  for (const scope of ['openid mail:send', 'unknown', 'FILES:READ', 'files:read files']) {
    const { headers } = await idp.authorize(client, agent, { resource: FILES, scope });
    t.equal(errorIn(headers['location']).error, 'invalid_scope', scope);
  }
  const only = await flow(idp, { resource: FILES, scope: 'files:read' });
  t.equal(only.tokens.scope, 'files:read');
  t.notOk('id_token' in only.tokens, 'openid is not added');
  const none = await flow(idp, { resource: FILES, scope: 'openid' });
  t.equal(none.tokens.scope, 'openid');
  t.notOk('scope' in claimsOf(none.tokens.access_token), 'only the sign-in was asked for');
});

t.test(
  'without a scope, a resource gives those that are not sensitive, and the page shows them',
  async (t) => {
    const idp = await idpApp(t);
    const files = await addResource(t, idp, FILES, { agents: false, sensitive: ['files:write'] });
    const [client, agent, person] = [await idp.createClient(), await idp.mintAgent(), await idp.makeHuman()];
    const { page } = await idp.visit(client, { resource: FILES, scope: '' });
    t.match(page.body, 'Read your files');
    t.notMatch(page.body, 'Change your files');
    const { tokens } = await flow(idp, { resource: FILES, scope: 'offline_access' }, person);
    t.equal(tokens.scope, 'offline_access files:read');
    t.equal(claimsOf(tokens.access_token).scope, 'files:read');

    await files.update(FILES, { sensitive: [] }, COMMAND_SOURCE);
    const refused = async () =>
      errorIn((await idp.authorize(client, agent, { resource: FILES, scope: '' })).headers['location']);
    t.match(await refused(), { error: 'access_denied' }, 'an agent without a permission');
    await files.permissions.allow(agent.sub, FILES, { scopes: ['files:write'] }, COMMAND_SOURCE);
    const own = await flow(idp, { resource: FILES, scope: '' }, agent);
    t.equal(
      claimsOf(own.tokens.access_token).scope,
      'files:write',
      'an agent gets what it has a permission for',
    );
    await files.update(FILES, { sensitive: ['files:write'] }, COMMAND_SOURCE);
    t.match(await refused(), { error: 'access_denied' }, 'a token would open nothing');
  },
);

t.test('a resource has one name, however a client spells its host', async (t) => {
  const idp = await idpApp(t);
  const deep = 'https://mail.example.test/v1/Box';
  await addResource(t, idp);
  await addResource(t, idp, deep);
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  for (const [resource, audience] of [
    [`${FILES}/`, FILES],
    [FILES.toUpperCase(), FILES],
    ['HTTPS://Mail.Example.test/v1/Box', deep],
  ] as const) {
    const code = await idp.codeFor(client, agent, { resource, scope: 'files:read offline_access' });
    const first = (await idp.redeem(client, code, { resource })).body;
    t.match(claimsOf(first.access_token), { aud: audience }, resource);
    const second = (await idp.refresh(client, first.refresh_token, { resource })).body;
    t.match(claimsOf(second.access_token), { aud: audience });
    const direct = await idp.request('POST', '/token', {
      form: { grant_type: 'client_credentials', resource },
      headers: { authorization: basic(agent.sub, agent.password) },
    });
    t.match(claimsOf(direct.body.access_token), { aud: audience });
  }
  for (const resource of [`${deep}/`, deep.toLowerCase()]) {
    const { headers } = await idp.authorize(client, agent, { resource, scope: '' });
    t.equal(errorIn(headers['location']).error, 'invalid_target', 'a path has one spelling');
  }
});

t.test('the scopes of one resource name it', async (t) => {
  const idp = await idpApp(t);
  await addResource(t, idp);
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  const tokens = async (scope: string) => (await flow(idp, { scope }, agent)).tokens;
  t.match(claimsOf((await tokens('openid files:read')).access_token), { aud: FILES, scope: 'files:read' });
  t.match((await tokens('files:read unknown')).access_token, /^at_/, 'a scope that is not of it');
  await addResource(t, idp, MAIL, {
    scopes: [{ name: 'mail:send', description: 'Send' }, ...FILES_INPUT.scopes],
  });
  idp.clock.advance(2 * SECOND);
  t.match((await tokens('files:read')).access_token, /^at_/, 'two resources have it');
  t.match(claimsOf((await tokens('mail:send')).access_token), { aud: MAIL, scope: 'mail:send' });
  t.match(
    (await idp.authorize(client, agent, { scope: 'mail:send files:read' })).headers['location'],
    /code=/,
  );
});

t.test('scopes of resources are published where clients choose them', async (t) => {
  for (const clientRegistration of [false, true]) {
    const idp = await idpApp(t, { clientRegistration });
    await addResource(t, idp);
    const { body } = await idp.request('GET', '/.well-known/oauth-authorization-server');
    t.equal(body.scopes_supported.includes('files:read'), clientRegistration);
    t.strictSame(body.protected_resources, [FILES]);
  }
});

t.test('one token has one audience, and refreshing keeps what was authorized', async (t) => {
  const idp = await idpApp(t);
  await addResource(t, idp);
  await addResource(t, idp, MAIL, { scopes: [{ name: 'mail:send', description: 'Send' }] });
  const [client, agent] = [await idp.createClient({ public: true }), await idp.mintAgent()];
  const code = codeIn((await authorizeAll(idp, client, agent, [FILES, MAIL])).headers['location']);
  const target = { status: 400, body: { error: 'invalid_target' } };
  t.match(await idp.redeem(client, code), target, 'it must name one');
  const both = `${redemption(client, code)}&resource=${FILES}&resource=${MAIL}`;
  t.match(await idp.request('POST', '/token', { form: both }), target, 'only one');
  t.match(await idp.redeem(client, code, { resource: 'https://other.example.test' }), target);
  const first = (await idp.redeem(client, code, { resource: MAIL })).body;
  t.match(claimsOf(first.access_token), { aud: MAIL, scope: 'mail:send' });
  t.equal(first.scope, 'openid offline_access mail:send');

  t.match(await idp.refresh(client, first.refresh_token), target);
  const second = (await idp.refresh(client, first.refresh_token, { resource: FILES })).body;
  t.match(claimsOf(second.access_token), { aud: FILES, scope: 'files:read' });
  t.match(claimsOf(second.access_token), { txn: claimsOf(first.access_token).txn }, 'one authorization');
  t.not(claimsOf(second.access_token).jti, claimsOf(first.access_token).jti);
  const again = (await idp.refresh(client, first.refresh_token, { resource: FILES })).body;
  t.equal(again.refresh_token, second.refresh_token, 'a repetition gets the same successor');
  t.equal(claimsOf(again.access_token).jti, claimsOf(second.access_token).jti);
  t.match(
    await idp.refresh(client, first.refresh_token, { resource: MAIL }),
    target,
    'for the same resource',
  );

  const foreign = { resource: FILES, scope: 'mail:send' };
  t.match((await idp.refresh(client, second.refresh_token, foreign)).body, { error: 'invalid_scope' });
  const narrow = { resource: FILES, scope: 'files:read' };
  const third = (await idp.refresh(client, second.refresh_token, narrow)).body;
  t.equal(third.scope, 'files:read');
  t.notOk('id_token' in third);
  const none = (await idp.refresh(client, third.refresh_token, { resource: FILES, scope: 'openid' })).body;
  t.notOk('scope' in claimsOf(none.access_token), 'a token without a scope of the resource');
});

t.test('simultaneous changes and refreshes have one outcome', async (t) => {
  const idp = await idpApp(t);
  const store = await idpStore(t, idp);
  const resources = resourcesIn(store, idp);
  await resources.add(FILES, FILES_INPUT, COMMAND_SOURCE);
  await resources.add(MAIL, FILES_INPUT, COMMAND_SOURCE);
  for (const uri of [FILES, MAIL]) await resources.permissions.allow('*', uri, {}, COMMAND_SOURCE);
  const scopes = [{ name: 'files:read', description: 'Read' }];
  const change = (input: Partial<ResourceInput>) => resources.update(FILES, input, COMMAND_SOURCE);
  const changed = [{ tokenLifetimeSeconds: 60 }, { scopes }, { name: 'Changed' }, { sensitive: [] }];
  await Promise.all(changed.map(change));
  const left = await change({ sensitive: ['files:read'] });
  t.match(left, { tokenLifetimeSeconds: 60, name: 'Changed', scopes: [{ sensitive: true }] });
  t.equal(left?.scopes.length, 1, 'no change restores what another one has removed');

  const [client, agent] = [await idp.createClient({ public: true }), await idp.mintAgent()];
  const both = await authorizeAll(idp, client, agent, [FILES, MAIL], 'openid files:read offline_access');
  const code = codeIn(both.headers['location']);
  const { refresh_token: token } = (await idp.redeem(client, code, { resource: FILES })).body;
  const refreshed = await Promise.all(
    Array.from({ length: 12 }, (_, index) =>
      idp.refresh(client, token, { resource: index % 2 ? FILES : MAIL }),
    ),
  );
  const won = refreshed.filter(({ status }) => status === 200).map(({ body }) => body);
  t.equal(new Set(won.map((body) => body.refresh_token)).size, 1, 'one successor');
  t.equal(new Set(won.map((body) => claimsOf(body.access_token).jti)).size, 1, 'one access token');
  t.equal(new Set(won.map((body) => claimsOf(body.access_token).aud)).size, 1, 'of one audience');
  const lost = refreshed.filter(({ status }) => status !== 200);
  t.ok(lost.every(({ body }) => body.error === 'invalid_target'));
  t.equal(won.length, 6);
  t.equal((await idp.refresh(client, won[0].refresh_token, { resource: MAIL })).status, 200);

  const form = { token: won[0].access_token, client_id: client.id, client_secret: client.secret ?? '' };
  const revoked = await Promise.all(
    Array.from({ length: 8 }, () => idp.request('POST', '/revoke', { form })),
  );
  t.ok(revoked.every(({ status }) => status === 200));
  t.equal(await revocationCollection(store).count(), 1, 'one revocation');
});

t.test('a grant without a resource gets none later', async (t) => {
  const idp = await idpApp(t);
  const { client, tokens, principal } = await flow(idp, { scope: 'openid offline_access' });
  await addResource(t, idp);
  const target = { status: 400, body: { error: 'invalid_target' } };
  t.match(await idp.refresh(client, tokens.refresh_token, { resource: FILES }), target);
  const code = await idp.codeFor(client, principal, { scope: 'openid' });
  t.match(await idp.redeem(client, code, { resource: FILES }), target);
  t.match((await idp.refresh(client, tokens.refresh_token)).body.access_token, /^at_/);
});

t.test('a resource decides which kinds of principals get a token', async (t) => {
  const idp = await idpApp(t);
  const files = await addResource(t, idp, FILES, { principalKinds: ['human'] });
  const [agent, human] = [await idp.mintAgent(), await idp.makeHuman()];
  const client = await idp.createClient();
  const refused = errorIn((await idp.authorize(client, agent, READ)).headers['location']);
  t.strictSame(refused, {
    error: 'access_denied',
    description: `The resource ${FILES} does not admit agents.`,
  });
  const offline = { ...READ, scope: 'openid files:read offline_access' };
  const { tokens, client: web } = await flow(idp, offline, human);
  await files.update(FILES, { principalKinds: ['agent'] }, COMMAND_SOURCE);
  t.match(await idp.refresh(web, tokens.refresh_token), {
    status: 400,
    body: { error: 'invalid_target', error_description: `The resource ${FILES} does not admit people.` },
  });
  // A browser is refused before a person types a password.
  const page = await idp.request('GET', authorizePath(client, READ), { headers: { accept: 'text/html' } });
  t.equal(errorIn(page.headers['location']).error, 'access_denied');
  t.equal((await flow(idp, READ, agent)).tokens.token_type, 'Bearer');
});

t.test('what the operator changes applies to the next token, in every process', async (t) => {
  const idp = await idpApp(t);
  const files = await addResource(t, idp);
  const scope = 'openid files:read files:write offline_access';
  const { client, tokens } = await flow(idp, { resource: FILES, scope });
  const scopes = [{ name: 'files:read', description: 'Read' }];
  await files.update(FILES, { scopes, tokenLifetimeSeconds: 60 }, COMMAND_SOURCE);
  const next = (await idp.refresh(client, tokens.refresh_token)).body;
  t.match(next, { expires_in: 60, scope: 'openid offline_access files:read' });
  t.equal(claimsOf(next.access_token).scope, 'files:read');
  await files.remove(FILES, COMMAND_SOURCE);
  t.match(await idp.refresh(client, next.refresh_token), { status: 400, body: { error: 'invalid_target' } });
});

t.test('introspection answers a resource server for the tokens of its audience only', async (t) => {
  const idp = await idpApp(t);
  const [files, mail] = [await addResource(t, idp), await addResource(t, idp, MAIL, { scopes: [] })];
  const human = await idp.makeHuman();
  const { client, tokens } = await flow(idp, READ, human);
  const { headers, body } = await introspect(idp, files, tokens.access_token);
  t.equal(headers['cache-control'], 'no-store');
  t.strictSame(body, { active: true, token_type: 'Bearer', ...claimsOf(tokens.access_token) });
  const inactive = { active: false };
  t.strictSame((await introspect(idp, mail, tokens.access_token)).body, inactive, 'another audience');
  t.strictSame((await introspect(idp, client, tokens.access_token)).body, inactive, 'the client');
  for (const other of [tokens.id_token, `${tokens.access_token}x`, 'eyJ', '']) {
    const answer = await introspect(idp, files, other || 'x');
    t.strictSame(answer.body, inactive, other);
  }
  for (const secret of ['', 'wrong', client.secret, mail.secret]) {
    t.equal((await introspect(idp, { id: files.id, secret }, tokens.access_token)).status, 401, `${secret}`);
  }
  const asClient = redemption({ ...client, id: files.id, secret: files.secret }, 'ac_');
  t.match((await idp.request('POST', '/token', { form: asClient })).body, { error: 'invalid_client' });
  idp.clock.advance(600 * SECOND);
  t.strictSame((await introspect(idp, files, tokens.access_token)).body, inactive, 'expired');
});

t.test('a rotated secret of a resource server works for another day, unless it ends at once', async (t) => {
  const idp = await idpApp(t);
  const files = await addResource(t, idp);
  const statusOf = async (secret: string | undefined) =>
    (await introspect(idp, { id: files.id, secret }, 'x')).status;
  const next = await files.rotate(FILES, { atOnce: false }, COMMAND_SOURCE);
  t.same([await statusOf(files.secret), await statusOf(next?.secret)], [200, 200]);
  idp.clock.advance(24 * 3600 * SECOND);
  t.same([await statusOf(files.secret), await statusOf(next?.secret)], [401, 200]);
  const last = await files.rotate(FILES, { atOnce: true }, COMMAND_SOURCE);
  t.same([await statusOf(next?.secret), await statusOf(last?.secret)], [401, 200]);
});

t.test('an ended access is inactive for the resource server', async (t) => {
  const idp = await idpApp(t);
  const files = await addResource(t, idp);
  const isActive = async (token: string) => (await introspect(idp, files, token)).body.active;
  const offline = { resource: FILES, scope: 'openid files:read offline_access' };
  const revoke = (client: RegisteredClient, token: string) =>
    idp.request('POST', '/revoke', {
      form: { token, client_id: client.id, client_secret: client.secret ?? '' },
    });

  const disabled = await flow(idp);
  t.equal(await isActive(disabled.tokens.access_token), true);
  await idp.admin('POST', `/v1/principals/${disabled.principal.sub}/disable`);
  t.equal(await isActive(disabled.tokens.access_token), false, 'a disabled principal');

  const replayed = await flow(idp);
  await idp.redeem(replayed.client, replayed.code);
  t.equal(await isActive(replayed.tokens.access_token), false, 'a replayed code');

  const family = await flow(idp, offline);
  await revoke(family.client, family.tokens.refresh_token);
  t.equal(await isActive(family.tokens.access_token), false, 'a revoked refresh token');

  const one = await flow(idp, offline);
  const other = await flow(idp);
  t.equal((await revoke(other.client, one.tokens.access_token)).status, 200);
  t.equal(await isActive(one.tokens.access_token), true, 'another client cannot revoke it');
  t.equal((await revoke(one.client, one.tokens.access_token)).status, 200);
  t.equal((await revoke(one.client, one.tokens.access_token)).status, 200, 'twice');
  t.equal(await isActive(one.tokens.access_token), false, 'a revoked token');
  const next = (await idp.refresh(one.client, one.tokens.refresh_token)).body;
  t.equal(await isActive(next.access_token), true, 'only that token');
  const stored = await revocationCollection(await idpStore(t, idp)).page({ sort: 'id', limit: 10 });
  const id = revocationKey('jti', claimsOf(one.tokens.access_token).jti);
  t.match(
    stored.items.filter((revocation) => revocation.id === id),
    [{ revokedAt: idp.clock.now() }],
  );

  const gone = await flow(idp);
  await clientCollection(await idpStore(t, idp)).deleteOne({ id: gone.client.id });
  t.equal(await isActive(gone.tokens.access_token), false, 'a deleted client');
});

t.test('a token without a refresh token ends with the session of the person', async (t) => {
  const idp = await idpApp(t);
  const files = await addResource(t, idp);
  const human = await idp.makeHuman();
  const sessions = sessionCollection(await idpStore(t, idp));
  for (const [scope, ends, isExpired] of [
    ['openid files:read', true],
    // Nothing is recorded about a session that the purge removes.
    ['openid files:read', true, true],
    ['openid files:read offline_access', false],
  ] as const) {
    const client = await idp.createClient();
    const { browser, page } = await idp.visit(client, { resource: FILES, scope });
    const landed = await browser.submit(page, { handle: human.handle, password: human.password });
    const { body } = await idp.redeem(client, codeIn(landed.location));
    const claims = claimsOf(body.access_token);
    t.equal('sid' in claims, ends, 'sid');
    t.match(claims, { amr: ['pwd'], acr: '0', sub: human.sub });
    t.equal((await introspect(idp, files, body.access_token)).body.active, true);
    const hint = new URLSearchParams({ id_token_hint: body.id_token });
    if (isExpired) await sessions.deleteMany({ sub: human.sub });
    else t.equal((await idp.request('GET', `/logout?${hint}`)).status, 200);
    t.equal((await introspect(idp, files, body.access_token)).body.active, !ends, scope);
  }
});

t.test('an access token is no hint for sign-in or sign-out', async (t) => {
  const idp = await idpApp(t);
  await addResource(t, idp);
  const { client, tokens } = await flow(idp);
  const hint = { id_token_hint: tokens.access_token };
  const { headers } = await idp.authorize(client, undefined, { ...hint, prompt: 'none' });
  t.equal(errorIn(headers['location']).error, 'invalid_request');
  t.equal((await idp.request('GET', `/logout?${new URLSearchParams(hint)}`)).status, 400);
});

t.test('metadata lists resources once there are any', async (t) => {
  const idp = await idpApp(t);
  const path = '/.well-known/oauth-authorization-server';
  const before = await idp.request('GET', path);
  t.notOk('protected_resources' in before.body);
  const files = await addResource(t, idp);
  await addResource(t, idp, MAIL);
  idp.clock.advance(SECOND);
  const { body, headers } = await idp.request('GET', path);
  t.strictSame(body.protected_resources, [FILES, MAIL]);
  t.equal(headers['cache-control'], 'public, max-age=300');
  await files.remove(FILES, COMMAND_SOURCE);
  await files.remove(MAIL, COMMAND_SOURCE);
  idp.clock.advance(SECOND);
  t.equal((await idp.request('GET', path)).text, before.text);
});

t.test('the administrator lists resources and cannot change them', async (t) => {
  const idp = await idpApp(t);
  t.strictSame((await idp.admin('GET', '/v1/resources')).body, { resources: [], next: null });
  const files = await addResource(t, idp, FILES, { sensitive: ['files:write'] });
  const { body, text } = await idp.admin('GET', '/v1/resources');
  t.match(body.resources, [
    {
      resource: FILES,
      client_id: files.id,
      name: 'Files',
      scopes: [
        { name: 'files:read', description: 'Read your files', sensitive: false },
        { name: 'files:write', description: 'Change your files', sensitive: true },
      ],
      token_lifetime_seconds: 600,
      principal_kinds: ['agent', 'human'],
    },
  ]);
  t.notMatch(text, /ecret/);
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
    t.equal((await idp.admin(method, '/v1/resources', {})).status, 405, method);
  }
  t.equal((await idp.request('GET', '/v1/resources')).status, 401);
  t.equal((await idp.request('GET', '/v1/resources', { token: `${ADMIN_TOKEN}x` })).status, 401);
});
