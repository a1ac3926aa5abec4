import type { FastifyRequest } from 'fastify';
import { requestSource } from '../../../core/http/routes.js';
import type { Consent } from '../consents.js';
import type { Principal } from '../directory.js';
import type { OidcServices } from '../services.js';
import type { SessionDocument } from '../store.js';
import type { AuthorizationRequest } from './request.js';
import type { AuthorizationResponse } from './response.js';

/**
 * Approves a request of a principal that is signed in, or has credentials in the request itself, and has allowed what the
 * application gets.
 *
 * @param delegates whether the person has allowed a delegation on its page
 */
export async function approve(
  services: OidcServices,
  authRequest: AuthorizationRequest,
  { principal, session }: { principal: Principal; session?: SessionDocument },
  consent: Consent,
  request: FastifyRequest,
  delegates = false,
): Promise<AuthorizationResponse> {
  const { revocations } = await connectIfUnasked(services, authRequest, principal, consent);
  const isSilent = session !== undefined;
  const authentication = { principal, session, revocations, isSilent, delegates };
  return services.authorization.approve(authRequest, authentication, requestSource(request).ip);
}

/** Lists a client that gets a refresh token without consent, so that the user can revoke it. */
async function connectIfUnasked(
  { authorization, consents }: OidcServices,
  authRequest: AuthorizationRequest,
  principal: Principal,
  consent: Consent,
): Promise<Consent> {
  const getsRefreshToken =
    authRequest.scope.split(' ').includes('offline_access') &&
    authorization.findViolation(authRequest, principal) === null;
  return principal.kind === 'human' && getsRefreshToken && !consent.isConnected
    ? consents.connect(principal.id, authRequest.client.id)
    : consent;
}
