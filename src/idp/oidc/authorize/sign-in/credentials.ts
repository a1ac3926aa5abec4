import type { FastifyRequest } from 'fastify';
import { originOf } from '../../../../core/http/scope.js';
import type { Audit } from '../../../../core/ops/audit.js';
import type { Directory, Principal } from '../../directory.js';

export interface CredentialsOptions {
  directory: Pick<Directory, 'authenticate' | 'findByHandle'>;
  audit: Pick<Audit, 'recordFailure'>;
}

/** The principal with these credentials, if it is accepted; else `null`, after a record in the audit log. */
export type CheckCredentials = (
  request: FastifyRequest,
  credentials: { username: string; password: string } | null,
  accepts: (principal: Principal) => boolean,
  /** The application or the page, for the audit. */
  purpose: string,
) => Promise<Principal | null>;

export function createCredentialsCheck({ directory, audit }: CredentialsOptions): CheckCredentials {
  return async (request, credentials, accepts, detail) => {
    const origin = originOf(request);
    const principal =
      credentials &&
      (await directory.authenticate(credentials.username, credentials.password, origin, accepts));
    if (!principal) {
      const named = credentials && (await directory.findByHandle(credentials.username));
      await audit.recordFailure({
        event: 'login.failed',
        ip: origin.ip,
        ...(named && { subject: named.id }),
        detail,
      });
    }
    return principal;
  };
}
