import { type Clock, MINUTE } from '../../../core/kernel/clock.js';
import { newToken, type Random, sha256 } from '../../../core/kernel/secrets.js';
import { authErrors } from '../errors.js';

/** Tokens of mailed links. A token contains the user id, so the store needs no index to find its account. */

export interface LinkToken {
  /** `<user id>.<256 random bits>` */
  token: string;
  /** SHA-256 of the token: the only form that the store contains. */
  hash: string;
  /** Unix time in milliseconds. */
  expiresAt: number;
}

export const RESET_LINK_TTL_MS = 60 * MINUTE;
export const UNLOCK_LINK_TTL_MS = 60 * MINUTE;
export const VERIFICATION_LINK_TTL_MS = 24 * 60 * MINUTE;

export function newLinkToken(
  userId: string,
  ttlMs: number,
  { clock, random }: { clock: Clock; random: Random },
): LinkToken {
  const token = `${userId}.${newToken(random)}`;
  return { token, hash: sha256(token), expiresAt: clock.now() + ttlMs };
}

/** The user ID in a token, and the hash of the token, to compare with the stored one. @throws INVALID_TOKEN if it is malformed */
export function parseLinkToken(token: string): { userId: string; hash: string } {
  const [, userId] = /^([\w-]{1,100})\.[\w-]{43}$/.exec(token) ?? [];
  if (userId === undefined) throw authErrors.INVALID_TOKEN();
  return { userId, hash: sha256(token) };
}

/** Whether a token is one of this user. It may be invalid for other reasons. */
export const isLinkOf = (userId: string, token: string): boolean => token.startsWith(`${userId}.`);
