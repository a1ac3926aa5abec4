import type { RequestSource } from '../../core/http/routes.js';
import { DAY } from '../../core/kernel/clock.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { newId, newToken } from '../../core/kernel/secrets.js';
import { decideAndCommit } from '../../core/ops/commit.js';
import type { Job } from '../../core/ops/jobs.js';
import { UniqueViolation } from '../../core/storage/collection.js';
import { pagesOf } from '../../core/storage/pages.js';
import { fixedWindow } from '../../core/throttle/throttle.js';
import { type Acting, type MemberOf, toOrganizationView } from './access.js';
import type { OrganizationDependencies } from './dependencies.js';
import { organizationErrors } from './errors.js';
import { OWNER } from './roles.js';
import type { OrganizationChange, OwnOrganization } from './schemas.js';
import {
  type MembershipDocument,
  membershipId,
  ORGANIZATION_ID_PREFIX,
  type OrganizationDocument,
} from './store.js';

/** Organizations that a user creates; the key is the user. */
const CREATION = fixedWindow('organization.create', 20, DAY);

/** Every user reads all of theirs at once. */
const MAX_ORGANIZATIONS = 200;

export type Organizations = ReturnType<typeof createOrganizations>;

export function createOrganizations(deps: OrganizationDependencies) {
  const { organizations, memberships, invitations, users, access, accountData, throttle } = deps;
  const { commit, event, audit, clock, random } = deps;

  /** Free of those that exist; another organization may still take it first. */
  const freeSlug = async (name: string): Promise<string> => {
    const words =
      name
        .normalize('NFKD')
        .toLowerCase()
        .match(/[a-z0-9]+/g) ?? [];
    const base = words.join('-').slice(0, 40).replace(/-$/, '');
    const slug = base.length < 3 ? `team-${base || shortToken()}` : base;
    return (await organizations.findOne({ slug })) ? `${slug}-${shortToken()}` : slug;
  };
  const shortToken = () =>
    newToken(random)
      .toLowerCase()
      .replace(/[^a-z0-9]/g, '')
      .slice(0, 6);

  /** The steps that follow `deletingAt`, each idempotent, so that the job can resume them. */
  const completeDeletion = async (id: string): Promise<void> => {
    await accountData.close(id);
    await Promise.all([accountData.delete(id), invitations.deleteMany({ organizationId: id })]);
    await memberships.deleteMany({ organizationId: id });
    await commit([
      organizations.deleting({ id, deletingAt: { gt: 0 } }),
      await event('organization.deleted', { organizationId: id }),
      audit.entry({ event: 'organization.deleted', ip: 'local', detail: id }),
    ]);
  };

  return {
    /**
     * Creates an organization that belongs to a user.
     * @param slug default: one made of the name
     * @throws SLUG_TAKEN, RATE_LIMITED; NOT_FOUND for an unknown user
     */
    async create(
      userId: string,
      { name, slug }: { name: string; slug?: string | undefined },
      source: Pick<RequestSource, 'ip'>,
    ): Promise<OwnOrganization> {
      await throttle.countKey(CREATION, userId, source.ip);
      const owner = await users.require(userId);
      return decideAndCommit(commit, async () => {
        if (slug !== undefined && (await organizations.findOne({ slug })))
          throw organizationErrors.SLUG_TAKEN();
        const now = clock.now();
        const organization: OrganizationDocument = {
          id: newId(ORGANIZATION_ID_PREFIX, clock, random),
          name: name.trim(),
          slug: slug ?? (await freeSlug(name)),
          owners: 1,
          members: 1,
          createdAt: now,
        };
        const { id } = organization;
        const membership: MembershipDocument = {
          id: membershipId(id, userId),
          organizationId: id,
          userId,
          role: OWNER,
          createdAt: now,
        };
        const view = toOrganizationView(organization);
        const parts = [
          organizations.inserting(organization),
          memberships.inserting(membership),
          users.joining(owner.id),
          await event('organization.created', { organizationId: id, organization: view, userId }),
          audit.entry({ event: 'organization.created', subject: userId, ip: source.ip, detail: id }),
        ];
        return { parts, result: access.view({ organization, membership }), repeatIfTaken: true };
      });
    },

    /** On behalf of the host. @param named an ID or a slug @throws NOT_FOUND */
    async asHost(named: string): Promise<Acting> {
      const isId = named.startsWith(ORGANIZATION_ID_PREFIX);
      const organization = named && (await organizations.findOne(isId ? { id: named } : { slug: named }));
      if (!organization || organization.deletingAt !== undefined)
        throw httpErrors.NOT_FOUND({ message: 'The organization was not found.' });
      return { organization };
    },

    /** The organizations of a user, the oldest membership first. */
    async listOf(userId: string): Promise<OwnOrganization[]> {
      const { items } = await memberships.page({
        where: { userId },
        sort: 'createdAt',
        limit: MAX_ORGANIZATIONS,
      });
      const found = await Promise.all(
        items.map(async (membership) => {
          const organization = await organizations.findOne({ id: membership.organizationId });
          return organization && organization.deletingAt === undefined
            ? [access.view({ organization, membership })]
            : [];
        }),
      );
      return found.flat();
    },

    /** @throws ROLE_REQUIRED, SLUG_TAKEN, ORGANIZATION_NOT_FOUND */
    async update(
      member: MemberOf,
      change: OrganizationChange,
      { ip }: RequestSource,
    ): Promise<OwnOrganization> {
      access.demand(member, 'organization:update');
      const { name, slug, logoUrl } = change;
      if (name === undefined && slug === undefined && logoUrl === undefined)
        throw invalidFields({ path: 'name', message: 'or another field must be given' });
      const { id } = member.organization;
      const set = {
        ...(name !== undefined && { name: name.trim() }),
        ...(slug !== undefined && { slug }),
        ...(typeof logoUrl === 'string' && { logoUrl }),
      };
      const after = { ...member.organization, ...set };
      if (logoUrl === null) delete after.logoUrl;
      const { committed } = await commit([
        organizations.changing(
          { id, deletingAt: null },
          { set, ...(logoUrl === null && { unset: ['logoUrl'] as const }) },
        ),
        await event('organization.updated', { organizationId: id, organization: toOrganizationView(after) }),
        audit.entry({
          event: 'organization.updated',
          subject: member.membership.userId,
          ip,
          detail: JSON.stringify({ organization: id, ...change }),
        }),
      ]).catch((error: unknown) => {
        throw error instanceof UniqueViolation ? organizationErrors.SLUG_TAKEN() : error;
      });
      if (!committed) throw organizationErrors.ORGANIZATION_NOT_FOUND();
      return access.view({ ...member, organization: after });
    },

    /**
     * Cancels the subscriptions of the organization and deletes it.
     * @throws ROLE_REQUIRED unless the member is an owner; PAYMENT_PROVIDER_ERROR as for accounts: a job completes the deletion
     */
    async delete(by: Acting, { ip }: Pick<RequestSource, 'ip'>): Promise<void> {
      access.demandRole(by, OWNER);
      const { organization, membership } = by;
      const { id } = organization;
      const { committed } = await commit([
        organizations.changing({ id, deletingAt: null }, { set: { deletingAt: clock.now() } }),
        // Of an owner who is removed at the same moment, one request succeeds.
        membership && memberships.changing({ id: membership.id, role: OWNER }, { set: { role: OWNER } }),
        audit.entry({
          event: 'organization.closed',
          ...(membership && { subject: membership.userId }),
          ip,
          detail: id,
        }),
      ]);
      if (!committed) throw organizationErrors.ORGANIZATION_NOT_FOUND();
      await completeDeletion(id);
    },

    /** The same without an owner who asks: for an organization whose last member is deleted. */
    async deleteEmpty(id: string): Promise<void> {
      const changed = await organizations.changeOne(
        { id, members: { lte: 1 } },
        { set: { deletingAt: clock.now() } },
      );
      if (changed) await completeDeletion(id);
    },

    /** Resumes interrupted deletions. */
    deletionJob: {
      everySeconds: 60,
      async run({ signal }) {
        const query = { where: { deletingAt: { gt: 0 } }, sort: 'deletingAt' } as const;
        for await (const page of pagesOf(organizations, query))
          for (const { id } of page) {
            if (signal.aborted) return;
            await completeDeletion(id);
          }
      },
    } satisfies Job,
  };
}
