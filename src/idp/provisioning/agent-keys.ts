import { hash } from 'node:crypto';
import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { type PublicJwk, readJwkSet } from '../../core/kernel/public-jwk.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import type { CommitParts, Effect } from '../../core/ops/commit.js';
import type { AgentKey, EndSessions, PrincipalCollection, PrincipalDocument } from './store.js';

/** Keys of one agent. */
export const MAX_AGENT_KEYS = 5;

/** @throws VALIDATION_ERROR */
export function readAgentKey(jwk: unknown, addedAt: number): AgentKey {
  const read = readJwkSet({ keys: [jwk] }, false);
  if ('problem' in read) throw invalidFields({ path: 'key', message: read.problem });
  const [key] = read.keys as [PublicJwk];
  return { id: thumbprintOf(key), jwk: key, addedAt };
}

/** RFC 7638: the required members in lexicographic order. */
function thumbprintOf({ kty, crv, x, y }: PublicJwk): string {
  const members = { crv, kty, x, ...(kty === 'EC' && { y }) };
  return hash('sha256', JSON.stringify(members), 'base64url');
}

export interface AgentKeyDependencies {
  commit: CommitParts;
  audit: Pick<Audit, 'entry'>;
  clock: Clock;
  endSessions: EndSessions;
}

/**
 * The keys with which agents authenticate at /token. No server loads it: a stolen admin token must not give access to an
 * existing agent, so only commands on the host change keys.
 */
export function createAgentKeys(
  principals: PrincipalCollection,
  { commit, audit, clock, endSessions }: AgentKeyDependencies,
) {
  const findAgent = async (id: string): Promise<PrincipalDocument | null> => {
    const agent = await principals.findOne({ id, kind: 'agent' });
    return agent?.state === 'deleted' ? null : agent;
  };

  /** Stores the keys of an agent. False if it was changed since it was read. */
  const store = async (
    { id, state, epoch, keyRevision }: PrincipalDocument,
    keys: AgentKey[],
    record: Effect,
    ending?: Effect,
  ): Promise<boolean> => {
    const change = principals.changing(
      { id, kind: 'agent', state, epoch: epoch ?? null, keyRevision: keyRevision ?? null },
      {
        ...(keys.length > 0
          ? { set: { keys, updatedAt: clock.now() } }
          : { set: { updatedAt: clock.now() }, unset: ['keys'] }),
        inc: { keyRevision: 1, ...(ending && { epoch: 1 }) },
      },
    );
    return (await commit([change, ending, record])).committed;
  };

  return {
    /** Returns `null` if `agent` is no agent, or was deleted. @throws VALIDATION_ERROR */
    async add({ id }: PrincipalDocument, jwk: unknown, source: RequestSource): Promise<AgentKey | null> {
      const key = readAgentKey(jwk, clock.now());
      for (;;) {
        const agent = await findAgent(id);
        if (!agent) return null;
        const { keys = [] } = agent;
        if (keys.some((known) => known.id === key.id))
          throw invalidFields({ path: 'key', message: 'is a key of this agent already' });
        if (keys.length >= MAX_AGENT_KEYS)
          throw invalidFields({ path: 'key', message: `would be one of more than ${MAX_AGENT_KEYS}` });
        const record = audit.entry({
          event: 'agent.key_added',
          subject: id,
          ...actorOf(source),
          detail: key.id,
        });
        if (await store(agent, [...keys, key], record)) return key;
      }
    },

    /** Removes a key and revokes everything that was issued to the agent. `null` if there is no such key. */
    async remove({ id }: PrincipalDocument, keyId: string, source: RequestSource): Promise<AgentKey | null> {
      for (;;) {
        const agent = await findAgent(id);
        const key = agent?.keys?.find((known) => known.id === keyId);
        if (!agent?.keys || !key) return null;
        const others = agent.keys.filter((known) => known !== key);
        const record = audit.entry({
          event: 'agent.key_removed',
          subject: id,
          ...actorOf(source),
          detail: keyId,
        });
        if (await store(agent, others, record, await endSessions(agent))) return key;
      }
    },
  };
}
