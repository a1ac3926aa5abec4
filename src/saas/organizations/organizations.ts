import type { TSchema } from 'typebox';
import { problemsOf } from '../../core/config/options.js';
import { ORGANIZATION_ID_PREFIX } from '../../core/http/identity.js';
import type { RequestSource } from '../../core/http/routes.js';
import { DAY } from '../../core/kernel/clock.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { defined } from '../../core/kernel/fields.js';
import { newId, newToken } from '../../core/kernel/secrets.js';
import { actorOf } from '../../core/ops/audit.js';
import { decideAndCommit } from '../../core/ops/commit.js';
import type { Job } from '../../core/ops/jobs.js';
import { UniqueViolation } from '../../core/storage/collection.js';
import { allOf, pagesOf } from '../../core/storage/pages.js';
import { fixedWindow } from '../../core/throttle/throttle.js';
import { type Acting, toOrganizationView } from './access.js';
import type { OrganizationDependencies } from './dependencies.js';
import { organizationErrors } from './errors.js';
import type { ActingSource, Members } from './members.js';
import { OWNER } from './roles.js';
import { NewOrganization, OrganizationChange, type OwnOrganization } from './schemas.js';
import { type MembershipDocument, membershipId, type OrganizationDocument } from './store.js';

/** Organizations that a user creates; the key is the user. */
const CREATION = fixedWindow('organization.create', 20, DAY);

/** Slugs that a user chooses for existing organizations; bounds the search for those of others. */
const SLUGS = fixedWindow('organization.slug', 20, DAY);

/** Where applications have the slug in the path, it must not be one of their own pages. */
const RESERVED = new Set(
  `about account admin api app assets auth billing blog dashboard docs health help invitation invitations login logout metrics new
  organizations pricing privacy public ready register settings signin signup static status support terms www`.split(
    /\s+/,
  ),
);

/** For pages and the host, whose values no route has checked. @throws VALIDATION_ERROR */
function requireValid(schema: TSchema, given: unknown): void {
  const problems = problemsOf(schema, given);
  if (problems.length > 0) throw invalidFields(...problems);
}

/** Where the host's changes come from. */
export const HOST = { ip: 'local' } as const;

export type Organizations = ReturnType<typeof createOrganizations>;

