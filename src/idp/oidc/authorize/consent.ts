import { access, type FastifyTypebox, requestSource } from '../../../core/http/routes.js';
import { NO_CONSENT } from '../consents.js';
import { oidcErrors } from '../errors.js';
import { scopesOf } from '../resources.js';
import { ConsentBody } from '../schemas.js';
import type { BrowserResponses } from './browser.js';
import { consentPage } from './pages.js';
import { sendResponse } from './response.js';
import type { SignInServices } from './sign-in/forms.js';

/** The decision of a person what an application, or an agent, may have. */
export async function consentPlugin(
  fastify: FastifyTypebox,
  services: SignInServices & { browser: BrowserResponses },
): Promise<void> {
  const { forms, browser, authorization, sessions, consents, cookies, pages, issuer } = services;
  const config = access('public', { page: true });

  fastify.post('/authorize/consent', { config, schema: { body: ConsentBody } }, async (request, reply) => {
    const { interaction: token, decision } = request.body;
    const resumed = await forms.resume(request, token);
    if ('returnTo' in resumed) throw oidcErrors.login_rejected();
    const { validated, boundTo } = resumed;
    if ('error' in validated) return forms.respondWithError(reply, validated.error, 303);
    const { request: authRequest } = validated;
    if (decision === 'deny') {
      return forms.respondWithError(reply, { ...authRequest, violation: DENIED }, 303);
    }
    const user = await sessions.find(cookies.session.read(request));
    const known = user ? await consents.find(user.principal.id, authRequest.client.id) : NO_CONSENT;
    // The user signed out, another one signed in, the session became too old, or what the page did not ask for again was
    // revoked meanwhile: the request starts again.
    if (
      !user ||
      user.session.id !== boundTo.sid ||
      known.revocations !== boundTo.revocations ||
      (await browser.interactionFor(authRequest, user, NO_CONSENT)) === 'login'
    ) {
      return browser.respond(authRequest, request, reply);
    }
    const { ip } = requestSource(request);
    const asking = browser.askingPageOf(authRequest, user, token);
    if (asking) {
      pages.keepForm(request, asking);
      const authentication = { ...user, consent: known, isSilent: true, wasAsked: true };
      const approved = await authorization.approve(authRequest, authentication, ip);
      return sendResponse(pages, reply, approved, 303);
    }
    const { handle } = user.principal;
    pages.keepForm(request, consentPage(authRequest, issuer(), { token, handle, consent: known }));
    const { client, scope: scopes, targets } = authRequest;
    const consent = await consents.remember(user.principal.id, client.id, scopes, scopesOf(targets));
    const approved = await authorization.approve(authRequest, { ...user, consent, isSilent: true }, ip);
    return sendResponse(pages, reply, approved, 303);
  });
}

const DENIED = { error: 'access_denied', description: 'The user denied the request.' };
