import type { AgentClient } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { impliedBy, namesIn } from '../resources.js';
import type { OidcShared } from '../shared.js';
import { isOwnClient } from './agents.js';
import { createDirectGrant } from './direct-grant.js';
import type { TokenResponse } from './issuance.js';
import { findProvenKey } from './key-binding.js';
import { permittedTarget, tokenEntry } from './permit.js';
import type { TokenRequest } from './request.js';

/** Access tokens of agents for themselves (RFC 6749 §4.4). */

/** @throws invalid_target, invalid_scope, invalid_dpop_proof, use_dpop_nonce */
export async function issueToAgent(
  client: AgentClient,
  { fields, resources, prove, ip }: TokenRequest,
  deps: OidcShared,
): Promise<TokenResponse> {
  const { grants, commit, clock } = deps;
  if (!isOwnClient(client)) throw oidcErrors.unauthorized_client({ message: OWN_SUB });
  const { agent } = client;
  const asked = [...new Set(namesIn(fields['scope']))];
  const named = resources.length > 0 ? resources : await impliedBy(new Set(asked), deps.resources);
  const [identifier, ...others] = named;
  if (identifier === undefined || others.length > 0) throw refuse('Send one resource.');
  const resource = await deps.resources.find(identifier);
  if (!resource) throw refuse('The resource is not registered.');
  const offered = resource.scopes.map(({ name }) => name);
  if (!asked.every((name) => offered.includes(name)))
    throw oidcErrors.invalid_scope({ message: 'scope contains a scope that the resource does not have.' });
  // Without a scope, all that the agent has a permission for (RFC 6749 §3.3).
  const scopes = asked.length > 0 ? asked : offered;
  const target = await permittedTarget(agent, { resource, scopes }, { ip, asked }, deps);
  const key = await findProvenKey(prove, undefined, target, deps);
  const authentication = { authTime: clock.now() };
  const direct = { clientId: agent.id, principal: agent, target, key, authentication };
  const { grant, respond } = createDirectGrant(direct, deps);
  await commit([grants.inserting(grant), tokenEntry(grant, target, ip, deps)]);
  return respond();
}

const OWN_SUB = 'An agent gets tokens for itself with its sub as client_id.';

const refuse = (message: string) => oidcErrors.invalid_target({ message });
