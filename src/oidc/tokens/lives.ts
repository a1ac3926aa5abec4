import { DAY } from '../../kernel/clock.js';
import type { GrantDocument, IssuedToken } from '../store.js';

/** Seconds that access tokens and id_tokens live. */
export const TOKEN_LIFE = 3600;

/** How long a refresh token lives that nobody uses, and its family altogether. */
const SLIDING = 30 * DAY;
const ABSOLUTE = 90 * DAY;

/** Access tokens of one grant that live at once; a further one ends the oldest. */
const MOST_ACCESS_TOKENS = 16;

/** Until when the refresh token that is given out now may be used. */
export function refreshExpiry({ createdAt }: Pick<GrantDocument, 'createdAt'>, now: number): number {
  return Math.min(now + SLIDING, createdAt + ABSOLUTE);
}

/** The living access tokens of a grant and one more, the oldest first. */
export function withAccessToken(
  { accessTokens = [] }: Pick<GrantDocument, 'accessTokens'>,
  token: Omit<IssuedToken, 'expiresAt'>,
  now: number,
): IssuedToken[] {
  const alive = accessTokens.filter(({ expiresAt }) => expiresAt > now);
  return [...alive.slice(1 - MOST_ACCESS_TOKENS), { ...token, expiresAt: now + TOKEN_LIFE * 1000 }];
}
