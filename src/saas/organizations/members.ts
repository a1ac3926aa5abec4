import type { RequestSource } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { type CommitPart, decideAndCommit } from '../../core/ops/commit.js';
import { allOf, readPage } from '../../core/storage/pages.js';
import type { Acting, MemberOf } from './access.js';
import type { OrganizationDependencies, OrganizationUser } from './dependencies.js';
import { organizationErrors } from './errors.js';
import { MEMBER, OWNER } from './roles.js';
import type { Member } from './schemas.js';
import { type MembershipDocument, membershipId } from './store.js';

/** From where a change is made; `local` for the host. */
export type ActingSource = Pick<RequestSource, 'ip'>;

export type Members = ReturnType<typeof createMembers>;

/** Who belongs to an organization. Every change is one commit that keeps the numbers of members and owners. */
export function createMembers(deps: OrganizationDependencies) {
  const { organizations, memberships, users, roles, access, commit, event, audit, clock } = deps;

  const view = (membership: MembershipDocument, user: OrganizationUser | null): Member => ({
    userId: membership.userId,
    email: user?.email ?? '',
    name: user?.name ?? '',
    role: membership.role,
    joinedAt: toTimestamp(membership.createdAt),
  });

  const find = async (organizationId: string, userId: string): Promise<MembershipDocument> => {
    const found = await memberships.findOne({ id: membershipId(organizationId, userId) });
    if (!found) throw httpErrors.NOT_FOUND({ message: 'This person is no member.' });
    return found;
  };

  /** The write that keeps the numbers of an organization; unmet if nobody would be left as an owner, or it is being deleted. */
  const counting = (id: string, { members = 0, owners = 0 }: { members?: number; owners?: number }) => {
    const where = { id, deletingAt: null };
    return organizations.changing(owners < 0 ? { ...where, owners: { gt: -owners } } : where, {
      inc: { ...(members !== 0 && { members }), owners },
    });
  };

  /** Refuses to leave an organization without an owner. */
  const requireOtherOwner = async (organizationId: string): Promise<void> => {
    const organization = await organizations.findOne({ id: organizationId });
    if (!organization || organization.deletingAt !== undefined)
      throw organizationErrors.ORGANIZATION_NOT_FOUND();
    if (organization.owners < 2) throw organizationErrors.LAST_OWNER();
  };

  const ownerDifference = (before: string, after: string | undefined): number =>
    Number(after === OWNER) - Number(before === OWNER);

  /** What makes a user a member, for a commit. */
  const adding = async (
    organizationId: string,
    userId: string,
    role: string,
  ): Promise<readonly CommitPart[]> => [
    memberships.inserting({
      id: membershipId(organizationId, userId),
      organizationId,
      userId,
      role,
      createdAt: clock.now(),
    }),
    counting(organizationId, { members: 1, owners: Number(role === OWNER) }),
    users.joining(userId),
    await event('organization.member_added', { organizationId, userId, role }),
  ];

  const removing = async ({ id, organizationId, userId, role }: MembershipDocument) => [
    memberships.deleting({ id, role }),
    counting(organizationId, { members: -1, owners: ownerDifference(role, undefined) }),
    await event('organization.member_removed', { organizationId, userId }),
  ];

  const changing = async ({ id, organizationId, userId, role: before }: MembershipDocument, role: string) => [
    memberships.changing({ id, role: before }, { set: { role } }),
    counting(organizationId, { owners: ownerDifference(before, role) }),
    await event('organization.member_updated', { organizationId, userId, role }),
  ];

  const record = (
    name: string,
    { organization, membership }: Acting,
    detail: { member: string; [more: string]: string },
    { ip }: ActingSource,
  ) =>
    audit.entry({
      event: name,
      subject: membership?.userId ?? detail.member,
      ip,
      detail: JSON.stringify({ organization: organization.id, ...detail }),
    });

  const requireRole = (role: string): void => {
    if (!roles.names.includes(role))
      throw invalidFields({ path: 'role', message: `must be one of ${roles.names.join(', ')}` });
  };

  return {
    adding,
    requireRole,

    /** The members, the oldest first. */
    async list(organizationId: string, after: string | undefined, limit?: number) {
      const { items, next } = await readPage(memberships, {
        where: { organizationId },
        sort: 'createdAt',
        after,
        ...(limit !== undefined && { limit }),
      });
      const members = await Promise.all(
        items.map(async (membership) => view(membership, await users.find(membership.userId))),
      );
      return { members, next };
    },

    /**
     * Makes a user a member without an invitation, on behalf of the host.
     * @throws ALREADY_MEMBER; NOT_FOUND for an unknown user, VALIDATION_ERROR for an unknown role
     */
    async add(by: Acting, userId: string, role: string, source: ActingSource): Promise<Member> {
      requireRole(role);
      const user = await users.require(userId);
      const organizationId = by.organization.id;
      const added = await decideAndCommit(commit, async () => {
        if (await memberships.findOne({ id: membershipId(organizationId, userId) }))
          throw organizationErrors.ALREADY_MEMBER();
        const organization = await organizations.findOne({ id: organizationId, deletingAt: null });
        if (!organization) throw organizationErrors.ORGANIZATION_NOT_FOUND();
        const parts = [
          ...(await adding(organizationId, userId, role)),
          record('organization.member_added', by, { member: userId, role }, source),
        ];
        const result = { id: '', organizationId, userId, role, createdAt: clock.now() };
        return { parts, result, repeatIfTaken: true };
      });
      return view(added, user);
    },

    /**
     * Changes the role of a member.
     * @param by needs all that the roles before and after permit
     * @throws ROLE_REQUIRED, LAST_OWNER, VALIDATION_ERROR for an unknown role, NOT_FOUND for somebody who is no member
     */
    async changeRole(by: Acting, userId: string, role: string, source: ActingSource): Promise<Member> {
      access.demand(by, 'members:manage');
      requireRole(role);
      const organizationId = by.organization.id;
      const changed = await decideAndCommit(commit, async () => {
        const membership = await find(organizationId, userId);
        const before = membership.role;
        access.demandRole(by, before);
        access.demandRole(by, role);
        if (before === role) return { result: membership };
        if (before === OWNER) await requireOtherOwner(organizationId);
        const parts = [
          ...(await changing(membership, role)),
          record('organization.member_updated', by, { member: userId, before, after: role }, source),
        ];
        return { parts, result: { ...membership, role } };
      });
      return view(changed, await users.find(userId));
    },

    /**
     * Removes a member, or lets the member leave.
     * @throws ROLE_REQUIRED, LAST_OWNER, NOT_FOUND
     */
    async remove(by: Acting, userId: string, source: ActingSource): Promise<void> {
      const isOwn = by.membership?.userId === userId;
      if (!isOwn) access.demand(by, 'members:manage');
      const organizationId = by.organization.id;
      await decideAndCommit(commit, async () => {
        const membership = await find(organizationId, userId);
        if (!isOwn) access.demandRole(by, membership.role);
        if (membership.role === OWNER) await requireOtherOwner(organizationId);
        const name = isOwn ? 'organization.left' : 'organization.member_removed';
        const parts = [...(await removing(membership)), record(name, by, { member: userId }, source)];
        return { parts, result: undefined };
      });
    },

    /**
     * Makes another member the owner instead, in one commit; the former owner becomes an admin.
     * @throws ROLE_REQUIRED unless the member is an owner, NOT_FOUND
     */
    async transfer(by: MemberOf, userId: string, source: RequestSource): Promise<void> {
      access.demandRole(by, OWNER);
      const organizationId = by.organization.id;
      if (by.membership.userId === userId)
        throw invalidFields({ path: 'userId', message: 'must be another member' });
      await decideAndCommit(commit, async () => {
        const [own, other] = await Promise.all([
          find(organizationId, by.membership.userId),
          find(organizationId, userId),
        ]);
        access.demandRole({ ...by, membership: own }, OWNER);
        const parts = [
          memberships.changing({ id: own.id, role: OWNER }, { set: { role: 'admin' } }),
          memberships.changing({ id: other.id, role: other.role }, { set: { role: OWNER } }),
          counting(organizationId, { owners: other.role === OWNER ? -1 : 0 }),
          await event('organization.member_updated', { organizationId, userId, role: OWNER }),
          await event('organization.member_updated', { organizationId, userId: own.userId, role: 'admin' }),
          record('organization.transferred', by, { member: userId }, source),
        ];
        return { parts, result: undefined };
      });
    },

    /** The organizations that would have no owner without a user, and other members. */
    async onlyOwnedBy(userId: string): Promise<string[]> {
      const own = await allOf(memberships, { where: { userId, role: OWNER }, sort: 'createdAt' });
      const found = await Promise.all(
        own.map(async ({ organizationId: id }) =>
          organizations.findOne({ id, owners: 1, members: { gt: 1 } }),
        ),
      );
      return found.flatMap((one) => one?.name ?? []);
    },

    /**
     * Removes a user whose account is deleted from every organization. Where the user was the only owner, the longest-standing admin, or else
     * member, becomes the owner; an organization without other members is returned, to be deleted.
     */
    async leaveAll(userId: string): Promise<string[]> {
      const empty: string[] = [];
      for (const { organizationId } of await allOf(memberships, { where: { userId }, sort: 'createdAt' })) {
        const isEmpty = await decideAndCommit(commit, async () => {
          const membership = await memberships.findOne({ id: membershipId(organizationId, userId) });
          const organization = await organizations.findOne({ id: organizationId });
          if (!membership || !organization) return { result: false };
          if (organization.members === 1) return { result: true };
          const isOnlyOwner = membership.role === OWNER && organization.owners === 1;
          if (!isOnlyOwner) return { parts: await removing(membership), result: false };
          const heir = await nextOwner(organizationId, userId);
          if (!heir) return { result: true };
          const { id } = membership;
          const parts = [
            memberships.deleting({ id, role: OWNER }),
            memberships.changing({ id: heir.id, role: heir.role }, { set: { role: OWNER } }),
            organizations.changing(
              { id: organizationId, owners: 1, deletingAt: null },
              { inc: { members: -1 } },
            ),
            await event('organization.member_updated', { organizationId, userId: heir.userId, role: OWNER }),
            await event('organization.member_removed', { organizationId, userId }),
          ];
          return { parts, result: false };
        });
        if (isEmpty) empty.push(organizationId);
      }
      return empty;
    },
  };

  async function nextOwner(organizationId: string, userId: string): Promise<MembershipDocument | undefined> {
    for (const role of ['admin', MEMBER, undefined]) {
      const { items } = await memberships.page({
        where: { organizationId, ...(role !== undefined && { role }) },
        sort: 'createdAt',
        limit: 2,
      });
      const found = items.find((one) => one.userId !== userId);
      if (found) return found;
    }
    return undefined;
  }
}
