import { toTimestamp } from '../../../core/http/schemas.js';
import { DAY, isUnexpired } from '../../../core/kernel/clock.js';
import { defined } from '../../../core/kernel/fields.js';
import { newId, sha256 } from '../../../core/kernel/secrets.js';
import { actorOf } from '../../../core/ops/audit.js';
import { type CommitPart, decideAndCommit, type Effect } from '../../../core/ops/commit.js';
import type { ModuleContext } from '../../../core/server/module-context.js';
import type { Page, PageQuery, Write } from '../../../core/storage/collection.js';
import { pagesOf } from '../../../core/storage/pages.js';
import type { Directory, Principal } from '../directory.js';
import type { Revocations } from '../revocations/service.js';
import { traced } from '../traces.js';
import { DELEGATION, type DelegationCollection, type DelegationDocument } from './store.js';

/** Delegations: which agents act for which people. */

export const DEFAULT_LIFETIME_MS = 30 * DAY;
export const MAX_LIFETIME_MS = 90 * DAY;
export const MAX_DEPTH = 3;

/** The oldest sign-in with which a person may delegate a scope that is marked as sensitive. */
export const MAX_SIGN_IN_AGE_SECONDS = 300;

/** Delegations that a list shows. */
const MAX_LISTED = 100;

/** Who ends a delegation, and from where, for the audit. */
export interface EndedBy {
  ip: string;
  by?: string;
}

export type Delegations = ReturnType<typeof createDelegations>;

export interface Permission extends Pick<DelegationDocument, 'resource' | 'clientId' | 'txn' | 'maxDepth'> {
  person: Pick<Principal, 'id' | 'epoch'>;
  agent: Pick<Principal, 'id' | 'epoch' | 'owner'>;
  scopes: readonly string[];
  lifetimeMs: number;
}

export interface ActiveDelegation {
  delegation: DelegationDocument;
  agent: Principal;
  person: Principal;
}

