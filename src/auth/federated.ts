import type { User } from '../http/schemas.js';
import type { Origin } from '../http/scope.js';
import { newId } from '../kernel/secrets.js';
import { UniqueViolation } from '../storage/collection.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import { authLimits } from './limits.js';
import type { SecondFactorStep } from './second-factor.js';
import type { IssuedTokens, SessionService } from './sessions.js';
import { FIRST_FACTOR, isDisabled, newUserDocument, USER_ID_PREFIX } from './store.js';

type SignedIn = IssuedTokens & { user: User };

/** Sign-in and registration of users whose identity another provider has proven. */
export interface FederatedSignIn {
  /**
   * Starts a session; null if there is no such user.
   * @throws ACCOUNT_SUSPENDED, SECOND_FACTOR_REQUIRED, SECOND_FACTOR_ENROLMENT_REQUIRED
   */
  signIn(userId: string, origin: Origin): Promise<SignedIn | null>;
  /**
   * Creates an account without a password whose address the provider has verified, and starts a session.
   * @throws REGISTRATION_DISABLED, EMAIL_TAKEN, RATE_LIMITED
   */
  register(
    given: { id: string; email: string; name?: string; locale: string | undefined },
    origin: Origin,
  ): Promise<SignedIn>;
  newId(): string;
  hasPassword(userId: string): Promise<boolean>;
}

export interface FederatedSignInDependencies
  extends Pick<
    AuthDependencies,
    | 'users'
    | 'mails'
    | 'emit'
    | 'presentUser'
    | 'audit'
    | 'throttle'
    | 'backgroundTasks'
    | 'registrationAllowed'
    | 'clock'
    | 'random'
  > {
  startSession: SessionService['startSession'];
  secondFactorStep: SecondFactorStep | undefined;
}

export function createFederatedSignIn(deps: FederatedSignInDependencies): FederatedSignIn {
  const { users, audit, throttle, startSession, clock, random } = deps;
  return {
    newId: () => newId(USER_ID_PREFIX, clock, random),

    async hasPassword(userId) {
      return (await users.findOne({ id: userId }))?.passwordHash !== undefined;
    },

    async signIn(userId, origin) {
      const user = await users.findOne({ id: userId });
      if (!user) return null;
      if (isDisabled(user)) throw authErrors.ACCOUNT_SUSPENDED();
      await deps.secondFactorStep?.demand(user, FIRST_FACTOR.federated, origin);
      const record = { event: 'login.succeeded', subject: user.id, ip: origin.ip };
      const [session] = await Promise.all([
        startSession(user, [FIRST_FACTOR.federated]),
        audit.record(record),
      ]);
      return session;
    },

    async register({ id, ...given }, origin) {
      if (!(await deps.registrationAllowed())) throw authErrors.REGISTRATION_DISABLED();
      await throttle.count(authLimits.register, origin.ip);
      const user = { ...newUserDocument({ ...given, emailVerified: true }, clock.now(), deps), id };
      if (await users.findOne({ email: user.email })) throw authErrors.EMAIL_TAKEN();
      // The session is stored first, because a session without a user is invalid: a failure in between creates no account.
      const session = await startSession(user, [FIRST_FACTOR.federated]);
      await users.insert(user).catch((error: unknown) => {
        throw error instanceof UniqueViolation ? authErrors.EMAIL_TAKEN() : error;
      });
      deps.emit('user.registered', { userId: id, user: await deps.presentUser(user) });
      await audit.record({ event: 'user.registered', subject: id, ip: origin.ip });
      deps.backgroundTasks.run('welcome', () => deps.mails.welcome(user));
      return session;
    },
  };
}
