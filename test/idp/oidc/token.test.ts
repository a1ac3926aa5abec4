import { existsSync, readFileSync } from 'node:fs';
import { createLocalJWKSet, jwtVerify } from 'jose';
import t from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { clientCollection, principalCollection } from '../../../src/idp/provisioning/store.js';
import { auditOf, basic } from '../../kit/app.js';
import { ON_FILE } from '../../kit/engine.js';
import {
  ADMIN_TOKEN,
  CALLBACK,
  codeIn,
  type IdpApp,
  ISSUER,
  idpApp,
  idpStore,
  type Parameters,
  redemption,
  VERIFIER,
} from '../../kit/idp.js';

const SECOND = 1000;
const HOUR = 3600 * SECOND;
const S256 = { code_challenge: sha256(VERIFIER), code_challenge_method: 'S256' };

/** An application, an agent, and the tokens of a complete flow. */
async function flow(idp: IdpApp, more: Parameters = {}) {
  const [client, agent] = [await idp.createClient(), await idp.mintAgent({ name: 'Robot' })];
  const code = await idp.codeFor(client, agent, more);
  return { client, agent, code, tokens: (await idp.redeem(client, code)).body };
}

/** The verified token, checked at the time of the provider. */
async function verify(idp: IdpApp, idToken: string, audience: string) {
  const keys = createLocalJWKSet((await idp.request('GET', '/jwks')).body);
  const currentDate = new Date(idp.clock.now());
  return jwtVerify(idToken, keys, { issuer: ISSUER, audience, algorithms: ['EdDSA'], currentDate });
}

t.test(
  'a code is exchanged for an access token and an id_token of one hour, neither of which is stored',
  async (t) => {
    const idp = await idpApp(t);
    const client = await idp.createClient();
    const code = await idp.codeFor(client, await idp.mintAgent(), { scope: 'email openid unknown' });
    const { status, headers, body } = await idp.redeem(client, code);
    t.equal(status, 200);
    t.match(headers, { 'cache-control': 'no-store', pragma: 'no-cache', 'access-control-allow-origin': '*' });
    t.match(body.access_token, /^at_[0-9a-f]{32}[\w-]{43}$/);
    t.strictSame(body, {
      access_token: body.access_token,
      token_type: 'Bearer',
      expires_in: 3600,
      scope: 'openid email',
      id_token: body.id_token,
    });
    const bare = await flow(idp, { scope: 'profile' });
    t.notOk('id_token' in bare.tokens, 'no openid, no id_token');
    t.equal((await flow(idp)).tokens.scope, 'openid', 'no scope means to sign in');
  },
);

t.test('the id_token has the same claims for agents and people', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const [agent, human] = [await idp.mintAgent(), await idp.makeHuman()];
  for (const [who, kind, subProfile] of [
    [agent, 'agent', 'ai_agent'],
    [human, 'human', 'user'],
  ] as const) {
    const code = await idp.codeFor(client, who, { nonce: 'n-0S6_"é', acr_values: '0 1' });
    const authTime = idp.clock.now() / SECOND;
    idp.clock.advance(5 * SECOND);
    const { id_token: idToken } = (await idp.redeem(client, code)).body;
    const { payload, protectedHeader } = await verify(idp, idToken, client.id);
    t.match(protectedHeader, { alg: 'EdDSA', typ: 'JWT', kid: /^[\w-]{43}$/ });
    t.strictSame(payload, {
      iss: ISSUER,
      sub: who.sub,
      aud: client.id,
      iat: authTime + 5,
      exp: authTime + 5 + 3600,
      auth_time: authTime,
      jti: payload.jti,
      amr: ['pwd'],
      acr: '0',
      nonce: 'n-0S6_"é',
      kind,
      sub_profile: subProfile,
    });
    t.match(who.sub, /^u_[0-9a-f]{32}$/);
  }
  const { id_token: plain } = (await flow(idp)).tokens;
  const claims = JSON.parse(Buffer.from(plain.split('.')[1], 'base64url').toString());
  t.notOk('nonce' in claims || 'acr' in claims || 'nbf' in claims, 'what was not asked for is not said');
});

