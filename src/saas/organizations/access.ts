import { isOrganizationId } from '../../core/http/identity.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { allOf } from '../../core/storage/pages.js';
import type { OrganizationBilling } from './billing.js';
import { organizationErrors } from './errors.js';
import type { Roles } from './roles.js';
import type { Organization, OwnOrganization } from './schemas.js';
import {
  type MembershipDocument,
  membershipId,
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

/** What can be an ID or a slug. Other text, which a route of the host may pass, could be one that no store accepts. */
const NAMED = /^[\w-]{1,100}$/;

export type OrganizationAccess = ReturnType<typeof createOrganizationAccess>;

/** What members may do in an organization. */
export function createOrganizationAccess(
  { organizations, memberships }: Pick<OrganizationCollections, 'organizations' | 'memberships'>,
  roles: Roles,
  billing: Pick<OrganizationBilling, 'summaryOf'>,
) {
  const findOrganization = (named: string): Promise<OrganizationDocument | null> =>
    NAMED.test(named)
      ? organizations.findOne({
          ...(isOrganizationId(named) ? { id: named } : { slug: named }),
          deletingAt: null,
        })
      : Promise.resolve(null);

  const findMembership = (organizationId: string, userId: string) =>
    memberships.findOne({ id: membershipId(organizationId, userId) });

  /** Both with one round trip for an ID; null if the user is no member. @param named an ID or a slug */
  const find = async (named: string, userId: string): Promise<MemberOf | null> => {
    const [organization, byId] = await Promise.all([
      findOrganization(named),
      isOrganizationId(named) && NAMED.test(named) ? findMembership(named, userId) : null,
    ]);
    if (!organization) return null;
    const membership = isOrganizationId(named) ? byId : await findMembership(organization.id, userId);
    return membership && { organization, membership };
  };

  return {
    findOrganization,
    find,

    /** @throws ORGANIZATION_NOT_FOUND unless the user is a member */
    async memberOf(named: string, userId: string): Promise<MemberOf> {
      const found = await find(named, userId);
      if (!found) throw organizationErrors.ORGANIZATION_NOT_FOUND();
      return found;
    },

    /** Those to which memberships or invitations belong, by ID, without those that are being deleted. */
    async organizationsOf(items: readonly { organizationId: string }[]) {
      const ids = items.map(({ organizationId }) => organizationId);
      const found = await allOf(organizations, { where: { id: { in: ids } }, sort: 'id' });
      return new Map(found.filter((one) => one.deletingAt === undefined).map((one) => [one.id, one]));
    },

    /** The organization as it is now. @throws ORGANIZATION_NOT_FOUND once it is being deleted */
    async requireOpen(id: string): Promise<OrganizationDocument> {
      const organization = await organizations.findOne({ id, deletingAt: null });
      if (!organization) throw organizationErrors.ORGANIZATION_NOT_FOUND();
      return organization;
    },

    /** @throws ROLE_REQUIRED */
    demand({ membership }: Acting, permission: string): void {
      if (membership && !roles.permits(membership.role, permission))
        throw organizationErrors.ROLE_REQUIRED({
          message: `Your role in this organization, ${membership.role}, does not permit ${permission}.`,
        });
    },

    /** Members can only give or take roles that permit no more than their own. @throws ROLE_REQUIRED */
    demandRole({ membership }: Acting, role: string): void {
      if (membership && !roles.covers(membership.role, role))
        throw organizationErrors.ROLE_REQUIRED({
          message: `Your role in this organization, ${membership.role}, permits less than ${role}.`,
        });
    },

    view: ({ organization, membership }: MemberOf): OwnOrganization => ({
      ...toOrganizationView(organization),
      subscription: billing.summaryOf(organization),
      billingEmail: roles.permits(membership.role, 'billing:manage') ? organization.billingEmail : null,
      role: membership.role,
      permissions: [...roles.permissionsOf(membership.role)],
    }),
  };
}
