import type { FastifyRequest } from 'fastify';
import { requestSource } from '../../../../core/http/routes.js';
import type { Principal } from '../../directory.js';
import type { OidcServices } from '../../services.js';

/**
 * The principal with these credentials, if it is accepted; else `null`, after a record in the audit log.
 *
 * @param detail the application or the page, for the audit
 */
export async function checkCredentials(
  { directory, audit }: OidcServices,
  request: FastifyRequest,
  credentials: { username: string; password: string } | null,
  accepts: (principal: Pick<Principal, 'kind'>) => boolean,
  detail: string,
): Promise<Principal | null> {
  const source = requestSource(request);
  const principal =
    credentials &&
    (await directory.authenticate(credentials.username, credentials.password, source, accepts));
  if (principal) return principal;
  const named = credentials && (await directory.findByName(credentials.username));
  await audit.recordFailure({
    event: 'login.failed',
    ip: source.ip,
    ...(named && { subject: named.id }),
    detail,
  });
  return null;
}