export function createDelegations(
  deps: Pick<ModuleContext, 'commit' | 'audit' | 'clock' | 'random'> &
    Pick<Directory, 'findPrincipal'> & {
      delegationDocuments: DelegationCollection;
      revocations: Revocations;
    },
) {
  const { delegationDocuments, findPrincipal, revocations, commit, audit, clock, random } = deps;

  const activate = async (delegation: DelegationDocument | null): Promise<ActiveDelegation | null> => {
    if (!delegation || delegation.revokedAt !== undefined) return null;
    if (!isUnexpired(delegation.expiresAt, { now: clock.now(), life: MAX_LIFETIME_MS })) return null;
    const [agent, person] = await Promise.all([
      findPrincipal(delegation.agent),
      findPrincipal(delegation.person),
    ]);
    const isUnchanged = agent?.epoch === delegation.agentEpoch && person?.epoch === delegation.personEpoch;
    return agent?.kind === 'agent' && person && isUnchanged ? { delegation, agent, person } : null;
  };

  const entryOf = (
    event: 'given' | 'ended',
    { txn, clientId: client, agent, person, id: delegation, resource, scopes, expiresAt }: DelegationDocument,
    { owner, ...by }: EndedBy & Pick<Principal, 'owner'>,
  ): Effect => {
    const until = event === 'given' ? toTimestamp(expiresAt) : undefined;
    const given = { txn, client, agent, ...defined({ owner }), person, delegation, resource, scopes };
    return audit.entry({
      event: `delegation.${event}`,
      ...actorOf(by),
      ...traced({ ...given, ...defined({ until }) }),
    });
  };

  /** Ends one that has not been ended, for a commit. */
  const ending = async (delegation: DelegationDocument, by: EndedBy): Promise<CommitPart[]> => [
    delegationDocuments.changing({ id: delegation.id, revokedAt: null }, { set: { revokedAt: clock.now() } }),
    await revocations.ending('delegation', delegation.id),
    entryOf('ended', delegation, by),
  ];

  /** Deletes what a new permission replaces. It gets a new ID, because what was ended under this one remains revoked. */
  const replacing = async (earlier: DelegationDocument, by: EndedBy): Promise<CommitPart[]> => [
    delegationDocuments.deleting({ id: earlier.id }),
    await revocations.ending('delegation', earlier.id),
    (await activate(earlier)) ? entryOf('ended', earlier, by) : undefined,
  ];

  const endStored = async (delegation: DelegationDocument | null, by: EndedBy): Promise<boolean> =>
    delegation !== null &&
    delegation.revokedAt === undefined &&
    (await commit(await ending(delegation, by))).committed;

  const pageOf = async (
    query: Pick<PageQuery<DelegationDocument>, 'where' | 'desc' | 'after'>,
  ): Promise<Page<ActiveDelegation>> => {
    const { items, next } = await delegationDocuments.page({ sort: 'id', limit: MAX_LISTED, ...query });
    const active = await Promise.all(items.map(activate));
    return { items: active.filter((one) => one !== null), next };
  };

  return {
    /** Stores what a person has allowed. It replaces, and ends, what the person had allowed this agent there before. */
    give: (
      { person, agent, scopes, lifetimeMs, ...terms }: Permission,
      ip: string,
    ): Promise<DelegationDocument> =>
      decideAndCommit(commit, async () => {
        const parties = sha256(JSON.stringify([person.id, agent.id, terms.resource]));
        const earlier = await delegationDocuments.findOne({ parties });
        const now = clock.now();
        const given: DelegationDocument = {
          id: newId(DELEGATION, clock, random),
          parties,
          person: person.id,
          ...(person.epoch !== undefined && { personEpoch: person.epoch }),
          agent: agent.id,
          ...(agent.epoch !== undefined && { agentEpoch: agent.epoch }),
          ...terms,
          scopes: [...scopes],
          createdAt: now,
          expiresAt: now + Math.min(lifetimeMs, MAX_LIFETIME_MS),
        };
        const parts = [
          ...(earlier ? await replacing(earlier, { ip }) : []),
          delegationDocuments.inserting(given),
          entryOf('given', given, { ip, ...defined({ owner: agent.owner }) }),
        ];
        // Another request may have given or replaced one in between.
        return { parts, result: given, repeatIfTaken: true };
      }),

    /** The delegation while it is valid: not ended, not expired, and both parties as they were when it was given. */
    find: async (id: string) => activate(await delegationDocuments.findOne({ id })),

    /** Remembers a use of a valid one, for the commit of the tokens. */
    using: (id: string): Write =>
      delegationDocuments.changing({ id, revokedAt: null }, { set: { lastUsedAt: clock.now() } }),

    /** Ends it, for the commit that ends everything that was issued for it; empty if it has ended. */
    async ending(id: string, by: EndedBy) {
      const stored = await delegationDocuments.findOne({ id });
      return stored?.revokedAt === undefined && stored ? ending(stored, by) : [];
    },

    /** Ends it with everything that was issued for it. Returns whether it was valid. */
    end: async (id: string, by: EndedBy): Promise<boolean> =>
      endStored(await delegationDocuments.findOne({ id }), by),

    /** The same for the person who gave it. */
    endOwn: async (person: string, id: string, by: EndedBy): Promise<boolean> =>
      endStored(await delegationDocuments.findOne({ id, person }), by),

    /** Ends those of a client, a resource or a party that have not expired: all, or some. */
    async endAll(
      of: { [Name in 'clientId' | 'resource' | 'person' | 'agent']?: string },
      by: EndedBy,
      ends: (delegation: DelegationDocument) => boolean = () => true,
    ) {
      const where = { ...of, revokedAt: null, expiresAt: { gt: clock.now() } };
      for await (const items of pagesOf(delegationDocuments, { where, sort: 'id' }))
        for (const one of items) if (ends(one)) await endStored(one, by);
    },

    /** The valid ones that a person has given, or that an agent has got; the latest first. */
    async list(of: { person: string } | { agent: string }): Promise<ActiveDelegation[]> {
      return (await pageOf({ where: { ...of, revokedAt: null }, desc: true })).items;
    },

    /** All valid ones. */
    page: (after?: string): Promise<Page<ActiveDelegation>> =>
      pageOf({ where: { revokedAt: null }, ...(after !== undefined && { after }) }),
  };
}
