import type { SessionSource } from '../../../core/http/request-details.js';
import type { RequestSource } from '../../../core/http/routes.js';
import type { User } from '../../../core/http/schemas.js';
import type { AnnouncedEvent } from '../../../core/ops/events.js';
import { UniqueViolation } from '../../../core/storage/collection.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { proofOfRegistration } from '../events.js';
import type { LoginMethod } from '../hooks.js';
import { authLimits } from '../limits.js';
import type { SessionService } from '../sessions/sessions.js';
import type { IssuedTokens } from '../sessions/tokens.js';
import { isDisabled, type UserDocument } from '../store.js';

/** What every way to sign in and to register ends with. `amr` says how; absent: by password. `authenticatedAt` says when; absent: now. */
export type SignIn = ReturnType<typeof createSignIn>;

export type SignedIn = IssuedTokens & { user: User };

export function createSignIn(deps: AuthDependencies & { startSession: SessionService['startSession'] }) {
  const { users, audit, startSession } = deps;
  const { beforeRegister, afterLogin } = deps.hooks ?? {};

  /** Before the user is stored. */
  const announceRegistered = async (user: UserDocument): Promise<AnnouncedEvent> => {
    const { id } = user;
    const event = { userId: id, user: deps.presentUser(user) };
    return deps.announceEvent('user.registered', event, proofOfRegistration(id));
  };

  return {
    announceRegistered,

    /**
     * Whether a person may register; called before anything is stored.
     * @throws REGISTRATION_DISABLED, REGISTRATION_REJECTED, RATE_LIMITED
     */
    async admit(
      person: Pick<UserDocument, 'email' | 'name'>,
      method: LoginMethod,
      source: RequestSource,
    ): Promise<void> {
      if (!(await deps.registrationAllowed())) throw authErrors.REGISTRATION_DISABLED();
      await deps.throttle.count(authLimits.register, source.ip);
      await beforeRegister?.(person, method, source);
    },

    /**
     * Rejects an account that may not sign in although its password, passkey or provider was right, and records that.
     * @throws ACCOUNT_SUSPENDED, EMAIL_NOT_VERIFIED
     */
    async rejectUnusable(
      user: UserDocument,
      { ip }: SessionSource,
      mustBeVerified: boolean = deps.verificationRequired,
    ): Promise<void> {
      const refusal = isDisabled(user)
        ? authErrors.ACCOUNT_SUSPENDED()
        : mustBeVerified && !user.emailVerified
          ? authErrors.EMAIL_NOT_VERIFIED()
          : undefined;
      if (!refusal) return;
      await audit.recordFailure({ event: 'login.failed', subject: user.id, ip, detail: refusal.code });
      throw refusal;
    },

    /** Starts a session and records it. */
    async signIn(
      user: UserDocument,
      source: SessionSource,
      amr?: readonly string[],
      authenticatedAt?: number,
    ): Promise<SignedIn> {
      const { session, signedIn } = await startSession(user, source, amr, authenticatedAt);
      // Recorded after the session is stored, because the hook for its claims or the store may fail.
      await Promise.all([
        audit.record({ event: 'login.succeeded', subject: user.id, ip: source.ip }),
        afterLogin?.(signedIn.user, session, false, source),
      ]);
      return signedIn;
    },

    /** Stores a new user, with the first session. @throws EMAIL_TAKEN */
    async createAccount(
      user: UserDocument,
      source: SessionSource,
      amr?: readonly string[],
      authenticatedAt?: number,
    ): Promise<SignedIn> {
      if (await users.findOne({ email: user.email })) throw authErrors.EMAIL_TAKEN();
      // The session is stored first, because a session without a user is invalid: a failure in between creates no
      // account.
      const { session, signedIn } = await startSession(user, source, amr, authenticatedAt);
      const announced = await announceRegistered(user);
      await users.insert(user).catch(async (error: unknown) => {
        if (!(error instanceof UniqueViolation)) throw error;
        await announced.withdraw();
        throw authErrors.EMAIL_TAKEN();
      });
      await announced.emit();
      await audit.record({ event: 'user.registered', subject: user.id, ip: source.ip });
      if (afterLogin) await afterLogin(signedIn.user, session, true, source);
      return signedIn;
    },
  };
}
