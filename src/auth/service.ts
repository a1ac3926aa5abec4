import type { User } from '../http/schemas.js';
import type { Origin } from '../http/scope.js';
import { type Account, createAccount } from './account.js';
import { createConfirmation } from './confirmation.js';
import { createCredentials } from './credentials.js';
import { createDeletion, type Deletion } from './deletion.js';
import type { AuthDependencies } from './dependencies.js';
import { createEmailChange, type EmailChange } from './email-change.js';
import { authErrors } from './errors.js';
import { createNewPasswords } from './new-password.js';
import { createRecovery, type Recovery } from './recovery.js';
import { createRegistration, type Registration } from './registration.js';
import { createSessionService, type SessionService, type Tokens } from './sessions.js';
import { isClosed } from './store.js';
import { createUnlock, type Unlock } from './unlock.js';
import { createVerification, type Verification } from './verification.js';

/** Accounts: who may begin a session, and everything owners do with what is theirs. One rule, one file. */
export interface AuthService
  extends Omit<SessionService, 'begin'>,
    Registration,
    Recovery,
    Pick<Verification, 'verifyEmail' | 'resendVerification'>,
    Pick<EmailChange, 'changeEmail'>,
    Pick<Unlock, 'unlock'>,
    Account,
    Deletion {
  /** @throws INVALID_CREDENTIALS, ACCOUNT_SUSPENDED, EMAIL_NOT_VERIFIED, RATE_LIMITED, OVERLOADED */
  login(input: { email: string; password: string }, origin: Origin): Promise<Tokens & { user: User }>;
}

export function createAuth(deps: AuthDependencies): AuthService {
  const { users, passwords, audit } = deps;
  const { begin, ...sessions } = createSessionService(deps);
  const { unlock, offerUnlock } = createUnlock(deps);
  const credentials = createCredentials({ ...deps, offerUnlock });
  const newPasswords = createNewPasswords(deps);
  const { authenticate } = sessions;
  const confirmAddress = createConfirmation({ ...deps, newPasswords, authenticate });
  const { changeEmail, confirmChange } = createEmailChange({ ...deps, credentials, confirmAddress });
  const verification = createVerification({ ...deps, confirmAddress, confirmChange });
  const { sendVerification, markVerified, verifyEmail, resendVerification } = verification;
  const { sendReset, forgotPassword, resetPassword } = createRecovery({
    ...deps,
    newPasswords,
    markVerified,
  });

  return {
    ...sessions,
    ...createRegistration({ ...deps, newPasswords, begin, sendVerification, sendReset }),
    ...createAccount({ ...deps, credentials, newPasswords }),
    ...createDeletion({ ...deps, credentials }),
    forgotPassword,
    resetPassword,
    verifyEmail,
    resendVerification,
    changeEmail,
    unlock,

    async login(input, origin) {
      const { user, outdated } = await credentials.prove(input, origin, 'login.failed');
      if (isClosed(user)) throw authErrors.ACCOUNT_SUSPENDED();
      if (deps.verificationRequired && !user.emailVerified) throw authErrors.EMAIL_NOT_VERIFIED();
      if (outdated) {
        const passwordHash = await passwords.hash(input.password, origin.isDisconnected);
        // Lost against a new password: then the new one stays.
        const rehashed = await users.updateOne(
          { id: user.id, passwordVersion: user.passwordVersion },
          { set: { passwordHash } },
        );
        if (rehashed) await deps.foreignHashes.remove(user);
      }
      // Both writes share one commit.
      const record = { event: 'login.succeeded', subject: user.id, ip: origin.ip };
      const [session] = await Promise.all([begin(user), audit.record(record)]);
      return session;
    },
  };
}
