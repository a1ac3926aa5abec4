import {
  allowInsecureRequests,
  type Configuration,
  customFetch,
  discovery,
  enableNonRepudiationChecks,
  type FetchBody,
  genericGrantRequest,
} from 'openid-client';
import { Type } from 'typebox';
import { option } from '../../src/core/config/options.js';
import { isLoopback } from '../../src/core/config/public-url.js';
import type { Clock } from '../../src/core/kernel/clock.js';
import { present } from '../../src/core/kernel/fields.js';

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
  /** Of a delegation: replaces the one that was sent. */
  delegation_token?: string;
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

/** What a client asks of a provider. */
export interface ProviderRequest {
  issuer: string;
  clientId: string;
  clientSecret?: string | undefined;
  scope: string;
  /** The API that the access token is for. */
  resource?: string | undefined;
}

const REQUEST_TIMEOUT_MS = 10_000;

/** Reads the metadata of the provider. @throws LoginFailed */
export async function connect({
  issuer,
  clientId,
  clientSecret,
}: Omit<ProviderRequest, 'scope'>): Promise<Configuration> {
  const address = issuer.replace(/\/$/, '');
  requireSecureUrl(address);
  const metadata = {
    id_token_signed_response_alg: 'EdDSA',
    ...(clientSecret !== undefined && { client_secret: clientSecret }),
  };
  // Beside https, `requireSecureUrl` admits this machine only.
  const execute = [allowInsecureRequests, enableNonRepudiationChecks];
  const options = { [customFetch]: send, execute };
  const provider = await discovery(new URL(address), clientId, metadata, undefined, options).catch(
    failWith(() => `${issuer} is not an identity provider, or its metadata names a different issuer.`),
  );
  const { authorization_endpoint, token_endpoint, jwks_uri, device_authorization_endpoint } =
    provider.serverMetadata();
  for (const endpoint of [authorization_endpoint, token_endpoint, jwks_uri])
    requireSecureUrl(String(endpoint));
  if (device_authorization_endpoint !== undefined) requireSecureUrl(device_authorization_endpoint);
  return provider;
}

/** Secrets must be sent encrypted or to this machine. */
function requireSecureUrl(address: string): void {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (!url || !(url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname)))) {
    throw new LoginFailed(`${address} is not an https URL: secrets would be sent unencrypted.`);
  }
}

/** Names of token types as their specifications write them. */
const TOKEN_TYPE_NAMES: Readonly<Record<string, string>> = { bearer: 'Bearer', n_a: 'N_A' };

/**
 * Requests tokens, and verifies an id_token: its signature, issuer, audience and nonce.
 *
 * @param fields those without a value are left out
 * @param nonce of the request for authorization; `undefined` if it had none
 * @throws LoginFailed
 */
export async function requestTokens(
  provider: Configuration,
  grantType: string,
  fields: Readonly<Record<string, string | undefined>>,
  { clock, scope, nonce }: { clock: Clock; scope: string; nonce?: string },
): Promise<LoginTokens> {
  const startedAt = clock.now();
  const response = await genericGrantRequest(provider, grantType, definedOf(fields)).catch(
    failWith((reason) => `The response with the tokens cannot be trusted: ${reason}.`),
  );
  const { id_token: idToken, delegation_token: delegation, token_type: type, expires_in = 0 } = response;
  if (idToken !== undefined && response.claims()?.['nonce'] !== nonce)
    throw new LoginFailed('The id_token belongs to another sign-in.', 'invalid_response');
  return {
    ...(idToken !== undefined && { id_token: idToken }),
    access_token: response.access_token,
    token_type: TOKEN_TYPE_NAMES[type] ?? type,
    scope: response.scope ?? scope,
    expires_at: Math.floor(startedAt / 1000) + expires_in,
    ...(delegation !== undefined && { delegation_token: String(delegation) }),
  };
}

/** The fields of a form that have a value. */
export const definedOf = (fields: Readonly<Record<string, string | undefined>>): URLSearchParams =>
  new URLSearchParams(present<Record<string, string>>(fields));

/** What the library throws as a LoginFailed: that of `send`, or its reason. */
export const failWith =
  (describe: (reason: string) => string) =>
  (error: Error): never => {
    const { cause, message } = error;
    if (cause instanceof LoginFailed) throw cause;
    throw new LoginFailed(describe(cause instanceof Error ? cause.message : message), 'invalid_response');
  };

/** Follows no redirect, because its target must not receive secrets. @throws LoginFailed also for an answer that is an error */
export async function send(
  url: string,
  { body = null, ...init }: { method?: string; headers?: Record<string, string>; body?: FetchBody },
): Promise<Response> {
  const signal = AbortSignal.timeout(REQUEST_TIMEOUT_MS);
  const response = await fetch(url, { ...init, body, redirect: 'manual', signal }).catch((error: Error) => {
    const { code, message = error.message } = (error.cause ?? {}) as { code?: string; message?: string };
    throw new LoginFailed(`${new URL(url).origin} cannot be reached: ${code ?? message}.`);
  });
  if (response.status < 400) return response;
  const { error, error_description: description } = (await response.json().catch(() => ({}))) as Record<
    string,
    unknown
  >;
  const wait = response.headers.get('retry-after');
  const when = wait === null ? '' : ` Try again in ${wait} seconds.`;
  const code = String(error ?? response.status);
  throw new LoginFailed(`${code}: ${description ?? response.statusText}${when}`, code);
}
