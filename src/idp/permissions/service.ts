import { isIP } from 'node:net';
import { mustBe } from '../../core/config/validation-messages.js';
import type { RequestSource } from '../../core/http/routes.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { defined } from '../../core/kernel/fields.js';
import { type AuditRecord, actorOf } from '../../core/ops/audit.js';
import { decideAndCommit } from '../../core/ops/commit.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Page, Write } from '../../core/storage/collection.js';
import { allOf, readPage } from '../../core/storage/pages.js';
import { applyChange } from '../../core/storage/semantics.js';
import { EVERY_AGENT, type PermissionDocument, permissionCollection, subjectOfGroup } from './store.js';

/** Which agents may do what at which resources. */
export type Permissions = ReturnType<typeof createPermissions>;

/** A permission as an agent has it. */
export interface HeldPermission extends PermissionDocument {
  /** Whether every agent has it. */
  isForEveryone: boolean;
}

/** Scopes and conditions of a permission. */
export interface Terms {
  /** All of the resource by default. */
  scopes?: readonly string[] | undefined;
  until?: number | undefined;
  networks?: readonly string[] | undefined;
  tokensPerHour?: number | undefined;
  delegatedOnly?: boolean | undefined;
}

interface PermittedResource {
  id: string;
  identifier: string;
  scopes: readonly { name: string }[];
}

export interface PermissionDependencies
  extends Pick<ModuleContext, 'store' | 'commit' | 'audit' | 'clock' | 'backgroundTasks'> {
  findResource(identifier: string): Promise<PermittedResource | null>;
  /** Ends the access tokens that were issued to the agents of a subject for a resource. */
  endTokens(permission: Pick<PermissionDocument, 'subject' | 'resource'>): Promise<void>;
}

/** All of one agent, with those of its groups, and of every agent. */
const MAX_READ = 500;

const MAX_NETWORKS = 20;
export const MAX_TOKENS_PER_HOUR = 100_000;

const idOf = (subject: string, { id }: Pick<PermittedResource, 'id'>): string => `${subject} ${id}`;

