import t, { type Test } from 'tap';
import { codeIn, type Parameters, VERIFIER } from '../../kit/idp.js';
import { type Suite, s256, suite } from './suite.js';

/**
 * The modules of the plan `oidcc-basic-certification-test-plan` for static clients, with their original names and
 * order. `oidcc-idtoken-signature`, `oidcc-idtoken-unsigned` and `oidcc-request-uri-unsigned-…` are for clients that
 * register themselves.
 */

const SECOND = 1000;

type Module = (t: Test, suite: Suite) => Promise<void>;

/** One authorization with these parameters that must succeed. */
const succeeds =
  (more: Parameters): Module =>
  async (t, { flow, userinfo }) => {
    const { tokens, claims } = await flow(more);
    t.equal((await userinfo(tokens.access_token))['sub'], claims['sub']);
  };

/** A scope, and its claims at userinfo (OIDC Core §5.4). */
const returnsClaims =
  (scope: string, expected: Record<string, unknown>): Module =>
  async (t, { flow, userinfo, metadata }) => {
    const { tokens, claims } = await flow({ scope: `openid ${scope}` });
    const returned = await userinfo(tokens.access_token);
    t.match(returned, { sub: claims['sub'] as string, ...expected });
    for (const name of Object.keys(returned)) t.ok(metadata['claims_supported']?.includes(name), name);
  };

/** Two sign-ins in one browser; the second one without a form, in the same session. */
const silentTwice =
  (second: (first: { id_token: string }) => Parameters, more: Parameters = {}): Module =>
  async (t, { flow, idp }) => {
    const first = await flow(more);
    t.equal(typeof first.claims['auth_time'], 'number');
    idp.clock.advance(2 * SECOND);
    const again = await flow(second(first.tokens));
    t.equal(again.forms, 0);
    t.equal(again.claims['sub'], first.claims['sub']);
    t.equal(again.claims['auth_time'], first.claims['auth_time']);
  };

/** Two sign-ins in one browser; the person authenticates again for the second one. */
const askedTwice =
  (more: Parameters): Module =>
  async (t, { flow, idp }) => {
    const first = await flow();
    idp.clock.advance(2 * SECOND);
    const again = await flow(more);
    t.equal(again.forms, 1);
    t.match(again.screenshot, { status: 200, body: /<h1>Sign in</ });
    t.equal(again.claims['sub'], first.claims['sub']);
    t.equal(again.claims['auth_time'], Number(first.claims['auth_time']) + 2);
  };

/** A code used again after a while. */
const codeReuse =
  (delay: number): Module =>
  async (t, { authorize, token, userinfo, idp }) => {
    const { page, sent } = await authorize();
    const form = {
      grant_type: 'authorization_code',
      code: codeIn(page.location),
      redirect_uri: sent['redirect_uri'],
    };
    const { body } = await token(form);
    await userinfo(body.access_token);
    idp.clock.advance(delay);
    t.match(await token(form), { status: 400, body: { error: 'invalid_grant' } });
    t.equal((await idp.userinfo(body.access_token)).status, 401, 'what it had bought is dead');
  };

/** A request object, or its address. A provider without support must refuse them (OIDC Core §6). */
const unsupported =
  (more: Parameters, error: string): Module =>
  async (t, { authorize, metadata }) => {
    const [name] = Object.keys(more) as [string];
    t.equal(metadata[`${name}_parameter_supported`], false);
    const { answer } = await authorize(more);
    t.match(answer, { error });
    t.notOk('code' in answer);
  };

/** A page for the person without a form; the suite stores it for manual review. */
const errorPage =
  (more: Parameters): Module =>
  async (t, { authorize }) => {
    const { page, forms, screenshot } = await authorize(more);
    t.match(page, { status: 400, location: undefined, body: /<h1>/ });
    t.equal(screenshot, page);
    t.equal(forms, 0);
  };

