import { toTimestamp } from '../../core/http/schemas.js';
import { organizationErrors } from './errors.js';
import type { Roles } from './roles.js';
import type { Organization, OwnOrganization } from './schemas.js';
import {
  type MembershipDocument,
  membershipId,
  ORGANIZATION_ID_PREFIX,
  type OrganizationCollections,
  type OrganizationDocument,
} from './store.js';

/** An organization and the membership of a user in it. */
export interface MemberOf {
  organization: OrganizationDocument;
  membership: MembershipDocument;
}

/** Who changes something in an organization: a member, or the host, which may do everything. */
export interface Acting {
  organization: OrganizationDocument;
  /** Absent: the host. */
  membership?: MembershipDocument;
}

export const toOrganizationView = (organization: OrganizationDocument): Organization => {
  const { id, name, slug, logoUrl = null, members, createdAt } = organization;
  return { id, name, slug, logoUrl, members, createdAt: toTimestamp(createdAt) };
};

export type OrganizationAccess = ReturnType<typeof createOrganizationAccess>;

/** What members may do in an organization. */
export function createOrganizationAccess(
  { organizations, memberships }: Pick<OrganizationCollections, 'organizations' | 'memberships'>,
  roles: Roles,
) {
  const findMembership = (organizationId: string, userId: string) =>
    memberships.findOne({ id: membershipId(organizationId, userId) });

  /** Both with one round trip for an ID; null if the user is no member. @param named an ID or a slug */
  const find = async (named: string, userId: string): Promise<MemberOf | null> => {
    const isId = named.startsWith(ORGANIZATION_ID_PREFIX);
    const [organization, byId] = await Promise.all([
      organizations.findOne(isId ? { id: named } : { slug: named }),
      isId ? findMembership(named, userId) : null,
    ]);
    if (!organization || organization.deletingAt !== undefined) return null;
    const membership = isId ? byId : await findMembership(organization.id, userId);
    return membership && { organization, membership };
  };

  return {
    find,

    /** @throws ORGANIZATION_NOT_FOUND unless the user is a member */
    async memberOf(named: string, userId: string): Promise<MemberOf> {
      const found = named === '' ? null : await find(named, userId);
      if (!found) throw organizationErrors.ORGANIZATION_NOT_FOUND();
      return found;
    },

    /** @throws ROLE_REQUIRED */
    demand({ membership }: Acting, permission: string): void {
      if (membership && !roles.permits(membership.role, permission))
        throw organizationErrors.ROLE_REQUIRED({
          message: `Your role in this organization, ${membership.role}, does not permit ${permission}.`,
        });
    },

    /** Whoever gives or takes a role needs all that it permits. @throws ROLE_REQUIRED */
    demandRole({ membership }: Acting, role: string): void {
      if (membership && !roles.covers(membership.role, role))
        throw organizationErrors.ROLE_REQUIRED({
          message: `Your role in this organization, ${membership.role}, permits less than ${role}.`,
        });
    },

    view: ({ organization, membership }: MemberOf): OwnOrganization => ({
      ...toOrganizationView(organization),
      role: membership.role,
      permissions: [...roles.permissionsOf(membership.role)],
    }),
  };
}
