import type { RequestSource } from '../../core/http/routes.js';
import { createUsedLinks } from '../../core/ops/used-links.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import { createAddressConfirmation } from './links/confirm-address.js';
import { createEmailChange } from './links/email-change.js';
import { createPasswordReset } from './links/password-reset.js';
import { createUnlock } from './links/unlock.js';
import { createVerification } from './links/verification.js';
import { createSessionService } from './sessions/sessions.js';
import { createCredentials, createPasswordRules } from './sign-in/credentials.js';
import type { EmailLogin, EmailLoginDependencies } from './sign-in/email-login.js';
import { createFederatedSignIn } from './sign-in/federated.js';
import { createPasskeySignIn } from './sign-in/passkey.js';
import { createReauthentication } from './sign-in/reauthentication.js';
import { createRegistration } from './sign-in/registration.js';
import { createSecondFactorStep } from './sign-in/second-factor.js';
import { createSignIn, type SignedIn } from './sign-in/sign-in.js';
import { FIRST_FACTOR, isDisabled } from './store.js';
import { createAccountService } from './users/account.js';
import { createAccountAdministration } from './users/administration.js';
import { createAccountDeletion } from './users/deletion.js';
import { createUserUpdate } from './users/user-update.js';

/** All account flows; each is implemented in a file of its own. */
export type AuthService = ReturnType<typeof createAuthService>;

export interface AuthServiceOptions extends AuthDependencies {
  /** Absent if sign-in by e-mail is not enabled. */
  createEmailLogin?:
    | ((accounts: Omit<EmailLoginDependencies, 'codes' | 'loginTokens'>) => EmailLogin)
    | undefined;
}

export function createAuthService(deps: AuthServiceOptions) {
  const { users, passwords } = deps;
  const usedLinks = createUsedLinks(users, deps);
  const { startSession, ...sessions } = createSessionService(deps);
  const signing = createSignIn({ ...deps, startSession });
  const { unlock, offerUnlock } = createUnlock({ ...deps, usedLinks });
  const credentials = createCredentials({ ...deps, offerUnlock });
  const passwordRules = createPasswordRules(deps);
  const { secondFactors, challenges } = deps;
  const secondFactorStep =
    secondFactors && challenges
      ? createSecondFactorStep({ ...deps, ...signing, offerUnlock, secondFactors, challenges })
      : undefined;
  const { authenticate } = sessions;
  const confirmation = createAddressConfirmation({ ...deps, passwordRules, authenticate, usedLinks });
  const { confirmAddress } = confirmation;
  const emailChange = createEmailChange({ ...deps, credentials, confirmAddress });
  const { sendVerification, finishVerification, verifyEmail, resendVerification } = createVerification({
    ...deps,
    confirmation,
    emailChange,
    usedLinks,
  });
  const { sendReset, forgotPassword, resetPassword } = createPasswordReset({
    ...deps,
    passwordRules,
    usedLinks,
    finishVerification,
  });

  const { register, registerUnverified } = createRegistration({
    ...deps,
    ...signing,
    passwordRules,
    sendVerification,
    sendReset,
  });

  const account = createAccountService({ ...deps, credentials, passwordRules, usedLinks });

  return {
    ...sessions,
    register,
    ...account,
    ...createAccountDeletion({ ...deps, credentials }),
    ...createReauthentication({ ...deps, ...account, startSession, credentials, offerUnlock }),
    /** For sign-in with other providers. */
    federated: createFederatedSignIn({ ...deps, ...signing, secondFactorStep }),
    /** For sign-in with passkeys. */
    passkey: createPasskeySignIn({ ...deps, ...signing, registerUnverified, verifyEmail }),
    /** Absent if sign-in by e-mail is not enabled. */
    emailLogin: deps.createEmailLogin?.({ ...deps, ...signing, secondFactorStep, finishVerification }),
    /** Absent if no encryption key for second factors is configured. */
    secondFactorStep,
    forgotPassword,
    resetPassword,
    verifyEmail,
    resendVerification,
    changeEmail: emailChange.changeEmail,
    unlock,
    ...createUserUpdate({ ...deps, passwordRules, sendVerification }),
    administration: createAccountAdministration({ ...deps, sendReset, sendVerification }),

    /**
     * @throws INVALID_CREDENTIALS, ACCOUNT_SUSPENDED, EMAIL_NOT_VERIFIED, SECOND_FACTOR_REQUIRED,
     *   SECOND_FACTOR_ENROLMENT_REQUIRED, RATE_LIMITED, OVERLOADED
     */
    async login(input: { email: string; password: string }, source: RequestSource): Promise<SignedIn> {
      const { user, outdated } = await credentials.verify(input, source, 'login.failed');
      if (isDisabled(user)) throw authErrors.ACCOUNT_SUSPENDED();
      if (deps.verificationRequired && !user.emailVerified) throw authErrors.EMAIL_NOT_VERIFIED();
      if (outdated) {
        const passwordHash = await passwords.hash(input.password, source.isDisconnected);
        // The condition on the version prevents the rehash from overwriting a new password.
        const rehashed = await users.updateOne(
          { id: user.id, passwordVersion: user.passwordVersion },
          { set: { passwordHash } },
        );
        if (rehashed) await deps.foreignHashes.remove(user);
      }
      await secondFactorStep?.demand(user, FIRST_FACTOR.password, source);
      return signing.signIn(user, source);
    },
  };
}
