import type { Origin } from '../http/scope.js';
import { newId } from '../kernel/secrets.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import { authLimits } from './limits.js';
import type { SecondFactorStep } from './second-factor.js';
import type { SignedIn, SignIn } from './sign-in.js';
import { FIRST_FACTOR, isDisabled, newUserDocument, USER_ID_PREFIX } from './store.js';

/** Sign-in and registration of users whose identity another provider has proven. */
export interface FederatedSignIn {
  /**
   * Starts a session; null if there is no such user.
   * @throws ACCOUNT_SUSPENDED, SECOND_FACTOR_REQUIRED, SECOND_FACTOR_ENROLMENT_REQUIRED
   */
  signIn(userId: string, origin: Origin): Promise<SignedIn | null>;
  /**
   * Creates an account without a password whose address the provider has verified, and starts a session.
   * @throws REGISTRATION_DISABLED, REGISTRATION_REJECTED, EMAIL_TAKEN, RATE_LIMITED
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
      | 'throttle'
      | 'backgroundTasks'
      | 'registrationAllowed'
      | 'hooks'
      | 'clock'
      | 'random'
    >,
    Pick<SignIn, 'signIn' | 'createAccount'> {
  secondFactorStep: SecondFactorStep | undefined;
}

export function createFederatedSignIn(deps: FederatedSignInDependencies): FederatedSignIn {
  const { users, throttle, clock, random } = deps;
  const { beforeRegister } = deps.hooks ?? {};
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
      return deps.signIn(user, origin, [FIRST_FACTOR.federated]);
    },

    async register({ id, ...given }, origin) {
      if (!(await deps.registrationAllowed())) throw authErrors.REGISTRATION_DISABLED();
      await throttle.count(authLimits.register, origin.ip);
      const user = { ...newUserDocument({ ...given, emailVerified: true }, clock.now(), deps), id };
      if (beforeRegister) await beforeRegister(user, 'provider', origin);
      const session = await deps.createAccount(user, origin, [FIRST_FACTOR.federated]);
      deps.backgroundTasks.run('welcome', () => deps.mails.welcome(user));
      return session;
    },
  };
}
