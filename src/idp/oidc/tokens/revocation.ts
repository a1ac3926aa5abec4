import { sha256 } from '../../../core/kernel/secrets.js';
import type { Client } from '../directory.js';
import { grantIdOf } from '../grant-tokens.js';
import type { OidcShared } from '../shared.js';
import { revokeGrant } from './issuance.js';
import { readAccessToken } from './jwt-access-token.js';

/**
 * Revokes a token of this client (RFC 7009): an access token alone, a refresh token with everything issued from the
 * same grant. A token for a resource ends where the resource server asks the provider about it. Unknown tokens and those of other clients are ignored.
 */
export async function revokeToken(
  client: Pick<Client, 'id'>,
  token: string,
  ip: string,
  deps: OidcShared,
): Promise<void> {
  const accessGrantId = grantIdOf('at_', token);
  if (accessGrantId !== undefined) return revokeAccessToken(accessGrantId, client, token, deps);
  const id = grantIdOf('rt_', token) ?? grantIdOf('dt_', token);
  if (id === undefined) {
    // One for a resource is revoked until it expires.
    const claims = token.startsWith('eyJ') ? await readAccessToken(token, undefined, deps) : null;
    if (claims?.client_id === client.id) await deps.revocations.revokeToken(claims.jti);
    return;
  }
  const grant = await deps.grants.findOne({ id });
  const presented = sha256(token);
  const isOwn =
    grant?.clientId === client.id &&
    (grant.refreshHash === presented || grant.previousRefreshHash === presented);
  if (isOwn) await revokeGrant(grant, 'grant.revoked', ip, deps);
}

async function revokeAccessToken(
  id: string,
  client: Pick<Client, 'id'>,
  token: string,
  { grants }: OidcShared,
): Promise<void> {
  const presented = sha256(token);
  for (;;) {
    const grant = await grants.findOne({ id });
    if (grant?.clientId !== client.id) return;
    const { accessTokens = [], revision } = grant;
    const others = accessTokens.filter(({ hash }) => hash !== presented);
    if (others.length === accessTokens.length) return;
    const revoked = await grants.changeOne(
      { id, revision: revision ?? null },
      { set: { accessTokens: others }, inc: { revision: 1 } },
    );
    if (revoked) return;
  }
}
