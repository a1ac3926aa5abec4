import { createHmac, timingSafeEqual } from 'node:crypto';
import { newToken, type Random } from '../kernel/secrets.js';
import { GRANT } from './store.js';

/**
 * Codes and tokens name their grant: a prefix, the 32 hexadecimal digits of its identifier, and 256 bits that nobody guesses.
 * So the grant is found by its own key, and every sign-in is spared an index of hashes.
 */
export type TokenPrefix = 'ac_' | 'at_' | 'rt_';

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

/** Bytes of each half of a refresh token's secret. */
const HALF = 16;

/**
 * A refresh token of this provider: 128 bits that nobody guesses, and a MAC over them and the grant. The store keeps the
 * hashes of the newest two tokens of a family only; the MAC tells an older one, which was stolen, from one that was made up.
 */
export function refreshToken(grantId: string, nonce: Buffer, seed: string): string {
  const half = nonce.subarray(0, HALF);
  return grantToken('rt_', grantId, Buffer.concat([half, mac(grantId, half, seed)]).toString('base64url'));
}

export function newRefreshToken(grantId: string, random: Random, seed: string): string {
  return refreshToken(grantId, random.bytes(HALF), seed);
}

/** Whether a provider with one of these seeds issued the refresh token. Tokens of versions without a MAC read as made up. */
export function isIssuedRefreshToken(grantId: string, token: string, seeds: readonly string[]): boolean {
  const secret = Buffer.from(token.slice(-43), 'base64url');
  const [nonce, presented] = [secret.subarray(0, HALF), secret.subarray(HALF)];
  return seeds.some((seed) => timingSafeEqual(mac(grantId, nonce, seed), presented));
}

function mac(grantId: string, nonce: Buffer, seed: string): Buffer {
  const key = createHmac('sha256', seed).update('refresh token authentication').digest();
  return createHmac('sha256', key).update(grantId).update(nonce).digest().subarray(0, HALF);
}
