import type { FastifyReply, FastifyRequest } from 'fastify';
import { parseBasic } from '../../http/authorization.js';
import { isBrowser } from '../../http/browser.js';
import type { Pages } from '../../http/pages.js';
import { access, originOf, type Scope } from '../../http/scope.js';
import type { Clock } from '../../kernel/clock.js';
import type { AppError } from '../../kernel/errors.js';
import type { Audit } from '../../ops/audit.js';
import type { ConsentService } from '../consents.js';
import { type Cookies, mountPath } from '../cookies.js';
import { oidcErrors } from '../errors.js';
import type { Directory, Principal } from '../model.js';
import { AnyForm, ConsentBody, LoginBody } from '../schemas.js';
import type { SessionService, Visitor } from '../sessions.js';
import { FORBIDDEN_PAGES, type Interaction, neededInteraction, promptsOf } from './interaction.js';
import { MAX_TOKEN_LENGTH } from './interaction-token.js';
import { showConsent, showSignIn } from './pages.js';
import { type AuthorizationRequest, isParameter, readParameters } from './request.js';
import type { Authorization, Resumed } from './service.js';

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
  /** Counts a request of an address block; returns the refusal when there were too many. */
  meter(ip: string): AppError | undefined;
  /** Whether people may use HTTP Basic, too. */
  humansUseBasic: boolean;
}

/** Longest request target in bytes; the form carries its parameters. */
const MOST_ADDRESS = 8 * 1024;

