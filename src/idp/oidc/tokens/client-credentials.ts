import { findRefusal } from '../admission.js';
import { oidcErrors } from '../errors.js';
import { namesIn } from '../resources.js';
import type { OidcShared } from '../shared.js';
import type { AgentClient } from './agents.js';
import { createDirectGrant } from './direct-grant.js';
import type { TokenResponse } from './issuance.js';
import { findProvenKey } from './key-binding.js';
import type { TokenRequest } from './request.js';

/** Access tokens of agents for themselves (RFC 6749 §4.4). */

/** @throws invalid_target, invalid_scope, invalid_dpop_proof, use_dpop_nonce */
export async function issueToAgent(
  { principal: agent }: AgentClient,
  { fields, resources, prove, ip }: TokenRequest,
  deps: OidcShared,
): Promise<TokenResponse> {
  const { grants, commit, audit, clock } = deps;
  const [identifier, ...others] = resources;
  if (identifier === undefined || others.length > 0) throw refuse('Send one resource.');
  const resource = await deps.resources.find(identifier);
  if (!resource) throw refuse('The resource is not registered.');
  const refusal = findRefusal({ targets: [{ resource }] }, agent);
  if (refusal) throw refuse(refusal.description);
  const scopes = [...new Set(namesIn(fields['scope']))];
  const isOffered = (name: string) => resource.scopes.some((offered) => offered.name === name);
  if (!scopes.every(isOffered))
    throw oidcErrors.invalid_scope({ message: 'scope contains a scope that the resource does not have.' });
  if (scopes.length === 0 && resource.scopes.length > 0)
    throw oidcErrors.invalid_scope({ message: 'scope is missing.' });
  const target = { resource, scopes };
  const key = await findProvenKey(prove, undefined, target);
  const authentication = { authTime: clock.now() };
  const direct = { clientId: agent.id, principal: agent, target, key, authentication };
  const { grant, respond } = createDirectGrant(direct, deps);
  await commit([
    grants.inserting(grant),
    audit.entry({ event: 'agent.token_issued', subject: agent.id, ip, detail: identifier }),
  ]);
  return respond();
}

const refuse = (message: string) => oidcErrors.invalid_target({ message });
