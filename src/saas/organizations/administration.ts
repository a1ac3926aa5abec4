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
import { Organization } from './schemas.js';
import { type OrganizationDocument, searchNameOf } from './store.js';

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

/** The last character that a name can contain. */
const LAST = '\u{10ffff}';

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
    /**
     * Lists those whose name begins with a text, and the one with this ID or slug; without a text all, the newest first.
     * @throws VALIDATION_ERROR for an invalid `after`
     */
    async list({
      search,
      after,
      limit,
    }: {
      search: string | undefined;
      after: string | undefined;
      limit: number;
    }): Promise<Page<OperatedOrganization>> {
      const read = (query: Omit<Parameters<typeof readPage<OrganizationDocument>>[1], 'after' | 'limit'>) =>
        readPage(organizations, { ...query, after, limit });
      if (search === undefined) {
        const { items, next } = await read({ sort: 'createdAt', desc: true });
        return { items: items.map(view), next };
      }
      const text = searchNameOf(search);
      const [named, { items, next }] = await Promise.all([
        after === undefined
          ? organizations.findOne(isOrganizationId(text) ? { id: text } : { slug: text })
          : null,
        read({ where: { searchName: { gte: text, lt: text + LAST } }, sort: 'searchName' }),
      ]);
      const others = items.filter(({ id }) => id !== named?.id);
      return { items: [...(named ? [named] : []), ...others].map(view), next };
    },

    /** Finds those with a text in their name or slug, after the one with this ID or slug, or with the ID of an owner of a customer. */
    async search(text: string, limit: number, ownerId = text): Promise<OperatedOrganization[]> {
      const identified = organizations.findOne(
        isOrganizationId(ownerId) ? { id: ownerId } : { slug: searchNameOf(text) },
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
