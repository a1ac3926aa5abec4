import { hash } from 'node:crypto';
import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { type PublicJwk, readJwkSet } from '../../core/kernel/public-jwk.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import { type CommitParts, decideAndCommit } from '../../core/ops/commit.js';
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
function thumbprintOf(key: PublicJwk): string {
  const { kty } = key;
  const members =
    kty === 'RSA'
      ? { e: key.e, kty, n: key.n }
      : { crv: key.crv, kty, x: key.x, ...(kty === 'EC' && { y: key.y }) };
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
  /** Changes the keys of an agent; `null` if it is no agent, was deleted, or `decide` returns `null`. */
  const change = (
    id: string,
    event: 'agent.key_added' | 'agent.key_removed',
    source: RequestSource,
    decide: (keys: readonly AgentKey[]) => { keys: AgentKey[]; changed: AgentKey } | null,
  ): Promise<AgentKey | null> =>
    decideAndCommit(commit, async () => {
      const agent = await principals.findOne({ id, kind: 'agent' });
      const decided = agent && agent.state !== 'deleted' ? decide(agent.keys ?? []) : null;
      if (!agent || !decided) return { result: null };
      const { state, epoch = null, keyRevision = null } = agent;
      const { keys, changed } = decided;
      const isRemoval = event === 'agent.key_removed';
      const updatedAt = clock.now();
      const write = principals.changing(
        { id, kind: 'agent', state, epoch, keyRevision },
        {
          ...(keys.length > 0 ? { set: { keys, updatedAt } } : { set: { updatedAt }, unset: ['keys'] }),
          inc: { keyRevision: 1, ...(isRemoval && { epoch: 1 }) },
        },
      );
      const record = audit.entry({ event, subject: id, ...actorOf(source), detail: changed.id });
      return {
        parts: [write, isRemoval ? await endSessions(agent) : undefined, record],
        result: changed,
      };
    });

  return {
    /** Returns `null` if `agent` is no agent, or was deleted. @throws VALIDATION_ERROR */
    async add({ id }: PrincipalDocument, jwk: unknown, source: RequestSource): Promise<AgentKey | null> {
      const key = readAgentKey(jwk, clock.now());
      return change(id, 'agent.key_added', source, (keys) => {
        if (keys.some((known) => known.id === key.id))
          throw invalidFields({ path: 'key', message: 'is a key of this agent already' });
        if (keys.length >= MAX_AGENT_KEYS)
          throw invalidFields({ path: 'key', message: `would be one of more than ${MAX_AGENT_KEYS}` });
        return { keys: [...keys, key], changed: key };
      });
    },

    /** Removes a key and revokes everything that was issued to the agent. `null` if there is no such key. */
    remove: ({ id }: PrincipalDocument, keyId: string, source: RequestSource): Promise<AgentKey | null> =>
      change(id, 'agent.key_removed', source, (keys) => {
        const changed = keys.find((known) => known.id === keyId);
        return changed ? { keys: keys.filter((known) => known !== changed), changed } : null;
      }),
  };
}
