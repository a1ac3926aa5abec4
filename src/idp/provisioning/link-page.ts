import formbody from '@fastify/formbody';
import type { FastifyReply } from 'fastify';
import { mountPath } from '../../core/config/public-url.js';
import { message } from '../../core/http/messages.js';
import { isForm, type Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { AppError } from '../../core/kernel/errors.js';
import { type CredentialProblems, credentialProblems } from '../../core/passwords/form-problems.js';
import { FORM_LIMIT_BYTES, rejectForeignForm } from './recovery-pages.js';
import { DoneQuery, LinkBody, LinkParameters, principalView } from './schemas.js';
import type { RouteServices } from './services.js';
import type { ClientDocument } from './store.js';

/** The page behind an invitation or a reset, where a user sets a password. Only the POST uses the link. */
export async function linkPagePlugin(
  fastify: FastifyTypebox,
  { links, clients, pages, issuer, hasAccountPages, recovery }: RouteServices,
): Promise<void> {
  await fastify.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  const mount = () => mountPath(issuer());
  const config = access('public', { page: true });
  const accountHref = () => (hasAccountPages ? `${mount()}/account` : undefined);

  const formOf = async (token: string, submitted?: Submitted): Promise<Page> => {
    const { principal, isInvitation } = await links.look(token, submitted !== undefined);
    const isFirstOperator = principal === undefined;
    const isReset = !isInvitation;
    const view = {
      ...(isFirstOperator && { title: message('invite.first-operator') }),
      ...(isReset && { title: message('reset-password.title') }),
      isFirstOperator,
      isInvitation: isInvitation && !isFirstOperator,
      isReset,
      handle: principal?.handle ?? submitted?.handle,
      issuer: issuer(),
      action: `${mount()}/invite/${token}`,
      ...submitted,
    };
    return { template: 'invite', view };
  };

  /** The same page for unknown, used and expired links. Other errors are thrown again. */
  const showInvalidLink = (reply: FastifyReply, error: unknown): FastifyReply => {
    if (!(error instanceof AppError) || ![404, 410].includes(error.statusCode)) throw error;
    const view = {
      issuer: issuer(),
      accountHref: accountHref(),
      ...(recovery && { forgotPassword: `${mount()}/account/forgot-password` }),
    };
    return pages.send(reply.code(error.statusCode), { template: 'invite-dead', view });
  };

  fastify.get('/invite/done', { config, schema: { querystring: DoneQuery } }, async (request, reply) => {
    const { client_id: clientId } = request.query;
    const application = clientId === undefined ? null : await clients.find(clientId);
    const view = {
      accountHref: accountHref(),
      applicationHref: application && homeOf(application),
      application: application?.name,
    };
    return pages.send(reply, { template: 'invite-done', view });
  });

  fastify.get('/invite/:token', { config, schema: { params: LinkParameters } }, async (request, reply) => {
    const { token } = request.params;
    try {
      return pages.send(reply, await formOf(token));
    } catch (error) {
      return showInvalidLink(reply, error);
    }
  });

  fastify.post(
    '/invite/:token',
    { config, schema: { params: LinkParameters, body: LinkBody } },
    async (request, reply) => {
      // The token protects the account; this check is an additional defense.
      rejectForeignForm(request, issuer());
      const { token } = request.params;
      const { password, password_confirm: confirmation, handle: chosen } = request.body;
      try {
        if (isForm(request)) pages.keepForm(request, await formOf(token, { handle: chosen }));
        const principal = await links.accept(
          token,
          { password, confirmation, handle: chosen },
          requestSource(request),
        );
        const { application } = principal;
        const next = application === undefined ? '' : `?client_id=${application}`;
        if (isForm(request)) return reply.redirect(`${mount()}/invite/done${next}`, 303);
        const { sub, handle, kind } = principalView(principal);
        return reply.code(201).send({ sub, handle, kind });
      } catch (error) {
        if (!isForm(request) || !(error instanceof AppError)) throw error;
        const { statusCode } = error;
        // 400 and 409 are about the handle that the first operator chose.
        if (![400, 409, 422].includes(statusCode)) return showInvalidLink(reply, error);
        return pages.send(
          reply.code(statusCode),
          await formOf(token, { ...credentialProblems(error), handle: chosen }),
        );
      }
    },
  );
}

/** Where an application on the web is, which the person opens to sign in; `null` for others. */
function homeOf({ redirectUris }: Pick<ClientDocument, 'redirectUris'>): string | null {
  const address = redirectUris.find((uri) => /^https:/.test(uri));
  return address === undefined ? null : `${new URL(address).origin}/`;
}

/** What was submitted, with the problems if it was rejected. */
interface Submitted extends Partial<CredentialProblems> {
  /** The user name that the first operator typed. */
  handle?: string | undefined;
}
