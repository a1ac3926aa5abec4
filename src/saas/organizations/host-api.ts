import { type OrganizationAccess, toOrganizationView } from './access.js';
import type { Invitations } from './invitations.js';
import type { Members } from './members.js';
import { HOST, type Organizations } from './organizations.js';
import type { Invitation, Member, Organization, OrganizationChange, OwnOrganization } from './schemas.js';

/** `fastify.saas.organizations`: on behalf of the host, which needs no role. Organizations are named by ID or slug. */
export interface OrganizationApi {
  /** @throws NOT_FOUND if there is no such organization */
  get(organization: string): Promise<Organization>;
  /** The organizations of a user, with the role in each. */
  listOf(userId: string): Promise<OwnOrganization[]>;
  /** Creates an organization that belongs to a user. @throws VALIDATION_ERROR, SLUG_TAKEN, TOO_MANY_ORGANIZATIONS; NOT_FOUND for an unknown user */
  create(ownerId: string, given: { name: string; slug?: string }): Promise<OwnOrganization>;
  /** Changes name, slug, logo or the address for invoices. @throws NOT_FOUND, VALIDATION_ERROR, SLUG_TAKEN */
  update(organization: string, change: OrganizationChange): Promise<Organization>;
  /** Deletes it with its data. @throws NOT_FOUND; PAYMENT_PROVIDER_ERROR as for users */
  delete(organization: string): Promise<void>;
  /** A page of its members, the oldest first. @throws NOT_FOUND */
  members(
    organization: string,
    page?: { after?: string; limit?: number },
  ): Promise<{ members: Member[]; next: string | null }>;
  /**
   * Makes a user a member without an invitation.
   * @throws NOT_FOUND, ALREADY_MEMBER, TOO_MANY_MEMBERS, TOO_MANY_ORGANIZATIONS, VALIDATION_ERROR for an unknown role
   */
  addMember(organization: string, userId: string, role?: string): Promise<Member>;
  /**
   * Sends an invitation on behalf of a member, as whose it is valid.
   * @param invitedBy the ID of the member
   * @throws ORGANIZATION_NOT_FOUND unless the user is a member; what `POST /organizations/:organization/invitations` does
   */
  invite(
    organization: string,
    invitedBy: string,
    given: { email: string; role?: string },
  ): Promise<Invitation>;
  /** @throws NOT_FOUND, LAST_OWNER, VALIDATION_ERROR for an unknown role */
  changeRole(organization: string, userId: string, role: string): Promise<Member>;
  /** @throws NOT_FOUND, LAST_OWNER */
  removeMember(organization: string, userId: string): Promise<void>;
}

export function createOrganizationApi(
  organizations: Organizations,
  members: Members,
  invitations: Invitations,
  access: OrganizationAccess,
): OrganizationApi {
  const { asHost } = organizations;
  return {
    get: async (named) => toOrganizationView((await asHost(named)).organization),
    listOf: organizations.listOf,
    create: (ownerId, given) => organizations.createFor(ownerId, given),
    update: async (named, change) =>
      toOrganizationView(await organizations.update(await asHost(named), change, HOST)),
    invite: async (named, invitedBy, given) =>
      invitations.send(await access.memberOf(named, invitedBy), given, HOST),
    delete: async (named) => organizations.delete(await asHost(named), HOST),
    members: async (named, { after, limit } = {}) =>
      members.list((await asHost(named)).organization.id, after, limit),
    addMember: async (named, userId, role = 'member') => members.add(await asHost(named), userId, role, HOST),
    changeRole: async (named, userId, role) => members.changeRole(await asHost(named), userId, role, HOST),
    removeMember: async (named, userId) => members.remove(await asHost(named), userId, HOST),
  };
}
