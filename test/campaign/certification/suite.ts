import { createLocalJWKSet, type JWTVerifyGetKey, jwtVerify } from 'jose';
import type { Test } from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { Agent, type Page } from '../../kit/agent.js';
import { type Answer, basic } from '../../kit/app.js';
import {
  type Credentials,
  codeIn,
  type IdpApp,
  ISSUER,
  idpApp,
  type Parameters,
  type RegisteredClient,
  search,
} from '../../kit/idp.js';
import { type Walk, walker } from './browser.js';

/**
 * Behaves like the OpenID Foundation's conformance suite: static clients, one browser per module that follows the
 * documentation, a fresh `state` and `nonce` in every request, and the checks common to all modules.
 */

const REDIRECT_URI = 'https://www.certification.openid.net/test/a/idp/callback';

/** The result of one authorization. */
export interface Flow {
  tokens: { access_token: string; id_token: string; refresh_token?: string; scope: string };
  claims: Record<string, unknown>;
  /** The number of submitted forms. */
  forms: number;
  screenshot: Page | undefined;
}

export interface Suite {
  readonly idp: IdpApp;
  readonly human: Credentials;
  /** `client` and `client2` use client_secret_basic, `post` client_secret_post. */
  readonly client: RegisteredClient;
  readonly client2: RegisteredClient;
  readonly post: RegisteredClient;
  readonly browser: Agent;
  /** The provider's metadata, and its endpoints. */
  readonly metadata: Record<string, string & string[]>;
  /** Opens the authorization endpoint and follows the documented steps. */
  authorize(
    more?: Parameters,
    how?: { client?: RegisteredClient; method?: 'GET' | 'POST'; reversed?: boolean },
  ): Promise<Visit>;
  /** The token endpoint. */
  token(form: Parameters, client?: RegisteredClient): Promise<Answer>;
  /** A complete authorization, with the checks common to all modules. */
  flow(more?: Parameters, client?: RegisteredClient): Promise<Flow>;
  userinfo(accessToken: string): Promise<Record<string, unknown>>;
}

interface Visit extends Walk {
  /** The parameters of the callback. */
  answer: Record<string, string>;
  sent: Parameters;
}

/**
 * The provider under test; every module visits it with its own browser. All limits are in force: a plan signs
 * in one person dozens of times within a minute, from one address.
 */
export async function suite(t: Test): Promise<(module: Test) => Suite> {
  const idp = await idpApp(t, { limits: true });
  const register = () => idp.createClient({ redirect_uris: REDIRECT_URI });
  const [client, client2, post] = [await register(), await register(), await register()];
  const human = await idp.makeHuman({ handle: 'person@example.com', name: 'Person' });
  const origin = await idp.listen();
  const metadata = (await idp.request('GET', '/.well-known/openid-configuration')).body;
  const keys = createLocalJWKSet((await idp.request('GET', pathOf(metadata.jwks_uri))).body);
  const common = { idp, human, client, client2, post, metadata };
  return (module) => visit(module, common, { origin, keys });
}

function visit(
  t: Test,
  common: Pick<Suite, 'idp' | 'human' | 'client' | 'client2' | 'post' | 'metadata'>,
  { origin, keys }: { origin: string; keys: JWTVerifyGetKey },
): Suite {
  const { idp, human, client, post, metadata } = common;
  const browser = new Agent({ origin });
  const walk = walker(t.name, browser, { origin, ...human });
  let count = 0;

  const authorize: Suite['authorize'] = async (more = {}, how = {}) => {
    const { client: by = client, method = 'GET', reversed = false } = how;
    const inOrder: Parameters = {
      client_id: by.id,
      redirect_uri: REDIRECT_URI,
      scope: 'openid',
      // Long enough to detect truncation.
      state: `${'s'.repeat(117)}${String(++count).padStart(11, '0')}`,
      nonce: `nonce ${count}`,
      response_type: 'code',
      ...more,
    };
    const sent = reversed ? Object.fromEntries(Object.entries(inOrder).reverse()) : inOrder;
    const url = origin + pathOf(metadata['authorization_endpoint'] as string);
    const first =
      method === 'GET'
        ? await browser.open(`${url}?${search(sent)}`)
        : await browser.submit(formOf(url, sent));
    const { page, ...walked } = await walk(url, first);
    const callback = page.location?.startsWith(`${REDIRECT_URI}?`) ? new URL(page.location) : undefined;
    const answer = Object.fromEntries(callback?.searchParams ?? []);
    if (callback) t.match(answer, { state: sent['state'] ?? '', iss: ISSUER });
    return { page, answer, sent, ...walked };
  };

  const token: Suite['token'] = (form, by = client) =>
    idp.request('POST', pathOf(metadata['token_endpoint'] as string), {
      form: search(by === post ? { ...form, client_id: by.id, client_secret: by.secret } : form),
      ...(by !== post && { headers: { authorization: basic(by.id, by.secret) } }),
    });

  return {
    ...{ ...common, browser, authorize, token },

    async flow(more, by = client) {
      const { page, sent, forms, screenshot } = await authorize(more, { client: by });
      const code = { grant_type: 'authorization_code', code: codeIn(page.location) };
      const { status, body, headers } = await token({ ...code, redirect_uri: REDIRECT_URI }, by);
      t.equal(status, 200);
      t.match(headers, { 'cache-control': 'no-store', pragma: 'no-cache' });
      t.match(body, { token_type: 'Bearer', expires_in: Number });
      const { payload, protectedHeader } = await jwtVerify(body.id_token, keys, {
        issuer: metadata['issuer'] as string,
        audience: by.id,
        algorithms: metadata['id_token_signing_alg_values_supported'] as string[],
        currentDate: new Date(idp.clock.now()),
        requiredClaims: ['sub', 'exp', 'iat'],
      });
      t.match(protectedHeader.kid, /./);
      t.equal(payload['nonce'], sent['nonce'], 'the nonce, if there was one');
      t.ok(String(payload.sub).length <= 255);
      return { tokens: body, claims: payload, forms, screenshot };
    },

    async userinfo(accessToken) {
      const { status, headers, body } = await idp.userinfo(accessToken);
      t.equal(status, 200);
      t.match(headers['content-type'], /^application\/json/);
      return body;
    },
  };
}

/** The code challenge of a verifier, as `oidcc-ensure-request-with-valid-pkce-succeeds` sends it. */
export const s256 = (verifier: string): Parameters => ({
  code_challenge: sha256(verifier),
  code_challenge_method: 'S256',
});

/** The tests listen at another address than the issuer. */
const pathOf = (url: string): string => new URL(url).pathname;

/** A page of the suite itself, which submits its form to another origin. */
function formOf(action: string, parameters: Parameters): Page {
  const fields = Object.fromEntries(new URLSearchParams(search(parameters)));
  const nothing = { status: 200, headers: new Headers(), body: '', location: undefined };
  return { ...nothing, url: REDIRECT_URI, form: () => ({ method: 'post', action, fields }) };
}