t.test('scopes decide the claims of the id_token and of userinfo alike', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const updated = { updated_at: idp.clock.now() / SECOND };
  const named = await idp.mintAgent({ handle: 'Robot@Example.test', name: 'Robot' });
  const nameless = await idp.mintAgent({ handle: 'robot-2' });
  const table = [
    [named, 'openid', {}],
    [named, 'openid profile', { name: 'Robot', preferred_username: 'robot@example.test', ...updated }],
    [named, 'openid email', { email: 'robot@example.test', email_verified: false }],
    [nameless, 'openid profile', { name: 'robot-2', preferred_username: 'robot-2', ...updated }],
    [nameless, 'openid email', {}],
  ] as const;
  for (const [who, scope, expected] of table) {
    const { body } = await idp.redeem(client, await idp.codeFor(client, who, { scope }));
    const always = { sub: who.sub, kind: 'agent', sub_profile: 'ai_agent' };
    t.strictSame((await idp.userinfo(body.access_token)).body, { ...always, ...expected });
    const { payload } = await verify(idp, body.id_token, client.id);
    const { iss, aud, iat, exp, auth_time, jti, amr, ...rest } = payload;
    t.strictSame(rest, { ...always, ...expected });
  }
});

t.test('a name can neither replace a claim nor break the token', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  for (const name of [
    '{"sub":"u_0","kind":"human"}',
    '","sub":"u_0","x":"',
    `"'\\ é😀 </script>`,
    '__proto__',
  ]) {
    const agent = await idp.mintAgent({ name });
    const { body } = await idp.redeem(client, await idp.codeFor(client, agent, { scope: 'openid profile' }));
    const { payload } = await verify(idp, body.id_token, client.id);
    t.match(payload, { name, sub: agent.sub, kind: 'agent', iss: ISSUER, aud: client.id });
    t.match((await idp.userinfo(body.access_token)).body, { name, sub: agent.sub, kind: 'agent' });
  }
});

t.test('a replayed code is refused and revokes the tokens issued for it, however late', async (t) => {
  for (const delay of [0, 30 * SECOND, 10 * 60 * SECOND]) {
    const idp = await idpApp(t);
    const { client, agent, code, tokens } = await flow(idp);
    t.equal((await idp.userinfo(tokens.access_token)).status, 200);
    idp.clock.advance(delay);
    t.match(await idp.redeem(client, code), { status: 400, body: { error: 'invalid_grant' } });
    t.match(await idp.userinfo(tokens.access_token), { status: 401, body: { error: 'invalid_token' } });
    t.equal((await idp.redeem(client, code)).status, 400);
    const replays = (await auditOf(await idpStore(t, idp))).filter(({ event }) => event === 'code.replayed');
    t.match(replays, [{ subject: agent.sub, ip: '127.0.0.1', detail: client.id }]);
    t.equal(replays.length, 1);
  }
});

t.test(
  'a code is valid for its client and redirect_uri for 60 seconds, and survives a failed attempt',
  async (t) => {
    const idp = await idpApp(t);
    const [client, other] = [await idp.createClient(), await idp.createClient()];
    const agent = await idp.mintAgent();
    const code = await idp.codeFor(client, agent);
    const grant = { status: 400, body: { error: 'invalid_grant' } };
    t.match(await idp.redeem(other, code), grant, 'the code of another client');
    for (const uri of [undefined, '', `${CALLBACK}/`, 'https://evil.test/cb']) {
      t.match(await idp.redeem(client, code, { redirect_uri: uri }), grant, `redirect_uri=${uri}`);
    }
    // Names the grant, and has a secret of the right format.
    const guessed = code.slice(0, -43) + 'x'.repeat(43);
    for (const wrong of [
      'ac_',
      `${code}x`,
      code.toUpperCase(),
      ` ${code}`,
      `ac_${'x'.repeat(43)}`,
      guessed,
      '\0',
      '{"$ne":1}',
    ]) {
      t.match(await idp.redeem(client, wrong), grant, wrong);
    }
    for (const missing of [undefined, '']) {
      const answer = await idp.redeem(client, code, { code: missing });
      t.match(answer, { status: 400, body: { error: 'invalid_request' } });
    }
    const failed = await idp.redeem(client, code, { client_secret: 'wrong' });
    t.match(failed, { status: 401, body: { error: 'invalid_client' } });

    idp.clock.advance(60 * SECOND - 1);
    const redeemed = await idp.redeem(client, code);
    t.equal(redeemed.status, 200, 'none of that has consumed it');
    t.match(await idp.redeem(client, guessed), grant);
    t.equal((await idp.userinfo(redeemed.body.access_token)).status, 200, 'a guess is no replay');
    const late = await idp.codeFor(client, agent);
    idp.clock.advance(60 * SECOND);
    t.match(await idp.redeem(client, late), grant, 'expired');
  },
);

