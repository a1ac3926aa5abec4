import type { RequestSource } from '../../../core/http/routes.js';
import { type Clock, MINUTE, SECOND, toSeconds } from '../../../core/kernel/clock.js';
import type { Audit } from '../../../core/ops/audit.js';
import type { Throttle } from '../../../core/throttle/throttle.js';
import { authErrors } from '../errors.js';
import { authLimits } from '../limits.js';
import type { TokenKind } from '../sessions/jwt.js';
import {
  FIRST_FACTOR,
  type FirstFactor,
  isDisabled,
  SECOND_FACTOR,
  type UserDocument,
  type Users,
} from '../store.js';
import type { SignedIn, SignIn } from './sign-in.js';

/** The part of second factors that this domain uses. */
export interface SecondFactors {
  /** Null if the account has none. */
  stateOf(userId: string): Promise<{ since: number; recoveryCodesLeft: number } | null>;
  /** By when the account must have one, in Unix milliseconds; null if it has one, or need not. */
  requiredFrom(userId: string): Promise<number | null>;
  /** A secret for a new authenticator app. @param label the user name, which the app shows */
  begin(userId: string, label: string): Promise<Enrolment>;
  /** What was begun and not confirmed yet. */
  pending(userId: string, label: string): Promise<Enrolment | null>;
  /**
   * Confirms the new app with a code of it. Returns the recovery codes, the same ones for the same `form`; null for a wrong code.
   * @throws FACTOR_CHANGED, RATE_LIMITED
   */
  confirm(userId: string, code: string, form: string, source: RequestSource): Promise<string[] | null>;
  /**
   * Uses a code; null for a wrong one.
   * @param onBudgetSpent called if only codes from other addresses exhaust the limit; returns the error message
   * @throws RATE_LIMITED
   */
  verify(
    userId: string,
    code: string,
    source: RequestSource,
    onBudgetSpent?: () => string,
  ): Promise<keyof typeof SECOND_FACTOR | null>;
  /** Lets the owner, proven by an e-mailed link or code, give codes from this address while others exhaust the limit. */
  trust(userId: string, ip: string): Promise<void>;
  /** @throws FACTOR_CHANGED if there is no factor */
  renewRecoveryCodes(userId: string, form: string, source: RequestSource): Promise<string[]>;
  /** False if there was none. */
  remove(userId: string, source: Pick<RequestSource, 'ip' | 'by'>): Promise<boolean>;
}

/** What an authenticator app needs: the secret as text, as a link and as an SVG image of its QR code. */
export interface Enrolment {
  secret: string;
  uri: string;
  qr: string;
}

/**
 * The step of a sign-in after the password. The right password of an account with a factor starts no session, but is
 * answered with an error that contains a challenge; the challenge and a code start the session. Nothing is stored in between.
 */
export type SecondFactorStep = ReturnType<typeof createSecondFactorStep>;

export interface SecondFactorStepDependencies extends Pick<SignIn, 'signIn'> {
  users: Pick<Users, 'findOne'>;
  throttle: Pick<Throttle, 'count'>;
  clock: Clock;
  secondFactors: SecondFactors;
  challenges: Challenges;
  /** Mails a link that lets the owner sign in from this location, and returns the message of the response. */
  offerUnlock(email: string, source: RequestSource): string;
  audit: Audit;
}

export function createSecondFactorStep(deps: SecondFactorStepDependencies) {
  const { users, throttle, secondFactors, challenges, signIn, audit, clock } = deps;

  /** The account of a challenge, unless it has been disabled or its password or sessions were reset since. */
  const accountOf = async (challenge: string, purpose: ChallengePurpose, { ip }: RequestSource) => {
    await throttle.count(authLimits.login, ip);
    const claims = challenges.verify(challenge, purpose);
    const user = claims && (await users.findOne({ id: claims.sub }));
    if (!user || user.sessionEpoch !== claims.epoch || isDisabled(user)) throw authErrors.INVALID_CHALLENGE();
    return { user, first: claims.first };
  };

  return {
    /** @throws SECOND_FACTOR_REQUIRED, SECOND_FACTOR_ENROLMENT_REQUIRED, EMAIL_NOT_VERIFIED */
    async demand(user: UserDocument, first: FirstFactor, { ip }: RequestSource) {
      const { id, emailVerified } = user;
      if (await secondFactors.stateOf(id)) {
        await audit.record({ event: 'login.second-factor-required', subject: id, ip });
        throw authErrors.SECOND_FACTOR_REQUIRED({
          members: { challenge: challenges.issue(user, 'verify', first) },
        });
      }
      const requiredFrom = await secondFactors.requiredFrom(id);
      if (requiredFrom === null || clock.now() < requiredFrom) return;
      // A registration with another person's address must not set up a factor, which would lock the owner out.
      if (!emailVerified) throw authErrors.EMAIL_NOT_VERIFIED();
      throw authErrors.SECOND_FACTOR_ENROLMENT_REQUIRED({
        members: { challenge: challenges.issue(user, 'enrol', first) },
      });
    },

    /** @throws INVALID_CHALLENGE, INVALID_CODE, RATE_LIMITED */
    async complete(
      { challenge, code }: { challenge: string; code: string },
      source: RequestSource,
    ): Promise<SignedIn> {
      const { user, first } = await accountOf(challenge, 'verify', source);
      const offerUnlock = () => deps.offerUnlock(user.email, source);
      const method = await secondFactors.verify(user.id, code, source, offerUnlock);
      if (method === null) throw authErrors.INVALID_CODE();
      return signIn(user, source, amrOf(first, method));
    },

    /** Begins the enrolment without which the account cannot sign in. @throws INVALID_CHALLENGE, RATE_LIMITED */
    async begin(challenge: string, source: RequestSource): Promise<Enrolment> {
      const { user } = await accountOf(challenge, 'enrol', source);
      return secondFactors.begin(user.id, user.email);
    },

    /** What was begun, for the same page after a wrong code; null if it has expired. @throws as `begin` */
    async pending(challenge: string, source: RequestSource): Promise<Enrolment | null> {
      const { user } = await accountOf(challenge, 'enrol', source);
      return secondFactors.pending(user.id, user.email);
    },

    /** @throws INVALID_CHALLENGE, INVALID_CODE, FACTOR_CHANGED, RATE_LIMITED */
    async confirm(
      { challenge, code }: { challenge: string; code: string },
      source: RequestSource,
    ): Promise<SignedIn & { recoveryCodes: string[] }> {
      const { user, first } = await accountOf(challenge, 'enrol', source);
      const recoveryCodes = await secondFactors.confirm(user.id, code, `${challenge} ${code}`, source);
      if (!recoveryCodes) throw authErrors.INVALID_CODE();
      return { ...(await signIn(user, source, amrOf(first, 'otp'))), recoveryCodes };
    },
  };
}

/** A mailed code and one of an app are the same method. */
const amrOf = (first: FirstFactor, second: keyof typeof SECOND_FACTOR): string[] => [
  ...new Set([first, ...SECOND_FACTOR[second]]),
];

/** What the right password allows: to give a code, or to set up a factor. */
type ChallengePurpose = 'verify' | 'enrol';

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
