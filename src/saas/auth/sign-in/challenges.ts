import { type Clock, MINUTE, SECOND, toSeconds } from '../../../core/kernel/clock.js';
import type { TokenKind } from '../sessions/jwt.js';
import { FIRST_FACTOR, type FirstFactor, type UserDocument } from '../store.js';

/** What the right password allows: to give a code, or to set up a factor. */
export type ChallengePurpose = 'verify' | 'enrol';

interface ChallengeClaims {
  sub: string;
  /** The `sessionEpoch` of the user, which a new password increments, too. */
  epoch: number;
  first: FirstFactor;
}

/** Signed proofs that the password of an account was given. */
export type Challenges = ReturnType<typeof createChallenges>;

/** Enough to set up an app, or to find a telephone. */
export const CHALLENGE_LIFETIME_MS = 10 * MINUTE;

export interface ChallengeOptions {
  tokens: TokenKind;
  issuer(): string;
  clock: Clock;
}

export function createChallenges({ tokens, issuer, clock }: ChallengeOptions) {
  const audience = (purpose: ChallengePurpose) => `saas-second-factor-${purpose}`;
  return {
    issue({ id, sessionEpoch }: UserDocument, purpose: ChallengePurpose, first: FirstFactor): string {
      const iat = toSeconds(clock.now());
      return tokens.sign({
        iss: issuer(),
        aud: audience(purpose),
        sub: id,
        epoch: sessionEpoch,
        first,
        iat,
        exp: iat + CHALLENGE_LIFETIME_MS / SECOND,
      });
    },

    /** Null for an invalid or expired challenge, and for one with another purpose. */
    verify(token: string, purpose: ChallengePurpose): ChallengeClaims | null {
      const { iss, aud, sub, epoch, first, iat, exp } = tokens.verify(token) ?? {};
      const now = toSeconds(clock.now());
      const isValid =
        iss === issuer() &&
        aud === audience(purpose) &&
        typeof sub === 'string' &&
        typeof epoch === 'number' &&
        isFirstFactor(first) &&
        typeof iat === 'number' &&
        typeof exp === 'number' &&
        iat <= now + 60 &&
        now < exp;
      return isValid ? { sub, epoch, first } : null;
    },
  };
}

const isFirstFactor = (value: unknown): value is FirstFactor =>
  Object.values<unknown>(FIRST_FACTOR).includes(value);
