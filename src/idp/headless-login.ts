import { createRemoteJWKSet, jwtVerify } from 'jose';
import { Type } from 'typebox';
import { defineOptions, option } from '../config/options.js';
import { isLoopback } from '../config/public-url.js';
import type { Clock } from '../kernel/clock.js';
import { newToken, type Random, sha256 } from '../kernel/secrets.js';

/**
 * A client for agents: the authorization code flow without a browser. The redirect is read and never followed, so that
 * no server has to listen at the redirect URI.
 */

const text = (env: string, doc: string, secret = false) =>
  option(Type.Optional(Type.String({ minLength: 1 })), { env, doc, secret });

/** The options of `idp login`, as flags or environment variables. */
export const loginSchema = defineOptions({
  issuer: text('IDP_LOGIN_ISSUER', 'Issuer URL of the identity provider.'),
  clientId: text('IDP_LOGIN_CLIENT_ID', 'Client ID of the application to sign in to.'),
  clientSecret: text('IDP_LOGIN_CLIENT_SECRET', 'Client secret, unless the client is public.', true),
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

export interface LoginRequest {
  issuer: string;
  clientId: string;
  clientSecret?: string | undefined;
  handle: string;
  password: string;
  redirectUri: string;
  scope: string;
}

export interface LoginTokens {
  id_token?: string;
  access_token: string;
  token_type: string;
  scope: string;
  /** Unix time in seconds. */
  expires_at: number;
}

/** The sign-in failed; the message says why. */
export class LoginFailed extends Error {
  override readonly name = 'LoginFailed';
}

const REQUEST_TIMEOUT_MS = 10_000;

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
  const response = await redeemCode(metadata, request, { code, verifier });
  if (response.id_token !== undefined) await verifyIdToken(metadata, request, response.id_token, nonce);
  return {
    ...(response.id_token !== undefined && { id_token: response.id_token }),
    access_token: response.access_token,
    token_type: response.token_type,
    scope: response.scope ?? request.scope,
    expires_at: Math.floor(startedAt / 1000) + response.expires_in,
  };
}

interface Metadata {
  issuer: string;
  authorization_endpoint: string;
  token_endpoint: string;
  jwks_uri: string;
}

async function discover(issuer: string): Promise<Metadata> {
  const address = issuer.replace(/\/$/, '');
  requireSecureUrl(address);
  const response = await send(`${address}/.well-known/openid-configuration`);
  const metadata = (await jsonOf(response)) as unknown as Metadata;
  if (!response.ok || metadata.issuer?.replace(/\/$/, '') !== address) {
    throw new LoginFailed(`${issuer} is not an identity provider, or its metadata names a different issuer.`);
  }
  for (const endpoint of [metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri]) {
    requireSecureUrl(endpoint);
  }
  return metadata;
}

/** The password must be sent encrypted or to this machine. */
function requireSecureUrl(address: string): void {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (!url || !(url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname)))) {
    throw new LoginFailed(`${address} is not an https URL: the password would be sent unencrypted.`);
  }
}

async function requestCode(
  { authorization_endpoint: endpoint, issuer }: Metadata,
  { clientId, redirectUri, scope, handle, password }: LoginRequest,
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

interface TokenResponse {
  access_token: string;
  token_type: string;
  expires_in: number;
  scope?: string;
  id_token?: string;
}

async function redeemCode(
  { token_endpoint: endpoint }: Metadata,
  { clientId, clientSecret, redirectUri }: LoginRequest,
  { code, verifier }: { code: string; verifier: string },
): Promise<TokenResponse> {
  const body = new URLSearchParams({
    grant_type: 'authorization_code',
    code,
    redirect_uri: redirectUri,
    client_id: clientId,
    code_verifier: verifier,
    ...(clientSecret !== undefined && { client_secret: clientSecret }),
  });
  const response = await send(endpoint, { method: 'POST', body });
  if (!response.ok) throw await failureOf(response);
  return (await jsonOf(response)) as unknown as TokenResponse;
}

async function verifyIdToken(
  { issuer, jwks_uri: jwks }: Metadata,
  { clientId }: LoginRequest,
  idToken: string,
  nonce: string,
): Promise<void> {
  const options = { issuer, audience: clientId, algorithms: ['EdDSA'] };
  const payload = await jwtVerify(idToken, createRemoteJWKSet(new URL(jwks)), options).then(
    (verified) => verified.payload,
    (error: Error) => {
      throw new LoginFailed(`The id_token cannot be trusted: ${error.message}`);
    },
  );
  if (payload['nonce'] !== nonce) throw new LoginFailed('The id_token belongs to another sign-in.');
}

/** Follows no redirect, because its target must not receive the password. */
async function send(url: string, init: RequestInit = {}): Promise<Response> {
  try {
    return await fetch(url, { ...init, redirect: 'manual', signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
  } catch (error) {
    const { cause, message } = error as Error & { cause?: { code?: string; message?: string } };
    const reason = cause?.code ?? cause?.message ?? message;
    throw new LoginFailed(`${new URL(url).origin} cannot be reached: ${reason}.`);
  }
}

async function failureOf(response: Response): Promise<LoginFailed> {
  const { error, error_description: description } = await jsonOf(response);
  const wait = response.headers.get('retry-after');
  const when = wait === null ? '' : ` Try again in ${wait} seconds.`;
  return new LoginFailed(`${error ?? response.status}: ${description ?? response.statusText}${when}`);
}

async function jsonOf(response: Response): Promise<Record<string, unknown>> {
  try {
    return (await response.json()) as Record<string, unknown>;
  } catch {
    return {};
  }
}
