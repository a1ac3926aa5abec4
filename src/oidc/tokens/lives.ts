import { DAY, MINUTE, SECOND } from '../../kernel/clock.js';
import type { GrantDocument, IssuedToken } from '../store.js';

/** Seconds that access tokens and id_tokens live. */
export const TOKEN_LIFE = 3600;

/** Milliseconds in which a code can be redeemed. */
export const CODE_LIFE = MINUTE;

/** How long a refresh token lives that nobody uses, and its family altogether. */
const SLIDING = 30 * DAY;
const ABSOLUTE = 90 * DAY;

/** Access tokens of one grant that live at once; a further one ends the oldest. */
const MOST_ACCESS_TOKENS = 16;

/** When a grant is over of which a code is given out now: what that buys in its last moment lives longest. */
export const codeGrantExpiry = (now: number): number => now + CODE_LIFE + TOKEN_LIFE * SECOND;

/** Until when the refresh token that is given out now may be used, and when the grant is over, with its access token. */
export function familyTimes(
  { createdAt }: Pick<GrantDocument, 'createdAt'>,
  now: number,
): Pick<GrantDocument, 'expiresAt'> & { refreshExpiresAt: number } {
  const refreshExpiresAt = Math.min(now + SLIDING, createdAt + ABSOLUTE);
  return { refreshExpiresAt, expiresAt: Math.max(refreshExpiresAt, now + TOKEN_LIFE * SECOND) };
}

/** The living access tokens of a grant and one more, the oldest first. */
export function withAccessToken(
  { accessTokens = [] }: Pick<GrantDocument, 'accessTokens'>,
  token: Omit<IssuedToken, 'expiresAt'>,
  now: number,
): IssuedToken[] {
  const alive = accessTokens.filter(({ expiresAt }) => expiresAt > now);
  return [...alive.slice(1 - MOST_ACCESS_TOKENS), { ...token, expiresAt: now + TOKEN_LIFE * SECOND }];
}
