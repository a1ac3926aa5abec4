import type { FastifyReply, FastifyRequest } from 'fastify';
import { parseBasic } from '../../http/authorization.js';
import { isBrowser } from '../../http/browser.js';
import { message } from '../../http/messages.js';
import type { Page, Pages } from '../../http/pages.js';
import { access, originOf, type Scope } from '../../http/scope.js';
import type { Clock } from '../../kernel/clock.js';
import type { AppError } from '../../kernel/errors.js';
import type { Audit } from '../../ops/audit.js';
import { type Consent, type ConsentService, covers } from '../consents.js';
import {
  type Directory,
  isPublicClient,
  type PasskeySignUp,
  type Principal,
  type SecondFactor,
  type SignInPasskeys,
  type SignUp,
} from '../directory.js';
import { oidcErrors } from '../errors.js';
import { findRefusal, scopesOf } from '../resources.js';
import { AnyForm, ConsentBody, LoginBody, type LoginForm } from '../schemas.js';
import { type Cookies, mountPath, type SessionService, type SignedInUser } from '../sessions.js';
import { createInteractionForms } from './forms.js';
import {
  INTERACTION_ERRORS,
  type InteractionKind,
  needsSecondFactor,
  promptsOf,
  requiredInteraction,
} from './interaction.js';
import { MAX_TOKEN_LENGTH } from './interaction-token.js';
import { agentsOnlyPage, consentPage, type SignInPages } from './pages.js';
import { passkeyPlugin } from './passkey.js';
import { passkeySignUpPlugin } from './passkey-sign-up.js';
import type { PushedAuthorization } from './pushed.js';
import { type AuthorizationRequest, isParameter, REQUEST_URI, readParameters } from './request.js';
import { type AuthorizationResponse, sendResponse } from './response.js';
import { secondFactorPlugin } from './second-factor.js';
import { type Authorization, WRONG_KIND } from './service.js';
import { signUpPlugin } from './sign-up.js';

export interface AuthorizePluginOptions {
  authorization: Authorization;
  directory: Directory;
  sessions: SessionService;
  consents: ConsentService;
  cookies: Cookies;
  pages: Pages;
  audit: Audit;
  issuer(): string;
  clock: Clock;
  /** Counts a request of an address block. Returns an error if it exceeds the limit. */
  meter(ip: string): AppError | undefined;
  /** Requests that clients have pushed. */
  pushed(): Promise<PushedAuthorization>;
  /** Whether users may use HTTP Basic as agents do. */
  humansUseBasic: boolean;
  signInPages: SignInPages;
  isSignUpOpen: boolean;
  signUp: SignUp;
  /** Absent if it is not configured. */
  secondFactor: SecondFactor | undefined;
  /** Absent if they are not configured. */
  passkeys: SignInPasskeys | undefined;
  /** Absent if passkeys are not configured. */
  passkeySignUp: PasskeySignUp | undefined;
}

/** Longest request target; the form contains its parameters. */
const MAX_URL_BYTES = 8 * 1024;

