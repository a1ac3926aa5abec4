import { type Static, Type } from 'typebox';
import { isOrganizationId } from '../../core/http/identity.js';
import {
  Nullable,
  SubscriptionSummary,
  Timestamp,
  toTimestamp,
  toTimestampOrNull,
} from '../../core/http/schemas.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { Page } from '../../core/storage/collection.js';
import { readPage, searchFirst } from '../../core/storage/pages.js';
import { toOrganizationView } from './access.js';
import type { OrganizationDependencies } from './dependencies.js';
import { Member, Organization } from './schemas.js';
import type { OrganizationDocument } from './store.js';

/** An organization as the operator sees it. */
export const OperatedOrganization = Type.Object({
  ...Organization.properties,
  state: Type.Enum(['active', 'deleting']),
  owners: Type.Integer({ description: 'The number of members who are owners.' }),
  billingEmail: Type.String(),
  subscription: SubscriptionSummary,
  granted: Nullable(Type.Object({ plan: Type.String(), since: Timestamp, until: Nullable(Timestamp) })),
});
export type OperatedOrganization = Static<typeof OperatedOrganization>;

/** What operators see of organizations. */
export function createOrganizationAdministration({
  organizations,
  billing,
}: Pick<OrganizationDependencies, 'organizations' | 'billing'>) {
  const view = (organization: OrganizationDocument): OperatedOrganization => {
    const { owners, billingEmail, grant, deletingAt } = organization;
    return {
      ...toOrganizationView(organization),
      state: deletingAt === undefined ? 'active' : 'deleting',
      owners,
      billingEmail,
      subscription: billing.summaryOf(organization),
      granted: grant
        ? { plan: grant.plan, since: toTimestamp(grant.since), until: toTimestampOrNull(grant.until) }
        : null,
    };
  };

  return {
    schemas: { organization: OperatedOrganization, member: Member },

    /** Lists all, the newest first. @throws VALIDATION_ERROR for an invalid `after` */
    async list(after: string | undefined, limit: number): Promise<Page<OperatedOrganization>> {
      const { items, next } = await readPage(organizations, { sort: 'createdAt', desc: true, after, limit });
      return { items: items.map(view), next };
    },

    /** Finds those with a text in their name or slug, after the one with this ID or slug, or with the ID of an owner of a customer. */
    async search(text: string, limit: number, ownerId = text): Promise<OperatedOrganization[]> {
      const identified = organizations.findOne(
        isOrganizationId(ownerId) ? { id: ownerId } : { slug: text.toLowerCase() },
      );
      return (await searchFirst(organizations, { text, limit, identified })).map(view);
    },

    /** @throws NOT_FOUND */
    async find(id: string): Promise<OperatedOrganization> {
      const organization = await organizations.findOne({ id });
      if (!organization) throw httpErrors.NOT_FOUND({ message: 'The organization was not found.' });
      return view(organization);
    },
  };
}
