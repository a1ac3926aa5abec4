import type { FastifyReply, FastifyRequest } from 'fastify';
import { mountPath } from '../../../../core/config/public-url.js';
import { addressOf } from '../../../../core/http/mailboxes.js';
import { type Localized, message } from '../../../../core/http/messages.js';
import type { Page } from '../../../../core/http/pages.js';
import { requestSource } from '../../../../core/http/routes.js';
import type { Effect } from '../../../../core/ops/commit.js';
import { AMR } from '../../claims.js';
import type { Consent } from '../../consents.js';
import type { Principal } from '../../directory.js';
import { oidcErrors } from '../../errors.js';
import { scopesOf } from '../../resources.js';
import type { OidcServices } from '../../services.js';
import { beginForm } from '../begin-form.js';
import { promptsOf } from '../interaction.js';
import type { FirstPartyPage } from '../interaction-token.js';
import { continueHref, nameOf, notAdmittedPage, refusedRequestPage, type SignInRequest } from '../pages.js';
import type { AuthorizationRequest, ErrorResponse } from '../request.js';
import { sendResponse } from '../response.js';
import type { ResumedInteraction } from '../service.js';

/** What the forms of sign-in, sign-up and consent have in common. */
export type InteractionForms = ReturnType<typeof createInteractionForms>;

/** What the steps of a sign-in use. */
export type SignInServices = OidcServices & { forms: InteractionForms };

