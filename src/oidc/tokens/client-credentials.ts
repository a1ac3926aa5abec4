import { newId, sha256, UNUSED_HASH } from '../../kernel/secrets.js';
import { oidcErrors } from '../errors.js';
import { newGrantToken, withAccessToken } from '../grant-tokens.js';
import type { Prove } from '../proofs.js';
import { findRefusal, namesIn } from '../resources.js';
import { GRANT, type GrantDocument } from '../store.js';
import type { AgentClient } from './agents.js';
import { createTokenResponse, type TokenDependencies, type TokenResponse } from './issuance.js';
import { findProvenKey } from './key-binding.js';

/** Access tokens of agents for themselves (RFC 6749 §4.4). Loaded with the first request. */

export interface AgentTokenRequest {
  /** The values of `resource`: exactly one. */
  resources: readonly string[];
  scope: string | undefined;
  /** Absent without a DPoP proof. */
  prove?: Prove | undefined;
}

/** @throws invalid_target, invalid_scope, invalid_dpop_proof, use_dpop_nonce */
export async function issueToAgent(
  { principal: agent }: AgentClient,
  { resources, scope, prove }: AgentTokenRequest,
  ip: string,
  deps: TokenDependencies,
): Promise<TokenResponse> {
  const { grants, audit, clock, random } = deps;
  const [identifier, ...others] = resources;
  if (identifier === undefined || others.length > 0) throw refuse('Send one resource.');
  const resource = await deps.resources.find(identifier);
  if (!resource) throw refuse('The resource is not registered.');
  const refusal = findRefusal([{ resource }], agent.kind);
  if (refusal !== null) throw refuse(refusal);
  const scopes = [...new Set(namesIn(scope))];
  const isOffered = (name: string) => resource.scopes.some((offered) => offered.name === name);
  if (!scopes.every(isOffered))
    throw oidcErrors.invalid_scope({ message: 'scope contains a scope that the resource does not have.' });
  if (scopes.length === 0 && resource.scopes.length > 0)
    throw oidcErrors.invalid_scope({ message: 'scope is missing.' });
  const target = { resource, scopes };
  const key = await findProvenKey(prove, undefined, target);
  const id = newId(GRANT, clock, random);
  const accessToken = newGrantToken('at_', id, random);
  const now = clock.now();
  const expiresIn = resource.tokenLifetimeSeconds;
  const issued = {
    hash: sha256(accessToken),
    resource: identifier,
    scope: scopes.join(' '),
    ...(key !== undefined && { key }),
  };
  const grant: GrantDocument = {
    id,
    // There is no code: the grant is redeemed from the beginning.
    codeHash: UNUSED_HASH,
    redirectUri: '',
    codeExpiresAt: now,
    consumedAt: now,
    clientId: agent.id,
    sub: agent.id,
    ...(agent.epoch !== undefined && { epoch: agent.epoch }),
    scope: '',
    resources: [{ resource: identifier, scopes }],
    authTime: now,
    createdAt: now,
    accessTokens: withAccessToken({}, issued, { now, lifetimeSeconds: expiresIn }),
  };
  await Promise.all([
    grants.insert(grant),
    audit.record({ event: 'agent.token_issued', subject: agent.id, ip, detail: identifier }),
  ]);
  const tokens = { accessToken, target, key, expiresIn, scope: issued.scope, refreshToken: undefined };
  return createTokenResponse({}, grant, agent, { ...tokens, nonce: undefined }, deps);
}

const refuse = (message: string) => oidcErrors.invalid_target({ message });
