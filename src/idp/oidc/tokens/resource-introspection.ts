import type { Client } from '../directory.js';
import type { OidcShared } from '../shared.js';
import { findOwner } from './issuance.js';
import { type AccessTokenClaims, type ActorClaim, readAccessToken } from './jwt-access-token.js';

/** What the store says about access tokens for resources. Loaded with the first question. */

/** The claims of a valid token for this resource server; `null` for every other one. */
export async function findAccessTokenFor(
  { identifier }: { identifier: string },
  token: string,
  deps: OidcShared,
): Promise<AccessTokenClaims | null> {
  const claims = await readAccessToken(token, deps);
  if (claims?.aud !== identifier) return null;
  const [isRevoked, grant] = await Promise.all([
    deps.revocations.includes(claims),
    deps.grants.findOne({ id: claims.txn }),
  ]);
  if (isRevoked || !grant || grant.revokedAt !== undefined) return null;
  if (claims.sid !== undefined && !(await deps.sessionDocuments.findOne({ id: claims.sid }))) return null;
  // Each agent of a chain, as it was when it got the token; findOwner checks the delegation.
  if (claims.act && !(await areUnchanged(claims.act, deps))) return null;
  // An agent may be its own client.
  if (grant.clientId !== grant.sub && !(await deps.directory.findClient(grant.clientId))) return null;
  return (await findOwner(grant, deps)) ? claims : null;
}

async function areUnchanged(act: ActorClaim, { directory }: OidcShared): Promise<boolean> {
  for (let actor: ActorClaim | undefined = act; actor; actor = actor.act) {
    const agent = await directory.findPrincipal(actor.sub);
    if (agent?.kind !== 'agent' || agent.epoch !== actor.epoch) return false;
  }
  return true;
}

/** Revokes an access token of this client until it expires. Others are ignored. */
export async function revokeJwtAccessToken(
  client: Pick<Client, 'id'>,
  token: string,
  deps: OidcShared,
): Promise<void> {
  const claims = await readAccessToken(token, deps);
  if (claims?.client_id === client.id) await deps.revocations.revokeToken(claims.jti);
}
