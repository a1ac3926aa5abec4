import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import {
  GroupBody,
  GroupList,
  GroupParameters,
  GroupQuery,
  GroupView,
  groupView,
  MemberBody,
  MemberList,
  MemberParameters,
  memberView,
} from './schemas.js';
import { createGroups, type GroupDependencies, type Member, type Principal } from './service.js';

/** Groups of people and agents: applications map roles from them, and may admit only some of them. */
export function createGroupsModule<P extends Principal>(
  context: ModuleContext,
  product: Pick<GroupDependencies<P>, 'isVerified' | 'leaving'>,
) {
  const service = createGroups<P>({ ...context, ...product });
  return {
    service,
    /**
     * The administrator reads groups. Who may invite people also changes them: both decide what applications trust.
     * @param findPrincipal by its `sub`; deleted ones included
     */
    async plugin(
      fastify: FastifyTypebox,
      {
        findPrincipal,
        mayJoin,
      }: {
        findPrincipal(sub: string): Promise<(Principal & { state: string }) | null>;
        /** Whether a member may be put into a group with the token of these routes. */
        mayJoin(group: string, member: Pick<Member, 'kind'>): Promise<boolean>;
      },
    ) {
      const [read, write] = [access('admin'), access('inviter')];

      /** @throws NOT_FOUND, VALIDATION_ERROR */
      const find = async (member: string): Promise<Member> => {
        if (member.startsWith('@')) return service.readDomain(member);
        const principal = await findPrincipal(member);
        if (!principal || principal.state === 'deleted') throw httpErrors.NOT_FOUND();
        return service.memberOf(principal);
      };

      fastify.get(
        '/v1/groups',
        { config: read, schema: { querystring: GroupQuery, response: { 200: GroupList } } },
        async ({ query }) => {
          const { items, next } = await service.list(query.after);
          return { groups: items.map(groupView), next };
        },
      );

      fastify.post(
        '/v1/groups',
        { config: write, schema: { body: GroupBody, response: { 201: GroupView } } },
        async (request, reply) =>
          reply.code(201).send(groupView(await service.add(request.body, requestSource(request)))),
      );

      fastify.delete(
        '/v1/groups/:group',
        { config: write, schema: { params: GroupParameters } },
        async (request, reply) => {
          await service.remove(request.params.group, requestSource(request));
          return reply.code(204).send();
        },
      );

      fastify.get(
        '/v1/groups/:group/members',
        {
          config: read,
          schema: { params: GroupParameters, querystring: GroupQuery, response: { 200: MemberList } },
        },
        async ({ params, query }) => {
          const { items, next } = await service.members(params.group, query.after);
          return { members: items.map(memberView), next };
        },
      );

      fastify.post(
        '/v1/groups/:group/members',
        { config: write, schema: { params: GroupParameters, body: MemberBody } },
        async (request, reply) => {
          const member = await find(request.body.member);
          if (!(await mayJoin(request.params.group, member)))
            throw httpErrors.FORBIDDEN({
              message:
                'Agents of this group have permissions for APIs: only a command on the host, the console, or the token of IDP_INVITE_TOKEN puts agents into it.',
            });
          await service.addMember(request.params.group, member, requestSource(request));
          return reply.code(204).send();
        },
      );

      fastify.delete(
        '/v1/groups/:group/members/:member',
        { config: write, schema: { params: MemberParameters } },
        async (request, reply) => {
          const { group, member } = request.params;
          if (!(await service.removeMember(group, await find(member), requestSource(request))))
            throw httpErrors.NOT_FOUND();
          return reply.code(204).send();
        },
      );
    },
  };
}
