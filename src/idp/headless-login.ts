import { createRemoteJWKSet, jwtVerify } from 'jose';
import { Type } from 'typebox';
import { defineOptions, option } from '../config/options.js';
import { isLoopback } from '../config/public-url.js';
import type { Clock } from '../kernel/clock.js';
import { newToken, type Random, sha256 } from '../kernel/secrets.js';

/**
 * The authorization code flow as an agent goes through it: no browser, and nobody who listens at the redirect URI,
 * because the redirect is read and never followed.
 */

const text = (env: string, doc: string, secret = false) =>
  option(Type.Optional(Type.String({ minLength: 1 })), { env, doc, secret });

/** What `idp login` is told, by flags or by environment. */
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
  /** Epoch seconds. */
  expires_at: number;
}

/** The sign-in did not come about; the message says why. */
export class LoginFailed extends Error {
  override readonly name = 'LoginFailed';
}

const PATIENCE = 10_000;

/**
 * Signs in and verifies what comes back: the state, the issuer, and the id_token's signature, audience and nonce.
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
  const begun = clock.now();
  const answer = await redeem(metadata, request, { code, verifier });
  if (answer.id_token !== undefined) await verifyIdToken(metadata, request, answer.id_token, nonce);
  return {
    ...(answer.id_token !== undefined && { id_token: answer.id_token }),
    access_token: answer.access_token,
    token_type: answer.token_type,
    scope: answer.scope ?? request.scope,
    expires_at: Math.floor(begun / 1000) + answer.expires_in,
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
  refuseOpenAddress(address);
  const response = await ask(`${address}/.well-known/openid-configuration`);
  const metadata = (await jsonOf(response)) as unknown as Metadata;
  if (!response.ok || metadata.issuer?.replace(/\/$/, '') !== address) {
    throw new LoginFailed(`${issuer} is not an identity provider, or its metadata names a different issuer.`);
  }
  for (const endpoint of [metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri]) {
    refuseOpenAddress(endpoint);
  }
  return metadata;
}

/** A password travels encrypted or stays on this machine. */
function refuseOpenAddress(address: string): void {
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
  const response = await ask(`${endpoint}?${query}`, { headers: { authorization } });
  const location = response.headers.get('location') ?? '';
  if (response.status !== 302 || !URL.canParse(location)) throw await refusal(response);
  const { searchParams } = new URL(location);
  const [code, error] = [searchParams.get('code'), searchParams.get('error')];
  if (searchParams.get('state') !== state || searchParams.get('iss') !== issuer) {
    throw new LoginFailed('The response belongs to another sign-in or another provider.');
  }
  if (error !== null) throw new LoginFailed(`${error}: ${searchParams.get('error_description') ?? ''}`);
  if (code === null) throw new LoginFailed('The response contains no code.');
  return code;
}

interface TokenAnswer {
  access_token: string;
  token_type: string;
  expires_in: number;
  scope?: string;
  id_token?: string;
}

async function redeem(
  { token_endpoint: endpoint }: Metadata,
  { clientId, clientSecret, redirectUri }: LoginRequest,
  { code, verifier }: { code: string; verifier: string },
): Promise<TokenAnswer> {
  const body = new URLSearchParams({
    grant_type: 'authorization_code',
    code,
    redirect_uri: redirectUri,
    client_id: clientId,
    code_verifier: verifier,
    ...(clientSecret !== undefined && { client_secret: clientSecret }),
  });
  const response = await ask(endpoint, { method: 'POST', body });
  if (!response.ok) throw await refusal(response);
  return (await jsonOf(response)) as unknown as TokenAnswer;
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

/** No redirect is followed: whoever is at its end is not meant to get the password. */
async function ask(url: string, init: RequestInit = {}): Promise<Response> {
  try {
    return await fetch(url, { ...init, redirect: 'manual', signal: AbortSignal.timeout(PATIENCE) });
  } catch (error) {
    const { cause, message } = error as Error & { cause?: { code?: string; message?: string } };
    const reason = cause?.code ?? cause?.message ?? message;
    throw new LoginFailed(`${new URL(url).origin} cannot be reached: ${reason}.`);
  }
}

async function refusal(response: Response): Promise<LoginFailed> {
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
