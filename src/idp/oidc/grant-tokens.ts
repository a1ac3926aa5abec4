import { createHmac, timingSafeEqual } from 'node:crypto';
import { DAY, MINUTE, SECOND } from '../../core/kernel/clock.js';
import { newToken, type Random, sha256 } from '../../core/kernel/secrets.js';
import type { Target } from './resources.js';
import { GRANT, type GrantDocument, type IssuedToken } from './store.js';

/**
 * Codes and tokens contain the id of their grant: a prefix, its 32 hexadecimal digits, and 256 bits of secret. The grant is
 * found by its own key, so that no index of hashes is needed.
 */
export type TokenPrefix = 'ac_' | 'at_' | RefreshPrefix;

/** Of refresh tokens, and of those of a delegation, which are used with a proof of the agent only. */
export type RefreshPrefix = 'rt_' | 'dt_';

/** What further tokens of a grant come with: a refresh token, unless the client acts for an agent that proves itself besides. */
export const refreshPrefix = ({ delegation }: Pick<GrantDocument, 'delegation'>): RefreshPrefix =>
  delegation && !delegation.isClient ? 'dt_' : 'rt_';

export function newGrantToken(prefix: TokenPrefix, grantId: string, random: Random): string {
  return newToken(random, prefix + grantId.slice(GRANT.length));
}

/** @param secret 43 base64url characters */
export function grantToken(prefix: TokenPrefix, grantId: string, secret: string): string {
  return prefix + grantId.slice(GRANT.length) + secret;
}

export function grantIdOf(prefix: TokenPrefix, token: string): string | undefined {
  const name = token.startsWith(prefix) ? /^([0-9a-f]{32})[\w-]{43}$/.exec(token.slice(3))?.[1] : undefined;
  return name === undefined ? undefined : GRANT + name;
}

/** Length of each half of a refresh token's secret. */
const HALF_BYTES = 16;

/**
 * A refresh token: 128 random bits, and a MAC over them and the grant. The store keeps only the hashes of the newest two
 * tokens of a family; the MAC distinguishes an older token, which may have been stolen, from a forged one.
 */
export function refreshToken(
  grantId: string,
  nonce: Buffer,
  seed: string,
  prefix: RefreshPrefix = 'rt_',
): string {
  const half = nonce.subarray(0, HALF_BYTES);
  return grantToken(prefix, grantId, Buffer.concat([half, mac(grantId, half, seed)]).toString('base64url'));
}

export function newRefreshToken(
  grantId: string,
  random: Random,
  seed: string,
  prefix?: RefreshPrefix,
): string {
  return refreshToken(grantId, random.bytes(HALF_BYTES), seed, prefix);
}

/** Whether a provider with one of these seeds issued the refresh token. */
export function isIssuedRefreshToken(grantId: string, token: string, seeds: readonly string[]): boolean {
  const secret = Buffer.from(token.slice(-43), 'base64url');
  const [nonce, presented] = [secret.subarray(0, HALF_BYTES), secret.subarray(HALF_BYTES)];
  return seeds.some((seed) => timingSafeEqual(mac(grantId, nonce, seed), presented));
}

function mac(grantId: string, nonce: Buffer, seed: string): Buffer {
  const key = createHmac('sha256', seed).update('refresh token authentication').digest();
  return createHmac('sha256', key).update(grantId).update(nonce).digest().subarray(0, HALF_BYTES);
}

/** The tokens that replace a refresh token. */
export interface Successor {
  refreshToken: string;
  accessToken: string;
}

/**
 * Derives the successor from the presented token, so that every use of it returns the same tokens and the store
 * needs no plaintext.
 */
export function deriveSuccessor(grantId: string, presented: string, seed: string): Successor {
  const derive = (what: string) => createHmac('sha256', seed).update(`${what} after ${presented}`).digest();
  return {
    refreshToken: refreshToken(grantId, derive('refresh'), seed, presented.startsWith('dt_') ? 'dt_' : 'rt_'),
    accessToken: grantToken('at_', grantId, derive('access').toString('base64url')),
  };
}

