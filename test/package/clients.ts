import { randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import * as oauth from 'oauth4webapi';
import * as oidc from 'openid-client';

/** Applications that sign somebody in: three real clients, each with its strictest checks. */

export interface Registration {
  issuer: string;
  clientId: string;
  clientSecret: string;
  /** Follows an authorization request to where it is answered, as the person or agent would. */
  authorize(url: URL): Promise<URL>;
}

/** Signs in and answers with the subject and e-mail address. Rejects when the client refuses. */
export type Client = (registration: Registration) => Promise<{ sub: string; email: string }>;

const APP = 'http://localhost:3000';
const REDIRECT_URI = `${APP}/callback`;
const SCOPE = 'openid email profile';

export const REDIRECT_URIS = [REDIRECT_URI, `${APP}/api/auth/callback/idp`];

export const openidClient: Client = async ({ issuer, clientId, clientSecret, authorize }) => {
  const config = await oidc.discovery(
    new URL(issuer),
    clientId,
    undefined,
    oidc.ClientSecretBasic(clientSecret),
    {
      execute: [oidc.allowInsecureRequests, oidc.enableNonRepudiationChecks],
    },
  );
  const pkceCodeVerifier = oidc.randomPKCECodeVerifier();
  const expectedState = oidc.randomState();
  const expectedNonce = oidc.randomNonce();
  const url = oidc.buildAuthorizationUrl(config, {
    redirect_uri: REDIRECT_URI,
    scope: SCOPE,
    state: expectedState,
    nonce: expectedNonce,
    code_challenge: await oidc.calculatePKCECodeChallenge(pkceCodeVerifier),
    code_challenge_method: 'S256',
  });
  const checks = { pkceCodeVerifier, expectedState, expectedNonce, idTokenExpected: true };
  const tokens = await oidc.authorizationCodeGrant(config, await authorize(url), checks);
  return profileOf(tokens.claims());
};

export const oauth4webapi: Client = async ({ issuer, clientId, clientSecret, authorize }) => {
  const insecure = { [oauth.allowInsecureRequests]: true };
  const client = { client_id: clientId };
  const discovery = await oauth.discoveryRequest(new URL(issuer), insecure);
  const server = await oauth.processDiscoveryResponse(new URL(issuer), discovery);
  const verifier = oauth.generateRandomCodeVerifier();
  const state = oauth.generateRandomState();
  const expectedNonce = oauth.generateRandomNonce();
  const url = new URL(server.authorization_endpoint ?? '');
  url.search = new URLSearchParams({
    response_type: 'code',
    client_id: clientId,
    redirect_uri: REDIRECT_URI,
    scope: SCOPE,
    state,
    nonce: expectedNonce,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
  }).toString();
  const answer = oauth.validateAuthResponse(server, client, await authorize(url), state);
  const response = await oauth.authorizationCodeGrantRequest(
    server,
    client,
    oauth.ClientSecretBasic(clientSecret),
    answer,
    REDIRECT_URI,
    verifier,
    insecure,
  );
  const checks = { expectedNonce, requireIdToken: true };
  const tokens = await oauth.processAuthorizationCodeResponse(server, client, response, checks);
  await oauth.validateApplicationLevelSignature(server, response, insecure);
  return profileOf(oauth.getValidatedIdTokenClaims(tokens));
};

/** Its peer dependencies cannot stand beside ours, so it is installed in a folder of its own. */
export async function loadBetterAuth(folder: string): Promise<Client> {
  const { resolve } = createRequire(join(folder, 'package.json'));
  const load = (name: string) => import(pathToFileURL(resolve(name)).href);
  const { betterAuth } = await load('better-auth');
  const { genericOAuth } = await load('better-auth/plugins');

  return async ({ issuer, clientId, clientSecret, authorize }) => {
    const auth = betterAuth({
      baseURL: APP,
      secret: randomBytes(32).toString('hex'),
      telemetry: { enabled: false },
      plugins: [
        genericOAuth({
          config: [
            {
              providerId: 'idp',
              discoveryUrl: `${issuer}/.well-known/openid-configuration`,
              clientId,
              clientSecret,
              scopes: SCOPE.split(' '),
              pkce: true,
              requireIdTokenVerification: true,
            },
          ],
        }),
      ],
    });
    const jar = new Map<string, string>();
    const call = async (path: string, init: { method?: string; body?: string } = {}) => {
      const headers = {
        'content-type': 'application/json',
        origin: APP,
        cookie: [...jar].map((pair) => pair.join('=')).join('; '),
      };
      const response: Response = await auth.handler(new Request(new URL(path, APP), { ...init, headers }));
      for (const cookie of response.headers.getSetCookie()) {
        const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
        jar.set(name, value);
      }
      return response;
    };
    const body = JSON.stringify({ provider: 'idp', callbackURL: '/welcome' });
    const begun = await call('/api/auth/sign-in/social', { method: 'POST', body });
    const { url } = (await begun.json()) as { url: string };
    const landing = await call((await authorize(new URL(url))).href);
    const location = landing.headers.get('location');
    if (location !== '/welcome') throw new Error(`better-auth refused: ${location}`);
    const session = await call('/api/auth/get-session');
    const { user } = (await session.json()) as { user: { email: string } };
    const accounts = await call('/api/auth/list-accounts');
    const [account] = (await accounts.json()) as { accountId: string }[];
    return { sub: account?.accountId ?? '', email: user.email };
  };
}

function profileOf(claims: { sub: string; [claim: string]: unknown } | undefined) {
  if (!claims) throw new Error('there is no id_token');
  return { sub: claims.sub, email: String(claims['email']) };
}