t.test(
  'with a challenge, the redirect_uri may be left out at /token, but must not be another one',
  async (t) => {
    const idp = await idpApp(t);
    const [client, agent] = [await idp.createClient({ public: true }), await idp.mintAgent()];
    const code = await idp.codeFor(client, agent);
    const invalid = { status: 400, body: { error: 'invalid_grant' } };
    t.match(await idp.redeem(client, code, { redirect_uri: `${CALLBACK}/` }), invalid);
    t.match(
      await idp.redeem(client, code, { redirect_uri: undefined, code_verifier: 'w'.repeat(43) }),
      invalid,
    );
    t.equal((await idp.redeem(client, code, { redirect_uri: undefined })).status, 200);
  },
);

t.test('the code verifier must match the challenge, and neither works without the other', async (t) => {
  const idp = await idpApp(t);
  const [web, native] = [await idp.createClient(), await idp.createClient({ public: true })];
  const agent = await idp.mintAgent();
  const other = 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM';
  const [shortest, longest] = ['v'.repeat(43), `${'v'.repeat(125)}.~_`];
  const table: [Parameters, string | undefined, boolean][] = [
    [S256, VERIFIER, true],
    [{ ...S256, code_challenge: sha256(shortest) }, shortest, true],
    [{ ...S256, code_challenge: sha256(longest) }, longest, true],
    [S256, undefined, false],
    [S256, '', false],
    [S256, other, false],
    [S256, sha256(VERIFIER), false],
    [S256, VERIFIER.toLowerCase(), false],
    [S256, `${VERIFIER} `, false],
    [{ ...S256, code_challenge: sha256('v'.repeat(42)) }, 'v'.repeat(42), false],
    [{ ...S256, code_challenge: sha256('v'.repeat(129)) }, 'v'.repeat(129), false],
    [{ ...S256, code_challenge: sha256(`${shortest}+`) }, `${shortest}+`, false],
    [{}, undefined, true],
    [{}, VERIFIER, false],
    [{}, '', true],
  ];
  for (const [more, verifier, fits] of table) {
    for (const client of [web, native]) {
      if (client === native && !('code_challenge' in more)) continue;
      const code = await idp.codeFor(client, agent, more);
      const { status, body } = await idp.redeem(client, code, { code_verifier: verifier });
      t.equal(status, fits ? 200 : 400, `${more['code_challenge']} ${verifier}`);
      if (!fits) t.equal(body.error, 'invalid_grant');
    }
  }
  const code = await idp.codeFor(native, agent);
  t.equal((await idp.redeem(native, code, { code_verifier: other })).status, 400);
  t.equal((await idp.redeem(native, code)).status, 200, 'a wrong verifier does not consume the code');
});

