import { message } from '../../core/http/messages.js';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import type { OperatorPages, PageContext } from './context.js';
import { OperatorQuery } from './schemas.js';

/** Below the account page: where operators of the admin area sign in. */
export const OPERATOR_PAGE = '/operator';

/** A recent sign-in of an operator, who then continues in the admin area, or reads what is missing. */
export async function operatorPagePlugin(
  fastify: FastifyTypebox,
  { operators, identityOf, pages, path }: PageContext & { operators: OperatorPages },
): Promise<void> {
  const config = access('recent-person', { page: true, duringMaintenance: true });
  fastify.get(OPERATOR_PAGE, { config, schema: { querystring: OperatorQuery } }, async (request, reply) => {
    const identity = identityOf(request);
    const { role, hasFactor } = await operators.examine(identity);
    if (role && hasFactor) return reply.redirect(operators.hrefOf(request.query.page), 303);
    const view = {
      problems: [message(role ? 'user-operator.factor' : 'user-operator.role')],
      handle: identity.user.email,
      signOutHref: `${path()}/sign-out`,
    };
    return pages.send(reply.code(403), { template: 'user-operator', view });
  });
}