export function createPermissions(deps: PermissionDependencies) {
  const { store, commit, audit, clock, backgroundTasks, findResource, endTokens } = deps;
  const permissions = permissionCollection(store);
  /** @throws VALIDATION_ERROR */
  const readTerms = (
    { scopes, networks = [], until, tokensPerHour, delegatedOnly }: Terms,
    offered: PermittedResource,
  ) => {
    const names = offered.scopes.map(({ name }) => name);
    const unknown = scopes?.filter((name) => !names.includes(name)) ?? [];
    if (unknown.length > 0)
      throw invalidFields({
        path: 'scopes',
        message: `names scopes that the API does not have: ${unknown.join(' ')}. It has: ${names.join(' ')}`,
      });
    const read = networks.map(readNetwork);
    const bad = networks.find((_, index) => read[index] === null);
    if (bad !== undefined || read.length > MAX_NETWORKS)
      throw invalidFields({
        path: 'networks',
        message: `must be at most ${MAX_NETWORKS} addresses or networks like 192.0.2.0/24`,
      });
    if (until !== undefined && !(until > clock.now()))
      throw invalidFields({ path: 'until', message: 'must be a time in the future' });
    const isRate =
      tokensPerHour === undefined ||
      (Number.isInteger(tokensPerHour) && tokensPerHour >= 1 && tokensPerHour <= MAX_TOKENS_PER_HOUR);
    if (!isRate)
      throw invalidFields({
        path: 'tokens_per_hour',
        message: mustBe({ type: 'integer', minimum: 1, maximum: MAX_TOKENS_PER_HOUR }, tokensPerHour),
      });
    return {
      scopes: [...new Set(scopes ?? names)],
      ...defined({ until, tokensPerHour }),
      ...(read.length > 0 && { networks: read as string[] }),
      ...(delegatedOnly && { delegatedOnly: true as const }),
    };
  };

  const entryOf = (event: string, subject: string, source: RequestSource, detail: string) => {
    const about: Pick<AuditRecord, 'subject' | 'detail'> = subject.startsWith('u_')
      ? { subject, detail }
      : { detail: `${subject} ${detail}` };
    return audit.entry({ event, ...about, ...actorOf(source) });
  };

  /** There may be any number of agents, so their tokens end after the commit. */
  const ending = (permission: Pick<PermissionDocument, 'subject' | 'resource'>) => ({
    writes: [],
    afterCommit: () => backgroundTasks.run('end of access tokens', () => endTokens(permission)),
  });

  return {
    /** Those that an agent has now, by itself, by its groups, or as every agent. */
    async of({ id, groups }: { id: string; groups: readonly string[] }): Promise<HeldPermission[]> {
      const subjects = [id, EVERY_AGENT, ...groups.map(subjectOfGroup)];
      const { items } = await permissions.page({
        where: { subject: { in: subjects } },
        sort: 'id',
        limit: MAX_READ,
      });
      const now = clock.now();
      return items
        .filter(({ until = Number.POSITIVE_INFINITY }) => until > now)
        .map((one) => ({ ...one, isForEveryone: one.subject === EVERY_AGENT }));
    },

    /** Whether the group gives its agents any. */
    hasGroup: async (name: string): Promise<boolean> =>
      (await permissions.count({ subject: subjectOfGroup(name) }, 1)) > 0,

    /**
     * Lets a subject use a resource on these terms, which replace earlier ones. Tokens under the earlier ones end, unless the new
     * ones only add scopes.
     * @throws VALIDATION_ERROR
     */
    allow: (
      subject: string,
      named: string,
      terms: Terms,
      source: RequestSource,
    ): Promise<PermissionDocument> =>
      decideAndCommit(commit, async () => {
        const resource = await findResource(named);
        if (!resource) throw invalidFields({ path: 'resource', message: 'is not registered' });
        const { identifier } = resource;
        const { scopes, ...conditions } = readTerms(terms, resource);
        const id = idOf(subject, resource);
        const before = await permissions.findOne({ id });
        const now = clock.now();
        const givenBy = source.by ?? source.ip;
        const granted: PermissionDocument = {
          id,
          subject,
          resourceId: resource.id,
          resource: identifier,
          scopes,
          ...conditions,
          givenBy,
          createdAt: before?.createdAt ?? now,
          updatedAt: now,
          ...(before && { revision: (before.revision ?? 0) + 1 }),
        };
        const detail = `${identifier} ${JSON.stringify({ scopes, ...conditions })}`;
        const entry = entryOf('permission.granted', subject, source, detail);
        if (!before)
          return { parts: [permissions.inserting(granted), entry], result: granted, repeatIfTaken: true };
        const change = {
          set: { scopes, ...conditions, givenBy, updatedAt: now },
          unset: CONDITIONS.filter((name) => !(name in conditions)),
          inc: { revision: 1 },
        };
        const writing = permissions.changing({ id, revision: before.revision ?? null }, change);
        const end = isWider(before, granted) ? undefined : ending(granted);
        return { parts: [writing, entry, end], result: applyChange(before, change) };
      }),

    /** Ends it, with the tokens that were issued under it. False if there is none. */
    withdraw: (
      subject: string,
      resource: { id: string; identifier: string },
      source: RequestSource,
    ): Promise<boolean> =>
      decideAndCommit(commit, async () => {
        const found = await permissions.findOne({ id: idOf(subject, resource) });
        if (!found) return { result: false };
        const entry = entryOf('permission.withdrawn', subject, source, resource.identifier);
        return { parts: [permissions.deleting({ id: found.id }), entry, ending(found)], result: true };
      }),

    /** @param of all without it @param after the `next` of the previous page. @throws VALIDATION_ERROR when it is invalid */
    list: (
      of: { subject?: string | undefined } = {},
      after?: string,
      limit?: number,
    ): Promise<Page<PermissionDocument>> =>
      readPage(permissions, { sort: 'id', where: defined(of), after, limit }),

    /** What removes those of an agent or an API, for the commit that deletes it. */
    async leaving(of: { subject: string } | { resourceId: string }): Promise<Write[]> {
      const found = await allOf(permissions, { where: of, sort: 'id' });
      return found.map(({ id }) => permissions.deleting({ id }));
    },
  };
}

const CONDITIONS = ['until', 'networks', 'tokensPerHour', 'delegatedOnly'] as const;

/** Whether everything that was allowed remains allowed. */
function isWider(before: PermissionDocument, after: PermissionDocument): boolean {
  const isSame = CONDITIONS.every((name) => JSON.stringify(before[name]) === JSON.stringify(after[name]));
  return isSame && before.scopes.every((scope) => after.scopes.includes(scope));
}

/** A network, or one address, in CIDR notation; `null` for other text. */
function readNetwork(text: string): string | null {
  const [, address = '', length] = /^([\da-f.:]+)(?:\/(\d{1,3}))?$/i.exec(text) ?? [];
  const family = isIP(address);
  const bits = family === 4 ? 32 : 128;
  if (family === 0 || Number(length ?? bits) > bits) return null;
  return `${address}/${length ?? bits}`;
}
