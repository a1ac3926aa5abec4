import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Pages } from '../http/pages.js';
import { access, originOf, type Scope } from '../http/scope.js';
import { secretsEqual, sha256 } from '../kernel/secrets.js';
import type { Audit } from '../ops/audit.js';
import { withAnswer } from './authorize/redirect-uri.js';
import { type Cookies, mountPath } from './cookies.js';
import { oidcErrors } from './errors.js';
import type { Hint, ReadHint } from './hints.js';
import type { Directory } from './model.js';
import { AnyForm } from './schemas.js';
import type { SessionService, Visitor } from './sessions.js';

export interface LogoutPluginOptions {
  sessions: SessionService;
  cookies: Cookies;
  pages: Pages;
  directory: Pick<Directory, 'findClient'>;
  readHint: ReadHint;
  audit: Audit;
  issuer(): string;
}

/** Signing out at the wish of an application (OIDC RP-Initiated Logout 1.0) or of the person. */
export async function logoutPlugin(scope: Scope, options: LogoutPluginOptions): Promise<void> {
  const { sessions, cookies, pages, audit, issuer } = options;
  const config = access('public', { page: true });
  const path = () => `${mountPath(issuer())}/logout`;
  const showDone = (reply: FastifyReply) => pages.send(reply, 'logout-done', { title: 'You are signed out' });

  scope.get('/logout', { config, exposeHeadRoute: false }, async (request, reply) => {
    const { searchParams } = new URL(request.url, issuer());
    const wish = await judgeLogout(readOnce([...searchParams]), options);
    if (wish.hint) return obey(wish.hint, wish.target, request, reply);
    const token = cookies.session.of(request);
    const visitor = await sessions.find(token);
    if (!visitor || token === undefined) return showDone(reply);
    const { handle } = visitor.principal;
    const view = { title: 'Sign out', action: path(), handle, confirmation: confirmationOf(token) };
    return pages.send(reply, 'logout', view);
  });

  scope.post('/logout', { config, schema: { body: AnyForm } }, async (request, reply) => {
    const fields = Object.entries(request.body).flatMap(([name, values]) =>
      [values].flat().map((value) => [name, value] as const),
    );
    const { confirm: confirmation, ...parameters } = readOnce(fields);
    if (confirmation !== undefined) {
      await confirmed(confirmation, request, reply);
      return reply.redirect(path(), 303);
    }
    const wish = await judgeLogout(parameters, options);
    if (wish.hint) return obey(wish.hint, wish.target, request, reply);
    // A cross-site POST arrives without our cookie, so it becomes the same request by GET.
    return reply.redirect(`${path()}?${new URLSearchParams(parameters)}`, 303);
  });

  /** The application's wish: a valid hint needs no question, with or without the cookie. */
  async function obey(
    { sid, sub }: Hint,
    target: string | undefined,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const visitor = await sessions.find(cookies.session.of(request));
    // Somebody else may use this browser by now. They stay.
    if (visitor?.principal.id === sub) await end(visitor, request, reply);
    if (sid !== undefined && sid !== visitor?.session.id && (await sessions.end(sid))) {
      await audit.record({ event: 'logout', subject: sub, ip: originOf(request).ip });
    }
    return target === undefined ? showDone(reply) : reply.redirect(target, 303);
  }

  /** The person's wish. @throws login_rejected */
  async function confirmed(
    confirmation: string,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<void> {
    const token = cookies.session.of(request);
    const visitor = await sessions.find(token);
    if (!visitor || token === undefined) return;
    if (!secretsEqual(confirmation, confirmationOf(token))) throw oidcErrors.login_rejected();
    await end(visitor, request, reply);
  }

  async function end(
    { principal, session }: Visitor,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<void> {
    await sessions.end(session.id);
    cookies.session.clear(reply);
    await audit.record({ event: 'logout', subject: principal.id, ip: originOf(request).ip });
  }
}

/** Known only to pages that this browser was shown in this session. */
const confirmationOf = (token: string): string => sha256(`logout ${token}`);

/** @throws invalid_request when a parameter comes twice */
function readOnce(fields: readonly (readonly [string, string])[]): Record<string, string> {
  const known = fields.filter(([name]) => KNOWN.includes(name));
  const repeated = known.find(([name], index) => known.findIndex(([other]) => other === name) < index);
  if (repeated) {
    throw oidcErrors.invalid_request({
      details: [{ path: repeated[0], message: 'must not appear more than once' }],
    });
  }
  return Object.fromEntries(known);
}

const KNOWN = ['id_token_hint', 'client_id', 'post_logout_redirect_uri', 'state', 'confirm'];

/**
 * What an application asks for. Nobody is sent anywhere without a hint; whatever is wrong is told to the person.
 * @throws invalid_request
 */
async function judgeLogout(
  parameters: Record<string, string>,
  { directory, readHint }: Pick<LogoutPluginOptions, 'directory' | 'readHint'>,
): Promise<{ hint: Hint | null; target: string | undefined }> {
  const { id_token_hint: idToken, client_id: named, post_logout_redirect_uri: uri, state } = parameters;
  const hint = idToken === undefined ? null : await readHint(idToken);
  if (idToken !== undefined && !hint) {
    throw oidcErrors.invalid_request({
      message: 'id_token_hint is not an id_token issued by this provider.',
    });
  }
  if (hint && named !== undefined && named !== hint.clientId) {
    throw oidcErrors.invalid_request({ message: 'client_id does not match the client of id_token_hint.' });
  }
  const clientId = hint?.clientId ?? named;
  if (uri === undefined || clientId === undefined) return { hint, target: undefined };
  const client = await directory.findClient(clientId);
  if (!client?.postLogoutRedirectUris.includes(uri)) {
    throw oidcErrors.invalid_request({
      message: 'post_logout_redirect_uri is not registered for this client.',
    });
  }
  return { hint, target: state === undefined ? uri : withAnswer(uri, { state }) };
}
