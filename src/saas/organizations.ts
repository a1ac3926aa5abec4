import { withLeadingSlash } from '../core/config/public-url.js';
import type { Identity, OrganizationIdentity, RequestIdentity } from '../core/http/identity.js';
import { type Session, toTimestamp, type User } from '../core/http/schemas.js';
import { allOf } from '../core/storage/pages.js';
import type { EmailModule } from '../shared/email/module.js';
import type { AuthModule, UsersModule } from './auth/module.js';
import { userNotFound } from './auth/users/users.js';
import type { SaasBase } from './base.js';
import type { BillingModule } from './billing/module.js';
import type { OwnerOf } from './billing/plugin.js';
import type { SaasEventBus } from './events.js';
import type { UserGuard, UserRequest } from './guards.js';
import type { MemberOf } from './organizations/access.js';
import type { OrganizationUser, OrganizationUsers } from './organizations/dependencies.js';
import { organizationErrors } from './organizations/errors.js';
import type { OrganizationsModule } from './organizations/module.js';
import { OwnOrganization } from './organizations/schemas.js';
import { organizationCollections } from './organizations/store.js';

export type SaasOrganizations = NonNullable<Awaited<ReturnType<typeof openOrganizations>>>;

export interface OrganizationsOptions {
  users: UsersModule;
  auth: AuthModule;
  events: SaasEventBus;
  email: EmailModule;
  billing: BillingModule;
}

/** Loads organizations if they are enabled. */
export async function openOrganizations(
  base: SaasBase,
  { users, auth, events, email, billing }: OrganizationsOptions,
) {
  const { context, values, runtime, publicUrl, accountAddress } = base;
  const create = async () => {
    const [{ createOrganizationsModule }, { createInvitationMail }] = await Promise.all([
      import('./organizations/module.js'),
      import('./organizations/mails.js'),
    ]);
    const { organizationInvitationUrlRelative: configured } = values;
    const own = `${values.accountPages ? accountAddress : ''}/organization/invitation`;
    return createOrganizationsModule(context, {
      users: organizationUsers(users),
      billing,
      roles: runtime.organizationRoles,
      mail: createInvitationMail({
        outbox: email.service,
        page: () => publicUrl() + (configured === undefined ? own : withLeadingSlash(configured)),
      }),
      event: events.event,
      maxMembers: values.organizationMaxMembers,
      chooseOrganization: auth.service.chooseOrganization,
    });
  };
  let module: ReturnType<typeof create> | undefined;
  const load = () => {
    module ??= create();
    return module;
  };
  contributeMemberships(base, load);
  return values.organizations ? load() : undefined;
}

/** Also without the option: an account that is deleted leaves the organizations of a time when they were enabled. */
function contributeMemberships({ context }: SaasBase, load: () => Promise<OrganizationsModule>): void {
  const { organizations, memberships } = organizationCollections(context.store);
  context.accountData.add({
    section: {
      name: 'organizations',
      async read(userId) {
        const own = await allOf(memberships, { where: { userId }, sort: 'createdAt' });
        const ids = own.map(({ organizationId }) => organizationId);
        const found = await allOf(organizations, { where: { id: { in: ids } }, sort: 'id' });
        return own.map(({ organizationId: id, role, createdAt }) => ({
          ...{ id, name: found.find((one) => one.id === id)?.name ?? '', role },
          joinedAt: toTimestamp(createdAt),
        }));
      },
    },
    async check(userId) {
      if (!(await memberships.findOne({ userId }))) return;
      const name = await (await load()).members.onlyOwnedBy(userId);
      if (name === undefined) return;
      const message = `You are the only owner of ${name}. Make another member the owner, or delete the organization, first.`;
      throw organizationErrors.LAST_OWNER({ message });
    },
    async delete(userId) {
      if (!(await memberships.findOne({ userId }))) return;
      await (await load()).leaveAll(userId);
    },
  });
}

/** Adapts the users' records for organizations. */
function organizationUsers({ userDocuments }: UsersModule): OrganizationUsers {
  const view = (user: Awaited<ReturnType<typeof userDocuments.findOne>>): OrganizationUser | null => {
    if (!user || user.deletingAt !== undefined) return null;
    const { id, email, emailVerified, name = '', locale, suspendedAt } = user;
    return { id, email, emailVerified, name, locale, isSuspended: suspendedAt !== undefined };
  };
  const find = async (id: string) => view(await userDocuments.findOne({ id }));
  return {
    find,
    async findAll(ids) {
      const found = await allOf(userDocuments, { where: { id: { in: ids } }, sort: 'id' });
      return new Map(found.flatMap((one) => view(one) ?? []).map((one) => [one.id, one]));
    },
    async require(id) {
      const user = await find(id);
      if (!user) throw userNotFound();
      return user;
    },
    findByEmail: async (email) => view(await userDocuments.findOne({ email })),
    joining: (id) => userDocuments.changing({ id, deletingAt: null }, { inc: { organizationRev: 1 } }),
  };
}

