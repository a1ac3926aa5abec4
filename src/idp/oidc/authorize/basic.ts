import type { FastifyRequest } from 'fastify';
import { parseBasic } from '../../../core/http/authorization.js';
import { isBrowser } from '../../../core/http/browser.js';
import { originOf } from '../../../core/http/scope.js';
import type { AppError } from '../../../core/kernel/errors.js';
import { type ConsentService, NO_CONSENT } from '../consents.js';
import type { Principal, SecondFactor } from '../directory.js';
import { oidcErrors } from '../errors.js';
import type { Cookies } from '../sessions.js';
import type { Approval } from './approval.js';
import type { AuthorizationRequest } from './request.js';
import type { AuthorizationResponse } from './response.js';
import { type CredentialsOptions, createCredentialsCheck } from './sign-in/credentials.js';

export interface BasicOptions extends CredentialsOptions {
  approval: Pick<Approval, 'approveBasic'>;
  consents: Pick<ConsentService, 'find'>;
  cookies: Cookies;
  /** Absent if it is not configured. */
  secondFactor: Pick<SecondFactor, 'isEnrolled' | 'mustEnrol'> | undefined;
  /** Whether users may use HTTP Basic as agents do. */
  humansUseBasic: boolean;
  /** Counts a request of an address block. Returns an error if it exceeds the limit. */
  meter(ip: string): AppError | undefined;
}

/** Authenticates in the request itself. @throws browser_basic, invalid_credentials */
export type ApproveBasic = (
  authRequest: AuthorizationRequest,
  request: FastifyRequest,
) => Promise<AuthorizationResponse>;

export function createBasic(options: BasicOptions): ApproveBasic {
  const { approval, consents, cookies, secondFactor, humansUseBasic } = options;
  const checkCredentials = createCredentialsCheck(options);

  return async (authRequest, request) => {
    // The form cookie is not checked: programs that store cookies have it after a redirect from an application.
    const isSignedIn = cookies.session.read(request) !== undefined;
    if (isBrowser(request.headers) || isSignedIn) throw oidcErrors.browser_basic();
    const credentials = parseBasic(request.headers.authorization ?? '');
    const { client } = authRequest;
    const mayUseBasic = ({ kind }: Principal) => kind === 'agent' || (humansUseBasic && !client.strict);
    const principal = await checkCredentials(request, credentials, mayUseBasic, client.id);
    // A person with a second factor, or who must have one, is refused like a wrong password: Basic cannot ask for it.
    const lacksFactor =
      principal?.kind === 'human' &&
      ((await secondFactor?.isEnrolled(principal.id)) || (await secondFactor?.mustEnrol(principal))) === true;
    if (principal && !lacksFactor) {
      const found = principal.kind === 'human' ? await consents.find(principal.id, client.id) : NO_CONSENT;
      return approval.approveBasic(authRequest, principal, found, request);
    }
    const excess = options.meter(originOf(request).ip);
    if (excess) throw excess;
    throw oidcErrors.invalid_credentials({
      headers: { 'www-authenticate': 'Basic realm="idp", charset="UTF-8"' },
    });
  };
}
