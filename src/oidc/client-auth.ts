import { parseBasic } from '../http/authorization.js';
import { isSimpleCrossSite } from '../http/browser.js';
import type { Guard } from '../http/scope.js';
import { MINUTE } from '../kernel/clock.js';
import { isSecretOf, UNUSED_HASH } from '../kernel/secrets.js';
import { atMost, type Throttle } from '../throttle/throttle.js';
import type { Client, Directory } from './directory.js';
import { oidcErrors } from './errors.js';

/** Wrong secrets from one address block. */
const FAILURES = atMost('failures.client', 60, MINUTE);

export interface ClientCredentials {
  authorization: string | undefined;
  body: Readonly<Record<string, string>>;
  ip: string;
}

/**
 * The client of a token request (RFC 6749 §2.3): `client_secret_basic`, `client_secret_post`, or for public
 * clients only its `client_id`.
 *
 * @throws invalid_client, invalid_request for two methods at once, RATE_LIMITED
 */
export function authenticateClient(
  credentials: ClientCredentials,
  { directory, throttle }: { directory: Pick<Directory, 'findClient'>; throttle: Pick<Throttle, 'attempt'> },
): Promise<Client> {
  return authenticate(credentials, directory.findClient, throttle);
}

/** Who may authenticate with a secret. */
type SecretHolder = Pick<Client, 'secretHash' | 'previousSecretHash'>;

/** The same for clients and for others that authenticate as they do. */
export async function authenticate<T extends SecretHolder>(
  { authorization, body, ip }: ClientCredentials,
  find: (id: string) => Promise<T | null>,
  throttle: Pick<Throttle, 'attempt'>,
): Promise<T> {
  const basic = authorization === undefined ? null : readBasic(authorization);
  if (authorization !== undefined && !basic) throw invalidClient();
  if (basic && body['client_secret'] !== undefined) {
    throw oidcErrors.invalid_request({
      message: 'Client credentials were sent in the header and in the body. Use one method.',
    });
  }
  if (basic && (body['client_id'] ?? basic.clientId) !== basic.clientId) throw invalidClient();
  const clientId = basic?.clientId ?? body['client_id'];
  const secret = basic?.secret ?? body['client_secret'];
  const client = clientId ? await find(clientId) : null;
  // A public client has no secret to guess, so sending one is not counted as a failed attempt.
  if (client && client.secretHash === undefined) {
    if (secret === undefined) return client;
    throw invalidClient();
  }
  const guess = { account: `client ${clientId}`, ip, kind: 'client', perAddress: FAILURES } as const;
  const authenticated = await throttle.attempt(guess, async () => {
    const isRight =
      secret !== undefined &&
      (isSecretOf(secret, client?.secretHash ?? UNUSED_HASH) ||
        isSecretOf(secret, client?.previousSecretHash ?? UNUSED_HASH));
    return isRight ? client : null;
  });
  if (!authenticated) throw invalidClient();
  return authenticated;
}

/** With the challenge that every 401 response to a token request contains (RFC 6749 §5.2). */
export const invalidClient = () =>
  oidcErrors.invalid_client({ headers: { 'www-authenticate': 'Basic realm="idp", charset="UTF-8"' } });

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
