import { parse, serialize } from 'cookie';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { parseBasic } from '../../kernel/authorization.js';
import { isBrowser } from '../../kernel/browser.js';
import { access, originOf, type Scope } from '../../kernel/http.js';
import { renderPage, sendPage } from '../../kernel/pages.js';
import type { Audit } from '../../ops/audit.js';
import { oidcErrors } from '../errors.js';
import type { Directory, Principal } from '../model.js';
import { AuthorizeBody, LoginBody } from '../schemas.js';
import { formTarget } from './redirect-uri.js';
import { type AuthorizationRequest, isParameter, readParameters } from './request.js';
import type { Authorization } from './service.js';

export interface AuthorizePluginOptions {
  authorization: Authorization;
  directory: Directory;
  audit: Audit;
  issuer(): string;
  /** Whether people may use HTTP Basic, too. */
  humansUseBasic: boolean;
}

/** Bytes of an address; what it says is stored with the form. */
const MOST_ADDRESS = 8 * 1024;

/** The authorization endpoint: agents authenticate in the request itself, people in a form. */
export async function authorizePlugin(scope: Scope, options: AuthorizePluginOptions): Promise<void> {
  const { authorization, directory, audit, issuer, humansUseBasic } = options;
  /** The path we are reached at, which a proxy may have lengthened. */
  const mount = () => new URL(issuer()).pathname.replace(/\/$/, '');
  const isSecure = () => issuer().startsWith('https:');
  // The prefix keeps other hosts of the domain from planting the cookie; browsers demand https for it.
  const cookieName = () => (isSecure() ? '__Host-idp' : 'idp');
  const cookieOf = (request: FastifyRequest) => parse(request.headers.cookie ?? '')[cookieName()];

  scope.addHook('onRequest', (_request, reply, done) => {
    reply.header('vary', 'Authorization, Cookie, Accept');
    done();
  });

  // No HEAD: it would run the handler and mint a code.
  scope.get(
    '/authorize',
    { config: access('public', { page: true }), exposeHeadRoute: false },
    async (request, reply) => {
      if (request.url.length > MOST_ADDRESS) throw oidcErrors.uri_too_long();
      const parameters = readParameters(queryOf(request.url));
      const judged = await authorization.judge(parameters);
      if ('refusal' in judged) return reply.redirect(authorization.refuse(judged.refusal), 302);
      if (request.headers.authorization !== undefined) {
        return reply.redirect(await approveBasic(judged.request, request), 302);
      }
      if (parameters['prompt'] === 'none') {
        const violation = { error: 'login_required', description: 'The person has to sign in.' };
        return reply.redirect(authorization.refuse({ ...judged.request, violation }), 302);
      }
      const { token, cookie } = await authorization.beginInteraction(parameters, cookieOf(request));
      reply.header(
        'set-cookie',
        serialize(cookieName(), cookie, { path: '/', httpOnly: true, sameSite: 'lax', secure: isSecure() }),
      );
      return showForm(reply, judged.request, { token, handle: parameters['login_hint'] ?? '' });
    },
  );

  // A cross-site POST arrives without our cookie, so it becomes the same request by GET.
  scope.post(
    '/authorize',
    { config: access('public', { page: true }), schema: { body: AuthorizeBody } },
    async (request, reply) => {
      const search = new URLSearchParams();
      for (const [name, values] of Object.entries(request.body)) {
        // An address is kept in histories and logs: nothing gets into it that nobody asks for.
        if (!isParameter(name)) continue;
        for (const value of [values].flat()) search.append(name, value);
      }
      return reply.redirect(`${mount()}/authorize?${search}`, 303);
    },
  );

  scope.post(
    '/authorize/login',
    { config: access('public', { page: true }), schema: { body: LoginBody } },
    async (request, reply) => {
      const { interaction: token, handle, password } = request.body;
      if (request.headers['sec-fetch-site'] === 'cross-site') throw oidcErrors.login_rejected();
      const interaction = await authorization.findInteraction(token, cookieOf(request));
      if (!interaction) throw oidcErrors.login_rejected();
      const judged = await authorization.judge(interaction.parameters);
      if ('refusal' in judged) return reply.redirect(authorization.refuse(judged.refusal), 303);
      // An agent fails here exactly as a wrong password does: no stolen credential of one opens a browser.
      const principal = await signIn(request, { username: handle, password }, ({ kind }) => kind === 'human');
      if (!principal) return showForm(reply.code(401), judged.request, { token, handle, failed: true });
      const { ip } = originOf(request);
      return reply.redirect(await authorization.approve(judged.request, principal, ip), 303);
    },
  );

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
      await audit.record({ event: 'login.failed', ip: origin.ip, ...(rejected && { subject: rejected }) });
    }
    return principal;
  }

  /** The form names who asks, where it returns to and what it learns: typing the password there is the consent. */
  function showForm(
    reply: FastifyReply,
    { client, redirectUri, scope: granted }: AuthorizationRequest,
    form: { token: string; handle: string; failed?: boolean },
  ): FastifyReply {
    const target = formTarget(redirectUri);
    const returnsTo = new URL(redirectUri).host || target;
    const page = renderPage('sign-in', {
      title: 'Sign in',
      action: `${mount()}/authorize/login`,
      clientName: client.name || returnsTo,
      returnsTo,
      learns: LEARNED.filter(([name]) => granted.split(' ').includes(name)).map(([, sentence]) => sentence),
      ...form,
    });
    // Browsers check every redirect that follows a submission, so the application's own ones count, too.
    return sendPage(reply, page, ['https:', target]);
  }

  /** Authenticates in the request itself. @throws browser_basic, invalid_credentials */
  async function approveBasic(judged: AuthorizationRequest, request: FastifyRequest): Promise<string> {
    if (isBrowser(request.headers) || cookieOf(request) !== undefined) throw oidcErrors.browser_basic();
    const credentials = parseBasic(request.headers.authorization ?? '');
    const mayUseBasic = ({ kind }: Principal) => kind === 'agent' || humansUseBasic;
    const principal = await signIn(request, credentials, mayUseBasic);
    if (principal) return authorization.approve(judged, principal, originOf(request).ip);
    throw oidcErrors.invalid_credentials({
      headers: { 'www-authenticate': 'Basic realm="idp", charset="UTF-8"' },
    });
  }
}

const queryOf = (url: string): URLSearchParams =>
  new URLSearchParams(url.includes('?') ? url.slice(url.indexOf('?')) : '');

const LEARNED = [
  ['openid', 'who you are: an identifier that tells nothing else'],
  ['profile', 'your name and handle'],
  ['email', 'your e-mail address'],
] as const;
