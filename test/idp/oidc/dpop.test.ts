import t, { type Test } from 'tap';
import { MINUTE } from '../../../src/core/kernel/clock.js';
import { usedProofCollection } from '../../../src/idp/oidc/store.js';
import {
  claimsOf,
  ISSUER,
  idpApp,
  idpStore,
  type Parameters,
  type RegisteredClient,
  redemption,
  refreshing,
} from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { addResource, FILES, type FILES_INPUT, introspect } from '../../kit/resources.js';
import { dpopKey } from '../../kit/token-issuer.js';

/** Tokens that are bound to a key of the client (DPoP, RFC 9449). */

type Key = Awaited<ReturnType<typeof dpopKey>>;

const TOKEN = { method: 'POST', url: `${ISSUER}/token` };
const READ = { resource: FILES, scope: 'openid files:read offline_access' };

async function start(t: Test, more: Partial<typeof FILES_INPUT> | null = {}) {
  const idp = await idpApp(t, { limits: false });
  const files = more && (await addResource(t, idp, FILES, more));
  const agent = await idp.mintAgent();
  const key = await dpopKey(idp.clock, 'EdDSA');
  let nonce: string | undefined;
  /** A request with a proof, repeated with the nonce if that is asked for, as clients do. */
  const send = async (form: string, by: Key = key, claims: object = {}) => {
    for (let attempt = 0; ; attempt++) {
      const dpop = await by.prove(TOKEN, { claims: { ...(nonce !== undefined && { nonce }), ...claims } });
      const answer = await idp.request('POST', '/token', { form, headers: { dpop } });
      nonce = answer.headers['dpop-nonce'] ?? nonce;
      if (answer.body.error !== 'use_dpop_nonce' || attempt > 0) return answer;
    }
  };
  const code = (client: RegisteredClient, parameters: Parameters = READ) =>
    idp.codeFor(client, agent, parameters);
  const userinfo = (token: string, headers: Record<string, string> = {}) =>
    idp.request('GET', '/userinfo', { headers: { authorization: `DPoP ${token}`, ...headers } });
  return { idp, files, agent, key, send, code, userinfo, nonce: () => nonce ?? '' };
}

const thumbprintIn = (token: string): string => claimsOf(token).cnf?.jkt;

t.test('a token request with a proof gets tokens that are bound to its key', async (t) => {
  const { idp, files, key, send, code } = await start(t);
  const { calculateJwkThumbprint } = await import('jose');
  const jkt = await calculateJwkThumbprint(key.jwk);
  for (const isPublic of [true, false]) {
    const client = await idp.createClient({ public: isPublic });
    const { body, headers, status } = await send(redemption(client, await code(client)));
    t.match({ status, body }, { status: 200, body: { token_type: 'DPoP' } });
    t.match(headers['dpop-nonce'], /^[\w-]{43}$/);
    t.equal(thumbprintIn(body.access_token), jkt);
    t.notOk(claimsOf(body.id_token).cnf);
    const about = await introspect(idp, { id: files?.id ?? '', secret: files?.secret }, body.access_token);
    t.match(about.body, { active: true, token_type: 'DPoP', cnf: { jkt } });
    const next = await send(refreshing(client, body.refresh_token));
    t.match(next, { status: 200, body: { token_type: 'DPoP' } });
    t.equal(thumbprintIn(next.body.access_token), jkt);
  }
});

t.test('pages of any origin may read the nonce', async (t) => {
  const { idp } = await start(t);
  const headers = { origin: 'https://app.example.test' };
  const answer = await idp.request('POST', '/token', { form: {}, headers });
  t.match(answer.headers['access-control-expose-headers'], /\bDPoP-Nonce\b/);
});

