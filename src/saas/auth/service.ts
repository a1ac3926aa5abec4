import type { AuthDependencies } from './dependencies.js';
import { createAddressConfirmation } from './links/confirm-address.js';
import { createEmailChange } from './links/email-change.js';
import { createPasswordReset } from './links/password-reset.js';
import { createUnlock } from './links/unlock.js';
import { createVerification } from './links/verification.js';
import { createSessionService } from './sessions/sessions.js';
import type { CodeAccountDependencies } from './sign-in/code-accounts.js';
import { createCredentials, createPasswordRules } from './sign-in/credentials.js';
import type { EmailLogin } from './sign-in/email-login.js';
import { createFederatedSignIn } from './sign-in/federated.js';
import { createImpersonation } from './sign-in/impersonation.js';
import { createPasskeySignIn } from './sign-in/passkey.js';
import { createPasswordLogin } from './sign-in/password-login.js';
import { createReauthentication } from './sign-in/reauthentication.js';
import { createRegistration } from './sign-in/registration.js';
import { createSecondFactorStep } from './sign-in/second-factor.js';
import { createSignIn } from './sign-in/sign-in.js';
import { createAccountService } from './users/account.js';
import { createAccountAdministration } from './users/administration.js';
import { createAccountDeletion } from './users/deletion.js';
import { createUserUpdate } from './users/user-update.js';

/** All account flows; each is implemented in a file of its own. */
export type AuthService = ReturnType<typeof createAuthService>;

export interface AuthServiceOptions extends AuthDependencies {
  /** Absent if sign-in by e-mail is not enabled. */
  createEmailLogin?: ((accounts: CodeAccountDependencies) => EmailLogin) | undefined;
}

export function createAuthService(deps: AuthServiceOptions) {
  const { secondFactors, impersonationRoles } = deps;
  const { newSession, revocation, ...sessions } = createSessionService(deps);
  const signing = createSignIn({ ...deps, newSession });
  const { unlock, offerUnlock } = createUnlock(deps);
  const credentials = createCredentials({ ...deps, offerUnlock });
  const passwordRules = createPasswordRules(deps);
  const secondFactorStep =
    secondFactors && createSecondFactorStep({ ...deps, ...signing, offerUnlock, secondFactors });
  const { authenticate, revokeSession } = sessions;
  const { sendVerification, resendVerification, verificationParts } = createVerification(deps);
  const redeeming = { ...deps, passwordRules, authenticate, verificationParts };
  const { verifyEmail } = createAddressConfirmation(redeeming);
  const { sendReset, forgotPassword, resetPassword } = createPasswordReset(redeeming);
  const mailed = { ...deps, ...signing, passwordRules, sendVerification, sendReset };
  const { register, registerUnverified } = createRegistration(mailed);

  return {
    ...sessions,
    register,
    ...createAccountService({ ...deps, credentials, passwordRules }),
    ...createAccountDeletion({ ...deps, credentials }),
    ...createReauthentication({ ...deps, newSession, revocation, credentials, offerUnlock }),
    ...createPasswordLogin({ ...deps, ...signing, credentials, secondFactorStep }),
    /** For sign-in with other providers. */
    federated: createFederatedSignIn({ ...deps, ...signing, secondFactorStep }),
    /** Absent without the option. */
    impersonation: impersonationRoles && createImpersonation({ ...deps, impersonationRoles, newSession }),
    /** For sign-in with passkeys. */
    passkey: createPasskeySignIn({ ...deps, ...signing, registerUnverified, verifyEmail }),
    /** Absent if sign-in by e-mail is not enabled. */
    emailLogin: deps.createEmailLogin?.({ ...deps, ...signing, secondFactorStep, verificationParts }),
    /** Absent if no encryption key for second factors is configured. */
    secondFactorStep,
    forgotPassword,
    resetPassword,
    verifyEmail,
    resendVerification,
    ...createEmailChange({ ...deps, credentials }),
    unlock,
    ...createUserUpdate({ ...deps, passwordRules }),
    administration: createAccountAdministration({ ...deps, revokeSession, sendReset, sendVerification }),
  };
}