/** The authorization endpoint: agents authenticate in the request itself, users in a form, once for all clients. */
export async function authorizePlugin(scope: Scope, options: AuthorizePluginOptions): Promise<void> {
  const { authorization, directory, sessions, consents, cookies, pages, audit, issuer, humansUseBasic } =
    options;
  const { signInPages, isSignUpOpen } = options;
  const forms = createInteractionForms(options);
  const { resume, resumeSignIn, respondWithError, acceptPassword } = forms;
  const { secondFactor, passkeys, passkeySignUp } = options;
  const config = access('public', { page: true });
  // Many agents may share an address, so only their failures count (see `approveBasic`).
  const hasCredentials = ({ headers }: FastifyRequest) => headers.authorization !== undefined;
  const authorizeConfig = access('public', { page: true, unmetered: hasCredentials });

  scope.addHook('onRequest', (_request, reply, done) => {
    reply.header('vary', 'Authorization, Cookie, Accept, Accept-Language');
    done();
  });

  // No HEAD route: it would run the handler and create a code.
  scope.get('/authorize', { config: authorizeConfig, exposeHeadRoute: false }, async (request, reply) => {
    if (request.url.length > MAX_URL_BYTES) throw oidcErrors.uri_too_long();
    const given = readParameters(queryOf(request.url));
    const { client_id: clientId, request_uri: requestUri = '' } = given;
    // The other parameters are ignored (RFC 9126 §4).
    const parameters = requestUri.startsWith(REQUEST_URI)
      ? await (await options.pushed()).take(clientId, requestUri)
      : given;
    const validated = await authorization.validate(parameters, originOf(request).ip);
    if ('error' in validated) return respondWithError(reply, validated.error, 302);
    if (request.headers.authorization !== undefined) {
      return sendResponse(pages, reply, await approveBasic(validated.request, request), 302);
    }
    return respondToBrowser(validated.request, request, reply);
  });

  // Browsers send no cookie with a cross-site POST, so it is redirected to the same request with GET.
  scope.post('/authorize', { config, schema: { body: AnyForm } }, async (request, reply) => {
    const search = new URLSearchParams();
    for (const [name, values] of Object.entries(request.body)) {
      // URLs are kept in histories and logs, so unsupported fields are left out.
      if (!isParameter(name)) continue;
      for (const value of [values].flat()) search.append(name, value);
    }
    return reply.redirect(`${mountPath(issuer())}/authorize?${search}`, 303);
  });

  scope.post('/authorize/login', { config, schema: { body: LoginBody } }, async (request, reply) => {
    const { interaction: token, handle } = request.body;
    const resumed = await resumeSignIn(request, token);
    if ('error' in resumed) return respondWithError(reply, resumed.error, 303);
    const { purpose, isExpired } = resumed;
    if (isExpired) {
      return forms.renew(request, reply, purpose, (renewed) =>
        signInPages.signIn(purpose, { ...renewed, handle }),
      );
    }
    pages.keepForm(request, signInPages.signIn(purpose, { token, handle }));
    const principal = await signInByForm(request);
    if (principal) return acceptPassword(request, reply, purpose, principal);
    const form = signInPages.signIn(purpose, { token, handle, problems: WRONG, wrong: true });
    return pages.send(reply.code(401), form);
  });

  await signUpPlugin(scope, { ...options, forms });
  if (secondFactor) await scope.register(secondFactorPlugin, { ...options, secondFactor, forms });
  if (passkeys) await scope.register(passkeyPlugin, { ...options, passkeys, forms });
  if (passkeySignUp) await scope.register(passkeySignUpPlugin, { ...options, passkeySignUp, forms });

  scope.post('/authorize/consent', { config, schema: { body: ConsentBody } }, async (request, reply) => {
    const { interaction: token, decision } = request.body;
    const resumed = await resume(request, token);
    if ('returnTo' in resumed) throw oidcErrors.login_rejected();
    const { validated, shownTo } = resumed;
    if ('error' in validated) return respondWithError(reply, validated.error, 303);
    const { request: authRequest } = validated;
    if (decision === 'deny') {
      return respondWithError(reply, { ...authRequest, violation: DENIED }, 303);
    }
    const user = await sessions.find(cookies.session.read(request));
    const known = user ? await consents.find(user.principal.id, authRequest.client.id) : NO_CONSENT;
    // The user signed out, another one signed in, the session became too old, or what the page did not ask for again was
    // revoked meanwhile: the request starts again.
    if (
      !user ||
      user.session.id !== shownTo.sid ||
      known.revocations !== shownTo.revocations ||
      (await interactionFor(authRequest, user, NO_CONSENT)) === 'login'
    ) {
      return respondToBrowser(authRequest, request, reply);
    }
    if (authRequest.delegation) {
      pages.keepForm(request, await delegationPageOf(authRequest, user, token));
      return sendResponse(pages, reply, await delegate(authRequest, user, known, request), 303);
    }
    const { handle } = user.principal;
    pages.keepForm(request, consentPage(authRequest, issuer(), { token, handle, consent: known }));
    const { client, scope: scopes, targets } = authRequest;
    const consent = await consents.remember(user.principal.id, client.id, scopes, scopesOf(targets));
    return sendResponse(pages, reply, await approveUser(authRequest, user, consent, request), 303);
  });

  /** The human with the credentials of the form. */
  function signInByForm(request: FastifyRequest<{ Body: LoginForm }>): Promise<Principal | null> {
    const { handle, password } = request.body;
    // Handles contain no spaces, but keyboards with autocompletion append one.
    const credentials = { username: handle.trim(), password };
    // Agents are rejected like a wrong password, so that stolen agent credentials cannot start a browser session.
    return signIn(request, credentials, ({ kind }) => kind === 'human');
  }

  async function interactionFor(
    authRequest: AuthorizationRequest,
    user: SignedInUser | null,
    consent: Consent,
  ): Promise<InteractionKind | null> {
    const stepsUp = user !== null && needsSecondFactor(authRequest, user);
    return requiredInteraction(authRequest, user, {
      now: options.clock.now(),
      hasConsent:
        covers(consent, authRequest.scope, scopesOf(authRequest.targets)) && !canBeImpersonated(authRequest),
      canStepUp: stepsUp && (await canStepUp(user.principal)),
    });
  }

  const canStepUp = async ({ id }: Principal): Promise<boolean> =>
    (await secondFactor?.isEnrolled(id)) === true || (await passkeys?.has(id)) === true;

  /** Responds to a request without credentials: with a code, a page, or an error for `prompt=none`. */
  async function respondToBrowser(
    authRequest: AuthorizationRequest,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const user = await sessions.find(cookies.session.read(request));
    const consent = user ? await consents.find(user.principal.id, authRequest.client.id) : NO_CONSENT;
    const redirectStatus = request.method === 'POST' ? 303 : 302;
    const required = await interactionFor(authRequest, user, consent);
    if (user && !required) {
      return sendResponse(
        pages,
        reply,
        await approveUser(authRequest, user, consent, request),
        redirectStatus,
      );
    }
    const kind = required ?? 'login';
    if (promptsOf(authRequest).includes('none')) {
      const violation = INTERACTION_ERRORS[kind === 'consent' ? 'consent' : 'login'];
      return respondWithError(reply, { ...authRequest, violation }, redirectStatus);
    }
    if (!authRequest.client.principalKinds.includes('human')) {
      const response = authorization.errorResponse({ ...authRequest, violation: WRONG_KIND });
      return pages.send(reply.code(403), agentsOnlyPage(authRequest, response));
    }
    const refusal = findRefusal(authRequest.targets, 'human');
    if (refusal !== null) {
      const violation = { error: 'access_denied', description: refusal };
      return respondWithError(reply, { ...authRequest, violation }, redirectStatus);
    }
    return sendPage(kind, authRequest, user, consent, request, reply);
  }

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
    const shownTo =
      kind === 'consent' && user ? { sid: user.session.id, revocations: consent.revocations } : undefined;
    const present = cookies.form.read(request);
    const { token, cookie } = authorization.beginInteraction(authRequest, present, shownTo);
    if (cookie !== present) cookies.form.set(reply, cookie);
    if (token.length > MAX_TOKEN_LENGTH) throw oidcErrors.uri_too_long();
    if (kind === 'consent' && user && authRequest.delegation) {
      return pages.send(reply, await delegationPageOf(authRequest, user, token));
    }
    if (kind === 'consent' && user) {
      const { handle } = user.principal;
      return pages.send(reply, consentPage(authRequest, issuer(), { token, handle, consent }));
    }
    const { login_hint: handle = '' } = authRequest.parameters;
    const form = { token, handle };
    return pages.send(
      reply,
      kind === 'sign-up' ? signInPages.signUp(authRequest, form) : signInPages.signIn(authRequest, form),
    );
  }

  async function approveUser(
    authRequest: AuthorizationRequest,
    { principal, session }: SignedInUser,
    consent: Consent,
    request: FastifyRequest,
  ): Promise<AuthorizationResponse> {
    await sessions.extend(session);
    const { revocations } = await connectIfUnasked(authRequest, principal, consent);
    const authentication = { principal, session, revocations, isSilent: true };
    return authorization.approve(authRequest, authentication, originOf(request).ip);
  }

  /** After the person has allowed it on its page. */
  async function delegate(
    authRequest: AuthorizationRequest,
    { principal, session }: SignedInUser,
    { revocations }: Consent,
    request: FastifyRequest,
  ): Promise<AuthorizationResponse> {
    await sessions.extend(session);
    const authentication = { principal, session, revocations, isSilent: true, delegates: true };
    return authorization.approve(authRequest, authentication, originOf(request).ip);
  }

  async function delegationPageOf(
    authRequest: AuthorizationRequest,
    { principal: { handle } }: SignedInUser,
    token: string,
  ): Promise<Page> {
    const { delegationPage } = await import('../delegations/pages.js');
    return delegationPage(authRequest, issuer(), { token, handle, now: options.clock.now() });
  }

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

  /** The principal with these credentials, if it is accepted; else `null`, after a record in the audit log. */
  async function signIn(
    request: FastifyRequest,
    credentials: { username: string; password: string } | null,
    accepts: (principal: Principal) => boolean,
  ): Promise<Principal | null> {
    const origin = originOf(request);
    let rejected: string | undefined;
    const checkAccepted = (principal: Principal): boolean => {
      const isAccepted = accepts(principal);
      if (!isAccepted) rejected = principal.id;
      return isAccepted;
    };
    const principal =
      credentials &&
      (await directory.authenticate(credentials.username, credentials.password, origin, checkAccepted));
    if (!principal) {
      await audit.recordFailure({
        event: 'login.failed',
        ip: origin.ip,
        ...(rejected && { subject: rejected }),
      });
    }
    return principal;
  }

  /** Authenticates in the request itself. @throws browser_basic, invalid_credentials */
  async function approveBasic(
    authRequest: AuthorizationRequest,
    request: FastifyRequest,
  ): Promise<AuthorizationResponse> {
    // The form cookie is not checked: programs that store cookies have it after a redirect from an application.
    const isSignedIn = cookies.session.read(request) !== undefined;
    if (isBrowser(request.headers) || isSignedIn) throw oidcErrors.browser_basic();
    const credentials = parseBasic(request.headers.authorization ?? '');
    const mayUseBasic = ({ kind }: Principal) => kind === 'agent' || humansUseBasic;
    const principal = await signIn(request, credentials, mayUseBasic);
    // A person with a second factor, or who must have one, is refused like a wrong password: Basic cannot ask for it.
    const lacksFactor =
      principal?.kind === 'human' &&
      ((await secondFactor?.isEnrolled(principal.id)) || (await secondFactor?.mustEnrol(principal))) === true;
    if (principal && !lacksFactor) {
      const found =
        principal.kind === 'human' ? await consents.find(principal.id, authRequest.client.id) : NO_CONSENT;
      const { revocations } = await connectIfUnasked(authRequest, principal, found);
      return authorization.approve(authRequest, { principal, revocations }, originOf(request).ip);
    }
    const excess = options.meter(originOf(request).ip);
    if (excess) throw excess;
    throw oidcErrors.invalid_credentials({
      headers: { 'www-authenticate': 'Basic realm="idp", charset="UTF-8"' },
    });
  }
}

const NO_CONSENT: Consent = { scopes: [], resources: [], revocations: 0, isConnected: false };

const WRONG = [message('sign-in.wrong')];

/**
 * Any program on the device can present the identifier of a public client and receive its code, so that the person is asked
 * each time (RFC 8252 §8.6).
 */
const canBeImpersonated = ({ client, redirectUri }: AuthorizationRequest): boolean =>
  client.origin !== undefined && isPublicClient(client) && !redirectUri.startsWith('https:');

const DENIED = { error: 'access_denied', description: 'The user denied the request.' };

const queryOf = (url: string): URLSearchParams =>
  new URLSearchParams(url.includes('?') ? url.slice(url.indexOf('?')) : '');
