import type { FastifyRequest } from 'fastify';
import { originOf } from '../../../core/http/scope.js';
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
export interface Approval {
  /** For a person with a session. */
  approve(
    authRequest: AuthorizationRequest,
    user: SignedInUser,
    consent: Consent,
    request: FastifyRequest,
  ): Promise<AuthorizationResponse>;
  /** After the person has allowed a delegation on its page. */
  delegate(
    authRequest: AuthorizationRequest,
    user: SignedInUser,
    consent: Consent,
    request: FastifyRequest,
  ): Promise<AuthorizationResponse>;
  /** For credentials in the request itself, without a session. */
  approveBasic(
    authRequest: AuthorizationRequest,
    principal: Principal,
    consent: Consent,
    request: FastifyRequest,
  ): Promise<AuthorizationResponse>;
}

export function createApproval({ authorization, sessions, consents }: ApprovalOptions): Approval {
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
    async approve(authRequest, { principal, session }, consent, request) {
      await sessions.extend(session);
      const { revocations } = await connectIfUnasked(authRequest, principal, consent);
      const authentication = { principal, session, revocations, isSilent: true };
      return authorization.approve(authRequest, authentication, originOf(request).ip);
    },

    async delegate(authRequest, { principal, session }, { revocations }, request) {
      await sessions.extend(session);
      const authentication = { principal, session, revocations, isSilent: true, delegates: true };
      return authorization.approve(authRequest, authentication, originOf(request).ip);
    },

    async approveBasic(authRequest, principal, consent, request) {
      const { revocations } = await connectIfUnasked(authRequest, principal, consent);
      return authorization.approve(authRequest, { principal, revocations }, originOf(request).ip);
    },
  };
}
