import { sha256 } from '../../kernel/secrets.js';
import { grantIdOf } from '../grant-tokens.js';
import type { Client } from '../model.js';
import type { TokenDependencies } from './dependencies.js';

/**
 * Ends a token of this client (RFC 7009): an access token alone, a refresh token with all that was issued from the
 * same grant. What is unknown, dead or somebody else's stays as it is.
 */
export async function revokeToken(
  client: Client,
  token: string,
  ip: string,
  deps: TokenDependencies,
): Promise<void> {
  const ofAccess = grantIdOf('at_', token);
  if (ofAccess !== undefined) return revokeAccess(ofAccess, client, token, deps);
  const id = grantIdOf('rt_', token);
  if (id === undefined) return;
  const { grants, audit, clock } = deps;
  const grant = await grants.findOne({ id });
  const presented = sha256(token);
  const isTheirs =
    grant?.clientId === client.id &&
    (grant.refreshHash === presented || grant.previousRefreshHash === presented);
  if (!isTheirs) return;
  const revoked = await grants.updateOne({ id, revokedAt: null }, { set: { revokedAt: clock.now() } });
  if (revoked) await audit.record({ event: 'grant.revoked', subject: grant.sub, ip, detail: client.id });
}

async function revokeAccess(
  id: string,
  client: Client,
  token: string,
  { grants }: TokenDependencies,
): Promise<void> {
  const presented = sha256(token);
  for (;;) {
    const grant = await grants.findOne({ id });
    if (grant?.clientId !== client.id) return;
    const { accessTokens = [], revision } = grant;
    const others = accessTokens.filter(({ hash }) => hash !== presented);
    if (others.length === accessTokens.length) return;
    const revoked = await grants.updateOne(
      { id, revision: revision ?? null },
      { set: { accessTokens: others }, inc: { revision: 1 } },
    );
    if (revoked) return;
  }
}
