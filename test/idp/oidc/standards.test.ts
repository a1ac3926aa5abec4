import t from 'tap';
import {
  authorizePath,
  codeIn,
  idpApp,
  type Parameters,
  redemption,
  refreshing,
  VERIFIER,
} from '../../kit/idp.js';

/** Requirements of the standards that flows of a well-behaved client do not show. */

const LEFT = 'https://app.example.test/left';

t.test('a parameter without a value counts as omitted (RFC 6749 §3.1, §3.2)', async (t) => {
  const idp = await idpApp(t);
  const [web, native] = [await idp.createClient(), await idp.createClient({ public: true })];
  const agent = await idp.mintAgent();
  const optional = ['scope', 'state', 'nonce', 'prompt', 'max_age', 'id_token_hint', 'login_hint'];
  const unsupported = ['request', 'request_uri', 'response_mode', 'acr_values'];
  const pkce = ['code_challenge', 'code_challenge_method'];
  const empty = (names: string[]): Parameters => Object.fromEntries(names.map((name) => [name, '']));
  const answer = await idp.authorize(web, agent, empty([...optional, ...unsupported, ...pkce]));
  const location = answer.headers['location'] ?? '';
  t.match(location, /\?code=ac_[\w-]{75}&iss=/, 'no state, none echoed');
  const tokens = await idp.redeem(web, codeIn(location), { code_verifier: '', scope: '' });
  t.match(tokens, { status: 200, body: { scope: 'openid' } });
  const refused = await idp.authorize(native, agent, empty(pkce));
  t.match(
    refused.headers['location'],
    /\?error=invalid_request&/,
    'the rules stay: a public client needs PKCE',
  );
  for (const name of ['client_id', 'redirect_uri']) {
    t.equal((await idp.authorize(web, agent, { [name]: '' })).status, 400, name);
  }

  const offline = { scope: 'openid offline_access' };
  const none = { client_secret: '' };
  const first = await idp.redeem(native, await idp.codeFor(native, agent, offline), none);
  t.equal(first.status, 200, 'a client without a secret may say so (RFC 6749 §2.3.1)');
  const next = await idp.refresh(native, first.body.refresh_token, { ...none, scope: '' });
  t.match(next, { status: 200, body: offline });
  const revoked = { token: next.body.refresh_token, client_id: native.id, ...none };
  t.equal((await idp.request('POST', '/revoke', { form: revoked })).status, 200);
  t.equal((await idp.refresh(native, next.body.refresh_token)).status, 400, 'it was revoked');
  t.equal(
    (await idp.redeem(web, await idp.codeFor(web, agent), none)).status,
    401,
    'the other clients must authenticate',
  );
  const code = await idp.codeFor(web, agent, { code_challenge: undefined });
  t.equal((await idp.redeem(web, code, { code_verifier: VERIFIER })).status, 400);
  for (const form of [redemption(web, ''), refreshing(web, '')]) {
    t.match(await idp.request('POST', '/token', { form }), {
      status: 400,
      body: { error: 'invalid_request' },
    });
  }
});

t.test('a lone surrogate in JSON is replaced in redirects', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient({ post_logout_redirect_uris: LEFT });
  const agent = await idp.mintAgent();
  const { body } = await idp.redeem(client, await idp.codeFor(client, agent));
  const state = 'a\ud800b';
  const logout = { id_token_hint: body.id_token, post_logout_redirect_uri: LEFT, state };
  const answer = await idp.request('POST', '/logout', { body: logout });
  t.match(answer, { status: 303, headers: { location: `${LEFT}?state=a%EF%BF%BDb` } });
  const asked = { ...Object.fromEntries(new URLSearchParams(authorizePath(client).split('?')[1])), state };
  t.match(await idp.request('POST', '/authorize', { body: asked }), {
    status: 303,
    headers: { location: /state=a%EF%BF%BDb/ },
  });
});

t.test('an id_token_hint applies when a consent page starts again (OIDC Core §3.1.2.2)', async (t) => {
  const idp = await idpApp(t);
  const [client, other] = [await idp.createClient(), await idp.createClient()];
  const [meant, another] = [await idp.makeHuman(), await idp.makeHuman()];
  const { browser, page } = await idp.visit(client);
  const signIn = (who: typeof meant, where: typeof page) =>
    browser.submit(where, { handle: who.handle, password: who.password });
  const { body } = await idp.redeem(client, codeIn((await signIn(meant, page)).location));
  const origin = await idp.listen();
  const asked = await browser.open(
    origin + authorizePath(other, { id_token_hint: body.id_token, state: 's' }),
  );
  t.match(asked.body, 'value="deny"');

  await signIn(another, await browser.open(origin + authorizePath(client, { prompt: 'login' })));
  const again = await browser.submit(asked, { decision: 'allow' });
  t.equal(again.status, 200, 'the signed-in person is not the one of the hint');
  t.match(again.body, 'type="password"');
  const wrong = await signIn(another, again);
  t.match(wrong.location, /\?error=login_required&.*state=s/, 'and is not the one who is meant');
  const right = await signIn(meant, again);
  t.ok(codeIn(right.location));

  const none = await browser.open(origin + authorizePath(other));
  t.equal(none.status, 302, 'the consent of the password holds');
});