/** The successor issued for this token, if one of the seeds derives it and its access token is still valid. */
export function findIssuedSuccessor(
  grant: GrantDocument,
  presented: string,
  { seeds, now }: { seeds: readonly string[]; now: number },
): { successor: Successor; issued: IssuedToken } | null {
  const successor = seeds
    .map((seed) => deriveSuccessor(grant.id, presented, seed))
    .find(({ refreshToken }) => sha256(refreshToken) === grant.refreshHash);
  if (!successor) return null;
  const accessHash = sha256(successor.accessToken);
  const issued = grant.accessTokens?.find(({ hash, expiresAt }) => hash === accessHash && expiresAt > now);
  return issued ? { successor, issued } : null;
}

/** Lifetime of access tokens and id_tokens. */
export const TOKEN_LIFETIME_SECONDS = 3600;

export const CODE_LIFETIME_MS = MINUTE;

/** Longest lifetime of an access token for what a person has approved once. */
export const APPROVED_LIFETIME_MS = 5 * MINUTE;

/** Longest lifetime of a request that a person has to notice and approve in another browser. */
export const PENDING_LIFETIME_MS = 10 * MINUTE;

/** Longest lifetime of a grant without a refresh token, whose code was redeemed just before its expiration. */
export const MAX_LIFETIME_WITHOUT_REFRESH_MS = PENDING_LIFETIME_MS + TOKEN_LIFETIME_SECONDS * SECOND;

/** Lifetime of an unused refresh token, and of its family in total. */
export const REFRESH_IDLE_LIFETIME_MS = 30 * DAY;
export const REFRESH_MAX_LIFETIME_MS = 90 * DAY;

/** Valid access tokens of one grant; another one revokes the oldest. The processes of one client may share a refresh token. */
const MAX_ACCESS_TOKENS = 64;

/** When a refresh token issued now expires. */
export function refreshExpiry(
  { createdAt, delegation }: Pick<GrantDocument, 'createdAt' | 'delegation'>,
  now: number,
): number {
  const end = delegation?.expiresAt ?? Number.POSITIVE_INFINITY;
  return Math.min(now + REFRESH_IDLE_LIFETIME_MS, createdAt + REFRESH_MAX_LIFETIME_MS, end);
}

/** An access token that is issued. */
export interface NewAccessToken {
  /** For a resource, only its hash is used, as the `jti` of a signed token. */
  accessToken: string;
  /** The audience of the access token; `null` for an opaque one. */
  target: Target | null;
  /** Thumbprint of the key that the access token is bound to. */
  key: string | undefined;
  /** Remaining lifetime of the access token, in seconds. */
  expiresIn: number;
  /** The granted scope with that of the resource, or a part of it. */
  scope: string;
}

/** The valid access tokens of a grant and a new one, the oldest first. */
export function withAccessToken(
  { accessTokens = [], ...grant }: Pick<GrantDocument, 'accessTokens' | 'scope'>,
  { accessToken, target, key, expiresIn, scope }: NewAccessToken,
  now: number,
): IssuedToken[] {
  const valid = accessTokens.filter(({ expiresAt }) => expiresAt > now);
  const issued = {
    hash: sha256(accessToken),
    ...(scope !== grant.scope && { scope }),
    ...(target && { resource: target.resource.identifier }),
    ...(key !== undefined && { key }),
    expiresAt: now + expiresIn * SECOND,
  };
  return [...valid.slice(1 - MAX_ACCESS_TOKENS), issued];
}

/** When the code of a grant and everything issued from it have expired. */
export function grantExpiry({
  codeExpiresAt,
  refreshExpiresAt = 0,
  accessTokens = [],
}: GrantDocument): number {
  return Math.max(codeExpiresAt, refreshExpiresAt, ...accessTokens.map(({ expiresAt }) => expiresAt));
}
