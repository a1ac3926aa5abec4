import { HOUR } from '../../../core/kernel/clock.js';
import { defined } from '../../../core/kernel/fields.js';
import type { Audit } from '../../../core/ops/audit.js';
import type { Effect } from '../../../core/ops/commit.js';
import { fixedWindow } from '../../../core/throttle/throttle.js';
import { admit } from '../admission.js';
import type { Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import type { Circumstances } from '../permits.js';
import type { Target } from '../resources.js';
import type { OidcShared } from '../shared.js';
import { actorOf, type GrantDocument } from '../store.js';
import { type Trace, traced } from '../traces.js';

interface TokenCircumstances extends Circumstances {
  ip: string;
  /** Scopes without which it gets no token. */
  asked?: readonly string[];
}

/**
 * What an access token of an agent may contain: the part of the target that the agent has a permission for. It counts towards the
 * number of tokens that the agent gets in an hour.
 *
 * @throws invalid_target without a permission, invalid_scope, RATE_LIMITED
 */
export async function permittedTarget(
  agent: Principal,
  { resource, scopes, until: end = Number.POSITIVE_INFINITY }: Target,
  { asked = [], ...circumstances }: TokenCircumstances,
  { throttle }: Pick<OidcShared, 'throttle'>,
): Promise<AgentTarget> {
  const { refusal, permit } = admit({ resource, scopes: asked }, agent, circumstances);
  if (refusal?.isByScope) throw oidcErrors.invalid_scope({ message: refusal.description });
  if (!permit) throw oidcErrors.invalid_target(refusal && { message: refusal.description });
  const permitted = scopes.filter((name) => permit.scopes.has(name));
  const isUnlimited = permit.permissions.some(
    (one) => one.tokensPerHour === undefined && permitted.every((name) => one.scopes.includes(name)),
  );
  if (!isUnlimited)
    for (const { id: permission, tokensPerHour: most } of permit.permissions)
      if (most !== undefined)
        await throttle.countKey(
          fixedWindow('agent-tokens', most, HOUR),
          `${agent.id} ${permission}`,
          circumstances.ip,
        );
  const until = Math.min(end, permit.until ?? Number.POSITIVE_INFINITY);
  return {
    resource,
    scopes: permitted,
    by: { agent, permissions: permit.permissions.map(({ id }) => id) },
    ...(until !== Number.POSITIVE_INFINITY && { until }),
  };
}

/** What an access token of an agent is for. */
type AgentTarget = Target & Required<Pick<Target, 'by'>>;

/** Who gets the token, and for whom. */
type Chain = Pick<Trace, 'txn' | 'client' | 'person' | 'delegation' | 'chain'>;

/** What the audit says about a token that an agent gets, and the use of the agent. */
export function recordOfToken(
  { txn, client, person, delegation, chain }: Chain,
  { resource: { identifier: resource }, scopes, by }: AgentTarget,
) {
  const { id: agent, owner } = by.agent;
  const { permissions } = by;
  const trace = { owner, person, delegation, chain, resource, scopes, permissions };
  return traced({ txn, client, agent, ...defined(trace) }, true);
}

/** The same for the commit of the token; undefined for a person without an agent. */
export function tokenEntry(
  grant: GrantDocument,
  target: Target | null,
  ip: string,
  { audit, directory }: { audit: Pick<Audit, 'entry'> } & Pick<OidcShared, 'directory'>,
): Effect | undefined {
  if (!target?.by) return undefined;
  const { by, ...rest } = target;
  const { id: txn, clientId: client, sub, delegation } = grant;
  const given = { ...(actorOf(grant) && { person: sub }), ...(delegation && { delegation: delegation.id }) };
  const chain = { txn, client, ...given };
  const event = delegation ? 'delegation.used' : 'agent.token_issued';
  return {
    ...audit.entry({ event, ip, ...recordOfToken(chain, { ...rest, by }) }),
    afterCommit: () => directory.recordAgentUse(by.agent, { resource: rest.resource.identifier, txn }),
  };
}
