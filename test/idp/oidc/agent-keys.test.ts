import { calculateJwkThumbprint } from 'jose';
import * as openid from 'openid-client';
import t, { type Test } from 'tap';
import { agentWithKey } from '../../kit/agent-keys.js';
import { basic } from '../../kit/app.js';
import {
  type AssertionOptions,
  asserted,
  assertion,
  type ClientKey,
  clientKey,
} from '../../kit/client-keys.js';
import { fetchOf, skewOf } from '../../kit/fetch.js';
import { claimsOf, ISSUER, idpApp, search } from '../../kit/idp.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';

/** Agents that prove a key and get access tokens for themselves (client_credentials). */

const READ = { grant_type: 'client_credentials', resource: FILES, scope: 'files:read' };

async function start(t: Test, algorithm: ClientKey['algorithm'] = 'EdDSA') {
  const idp = await idpApp(t, { limits: false });
  const files = await addResource(t, idp);
  const agent = await agentWithKey(t, idp, algorithm);
  const sign = (change: Partial<AssertionOptions> = {}, by = agent.key) =>
    assertion(by, { clientId: agent.sub, issuer: ISSUER, now: idp.clock.now(), ...change });
  const ask = async (fields: Record<string, string | undefined> = {}, by = agent.key) =>
    idp.request('POST', '/token', {
      form: search({ ...READ, client_id: agent.sub, ...asserted(await sign({}, by)), ...fields }),
    });
  const isActive = async (token: string) => (await introspect(idp, files, token)).body.active;
  return { idp, files, agent, sign, ask, isActive };
}

t.test('an agent with a key gets an access token for a resource, and nothing else', async (t) => {
  for (const algorithm of ['EdDSA', 'ES256', 'PS256', 'RS256'] as const) {
    const { idp, files, agent, ask } = await start(t, algorithm);
    const { status, body } = await ask();
    t.equal(agent.keyId, await calculateJwkThumbprint(agent.key.jwk));
    t.equal(status, 200);
    t.strictSame(Object.keys(body).sort(), ['access_token', 'expires_in', 'scope', 'token_type']);
    t.match(body, { token_type: 'Bearer', expires_in: 600, scope: 'files:read' });
    const claims = { sub: agent.sub, client_id: agent.sub, aud: FILES, scope: 'files:read', kind: 'agent' };
    t.match(claimsOf(body.access_token), { ...claims, sub_profile: 'ai_agent' });
    t.match((await introspect(idp, files, body.access_token)).body, { active: true, ...claims });
    t.equal((await idp.userinfo(body.access_token)).status, 401);
  }
});

t.test('the agent revokes its token, with its key', async (t) => {
  const { idp, agent, sign, ask, isActive } = await start(t);
  const token = (await ask()).body.access_token;
  const stranger = await idp.createClient();
  const authorization = basic(stranger.id, stranger.secret ?? '');
  await idp.request('POST', '/revoke', { form: { token }, headers: { authorization } });
  t.equal(await isActive(token), true);
  t.equal((await idp.request('POST', '/revoke', { form: { token, client_id: agent.sub } })).status, 401);
  t.equal((await idp.request('POST', '/revoke', { form: { token, ...asserted(await sign()) } })).status, 200);
  t.equal(await isActive(token), false);
});

t.test('the API of the scopes is meant when an agent names none', async (t) => {
  const { idp, ask } = await start(t);
  t.equal(claimsOf((await ask({ resource: undefined })).body.access_token).aud, FILES);
  await addResource(t, idp, 'https://twin.example.test');
  idp.clock.advance(2000);
  t.match(
    await ask({ resource: undefined }),
    { status: 400, body: { error: 'invalid_target' } },
    'two have it',
  );
});

