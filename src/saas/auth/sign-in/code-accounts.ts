import type { RequestSource } from '../../../core/http/routes.js';
import { AppError } from '../../../core/kernel/errors.js';
import type { Change } from '../../../core/storage/collection.js';
import { applyChange } from '../../../core/storage/semantics.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import type { Verification } from '../links/verification.js';
import { ALL_LINK_FIELDS, FIRST_FACTOR, isDisabled, newUserDocument, type UserDocument } from '../store.js';
import type { LoginCodeDocument } from './login-codes.js';
import type { SecondFactorStep } from './second-factor.js';
import type { SignedIn, SignIn } from './sign-in.js';

/** The accounts of people who have proven with a mailed code that an address is theirs. */
export type CodeAccounts = ReturnType<typeof createCodeAccounts>;

export interface CodeAccountDependencies extends AuthDependencies, SignIn {
  verificationParts: Verification['verificationParts'];
  secondFactorStep: SecondFactorStep | undefined;
}

const AMR = [FIRST_FACTOR.code];

/** The language and the values of the host's fields, as stored, are for a new account only. */
interface CodeSignIn {
  email: string;
  locale: string | undefined;
  fields: string | undefined;
}

export function createCodeAccounts(deps: CodeAccountDependencies) {
  const { users, mails, throttle, audit, clock } = deps;

  /** Creates an account without a password. Null if there is one with the address. @throws REGISTRATION_DISABLED, RATE_LIMITED */
  const register = async (
    email: string,
    { locale, fields }: Pick<CodeSignIn, 'locale' | 'fields'>,
    source: RequestSource,
  ): Promise<SignedIn | null> => {
    await deps.admit({ email, ...(fields && { fields }) }, 'code', source);
    const user = newUserDocument({ email, locale, fields, emailVerified: true }, clock.now(), deps);
    const signedIn = await deps.createAccount(user, source, AMR).catch((error: unknown) => {
      if (error instanceof AppError && error.code === 'EMAIL_TAKEN') return null;
      throw error;
    });
    if (!signedIn) return null;
    deps.backgroundTasks.run('trust', () => throttle.trustOnly(email, source.ip));
    return signedIn;
  };

  /**
   * Gives an account whose address was not verified to the owner of the address: a stranger may have registered it, who
   * keeps neither the password nor a session. `null` if the account has changed since `user` was read.
   */
  const takeOver = async (user: UserDocument, source: RequestSource): Promise<UserDocument | null> => {
    const { id, email, passwordHash, passwordVersion, sessionEpoch, signInRevision = null } = user;
    const change: Change<UserDocument> = {
      set: { emailVerified: true },
      unset: ['passwordHash', ...ALL_LINK_FIELDS, 'usedLink', 'keptSession', 'operatorRole'],
      inc: { passwordVersion: 1, sessionEpoch: 1 },
    };
    const taken = applyChange(user, change);
    const { committed } = await deps.commit([
      users.changing(
        { id, email, emailVerified: false, sessionEpoch, signInRevision, suspendedAt: null },
        change,
      ),
      ...(await deps.verificationParts(taken, source)),
      ...(await deps.signInMethods.removal(id)),
      passwordHash === undefined ? undefined : mails.passwordChanged(user, passwordVersion + 1, source),
      audit.entry({ event: 'account.taken-over', subject: id, ip: source.ip }),
      await deps.event('session.revoked', { userId: id, scope: 'global' }),
      await deps.foreignHashes.removing(user),
    ]);
    return committed ? taken : null;
  };

  /** The account with a verified address; a sign-in if it was created for it. @throws CODE_EXPIRED, and those of `register` */
  const openAccount = async (
    { userId, epoch = 0 }: LoginCodeDocument,
    { email, ...given }: CodeSignIn,
    source: RequestSource,
  ): Promise<{ user: UserDocument } | { signedIn: SignedIn }> => {
    for (;;) {
      const user = await users.findOne({ email });
      if (!user && userId === undefined) {
        const signedIn = await register(email, given, source);
        if (signedIn) return { signedIn };
        continue;
      }
      // What ends sessions ends codes: a reset, a new password, a suspension, the deletion.
      const isSame = user?.id === (userId ?? user?.id) && user?.sessionEpoch === epoch;
      if (!user || !isSame || isDisabled(user)) throw authErrors.CODE_EXPIRED();
      if (user.emailVerified) return { user };
      const taken = await takeOver(user, source);
      if (!taken) continue;
      await throttle.trustOnly(email, source.ip);
      return { user: taken };
    }
  };

  return {
    /**
     * Signs in to the account with the address, or creates one.
     * @param document the request for the code that was used
     * @throws CODE_EXPIRED if the account was reset, suspended or deleted since the request; REGISTRATION_DISABLED,
     *   REGISTRATION_REJECTED, SECOND_FACTOR_REQUIRED, SECOND_FACTOR_ENROLMENT_REQUIRED, RATE_LIMITED
     */
    async signIn(document: LoginCodeDocument, given: CodeSignIn, source: RequestSource): Promise<SignedIn> {
      const opened = await openAccount(document, given, source);
      if ('signedIn' in opened) return opened.signedIn;
      const { user } = opened;
      await deps.secondFactors?.trust(user.id, source.ip);
      await deps.secondFactorStep?.demand(user, FIRST_FACTOR.code, source);
      const [signedIn] = await Promise.all([
        deps.signIn(user, source, AMR),
        throttle.trust(user.email, source.ip),
      ]);
      return signedIn;
    },
  };
}
