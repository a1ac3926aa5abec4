import basicAuth from '@fastify/basic-auth';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type Guard, originOf } from '../http/scope.js';
import { defineErrors, httpErrors } from '../kernel/errors.js';
import { secretsEqual } from '../kernel/secrets.js';
import type { Audit } from '../ops/audit.js';
import type { Throttle } from '../throttle/throttle.js';

export const adminErrors = defineErrors({
  CSRF_REJECTED: [
    403,
    'The request did not come from the admin area, or the form is older than 12 hours: reload the page. API clients must send the X-Requested-With header.',
  ],
  ADMIN_NOT_CONFIGURED: [503, 'The admin area is not configured. Set ADMIN_PASSWORD.'],
});

const CHALLENGE = { 'www-authenticate': 'Basic realm="admin", charset="UTF-8"' };

export interface AdminGuardOptions {
  username: string;
  /** `undefined` closes the admin area. */
  password: string | undefined;
  audit: Audit;
  throttle: Pick<Throttle, 'attemptAsOperator'>;
}

/**
 * HTTP Basic for the admin area. Browsers send Basic by themselves, also for a foreign page, so everything
 * but reading needs a header that such a page cannot set without asking first.
 */
export async function createAdminGuard(parent: FastifyInstance, options: AdminGuardOptions): Promise<Guard> {
  const { username, password, audit, throttle } = options;
  const authenticate = await registerBasicAuth(parent, async (givenName, givenPassword) => {
    // Both are compared whatever the first says.
    const matches = [secretsEqual(givenName, username), secretsEqual(givenPassword, password ?? '')];
    if (matches.includes(false)) throw httpErrors.UNAUTHENTICATED();
  });

  return async (request, reply) => {
    if (password === undefined) throw adminErrors.ADMIN_NOT_CONFIGURED();
    const { ip } = originOf(request);
    // A browser's first visit comes without credentials and is no attempt.
    const isOperator =
      request.headers.authorization !== undefined &&
      (await throttle.attemptAsOperator(ip, async () => {
        const isRight = await authenticate(request, reply).then(
          () => true,
          () => null,
        );
        if (!isRight) await audit.recordFailure({ event: 'admin.refused', ip });
        return isRight;
      }));
    if (!isOperator) throw httpErrors.UNAUTHENTICATED({ headers: CHALLENGE });
    if (request.method !== 'GET' && request.method !== 'HEAD') refuseForeign(request);
  };
}

function refuseForeign({ headers }: FastifyRequest): void {
  const site = headers['sec-fetch-site'];
  const isForeign = site !== undefined && site !== 'same-origin' && site !== 'none';
  // Forms are read by routes alone that ask for a token of ours; everywhere else they are 415.
  const isForm = headers['content-type']?.startsWith('application/x-www-form-urlencoded') === true;
  if (isForeign || !(isForm || headers['x-requested-with'] !== undefined)) throw adminErrors.CSRF_REJECTED();
}

type Authenticate = (request: FastifyRequest, reply: FastifyReply) => Promise<void>;

/** Registers @fastify/basic-auth in an encapsulated scope of its own: a host may have registered it with its own users. */
async function registerBasicAuth(
  parent: FastifyInstance,
  validate: (username: string, password: string) => Promise<void>,
): Promise<Authenticate> {
  let authenticate: Authenticate | undefined;
  await parent.register(async (scope) => {
    await scope.register(basicAuth, { validate, utf8: true, strictCredentials: false });
    authenticate = (request, reply) =>
      new Promise((resolve, reject) => {
        scope.basicAuth(request, reply, (error) => (error ? reject(error) : resolve()));
      });
  });
  return authenticate as Authenticate;
}
