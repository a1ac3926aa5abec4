import type { RequestSource } from '../../../core/http/routes.js';
import type { AuthDependencies } from '../dependencies.js';
import { FIRST_FACTOR } from '../store.js';
import type { Credentials } from './credentials.js';
import type { SecondFactorStep } from './second-factor.js';
import type { SignedIn, SignIn } from './sign-in.js';

export interface PasswordLoginDependencies extends AuthDependencies, SignIn {
  credentials: Credentials;
  secondFactorStep: SecondFactorStep | undefined;
}

export function createPasswordLogin(deps: PasswordLoginDependencies) {
  return {
    /**
     * @throws INVALID_CREDENTIALS, ACCOUNT_SUSPENDED, EMAIL_NOT_VERIFIED, SECOND_FACTOR_REQUIRED,
     *   SECOND_FACTOR_ENROLMENT_REQUIRED, RATE_LIMITED, OVERLOADED
     */
    async login(input: { email: string; password: string }, source: RequestSource): Promise<SignedIn> {
      const { user, outdated } = await deps.credentials.verify(input, source, 'login.failed');
      await deps.rejectUnusable(user, source);
      if (outdated) {
        const passwordHash = await deps.passwords.hash(input.password, source.isDisconnected);
        // The condition on the version prevents the rehash from overwriting a new password.
        const { id, passwordVersion } = user;
        await deps.commit([
          deps.users.changing({ id, passwordVersion }, { set: { passwordHash } }),
          await deps.foreignHashes.removing(user),
        ]);
      }
      await deps.secondFactorStep?.demand(user, FIRST_FACTOR.password, source);
      return deps.signIn(user, source);
    },
  };
}