t.test('the refresh token of a public client works with its key only', async (t) => {
  const { idp, send, code, key } = await start(t);
  const other = await dpopKey(idp.clock, 'ES256');
  const client = await idp.createClient({ public: true });
  const { body } = await send(redemption(client, await code(client)));
  const form = refreshing(client, body.refresh_token);
  t.match(await idp.request('POST', '/token', { form }), {
    status: 400,
    body: { error: 'invalid_dpop_proof' },
  });
  t.match(await send(form, other), { status: 400, body: { error: 'invalid_grant' } });
  for (let use = 0; use < 3; use++) {
    t.match(await send(form, key), { status: 200, body: { refresh_token: body.refresh_token } });
    idp.clock.advance(MINUTE);
  }
  t.match(await send(form, other), { status: 400, body: { error: 'invalid_grant' } });
  t.equal((await idp.request('POST', '/token', { form })).body.error, 'invalid_dpop_proof');
  await send(form, key);
  const all = await Promise.all(Array.from({ length: 50 }, () => send(form, key)));
  t.same(new Set(all.map(({ status }) => status)), new Set([200]), 'at once');

  // One that is bound to no key rotates, and the repetition within the window needs the key of the first use.
  const open = (await idp.redeem(client, await code(client))).body;
  const rotated = await send(refreshing(client, open.refresh_token), key);
  t.not(rotated.body.refresh_token, open.refresh_token);
  const repeated = await send(refreshing(client, open.refresh_token), other);
  t.match(repeated, { status: 400, body: { error: 'invalid_dpop_proof' } });
  t.equal((await idp.refresh(client, open.refresh_token)).body.error, 'invalid_dpop_proof');
  const same = await send(refreshing(client, open.refresh_token), key);
  t.equal(same.body.refresh_token, rotated.body.refresh_token);

  const confidential = await idp.createClient();
  const first = (await send(redemption(confidential, await code(confidential)))).body;
  const changed = await send(refreshing(confidential, first.refresh_token), other);
  t.equal(changed.status, 200, 'a client that authenticates may change its key');
  t.not(thumbprintIn(changed.body.access_token), thumbprintIn(first.access_token));
  const again = await send(refreshing(confidential, first.refresh_token), key);
  t.equal(thumbprintIn(again.body.access_token), thumbprintIn(first.access_token), 'and change it again');
  const without = await idp.refresh(confidential, first.refresh_token);
  t.match(without.body, { token_type: 'Bearer' });
});

t.test('an opaque token that is bound to a key needs a proof at /userinfo', async (t) => {
  // Without any resource.
  const { idp, agent, key, send, code, userinfo } = await start(t, null);
  const client = await idp.createClient();
  const { body: metadata } = await idp.request('GET', '/.well-known/openid-configuration');
  t.same(metadata.dpop_signing_alg_values_supported, ['EdDSA', 'ES256']);
  const { body } = await send(redemption(client, await code(client, { scope: 'openid' })));
  t.equal(body.token_type, 'DPoP');
  const token = body.access_token;
  t.match((await introspect(idp, client, token)).body, { token_type: 'DPoP', cnf: { jkt: /^[\w-]{43}$/ } });
  const request = { method: 'GET', url: `${ISSUER}/userinfo`, token };
  const proof = await key.prove(request);
  t.match(await userinfo(token, { dpop: proof }), { status: 200, body: { sub: agent.sub } });
  const stolen = await dpopKey(idp.clock);
  const refused: [name: string, headers: Record<string, string>][] = [
    ['a proof that was used', { dpop: proof }],
    ['no proof', {}],
    ['two proofs', { dpop: `${await key.prove(request)}, ${await key.prove(request)}` }],
    ['another key', { dpop: await stolen.prove(request) }],
    ['another method', { dpop: await key.prove({ ...request, method: 'POST' }) }],
    ['another address', { dpop: await key.prove({ ...request, url: TOKEN.url }) }],
    ['another token', { dpop: await key.prove({ ...request, token: 'x' }) }],
    ['an old proof', { dpop: await key.prove(request, { claims: { iat: 0 } }) }],
  ];
  for (const [name, headers] of refused) {
    const answer = await userinfo(token, headers);
    t.match(answer, { status: 401, body: { error: 'invalid_token' } }, name);
    t.match(
      answer.headers['www-authenticate'],
      /^DPoP realm="idp", error="invalid_\w+", algs="EdDSA ES256"$/,
    );
  }
  t.equal((await idp.userinfo(token)).status, 401, 'it is no bearer token');
  t.equal((await idp.request('POST', '/userinfo', { form: { access_token: token } })).status, 401);
  const bearer = (await idp.redeem(client, await code(client, { scope: 'openid' }))).body.access_token;
  const bound = await key.prove({ ...request, token: bearer });
  t.equal((await userinfo(bearer, { dpop: bound })).status, 401, 'nor is a bearer token bound');
  t.equal((await idp.userinfo(bearer)).status, 200);
});

