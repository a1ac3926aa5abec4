import basicAuth from '@fastify/basic-auth';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type Guard, requestSource } from '../../core/http/routes.js';
import { AppError, httpErrors } from '../../core/kernel/errors.js';
import { secretsEqual } from '../../core/kernel/secrets.js';
import type { Audit } from '../../core/ops/audit.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import { consoleErrors } from '../../shared/console-kit/errors.js';
import type { OperatorSessions } from '../operators/guard.js';
import { adminErrors } from './errors.js';

const CHALLENGE = { 'www-authenticate': 'Basic realm="admin", charset="UTF-8"' };

export interface AdminGuardOptions {
  username: string;
  /** `undefined` disables the credentials. */
  password: string | undefined;
  audit: Audit;
  attempt: Throttle['attemptAsOperator'];
  /** Users with a role, who have sessions. */
  operators?: Pick<OperatorSessions, 'admit'>;
}

/**
 * HTTP Basic authentication of the admin area, beside the sessions of operators. Browsers add credentials and cookies to cross-site requests, too, so every change
 * needs a header that another site cannot set without a CORS preflight.
 */
export async function createAdminGuard(parent: FastifyInstance, options: AdminGuardOptions): Promise<Guard> {
  const { username, password, audit, attempt, operators } = options;
  const authenticate = await registerBasicAuth(parent, async (givenName, givenPassword) => {
    // Both are always compared, so that the duration does not disclose which one is wrong.
    const matches = [secretsEqual(givenName, username), secretsEqual(givenPassword, password ?? '')];
    if (matches.includes(false)) throw httpErrors.UNAUTHENTICATED();
  });

  return async (request, reply) => {
    const isChange = request.method !== 'GET' && request.method !== 'HEAD';
    if (operators && request.headers.authorization === undefined) {
      const admission = await operators.admit(request, reply).catch(async (error: unknown) => {
        // An old sign-in is no attempt, and without the store there is no record.
        if (error instanceof AppError && error.statusCode === 403)
          await audit.recordFailure({ event: 'admin.refused', ip: requestSource(request).ip });
        throw error;
      });
      if (admission === true && isChange) rejectCrossSite(request);
      if (admission !== false) return;
    }
    if (password === undefined) throw adminErrors.ADMIN_NOT_CONFIGURED();
    const { ip } = requestSource(request);
    // A first visit has no credentials and does not count as a failed attempt.
    const isOperator =
      request.headers.authorization !== undefined &&
      (await attempt(ip, async () => {
        const isAuthenticated = await authenticate(request, reply).then(
          () => true,
          () => null,
        );
        if (!isAuthenticated) await audit.recordFailure({ event: 'admin.refused', ip });
        return isAuthenticated;
      }));
    if (!isOperator) throw httpErrors.UNAUTHENTICATED({ headers: CHALLENGE });
    if (isChange) rejectCrossSite(request);
  };
}

function rejectCrossSite({ headers }: FastifyRequest): void {
  const site = headers['sec-fetch-site'];
  const isCrossSite = site !== undefined && site !== 'same-origin' && site !== 'none';
  // Only routes that verify a form token accept forms; all others respond with 415.
  const isForm = headers['content-type']?.startsWith('application/x-www-form-urlencoded') === true;
  if (isCrossSite || !(isForm || headers['x-requested-with'] !== undefined))
    throw consoleErrors.CSRF_REJECTED();
}

type Authenticate = (request: FastifyRequest, reply: FastifyReply) => Promise<void>;

/** Registers @fastify/basic-auth in an encapsulated context, because the host may use it with its own users. */
async function registerBasicAuth(
  parent: FastifyInstance,
  validate: (username: string, password: string) => Promise<void>,
): Promise<Authenticate> {
  let authenticate: Authenticate | undefined;
  await parent.register(async (fastify) => {
    await fastify.register(basicAuth, { validate, utf8: true, strictCredentials: false });
    authenticate = (request, reply) =>
      new Promise((resolve, reject) => {
        fastify.basicAuth(request, reply, (error) => (error ? reject(error) : resolve()));
      });
  });
  return authenticate as Authenticate;
}
