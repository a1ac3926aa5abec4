import { type Clock, MINUTE } from '../kernel/clock.js';
import { newToken, type Random, sha256 } from '../kernel/secrets.js';

/** The secret inside a link that is sent by mail. It names its account, so that the store finds it without an index. */

export interface LinkToken {
  /** `<user id>.<256 random bits>` */
  token: string;
  /** What the store keeps of it. */
  hash: string;
  /** Epoch milliseconds. */
  expiresAt: number;
}

export const RESET_LIFE = 60 * MINUTE;
export const UNLOCK_LIFE = 60 * MINUTE;
export const VERIFY_LIFE = 24 * 60 * MINUTE;

export function newLinkToken(
  userId: string,
  life: number,
  { clock, random }: { clock: Clock; random: Random },
): LinkToken {
  const token = `${userId}.${newToken(random)}`;
  return { token, hash: sha256(token), expiresAt: clock.now() + life };
}

/** Whose token it claims to be, and what the store would keep of it. `null` for what none of ours looks like. */
export function readLinkToken(token: string): { userId: string; hash: string } | null {
  const [, userId] = /^(\w{1,100})\.[\w-]{43}$/.exec(token) ?? [];
  return userId === undefined ? null : { userId, hash: sha256(token) };
}
