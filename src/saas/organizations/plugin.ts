import type { FastifyRequest } from 'fastify';
import { personOf } from '../../core/http/identity.js';
import { type FastifyTypebox, access as level, requestSource } from '../../core/http/routes.js';
import { Acknowledgement, ok } from '../../core/http/schemas.js';
import { invalidFields } from '../../core/kernel/errors.js';
import type { MemberOf, OrganizationAccess } from './access.js';
import type { Invitations } from './invitations.js';
import type { Members } from './members.js';
import type { Organizations } from './organizations.js';
import {
  AcceptBody,
  ActiveBody,
  BODY_LIMIT,
  InvitationAnswer,
  InvitationBody,
  InvitationParams,
  InvitationsAnswer,
  MemberAnswer,
  MemberParams,
  MembersAnswer,
  NewOrganization,
  OrganizationAnswer,
  OrganizationChange,
  OrganizationParams,
  OrganizationsAnswer,
  PageQuery,
  ReceivedInvitationsAnswer,
  RoleBody,
  TransferBody,
} from './schemas.js';

export interface OrganizationPluginOptions {
  access: OrganizationAccess;
  organizations: Organizations;
  members: Members;
  invitations: Invitations;
  /** Keeps the active organization of a session; null for none. */
  chooseOrganization(sessionId: string, organizationId: string | null): Promise<void>;
}

const USER = { config: level('user'), bodyLimit: BODY_LIMIT };
/** Changes the session only. */
const SESSION_ONLY = { config: level('user', { whileImpersonated: true }), bodyLimit: BODY_LIMIT };
const RECENT = { config: level('recent-user'), bodyLimit: BODY_LIMIT };

/** Organizations, their members and invitations, for their members. */
export async function organizationPlugin(
  fastify: FastifyTypebox,
  options: OrganizationPluginOptions,
): Promise<void> {
  await organizationRoutes(fastify, options);
  await memberRoutes(fastify, options);
  await invitationRoutes(fastify, options);
}

/** The organization in the path, of which the user has to be a member. */
const memberIn =
  ({ access }: OrganizationPluginOptions) =>
  (request: FastifyRequest): Promise<MemberOf> =>
    access.memberOf((request.params as { organization: string }).organization, request.saas.user.id);

async function organizationRoutes(
  fastify: FastifyTypebox,
  options: OrganizationPluginOptions,
): Promise<void> {
  const { access, organizations, chooseOrganization } = options;
  const memberOf = memberIn(options);

  fastify.post(
    '/organizations',
    { ...USER, schema: { body: NewOrganization, response: { 201: OrganizationAnswer } } },
    async (request, reply) => {
      const organization = await organizations.create(
        request.saas.user.id,
        request.body,
        requestSource(request),
      );
      return reply.code(201).send(ok({ organization }));
    },
  );

  fastify.get(
    '/organizations',
    { ...USER, schema: { response: { 200: OrganizationsAnswer } } },
    async (request) => {
      const { user, session } = personOf(request.saas);
      const all = await organizations.listOf(user.id);
      const active = all.find(({ id }) => id === session.organizationId)?.id ?? null;
      return ok({ organizations: all, active });
    },
  );

  fastify.post(
    '/organizations/active',
    { ...SESSION_ONLY, schema: { body: ActiveBody, response: { 200: Acknowledgement } } },
    async (request) => {
      const { user, session } = personOf(request.saas);
      const { organization: named } = request.body;
      const chosen = named === null ? null : await access.memberOf(named, user.id);
      await chooseOrganization(session.id, chosen?.organization.id ?? null);
      return { success: true } as const;
    },
  );

  fastify.get(
    '/organizations/:organization',
    { ...USER, schema: { params: OrganizationParams, response: { 200: OrganizationAnswer } } },
    async (request) => ok({ organization: access.view(await memberOf(request)) }),
  );

  fastify.patch(
    '/organizations/:organization',
    {
      ...USER,
      schema: { params: OrganizationParams, body: OrganizationChange, response: { 200: OrganizationAnswer } },
    },
    async (request) => {
      const member = await memberOf(request);
      const organization = await organizations.update(member, request.body, requestSource(request));
      return ok({ organization: access.view({ ...member, organization }) });
    },
  );

  fastify.delete(
    '/organizations/:organization',
    { ...RECENT, schema: { params: OrganizationParams, response: { 200: Acknowledgement } } },
    async (request) => {
      await organizations.delete(await memberOf(request), requestSource(request));
      return { success: true, message: 'The organization has been deleted.' } as const;
    },
  );
}

