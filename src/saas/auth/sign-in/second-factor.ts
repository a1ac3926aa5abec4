import type { RequestSource } from '../../../core/http/routes.js';
import { MINUTE } from '../../../core/kernel/clock.js';
import { createSealed } from '../../../core/kernel/sealed.js';
import type { Enrolment } from '../../../shared/factors/totp.js';
import type { AuthDependencies, SecondFactors } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { authLimits } from '../limits.js';
import type { Unlock } from '../links/unlock.js';
import { type FirstFactor, isDisabled, SECOND_FACTOR, type UserDocument } from '../store.js';
import type { SignedIn, SignIn } from './sign-in.js';

/**
 * The step of a sign-in after the password. The right password of an account with a factor starts no session, but is
 * answered with an error that contains a challenge; the challenge and a code start the session. Nothing is stored in between.
 */
export type SecondFactorStep = ReturnType<typeof createSecondFactorStep>;

export interface SecondFactorStepDependencies extends AuthDependencies, SignIn {
  secondFactors: SecondFactors;
  offerUnlock: Unlock['offerUnlock'];
}

/** The proof that the first factor of an account was given. */
interface Challenge {
  userId: string;
  /** The `sessionEpoch` of the user, which a new password increments, too. */
  epoch: number;
  first: FirstFactor;
  /** What it allows: to give a code, or to set up a factor. */
  purpose: 'verify' | 'enrol';
}

/** Enough to set up an app, or to find a telephone. */
const CHALLENGE_LIFETIME_MS = 10 * MINUTE;

export function createSecondFactorStep(deps: SecondFactorStepDependencies) {
  const { users, throttle, secondFactors, signIn, audit, clock, random } = deps;
  const sealing = { keys: deps.secrets, lifetimeMs: CHALLENGE_LIFETIME_MS, clock, random };
  const challenges = createSealed<Challenge>('sign-ins without the second factor', sealing);

  const challengeOf = (
    { id, sessionEpoch }: UserDocument,
    first: FirstFactor,
    purpose: Challenge['purpose'],
  ) => ({
    members: { challenge: challenges.seal({ userId: id, epoch: sessionEpoch, first, purpose }) },
  });

  /** The account of a challenge, unless it has been disabled or its password or sessions were reset since. */
  const accountOf = async (text: string, purpose: Challenge['purpose'], { ip }: RequestSource) => {
    await throttle.count(authLimits.login, ip);
    const challenge = challenges.open(text);
    if (challenge?.purpose !== purpose) throw authErrors.INVALID_CHALLENGE();
    const user = await users.findOne({ id: challenge.userId });
    if (user?.sessionEpoch !== challenge.epoch || isDisabled(user)) throw authErrors.INVALID_CHALLENGE();
    // A password alone must not open the admin area.
    if (purpose === 'enrol' && user.operatorRole) throw authErrors.SECOND_FACTOR_REQUIRED(OF_OPERATOR);
    return { user, first: challenge.first };
  };

  return {
    /** @throws SECOND_FACTOR_REQUIRED, SECOND_FACTOR_ENROLMENT_REQUIRED, EMAIL_NOT_VERIFIED */
    async demand(user: UserDocument, first: FirstFactor, { ip }: RequestSource) {
      const { id, emailVerified } = user;
      if (await secondFactors.stateOf(id)) {
        await audit.record({ event: 'login.second-factor-required', subject: id, ip });
        throw authErrors.SECOND_FACTOR_REQUIRED(challengeOf(user, first, 'verify'));
      }
      const requiredFrom = await secondFactors.requiredFrom(id);
      if (requiredFrom === null || clock.now() < requiredFrom) return;
      // A registration with another person's address must not set up a factor, which would lock the owner out.
      if (!emailVerified) throw authErrors.EMAIL_NOT_VERIFIED();
      throw authErrors.SECOND_FACTOR_ENROLMENT_REQUIRED(challengeOf(user, first, 'enrol'));
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

const OF_OPERATOR = {
  message: 'This account opens the admin area: sign in with its passkey, or ask an owner of the admin area.',
};

/** A mailed code and one of an app are the same method. */
const amrOf = (first: FirstFactor, second: keyof typeof SECOND_FACTOR): string[] => [
  ...new Set([first, ...SECOND_FACTOR[second]]),
];
