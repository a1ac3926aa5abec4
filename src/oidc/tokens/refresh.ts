import { isRecent, stillHolds } from '../../kernel/clock.js';
import { sha256 } from '../../kernel/secrets.js';
import { oidcErrors } from '../errors.js';
import { grantIdOf, isIssuedRefreshToken } from '../grant-tokens.js';
import type { Client, Principal } from '../model.js';
import type { GrantDocument } from '../store.js';
import { type TokenResponse, tokenAnswer } from './answer.js';
import type { TokenDependencies } from './dependencies.js';
import { ownerAt } from './owner.js';
import { givenSuccessor, successorOf } from './successors.js';
import { refreshExpiry, SLIDING, TOKEN_LIFE, withAccessToken } from './token-lifetimes.js';

export interface RefreshRequest {
  token: string | undefined;
  /** Less than was granted; absent: all of it. */
  scope: string | undefined;
}

/** How long the token before the current one still gets the same successor, in milliseconds: two tabs, a lost answer. */
const REUSE_WINDOW = 30_000;

/**
 * Exchanges a refresh token for its one successor (RFC 6749 §6, RFC 9700 §4.14.2).
 * @throws invalid_request, invalid_grant, invalid_scope
 */
export async function refreshTokens(
  client: Client,
  { token, scope }: RefreshRequest,
  ip: string,
  deps: TokenDependencies,
): Promise<TokenResponse> {
  if (!token) throw oidcErrors.invalid_request({ message: 'refresh_token is missing.' });
  const id = grantIdOf('rt_', token);
  if (id === undefined) throw oidcErrors.invalid_grant();
  const presented = sha256(token);
  for (;;) {
    const { grant, principal } = await findFamily(id, client, deps);
    const now = deps.clock.now();
    if (grant.refreshHash !== presented) {
      const isPrevious = grant.previousRefreshHash === presented;
      const isTwin = isPrevious && isRecent(grant.rotatedAt ?? 0, { now, within: REUSE_WINDOW });
      if (isTwin) return repeat(grant, principal, token, deps);
      if (isPrevious || isIssuedRefreshToken(id, token, deps.seeds)) await punishReuse(grant, ip, deps);
      throw oidcErrors.invalid_grant();
    }
    const granted = narrowed(grant.scope, scope);
    const [seed] = deps.seeds;
    const { accessToken, refreshToken } = successorOf(id, token, seed);
    const issued = { hash: sha256(accessToken), ...(granted !== grant.scope && { scope: granted }) };
    const rotated = await deps.grants.updateOne(
      { id, revision: grant.revision ?? null, revokedAt: null },
      {
        set: {
          refreshHash: sha256(refreshToken),
          previousRefreshHash: presented,
          rotatedAt: now,
          refreshExpiresAt: refreshExpiry(grant, now),
          accessTokens: withAccessToken(grant, issued, now),
        },
        inc: { revision: 1 },
      },
    );
    if (rotated) {
      const answer = { accessToken, expiresIn: TOKEN_LIFE, scope: granted, refreshToken, nonce: undefined };
      return tokenAnswer(rotated, principal, answer, deps);
    }
    // Somebody else was first, so there is something new to read.
  }
}

/** A grant that can be refreshed by this client, and whose it is. @throws invalid_grant */
async function findFamily(
  id: string,
  client: Client,
  { grants, directory, clock }: TokenDependencies,
): Promise<{ grant: GrantDocument; principal: Principal }> {
  const grant = await grants.findOne({ id });
  if (grant?.clientId !== client.id || grant.revokedAt !== undefined) throw oidcErrors.invalid_grant();
  const { refreshExpiresAt = 0 } = grant;
  if (!stillHolds(refreshExpiresAt, { now: clock.now(), life: SLIDING })) throw oidcErrors.invalid_grant();
  const principal = await ownerAt(client, grant, directory);
  if (!principal) throw oidcErrors.invalid_grant();
  return { grant, principal };
}

/** The answer that the first of several got. @throws invalid_grant where it cannot be told here */
async function repeat(
  grant: GrantDocument,
  principal: Principal,
  token: string,
  deps: TokenDependencies,
): Promise<TokenResponse> {
  const now = deps.clock.now();
  // The first may have come to where a seed is in use that is not known here yet. Nobody stole anything.
  const given = givenSuccessor(grant, token, { seeds: deps.seeds, now });
  if (!given) throw oidcErrors.invalid_grant();
  const { successor, issued } = given;
  const expiresIn = Math.floor((issued.expiresAt - now) / 1000);
  const scope = issued.scope ?? grant.scope;
  return tokenAnswer(grant, principal, { ...successor, expiresIn, scope, nonce: undefined }, deps);
}

/** @throws invalid_scope when it is wider than what was granted */
function narrowed(granted: string, asked: string | undefined): string {
  if (!asked?.trim()) return granted;
  const names = new Set(asked.split(' ').filter((name) => name !== ''));
  const known = granted.split(' ');
  if ([...names].some((name) => !known.includes(name))) throw oidcErrors.invalid_scope();
  return known.filter((name) => names.has(name)).join(' ');
}

/** A token of the family that is not the current one was stolen, so the whole family is revoked. */
async function punishReuse(
  { id, sub, clientId }: GrantDocument,
  ip: string,
  { grants, audit, clock }: TokenDependencies,
): Promise<void> {
  const revoked = await grants.updateOne({ id, revokedAt: null }, { set: { revokedAt: clock.now() } });
  if (revoked) await audit.record({ event: 'refresh.reused', subject: sub, ip, detail: clientId });
}
