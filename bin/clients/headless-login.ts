import { buildAuthorizationUrl } from 'openid-client';
import { Type } from 'typebox';
import { defineOptions, option } from '../../src/core/config/options.js';
import type { Clock } from '../../src/core/kernel/clock.js';
import { newToken, type Random, sha256 } from '../../src/core/kernel/secrets.js';
import {
  clientOptions,
  connect,
  definedOf,
  LoginFailed,
  type LoginTokens,
  type ProviderRequest,
  requestTokens,
  send,
  text,
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
  const { redirectUri: redirect_uri, scope, resource, handle, password } = request;
  const provider = await connect(request);
  const [state, nonce, verifier] = [newToken(random), newToken(random), newToken(random)];
  const challenge = { code_challenge: sha256(verifier), code_challenge_method: 'S256' };
  const fields = { redirect_uri, scope, state, nonce, ...challenge, resource };
  const authorization = `Basic ${Buffer.from(`${handle}:${password}`).toString('base64')}`;
  const url = buildAuthorizationUrl(provider, definedOf(fields));
  const { headers } = await send(url.href, { headers: { authorization } });
  const code = codeIn(headers.get('location') ?? '', { state, iss: provider.serverMetadata().issuer });
  const redemption = { code, redirect_uri, code_verifier: verifier, resource };
  return requestTokens(provider, 'authorization_code', redemption, { clock, scope, nonce });
}

/** @throws LoginFailed */
function codeIn(location: string, expected: { state: string; iss: string }): string {
  if (!URL.canParse(location))
    throw new LoginFailed('The provider has not redirected the sign-in to the application.');
  const { searchParams } = new URL(location);
  const [code, error] = [searchParams.get('code'), searchParams.get('error')];
  if (searchParams.get('state') !== expected.state || searchParams.get('iss') !== expected.iss) {
    throw new LoginFailed('The response belongs to another sign-in or another provider.');
  }
  if (error !== null) throw new LoginFailed(`${error}: ${searchParams.get('error_description') ?? ''}`);
  if (code === null) throw new LoginFailed('The response contains no code.');
  return code;
}