t.test('clients authenticate in the header or in the body, never in both', async (t) => {
  const idp = await idpApp(t);
  const [web, native] = [await idp.createClient(), await idp.createClient({ public: true })];
  const other = await idp.createClient();
  const agent = await idp.mintAgent();
  const secret = web.secret as string;
  const everyByte = (text: string) => text.replace(/./g, (c) => `%${c.charCodeAt(0).toString(16)}`);
  const none = { client_id: undefined, client_secret: undefined };
  const table: [string, Parameters, string | undefined, number][] = [
    ['post', {}, undefined, 200],
    ['basic', none, basic(web.id, secret), 200],
    ['basic, form-encoded', none, basic(everyByte(web.id), everyByte(secret)), 200],
    ['basic, and its own client_id', { client_secret: undefined }, basic(web.id, secret), 200],
    ['both', {}, basic(web.id, secret), 400],
    ['wrong secret in the body', { client_secret: `${secret}x` }, undefined, 401],
    ['empty secret in the body', { client_secret: '' }, undefined, 401],
    ['no secret', { client_secret: undefined }, undefined, 401],
    ['secret of another', { client_secret: other.secret }, undefined, 401],
    ['hash of the secret', { client_secret: sha256(secret) }, undefined, 401],
    ['a secret that the source code names', { client_secret: 'the secret of no client' }, undefined, 401],
    ['wrong secret in the header', none, basic(web.id, 'wrong'), 401],
    ['empty secret in the header', none, basic(web.id, ''), 401],
    ['broken encoding in the header', none, basic(web.id, '%zz'), 401],
    [
      'header and client_id differ',
      { client_id: other.id, client_secret: undefined },
      basic(web.id, secret),
      401,
    ],
    ['unknown client', { client_id: 'cid_0000000000000000000000' }, undefined, 401],
    ['unknown client in the header', none, basic('cid_0000000000000000000000', secret), 401],
    ['without credentials', none, undefined, 401],
    ['bearer', none, `Bearer ${secret}`, 401],
    ['an agent', none, basic(agent.handle, agent.password), 401],
  ];
  for (const [name, more, authorization, status] of table) {
    const code = await idp.codeFor(web, agent);
    const answer = await idp.request('POST', '/token', {
      form: redemption(web, code, more),
      ...(authorization !== undefined && { headers: { authorization } }),
    });
    t.equal(answer.status, status, name);
    t.equal(answer.headers['cache-control'], 'no-store');
    if (status === 401) {
      t.equal(answer.body.error, 'invalid_client', name);
      t.match(answer.headers['www-authenticate'], /^Basic realm="idp"/, name);
    }
  }
  const code = await idp.codeFor(native, agent);
  t.equal(
    (await idp.redeem(native, code, { client_secret: 'made up' })).status,
    401,
    'a public client has none',
  );
  t.equal((await idp.redeem(native, code)).status, 200);
});

t.test('/token accepts a form or a JSON object with a grant type that it knows', async (t) => {
  const idp = await idpApp(t);
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  const code = await idp.codeFor(client, agent);
  const form = redemption(client, code);
  for (const type of [undefined, '', 'password', 'implicit', 'constructor', 'client_credentials']) {
    const error = type ? 'unsupported_grant_type' : 'invalid_request';
    t.match(
      await idp.redeem(client, code, { grant_type: type }),
      { status: 400, body: { error } },
      `${type}`,
    );
  }
  const object = Object.fromEntries(new URLSearchParams(form));
  const twice = await idp.request('POST', '/token', { form: `${form}&unknown=1&unknown=2` });
  t.match(twice, { status: 400, body: { error: 'invalid_request' } });
  t.equal((await idp.request('GET', `/token?${form}`)).status, 405);
  t.equal((await idp.request('POST', `/token?${form}`)).status, 401, 'nothing is read from the query');
  t.equal((await idp.request('POST', '/token', { body: object })).status, 200, 'the code is still good');

  // RFC 8707 §2 allows several resources, which are ignored while none is registered.
  const [first, second] = [await idp.codeFor(client, agent), await idp.codeFor(client, agent)];
  const several = `${redemption(client, first)}&resource=https://a.test/&resource=https://b.test/`;
  t.equal((await idp.request('POST', '/token', { form: several })).status, 200);
  const listed = { ...object, code: second, resource: ['https://a.test/', 'https://b.test/'] };
  t.equal((await idp.request('POST', '/token', { body: listed })).status, 200);
});

t.test('codes and tokens of a disabled or deleted principal are refused', async (t) => {
  const idp = await idpApp(t);
  const principals = principalCollection(await idpStore(t, idp));
  const disable = (id: string) => principals.updateOne({ id }, { set: { state: 'disabled' } });
  const remove = (id: string) => principals.deleteOne({ id });
  for (const end of [disable, remove]) {
    const { client, agent, tokens } = await flow(idp);
    const code = await idp.codeFor(client, agent);
    await end(agent.sub);
    t.match(await idp.redeem(client, code), { status: 400, body: { error: 'invalid_grant' } });
    t.match(await idp.userinfo(tokens.access_token), { status: 401, body: { error: 'invalid_token' } });
    t.equal((await idp.authorize(client, agent)).status, 401);
  }
});

