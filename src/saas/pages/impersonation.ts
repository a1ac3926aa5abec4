import type { FastifyReply, FastifyRequest } from 'fastify';
import { message } from '../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { PersonGuard } from '../../shared/account-pages/guard.js';
import type { Impersonation } from '../auth/sessions/impersonation.js';
import type { PageContext } from './context.js';
import { ImpersonationForm, ImpersonationQuery } from './schemas.js';

/** Below the account page, with the ID of a user in the query. */
export const IMPERSONATION_PAGE = '/impersonate';

export interface ImpersonationPageOptions extends PageContext {
  impersonation: Impersonation;
  guard: PersonGuard;
}

/** The page on which an operator begins to act as a user. For everybody else, there is none. */
export async function impersonationPagePlugin(
  fastify: FastifyTypebox,
  options: ImpersonationPageOptions,
): Promise<void> {
  const { impersonation, guard, sessions, identityOf, pages, path } = options;
  const config = access('recent-person', { page: true });

  fastify.get(
    IMPERSONATION_PAGE,
    { config, schema: { querystring: ImpersonationQuery } },
    async (request, reply) => sendForm(request, reply, request.query.user),
  );

  fastify.post(
    IMPERSONATION_PAGE,
    { config, schema: { querystring: ImpersonationQuery, body: ImpersonationForm } },
    async (request, reply) => {
      const { user: userId } = request.query;
      const reason = request.body.reason.trim();
      if (reason === '') {
        const problems = [message('user-impersonation.reason-missing')];
        return sendForm(request, reply.code(422), userId, { reason, problems });
      }
      requireOperator(request);
      const order = { userId, reason };
      await sessions.start(
        request,
        reply,
        await impersonation.start(identityOf(request), order, requestSource(request)),
      );
      return reply.redirect(path(), 303);
    },
  );

  function requireOperator(request: FastifyRequest): void {
    if (!impersonation.isOperator(identityOf(request).user)) throw httpErrors.NOT_FOUND();
  }

  async function sendForm(
    request: FastifyRequest,
    reply: FastifyReply,
    id: string,
    state: object = {},
  ): Promise<FastifyReply> {
    requireOperator(request);
    const user = await impersonation.subjectOf(identityOf(request), { id });
    const view = {
      action: `${path()}${IMPERSONATION_PAGE}?user=${id}`,
      form: guard.formsOf(request).issue(),
      handle: user.email,
      accountHref: path(),
      reason: '',
      ...state,
    };
    return pages.send(reply, { template: 'user-impersonation', view });
  }
}
