import type { FastifyRequest } from 'fastify';
import { originOf } from '../../../http/scope.js';
import type { Audit } from '../../../ops/audit.js';
import type { Directory, Principal } from '../../directory.js';

export interface CredentialsOptions {
  directory: Pick<Directory, 'authenticate'>;
  audit: Pick<Audit, 'recordFailure'>;
}

/** The principal with these credentials, if it is accepted; else `null`, after a record in the audit log. */
export type CheckCredentials = (
  request: FastifyRequest,
  credentials: { username: string; password: string } | null,
  accepts: (principal: Principal) => boolean,
) => Promise<Principal | null>;

export function createCredentialsCheck({ directory, audit }: CredentialsOptions): CheckCredentials {
  return async (request, credentials, accepts) => {
    const origin = originOf(request);
    let rejected: string | undefined;
    const checkAccepted = (principal: Principal): boolean => {
      const isAccepted = accepts(principal);
      if (!isAccepted) rejected = principal.id;
      return isAccepted;
    };
    const principal =
      credentials &&
      (await directory.authenticate(credentials.username, credentials.password, origin, checkAccepted));
    if (!principal) {
      await audit.recordFailure({
        event: 'login.failed',
        ip: origin.ip,
        ...(rejected && { subject: rejected }),
      });
    }
    return principal;
  };
}