t.test('requests of agents that are not complete are refused', async (t) => {
  const { idp, ask } = await start(t);
  await addResource(t, idp, 'https://people.example.test', { principalKinds: ['human'] });
  await addResource(t, idp, 'https://bound.example.test', { requiresDpop: true });
  const cases: [Record<string, string | undefined>, number, string][] = [
    [{ resource: undefined, scope: undefined }, 400, 'invalid_target'],
    [{ resource: undefined, scope: 'files:unknown' }, 400, 'invalid_target'],
    [{ resource: 'https://unknown.example.test' }, 400, 'invalid_target'],
    [{ resource: 'https://people.example.test' }, 400, 'invalid_target'],
    [{ resource: 'https://bound.example.test' }, 400, 'invalid_dpop_proof'],
    [{ scope: 'files:read files:delete' }, 400, 'invalid_scope'],
    [{ scope: 'openid' }, 400, 'invalid_scope'],
    [{ client_assertion: undefined, client_assertion_type: undefined }, 401, 'invalid_client'],
    [{ client_id: (await idp.mintAgent()).sub }, 401, 'invalid_client'],
    [{ grant_type: 'authorization_code', code: 'ac_x' }, 401, 'invalid_client'],
    [{ grant_type: 'refresh_token', refresh_token: 'rt_x' }, 401, 'invalid_client'],
  ];
  for (const [fields, status, error] of cases)
    t.match(await ask(fields), { status, body: { error } }, JSON.stringify(fields));
  t.equal((await ask({}, clientKey())).status, 401, 'another key');
  const two = `${search({ ...READ, ...asserted('x') })}&resource=${encodeURIComponent(FILES)}`;
  t.equal((await idp.request('POST', '/token', { form: two })).status, 401);
  t.equal((await ask()).status, 200);
});

t.test('an agent with a password uses it as its secret, and failures count by its handle', async (t) => {
  const { idp, isActive } = await start(t);
  const agent = await idp.mintAgent();
  const ask = (id: string, password: string) =>
    idp.request('POST', '/token', { form: READ, headers: { authorization: basic(id, password) } });
  const { status, body } = await ask(agent.sub, agent.password);
  t.equal(status, 200);
  t.match(claimsOf(body.access_token), { sub: agent.sub, client_id: agent.sub, aud: FILES, kind: 'agent' });
  const posted = { ...READ, client_id: agent.sub, client_secret: agent.password };
  t.equal((await idp.request('POST', '/token', { form: posted })).status, 200, 'in the body');
  const revocation = { token: body.access_token, client_id: agent.sub, client_secret: agent.password };
  t.equal((await idp.request('POST', '/revoke', { form: revocation })).status, 200);
  t.equal(await isActive(body.access_token), false);

  const [person, other] = [await idp.makeHuman(), await idp.mintAgent()];
  const refused: [string, string, string][] = [
    [agent.sub, `${agent.password}x`, 'another password'],
    [other.sub, agent.password, 'the password of another agent'],
    [agent.handle, agent.password, 'the handle'],
    [person.sub, person.password, 'a person'],
    [`u_${'0'.repeat(32)}`, agent.password, 'an unknown agent'],
  ];
  for (const [id, password, what] of refused)
    t.match(await ask(id, password), { status: 401, body: { error: 'invalid_client' } }, what);
  const code = { ...posted, grant_type: 'authorization_code', code: 'ac_x' };
  t.equal((await idp.request('POST', '/token', { form: code })).status, 401, 'for client_credentials only');
  await idp.admin('POST', `/v1/principals/${agent.sub}/disable`);
  t.equal((await ask(agent.sub, agent.password)).status, 401, 'disabled');

  const limited = await idpApp(t);
  await addResource(t, limited);
  const [guessed, client] = [await limited.mintAgent(), await limited.createClient()];
  // With the format of a generated password: others are counted as those of people.
  const wrong = {
    ...guessed,
    password: guessed.password.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A')),
  };
  let tries = 0;
  while ((await limited.authorize(client, wrong)).status === 401 && tries < 100) tries++;
  const late = await limited.request('POST', '/token', {
    form: READ,
    headers: { authorization: basic(guessed.sub, wrong.password) },
  });
  t.equal(late.status, 429, `one counter for both names, after ${tries} failures`);
});

t.test('clients and people are no agents', async (t) => {
  const { idp, agent } = await start(t);
  const key = clientKey();
  for (const client of [await idp.createClient(), await idp.createClient({ jwks: { keys: [key.jwk] } })]) {
    const proof = client.secret
      ? { client_id: client.id, client_secret: client.secret }
      : asserted(await assertion(key, { clientId: client.id, issuer: ISSUER, now: idp.clock.now() }));
    const answer = await idp.request('POST', '/token', { form: search({ ...READ, ...proof }) });
    t.match(answer, { status: 400, body: { error: 'unauthorized_client' } });
  }
  const open = await idp.createClient({ public: true });
  const answer = await idp.request('POST', '/token', { form: search({ ...READ, client_id: open.id }) });
  t.match(answer, { status: 400, body: { error: 'unauthorized_client' } });
  const human = await idp.makeHuman();
  t.equal(await agent.keys.add(human.sub, key), null);
  t.equal(
    (await idp.request('POST', '/token', { form: search({ ...READ, client_id: human.sub }) })).status,
    401,
  );
});

