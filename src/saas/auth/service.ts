import type { RequestSource } from '../../core/http/routes.js';
import { createUsedLinks } from '../../core/ops/used-links.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import { createAddressConfirmation } from './links/confirm-address.js';
import { createEmailChange, type EmailChange } from './links/email-change.js';
import { createPasswordReset, type PasswordReset } from './links/password-reset.js';
import { createUnlock, type Unlock } from './links/unlock.js';
import { createVerification, type Verification } from './links/verification.js';
import { createSessionService, type SessionService } from './sessions/sessions.js';
import { createCredentials, createPasswordRules } from './sign-in/credentials.js';
import type { EmailLogin, EmailLoginDependencies } from './sign-in/email-login.js';
import { createFederatedSignIn, type FederatedSignIn } from './sign-in/federated.js';
import { createPasskeySignIn, type PasskeySignIn } from './sign-in/passkey.js';
import { createReauthentication, type Reauthentication } from './sign-in/reauthentication.js';
import { createRegistration, type Registration } from './sign-in/registration.js';
import { createSecondFactorStep, type SecondFactorStep } from './sign-in/second-factor.js';
import { createSignIn, type SignedIn } from './sign-in/sign-in.js';
import { FIRST_FACTOR, isDisabled } from './store.js';
import { type AccountService, createAccountService } from './users/account.js';
import { type AccountAdministration, createAccountAdministration } from './users/administration.js';
import { type AccountDeletion, createAccountDeletion } from './users/deletion.js';
import { createUserUpdate, type UserUpdate } from './users/user-update.js';

/** All account flows; each is implemented in a file of its own. */
export interface AuthService
  extends Omit<SessionService, 'startSession'>,
    Pick<Registration, 'register'>,
    PasswordReset,
    Pick<Verification, 'verifyEmail' | 'resendVerification'>,
    Pick<EmailChange, 'changeEmail'>,
    Pick<Unlock, 'unlock'>,
    AccountService,
    AccountDeletion,
    Reauthentication {
  /** Absent if no encryption key for second factors is configured. */
  secondFactorStep: SecondFactorStep | undefined;
  /** For sign-in with other providers. */
  federated: FederatedSignIn;
  /** For sign-in with passkeys. */
  passkey: PasskeySignIn;
  /** Absent if sign-in by e-mail is not enabled. */
  emailLogin: EmailLogin | undefined;
  /**
   * @throws INVALID_CREDENTIALS, ACCOUNT_SUSPENDED, EMAIL_NOT_VERIFIED, SECOND_FACTOR_REQUIRED,
   *   SECOND_FACTOR_ENROLMENT_REQUIRED, RATE_LIMITED, OVERLOADED
   */
  login(input: { email: string; password: string }, source: RequestSource): Promise<SignedIn>;
  administration: AccountAdministration;
  /** Changes by the host. */
  update: UserUpdate['update'];
}

export interface AuthServiceOptions extends AuthDependencies {
  /** Absent if sign-in by e-mail is not enabled. */
  createEmailLogin?:
    | ((accounts: Omit<EmailLoginDependencies, 'codes' | 'loginTokens'>) => EmailLogin)
    | undefined;
}

export function createAuthService(deps: AuthServiceOptions): AuthService {
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
    federated: createFederatedSignIn({ ...deps, ...signing, secondFactorStep }),
    passkey: createPasskeySignIn({ ...deps, ...signing, registerUnverified, verifyEmail }),
    emailLogin: deps.createEmailLogin?.({ ...deps, ...signing, secondFactorStep, finishVerification }),
    secondFactorStep,
    forgotPassword,
    resetPassword,
    verifyEmail,
    resendVerification,
    changeEmail: emailChange.changeEmail,
    unlock,
    ...createUserUpdate({ ...deps, passwordRules, sendVerification }),
    administration: createAccountAdministration({ ...deps, sendReset, sendVerification }),

    async login(input, source) {
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
