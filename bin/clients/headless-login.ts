import { Type } from 'typebox';
import { defineOptions, option } from '../../src/core/config/options.js';
import type { Clock } from '../../src/core/kernel/clock.js';
import { newToken, type Random, sha256 } from '../../src/core/kernel/secrets.js';
import {
  clientOptions,
  discover,
  failureOf,
  LoginFailed,
  type LoginTokens,
  loginTokens,
  type Metadata,
  type ProviderRequest,
  post,
  send,
  text,
  verifyIdToken,
} from './provider-client.js';

/**
 * A client for agents: the authorization code flow without a browser. The redirect is read and never followed, so that
 * no server has to listen at the redirect URI.
 */

/** The options of `idp login`. */
export const loginSchema = defineOptions({
  ...clientOptions,
  handle: text('IDP_LOGIN_HANDLE', 'Handle of the agent.'),
  password: text('IDP_LOGIN_PASSWORD', 'The password.', true),
  redirectUri: option(Type.String({ default: 'http://127.0.0.1/callback' }), {
    env: 'IDP_LOGIN_REDIRECT_URI',
    doc: 'A redirect URI registered for the application.',
  }),
  scope: option(Type.String({ default: 'openid email profile' }), {
    env: 'IDP_LOGIN_SCOPE',
    doc: 'Requested scopes.',
  }),
});

export interface LoginRequest extends ProviderRequest {
  handle: string;
  password: string;
  redirectUri: string;
}

/**
 * Signs in and verifies the response: the state, the issuer, and the signature, audience and nonce of the id_token.
 *
 * @throws LoginFailed
 */
export async function logIn(
  request: LoginRequest,
  { clock, random }: { clock: Clock; random: Random },
): Promise<LoginTokens> {
  const metadata = await discover(request.issuer);
  const [state, nonce, verifier] = [newToken(random), newToken(random), newToken(random)];
  const code = await requestCode(metadata, request, { state, nonce, challenge: sha256(verifier) });
  const startedAt = clock.now();
  const { redirectUri: redirect_uri, resource } = request;
  const response = await post(metadata.token_endpoint, request, {
    grant_type: 'authorization_code',
    code,
    redirect_uri,
    code_verifier: verifier,
    resource,
  });
  if (response.id_token !== undefined) await verifyIdToken(metadata, request, response.id_token, nonce);
  return loginTokens(response, { startedAt, scope: request.scope });
}

async function requestCode(
  { authorization_endpoint: endpoint, issuer }: Metadata,
  { clientId, redirectUri, scope, resource, handle, password }: LoginRequest,
  { state, nonce, challenge }: { state: string; nonce: string; challenge: string },
): Promise<string> {
  const query = new URLSearchParams({
    response_type: 'code',
    client_id: clientId,
    redirect_uri: redirectUri,
    scope,
    state,
    nonce,
    code_challenge: challenge,
    code_challenge_method: 'S256',
    ...(resource !== undefined && { resource }),
  });
  const authorization = `Basic ${Buffer.from(`${handle}:${password}`).toString('base64')}`;
  const response = await send(`${endpoint}?${query}`, { headers: { authorization } });
  const location = response.headers.get('location') ?? '';
  if (response.status !== 302 || !URL.canParse(location)) throw await failureOf(response);
  const { searchParams } = new URL(location);
  const [code, error] = [searchParams.get('code'), searchParams.get('error')];
  if (searchParams.get('state') !== state || searchParams.get('iss') !== issuer) {
    throw new LoginFailed('The response belongs to another sign-in or another provider.');
  }
  if (error !== null) throw new LoginFailed(`${error}: ${searchParams.get('error_description') ?? ''}`);
  if (code === null) throw new LoginFailed('The response contains no code.');
  return code;
}
