import { parseBearer } from '../../core/http/authorization.js';
import { type Guard, originOf } from '../../core/http/scope.js';
import { defineErrors, httpErrors } from '../../core/kernel/errors.js';
import { secretsEqual } from '../../core/kernel/secrets.js';
import type { Audit } from '../../core/ops/audit.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import { provisioningErrors } from './errors.js';

export const adminTokenErrors = defineErrors({
  invalid_token: [401, 'The administrator token is invalid.'],
});

/** Compares the administrator's bearer token before the body is read. Without a token the endpoints are disabled. */
export function adminGuard(
  token: string | undefined,
  { audit, throttle }: { audit: Audit; throttle: Pick<Throttle, 'attemptAsOperator'> },
): Guard {
  const challenge = (error: string) => ({
    headers: { 'www-authenticate': `Bearer realm="idp-admin"${error}` },
  });
  return async (request) => {
    const { headers } = request;
    if (token === undefined) throw provisioningErrors.admin_api_disabled();
    if (headers.authorization === undefined) throw httpErrors.UNAUTHENTICATED(challenge(''));
    const presented = parseBearer(headers.authorization);
    const { ip } = originOf(request);
    const isOperator = await throttle.attemptAsOperator(ip, async () => {
      if (presented !== undefined && secretsEqual(presented, token)) return true;
      await audit.recordFailure({ event: 'admin.refused', ip });
      return null;
    });
    if (!isOperator) throw adminTokenErrors.invalid_token(challenge(', error="invalid_token"'));
  };
}

/** Rejects every request while sign-up is disabled, valid or not, so that responses reveal no handles. */
export function signupGuard(isSignupOpen: boolean): Guard {
  return async () => {
    if (!isSignupOpen) throw provisioningErrors.signup_disabled();
  };
}
