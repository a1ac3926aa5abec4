import { mustBe } from '../../core/config/validation-messages.js';
import { addressOf, canonicalDomain, isDomain, mailboxOf, spellingsOf } from '../../core/http/mailboxes.js';
import type { RequestSource } from '../../core/http/routes.js';
import { DisplayName, matchesSchema } from '../../core/http/schemas.js';
import { type Clock, SECOND } from '../../core/kernel/clock.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { newId, type Random } from '../../core/kernel/secrets.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import { type CommitPart, type CommitParts, decideAndCommit } from '../../core/ops/commit.js';
import { nullIfTaken, type Page, type Store, type Write } from '../../core/storage/collection.js';
import { allOf, readPage } from '../../core/storage/pages.js';
import { GROUP_NAME, isGroupName, parseFilter } from './filters.js';
import { type GroupDocument, groupCollection, type MemberDocument, memberCollection } from './store.js';

/** Groups of people and agents. */
export type Groups = ReturnType<typeof createGroups>;

/** A principal, as far as groups know it. */
export interface Principal {
  id: string;
  handle: string;
  email?: string;
  kind: 'agent' | 'human';
}

/** Someone who may be in a group: a principal, or everyone with a verified address in a domain. */
export type Member = Pick<MemberDocument, 'member' | 'handle' | 'kind'>;

export interface GroupDependencies<P extends Principal> {
  store: Store;
  commit: CommitParts;
  audit: Pick<Audit, 'entry'>;
  clock: Clock;
  random: Random;
  /** Whether the e-mail address is known to belong to the principal. */
  isVerified(principal: P): boolean;
  /** What goes with a group, for the commit that removes it: its agents stop, and its permissions end. */
  leaving(group: Pick<GroupDocument, 'id' | 'name'>, source: RequestSource): Promise<CommitPart[]>;
}

/** All names are read at once. */
const MAX_GROUPS = 1000;

/** The groups of one member, so that the claim, which is never cut, stays small enough for a header. */
const MAX_GROUPS_OF_PRINCIPAL = 50;
const MAX_GROUPS_OF_DOMAIN = 10;

/** A longer one would not match as a part of a path. */
const MAX_DOMAIN_LENGTH = 99;

/** Above both together, because simultaneous requests may exceed them. */
const MAX_READ = 200;

/** How old the names of groups may be. Members are read for each token. */
const MAX_AGE_MS = SECOND;

const NO_GROUPS: readonly string[] = [];

const noGroup = () => httpErrors.NOT_FOUND({ message: 'There is no such group.' });

export const memberOf = ({ id, handle, kind }: Principal): Member => ({ member: id, handle, kind });

