import type { RequestSource } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { defined } from '../../core/kernel/fields.js';
import { actorOf } from '../../core/ops/audit.js';
import { type CommitPart, decideAndCommit } from '../../core/ops/commit.js';
import { allOf, readPage } from '../../core/storage/pages.js';
import type { Acting, MemberOf } from './access.js';
import type { OrganizationDependencies, OrganizationUser } from './dependencies.js';
import { organizationErrors } from './errors.js';
import { ADMIN, MEMBER, OWNER } from './roles.js';
import type { Member } from './schemas.js';
import { type MembershipDocument, membershipId, type OrganizationDocument } from './store.js';

/** A user reads all of them at once. */
const MAX_ORGANIZATIONS = 200;

/** Members that are read to find the next owner of an organization. */
const MAX_CANDIDATES = 20;

/** From where a change is made, `local` for the host, and by which operator. */
export type ActingSource = Pick<RequestSource, 'ip'> & { by?: string };

export type Members = ReturnType<typeof createMembers>;

/** Who belongs to an organization. Every change is one commit that keeps the numbers of members and owners. */
export function createMembers(deps: OrganizationDependencies) {
  const { organizations, memberships, users, roles, access, commit, event, audit, clock, maxMembers } = deps;
  const { seats } = deps.billing;

  const view = (membership: MembershipDocument, user: OrganizationUser | undefined): Member => ({
    userId: membership.userId,
    email: user?.email ?? '',
    name: user?.name ?? '',
    role: membership.role,
    joinedAt: toTimestamp(membership.createdAt),
  });

  const viewOf = async (membership: MembershipDocument): Promise<Member> =>
    view(membership, (await users.find(membership.userId)) ?? undefined);

  const find = async (organizationId: string, userId: string): Promise<MembershipDocument> => {
    const found = await memberships.findOne({ id: membershipId(organizationId, userId) });
    if (!found) throw httpErrors.NOT_FOUND({ message: 'This person is no member.' });
    return found;
  };

  const ownerDifference = (before: string, after?: string): number =>
    Number(after === OWNER) - Number(before === OWNER);

  /** The write that keeps the numbers; unmet without an owner, above the limit, or once the organization is being deleted. */
  const counting = (
    organization: OrganizationDocument,
    { members = 0, owners = 0 }: { members?: number; owners?: number },
  ) => {
    const { id, subscriptionRev = null } = organization;
    const isBelow = { lt: Math.min(maxMembers, seats.limitOf(organization)) };
    return organizations.changing(
      {
        ...{ id, deletingAt: null },
        ...(owners < 0 && { owners: { gt: -owners } }),
        // The number of seats is that of these subscriptions.
        ...(members > 0 && { members: isBelow, subscriptionRev }),
      },
      { inc: { members, owners }, ...(members !== 0 && { set: seats.mark(organization) }) },
    );
  };

  /** Refuses what would leave an organization without an owner. */
  const requireOtherOwner = ({ owners }: OrganizationDocument, difference: number): void => {
    if (owners + difference < 1) throw organizationErrors.LAST_OWNER();
  };

  const adding = async (
    organization: OrganizationDocument,
    userId: string,
    role: string,
  ): Promise<readonly CommitPart[]> => {
    if (organization.members >= maxMembers) throw organizationErrors.TOO_MANY_MEMBERS();
    if (organization.members >= seats.limitOf(organization)) throw organizationErrors.SEATS_TAKEN();
    const { id: organizationId } = organization;
    return [
      memberships.inserting({
        id: membershipId(organizationId, userId),
        organizationId,
        userId,
        role,
        createdAt: clock.now(),
      }),
      counting(organization, { members: 1, owners: Number(role === OWNER) }),
      await joining(userId),
      await event('organization.member_added', { organizationId, userId, role }),
    ];
  };

  /** For the commit by which a user belongs to one more organization. */
  const joining = async (userId: string) => {
    await users.require(userId);
    if ((await memberships.count({ userId }, MAX_ORGANIZATIONS)) >= MAX_ORGANIZATIONS)
      throw organizationErrors.TOO_MANY_ORGANIZATIONS();
    return users.joining(userId);
  };

  const removing = async ({ id, organizationId, userId, role }: MembershipDocument) => [
    memberships.deleting({ id, role }),
    await event('organization.member_removed', { organizationId, userId }),
  ];

  const changing = async ({ id, organizationId, userId, role: before }: MembershipDocument, role: string) => [
    memberships.changing({ id, role: before }, { set: { role } }),
    await event('organization.member_updated', { organizationId, userId, role }),
  ];

  const record = (
    name: string,
    { organization, membership }: Acting,
    detail: { member: string; [more: string]: string },
    source: ActingSource,
  ) =>
    audit.entry({
      event: name,
      subject: membership?.userId ?? detail.member,
      ...actorOf(source),
      detail: JSON.stringify({ organization: organization.id, ...detail }),
    });

  const requireRole = (role: string): void => {
    if (!roles.names.includes(role))
      throw invalidFields({ path: 'role', message: `must be one of ${roles.names.join(', ')}` });
  };

  /** The longest-standing admin, or else member, whose account is not suspended; if all are, the first of them. */
  const nextOwner = async (organizationId: string, userId: string) => {
    let suspended: MembershipDocument | undefined;
    for (const role of [ADMIN, MEMBER, undefined]) {
      const { items } = await memberships.page({
        where: { organizationId, ...(role !== undefined && { role }) },
        sort: 'createdAt',
        limit: MAX_CANDIDATES,
      });
      for (const one of items.filter((candidate) => candidate.userId !== userId)) {
        const user = await users.find(one.userId);
        if (user && !user.isSuspended) return one;
        suspended ??= one;
      }
    }
    return suspended;
  };

  return {
    adding,
    joining,
    requireRole,

    /** @throws NOT_FOUND */
    find: async (organizationId: string, userId: string) => viewOf(await find(organizationId, userId)),

    /** The members, the oldest first. */
    async list(organizationId: string, after: string | undefined, limit?: number) {
      const { items, next } = await readPage(memberships, {
        where: { organizationId },
        sort: 'createdAt',
        ...defined({ limit }),
        after,
      });
      const known = await users.findAll(items.map(({ userId }) => userId));
      return { members: items.map((one) => view(one, known.get(one.userId))), next };
    },

    /**
     * Makes a user a member without an invitation, on behalf of the host.
     * @throws ALREADY_MEMBER, TOO_MANY_MEMBERS, TOO_MANY_ORGANIZATIONS; NOT_FOUND for an unknown user, VALIDATION_ERROR for an unknown role
     */
    async add(by: Acting, userId: string, role: string, source: ActingSource): Promise<Member> {
      requireRole(role);
      const { id } = by.organization;
      await decideAndCommit(commit, async () => {
        const organization = await access.requireOpen(id);
        if (await memberships.findOne({ id: membershipId(id, userId) }))
          throw organizationErrors.ALREADY_MEMBER();
        const parts = [
          ...(await adding(organization, userId, role)),
          record('organization.member_added', by, { member: userId, role }, source),
        ];
        return { parts, result: undefined, repeatIfTaken: true };
      });
      return viewOf(await find(id, userId));
    },

    /**
     * Changes the role of a member.
     * @param by needs all that the roles before and after permit
     * @throws ROLE_REQUIRED, LAST_OWNER, VALIDATION_ERROR for an unknown role, NOT_FOUND for a user who is not a member
     */
    async changeRole(by: Acting, userId: string, role: string, source: ActingSource): Promise<Member> {
      access.demand(by, 'members:manage');
      requireRole(role);
      const { id } = by.organization;
      const changed = await decideAndCommit(commit, async () => {
        const [organization, membership] = await Promise.all([access.requireOpen(id), find(id, userId)]);
        const before = membership.role;
        access.demandRole(by, before);
        access.demandRole(by, role);
        if (before === role) return { result: membership };
        const owners = ownerDifference(before, role);
        requireOtherOwner(organization, owners);
        const parts = [
          ...(await changing(membership, role)),
          counting(organization, { owners }),
          record('organization.member_updated', by, { member: userId, before, after: role }, source),
        ];
        return { parts, result: { ...membership, role } };
      });
      return viewOf(changed);
    },

    /**
     * Removes a member, or lets the member leave.
     * @throws ROLE_REQUIRED, LAST_OWNER, NOT_FOUND
     */
    async remove(by: Acting, userId: string, source: ActingSource): Promise<void> {
      const isOwn = by.membership?.userId === userId;
      if (!isOwn) access.demand(by, 'members:manage');
      const { id } = by.organization;
      await decideAndCommit(commit, async () => {
        const [organization, membership] = await Promise.all([access.requireOpen(id), find(id, userId)]);
        if (!isOwn) access.demandRole(by, membership.role);
        const owners = ownerDifference(membership.role);
        requireOtherOwner(organization, owners);
        const name = isOwn ? 'organization.left' : 'organization.member_removed';
        const parts = [
          ...(await removing(membership)),
          counting(organization, { members: -1, owners }),
          record(name, by, { member: userId }, source),
        ];
        return { parts, result: undefined };
      });
    },

    /**
     * Makes another member the owner instead, in one commit; the former owner becomes an admin.
     * @throws ROLE_REQUIRED unless the member is an owner, NOT_FOUND
     */
    async transfer(by: MemberOf, userId: string, source: RequestSource): Promise<void> {
      access.demandRole(by, OWNER);
      const { id } = by.organization;
      if (by.membership.userId === userId)
        throw invalidFields({ path: 'userId', message: 'must be another member' });
      await decideAndCommit(commit, async () => {
        const [own, other, organization] = await Promise.all([
          find(id, by.membership.userId),
          find(id, userId),
          access.requireOpen(id),
        ]);
        access.demandRole({ ...by, membership: own }, OWNER);
        const parts = [
          ...(await changing(own, ADMIN)),
          ...(await changing(other, OWNER)),
          counting(organization, { owners: other.role === OWNER ? -1 : 0 }),
          record('organization.transferred', by, { member: userId }, source),
        ];
        return { parts, result: undefined };
      });
    },

    /** The name of an organization that would have no owner without a user, and has other members. */
    async onlyOwnedBy(userId: string): Promise<string | undefined> {
      for (const { organizationId: id } of await allOf(memberships, {
        where: { userId, role: OWNER },
        sort: 'createdAt',
      })) {
        const found = await organizations.findOne({ id, owners: 1, members: { gt: 1 }, deletingAt: null });
        if (found) return found.name;
      }
      return undefined;
    },

    /**
     * Removes a user whose account is deleted from every organization. Where the user was the only owner, the next one takes over. Begins the
     * deletion of organizations without other members, and returns their IDs.
     */
    async leaveAll(userId: string): Promise<string[]> {
      const ended: string[] = [];
      for (const { id, organizationId } of await allOf(memberships, {
        where: { userId },
        sort: 'createdAt',
      })) {
        const isEnded = await decideAndCommit(commit, async () => {
          const [membership, organization] = await Promise.all([
            memberships.findOne({ id }),
            organizations.findOne({ id: organizationId, deletingAt: null }),
          ]);
          if (!membership) return { result: false };
          if (!organization) return { parts: [memberships.deleting({ id })], result: false };
          if (organization.members === 1) {
            const where = { id: organizationId, members: 1, deletingAt: null };
            const parts = [organizations.changing(where, { set: { deletingAt: clock.now() } })];
            return { parts, result: true };
          }
          const isOnlyOwner = membership.role === OWNER && organization.owners === 1;
          const heir = isOnlyOwner ? await nextOwner(organizationId, userId) : undefined;
          const source = { ip: 'background' };
          const parts = [
            ...(await removing(membership)),
            ...(heir ? await changing(heir, OWNER) : []),
            heir &&
              record('organization.inherited', { organization, membership }, { member: heir.userId }, source),
            counting(organization, {
              members: -1,
              owners: ownerDifference(membership.role) + (heir ? ownerDifference(heir.role, OWNER) : 0),
            }),
          ];
          return { parts, result: false };
        });
        if (isEnded) ended.push(organizationId);
      }
      return ended;
    },
  };
}
