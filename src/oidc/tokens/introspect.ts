import { stillHolds, toSeconds } from '../../kernel/clock.js';
import { sha256 } from '../../kernel/secrets.js';
import { grantIdOf } from '../grant-tokens.js';
import type { Client } from '../model.js';
import { findAccess } from './access.js';
import type { TokenDependencies } from './dependencies.js';
import { ownerOf } from './owner.js';
import { SLIDING, TOKEN_LIFE } from './token-lifetimes.js';

/** What is said of a token (RFC 7662 §2.2); nothing of one that is dead or none of the asking client's. */
export type Introspection =
  | { active: false }
  | {
      active: true;
      scope: string;
      client_id: string;
      token_type?: 'Bearer';
      iss: string;
      sub: string;
      aud: string;
      exp: number;
      iat: number;
    };

const INACTIVE: Introspection = { active: false };

/** Judges an access or refresh token for the client that it was issued to, who is its audience, too. */
export async function introspectToken(
  client: Client,
  token: string,
  deps: TokenDependencies,
): Promise<Introspection> {
  const { grants, directory, issuer, clock } = deps;
  const about = { client_id: client.id, iss: issuer(), aud: client.id };
  const access = await findAccess(token, deps);
  if (access) {
    const { grant, issued, scope } = access;
    if (grant.clientId !== client.id) return INACTIVE;
    const exp = toSeconds(issued.expiresAt);
    const times = { exp, iat: exp - TOKEN_LIFE };
    return { active: true, scope, ...about, token_type: 'Bearer', sub: grant.sub, ...times };
  }
  const id = grantIdOf('rt_', token);
  const grant = id === undefined ? null : await grants.findOne({ id });
  if (grant?.clientId !== client.id || grant.revokedAt !== undefined) return INACTIVE;
  const { refreshHash, refreshExpiresAt = 0, rotatedAt, consumedAt = 0 } = grant;
  if (refreshHash !== sha256(token)) return INACTIVE;
  if (!stillHolds(refreshExpiresAt, { now: clock.now(), life: SLIDING })) return INACTIVE;
  if (!(await ownerOf(grant, directory))) return INACTIVE;
  const times = { exp: toSeconds(refreshExpiresAt), iat: toSeconds(rotatedAt ?? consumedAt) };
  return { active: true, scope: grant.scope, ...about, sub: grant.sub, ...times };
}
