import type { FastifyRequest } from 'fastify';
import { requestSource } from '../../../core/http/routes.js';
import type { Consent, ConsentService } from '../consents.js';
import type { Principal } from '../directory.js';
import type { SessionService, SignedInUser } from '../sessions.js';
import type { AuthorizationRequest } from './request.js';
import type { AuthorizationResponse } from './response.js';
import type { Authorization } from './service.js';

export interface ApprovalOptions {
  authorization: Pick<Authorization, 'approve' | 'findViolation'>;
  sessions: Pick<SessionService, 'extend'>;
  consents: Pick<ConsentService, 'connect'>;
}

/** Approves a request of a principal that is signed in and has allowed what the application gets. */
export type Approval = ReturnType<typeof createApproval>;

export function createApproval({ authorization, sessions, consents }: ApprovalOptions) {
  /** Lists a client that gets a refresh token without consent, so that the user can revoke it. */
  async function connectIfUnasked(
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

  return {
    /** For a person with a session. */
    async approve(
      authRequest: AuthorizationRequest,
      { principal, session }: SignedInUser,
      consent: Consent,
      request: FastifyRequest,
    ): Promise<AuthorizationResponse> {
      await sessions.extend(session);
      const { revocations } = await connectIfUnasked(authRequest, principal, consent);
      const authentication = { principal, session, revocations, isSilent: true };
      return authorization.approve(authRequest, authentication, requestSource(request).ip);
    },

    /** After the person has allowed a delegation on its page. */
    async delegate(
      authRequest: AuthorizationRequest,
      { principal, session }: SignedInUser,
      { revocations }: Consent,
      request: FastifyRequest,
    ): Promise<AuthorizationResponse> {
      await sessions.extend(session);
      const authentication = { principal, session, revocations, isSilent: true, delegates: true };
      return authorization.approve(authRequest, authentication, requestSource(request).ip);
    },

    /** For credentials in the request itself, without a session. */
    async approveBasic(
      authRequest: AuthorizationRequest,
      principal: Principal,
      consent: Consent,
      request: FastifyRequest,
    ): Promise<AuthorizationResponse> {
      const { revocations } = await connectIfUnasked(authRequest, principal, consent);
      return authorization.approve(authRequest, { principal, revocations }, requestSource(request).ip);
    },
  };
}
