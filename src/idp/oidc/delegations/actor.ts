import type { Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import type { OidcShared } from '../shared.js';
import type { GrantDocument } from '../store.js';
import { findAgent } from '../tokens/agents.js';
import { findAccessTokenFor } from '../tokens/introspection.js';
import type { TokenRequest } from '../tokens/request.js';

/** The proof that an agent takes part in a request: `actor_token` (RFC 8693 §2.1). */

/** Token type identifiers (RFC 8693 §3). */
export const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
export const JWT = 'urn:ietf:params:oauth:token-type:jwt';

/**
 * The agent that an actor token proves: with an access token of its own for the resource, or with an assertion that one of
 * its keys has signed and that is used up by it.
 *
 * @param clientId who may have got the access token, besides the agent itself
 * @throws invalid_request without a usable token, invalid_grant for one that proves nothing
 */
export async function proveActor(
  { fields, prove, ip }: TokenRequest,
  { resource, clientId }: { resource: string; clientId: string },
  deps: OidcShared,
): Promise<Principal> {
  const { actor_token: token, actor_token_type: type } = fields;
  if (!token) throw oidcErrors.invalid_request({ message: 'actor_token is missing.' });
  if (type !== ACCESS_TOKEN && type !== JWT)
    throw oidcErrors.invalid_request({ message: `actor_token_type must be ${ACCESS_TOKEN} or ${JWT}.` });
  const claims = await findAccessTokenFor(await deps.resources.find(resource), token, ip, deps);
  if (claims) {
    const isOwn = claims.act === undefined && [claims.sub, clientId].includes(claims.client_id);
    // A token that is bound to a key proves nothing without that key.
    const isProven = claims.cnf === undefined || (await prove?.()) === claims.cnf.jkt;
    const agent = isOwn && isProven ? await deps.directory.findPrincipal(claims.sub) : null;
    if (agent?.kind !== 'agent') throw unproven();
    return agent;
  }
  const subject = type === JWT ? deps.assertions.subjectOf(token) : undefined;
  const agent =
    subject === undefined
      ? null
      : ((await findAgent(subject, deps.directory)) ??
        (await findAgent((await deps.workloads.agentOf(token, ip)) ?? '', deps.directory)));
  if (!agent) throw unproven();
  // First, so that a request that is repeated with a nonce has not used up the assertion.
  await prove?.();
  if ((await deps.assertions.verify(agent, token, ip)) !== null) throw unproven();
  return agent.agent;
}

/**
 * The same for the agent that the delegation of a grant is for. An agent that is the client has authenticated instead.
 * @throws invalid_request, invalid_grant
 */
export async function proveDelegate(
  { delegation, resources: [granted] = [], clientId }: GrantDocument,
  request: TokenRequest,
  deps: OidcShared,
): Promise<void> {
  if (!delegation || !granted) throw unproven();
  if (delegation.isClient) return;
  const agent = await proveActor(request, { resource: granted.resource, clientId }, deps);
  if (agent.id !== delegation.agent) throw unproven();
}

const unproven = () =>
  oidcErrors.invalid_grant({ message: 'actor_token does not prove the agent of the delegation.' });
