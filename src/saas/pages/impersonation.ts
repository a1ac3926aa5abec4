import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Localized, message } from '../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { Impersonation } from '../auth/sign-in/impersonation.js';
import type { PageContext } from './context.js';
import { ImpersonationForm, ImpersonationQuery } from './schemas.js';

/** Below the account page, with the ID of a user in the query. */
export const IMPERSONATION_PAGE = '/impersonate';

/** The page on which an operator begins to act as a user. For everybody else, there is none. */
export async function impersonationPagePlugin(
  fastify: FastifyTypebox,
  options: PageContext & { impersonation: Impersonation },
): Promise<void> {
  const { impersonation, sessions, identityOf, pages, path } = options;
  const config = access('recent-person', { page: true });

  const schema = { querystring: ImpersonationQuery };
  fastify.get(IMPERSONATION_PAGE, { config, schema }, (request, reply) =>
    sendForm(request, reply, subjectIn(request, request.query.user)),
  );

  fastify.post(
    IMPERSONATION_PAGE,
    { config, schema: { ...schema, body: ImpersonationForm } },
    async (request, reply) => {
      const userId = subjectIn(request, request.query.user);
      const reason = request.body.reason.trim();
      if (reason === '') {
        const problems = [message('user-impersonation.reason-missing')];
        return sendForm(request, reply.code(422), userId, problems);
      }
      const order = { userId, reason };
      const started = await impersonation.start(identityOf(request), order, requestSource(request));
      await sessions.start(request, reply, started);
      return reply.redirect(path(), 303);
    },
  );

  function subjectIn(request: FastifyRequest, user: string | undefined): string {
    if (user === undefined || !impersonation.isOperator(identityOf(request).user))
      throw httpErrors.NOT_FOUND();
    return user;
  }

  async function sendForm(
    request: FastifyRequest,
    reply: FastifyReply,
    id: string,
    problems: Localized[] = [],
  ): Promise<FastifyReply> {
    const view = {
      action: `${path()}${IMPERSONATION_PAGE}?user=${id}`,
      handle: await impersonation.addressOf(identityOf(request), id),
      problems,
    };
    return pages.send(reply, { template: 'user-impersonation', view });
  }
}