export function createOrganizations(deps: OrganizationDependencies & { members: Members }) {
  const { organizations, memberships, invitations, users, access, accountData, members, throttle } = deps;
  const { commit, event, audit, billing, clock, random } = deps;

  /** Another organization may still take it first. */
  const isFree = async (slug: string): Promise<boolean> =>
    !RESERVED.has(slug) && !(await organizations.findOne({ slug }));

  const freeSlug = async (name: string): Promise<string> => {
    const words =
      name
        .normalize('NFKD')
        .toLowerCase()
        .match(/[a-z0-9]+/g) ?? [];
    const base = words.join('-').slice(0, 40).replace(/-$/, '');
    const slug = base.length < 3 ? `team-${base || shortToken()}` : base;
    return (await isFree(slug)) ? slug : `${slug}-${shortToken()}`;
  };
  const shortToken = () =>
    newToken(random)
      .toLowerCase()
      .replace(/[^a-z0-9]/g, '')
      .slice(0, 6);

  const create = (
    userId: string,
    { name, slug }: NewOrganization,
    source: Pick<RequestSource, 'ip'>,
  ): Promise<OwnOrganization> =>
    decideAndCommit(commit, async () => {
      if (slug !== undefined && !(await isFree(slug))) throw organizationErrors.SLUG_TAKEN();
      const { email: billingEmail } = await users.require(userId);
      const now = clock.now();
      const organization: OrganizationDocument = {
        id: newId(ORGANIZATION_ID_PREFIX, clock, random),
        name: name.trim(),
        slug: slug ?? (await freeSlug(name)),
        owners: 1,
        members: 1,
        billingEmail,
        subscriptionStatus: 'none',
        subscriptionPlan: 'free',
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
        await members.joining(userId),
        await event('organization.created', { organizationId: id, organization: view, userId }),
        audit.entry({ event: 'organization.created', subject: userId, ip: source.ip, detail: id }),
      ];
      return { parts, result: access.view({ organization, membership }), repeatIfTaken: true };
    });

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
    /** By a user, who owns it. @param slug default: one made of the name @throws SLUG_TAKEN, TOO_MANY_ORGANIZATIONS, RATE_LIMITED */
    async create(userId: string, given: NewOrganization, source: RequestSource): Promise<OwnOrganization> {
      requireValid(NewOrganization, given);
      await throttle.countKey(CREATION, userId, source.ip);
      return create(userId, given, source);
    },

    /** On behalf of the host, for an owner. @throws VALIDATION_ERROR, SLUG_TAKEN, TOO_MANY_ORGANIZATIONS; NOT_FOUND for an unknown user */
    async createFor(userId: string, given: NewOrganization): Promise<OwnOrganization> {
      requireValid(NewOrganization, given);
      return create(userId, given, HOST);
    },

    /** On behalf of the host. @param named an ID or a slug @throws NOT_FOUND */
    async asHost(named: string): Promise<Acting> {
      const organization = await access.findOrganization(named);
      if (!organization) throw httpErrors.NOT_FOUND({ message: 'The organization was not found.' });
      return { organization };
    },

    /** The organizations of a user, the oldest membership first. */
    async listOf(userId: string): Promise<OwnOrganization[]> {
      const own = await allOf(memberships, { where: { userId }, sort: 'createdAt' });
      const found = await access.organizationsOf(own);
      return own.flatMap((membership) => {
        const organization = found.get(membership.organizationId);
        return organization ? [access.view({ organization, membership })] : [];
      });
    },

    /** @throws ROLE_REQUIRED, VALIDATION_ERROR, SLUG_TAKEN, ORGANIZATION_NOT_FOUND */
    async update(
      member: Acting,
      change: OrganizationChange,
      source: ActingSource,
    ): Promise<OrganizationDocument> {
      requireValid(OrganizationChange, change);
      const { name, slug, logoUrl, billingEmail } = change;
      if (name !== undefined || slug !== undefined || logoUrl !== undefined)
        access.demand(member, 'organization:update');
      else if (billingEmail === undefined)
        throw invalidFields({ path: 'name', message: 'or another field must be given' });
      if (billingEmail !== undefined) access.demand(member, 'billing:manage');
      const { id } = member.organization;
      if (slug !== undefined && slug !== member.organization.slug) {
        if (member.membership) await throttle.countKey(SLUGS, member.membership.userId, source.ip);
        if (RESERVED.has(slug)) throw organizationErrors.SLUG_TAKEN();
      }
      const isOnInvoices = name !== undefined || billingEmail !== undefined;
      const own = { name: name?.trim(), slug, logoUrl: logoUrl ?? undefined, billingEmail };
      const set = defined({
        ...own,
        ...(isOnInvoices && billing.profileMark()),
      });
      const after = { ...member.organization, ...set };
      if (logoUrl === null) delete after.logoUrl;
      const { committed } = await commit([
        organizations.changing(
          { id, deletingAt: null },
          { set, ...(logoUrl === null && { unset: ['logoUrl'] as const }) },
        ),
        await event('organization.updated', { organizationId: id, organization: toOrganizationView(after) }),
        isOnInvoices ? billing.profileChanged : undefined,
        audit.entry({
          event: 'organization.updated',
          ...(member.membership && { subject: member.membership.userId }),
          ...actorOf(source),
          detail: JSON.stringify({ organization: id, ...change }),
        }),
      ]).catch((error: unknown) => {
        throw error instanceof UniqueViolation ? organizationErrors.SLUG_TAKEN() : error;
      });
      if (!committed) throw organizationErrors.ORGANIZATION_NOT_FOUND();
      return after;
    },

    /**
     * Cancels the subscriptions of the organization and deletes it.
     * @throws ROLE_REQUIRED unless the member is an owner; PAYMENT_PROVIDER_ERROR as for accounts: a job completes the deletion
     */
    async delete(by: Acting, source: ActingSource): Promise<void> {
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
          ...actorOf(source),
          detail: id,
        }),
      ]);
      if (!committed) throw organizationErrors.ORGANIZATION_NOT_FOUND();
      await completeDeletion(id);
    },

    completeDeletion,

    /** Resumes interrupted deletions. */
    deletionJob: {
      everySeconds: 60,
      async run({ signal }) {
        const query = { where: { deletingAt: { gt: 0 } }, sort: 'deletingAt' } as const;
        const failures: unknown[] = [];
        for await (const page of pagesOf(organizations, query))
          for (const { id } of page) {
            if (signal.aborted) return;
            await completeDeletion(id).catch((error: unknown) => failures.push(error));
          }
        if (failures.length > 0)
          throw new AggregateError(failures, `${failures.length} organizations could not be deleted.`);
      },
    } satisfies Job,
  };
}
