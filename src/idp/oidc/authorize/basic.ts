import type { FastifyRequest } from 'fastify';
import { parseBasic } from '../../../core/http/authorization.js';
import { isBrowser } from '../../../core/http/browser.js';
import { requestSource } from '../../../core/http/routes.js';
import { NO_CONSENT } from '../consents.js';
import type { Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import type { OidcServices } from '../services.js';
import type { AuthorizationRequest } from './request.js';
import type { AuthorizationResponse } from './response.js';
import { checkCredentials } from './sign-in/credentials.js';

/** Authenticates in the request itself. @throws browser_basic, invalid_credentials */
export async function approveBasic(
  services: OidcServices,
  authRequest: AuthorizationRequest,
  request: FastifyRequest,
): Promise<AuthorizationResponse> {
  const { authorization, consents, cookies, secondFactor, values, throttle } = services;
  const { ip } = requestSource(request);
  // The form cookie is not checked: programs that store cookies have it after a redirect from an application.
  const isSignedIn = cookies.session.read(request) !== undefined;
  if (isBrowser(request.headers) || isSignedIn) throw oidcErrors.browser_basic();
  const credentials = parseBasic(request.headers.authorization ?? '');
  const { client } = authRequest;
  const mayUseBasic = ({ kind }: Pick<Principal, 'kind'>) =>
    kind === 'agent' || (values.basicLogin === 'all' && !client.strict);
  const principal = await checkCredentials(services, request, credentials, mayUseBasic, client.id);
  // A person with a second factor, or who must have one, is refused like a wrong password: Basic cannot ask for it.
  const lacksFactor =
    principal?.kind === 'human' &&
    ((await secondFactor?.isEnrolled(principal.id)) || (await secondFactor?.mustEnrol(principal))) === true;
  if (principal && !lacksFactor) {
    const consent = principal.kind === 'human' ? await consents.find(principal.id, client.id) : NO_CONSENT;
    return authorization.approve(authRequest, { principal, consent }, ip);
  }
  const excess = throttle.countRequest(ip);
  if (excess) throw excess;
  throw oidcErrors.invalid_credentials({
    headers: { 'www-authenticate': 'Basic realm="idp", charset="UTF-8"' },
  });
}
