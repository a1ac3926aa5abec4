import type { Static } from 'typebox';
import { isUnexpired, SECOND, toSeconds } from '../../../core/kernel/clock.js';
import { defined } from '../../../core/kernel/fields.js';
import { isSecretOf, sha256 } from '../../../core/kernel/secrets.js';
import { admit } from '../admission.js';
import type { Claims } from '../claims.js';
import type { Client, Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { grantIdOf, REFRESH_IDLE_LIFETIME_MS, TOKEN_LIFETIME_SECONDS } from '../grant-tokens.js';
import type { Prove } from '../proofs.js';
import { namesIn, type Resource } from '../resources.js';
import type { IntrospectionResponse } from '../schemas.js';
import type { OidcShared } from '../shared.js';
import type { GrantDocument } from '../store.js';
import { findOwner } from './issuance.js';
import { type AccessTokenClaims, type ActorClaim, readAccessToken } from './jwt-access-token.js';
import { confirmationOf, tokenTypeOf } from './key-binding.js';
import { recordOfToken } from './permit.js';

/** A valid opaque access token with its grant and its owner. */
async function findAccessToken(accessToken: string, deps: OidcShared) {
  const { grants, directory, clock } = deps;
  const id = grantIdOf('at_', accessToken);
  const grant = id === undefined ? null : await grants.findOne({ id });
  if (!grant || grant.revokedAt !== undefined) return null;
  const issued = grant.accessTokens?.find(
    ({ hash, resource }) => resource === undefined && isSecretOf(accessToken, hash),
  );
  if (!issued || !isUnexpired(issued.expiresAt, { now: clock.now(), life: TOKEN_LIFETIME_SECONDS * SECOND }))
    return null;
  const [client, principal] = await Promise.all([
    directory.findClient(grant.clientId),
    findOwner(grant, deps),
  ]);
  return client && principal && { grant, issued, client, principal, scope: issued.scope ?? grant.scope };
}

/**
 * The claims for the bearer of an access token (OIDC Core §5.3).
 * @param prove present if it was presented as one that is bound to a key
 * @throws invalid_token, invalid_dpop_proof
 */
export async function userinfo(
  accessToken: string,
  prove: Prove | undefined,
  deps: OidcShared,
): Promise<Claims> {
  const found = await findAccessToken(accessToken, deps);
  // A bound token is worth nothing without a proof (RFC 9449 §7.1).
  if (!found || (found.issued.key === undefined) !== (prove === undefined)) throw oidcErrors.invalid_token();
  if (prove && (await prove(accessToken)) !== found.issued.key) throw oidcErrors.invalid_token();
  return deps.claimsOf(found.principal, found.scope, found.client);
}

/**
 * The claims of a valid token for this resource server; `null` for every other one, and if its agent may no longer do what it
 * permits.
 * @param ip who asks
 */
export async function findAccessTokenFor(
  resource: Resource | null,
  token: string,
  ip: string,
  deps: OidcShared,
): Promise<AccessTokenClaims | null> {
  const claims = resource && (await readAccessToken(token, resource, deps));
  if (!resource || claims?.aud !== resource.identifier) return null;
  const [isRevoked, grant] = await Promise.all([
    deps.revocations.includes(claims),
    deps.grants.findOne({ id: claims.txn }),
  ]);
  if (isRevoked || !grant || grant.revokedAt !== undefined) return null;
  if (claims.sid !== undefined && !(await deps.sessionDocuments.findOne({ id: claims.sid }))) return null;
  // Each agent of a chain, as it was when it got the token; findOwner checks the delegation.
  const actors = await findActors(claims.act, deps);
  if (!actors) return null;
  // An agent may be its own client.
  if (
    ![grant.sub, grant.approval?.agent].includes(grant.clientId) &&
    !(await deps.directory.findClient(grant.clientId))
  )
    return null;
  const owner = await findOwner(grant, deps);
  const [agent = owner] = actors;
  if (!owner || agent?.kind !== 'agent') return owner && claims;
  const target = { resource, scopes: namesIn(claims.scope) };
  const { permit } = admit(target, agent, { isDelegated: actors.length > 0 });
  if (permit) {
    deps.directory.recordAgentUse(agent, { resource: resource.identifier, txn: claims.txn });
    return claims;
  }
  const [, ...chain] = actors.map(({ id }) => id);
  const { txn, client_id: client, sub, delegation } = claims;
  const by = { agent, permissions: [] };
  const given = actors.length > 0 ? { person: sub, ...defined({ delegation }), chain } : {};
  const record = recordOfToken({ txn, client, ...given }, { ...target, by });
  await deps.audit.recordFailure({ event: 'agent.token_refused', ip, ...record });
  return null;
}

/** The agents of a chain, the current one first; `null` if one has changed. */
async function findActors(
  act: ActorClaim | undefined,
  { directory }: OidcShared,
): Promise<Principal[] | null> {
  const found: Principal[] = [];
  for (let actor = act; actor; actor = actor.act) {
    const agent = await directory.findPrincipal(actor.sub);
    if (agent?.kind !== 'agent' || agent.epoch !== actor.epoch) return null;
    found.push(agent);
  }
  return found;
}

/** The introspection response (RFC 7662 §2.2). Invalid tokens and those of other clients are inactive. */
type Introspection = Static<typeof IntrospectionResponse>;

const INACTIVE: Introspection = { active: false };

/** Describes an access token to the resource server that is its audience. */
export async function introspectForResource(
  server: Resource,
  token: string,
  ip: string,
  deps: OidcShared,
): Promise<Introspection> {
  const claims = await findAccessTokenFor(server, token, ip, deps);
  return claims ? { active: true, token_type: tokenTypeOf(claims.cnf?.jkt), ...claims } : INACTIVE;
}

/**
 * Describes an opaque access token, a refresh token or that of a delegation to the client that it was issued to, which is
 * also its audience.
 */
export async function introspectToken(
  client: Client,
  token: string,
  deps: OidcShared,
): Promise<Introspection> {
  const { grants, issuer, clock } = deps;
  const about = { client_id: client.id, iss: issuer(), aud: client.id };
  const access = await findAccessToken(token, deps);
  if (access) {
    const { grant, issued, scope } = access;
    if (grant.clientId !== client.id) return INACTIVE;
    const exp = toSeconds(issued.expiresAt);
    const times = { exp, iat: exp - TOKEN_LIFETIME_SECONDS };
    const key = { token_type: tokenTypeOf(issued.key), ...confirmationOf(issued.key) };
    return { active: true, scope, ...about, ...key, sub: grant.sub, ...times };
  }
  const id = grantIdOf('rt_', token) ?? grantIdOf('dt_', token);
  const grant = id === undefined ? null : await grants.findOne({ id });
  if (grant?.clientId !== client.id || grant.revokedAt !== undefined) return INACTIVE;
  const { refreshHash, refreshExpiresAt = 0, rotatedAt, consumedAt = 0 } = grant;
  if (refreshHash !== sha256(token)) return INACTIVE;
  if (!isUnexpired(refreshExpiresAt, { now: clock.now(), life: REFRESH_IDLE_LIFETIME_MS })) return INACTIVE;
  if (!(await findOwner(grant, deps))) return INACTIVE;
  const times = { exp: toSeconds(refreshExpiresAt), iat: toSeconds(rotatedAt ?? consumedAt) };
  const key = confirmationOf(grant.refreshKey);
  return { active: true, scope: completeScopeOf(grant), ...about, ...key, sub: grant.sub, ...times };
}

/** The scopes of the provider and of all resources. */
const completeScopeOf = ({ scope, resources = [] }: GrantDocument): string =>
  [...new Set([...namesIn(scope), ...resources.flatMap(({ scopes }) => scopes)])].join(' ');