const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
const requestObject = (claims: object) => `${encode({ alg: 'none' })}.${encode(claims)}.`;

const userinfoBy =
  (call: (accessToken: string) => object, method: string): Module =>
  async (t, { flow, idp, metadata }) => {
    const { tokens, claims } = await flow();
    const path = new URL(metadata['userinfo_endpoint'] as string).pathname;
    const answer = await idp.request(method, path, call(tokens.access_token));
    t.match(answer, { status: 200, body: { sub: claims['sub'] } });
  };

const PROFILE = { name: 'Person', preferred_username: 'person@example.com', updated_at: Number };
const EMAIL = { email: 'person@example.com', email_verified: false };

const MODULES: Record<string, Module> = {
  'oidcc-server': async (t, { flow, userinfo }) => {
    const { tokens, claims, forms } = await flow();
    t.equal(forms, 1);
    t.notOk('at_hash' in claims, 'it is optional in the code flow');
    t.equal((await userinfo(tokens.access_token))['sub'], claims['sub']);
  },
  'oidcc-response-type-missing': async (t, { authorize }) => {
    const { answer, forms } = await authorize({ response_type: undefined });
    t.match(answer, { error: /^(invalid_request|unsupported_response_type)$/ });
    t.equal(forms, 0);
  },
  'oidcc-userinfo-get': userinfoBy((token) => ({ token }), 'GET'),
  'oidcc-userinfo-post-header': userinfoBy((token) => ({ token }), 'POST'),
  'oidcc-userinfo-post-body': userinfoBy((access_token) => ({ form: { access_token } }), 'POST'),
  'oidcc-ensure-request-without-nonce-succeeds-for-code-flow': succeeds({ nonce: undefined }),
  'oidcc-scope-profile': returnsClaims('profile', PROFILE),
  'oidcc-scope-email': returnsClaims('email', EMAIL),
  'oidcc-scope-address': returnsClaims('address', {}),
  'oidcc-scope-phone': returnsClaims('phone', {}),
  'oidcc-scope-all': returnsClaims('profile email address phone', { ...PROFILE, ...EMAIL }),
  'oidcc-alternate-happy-flow': async (t, { authorize, token }) => {
    const { page, sent } = await authorize({ scope: 'email openid' }, { reversed: true });
    const code = { grant_type: 'authorization_code', code: codeIn(page.location) };
    t.equal((await token({ ...code, redirect_uri: sent['redirect_uri'] })).status, 200);
  },
  'oidcc-display-page': succeeds({ display: 'page' }),
  'oidcc-display-popup': succeeds({ display: 'popup' }),
  'oidcc-prompt-login': askedTwice({ prompt: 'login' }),
  'oidcc-prompt-none-not-logged-in': async (t, { authorize }) => {
    const { answer, forms } = await authorize({ prompt: 'none' });
    t.match(answer, { error: 'login_required' });
    t.equal(forms, 0);
  },
  'oidcc-prompt-none-logged-in': silentTwice(() => ({ prompt: 'none' })),
  'oidcc-max-age-1': askedTwice({ max_age: '1' }),
  'oidcc-max-age-10000': silentTwice(() => ({ max_age: '10000' }), { max_age: '15000' }),
  'oidcc-ensure-request-with-unknown-parameter-succeeds': succeeds({ extra: 'foobar' }),
  'oidcc-id-token-hint': silentTwice(({ id_token: hint }) => ({ id_token_hint: hint, prompt: 'none' })),
  'oidcc-login-hint': succeeds({ login_hint: 'buffy@id.example.test' }),
  'oidcc-ui-locales': succeeds({ ui_locales: 'se' }),
  'oidcc-claims-locales': succeeds({ claims_locales: 'se' }),
  'oidcc-ensure-request-with-acr-values-succeeds': async (t, { flow, metadata }) => {
    const known = metadata['acr_values_supported'] ?? ['1', '2'];
    const { claims } = await flow({ acr_values: known.join(' ') });
    t.ok(known.includes(String(claims['acr'])), 'one of those that were asked for');
  },
  'oidcc-codereuse': codeReuse(0),
  'oidcc-codereuse-30seconds': codeReuse(30 * SECOND),
  'oidcc-ensure-registered-redirect-uri': (t, suite) =>
    errorPage({ redirect_uri: `${suite.client.redirectUri}/other` })(t, suite),
  'oidcc-ensure-post-request-succeeds': async (t, { authorize, token }) => {
    const { page, sent, forms } = await authorize({}, { method: 'POST' });
    t.equal(forms, 1);
    const code = { grant_type: 'authorization_code', code: codeIn(page.location) };
    t.equal((await token({ ...code, redirect_uri: sent['redirect_uri'] })).status, 200);
  },
  'oidcc-server-client-secret-post': async (t, { flow, post, metadata }) => {
    t.ok(metadata['token_endpoint_auth_methods_supported']?.includes('client_secret_post'));
    t.equal((await flow({}, post)).forms, 1);
  },
  'oidcc-request-uri-unsigned-supported-correctly-or-rejected-as-unsupported': unsupported(
    { request_uri: 'https://www.certification.openid.net/test/a/idp/requesturi/1#x' },
    'request_uri_not_supported',
  ),
  'oidcc-unsigned-request-object-supported-correctly-or-rejected-as-unsupported': unsupported(
    { request: requestObject({ scope: 'openid email' }) },
    'request_not_supported',
  ),
  'oidcc-claims-essential': async (t, suite) => {
    t.equal(suite.metadata['claims_parameter_supported'], false);
    await succeeds({ claims: '{"userinfo":{"name":{"essential":true}}}' })(t, suite);
  },
  'oidcc-ensure-request-object-with-redirect-uri': (t, suite) => {
    const { redirectUri } = suite.client;
    const request = requestObject({ redirect_uri: redirectUri });
    return errorPage({ request, redirect_uri: `${redirectUri}_invalid` })(t, suite);
  },
  'oidcc-refresh-token': async (t, { flow, token, userinfo, idp, client, client2, metadata }) => {
    t.ok(metadata['grant_types_supported']?.includes('refresh_token'));
    const asked = { scope: 'openid offline_access', prompt: 'consent' };
    for (const by of [client, client2]) {
      const { tokens, claims } = await flow(asked, by);
      t.match(tokens.refresh_token, /^[\x20-\x7e]+$/);
      idp.clock.advance(SECOND);
      const form = { grant_type: 'refresh_token', refresh_token: tokens.refresh_token };
      const { status, body } = await token(form, by);
      t.equal(status, 200);
      t.not(body.access_token, tokens.access_token);
      const refreshed = JSON.parse(Buffer.from(body.id_token.split('.')[1], 'base64url').toString());
      const { iss, sub, aud, auth_time } = claims;
      t.match(refreshed, { iss, sub, aud, auth_time });
      t.equal(refreshed.iat, Number(claims['iat']) + 1);
      t.equal((await userinfo(body.access_token))['sub'], sub);
      const stolen = { ...form, refresh_token: body.refresh_token };
      const other = by === client ? client2 : client;
      t.match(await token(stolen, other), { status: 400, body: { error: 'invalid_grant' } });
    }
  },
  'oidcc-ensure-request-with-valid-pkce-succeeds': async (t, { authorize, token }) => {
    const { page, sent } = await authorize(s256(VERIFIER));
    const code = { grant_type: 'authorization_code', code: codeIn(page.location) };
    const form = { ...code, redirect_uri: sent['redirect_uri'], code_verifier: VERIFIER };
    t.equal((await token(form)).status, 200);
  },
};

const visit = await suite(t);
for (const [name, module] of Object.entries(MODULES)) t.test(name, (t) => module(t, visit(t)));
