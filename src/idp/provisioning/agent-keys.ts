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

/** What a change of an agent stores, and returns. */
interface DecidedChange<T> {
  set?: Partial<PrincipalDocument>;
  unset?: readonly (keyof PrincipalDocument & 'keys')[];
  result: T;
}

/** Changes how an agent proves itself; `null` if it is no agent, was deleted, or `decide` returns `null`. */
export type ChangeAgent = <T>(
  id: string,
  about: { event: string; detail: string; isRemoval?: boolean },
  source: RequestSource,
  decide: (agent: PrincipalDocument) => DecidedChange<T> | null,
) => Promise<T | null>;

/** With a removal, everything that was issued to the agent ends. */
export const createChangeAgent =
  (
    principals: PrincipalCollection,
    { commit, audit, clock, endSessions }: AgentKeyDependencies,
  ): ChangeAgent =>
  (id, { event, detail, isRemoval = false }, source, decide) =>
    decideAndCommit(commit, async () => {
      const agent = await principals.findOne({ id, kind: 'agent' });
      const decided = agent && agent.state !== 'deleted' ? decide(agent) : null;
      if (!agent || !decided) return { result: null };
      const { state, epoch = null, keyRevision = null } = agent;
      const { set, unset = [], result } = decided;
      const write = principals.changing(
        { id, kind: 'agent', state, epoch, keyRevision },
        {
          set: { ...set, updatedAt: clock.now() },
          ...(unset.length > 0 && { unset }),
          inc: { keyRevision: 1, ...(isRemoval && { epoch: 1 }) },
        },
      );
      const record = audit.entry({ event, subject: id, ...actorOf(source), detail });
      return { parts: [write, isRemoval ? await endSessions(agent, source) : undefined, record], result };
    });

/**
 * The keys with which agents authenticate at /token. No server loads it: a stolen admin token must not give access to an
 * existing agent, so only commands on the host change keys.
 */
export function createAgentKeys({ change, clock }: { change: ChangeAgent; clock: Clock }) {
  return {
    /** Returns `null` if `agent` is no agent, or was deleted. @throws VALIDATION_ERROR */
    async add({ id }: PrincipalDocument, jwk: unknown, source: RequestSource): Promise<AgentKey | null> {
      const key = readAgentKey(jwk, clock.now());
      return change(id, { event: 'agent.key_added', detail: key.id }, source, ({ keys = [] }) => {
        if (keys.some((known) => known.id === key.id))
          throw invalidFields({ path: 'key', message: 'is a key of this agent already' });
        if (keys.length >= MAX_AGENT_KEYS)
          throw invalidFields({ path: 'key', message: `would be one of more than ${MAX_AGENT_KEYS}` });
        return { set: { keys: [...keys, key] }, result: key };
      });
    },

    /** Removes a key and revokes everything that was issued to the agent. `null` if there is no such key. */
    remove: ({ id }: PrincipalDocument, keyId: string, source: RequestSource): Promise<AgentKey | null> =>
      change(id, { event: 'agent.key_removed', detail: keyId, isRemoval: true }, source, ({ keys = [] }) => {
        const result = keys.find((known) => known.id === keyId);
        const left = keys.filter((known) => known !== result);
        if (!result) return null;
        return left.length > 0 ? { set: { keys: left }, result } : { unset: ['keys'], result };
      }),
  };
}