t.test('an invalid proof uses up neither a code nor a refresh token', async (t) => {
  const { idp, key, send, code, nonce } = await start(t);
  const client = await idp.createClient({ public: true });
  const form = redemption(client, await code(client));
  const post = async (dpop: string) =>
    (await idp.request('POST', '/token', { form, headers: { dpop } })).body;
  t.match(await post(await key.prove(TOKEN)), { error: 'use_dpop_nonce' });
  t.match(await post('x'), { error: 'invalid_dpop_proof' });
  t.match(await post(''), { error: 'invalid_dpop_proof' });
  t.equal((await send(form, key, { htu: `${ISSUER}/userinfo` })).body.error, 'invalid_dpop_proof');
  t.equal((await send(form, key, { nonce: 'x' })).body.error, 'use_dpop_nonce');
  const used = await key.prove(TOKEN, { claims: { nonce: nonce() } });
  t.match(await post(used), { token_type: 'DPoP' });
  const later = { form: redemption(client, await code(client)), headers: { dpop: used } };
  t.match((await idp.request('POST', '/token', later)).body, { error: 'invalid_dpop_proof' }, 'used before');
  const stale = nonce();
  idp.clock.advance(6 * MINUTE);
  const fresh = redemption(client, await code(client));
  t.equal((await send(fresh, key, { nonce: stale })).body.error, 'use_dpop_nonce');
});

t.test('dpop_jkt binds the code to a key', async (t) => {
  const { idp, key, send, code } = await start(t);
  const { calculateJwkThumbprint } = await import('jose');
  const dpop_jkt = await calculateJwkThumbprint(key.jwk);
  const client = await idp.createClient();
  const form = redemption(client, await code(client, { ...READ, dpop_jkt }));
  t.equal((await idp.request('POST', '/token', { form })).body.error, 'invalid_dpop_proof');
  t.equal((await send(form, await dpopKey(idp.clock))).body.error, 'invalid_grant');
  t.equal((await send(form, key)).body.token_type, 'DPoP');
  const { headers } = await idp.authorize(client, undefined, { dpop_jkt: 'short' });
  t.match(headers['location'], /error=invalid_request/);
});

t.test('a resource may demand tokens that are bound to a key', async (t) => {
  const { idp, files, send, code } = await start(t, { requiresDpop: true });
  const client = await idp.createClient();
  const form = redemption(client, await code(client));
  t.match(await idp.request('POST', '/token', { form }), {
    status: 400,
    body: { error: 'invalid_dpop_proof' },
  });
  const { body } = await send(form);
  const listed = (await idp.admin('GET', '/v1/resources')).body.resources;
  t.match(listed, [{ dpop_bound_access_tokens_required: true }]);
  t.ok(thumbprintIn(body.access_token));
  t.equal((await files?.update(FILES, { requiresDpop: false }, COMMAND_SOURCE))?.requiresDpop, undefined);
  t.equal((await idp.refresh(client, body.refresh_token)).body.token_type, 'Bearer');
});

t.test('requests that get no token store no proof', async (t) => {
  const { idp, send, code } = await start(t);
  const client = await idp.createClient({ public: true });
  const proofs = usedProofCollection(await idpStore(t, idp));
  for (const form of [redemption(client, 'ac_x'), refreshing(client, 'rt_x'), `client_id=${client.id}`])
    t.equal((await send(form)).status, 400);
  t.equal(await proofs.count({}), 0);
  t.equal((await send(redemption(client, await code(client)))).status, 200);
  t.equal(await proofs.count({}), 1);
});
