import { parseBasic } from '../../core/http/authorization.js';
import { isSimpleCrossSite } from '../../core/http/browser.js';
import type { Guard } from '../../core/http/routes.js';
import { MINUTE } from '../../core/kernel/clock.js';
import { isSecretOf, UNUSED_HASH } from '../../core/kernel/secrets.js';
import { fixedWindow } from '../../core/throttle/throttle.js';
import { type KeyHolder, UNVERIFIED } from './client-assertion.js';
import { type Client, type Directory, isPublicClient } from './directory.js';
import { oidcErrors } from './errors.js';
import type { OidcShared } from './shared.js';

/** Wrong secrets from one address block. */
const FAILURES = fixedWindow('failures.client', 60, MINUTE);

export interface ClientCredentials {
  authorization: string | undefined;
  body: Readonly<Record<string, string>>;
  ip: string;
  /** Whether the client has disconnected. */
  isDisconnected(): boolean;
}

/**
 * The client of a token request (RFC 6749 §2.3): `client_secret_basic`, `client_secret_post`, `private_key_jwt`, or for
 * public clients only its `client_id`. Each client has one of them, both ways of sending a secret being the same one.
 *
 * @throws invalid_client, invalid_request for two methods at once, RATE_LIMITED
 */
export const authenticateClient = (credentials: ClientCredentials, deps: OidcShared): Promise<Client> =>
  authenticate(credentials, (id) => findClient(id, credentials.ip, deps.directory), deps);

/** What authenticates as clients do. */
type Authenticatable = KeyHolder & Pick<Client, 'secretHash' | 'previousSecretHash' | 'agent'>;

/** The same for clients and for others that authenticate as they do. */
export async function authenticate<T extends Authenticatable>(
  credentials: ClientCredentials,
  find: (id: string) => Promise<T | null>,
  deps: OidcShared,
): Promise<T> {
  const { body, ip } = credentials;
  if (body['client_assertion'] !== undefined || body['client_assertion_type'] !== undefined)
    return authenticateByKey(credentials, find, deps);
  const { clientId, secret } = readSecret(credentials);
  const client = clientId ? await find(clientId) : null;
  if (client && client.agent?.id === client.id && secret !== undefined) {
    const { handle, id } = client.agent;
    // Failures count by the handle, as at /authorize: the `sub` would be a second name with a second counter.
    if (await deps.directory.authenticate(handle, secret, credentials, (found) => found.id === id))
      return client;
    throw invalidClient();
  }
  // A public client has no secret to guess, so sending one is not counted as a failed attempt.
  if (client && client.secretHash === undefined) {
    if (secret === undefined && isPublicClient(client)) return client;
    throw invalidClient();
  }
  const guess = { account: `client ${clientId}`, ip, kind: 'client', perAddress: FAILURES } as const;
  const authenticated = await deps.throttle.attempt(guess, async () => {
    const isRight =
      secret !== undefined &&
      (isSecretOf(secret, client?.secretHash ?? UNUSED_HASH) ||
        isSecretOf(secret, client?.previousSecretHash ?? UNUSED_HASH));
    return isRight ? client : null;
  });
  if (!authenticated) throw invalidClient();
  return authenticated;
}

/**
 * What a request says of its client, in the header or in the body.
 * @throws invalid_client, invalid_request for both at once
 */
export function readSecret({ authorization, body }: ClientCredentials): {
  clientId: string | undefined;
  secret: string | undefined;
} {
  const basic = authorization === undefined ? null : readBasic(authorization);
  if (authorization !== undefined && !basic) throw invalidClient();
  if (basic && body['client_secret'] !== undefined) {
    throw oidcErrors.invalid_request({
      message: 'Client credentials were sent in the header and in the body. Use one method.',
    });
  }
  if (basic && (body['client_id'] ?? basic.clientId) !== basic.clientId) throw invalidClient();
  return { clientId: basic?.clientId ?? body['client_id'], secret: basic?.secret ?? body['client_secret'] };
}

/** The client of a request, or `null` if it is unknown or its metadata cannot be used. */
export async function findClient(clientId: string, ip: string, directory: Directory): Promise<Client | null> {
  const found = await directory.resolveClient(clientId, { ip, allowsStale: true });
  return found && 'problem' in found ? null : found;
}

/** `private_key_jwt` (RFC 7523 §2.2). A signature cannot be guessed, so failures only slow the address down. */
async function authenticateByKey<T extends Authenticatable>(
  { authorization, body, ip }: ClientCredentials,
  find: (id: string) => Promise<T | null>,
  { throttle, assertions }: OidcShared,
): Promise<T> {
  if (authorization !== undefined || body['client_secret'] !== undefined) {
    throw oidcErrors.invalid_request({
      message: 'Client credentials were sent in two ways. Use one method.',
    });
  }
  const { client_assertion: assertion = '', client_assertion_type: type } = body;
  if (type !== ASSERTION_TYPE)
    throw oidcErrors.invalid_request({ message: `client_assertion_type must be ${ASSERTION_TYPE}.` });
  const clientId = body['client_id'] ?? assertions.subjectOf(assertion);
  const client = clientId ? await find(clientId) : null;
  const problem = client ? await assertions.verify(client, assertion, ip) : UNVERIFIED;
  if (client && problem === null) return client;
  await throttle.count(FAILURES, ip);
  throw invalidClient(problem ?? undefined);
}

export const ASSERTION_TYPE = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer';

/** With the challenge that every 401 response to a token request contains (RFC 6749 §5.2). */
export const invalidClient = (message?: string) =>
  oidcErrors.invalid_client({
    headers: { 'www-authenticate': 'Basic realm="idp", charset="UTF-8"' },
    ...(message !== undefined && { message }),
  });

/** Identifier and secret are form-encoded inside the header (RFC 6749 §2.3.1). */
function readBasic(authorization: string): { clientId: string; secret: string } | null {
  const credentials = parseBasic(authorization);
  if (!credentials) return null;
  try {
    const decode = (text: string) => decodeURIComponent(text.replaceAll('+', ' '));
    return { clientId: decode(credentials.username), secret: decode(credentials.password) };
  } catch {
    return null;
  }
}

/**
 * Rejects cross-site forms before rate limiting: otherwise they would exhaust the limits of the visitors' addresses.
 */
export const rejectCrossSiteForms: Guard = async ({ headers }) => {
  if (isSimpleCrossSite(headers)) throw oidcErrors.invalid_request({ message: CROSS_SITE_FORM });
};

const CROSS_SITE_FORM =
  'Cross-site form submissions are rejected. Use fetch with CORS, or send the request from a server.';
