import { createRemoteJWKSet, jwtVerify } from 'jose';
import { Type } from 'typebox';
import { option } from '../../src/core/config/options.js';
import { isLoopback } from '../../src/core/config/public-url.js';

/** Requests to an identity provider, for the commands that are clients of one. */

export const text = (env: string, doc: string, secret = false) =>
  option(Type.Optional(Type.String({ minLength: 1 })), { env, doc, secret });

/** The options of a client, as flags or environment variables. */
export const clientOptions = {
  issuer: text('IDP_LOGIN_ISSUER', 'Issuer URL of the identity provider.'),
  clientId: text('IDP_LOGIN_CLIENT_ID', 'Client ID of the application, or the sub of an agent.'),
  clientSecret: text('IDP_LOGIN_CLIENT_SECRET', 'Client secret, unless the client is public.', true),
  resource: text('IDP_LOGIN_RESOURCE', 'The API that the access token is for.'),
};

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
  /** The error code of the response; `undefined` without a response. */
  readonly code: string | undefined;

  constructor(message: string, code?: string) {
    super(message);
    this.code = code;
  }
}

/** Who sends a request to /token. */
export interface ClientOptions {
  clientId: string;
  clientSecret?: string | undefined;
}

/** What a client asks of a provider. */
export interface ProviderRequest extends ClientOptions {
  issuer: string;
  scope: string;
  /** The API that the access token is for. */
  resource?: string | undefined;
}

const REQUEST_TIMEOUT_MS = 10_000;

export interface Metadata {
  issuer: string;
  authorization_endpoint: string;
  token_endpoint: string;
  jwks_uri: string;
  /** Absent if the device flow is off. */
  device_authorization_endpoint?: string;
}

/** @throws LoginFailed */
export async function discover(issuer: string): Promise<Metadata> {
  const address = issuer.replace(/\/$/, '');
  requireSecureUrl(address);
  const response = await send(`${address}/.well-known/openid-configuration`);
  const metadata = (await jsonOf(response)) as Record<string, unknown> & Metadata;
  if (!response.ok || metadata.issuer?.replace(/\/$/, '') !== address) {
    throw new LoginFailed(`${issuer} is not an identity provider, or its metadata names a different issuer.`);
  }
  const { authorization_endpoint, token_endpoint, jwks_uri, device_authorization_endpoint } = metadata;
  for (const endpoint of [authorization_endpoint, token_endpoint, jwks_uri]) requireSecureUrl(endpoint);
  if (device_authorization_endpoint !== undefined) requireSecureUrl(device_authorization_endpoint);
  return metadata;
}

/** Secrets must be sent encrypted or to this machine. */
function requireSecureUrl(address: string): void {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (!url || !(url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname)))) {
    throw new LoginFailed(`${address} is not an https URL: secrets would be sent unencrypted.`);
  }
}

export interface TokenResponse {
  access_token: string;
  token_type: string;
  expires_in: number;
  scope?: string;
  id_token?: string;
  /** Of a delegation: replaces the one that was sent. */
  delegation_token?: string;
}

/** Sends a form as the client. Fields without a value are left out. @throws LoginFailed */
export async function post<Response = TokenResponse>(
  endpoint: string,
  { clientId, clientSecret }: ClientOptions,
  fields: Readonly<Record<string, string | undefined>>,
): Promise<Response> {
  const all = { client_id: clientId, client_secret: clientSecret, ...fields };
  const pairs = Object.entries(all).flatMap(([name, value]): [string, string][] =>
    value === undefined ? [] : [[name, value]],
  );
  const response = await send(endpoint, { method: 'POST', body: new URLSearchParams(pairs) });
  if (!response.ok) throw await failureOf(response);
  return (await jsonOf(response)) as Response;
}

/** @param startedAt before the request, in milliseconds */
export const loginTokens = (
  { id_token, access_token, token_type, scope, expires_in }: TokenResponse,
  { startedAt, scope: requested }: { startedAt: number; scope: string },
): LoginTokens => ({
  ...(id_token !== undefined && { id_token }),
  access_token,
  token_type,
  scope: scope ?? requested,
  expires_at: Math.floor(startedAt / 1000) + expires_in,
});

/**
 * The signature, issuer, audience and nonce of an id_token.
 * @param nonce `undefined` if the request had none
 * @throws LoginFailed
 */
export async function verifyIdToken(
  { issuer, jwks_uri: jwks }: Metadata,
  { clientId }: ClientOptions,
  idToken: string,
  nonce: string | undefined,
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

/** Follows no redirect, because its target must not receive secrets. @throws LoginFailed */
export async function send(url: string, init: RequestInit = {}): Promise<Response> {
  try {
    return await fetch(url, { ...init, redirect: 'manual', signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
  } catch (error) {
    const { cause, message } = error as Error & { cause?: { code?: string; message?: string } };
    const reason = cause?.code ?? cause?.message ?? message;
    throw new LoginFailed(`${new URL(url).origin} cannot be reached: ${reason}.`);
  }
}

/** What an unsuccessful response says. */
export async function failureOf(response: Response): Promise<LoginFailed> {
  const { error, error_description: description } = await jsonOf(response);
  const wait = response.headers.get('retry-after');
  const when = wait === null ? '' : ` Try again in ${wait} seconds.`;
  const code = String(error ?? response.status);
  return new LoginFailed(`${code}: ${description ?? response.statusText}${when}`, code);
}

async function jsonOf(response: Response): Promise<Record<string, unknown>> {
  try {
    return (await response.json()) as Record<string, unknown>;
  } catch {
    return {};
  }
}
