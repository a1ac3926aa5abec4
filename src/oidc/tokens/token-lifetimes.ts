import { DAY, MINUTE, SECOND } from '../../kernel/clock.js';
import type { GrantDocument, IssuedToken } from '../store.js';

/** Seconds that access tokens and id_tokens live. */
export const TOKEN_LIFE = 3600;

/** Milliseconds in which a code can be redeemed. */
export const CODE_LIFE = MINUTE;

/** How long a grant lives that bought no refresh token: its code was redeemed in the last moment. */
export const LONGEST_WITHOUT_REFRESH = CODE_LIFE + TOKEN_LIFE * SECOND;

/** How long a refresh token lives that nobody uses, and its family altogether. */
export const SLIDING = 30 * DAY;
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
  const issued = Object.assign({}, token, { expiresAt: now + TOKEN_LIFE * SECOND });
  return [...alive.slice(1 - MOST_ACCESS_TOKENS), issued];
}

/** From when on nothing that was issued from a grant lives, nor its code. */
export function endOf({ codeExpiresAt, refreshExpiresAt = 0, accessTokens = [] }: GrantDocument): number {
  return Math.max(codeExpiresAt, refreshExpiresAt, ...accessTokens.map(({ expiresAt }) => expiresAt));
}
