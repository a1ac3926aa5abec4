import { mustBe } from '../../core/config/validation-messages.js';
import type { RequestSource } from '../../core/http/routes.js';
import { DisplayName, matchesSchema } from '../../core/http/schemas.js';
import { DAY, HOUR, isRecent } from '../../core/kernel/clock.js';
import { type ErrorDetail, invalidFields } from '../../core/kernel/errors.js';
import { defined } from '../../core/kernel/fields.js';
import { actorOf, changeDetail } from '../../core/ops/audit.js';
import { type CommitPart, decideAndCommit, type Effect } from '../../core/ops/commit.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Change } from '../../core/storage/collection.js';
import { allOf, pagesOf } from '../../core/storage/pages.js';
import { applyChange } from '../../core/storage/semantics.js';
import type { Groups } from '../groups/service.js';
import type { Addresses } from './addresses.js';
import type { AgentUse, AgentUses } from './agent-uses.js';
import { metadataIdProblem, noticeUriProblem, type UriRules, uriProblems } from './client-uris.js';
import { type EndSessions, type PrincipalCollection, type PrincipalDocument, textOfRule } from './store.js';

/** Who answers for agents, what they are for, and when they end. */
export type Agents = ReturnType<typeof createAgents>;

export interface AgentDetails {
  /** The `sub` of an active person, or `group:` with a name. */
  owner?: string | undefined;
  purpose?: string | undefined;
  expiresAt?: number | undefined;
  /** Where people who let it act for them return to. */
  redirectUris?: string[] | undefined;
  /** The address of its client metadata; no other agent has it. */
  clientMetadata?: string | undefined;
  /** Where it is told that a person has decided on its request. */
  notificationEndpoint?: string | undefined;
}

/** A null removes the value. */
export type AgentChange = { [Name in keyof AgentDetails]: AgentDetails[Name] | null };

/** An agent that registered itself ends after this time without a use. */
export const UNUSED_LIFETIME_MS = 30 * DAY;

/** How precisely the last use is known. */
const USE_PRECISION_MS = HOUR;

const FIELDS = [
  'owner',
  'purpose',
  'expiresAt',
  'redirectUris',
  'clientMetadata',
  'notificationEndpoint',
] as const;

const fieldsOf = (agent: Pick<PrincipalDocument, (typeof FIELDS)[number]>) =>
  Object.fromEntries(FIELDS.map((name) => [name, [agent[name]].flat().join(' ') || undefined]));

/** Whether something ends with which the agent has presented itself as a client. */
const endsAsClient = (before: PrincipalDocument, after: PrincipalDocument): boolean =>
  (before.redirectUris !== undefined && after.redirectUris === undefined) ||
  (before.clientMetadata !== undefined && before.clientMetadata !== after.clientMetadata);

