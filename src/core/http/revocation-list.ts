import { sha256 } from '../kernel/secrets.js';

/**
 * The list from which resource servers know within a second that access tokens are revoked, although they verify tokens
 * without a request. It contains only what concerns tokens that have not expired, and is served as a JWT that the issuer
 * signs. Everybody may read it, so it contains hashes instead of identifiers.
 */

/** The `typ` of its header. */
export const REVOCATION_LIST_TYPE = 'revocations+jwt';

/**
 * What a revocation concerns: a token (`jti`), everything issued from one authorization (`txn`), in one session (`sid`) or
 * for one delegation, all tokens for or by a principal (`sub`), of a client (`client_id`), of a client for a principal
 * (`access`), for a resource (`aud`), or for and by a principal at a resource (`agent`).
 */
export type RevocationKind =
  | 'jti'
  | 'txn'
  | 'sid'
  | 'delegation'
  | 'sub'
  | 'client_id'
  | 'access'
  | 'aud'
  | 'agent';

/** Hash → `true`, or the lowest generation of tokens that is not revoked; for `aud` and `agent`, the earliest `iat`. */
export type RevocationList = Readonly<Record<string, number | true>>;

/** Claims of an access token (RFC 9068 §2.2) that a revocation may concern. */
export interface RevocableClaims {
  jti?: unknown;
  txn?: unknown;
  sid?: unknown;
  delegation?: unknown;
  client_id?: unknown;
  aud?: unknown;
  iat?: unknown;
  sub?: unknown;
  /** Generation of the principal: how often everything that was issued for it has been revoked. */
  epoch?: unknown;
  /** Generation of the client's access to the principal. */
  consent?: unknown;
  /** The chain of actors (RFC 8693 §4.1), each with its `epoch`. */
  act?: unknown;
}

/** 128 bits: enough that no other identifier has the same hash. */
export const revocationKey = (kind: RevocationKind, value: string): string =>
  sha256(`${kind} ${value}`).slice(0, 22);

/** The `value` of the kind `access`. */
export const accessOf = (client: string, sub: string): string => `${client} ${sub}`;

/** The `value` of the kind `agent`. */
export const agentAt = (sub: string, resource: string): string => `${sub} ${resource}`;

/** The keys under which a revocation of this token would be listed, with the generation of the token. */
export function revocationKeysOf(claims: RevocableClaims): [key: string, generation: number][] {
  const { sub, client_id: client, epoch, consent, act, aud, iat } = claims;
  const keys: [string, number][] = [];
  const add = (kind: RevocationKind, value: unknown, generation: unknown = 0) => {
    if (typeof value === 'string')
      keys.push([revocationKey(kind, value), typeof generation === 'number' ? generation : 0]);
  };
  for (const kind of ['jti', 'txn', 'sid', 'delegation', 'client_id'] as const) add(kind, claims[kind]);
  if (typeof sub === 'string' && typeof client === 'string') add('access', accessOf(client, sub), consent);
  add('aud', aud, iat);
  for (const party of [{ sub, epoch }, ...actorsOf(act)]) {
    add('sub', party.sub, party.epoch);
    if (typeof party.sub === 'string' && typeof aud === 'string') add('agent', agentAt(party.sub, aud), iat);
  }
  return keys;
}

/** Whether a token with these claims is revoked. */
export function isRevoked(claims: RevocableClaims, list: RevocationList): boolean {
  return revocationKeysOf(claims).some(([key, generation]) => {
    const valid = Object.hasOwn(list, key) ? list[key] : undefined;
    return valid !== undefined && (valid === true || generation < valid);
  });
}

/** The actors of a chain (RFC 8693 §4.1), the current one first. */
export function actorsOf(act: unknown): { sub: string; epoch?: unknown }[] {
  const chain: { sub: string; epoch?: unknown }[] = [];
  for (
    let actor = act;
    typeof actor === 'object' && actor !== null;
    actor = (actor as { act?: unknown }).act
  ) {
    const { sub, epoch } = actor as { sub?: unknown; epoch?: unknown };
    if (typeof sub === 'string') chain.push({ sub, epoch });
  }
  return chain;
}

/** The list in the claims of a JWT; null if there is none. */
export function readRevocations({ revoked }: Record<string, unknown>): RevocationList | null {
  if (typeof revoked !== 'object' || revoked === null) return null;
  const isList = Object.values(revoked).every((valid) => valid === true || typeof valid === 'number');
  return isList ? (revoked as RevocationList) : null;
}
