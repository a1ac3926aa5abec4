import { DAY, SECOND } from '../../../core/kernel/clock.js';
import { findRefusal, permitOf } from '../admission.js';
import type { Parameters, RuleViolation } from '../authorize/rules.js';
import { type Client, type Directory, isSub, type Principal } from '../directory.js';
import type { Target } from '../resources.js';
import { DEFAULT_LIFETIME_MS, MAX_DEPTH, MAX_LIFETIME_MS, MAX_SIGN_IN_AGE_SECONDS } from './service.js';

/** An authorization request that asks a person to let an agent act for them. */
export interface DelegationRequest {
  agent: Principal;
  target: Target;
  lifetimeMs: number;
  /** How many agents may follow one another, the first included. */
  maxDepth: number;
  /** Of the sign-in, in seconds; absent for any. */
  maxSignInAge?: number;
}

const refuse = (error: string, description: string): RuleViolation => ({ error, description });

/** The delegation that a request asks for, which names one resource: for the agent that is the client, or for a named one. */
export async function findDelegationRequest(
  parameters: Parameters,
  targets: readonly Target[],
  client: Pick<Client, 'agent'>,
  { findPrincipal }: Pick<Directory, 'findPrincipal'>,
): Promise<DelegationRequest | RuleViolation> {
  const { requested_actor: actor = client.agent?.id ?? '' } = parameters;
  const who = client.agent ? 'An agent' : 'requested_actor';
  if (client.agent && actor !== client.agent.id)
    return refuse('invalid_request', 'An agent asks for itself. Omit requested_actor.');
  const [target, ...others] = targets;
  if (!target || others.length > 0)
    return refuse(
      'invalid_target',
      `${who} requires exactly one resource. Send resource with one that is registered.`,
    );
  if (
    ((!client.agent && target.isDefault) || target.scopes.length === 0) &&
    target.resource.scopes.length > 0
  )
    return refuse('invalid_scope', `${who} requires a scope of the resource.`);
  const lifetimeMs = readLifetime(parameters['delegation_expires_in']);
  if (lifetimeMs === null)
    return refuse(
      'invalid_request',
      `delegation_expires_in must be between 1 and ${MAX_LIFETIME_MS / SECOND} seconds (${MAX_LIFETIME_MS / DAY} days).`,
    );
  const maxDepth = readDepth(parameters['delegation_max_depth']);
  if (maxDepth === null)
    return refuse('invalid_request', `delegation_max_depth must be between 1 and ${MAX_DEPTH}.`);
  const agent = client.agent ?? (isSub(actor) ? await findPrincipal(actor) : null);
  if (agent?.kind !== 'agent')
    return refuse('invalid_request', 'requested_actor is not the sub of an active agent.');
  const refusal = findRefusal({ targets, isDelegated: true }, agent);
  if (refusal) return refuse('access_denied', refusal.description);
  const permit = target.isDefault ? permitOf(agent, target.resource, { isDelegated: true }) : null;
  const scopes = permit ? target.scopes.filter((name) => permit.scopes.has(name)) : target.scopes;
  const asked = { agent, target: { ...target, scopes }, lifetimeMs, maxDepth };
  return asksForSensitive(target) ? { ...asked, maxSignInAge: MAX_SIGN_IN_AGE_SECONDS } : asked;
}

function readLifetime(text: string | undefined): number | null {
  if (text === undefined) return DEFAULT_LIFETIME_MS;
  const lifetime = /^[1-9]\d{0,7}$/.test(text) ? Number(text) * SECOND : Number.POSITIVE_INFINITY;
  return lifetime <= MAX_LIFETIME_MS ? lifetime : null;
}

function readDepth(text: string | undefined): number | null {
  if (text === undefined) return 1;
  return /^\d$/.test(text) && Number(text) >= 1 && Number(text) <= MAX_DEPTH ? Number(text) : null;
}

/** Whether a scope is asked for that the operator has marked. */
const asksForSensitive = ({ resource, scopes }: Target): boolean =>
  resource.scopes.some(({ name, sensitive }) => sensitive === true && scopes.includes(name));
