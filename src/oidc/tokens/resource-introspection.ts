import type { Client } from '../directory.js';
import type { ResourceServer } from '../resources.js';
import { findOwner, type TokenDependencies } from './issuance.js';
import { type AccessTokenClaims, readAccessToken } from './jwt-access-token.js';

/** What the store says about access tokens for resources. Loaded with the first question. */

/** The claims of a valid token for this resource server; `null` for every other one. */
export async function findAccessTokenFor(
  { identifier }: Pick<ResourceServer, 'identifier'>,
  token: string,
  deps: TokenDependencies,
): Promise<AccessTokenClaims | null> {
  const claims = await readAccessToken(token, deps);
  if (claims?.aud !== identifier) return null;
  const [isRevoked, grant] = await Promise.all([
    deps.revocations.includes(claims),
    deps.grants.findOne({ id: claims.txn }),
  ]);
  if (isRevoked || !grant || grant.revokedAt !== undefined) return null;
  if (claims.sid !== undefined && !(await deps.sessions.findOne({ id: claims.sid }))) return null;
  if (!(await deps.isRegistered(grant.clientId))) return null;
  return (await findOwner(grant, deps)) ? claims : null;
}

/** Revokes an access token of this client until it expires. Others are ignored. */
export async function revokeJwtAccessToken(
  client: Pick<Client, 'id'>,
  token: string,
  deps: TokenDependencies,
): Promise<void> {
  const claims = await readAccessToken(token, deps);
  if (claims?.client_id === client.id) await deps.revocations.revoke('jti', claims.jti);
}
