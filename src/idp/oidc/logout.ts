import type { FastifyReply, FastifyRequest } from 'fastify';
import { mountPath } from '../../core/config/public-url.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { secretsEqual, sha256 } from '../../core/kernel/secrets.js';
import type { Effect } from '../../core/ops/commit.js';
import { withResponse } from './authorize/redirect-uri.js';
import { oidcErrors } from './errors.js';
import type { Hint } from './keys.js';
import { AnyForm } from './schemas.js';
import type { OidcServices } from './services.js';
import type { SignedInUser } from './sessions.js';

/** Sign-out, requested by an application (OIDC RP-Initiated Logout 1.0) or by the user. */
export async function logoutPlugin(fastify: FastifyTypebox, services: OidcServices): Promise<void> {
  const { sessions, cookies, pages, audit, issuer, hasAccountPages } = services;
  const config = access('public', { page: true });
  const path = () => `${mountPath(issuer())}/logout`;
  const sendDonePage = (reply: FastifyReply, returnHref?: string) => {
    const accountHref = hasAccountPages ? `${mountPath(issuer())}/account` : undefined;
    const returnsTo = returnHref && new URL(returnHref).host;
    return pages.send(reply, { template: 'logout-done', view: { accountHref, returnHref, returnsTo } });
  };
  /** The registered address of an application; of an unverified one, only a link to it. */
  const leave = (reply: FastifyReply, { target, isOpen }: LogoutRequest) =>
    target === undefined || isOpen ? sendDonePage(reply, target) : reply.redirect(target, 303);

  fastify.get('/logout', { config, exposeHeadRoute: false }, async (request, reply) => {
    const { searchParams } = new URL(request.url, issuer());
    const parameters = readLogoutParameters([...searchParams]);
    const asked = await validateLogoutRequest(parameters, services);
    if (asked.hint) return logOutForClient(asked.hint, asked.target, request, reply);
    const token = cookies.session.read(request);
    const user = await sessions.find(token);
    if (!user || token === undefined) return leave(reply, asked);
    const { handle } = user.principal;
    const values =
      asked.target === undefined ? [] : Object.entries(parameters).map(([name, value]) => ({ name, value }));
    const view = { action: path(), handle, confirmation: confirmationOf(token), values };
    return pages.send(reply, { template: 'logout', view, leadsElsewhere: asked.target !== undefined });
  });

  fastify.post('/logout', { config, schema: { body: AnyForm } }, async (request, reply) => {
    const fields = Object.entries(request.body).flatMap(([name, values]) =>
      [values].flat().map((value) => [name, value] as const),
    );
    const { confirm: confirmation, ...parameters } = readLogoutParameters(fields);
    const asked = await validateLogoutRequest(parameters, services);
    if (confirmation !== undefined) {
      await logOutForUser(confirmation, request, reply);
      return asked.target === undefined ? reply.redirect(path(), 303) : leave(reply, asked);
    }
    if (asked.hint) return logOutForClient(asked.hint, asked.target, request, reply);
    // Browsers send no cookie with a cross-site POST, so it is redirected to the same request with GET.
    return reply.redirect(`${path()}?${new URLSearchParams(parameters)}`, 303);
  });

  /** A valid hint of an application needs no confirmation, with or without the cookie. */
  async function logOutForClient(
    { sid, sub }: Hint,
    target: string | undefined,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const user = await sessions.find(cookies.session.read(request));
    // Another user of the same browser stays signed in.
    if (user?.principal.id === sub) await end(user, request, reply);
    if (sid !== undefined && sid !== user?.session.id) await sessions.end(sid, recordOf(sub, request));
    return target === undefined ? sendDonePage(reply) : reply.redirect(target, 303);
  }

  /** @throws login_rejected */
  async function logOutForUser(
    confirmation: string,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<void> {
    const token = cookies.session.read(request);
    const user = await sessions.find(token);
    if (!user || token === undefined) return;
    if (!secretsEqual(confirmation, confirmationOf(token))) throw oidcErrors.login_rejected();
    await end(user, request, reply);
  }

  async function end(
    { principal, session }: SignedInUser,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<void> {
    await sessions.end(session.id, recordOf(principal.id, request));
    cookies.session.clear(reply);
  }

  function recordOf(subject: string, request: FastifyRequest): Effect {
    return audit.entry({ event: 'logout', subject, ip: requestSource(request).ip });
  }
}

/** Derived from the session token, so that only pages shown in this session contain it. */
const confirmationOf = (token: string): string => sha256(`logout ${token}`);

/** The supported parameters, empty ones included. @throws invalid_request for a repeated one */
function readLogoutParameters(fields: readonly (readonly [string, string])[]): Record<string, string> {
  const known = fields.filter(([name]) => PARAMETERS.includes(name));
  const repeated = known.find(([name], index) => known.findIndex(([other]) => other === name) < index);
  if (repeated) {
    throw oidcErrors.invalid_request({
      details: [{ path: repeated[0], message: 'must not appear more than once' }],
    });
  }
  return Object.fromEntries(known);
}

const PARAMETERS = ['id_token_hint', 'client_id', 'post_logout_redirect_uri', 'state', 'confirm'];

interface LogoutRequest {
  hint: Hint | null;
  /** The registered address to return to, with the state. */
  target: string | undefined;
  /** Whether anyone could have registered the address. */
  isOpen: boolean;
}

/**
 * Validates a logout request. Without a hint the person is asked, and errors are shown to the user.
 * @throws invalid_request
 */
async function validateLogoutRequest(
  parameters: Record<string, string>,
  { directory, readHint }: OidcServices,
): Promise<LogoutRequest> {
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
  if (uri === undefined || clientId === undefined) return { hint, target: undefined, isOpen: false };
  const client = await directory.findClient(clientId);
  if (!client?.postLogoutRedirectUris.includes(uri)) {
    throw oidcErrors.invalid_request({
      message: 'post_logout_redirect_uri is not registered for this client.',
    });
  }
  const target = state === undefined ? uri : withResponse(uri, { state });
  return { hint, target, isOpen: client.origin === 'metadata' };
}