async function memberRoutes(fastify: FastifyTypebox, options: OrganizationPluginOptions): Promise<void> {
  const { members } = options;
  const memberOf = memberIn(options);

  fastify.get(
    '/organizations/:organization/members',
    {
      ...USER,
      schema: { params: OrganizationParams, querystring: PageQuery, response: { 200: MembersAnswer } },
    },
    async (request) => {
      const { organization } = await memberOf(request);
      return ok(await members.list(organization.id, request.query.after));
    },
  );

  fastify.patch(
    '/organizations/:organization/members/:userId',
    { ...USER, schema: { params: MemberParams, body: RoleBody, response: { 200: MemberAnswer } } },
    async (request) => {
      const by = await memberOf(request);
      const { userId } = request.params;
      const member = await members.changeRole(by, userId, request.body.role, requestSource(request));
      return ok({ member });
    },
  );

  // With the ID of the user, the member leaves.
  fastify.delete(
    '/organizations/:organization/members/:userId',
    { ...USER, schema: { params: MemberParams, response: { 200: Acknowledgement } } },
    async (request) => {
      await members.remove(await memberOf(request), request.params.userId, requestSource(request));
      return { success: true } as const;
    },
  );

  fastify.post(
    '/organizations/:organization/transfer',
    {
      ...RECENT,
      schema: { params: OrganizationParams, body: TransferBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      await members.transfer(await memberOf(request), request.body.userId, requestSource(request));
      return { success: true } as const;
    },
  );
}

async function invitationRoutes(fastify: FastifyTypebox, options: OrganizationPluginOptions): Promise<void> {
  const { access, invitations } = options;
  const memberOf = memberIn(options);

  fastify.get(
    '/organizations/:organization/invitations',
    {
      ...USER,
      schema: { params: OrganizationParams, querystring: PageQuery, response: { 200: InvitationsAnswer } },
    },
    async (request) => {
      const by = await memberOf(request);
      access.demand(by, 'members:manage');
      return ok(await invitations.list(by.organization.id, request.query.after));
    },
  );

  // The same address again sends a new link.
  fastify.post(
    '/organizations/:organization/invitations',
    {
      ...USER,
      schema: { params: OrganizationParams, body: InvitationBody, response: { 201: InvitationAnswer } },
    },
    async (request, reply) => {
      const by = await memberOf(request);
      const invitation = await invitations.send(by, request.body, requestSource(request));
      return reply.code(201).send(ok({ invitation }));
    },
  );

  fastify.delete(
    '/organizations/:organization/invitations/:id',
    { ...USER, schema: { params: InvitationParams, response: { 200: Acknowledgement } } },
    async (request) => {
      await invitations.withdraw(await memberOf(request), request.params.id, requestSource(request));
      return { success: true } as const;
    },
  );

  fastify.get(
    '/user/invitations',
    { ...USER, schema: { response: { 200: ReceivedInvitationsAnswer } } },
    async (request) => ok({ invitations: await invitations.listFor(request.saas.user) }),
  );

  fastify.post(
    '/user/invitations/accept',
    { ...USER, schema: { body: AcceptBody, response: { 200: OrganizationAnswer } } },
    async (request) => {
      const { user } = request.saas;
      const { token, id } = request.body;
      if ((token === undefined) === (id === undefined))
        throw invalidFields({ path: 'token', message: 'or id must be given, not both' });
      const organizationId = await invitations.accept(user, request.body, requestSource(request));
      return ok({ organization: access.view(await access.memberOf(organizationId, user.id)) });
    },
  );
}