export function createAgents(
  principals: PrincipalCollection,
  deps: Pick<ModuleContext, 'commit' | 'audit' | 'clock' | 'backgroundTasks'> & {
    endSessions: EndSessions;
    groups: Pick<Groups, 'has'>;
    addresses: Pick<Addresses, 'conflict' | 'moving'>;
    uriRules: UriRules;
    uses: Pick<AgentUses, 'note' | 'of'>;
  },
) {
  const { commit, audit, clock, backgroundTasks, endSessions, groups, addresses, uriRules, uses } = deps;

  /** @throws VALIDATION_ERROR naming every problem */
  const validate = async (change: AgentChange): Promise<void> => {
    const { owner, purpose, expiresAt, redirectUris, clientMetadata, notificationEndpoint } = change;
    const problems: ErrorDetail[] = [];
    if (typeof owner === 'string' && !(await isOwner(owner)))
      problems.push({ path: 'owner', message: 'is no active person and no group' });
    if (typeof purpose === 'string' && !matchesSchema(purpose, DisplayName))
      problems.push({ path: 'purpose', message: mustBe(DisplayName, purpose) });
    if (typeof expiresAt === 'number' && !(expiresAt > clock.now()))
      problems.push({ path: 'expires', message: 'must be a time in the future' });
    problems.push(...uriProblems('redirect_uris', redirectUris ?? [], uriRules));
    // The server decides by its own options whether it reads documents of this machine.
    const problem = clientMetadata ? metadataIdProblem(clientMetadata, uriRules.allowHttp) : null;
    if (problem !== null) problems.push({ path: 'client_metadata', message: problem });
    const unsafe = notificationEndpoint ? noticeUriProblem(notificationEndpoint, uriRules) : null;
    if (unsafe !== null) problems.push({ path: 'backchannel_client_notification_endpoint', message: unsafe });
    if (problems.length > 0) throw invalidFields(...problems);
  };

  const isOwner = async (owner: string): Promise<boolean> =>
    owner.startsWith('group:')
      ? groups.has(owner.slice('group:'.length))
      : (await principals.findOne({ id: owner, kind: 'human', state: 'active' })) !== null;

  const stop = async (
    { id, epoch }: PrincipalDocument,
    owner: string,
    source: RequestSource,
    change: Change<PrincipalDocument> = {},
  ): Promise<CommitPart[]> => [
    principals.changing({ id, owner, epoch: epoch ?? null }, { ...change, inc: { epoch: 1 } }),
    await endSessions({ id, ...defined({ epoch }) }, source),
    audit.entry({ event: 'agent.stopped', subject: id, ...actorOf(source), detail: `owner ${owner}` }),
  ];

  /** There is any number of them, and each request of them is refused already. */
  const stopAll = async (owner: string, source: RequestSource): Promise<void> => {
    for await (const agents of pagesOf(principals, { where: { owner }, sort: 'id' }))
      for (const agent of agents) await commit(await stop(agent, owner, source));
  };

  return {
    validate,

    /** `null` if it is unknown or no agent. @throws VALIDATION_ERROR naming every problem */
    change: (sub: string, change: AgentChange, source: RequestSource): Promise<PrincipalDocument | null> =>
      decideAndCommit(commit, async () => {
        const found = await principals.findOne({ id: sub });
        if (found?.kind !== 'agent' || found.state === 'deleted') return { result: null };
        await validate(change);
        const set = Object.fromEntries(
          FIELDS.flatMap((name) => (change[name] ? [[name, change[name]]] : [])),
        );
        const { handle, state, epoch, clientMetadata } = found;
        const changing = {
          set: { ...set, updatedAt: clock.now() },
          unset: FIELDS.filter((name) => change[name] === null),
        };
        const result = applyChange(found, changing);
        const detail = changeDetail(fieldsOf(found), fieldsOf(result));
        const conflict = await addresses.conflict({ ...result, handle }, sub);
        if (conflict) throw conflict;
        const isEnding = endsAsClient(found, result);
        const current = { id: sub, kind: 'agent', state, clientMetadata: clientMetadata ?? null } as const;
        const parts = [
          isEnding
            ? principals.changing({ ...current, epoch: epoch ?? null }, { ...changing, inc: { epoch: 1 } })
            : principals.changing(current, changing),
          ...addresses.moving(sub, found, result),
          isEnding ? await endSessions(found, source) : undefined,
          audit.entry({ event: 'agent.changed', subject: sub, ...actorOf(source), detail }),
        ];
        return { parts, result, repeatIfTaken: true };
      }),

    /** Ends the tokens of the agents for which a person answers, after the commit with which that person leaves. */
    stopping: (owner: string, source: RequestSource): Effect => ({
      writes: [],
      afterCommit: () => backgroundTasks.run('end of agents', () => stopAll(owner, source)),
    }),

    /** Stops the agents of a group, for the commit that removes it. Their owner is then its ID, which no other group gets. */
    async stoppingOf(group: { id: string; name: string }, source: RequestSource): Promise<CommitPart[]> {
      const owner = `group:${group.name}`;
      const agents = await allOf(principals, { where: { owner }, sort: 'id' });
      const change = { set: { owner: group.id, updatedAt: clock.now() } };
      return (await Promise.all(agents.map((agent) => stop(agent, owner, source, change)))).flat();
    },

    /** Its rules of workloads, in words. */
    rulesOf: ({ workloads = [] }: PrincipalDocument): string[] => workloads.map(textOfRule),

    /** Where an agent acted, by API. */
    usesOf: uses.of,

    /** Those for which a person answers, alone or in a group. */
    ownedBy: async ({ id, groups: names }: { id: string; groups: readonly string[] }) =>
      (
        await allOf(principals, {
          where: { owner: { in: [id, ...names.map((name) => `group:${name}`)] } },
          sort: 'id',
        })
      ).filter(({ state }) => state !== 'deleted'),

    /**
     * After a code or a token. A failure leaves the previous time, which only makes an agent look unused.
     * @param at the API, if it is one for an API
     */
    recordUse(agent: Pick<PrincipalDocument, 'id' | 'lastUsedAt' | 'mintedAt'>, at?: AgentUse): void {
      const { id, lastUsedAt = 0, mintedAt } = agent;
      if (at) uses.note(id, at);
      const now = clock.now();
      if (isRecent(lastUsedAt, { now, within: USE_PRECISION_MS })) return;
      const set = { lastUsedAt: now, ...(mintedAt === undefined && { expiresAt: now + UNUSED_LIFETIME_MS }) };
      backgroundTasks.run('use of an agent', async () => {
        await principals.changeOne({ id, kind: 'agent' }, { set });
      });
    },
  };
}