t.test('userinfo accepts a valid access token in the header or in the form', async (t) => {
  const idp = await idpApp(t);
  const { agent, tokens } = await flow(idp);
  const token = tokens.access_token;
  const form = { access_token: token };
  for (const call of [{ token }, { headers: { authorization: `bearer  ${token} ` } }]) {
    for (const method of ['GET', 'POST']) {
      const { status, headers, body } = await idp.request(method, '/userinfo', call);
      t.match({ status, sub: body.sub }, { status: 200, sub: agent.sub });
      t.match(headers, { 'cache-control': 'no-store', 'access-control-allow-origin': '*' });
    }
  }
  t.match(await idp.request('POST', '/userinfo', { form }), { status: 200, body: { sub: agent.sub } });
  t.match(await idp.request('POST', '/userinfo', { token, form }), {
    status: 400,
    body: { error: 'invalid_request' },
  });

  const none = await idp.request('GET', '/userinfo');
  t.equal(none.status, 401);
  t.equal(none.headers['www-authenticate'], 'Bearer realm="idp"');
  t.equal((await idp.request('GET', `/userinfo?access_token=${token}`)).status, 401, 'never in the query');
  for (const wrong of [`${token}x`, 'at_', '%00']) {
    const answer = await idp.userinfo(wrong);
    t.match(answer, { status: 401, body: { error: 'invalid_token' } });
    t.equal(answer.headers['www-authenticate'], 'Bearer realm="idp", error="invalid_token"');
  }
  for (const authorization of [
    `Basic ${token}`,
    'Bearer',
    'Bearer ',
    `Bearer ${token} x`,
    `Bearer ${token},x`,
    '',
  ]) {
    t.equal(
      (await idp.request('GET', '/userinfo', { headers: { authorization } })).status,
      401,
      authorization,
    );
  }
  for (const body of [null, [], { access_token: null }, { access_token: { $ne: 1 } }]) {
    t.equal((await idp.request('POST', '/userinfo', { body })).status, 401, JSON.stringify(body));
  }
  idp.clock.advance(HOUR - 1);
  t.equal((await idp.userinfo(token)).status, 200);
  idp.clock.advance(1);
  t.equal((await idp.userinfo(token)).status, 401, 'expired');
});

t.test('the database and its log contain no secret in plain text', ON_FILE, async (t) => {
  const idp = await idpApp(t);
  const human = await idp.makeHuman();
  const { client, agent, code, tokens } = await flow(idp, { scope: 'openid email offline_access' });
  const { body: next } = await idp.refresh(client, tokens.refresh_token);
  const bound = await idp.codeFor(client, agent, S256);
  t.equal((await idp.redeem(client, bound, { code_verifier: VERIFIER })).status, 200);
  const unused = await idp.codeFor(client, agent);
  const { browser, page } = await idp.visit(client);
  const end = await browser.submit(page, { handle: human.handle, password: human.password });

  const files = ['', '-wal', '-shm'].map((suffix) => idp.file + suffix).filter((file) => existsSync(file));
  const dump = Buffer.concat(files.map((file) => readFileSync(file)));
  const secrets = [
    ...[code, bound, unused, codeIn(end.location), tokens.access_token, client.secret as string],
    ...[tokens, next].flatMap((issued) => [issued.access_token.slice(35), issued.refresh_token.slice(35)]),
    ...[agent.password, human.password, page.form().fields['interaction'] as string, ADMIN_TOKEN, VERIFIER],
    ...Object.values(browser.cookies()),
  ];
  for (const secret of secrets) {
    t.notOk(dump.includes(secret.replace(/^[a-z]+_(?=[\w-]{43}$)/, '')), secret);
  }
  t.ok(dump.includes(sha256(unused)), 'the hash is there');
});

t.test('deleting a client revokes everything issued to it', async (t) => {
  const idp = await idpApp(t);
  const { client, agent, tokens } = await flow(idp, { scope: 'openid offline_access' });
  const other = await flow(idp);
  const isGood = async (accessToken: string) => (await idp.userinfo(accessToken)).status === 200;
  const code = await idp.codeFor(client, agent);
  t.ok(await isGood(tokens.access_token));
  await clientCollection(await idpStore(t, idp)).deleteOne({ id: client.id });
  t.match(await idp.redeem(client, code), { status: 401, body: { error: 'invalid_client' } });
  t.match(await idp.refresh(client, tokens.refresh_token), {
    status: 401,
    body: { error: 'invalid_client' },
  });
  t.notOk(await isGood(tokens.access_token));
  t.ok(await isGood(other.tokens.access_token), 'other tokens stay valid');
});