export function createGroups<P extends Principal>(deps: GroupDependencies<P>) {
  const { store, commit, audit, clock, random, isVerified, leaving } = deps;
  const groups = groupCollection(store);
  const members = memberCollection(store);
  let known: { names: Promise<ReadonlyMap<string, string>>; at: number } | undefined;

  const readNames = async () =>
    new Map((await allOf(groups, { sort: 'name' })).map(({ id, name }) => [id, name]));

  /** The names by ID, as read at most one second ago. */
  const names = (): Promise<ReadonlyMap<string, string>> => {
    const now = clock.now();
    if (known && Math.abs(now - known.at) < MAX_AGE_MS) return known.names;
    const read = { names: readNames(), at: now };
    known = read;
    read.names.catch(() => {
      if (known === read) known = undefined;
    });
    return read.names;
  };

  const find = async (name: string): Promise<GroupDocument | null> =>
    isGroupName(name) ? groups.findOne({ name }) : null;

  /** @throws NOT_FOUND */
  const get = async (name: string): Promise<GroupDocument> => {
    const group = await find(name);
    if (!group) throw noGroup();
    return group;
  };

  /** Agents choose their handles themselves, and nobody confirms the address in one. */
  const domainOf = (principal: P): string | undefined => {
    if (principal.kind !== 'human' || !isVerified(principal)) return undefined;
    const mailbox = mailboxOf(addressOf(principal) ?? '');
    return mailbox?.slice(mailbox.lastIndexOf('@'));
  };

  /** The names of the groups of a principal, sorted. */
  const of = async (principal: P): Promise<readonly string[]> => {
    const byId = await names();
    if (byId.size === 0) return NO_GROUPS;
    const domain = domainOf(principal);
    const { items } = await members.page({
      where: { member: { in: [principal.id, ...(domain === undefined ? [] : [domain])] } },
      sort: 'id',
      limit: MAX_READ,
    });
    return [...new Set(items.flatMap(({ group }) => byId.get(group) ?? []))].sort();
  };

  /** @throws VALIDATION_ERROR naming the groups that do not exist */
  const refuseUnknown = async (named: readonly string[], path: string): Promise<void> => {
    const found = await Promise.all(named.slice(0, MAX_READ).map(find));
    const unknown = named.filter((_, index) => !found[index]).map((name) => name.slice(0, 64));
    if (unknown.length > 0)
      throw invalidFields({
        path,
        message: `names groups that do not exist: ${unknown.slice(0, 20).join(', ')}`,
      });
  };

  const idOf = (group: GroupDocument, { member }: Pick<Member, 'member'>) => `${group.id} ${member}`;

  const recordOf = (
    event: string,
    { name }: GroupDocument,
    { member, kind }: Member,
    source: RequestSource,
  ) =>
    audit.entry({
      event,
      ...(kind === 'domain' ? { detail: `${name} ${member}` } : { subject: member, detail: name }),
      ...actorOf(source),
    });

  return {
    /** Whether there is any group. */
    inUse: async (): Promise<boolean> => (await names()).size > 0,

    /** Whether there is a group with this name. */
    has: async (name: string): Promise<boolean> => [...(await names()).values()].includes(name),

    /** The agents in a group. */
    async agentsOf(name: string): Promise<string[]> {
      const group = await find(name);
      const found = group ? await allOf(members, { where: { group: group.id }, sort: 'handle' }) : [];
      return found.flatMap(({ kind, member }) => (kind === 'agent' ? [member] : []));
    },

    /** The principal with the names of its groups. */
    async withGroups<T extends P>(principal: T | null): Promise<(T & { groups: readonly string[] }) | null> {
      return principal && { ...principal, groups: await of(principal) };
    },

    refuseUnknown,

    /** A filter as it is stored: see `parseFilter`. @throws VALIDATION_ERROR also if it names groups that do not exist */
    async readFilter(text: string, path: string): Promise<string> {
      const { filter, named } = parseFilter(text, path);
      await refuseUnknown(named, path);
      return filter;
    },

    get,

    /** @param after the `next` of the previous page. @throws VALIDATION_ERROR when it is invalid */
    list: (after?: string, limit?: number): Promise<Page<GroupDocument>> =>
      readPage(groups, { sort: 'name', after, limit }),

    /** @throws VALIDATION_ERROR */
    async add(
      { name, description }: { name: string; description?: string | undefined },
      source: RequestSource,
    ): Promise<GroupDocument> {
      if (!isGroupName(name)) throw invalidFields({ path: 'name', message: `must be ${GROUP_NAME.accepts}` });
      if (description !== undefined && !matchesSchema(description, DisplayName))
        throw invalidFields({ path: 'description', message: mustBe(DisplayName, description) });
      // Two simultaneous requests may exceed it by one, which is harmless.
      if ((await groups.count({}, MAX_GROUPS)) >= MAX_GROUPS)
        throw invalidFields({ path: 'name', message: `would be one of more than ${MAX_GROUPS} groups` });
      const now = clock.now();
      const group: GroupDocument = {
        id: newId('grp_', clock, random),
        name,
        ...(description && { description }),
        createdAt: now,
        updatedAt: now,
      };
      // An agent or a permission may have been given to an earlier group of this name while that one was removed.
      const earlier = { id: newId('grp_', clock, random), name };
      const added = await decideAndCommit(commit, async () => ({
        parts: [
          groups.inserting(group),
          audit.entry({ event: 'group.added', detail: name, ...actorOf(source) }),
          ...(await leaving(earlier, source)),
        ],
        result: group,
      })).catch(nullIfTaken);
      if (!added) throw invalidFields({ path: 'name', message: 'is the name of a group already' });
      known = undefined;
      return group;
    },

    /**
     * Removes a group. Applications that admit only its members admit nobody by it any more, its agents stop and its permissions end.
     * @throws NOT_FOUND
     */
    async remove(name: string, source: RequestSource): Promise<GroupDocument> {
      let count = 0;
      const removed = await decideAndCommit(commit, async () => {
        const group = await get(name);
        // Before the group, because a removal that was interrupted is repeated.
        count += await members.deleteMany({ group: group.id });
        const detail = `${name}, members: ${count}`;
        const parts = [
          groups.deleting({ id: group.id }),
          audit.entry({ event: 'group.removed', detail, ...actorOf(source) }),
          ...(await leaving(group, source)),
        ];
        return { parts, result: group };
      });
      known = undefined;
      return removed;
    },

    /**
     * The domain that a text like `@example.com` names.
     * @throws VALIDATION_ERROR
     */
    readDomain(text: string): Member {
      const domain = canonicalDomain(text.slice(1));
      const [ascii] = spellingsOf(domain);
      if (!text.startsWith('@') || !isDomain(domain) || ascii.length > MAX_DOMAIN_LENGTH)
        throw invalidFields({
          path: 'member',
          message: `must be a domain like @example.com, of at most ${MAX_DOMAIN_LENGTH} characters`,
        });
      return { member: `@${ascii}`, handle: `@${ascii}`, kind: 'domain' };
    },

    memberOf,

    /** Of one group, by handle; domains come first. @throws NOT_FOUND, VALIDATION_ERROR when `after` is invalid */
    async members(name: string, after?: string, limit?: number): Promise<Page<MemberDocument>> {
      const { id: group } = await get(name);
      return readPage(members, { where: { group }, sort: 'handle', after, limit });
    },

    /** False if it is a member already. @throws NOT_FOUND, VALIDATION_ERROR if it is in too many groups */
    async addMember(name: string, member: Member, source: RequestSource): Promise<boolean> {
      const group = await get(name);
      const id = idOf(group, member);
      if (await members.findOne({ id })) return false;
      const most = member.kind === 'domain' ? MAX_GROUPS_OF_DOMAIN : MAX_GROUPS_OF_PRINCIPAL;
      // Simultaneous requests may exceed it, which is harmless: nothing is cut.
      if ((await members.count({ member: member.member }, most)) >= most)
        throw invalidFields({
          path: 'member',
          message: `is in ${most} groups already, the most for one member`,
        });
      const now = clock.now();
      const added = await commit([
        members.inserting({ id, group: group.id, ...member, createdAt: now }),
        // Fails if the group is removed at the same time.
        groups.changing({ id: group.id }, { set: { updatedAt: now } }),
        recordOf('group.member_added', group, member, source),
      ]).catch(nullIfTaken);
      if (added?.committed === false) throw noGroup();
      return added !== null;
    },

    /** False if it is no member. @throws NOT_FOUND */
    async removeMember(name: string, member: Member, source: RequestSource): Promise<boolean> {
      const group = await get(name);
      const { committed } = await commit([
        members.deleting({ id: idOf(group, member) }),
        recordOf('group.member_removed', group, member, source),
      ]);
      return committed;
    },

    /**
     * What puts a principal into groups, for the commit that invites it.
     * @throws VALIDATION_ERROR if there is no such group, or if they are too many
     */
    async joining(
      names: readonly string[],
      principal: Principal,
      source: RequestSource,
    ): Promise<CommitPart[]> {
      await refuseUnknown(names, 'groups');
      const member = memberOf(principal);
      const found = await allOf(members, { where: { member: member.member }, sort: 'id' });
      const joined = new Set(found.map(({ group }) => group));
      const named = await Promise.all([...new Set(names)].map(get));
      const joining = named.filter(({ id }) => !joined.has(id));
      if (joined.size + joining.length > MAX_GROUPS_OF_PRINCIPAL)
        throw invalidFields({ path: 'groups', message: `must be at most ${MAX_GROUPS_OF_PRINCIPAL} groups` });
      return joining.flatMap((group) => [
        members.ensuring({ id: idOf(group, member), group: group.id, ...member, createdAt: clock.now() }),
        recordOf('group.member_added', group, member, source),
      ]);
    },

    /** What removes a principal from all groups, for the commit that deletes it. */
    async leaving(sub: string): Promise<Write[]> {
      const found = await allOf(members, { where: { member: sub }, sort: 'id' });
      return found.map(({ id }) => members.deleting({ id }));
    },
  };
}