/** The header that names the organization of a request. */
const HEADER = 'x-organization';

/**
 * Whose subscriptions a request is about: those of the organization that the header names or to which the API key belongs, if the user
 * may manage its payments, else the user's. The organization of the session does not count, so that nobody pays for another one than the page shows.
 */
export function createOwnerOf(organizations: OrganizationsModule | undefined): OwnerOf {
  return async (request) => {
    const { user, key } = request.saas;
    const named = request.headers[HEADER] ?? key?.organizationId;
    if (named === undefined) return user;
    if (!organizations) throw organizationErrors.ORGANIZATION_NOT_FOUND();
    const { access } = organizations;
    const member = await namedMember(access, request.saas, named);
    access.demand(member, 'billing:manage');
    const { id, billingEmail: email } = member.organization;
    return { id, email, personEmail: user.email };
  };
}

/**
 * The membership in the organization that a request names. A key of an organization acts in no other one.
 * @throws ORGANIZATION_NOT_FOUND
 */
async function namedMember(
  access: OrganizationsModule['access'],
  { user, key }: RequestIdentity,
  named: unknown,
): Promise<MemberOf> {
  const own = key?.organizationId;
  const member = await access.memberOf(String(named), user.id);
  if (own !== undefined && member.organization.id !== own) throw organizationErrors.ORGANIZATION_NOT_FOUND();
  return member;
}

/** Who is signed in, with the organization that is active in the session. */
export interface VisitorSession {
  /** The user, with the plan, the roles and the metadata. */
  user: User;
  /** When and how the user has signed in. */
  session: Session;
  /** The organization that is active in the session, while the user is a member of it; null for none. */
  organization: OwnOrganization | null;
  /** Of the plans of the active organization, or else of the user. */
  features: string[];
}

/** @param featuresOf the features of the plans that a user or an organization has */
export function createDescribeSession(
  organizations: OrganizationsModule | undefined,
  featuresOf: (ownerId: string) => Promise<readonly string[]>,
) {
  const activeIn = async ({ user, session: { organizationId } }: Identity) => {
    if (!organizations || organizationId === undefined) return null;
    const member = await organizations.access.find(organizationId, user.id);
    return member ? organizations.access.view(member) : null;
  };
  const describe = async ({ user, session }: Identity): Promise<VisitorSession> => {
    const organization = await activeIn({ user, session });
    const features = [...(await featuresOf(organization?.id ?? user.id))];
    return { user, session, organization, features };
  };
  return Object.assign(describe, { schema: OwnOrganization });
}

/** Creates `requireMember` and `requirePermission`. */
export function createOrganizationGuards(
  requireUser: UserGuard,
  { access, roles }: Pick<OrganizationsModule, 'access' | 'roles'>,
) {
  /** Sets the user, and the organization that the request names and of which the user is a member. */
  const requireOrganization = async (request: UserRequest): Promise<OrganizationIdentity> => {
    await requireUser(request);
    const { user, session, key } = request.saas;
    const { organization: inPath } = (request.params ?? {}) as { organization?: unknown };
    const named = inPath ?? request.headers[HEADER] ?? key?.organizationId;
    // The one of the session may have removed the user since.
    const chosen = session?.organizationId;
    const member =
      named === undefined
        ? chosen === undefined
          ? null
          : await access.find(chosen, user.id)
        : await namedMember(access, request.saas, named);
    if (!member) throw organizationErrors.ORGANIZATION_REQUIRED();
    const { id, slug, name } = member.organization;
    const { role } = member.membership;
    request.saas.organization = { id, slug, name, role, permissions: [...roles.permissionsOf(role)] };
    return request.saas.organization;
  };

  return {
    requireMember({ role }: { role?: string } = {}): UserGuard {
      if (role !== undefined) roles.requireRole(role);
      return async (request) => {
        const own = await requireOrganization(request);
        if (role === undefined || roles.covers(own.role, role)) return;
        throw organizationErrors.ROLE_REQUIRED({
          message: `This requires the role ${role} in the organization, and you have the role ${own.role}.`,
        });
      };
    },

    requirePermission(permission: string): UserGuard {
      roles.requirePermission(permission);
      return async (request) => {
        const own = await requireOrganization(request);
        if (roles.permits(own.role, permission)) return;
        throw organizationErrors.ROLE_REQUIRED({
          message: `Your role in this organization, ${own.role}, does not permit ${permission}.`,
        });
      };
    },
  };
}