t.test('removing a key ends the tokens of the agent; a disabled agent gets none', async (t) => {
  const { idp, agent, ask, isActive } = await start(t);
  const second = clientKey('ES256', 'second');
  const added = await agent.keys.add(agent.sub, second);
  const token = (await ask()).body.access_token;
  t.equal(await isActive(token), true);
  t.ok(await agent.keys.remove(agent.sub, agent.keyId));
  t.equal(await agent.keys.remove(agent.sub, agent.keyId), null);
  t.equal(await isActive(token), false);
  t.equal((await ask()).status, 401);
  const next = (await ask({}, second)).body.access_token;
  t.equal(await isActive(next), true);
  await idp.admin('POST', `/v1/principals/${agent.sub}/disable`);
  t.equal(await isActive(next), false);
  t.equal((await ask({}, second)).status, 401);
  await idp.admin('POST', `/v1/principals/${agent.sub}/enable`);
  t.equal(await isActive(next), false);
  t.equal((await ask({}, second)).status, 200);
  t.equal(added?.id, await calculateJwkThumbprint(second.jwk));
  await agent.keys.remove(agent.sub, added?.id ?? '');
  t.equal((await ask({}, second)).status, 401);
  await idp.admin('DELETE', `/v1/agents/${agent.sub}`);
  t.equal(await agent.keys.add(agent.sub, second), null);
});

t.test('an agent has at most five keys, each once, and concurrent commands lose none', async (t) => {
  const { agent } = await start(t);
  await t.rejects(agent.keys.add(agent.sub, agent.key), { code: 'VALIDATION_ERROR' });
  const more = Array.from({ length: 6 }, (_, index) => clientKey('EdDSA', `k${index}`));
  const results = await Promise.allSettled(more.map((key) => agent.keys.add(agent.sub, key)));
  t.equal(results.filter(({ status }) => status === 'fulfilled').length, 4);
  t.equal((await agent.keys.find(agent.sub)).keys?.length, 5);
  const secret = { jwk: { ...clientKey().jwk, d: 'A'.repeat(43) } };
  await t.rejects(agent.keys.add(agent.sub, secret), { code: 'VALIDATION_ERROR' });
});

t.test('without a resource, client_credentials is no grant type', async (t) => {
  const idp = await idpApp(t);
  const agent = await agentWithKey(t, idp);
  const text = await assertion(agent.key, { clientId: agent.sub, issuer: ISSUER, now: idp.clock.now() });
  const answer = await idp.request('POST', '/token', { form: search({ ...READ, ...asserted(text) }) });
  t.match(answer, { status: 401, body: { error: 'invalid_client' } });
  const grants = async () =>
    (await idp.request('GET', '/.well-known/openid-configuration')).body.grant_types_supported;
  t.notOk((await grants()).includes('client_credentials'));
  await addResource(t, idp);
  idp.clock.advance(2000);
  t.ok((await grants()).includes('client_credentials'));
});

t.test('openid-client gets such a token, bound by DPoP', async (t) => {
  const { idp, agent } = await start(t);
  const privateKey = await crypto.subtle.importKey(
    'jwk',
    agent.key.privateKey.export({ format: 'jwk' }),
    { name: 'Ed25519' },
    false,
    ['sign'],
  );
  const config = await openid.discovery(
    new URL(ISSUER),
    agent.sub,
    { [openid.clockSkew]: skewOf(idp) },
    openid.PrivateKeyJwt({ key: privateKey, kid: agent.key.jwk.kid }),
    { [openid.customFetch]: fetchOf(idp) as openid.CustomFetch },
  );
  const keys = await openid.randomDPoPKeyPair('ES256');
  const DPoP = openid.getDPoPHandle(config, keys);
  const tokens = await openid.clientCredentialsGrant(
    config,
    { resource: FILES, scope: 'files:read' },
    { DPoP },
  );
  const jkt = await calculateJwkThumbprint(await crypto.subtle.exportKey('jwk', keys.publicKey));
  t.equal(tokens.token_type, 'dpop');
  t.same(claimsOf(tokens.access_token).cnf, { jkt });
});
