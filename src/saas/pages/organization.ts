import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static, TObject } from 'typebox';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, type RequestSource, requestSource } from '../../core/http/routes.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { ownValue } from '../../core/kernel/fields.js';
import type { MemberOf } from '../organizations/access.js';
import type { PagesWith } from './context.js';
import { choicesOf, refusalOf, roleText, viewOfInvitation, viewOfMember } from './organization-views.js';
import type { OrganizationList } from './organizations.js';
import {
  EmptyBody,
  InvitationIdBody,
  InviteBody,
  MemberBody,
  MemberRoleBody,
  OrganizationBody,
  OrganizationDeletionBody,
  OrganizationParams,
  OrganizationQuery,
} from './schemas.js';

const NOTICES: Readonly<Record<string, Localized>> = {
  created: message('user-organization.done.created'),
  joined: message('user-organization.done.joined'),
  saved: message('user-organization.done.saved'),
  role: message('user-organization.done.role'),
  removed: message('user-organization.done.removed'),
  invited: message('user-organization.done.invited'),
  withdrawn: message('user-organization.done.withdrawn'),
  transferred: message('user-organization.done.transferred'),
};

/** The forms of the pages, beside which a refusal is shown. */
type Form = 'members' | 'invite' | 'invitations' | 'settings' | 'leave' | 'transfer' | 'delete';

/** What the last form has done, or what is wrong with it. */
interface State {
  notice?: Localized | undefined;
  problems?: Localized[];
  /** Absent if the page may have no such form any more. */
  at?: Partial<Record<Form, true>>;
  wrong?: Record<string, true>;
  typed?: Record<string, string>;
}

const MEMBERS_OF_A_PAGE = 50;

