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