export function createInteractionForms(services: OidcServices) {
  const { authorization, sessions, secondFactor, signInPages, consents, cookies, pages, audit, issuer } =
    services;
  const { values } = services;

  /** @param status 303 after a form */
  const respondWithError = (
    reply: FastifyReply,
    error: ErrorResponse & Pick<AuthorizationRequest, 'pushed'>,
    status: 302 | 303,
  ): FastifyReply => {
    const response = authorization.errorResponse(error);
    if (error.violation.asksOperator && !promptsOf(error).includes('none')) {
      const whom = { issuer: issuer(), contact: values.supportContact };
      return pages.send(reply.code(403), notAdmittedPage(error, response, whom));
    }
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
    record?: Effect,
  ) => {
    const previous = cookies.session.read(request);
    const source = requestSource(request);
    const { token, session } = await sessions.start(principal, previous, source, { amr, record });
    cookies.session.set(reply, token);
    return session;
  };

  /** The form has named what the application gets. */
  const rememberConsent = (
    { id }: Pick<Principal, 'id'>,
    { client, scope, targets }: AuthorizationRequest,
  ): Promise<Consent> => consents.remember(id, client.id, scope, scopesOf(targets));

  /** The interaction of a form that was rendered for this browser. @throws login_rejected, invalid_request */
  const resume = async (request: FastifyRequest, token: string): Promise<ResumedInteraction> => {
    if (request.headers['sec-fetch-site'] === 'cross-site') throw oidcErrors.login_rejected();
    const resumed = await authorization.resume(token, cookies.form.read(request));
    if (!resumed) throw oidcErrors.login_rejected();
    return resumed;
  };

  /** The response to an application for which this principal must not be authorized; null for every other one. */
  const refuse = (
    reply: FastifyReply,
    signInRequest: SignInRequest,
    principal: Principal,
  ): FastifyReply | null => {
    if ('returnTo' in signInRequest) return null;
    const violation = authorization.findViolation(signInRequest, principal);
    return violation && respondWithError(reply, { ...signInRequest, violation }, 303);
  };

  /** Starts the session of a person who has signed in, without a response. */
  const enter = async (
    request: FastifyRequest,
    reply: FastifyReply,
    signInRequest: SignInRequest,
    principal: Principal,
    amr?: readonly string[],
  ): Promise<void> => {
    const { ip } = requestSource(request);
    const detail = nameOf(signInRequest);
    const record = audit.entry({ event: 'login.succeeded', subject: principal.id, ip, detail });
    await Promise.all([
      startSession(request, reply, principal, amr, record),
      leadsToPage(signInRequest) || rememberConsent(principal, signInRequest),
    ]);
  };

  /**
   * The same, and continues to the application or the page. A form of an application names what it will see, so that the
   * password is the consent.
   */
  const complete = async (
    request: FastifyRequest,
    reply: FastifyReply,
    signInRequest: SignInRequest,
    principal: Principal,
    amr?: readonly string[],
  ): Promise<FastifyReply> => {
    if (leadsToPage(signInRequest)) {
      await enter(request, reply, signInRequest, principal, amr);
      return reply.redirect(continueHref(signInRequest, mountPath(issuer())), 303);
    }
    const { ip } = requestSource(request);
    const [session, consent] = await Promise.all([
      startSession(request, reply, principal, amr),
      rememberConsent(principal, signInRequest),
    ]);
    const approved = await authorization.approve(signInRequest, { principal, session, consent }, ip);
    return sendResponse(pages, reply, approved, 303);
  };

  return {
    resume,

    /**
     * What a form of sign-in or sign-up is for. `null` if the answer was sent: an error for the application, or the form again
     * with a new token after it was open for too long.
     * @throws login_rejected, invalid_request
     */
    async resumeSignIn(
      request: FastifyRequest,
      reply: FastifyReply,
      token: string,
      formOf: (signInRequest: SignInRequest, renewed: { token: string; problems: Localized[] }) => Page,
    ): Promise<{ signInRequest: SignInRequest; proven: ResumedInteraction['proven'] } | null> {
      const resumed = await resume(request, token);
      const found = signInRequestOf(resumed);
      if ('violation' in found) {
        respondWithError(reply, found, 303);
        return null;
      }
      if (!resumed.isExpired) return { signInRequest: found, proven: resumed.proven };
      const renewed = {
        token: beginForm(services, request, reply, found),
        problems: [message('sign-in.expired')],
      };
      pages.send(reply.code(403), formOf(found, renewed));
      return null;
    },

    respondWithError,

    /** Continues after the password: with the form for the second factor, if the person has one or must set one up. */
    async acceptPassword(
      request: FastifyRequest,
      reply: FastifyReply,
      signInRequest: SignInRequest,
      principal: Principal,
    ): Promise<FastifyReply> {
      const refused = refuse(reply, signInRequest, principal);
      if (refused) return refused;
      const { id, handle } = principal;
      const isEnrolled = (await secondFactor?.isEnrolled(id)) === true;
      if (!secondFactor || (!isEnrolled && !(await secondFactor.mustEnrol(principal))))
        return complete(request, reply, signInRequest, principal);
      if (!isEnrolled && (await secondFactor.awaitsConfirmation(principal, requestSource(request))))
        return pages.send(
          reply.code(403),
          signInPages.unconfirmed(signInRequest, addressOf(principal) ?? handle),
        );
      const { epoch } = principal;
      const proven = { id, ...(epoch !== undefined && { epoch }) };
      const token = beginForm(services, request, reply, signInRequest, { proven });
      if (isEnrolled) return pages.send(reply, signInPages.secondFactor(signInRequest, { token }));
      const enrolment = await secondFactor.begin(id, handle);
      return pages.send(reply, signInPages.secondFactorEnrolment(signInRequest, { token, enrolment }));
    },

    enter,

    /** Continues after a passkey. */
    async acceptPasskey(
      request: FastifyRequest,
      reply: FastifyReply,
      signInRequest: SignInRequest,
      principal: Principal,
    ): Promise<FastifyReply> {
      return (
        refuse(reply, signInRequest, principal) ??
        complete(request, reply, signInRequest, principal, AMR.passkey)
      );
    },

    complete,
  };
}

/** Whether a page of the provider follows: the one that was asked for, which decides who may use it, or that of a delegation or an approval. */
const leadsToPage = (
  signInRequest: SignInRequest,
): signInRequest is FirstPartyPage | (AuthorizationRequest & Required<AskedOnPage>) =>
  'returnTo' in signInRequest ||
  signInRequest.delegation !== undefined ||
  signInRequest.details !== undefined;

type AskedOnPage = Pick<AuthorizationRequest, 'delegation' | 'details'>;

function signInRequestOf(resumed: ResumedInteraction): SignInRequest | ErrorResponse {
  if ('returnTo' in resumed) return { returnTo: resumed.returnTo, name: resumed.name };
  const { validated } = resumed;
  return 'error' in validated ? validated.error : validated.request;
}
