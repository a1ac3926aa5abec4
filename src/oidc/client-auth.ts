import { parseBasic } from '../http/authorization.js';
import { isSecretOf, sha256 } from '../kernel/secrets.js';
import type { Attempt } from '../throttle/throttle.js';
import { oidcErrors } from './errors.js';
import type { Client, Directory } from './model.js';

/** A secret that no client has: unknown clients cost the same work as known ones. */
const NOBODY = sha256('the secret of no client');

export interface ClientCredentials {
  authorization: string | undefined;
  body: Readonly<Record<string, string>>;
  ip: string;
}

/**
 * The client of a token request (RFC 6749 §2.3): `client_secret_basic`, `client_secret_post`, or for public
 * clients no more than its identifier.
 *
 * @throws invalid_client, invalid_request when it uses two ways at once, RATE_LIMITED
 */
export async function authenticateClient(
  { authorization, body, ip }: ClientCredentials,
  { directory, attempt }: { directory: Pick<Directory, 'findClient'>; attempt: Attempt },
): Promise<Client> {
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
  const client = clientId ? await directory.findClient(clientId) : null;
  // A public client has no secret to guess, so a wrong one is a mistake and counts as no failure.
  if (client && client.secretHash === undefined) {
    if (secret === undefined) return client;
    throw invalidClient();
  }
  const proven = await attempt({ account: `client ${clientId}`, ip, kind: 'client' }, async () => {
    const isRight =
      secret !== undefined &&
      (isSecretOf(secret, client?.secretHash ?? NOBODY) ||
        isSecretOf(secret, client?.previousSecretHash ?? NOBODY));
    return isRight ? client : null;
  });
  if (!proven) throw invalidClient();
  return proven;
}

/** Nobody, or not the one who may: with the challenge that every 401 of a token request bears (RFC 6749 §5.2). */
export const invalidClient = () =>
  oidcErrors.invalid_client({ headers: { 'www-authenticate': 'Basic realm="idp", charset="UTF-8"' } });

/** Both halves are form-encoded inside the header (RFC 6749 §2.3.1). */
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
