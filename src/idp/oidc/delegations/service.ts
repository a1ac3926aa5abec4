import { type Clock, DAY, isUnexpired } from '../../../core/kernel/clock.js';
import { newId, type Random, sha256 } from '../../../core/kernel/secrets.js';
import type { Audit } from '../../../core/ops/audit.js';
import { nullIfTaken, type Page } from '../../../core/storage/collection.js';
import { pagesOf } from '../../../core/storage/pages.js';
import type { Directory, Principal } from '../directory.js';
import type { Revocations } from '../revocations/service.js';
import { DELEGATION, type DelegationCollection, type DelegationDocument, traceOf } from './store.js';

/** Delegations: which agents act for which people. Loaded with the first request that concerns one. */

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
  agent: Pick<Principal, 'id' | 'epoch'>;
  scopes: readonly string[];
  lifetimeMs: number;
}

export interface ActiveDelegation {
  delegation: DelegationDocument;
  agent: Principal;
  person: Principal;
}

export interface DelegationDependencies {
  delegationDocuments: DelegationCollection;
  directory: Pick<Directory, 'findPrincipal'>;
  revocations: Revocations;
  audit: Pick<Audit, 'record'>;
  clock: Clock;
  random: Random;
}

export function createDelegations(deps: DelegationDependencies) {
  const { delegationDocuments, directory, revocations, audit, clock, random } = deps;

  const activate = async (delegation: DelegationDocument | null): Promise<ActiveDelegation | null> => {
    if (!delegation || delegation.revokedAt !== undefined) return null;
    if (!isUnexpired(delegation.expiresAt, { now: clock.now(), life: MAX_LIFETIME_MS })) return null;
    const [agent, person] = await Promise.all([
      directory.findPrincipal(delegation.agent),
      directory.findPrincipal(delegation.person),
    ]);
    const isUnchanged = agent?.epoch === delegation.agentEpoch && person?.epoch === delegation.personEpoch;
    return agent?.kind === 'agent' && person && isUnchanged ? { delegation, agent, person } : null;
  };

  /** Resource servers receive it before the store has it, so that no token is accepted wrongly after a crash in between. */
  const endStored = async (delegation: DelegationDocument, by: EndedBy): Promise<boolean> => {
    const { id } = delegation;
    const isEnded = await revocations.end('delegation', id, () =>
      delegationDocuments.changeOne({ id, revokedAt: null }, { set: { revokedAt: clock.now() } }),
    );
    if (isEnded) await recordEnd(delegation, by);
    return isEnded;
  };

  const recordEnd = (delegation: DelegationDocument, by: EndedBy): Promise<void> =>
    audit.record({
      event: 'delegation.ended',
      subject: delegation.person,
      ...by,
      detail: traceOf(delegation),
    });

  return {
    /** Stores what a person has allowed. It replaces, and ends, what the person had allowed this agent there before. */
    async give(
      { person, agent, scopes, lifetimeMs, ...terms }: Permission,
      ip: string,
    ): Promise<DelegationDocument> {
      const { resource } = terms;
      const parties = sha256(JSON.stringify([person.id, agent.id, resource]));
      for (;;) {
        const earlier = await delegationDocuments.findOne({ parties });
        // A new id, because what was ended under the earlier one remains revoked.
        const replaced =
          earlier &&
          (await revocations.end('delegation', earlier.id, () =>
            delegationDocuments.deleteOne({ id: earlier.id }),
          ));
        if (replaced && (await activate(replaced))) await recordEnd(replaced, { ip });
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
        // Another request may have given one in between, which this one replaces.
        const isStored = await delegationDocuments.insert(given).then(() => true, nullIfTaken);
        if (!isStored) continue;
        await audit.record({ event: 'delegation.given', subject: person.id, ip, detail: traceOf(given) });
        return given;
      }
    },

    /** The delegation while it is valid: not ended, not expired, and both parties as they were when it was given. */
    find: async (id: string) => activate(await delegationDocuments.findOne({ id })),

    async recordUse(id: string) {
      await delegationDocuments.changeOne({ id, revokedAt: null }, { set: { lastUsedAt: clock.now() } });
    },

    /** Ends it with everything that was issued for it. Returns whether it was valid. */
    async end(id: string, by: EndedBy): Promise<boolean> {
      const stored = await delegationDocuments.findOne({ id });
      return stored?.revokedAt === undefined && stored !== null && endStored(stored, by);
    },

    /** The same for the person who gave it. */
    async endOwn(person: string, id: string, by: EndedBy): Promise<boolean> {
      const stored = await delegationDocuments.findOne({ id });
      return stored?.person === person && stored.revokedAt === undefined && endStored(stored, by);
    },

    /** Ends all of a client or a resource that is removed. */
    async endAll(of: { clientId: string } | { resource: string }, by: EndedBy) {
      for await (const items of pagesOf(delegationDocuments, {
        where: { ...of, revokedAt: null },
        sort: 'id',
      }))
        for (const one of items) await endStored(one, by);
    },

    /** The valid ones that a person has given, or that an agent has got; the latest first. */
    async list(of: { person: string } | { agent: string }): Promise<ActiveDelegation[]> {
      const { items } = await delegationDocuments.page({
        where: { ...of, revokedAt: null },
        sort: 'id',
        desc: true,
        limit: MAX_LISTED,
      });
      const active = await Promise.all(items.map(activate));
      return active.filter((one) => one !== null);
    },

    /** All valid ones. */
    async page(after?: string): Promise<Page<ActiveDelegation>> {
      const { items, next } = await delegationDocuments.page({
        where: { revokedAt: null },
        sort: 'id',
        limit: MAX_LISTED,
        ...(after !== undefined && { after }),
      });
      const active = await Promise.all(items.map(activate));
      return { items: active.filter((one) => one !== null), next };
    },
  };
}
