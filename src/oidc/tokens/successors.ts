import { createHmac } from 'node:crypto';
import { sha256 } from '../../kernel/secrets.js';
import { grantToken, refreshToken } from '../grant-tokens.js';
import type { GrantDocument, IssuedToken } from '../store.js';

/** What a refresh token is exchanged for. */
export interface Successor {
  refreshToken: string;
  accessToken: string;
}

/**
 * Derived from the token presented, so that everybody who presents it gets the same, and none of it is stored in
 * the clear.
 */
export function successorOf(grantId: string, presented: string, seed: string): Successor {
  const derive = (what: string) => createHmac('sha256', seed).update(`${what} after ${presented}`).digest();
  return {
    refreshToken: refreshToken(grantId, derive('refresh'), seed),
    accessToken: grantToken('at_', grantId, derive('access').toString('base64url')),
  };
}

/** What was given out for this token, if it can be told from here and still lives. */
export function givenSuccessor(
  grant: GrantDocument,
  presented: string,
  { seeds, now }: { seeds: readonly string[]; now: number },
): { successor: Successor; issued: IssuedToken } | null {
  const successor = seeds
    .map((seed) => successorOf(grant.id, presented, seed))
    .find(({ refreshToken }) => sha256(refreshToken) === grant.refreshHash);
  if (!successor) return null;
  const accessHash = sha256(successor.accessToken);
  const issued = grant.accessTokens?.find(({ hash, expiresAt }) => hash === accessHash && expiresAt > now);
  return issued ? { successor, issued } : null;
}
