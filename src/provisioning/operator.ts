import { access, originOf, type Scope } from '../http/scope.js';
import { httpErrors } from '../kernel/errors.js';
import type { PrincipalDirectory } from './directory.js';
import { PrincipalList, PrincipalParameters, PrincipalQuery, PrincipalView } from './schemas.js';
import type { PrincipalDocument } from './store.js';
import { operatorView, principalPage } from './views.js';

export interface OperatorPluginOptions {
  principalDirectory: PrincipalDirectory;
}

/** What the administrator's token may see and do of principals that are there: lock them out, and nothing in their name. */
export async function operatorPlugin(
  scope: Scope,
  { principalDirectory: directory }: OperatorPluginOptions,
): Promise<void> {
  const config = access('admin');
  const one = { config, schema: { params: PrincipalParameters, response: { 200: PrincipalView } } };

  scope.get(
    '/v1/principals',
    { config, schema: { querystring: PrincipalQuery, response: { 200: PrincipalList } } },
    async ({ query }) => principalPage(await directory.list(query)),
  );

  scope.get('/v1/principals/:sub', one, async ({ params }) => shown(await directory.get(params.sub)));

  scope.post('/v1/principals/:sub/disable', one, async (request) =>
    shown(await directory.disable(request.params.sub, originOf(request))),
  );

  scope.post('/v1/principals/:sub/enable', one, async (request) =>
    shown(await directory.enable(request.params.sub, originOf(request))),
  );

  scope.delete(
    '/v1/agents/:sub',
    { config, schema: { params: PrincipalParameters } },
    async (request, reply) => {
      if (!(await directory.deleteAgent(request.params.sub, originOf(request)))) throw httpErrors.NOT_FOUND();
      return reply.code(204).send();
    },
  );
}

function shown(principal: PrincipalDocument | null) {
  if (!principal) throw httpErrors.NOT_FOUND();
  return operatorView(principal);
}
