import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Localized, message } from '../../../../core/http/messages.js';
import type { Page, Pages } from '../../../../core/http/pages.js';
import { originOf } from '../../../../core/http/scope.js';
import type { Audit } from '../../../../core/ops/audit.js';
import { AMR } from '../../claims.js';
import type { Consent, ConsentService } from '../../consents.js';
import type { Principal, SecondFactor } from '../../directory.js';
import { oidcErrors } from '../../errors.js';
import { scopesOf } from '../../resources.js';
import { type Cookies, mountPath, type SessionService } from '../../sessions.js';
import { continueHref, nameOf, type Purpose, refusedRequestPage, type SignInPages } from '../pages.js';
import type { AuthorizationRequest, ErrorResponse } from '../request.js';
import { sendResponse } from '../response.js';
import type { Authorization, ResumedInteraction } from '../service.js';

export interface InteractionFormsOptions {
  authorization: Authorization;
  sessions: Pick<SessionService, 'start'>;
  /** Absent if it is not configured. */
  secondFactor: SecondFactor | undefined;
  signInPages: Pick<SignInPages, 'secondFactor' | 'secondFactorEnrolment' | 'unconfirmed'>;
  consents: Pick<ConsentService, 'remember'>;
  cookies: Cookies;
  pages: Pages;
  audit: Audit;
  issuer(): string;
}

/** What the forms of sign-in, sign-up and consent have in common. */
export interface InteractionForms {
  /** The interaction of a form that was shown to this browser. @throws login_rejected, invalid_request */
  resume(request: FastifyRequest, token: string): Promise<ResumedInteraction>;
  /** The same for a form of sign-in or sign-up: what it is for, or an error for the application. */
  resumeSignIn(
    request: FastifyRequest,
    token: string,
  ): Promise<
    Pick<ResumedInteraction, 'proven' | 'isExpired'> & ({ purpose: Purpose } | { error: ErrorResponse })
  >;
  /** Sends a form again that was open for too long, with a new token. */
  renew(
    request: FastifyRequest,
    reply: FastifyReply,
    purpose: Purpose,
    form: (renewed: { token: string; problems: Localized[] }) => Page,
  ): FastifyReply;
  /** @param status 303 after a form */
  respondWithError(reply: FastifyReply, error: ErrorResponse, status: 302 | 303): FastifyReply;
  /** A new token of the same form, with another challenge for passkeys. */
  newToken(request: FastifyRequest, purpose: Purpose): string;
  /** Continues after the password: with the form for the second factor, if the person has one or must set one up. */
  acceptPassword(
    request: FastifyRequest,
    reply: FastifyReply,
    purpose: Purpose,
    principal: Principal,
  ): Promise<FastifyReply>;
  /** Continues after a passkey. */
  acceptPasskey(
    request: FastifyRequest,
    reply: FastifyReply,
    purpose: Purpose,
    principal: Principal,
  ): Promise<FastifyReply>;
  /** Starts the session of a person who has signed in, without a response. */
  enter(
    request: FastifyRequest,
    reply: FastifyReply,
    purpose: Purpose,
    principal: Principal,
    amr: readonly string[],
  ): Promise<void>;
  /**
   * Starts the session of a person who has signed in, and continues to the application or the page. A form of an application
   * names what it will see, so that the password is the consent.
   */
  complete(
    request: FastifyRequest,
    reply: FastifyReply,
    purpose: Purpose,
    principal: Principal,
    amr?: readonly string[],
  ): Promise<FastifyReply>;
}