/** The page of an organization, with what the role of the user permits; the services decide once more. */
export async function organizationPlugin(
  fastify: FastifyTypebox,
  { list, ...options }: PagesWith<'organizations'> & { list: OrganizationList },
): Promise<void> {
  const { billing, identityOf, pages, path } = options;
  const { access: memberships, roles, organizations, members, invitations } = options.organizations;
  const own = ({ organization }: MemberOf) => `${path()}/organization/${organization.id}`;
  const memberOf = (request: FastifyRequest) =>
    memberships.memberOf(
      (request.params as { organization: string }).organization,
      identityOf(request).user.id,
    );

  /** Shows a page of the organization, or that the user is no member. */
  const send = async (
    request: FastifyRequest,
    reply: FastifyReply,
    page: (request: FastifyRequest, member: MemberOf, state: State) => Promise<Page>,
    state: State,
  ) => {
    const member = await memberOf(request).catch(refusalOf);
    if ('problem' in member) return list.refuse(request, reply, member);
    return pages.send(reply, await page(request, member, state));
  };

  fastify.get(
    '/organization/:organization',
    {
      config: access('person', { page: true }),
      schema: { params: OrganizationParams, querystring: OrganizationQuery },
    },
    (request, reply) => send(request, reply, pageOf, { notice: ownValue(NOTICES, request.query.done) }),
  );

  fastify.get(
    '/organization/:organization/ownership',
    {
      config: access('recent-person', { page: true }),
      schema: { params: OrganizationParams, querystring: OrganizationQuery },
    },
    (request, reply) => send(request, reply, ownershipOf, {}),
  );

  /** A form, which leads to a page that says what is done, or shows beside itself why it was refused. */
  const post = <Body extends TObject>(
    action: string,
    form: Form,
    body: Body,
    done: string,
    act: (member: MemberOf, given: Static<Body>, source: RequestSource) => Promise<unknown>,
  ) => {
    const isOfOwners = form === 'transfer' || form === 'delete';
    fastify.post(
      `/organization/:organization/${action}`,
      {
        config: access(isOfOwners ? 'recent-person' : 'person', { page: true }),
        schema: { params: OrganizationParams, body },
      },
      async (request, reply) => {
        const typed = request.body as Record<string, string>;
        try {
          const member = await memberOf(request);
          if (form === 'invite' || form === 'settings')
            pages.keepForm(request, await pageOf(request, member, { typed }));
          await act(member, request.body as Static<Body>, requestSource(request));
          const isMember = Object.hasOwn(NOTICES, done);
          return reply.redirect(`${isMember ? own(member) : `${path()}/organization`}?done=${done}`, 303);
        } catch (error) {
          const refusal = refusalOf(error);
          const { problem, statusCode, code, field } = refusal;
          // The organization is closed already; a job completes its deletion.
          if (code === 'PAYMENT_PROVIDER_ERROR') return list.refuse(request, reply, refusal);
          const wrong = field === undefined ? {} : { [field]: true as const };
          const at = code === 'ROLE_REQUIRED' ? {} : { at: { [form]: true as const } };
          const state = { problems: [problem], ...at, wrong, typed };
          return send(request, reply.code(statusCode), isOfOwners ? ownershipOf : pageOf, state);
        }
      },
    );
  };

  post('settings', 'settings', OrganizationBody, 'saved', async (member, { form: _, ...given }, source) => {
    const before: Record<string, string> = settingsOf(member);
    const typed = Object.entries(given).map(([name, value]) => [name, value.trim()] as const);
    const change = Object.fromEntries(typed.filter(([name, value]) => value !== before[name]));
    if (Object.keys(change).length === 0) return;
    const logo = change['logoUrl'] === '' ? { logoUrl: null } : {};
    await organizations.update(member, { ...change, ...logo }, source);
  });
  post('members/role', 'members', MemberRoleBody, 'role', (member, { user, role }, source) =>
    members.changeRole(member, user, role, source),
  );
  post('members/remove', 'members', MemberBody, 'removed', (member, { user }, source) =>
    members.remove(member, user, source),
  );
  post('leave', 'leave', EmptyBody, 'left', (member, _, source) =>
    members.remove(member, member.membership.userId, source),
  );
  // The same address again sends a new link.
  post('invite', 'invite', InviteBody, 'invited', (member, { email, role }, source) =>
    invitations.send(member, { email: email.trim(), role }, source),
  );
  post('withdraw', 'invitations', InvitationIdBody, 'withdrawn', (member, { id }, source) =>
    invitations.withdraw(member, id, source),
  );
  post('transfer', 'transfer', MemberBody, 'transferred', (member, { user }, source) =>
    members.transfer(member, user, source),
  );
  post('delete', 'delete', OrganizationDeletionBody, 'deleted', async (member, { confirm }, source) => {
    const { name } = member.organization;
    if (confirm.trim() !== name) throw invalidFields({ path: 'confirm', message: `must be ${name}` });
    await organizations.delete(member, source);
  });

  /** What the user may change of the organization. */
  const settingsOf = ({ organization, membership }: MemberOf) => {
    const { name, slug, logoUrl = '', billingEmail } = organization;
    return {
      ...(roles.permits(membership.role, 'organization:update') && { name, slug, logoUrl }),
      ...(roles.permits(membership.role, 'billing:manage') && { billingEmail }),
    };
  };

  async function pageOf(request: FastifyRequest, member: MemberOf, state: State): Promise<Page> {
    const { organization, membership } = member;
    const { after, invited } = request.query as Static<typeof OrganizationQuery>;
    const { role } = membership;
    const mayManage = roles.permits(role, 'members:manage');
    const [page, sent] = await Promise.all([
      members.list(organization.id, after, MEMBERS_OF_A_PAGE),
      mayManage ? invitations.list(organization.id, invited) : null,
    ]);
    const settings = settingsOf(member);
    const seats = billing?.seats.limitOf(organization) ?? Number.POSITIVE_INFINITY;
    const view = {
      organizationsHref: `${path()}/organization`,
      path: own(member),
      name: organization.name,
      role: message('user-organization.your-role', { role: roleText(role) }),
      count: message('user-organization.members-count', { count: String(organization.members) }),
      seats:
        Number.isFinite(seats) &&
        message('user-organization.seats', { taken: String(organization.members), seats: String(seats) }),
      members: page.members.map((one) => {
        const isSelf = one.userId === membership.userId;
        const mayChange = mayManage && !isSelf && roles.covers(role, one.role);
        return { ...viewOfMember(one), isSelf, mayChange, choices: choicesOf(roles, role, one.role) };
      }),
      firstHref: after !== undefined && own(member),
      nextHref: page.next !== null && `${own(member)}?${new URLSearchParams({ after: page.next })}`,
      mayManage,
      sent: sent?.invitations.map((one) => ({
        ...viewOfInvitation(one),
        mayChange: roles.covers(role, one.role),
      })),
      hasSent: (sent?.invitations ?? []).length > 0,
      moreSentHref: sent?.next != null && `${own(member)}?${new URLSearchParams({ invited: sent.next })}`,
      choices: choicesOf(roles, role, state.typed?.['role'] ?? 'member'),
      email: state.typed?.['email'] ?? '',
      hasSettings: Object.keys(settings).length > 0,
      settings: { ...settings, ...(state.at?.settings && state.typed) },
      mayRename: 'name' in settings,
      mayBill: 'billingEmail' in settings,
      billingHref: billing !== undefined && 'billingEmail' in settings && `${own(member)}/billing`,
      isOwner: roles.covers(role, 'owner'),
      ...state,
    };
    return { template: 'user-organization', view };
  }

  async function ownershipOf(request: FastifyRequest, member: MemberOf, state: State): Promise<Page> {
    const { organization, membership } = member;
    const { after } = request.query as Static<typeof OrganizationQuery>;
    const page = await members.list(organization.id, after, MEMBERS_OF_A_PAGE);
    const others = page.members.filter(({ userId }) => userId !== membership.userId);
    const view = {
      path: own(member),
      name: organization.name,
      isOwner: roles.covers(membership.role, 'owner'),
      others: others.map(viewOfMember),
      hasOthers: others.length > 0,
      nextHref: page.next !== null && `${own(member)}/ownership?${new URLSearchParams({ after: page.next })}`,
      confirm: state.typed?.['confirm'] ?? '',
      ...state,
    };
    return { template: 'user-organization-ownership', view };
  }
}