/** The authorization endpoint: agents authenticate in the request itself, people in a form, once for all applications. */
export async function authorizePlugin(scope: Scope, options: AuthorizePluginOptions): Promise<void> {
  const { authorization, directory, sessions, consents, cookies, pages, audit, issuer, humansUseBasic } =
    options;
  const config = access('public', { page: true });
  // A fleet of agents may share an address: only their failures count (see `approveBasic`).
  const hasCredentials = ({ headers }: FastifyRequest) => headers.authorization !== undefined;
  const authorizeConfig = access('public', { page: true, unmetered: hasCredentials });

  scope.addHook('onRequest', (_request, reply, done) => {
    reply.header('vary', 'Authorization, Cookie, Accept');
    done();
  });

  // No HEAD: it would run the handler and mint a code.
  scope.get('/authorize', { config: authorizeConfig, exposeHeadRoute: false }, async (request, reply) => {
    if (request.url.length > MOST_ADDRESS) throw oidcErrors.uri_too_long();
    const judged = await authorization.judge(readParameters(queryOf(request.url)));
    if ('refusal' in judged) return reply.redirect(authorization.refuse(judged.refusal), 302);
    if (request.headers.authorization !== undefined) {
      return reply.redirect(await approveBasic(judged.request, request), 302);
    }
    return answerBrowser(judged.request, request, reply);
  });

  // A cross-site POST arrives without our cookie, so it becomes the same request by GET.
  scope.post('/authorize', { config, schema: { body: AnyForm } }, async (request, reply) => {
    const search = new URLSearchParams();
    for (const [name, values] of Object.entries(request.body)) {
      // An address is kept in histories and logs: nothing gets into it that nobody asks for.
      if (!isParameter(name)) continue;
      for (const value of [values].flat()) search.append(name, value);
    }
    return reply.redirect(`${mountPath(issuer())}/authorize?${search}`, 303);
  });

  scope.post('/authorize/login', { config, schema: { body: LoginBody } }, async (request, reply) => {
    const { interaction: token, handle, password } = request.body;
    const { judged } = await resume(request, token);
    if ('refusal' in judged) return reply.redirect(authorization.refuse(judged.refusal), 303);
    // An agent fails here exactly as a wrong password does: no stolen credential of one opens a browser.
    // No handle has spaces, but keyboards put one behind what they complete.
    const credentials = { username: handle.trim(), password };
    const principal = await signIn(request, credentials, ({ kind }) => kind === 'human');
    if (!principal)
      return showSignIn(pages, reply.code(401), judged.request, issuer(), { token, handle, problems: WRONG });
    const violation = authorization.objection(judged.request, principal);
    if (violation) return reply.redirect(authorization.refuse({ ...judged.request, violation }), 303);
    const [{ token: cookie, session }] = await Promise.all([
      sessions.begin(principal, cookies.session.of(request)),
      consents.remember(principal.id, judged.request.client.id, judged.request.scope),
    ]);
    cookies.session.set(reply, cookie);
    const { ip } = originOf(request);
    return reply.redirect(await authorization.approve(judged.request, { principal, session }, ip), 303);
  });

  scope.post('/authorize/consent', { config, schema: { body: ConsentBody } }, async (request, reply) => {
    const { interaction: token, decision } = request.body;
    const { judged, sid } = await resume(request, token);
    if ('refusal' in judged) return reply.redirect(authorization.refuse(judged.refusal), 303);
    if (decision === 'deny') {
      return reply.redirect(authorization.refuse({ ...judged.request, violation: DENIED }), 303);
    }
    const visitor = await sessions.find(cookies.session.of(request));
    // Whoever was asked has signed out meanwhile, is somebody else by now or has waited too long: from the beginning.
    if (!visitor || visitor.session.id !== sid || (await neededOf(judged.request, visitor)) === 'login') {
      return answerBrowser(judged.request, request, reply);
    }
    await consents.remember(visitor.principal.id, judged.request.client.id, judged.request.scope);
    return reply.redirect(await approveVisitor(judged.request, visitor, request), 303);
  });

  const neededOf = (judged: AuthorizationRequest, visitor: Visitor | null): Promise<Interaction | null> =>
    neededInteraction(judged, visitor, {
      now: options.clock.now(),
      hasConsent: ({ principal }) => consents.covers(principal.id, judged.client.id, judged.scope),
    });

  /** Without credentials in the request: silently, by a page, or not at all. */
  async function answerBrowser(
    judged: AuthorizationRequest,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const visitor = await sessions.find(cookies.session.of(request));
    const redirection = request.method === 'POST' ? 303 : 302;
    const needed = await neededOf(judged, visitor);
    if (visitor && !needed)
      return reply.redirect(await approveVisitor(judged, visitor, request), redirection);
    const page = needed ?? 'login';
    if (promptsOf(judged).includes('none')) {
      const violation = FORBIDDEN_PAGES[page];
      return reply.redirect(authorization.refuse({ ...judged, violation }), redirection);
    }
    return showPage(page, judged, visitor, request, reply);
  }

  async function showPage(
    page: Interaction,
    judged: AuthorizationRequest,
    visitor: Visitor | null,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const sid = page === 'consent' ? visitor?.session.id : undefined;
    const begun = authorization.beginInteraction(judged, cookies.form.of(request), sid);
    cookies.form.set(reply, begun.cookie);
    const { token } = begun;
    if (token.length > MAX_TOKEN_LENGTH) throw oidcErrors.uri_too_long();
    if (page === 'consent' && visitor) return showConsent(pages, reply, judged, issuer(), { token, visitor });
    return showSignIn(pages, reply, judged, issuer(), {
      token,
      handle: judged.parameters['login_hint'] ?? '',
    });
  }

  /** What a form was shown for, if it was shown to this browser. @throws login_rejected, invalid_request */
  async function resume(request: FastifyRequest, token: string): Promise<Resumed> {
    if (request.headers['sec-fetch-site'] === 'cross-site') throw oidcErrors.login_rejected();
    const resumed = await authorization.resume(token, cookies.form.of(request));
    if (!resumed) throw oidcErrors.login_rejected();
    return resumed;
  }

  async function approveVisitor(
    judged: AuthorizationRequest,
    { principal, session }: Visitor,
    request: FastifyRequest,
  ): Promise<string> {
    await sessions.prolong(session);
    const who = { principal, session, isSilent: true };
    return authorization.approve(judged, who, originOf(request).ip);
  }

  /** Who has these credentials and may use them in this way; else `null`, of which the audit knows more. */
  async function signIn(
    request: FastifyRequest,
    credentials: { username: string; password: string } | null,
    accepts: (principal: Principal) => boolean,
  ): Promise<Principal | null> {
    const origin = originOf(request);
    let rejected: string | undefined;
    const judge = (principal: Principal): boolean => {
      const isAccepted = accepts(principal);
      if (!isAccepted) rejected = principal.id;
      return isAccepted;
    };
    const principal =
      credentials &&
      (await directory.authenticate(credentials.username, credentials.password, origin, judge));
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
  async function approveBasic(judged: AuthorizationRequest, request: FastifyRequest): Promise<string> {
    // Not the cookie of the form, which every program that keeps cookies has once an application has sent it here.
    const isSignedIn = cookies.session.of(request) !== undefined;
    if (isBrowser(request.headers) || isSignedIn) throw oidcErrors.browser_basic();
    const credentials = parseBasic(request.headers.authorization ?? '');
    const mayUseBasic = ({ kind }: Principal) => kind === 'agent' || humansUseBasic;
    const principal = await signIn(request, credentials, mayUseBasic);
    if (principal) return authorization.approve(judged, { principal }, originOf(request).ip);
    const excess = options.meter(originOf(request).ip);
    if (excess) throw excess;
    throw oidcErrors.invalid_credentials({
      headers: { 'www-authenticate': 'Basic realm="idp", charset="UTF-8"' },
    });
  }
}

const WRONG = ['The user name or password is incorrect.'];

const DENIED = { error: 'access_denied', description: 'The user denied the request.' };

const queryOf = (url: string): URLSearchParams =>
  new URLSearchParams(url.includes('?') ? url.slice(url.indexOf('?')) : '');