export function createInteractionForms(options: InteractionFormsOptions): InteractionForms {
  const { authorization, sessions, secondFactor, signInPages, consents, cookies, pages, audit, issuer } =
    options;

  const respondWithError: InteractionForms['respondWithError'] = (reply, error, status) => {
    const response = authorization.errorResponse(error);
    // Anyone can publish metadata: an error must not lead to their address before a person was asked (RFC 9700 §4.11.2).
    return status === 302 && error.client.origin === 'metadata'
      ? pages.send(reply.code(400), refusedRequestPage(error, response))
      : sendResponse(pages, reply, response, status);
  };

  const startSession = async (
    request: FastifyRequest,
    reply: FastifyReply,
    principal: Principal,
    amr: readonly string[] | undefined,
  ) => {
    const previous = cookies.session.read(request);
    const { token, session } = await sessions.start(principal, previous, originOf(request), amr);
    cookies.session.set(reply, token);
    return session;
  };

  /** The form has named what the application gets. */
  const rememberConsent = (
    { id }: Pick<Principal, 'id'>,
    { client, scope, targets }: AuthorizationRequest,
  ): Promise<Consent> => consents.remember(id, client.id, scope, scopesOf(targets));

  const resume: InteractionForms['resume'] = async (request, token) => {
    if (request.headers['sec-fetch-site'] === 'cross-site') throw oidcErrors.login_rejected();
    const resumed = await authorization.resume(token, cookies.form.read(request));
    if (!resumed) throw oidcErrors.login_rejected();
    return resumed;
  };

  const newToken: InteractionForms['newToken'] = (request, purpose) => {
    const cookie = cookies.form.read(request);
    return 'returnTo' in purpose
      ? authorization.beginOwnSignIn(purpose, cookie).token
      : authorization.beginInteraction(purpose, cookie).token;
  };

  /** The response to an application for which this principal must not be authorized; null for every other one. */
  const refuse = (reply: FastifyReply, purpose: Purpose, principal: Principal): FastifyReply | null => {
    if ('returnTo' in purpose) return null;
    const violation = authorization.findViolation(purpose, principal);
    return violation && respondWithError(reply, { ...purpose, violation }, 303);
  };

  const complete: InteractionForms['complete'] = async (request, reply, purpose, principal, amr) => {
    const { ip } = originOf(request);
    if ('returnTo' in purpose) {
      // Which people may use the page, it decides.
      await startSession(request, reply, principal, amr);
      await audit.record({ event: 'login.succeeded', subject: principal.id, ip, detail: purpose.name });
      return reply.redirect(mountPath(issuer()) + purpose.returnTo, 303);
    }
    // The page of a delegation follows, whose decision the password is not.
    if (purpose.delegation) {
      await startSession(request, reply, principal, amr);
      await audit.record({ event: 'login.succeeded', subject: principal.id, ip, detail: purpose.client.id });
      return reply.redirect(continueHref(purpose, mountPath(issuer())), 303);
    }
    const [session, { revocations }] = await Promise.all([
      startSession(request, reply, principal, amr),
      rememberConsent(principal, purpose),
    ]);
    const approved = await authorization.approve(purpose, { principal, session, revocations }, ip);
    return sendResponse(pages, reply, approved, 303);
  };

  return {
    resume,

    async resumeSignIn(request, token) {
      const resumed = await resume(request, token);
      const { proven, isExpired } = resumed;
      if ('returnTo' in resumed) {
        const { returnTo, name } = resumed;
        return { purpose: { returnTo, name }, proven, isExpired };
      }
      const { validated } = resumed;
      const outcome = 'error' in validated ? validated : { purpose: validated.request };
      return { ...outcome, proven, isExpired };
    },

    renew(request, reply, purpose, form) {
      const token = newToken(request, purpose);
      return pages.send(reply.code(403), form({ token, problems: [message('sign-in.expired')] }));
    },

    respondWithError,

    newToken,

    async acceptPassword(request, reply, purpose, principal) {
      const refused = refuse(reply, purpose, principal);
      if (refused) return refused;
      const { id, handle } = principal;
      const isEnrolled = (await secondFactor?.isEnrolled(id)) === true;
      if (!secondFactor || (!isEnrolled && !(await secondFactor.mustEnrol(principal))))
        return complete(request, reply, purpose, principal);
      if (!isEnrolled && (await secondFactor.awaitsConfirmation(principal, originOf(request))))
        return pages.send(reply.code(403), signInPages.unconfirmed(purpose, handle));
      const present = cookies.form.read(request);
      const { token, cookie } = authorization.beginSecondFactor(purpose, principal, present);
      if (cookie !== present) cookies.form.set(reply, cookie);
      if (isEnrolled) return pages.send(reply, signInPages.secondFactor(purpose, { token }));
      const enrolment = await secondFactor.begin(id, handle);
      return pages.send(reply, signInPages.secondFactorEnrolment(purpose, { token, enrolment }));
    },

    async enter(request, reply, purpose, principal, amr) {
      const { id } = principal;
      await Promise.all([
        startSession(request, reply, principal, amr),
        'returnTo' in purpose || purpose.delegation || rememberConsent(principal, purpose),
      ]);
      const detail = nameOf(purpose);
      await audit.record({ event: 'login.succeeded', subject: id, ip: originOf(request).ip, detail });
    },

    async acceptPasskey(request, reply, purpose, principal) {
      return refuse(reply, purpose, principal) ?? complete(request, reply, purpose, principal, AMR.passkey);
    },

    complete,
  };
}
