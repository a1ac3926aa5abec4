import type { SessionSource } from '../../../core/http/request-details.js';
import type { RequestSource } from '../../../core/http/routes.js';
import type { User } from '../../../core/http/schemas.js';
import type { CommitPart, Effect } from '../../../core/ops/commit.js';
import { UniqueViolation } from '../../../core/storage/collection.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import type { LoginMethod } from '../hooks.js';
import { authLimits } from '../limits.js';
import type { SessionService } from '../sessions/sessions.js';
import type { IssuedTokens } from '../sessions/tokens.js';
import { isDisabled, type UserDocument } from '../store.js';

/** What every way to sign in and to register ends with. `amr` says how; absent: by password. `authenticatedAt` says when; absent: now. */
export type SignIn = ReturnType<typeof createSignIn>;

export type SignedIn = IssuedTokens & { user: User };

export function createSignIn(deps: AuthDependencies & { newSession: SessionService['newSession'] }) {
  const { users, sessions, audit, commit, newSession } = deps;
  const { beforeRegister, afterLogin } = deps.hooks ?? {};

  /** What is stored with a new user. */
  const registered = async (user: UserDocument, { ip }: SessionSource): Promise<Effect[]> => [
    await deps.event('user.registered', { userId: user.id, user: deps.presentUser(user) }),
    audit.entry({ event: 'user.registered', subject: user.id, ip }),
  ];

  /** Stores a new user, with others in the same commit. @throws EMAIL_TAKEN; UniqueViolation for the others */
  const storeAccount = async (
    user: UserDocument,
    source: SessionSource,
    others: readonly CommitPart[],
  ): Promise<void> => {
    const parts = [users.inserting(user), deps.mails.welcome(user), ...(await registered(user, source))];
    await commit([...parts, ...others]).catch((error: unknown) => {
      if (error instanceof UniqueViolation && error.field === 'email') throw authErrors.EMAIL_TAKEN();
      throw error;
    });
  };

  return {
    registered,
    storeAccount,

    /**
     * Whether a person may register; called before anything is stored, also for an existing account, which no response reveals.
     * @param isCounted whether anyone can cause it
     * @throws REGISTRATION_DISABLED, REGISTRATION_REJECTED, RATE_LIMITED
     */
    async admit(
      { fields, ...person }: Pick<UserDocument, 'email' | 'name' | 'fields'>,
      method: LoginMethod,
      source: RequestSource,
      isCounted = true,
    ): Promise<void> {
      if (!(await deps.registrationAllowed(method))) throw authErrors.REGISTRATION_DISABLED();
      if (isCounted) await deps.throttle.count(authLimits.register, source.ip);
      await beforeRegister?.({ ...person, ...deps.userFields?.present(fields) }, method, source);
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
      const refusal =
        isDisabled(user) || (await deps.admits?.(user.id)) === false
          ? authErrors.ACCOUNT_SUSPENDED()
          : mustBeVerified && !user.emailVerified
            ? authErrors.EMAIL_NOT_VERIFIED()
            : undefined;
      if (!refusal) return;
      await audit.recordFailure({ event: 'login.failed', subject: user.id, ip, detail: refusal.code });
      throw refusal;
    },

    /** Starts a session and records it. `isNew`: the user has just been stored, with a record of its own. */
    async signIn(
      user: UserDocument,
      source: SessionSource,
      amr?: readonly string[],
      authenticatedAt?: number,
      isNew = false,
    ): Promise<SignedIn> {
      const { session, signedIn } = await newSession(user, source, amr, authenticatedAt);
      await commit([
        sessions.inserting(session),
        isNew ? undefined : audit.entry({ event: 'login.succeeded', subject: user.id, ip: source.ip }),
      ]);
      await afterLogin?.(signedIn.user, session, isNew, source);
      return signedIn;
    },

    /**
     * Stores a new user with the first session.
     * @param others what is stored in the same commit
     * @throws EMAIL_TAKEN; UniqueViolation for the others
     */
    async createAccount(
      user: UserDocument,
      source: SessionSource,
      amr?: readonly string[],
      authenticatedAt?: number,
      others: readonly CommitPart[] = [],
    ): Promise<SignedIn> {
      const { session, signedIn } = await newSession(user, source, amr, authenticatedAt);
      await storeAccount(user, source, [sessions.inserting(session), ...others]);
      await afterLogin?.(signedIn.user, session, true, source);
      return signedIn;
    },
  };
}
