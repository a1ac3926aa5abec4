/**
 * The list with which resource servers learn within a second that access tokens are revoked, although they verify them
 * without a request. It contains only what could concern a token that has not expired. It is served as a JWT with the type
 * `revocations+jwt`, which the issuer signs.
 */

/** The `typ` of its header. */
export const REVOCATION_LIST_TYPE = 'revocations+jwt';

/** Times are seconds since 1970. */
export interface RevocationList {
  /** Single access tokens. */
  jti: string[];
  /** Sessions that have ended. */
  sid: string[];
  /** Delegations that have ended. */
  delegation: string[];
  /** Principals and clients: tokens for them, or in their name, that were issued until this time are revoked. */
  sub: Record<string, number>;
  client_id: Record<string, number>;
}

/** Claims of an access token (RFC 9068 §2.2) that the list refers to. */
export interface RevocableClaims {
  jti?: string | undefined;
  sid?: unknown;
  delegation?: unknown;
  sub?: string | undefined;
  client_id?: unknown;
  iat?: number | undefined;
  act?: unknown;
}

/** A list that can be asked quickly: it is read once and asked with each request. */
export interface RevocationIndex {
  includes(claims: RevocableClaims): boolean;
}

export function indexRevocations(list: RevocationList): RevocationIndex {
  const [tokens, sessions, delegations] = [list.jti, list.sid, list.delegation].map(
    (ids) => new Set<unknown>(ids),
  );
  const [subjects, clients] = [list.sub, list.client_id].map(
    (times) => new Map<unknown, number>(Object.entries(times)),
  );
  return {
    includes({ jti, sid, delegation, sub, client_id: client, iat = 0, act }) {
      const isAfter = (time: number | undefined) => time !== undefined && iat <= time;
      return (
        tokens?.has(jti) === true ||
        sessions?.has(sid) === true ||
        delegations?.has(delegation) === true ||
        isAfter(clients?.get(client)) ||
        [sub, ...actorsOf(act)].some((name) => isAfter(subjects?.get(name)))
      );
    },
  };
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

/** The list in the claims of a JWT; null if they are none. */
export function readRevocations(claims: Record<string, unknown>): RevocationList | null {
  const isTexts = (value: unknown): value is string[] =>
    Array.isArray(value) && value.every((each) => typeof each === 'string');
  const isTimes = (value: unknown): value is Record<string, number> =>
    typeof value === 'object' &&
    value !== null &&
    Object.values(value).every((each) => typeof each === 'number');
  const { jti, sid, delegation, sub, client_id } = (claims['revoked'] ?? {}) as Record<string, unknown>;
  const isList = isTexts(jti) && isTexts(sid) && isTexts(delegation) && isTimes(sub) && isTimes(client_id);
  return isList ? { jti, sid, delegation, sub, client_id } : null;
}
