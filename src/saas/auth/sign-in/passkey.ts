import type { Identity } from '../../../core/http/identity.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { newId } from '../../../core/kernel/secrets.js';
import type { CommitPart } from '../../../core/ops/commit.js';
import type { AuthDependencies } from '../dependencies.js';
import type { AddressConfirmation } from '../links/confirm-address.js';
import {
  isDisabled,
  isSessionValid,
  newUserDocument,
  PASSKEY,
  USER_ID_PREFIX,
  type UserDocument,
} from '../store.js';
import type { Registration } from './registration.js';
import type { SignedIn, SignIn } from './sign-in.js';

export interface PasskeySignInDependencies extends AuthDependencies, SignIn {
  registerUnverified: Registration['registerUnverified'];
  verifyEmail: AddressConfirmation['verifyEmail'];
}

/** Sign-in and registration of users with passkeys, which are stored elsewhere. A passkey needs no second factor. */
export function createPasskeySignIn(deps: PasskeySignInDependencies) {
  const { users, sessions, clock, random } = deps;
  /** Read before the use of the passkey is stored, so that a session ends with what has removed the passkey since. */
  const find = (id: string): Promise<UserDocument | null> => users.findOne({ id });

  return {
    find,

    newId: (): string => newId(USER_ID_PREFIX, clock, random),

    /** What will be stored of the fields that a visitor gives. @throws VALIDATION_ERROR */
    fieldsOf: (given: unknown) => deps.userFields?.change(undefined, given, 'visitor'),

    /**
     * Starts a session of a user whose passkey has signed.
     * @param verificationToken of a mailed link, which confirms the address
     * @throws ACCOUNT_SUSPENDED, EMAIL_NOT_VERIFIED, INVALID_TOKEN
     */
    async signIn(
      user: UserDocument,
      verificationToken: string | undefined,
      source: RequestSource,
    ): Promise<SignedIn> {
      // A link confirms the address.
      const mustBeVerified = deps.verificationRequired && verificationToken === undefined;
      await deps.rejectUnusable(user, source, mustBeVerified);
      if (verificationToken === undefined) return deps.signIn(user, source, PASSKEY);
      await deps.verifyEmail({ token: verificationToken, signedIn: user.id }, source);
      const { sessionEpoch } = user;
      return deps.signIn({ ...user, ...(await find(user.id)), sessionEpoch }, source, PASSKEY);
    },

    /**
     * Creates an account without a password, and starts a session.
     * @param passkey what is stored in the same commit
     * @returns `null` if the address must be verified first; the response is the same for an existing account
     * @throws REGISTRATION_DISABLED, REGISTRATION_REJECTED, EMAIL_TAKEN, RATE_LIMITED; UniqueViolation for the passkey
     */
    async register(
      given: {
        id: string;
        email: string;
        name?: string | undefined;
        /** As stored. */
        fields?: string | undefined;
        locale: string | undefined;
      },
      passkey: readonly CommitPart[],
      source: RequestSource,
    ): Promise<SignedIn | null> {
      const user = newUserDocument({ ...given, emailVerified: false }, clock.now(), deps);
      await deps.admit(user, 'passkey', source);
      if (!deps.verificationRequired) return deps.createAccount(user, source, PASSKEY, undefined, passkey);
      await deps.registerUnverified(user, source, passkey);
      return null;
    },

    /** @throws UNAUTHENTICATED if the session has ended since it was read */
    async ensureCurrent({ user: { id }, session: { id: sessionId } }: Identity) {
      const [user, session] = await Promise.all([find(id), sessions.findOne({ id: sessionId })]);
      if (!user || !session || isDisabled(user) || !isSessionValid(user, session, clock.now()))
        throw httpErrors.UNAUTHENTICATED();
    },
  };
}
