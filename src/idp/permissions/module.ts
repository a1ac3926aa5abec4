import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { readTime } from '../../core/http/schemas.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import {
  PermissionBody,
  PermissionList,
  PermissionQuery,
  PermissionView,
  permissionView,
  WithdrawalQuery,
} from './schemas.js';
import type { PermissionDependencies, Permissions } from './service.js';

export interface PermissionRouteDependencies extends Pick<PermissionDependencies, 'findResource'> {
  service: Permissions;
  /** Whether the token for invitations differs from that of the administrator, who must not be able to let an agent in. */
  hasOwnInviter: boolean;
  /** Whether there is an agent with this `sub`, or a group with the name. */
  exists(subject: string): Promise<boolean>;
}

/** The administrator reads permissions. Who may invite people also grants them. */
export function createPermissionsModule(deps: PermissionRouteDependencies) {
  const { service, findResource, hasOwnInviter, exists } = deps;
  return {
    service,
    async plugin(fastify: FastifyTypebox) {
      fastify.get(
        '/v1/permissions',
        {
          config: access('admin'),
          schema: { querystring: PermissionQuery, response: { 200: PermissionList } },
        },
        async ({ query: { agent, after } }) => {
          const { items, next } = await service.list({ subject: agent }, after);
          return { permissions: items.map(permissionView), next };
        },
      );
      if (!hasOwnInviter) return;

      fastify.put(
        '/v1/permissions',
        { config: access('inviter'), schema: { body: PermissionBody, response: { 200: PermissionView } } },
        async (request) => {
          const { agent, resource, until, tokens_per_hour, delegated_only, ...terms } = request.body;
          if (!(await exists(agent)))
            throw invalidFields({ path: 'agent', message: 'is no agent and no group' });
          const given = {
            ...terms,
            until: until === undefined ? undefined : readTime(until),
            tokensPerHour: tokens_per_hour,
            delegatedOnly: delegated_only,
          };
          return permissionView(await service.allow(agent, resource, given, requestSource(request)));
        },
      );

      fastify.delete(
        '/v1/permissions',
        { config: access('inviter'), schema: { querystring: WithdrawalQuery } },
        async (request, reply) => {
          const { agent, resource } = request.query;
          const found = await findResource(resource);
          if (!found || !(await service.withdraw(agent, found, requestSource(request))))
            throw httpErrors.NOT_FOUND();
          return reply.code(204).send();
        },
      );
    },
  };
}
