import { sha256 } from '../kernel/secrets.js';

/**
 * The list with which resource servers learn within a second that access tokens are revoked, although they verify tokens
 * without a request. It contains only what concerns tokens that have not expired, and is served as a JWT that the issuer
 * signs. Everybody may read it, so it contains hashes instead of identifiers.
 */

/** The `typ` of its header. */
export const REVOCATION_LIST_TYPE = 'revocations+jwt';

/**
 * What a revocation concerns: a token (`jti`), everything issued from one authorization (`txn`), in one session (`sid`) or
 * for one delegation, all tokens for or by a principal (`sub`), of a client (`client_id`), or of a client for a principal
 * (`access`).
 */
export type RevocationKind = 'jti' | 'txn' | 'sid' | 'delegation' | 'sub' | 'client_id' | 'access';

/** Hash → until when the tokens that it concerns were issued, in seconds since 1970. */
export type RevocationList = Readonly<Record<string, number>>;

/** Claims of an access token (RFC 9068 §2.2) that a revocation may concern. */
export interface RevocableClaims {
  jti?: unknown;
  txn?: unknown;
  sid?: unknown;
  delegation?: unknown;
  sub?: unknown;
  client_id?: unknown;
  act?: unknown;
}

/** 128 bits: enough that no other identifier has the same hash. */
export const revocationKey = (kind: RevocationKind, value: string): string =>
  sha256(`${kind} ${value}`).slice(0, 22);

/** The `value` of the kind `access`. */
export const accessOf = (client: string, sub: string): string => `${client} ${sub}`;

/** The keys of every revocation that would concern a token. */
export function revocationKeysOf(claims: RevocableClaims): string[] {
  const { sub, client_id: client, act } = claims;
  const keys = (['jti', 'txn', 'sid', 'delegation', 'client_id'] as const).flatMap((kind) => {
    const value = claims[kind];
    return typeof value === 'string' ? [revocationKey(kind, value)] : [];
  });
  const people = typeof sub === 'string' ? [sub, ...actorsOf(act)] : actorsOf(act);
  keys.push(...people.map((name) => revocationKey('sub', name)));
  if (typeof sub === 'string' && typeof client === 'string')
    keys.push(revocationKey('access', accessOf(client, sub)));
  return keys;
}

/** Whether a token with these claims is revoked. */
export function isRevoked(claims: RevocableClaims & { iat?: unknown }, list: RevocationList): boolean {
  const issuedAt = typeof claims.iat === 'number' ? claims.iat : 0;
  return revocationKeysOf(claims).some((key) => Object.hasOwn(list, key) && issuedAt <= (list[key] ?? 0));
}

/** The subjects of a chain of actors (RFC 8693 §4.1), the current one first. */
export function actorsOf(act: unknown): string[] {
  const chain: string[] = [];
  for (
    let actor = act;
    typeof actor === 'object' && actor !== null;
    actor = (actor as { act?: unknown }).act
  ) {
    const { sub } = actor as { sub?: unknown };
    if (typeof sub === 'string') chain.push(sub);
  }
  return chain;
}

/** The list in the claims of a JWT; null if there is none. */
export function readRevocations({ revoked }: Record<string, unknown>): RevocationList | null {
  if (typeof revoked !== 'object' || revoked === null) return null;
  return Object.values(revoked).every((time) => typeof time === 'number')
    ? (revoked as RevocationList)
    : null;
}
