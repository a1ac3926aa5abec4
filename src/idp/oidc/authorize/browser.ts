import type { FastifyReply, FastifyRequest } from 'fastify';
import { message } from '../../../core/http/messages.js';
import type { Page } from '../../../core/http/pages.js';
import { requestSource } from '../../../core/http/routes.js';
import { ANY_PERSON, findRefusal, NEW_PERSON } from '../admission.js';
import { type Consent, covers, NO_CONSENT } from '../consents.js';
import { delegationPage } from '../delegations/pages.js';
import { isPublicClient, type Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { scopesOf } from '../resources.js';
import type { OidcServices } from '../services.js';
import type { SignedInUser } from '../sessions.js';
import { beginForm } from './begin-form.js';
import {
  INTERACTION_ERRORS,
  type InteractionKind,
  needsSecondFactor,
  promptsOf,
  requiredInteraction,
} from './interaction.js';
import { MAX_TOKEN_LENGTH } from './interaction-token.js';
import { agentsOnlyPage, approvalPage, consentPage } from './pages.js';
import type { AuthorizationRequest } from './request.js';
import { sendResponse } from './response.js';
import { refusalViolation } from './service.js';
import type { InteractionForms } from './sign-in/forms.js';

/** What a browser gets for a request, whose credentials are its cookies. */
export type BrowserResponses = ReturnType<typeof createBrowserResponses>;

export function createBrowserResponses(services: OidcServices, forms: InteractionForms) {
  const { authorization, sessions, consents, cookies, pages, approvals, clock, issuer } = services;
  const { signInPages, isSignUpOpen, secondFactor, passkeys } = services;

  const canStepUp = async ({ id }: Principal): Promise<boolean> =>
    (await secondFactor?.isEnrolled(id)) === true || (await passkeys?.has(id)) === true;

  /** The page that the person must complete; `null` if none is required. */
  const interactionFor = async (
    authRequest: AuthorizationRequest,
    user: SignedInUser | null,
    consent: Consent,
  ): Promise<InteractionKind | null> => {
    const stepsUp = user !== null && needsSecondFactor(authRequest, user);
    return requiredInteraction(authRequest, user, {
      now: clock.now(),
      hasConsent:
        covers(consent, authRequest.scope, scopesOf(authRequest.targets)) && !canBeImpersonated(authRequest),
      canStepUp: stepsUp && (await canStepUp(user.principal)),
      mustSignIn:
        user !== null && authRequest.details !== undefined && (await approvals?.mustSignIn(user)) === true,
    });
  };

  /** The page on which a person allows an agent to act, or approves one action; undefined for other requests. */
  const askingPageOf = (
    authRequest: AuthorizationRequest,
    { principal: { handle } }: SignedInUser,
    token: string,
  ): Page | undefined => {
    const { details, targets, delegation } = authRequest;
    if (delegation) return delegationPage(authRequest, issuer(), { token, handle, now: clock.now() });
    const [target] = targets;
    return (
      details &&
      target &&
      approvalPage(authRequest, issuer(), { ...approvals?.viewOf(details, target), target, handle, token })
    );
  };

  async function sendPage(
    kind: InteractionKind,
    authRequest: AuthorizationRequest,
    user: SignedInUser | null,
    consent: Consent,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    if (kind === 'sign-up' && !isSignUpOpen) {
      return pages.send(reply.code(403), signInPages.signUpClosed(authRequest));
    }
    const boundTo =
      kind === 'consent' && user ? { sid: user.session.id, revocations: consent.revocations } : undefined;
    const token = beginForm(services, request, reply, authRequest, boundTo);
    if (token.length > MAX_TOKEN_LENGTH) throw oidcErrors.uri_too_long();
    const asking = kind === 'consent' && user && askingPageOf(authRequest, user, token);
    if (asking) return pages.send(reply, asking);
    if (kind === 'consent' && user) {
      const { handle } = user.principal;
      return pages.send(reply, consentPage(authRequest, issuer(), { token, handle, consent }));
    }
    const { login_hint: handle = '' } = authRequest.parameters;
    const problems = user && authRequest.details ? [message('approval.sign-in')] : [];
    const form = { token, handle, problems };
    return pages.send(
      reply,
      kind === 'sign-up' ? signInPages.signUp(authRequest, form) : signInPages.signIn(authRequest, form),
    );
  }

  return {
    interactionFor,
    askingPageOf,

    /** Responds with a code, a page, or an error for `prompt=none`. */
    async respond(
      authRequest: AuthorizationRequest,
      request: FastifyRequest,
      reply: FastifyReply,
    ): Promise<FastifyReply> {
      const user = await sessions.find(cookies.session.read(request));
      const consent = user ? await consents.find(user.principal.id, authRequest.client.id) : NO_CONSENT;
      const redirectStatus = request.method === 'POST' ? 303 : 302;
      const required = await interactionFor(authRequest, user, consent);
      if (user && !required) {
        const violation = authorization.findViolation(authRequest, user.principal);
        if (violation) return forms.respondWithError(reply, { ...authRequest, violation }, redirectStatus);
        const { ip } = requestSource(request);
        const approved = await authorization.approve(authRequest, { ...user, consent, isSilent: true }, ip);
        return sendResponse(pages, reply, approved, redirectStatus);
      }
      const kind = required ?? 'login';
      if (promptsOf(authRequest).includes('none')) {
        const violation = INTERACTION_ERRORS[kind === 'consent' ? 'consent' : 'login'];
        return forms.respondWithError(reply, { ...authRequest, violation }, redirectStatus);
      }
      const { client } = authRequest;
      const agentsOnly = findRefusal({ client }, ANY_PERSON);
      if (agentsOnly) {
        const violation = refusalViolation(agentsOnly);
        const response = authorization.errorResponse({ ...authRequest, violation });
        return pages.send(reply.code(403), agentsOnlyPage(authRequest, response));
      }
      const refusal = findRefusal(authRequest, kind === 'sign-up' ? NEW_PERSON : ANY_PERSON);
      if (refusal) {
        const violation = refusalViolation(refusal);
        return forms.respondWithError(reply, { ...authRequest, violation }, redirectStatus);
      }
      return sendPage(kind, authRequest, user, consent, request, reply);
    },
  };
}

/**
 * Any program on the device can present the identifier of a public client and receive its code, so that the person is asked
 * each time (RFC 8252 §8.6).
 */
const canBeImpersonated = ({ client, redirectUri }: AuthorizationRequest): boolean =>
  client.origin !== undefined && isPublicClient(client) && !redirectUri.startsWith('https:');
