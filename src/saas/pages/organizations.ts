import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static, TObject } from 'typebox';
import type { Identity } from '../../core/http/identity.js';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import {
  access,
  type FastifyTypebox,
  type RequestSource,
  type RouteRules,
  requestSource,
} from '../../core/http/routes.js';
import { ownValue } from '../../core/kernel/fields.js';
import type { BillingPageOptions } from './billing.js';
import type { PagesWith } from './context.js';
import { type Refusal, refusalOf, roleText, viewOfInvitation } from './organization-views.js';
import { ChosenOrganizationBody, InvitationIdBody, NoticeQuery, OrganizationNameBody } from './schemas.js';

const NOTICES: Readonly<Record<string, Localized>> = {
  switched: message('user-organizations.done.switched'),
  left: message('user-organizations.done.left'),
  deleted: message('user-organizations.done.deleted'),
};

/** What the page of all organizations shows beside them. */
export interface ListState {
  notice?: Localized | undefined;
  problems?: Localized[];
  /** The name for a new one, as the user typed it. */
  typed?: string;
  wrong?: { name: boolean };
}

export type OrganizationList = ReturnType<typeof createOrganizationList>;

/** The page of all organizations of a user. */
export function createOrganizationList({
  organizations: { organizations, invitations },
  ...context
}: PagesWith<'organizations'>) {
  const { identityOf, pages, path } = context;

  const pageOf = async (request: FastifyRequest, state: ListState = {}): Promise<Page> => {
    const { user, session } = identityOf(request);
    const [own, received] = await Promise.all([organizations.listOf(user.id), invitations.listFor(user)]);
    const view = {
      path: `${path()}/organization`,
      organizations: own.map(({ id, name, role, members }) => ({
        id,
        name,
        role: roleText(role),
        members: message('user-organization.members-count', { count: String(members) }),
        isActive: id === session.organizationId,
      })),
      hasOrganizations: own.length > 0,
      received: received.map(({ organization, ...invitation }) => ({
        ...viewOfInvitation(invitation),
        name: organization.name,
      })),
      hasReceived: received.length > 0,
      ...state,
    };
    return { template: 'user-organizations', view };
  };

  return {
    pageOf,
    /** Shows why something was refused. */
    async refuse(
      request: FastifyRequest,
      reply: FastifyReply,
      { problem, statusCode, field }: Refusal,
      typed = '',
    ) {
      const wrong = { name: field === 'name' };
      return pages.send(reply.code(statusCode), await pageOf(request, { problems: [problem], typed, wrong }));
    },
  };
}

/** The page on which users see their organizations, choose the active one, create one and accept invitations. */
export async function organizationsPlugin(
  fastify: FastifyTypebox,
  { list, ...options }: PagesWith<'organizations'> & { list: OrganizationList },
): Promise<void> {
  const { accounts, identityOf, pages, path } = options;
  const { access: memberships, organizations, invitations } = options.organizations;
  const shown = { config: access('person', { page: true }), schema: { querystring: NoticeQuery } };
  fastify.get('/organization', shown, async (request, reply) =>
    pages.send(reply, await list.pageOf(request, { notice: ownValue(NOTICES, request.query.done) })),
  );

  /** A form, which leads below the page to where `act` says, or shows here why it was refused. */
  const post = <Body extends TObject>(
    action: string,
    body: Body,
    act: (given: Static<Body>, by: Identity, source: RequestSource) => Promise<string>,
    rules: Partial<RouteRules> = {},
  ) => {
    const route = { config: access('person', { page: true, ...rules }), schema: { body } };
    fastify.post(`/organization/${action}`, route, async (request, reply) => {
      const given = request.body as Static<Body>;
      const { name } = given as { name?: string };
      if (name !== undefined) pages.keepForm(request, await list.pageOf(request, { typed: name }));
      try {
        const next = await act(given, identityOf(request), requestSource(request));
        return reply.redirect(`${path()}/organization${next}`, 303);
      } catch (error) {
        return list.refuse(request, reply, refusalOf(error), name);
      }
    });
  };

  post('create', OrganizationNameBody, async ({ name }, { user }, source) => {
    const { id } = await organizations.create(user.id, { name }, source);
    return `/${id}?done=created`;
  });
  const chooseActive = async (
    { organization }: Static<typeof ChosenOrganizationBody>,
    { user, session }: Identity,
  ) => {
    const chosen = organization && (await memberships.memberOf(organization, user.id)).organization.id;
    await accounts.chooseOrganization(session.id, chosen || null);
    return '?done=switched';
  };
  // It changes the session only.
  post('active', ChosenOrganizationBody, chooseActive, { whileImpersonated: true });
  post('accept', InvitationIdBody, async ({ id }, { user }, source) => {
    return `/${await invitations.accept(user, { id }, source)}?done=joined`;
  });
}

/** Whose subscriptions the page of an organization shows: those of this one, to who may manage its payments. */
export const createBilledOf =
  ({
    organizations: { access: memberships },
    identityOf,
    path,
  }: PagesWith<'organizations'>): BillingPageOptions['billedOf'] =>
  async (request) => {
    const { user } = identityOf(request);
    const { organization: named } = request.params as { organization: string };
    const member = await memberships.memberOf(named, user.id);
    memberships.demand(member, 'billing:manage');
    const { id, name, members, billingEmail: email } = member.organization;
    const href = `${path()}/organization/${id}`;
    const owner = { id, email, personEmail: user.email };
    return { owner, own: `${href}/billing`, organization: { name, href, members } };
  };
