import type { Identity } from '../../../core/http/identity.js';
import { canonicalEmail } from '../../../core/http/mailboxes.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { httpErrors, invalidFields } from '../../../core/kernel/errors.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { authLimits } from '../limits.js';
import type { Unlock } from '../links/unlock.js';
import type { UserDocument } from '../store.js';
import { requireRecent } from './recent-auth.js';

/** Verifies the password of an account. All callers share the limits on wrong passwords. */
export type Credentials = ReturnType<typeof createCredentials>;

interface GivenCredentials {
  id?: string;
  email: string;
  password: string;
  isRepetition?(user: UserDocument): Promise<boolean>;
}

export function createCredentials(deps: AuthDependencies & { offerUnlock: Unlock['offerUnlock'] }) {
  const { users, passwords, foreignHashes, throttle, audit, offerUnlock, clock } = deps;

  const credentials = {
    /**
     * Returns the account, and whether its hash is outdated. Verification takes as long for an unknown address as for a
     * known one.
     * @param given with an `id`, the account must be the one with that `id`; `isRepetition` decides whether a request with a
     * wrong password repeats one that has taken effect without an answer
     * @param failureEvent the audit event of a wrong password
     * @throws INVALID_CREDENTIALS, RATE_LIMITED, OVERLOADED
     */
    async verify(
      { id, email, password, isRepetition }: GivenCredentials,
      source: RequestSource,
      failureEvent: string,
    ) {
      const { ip, isDisconnected } = source;
      // Called first, so that a rejection under overload costs neither a read nor a write.
      await passwords.ensureCapacity();
      await throttle.count(authLimits.login, ip);
      const account = canonicalEmail(email);
      const onBudgetSpent = () => offerUnlock(account, source);
      const verified = await throttle.attempt({ account, ip, onBudgetSpent }, async () => {
        const user = await users.findOne({ email: account });
        // Decoys are unnecessary for signed-in users, who already know that their account exists.
        const decoys = id === undefined ? await foreignHashes.decoys() : [];
        const stored = user?.passwordHash ?? null;
        const { ok, outdated } = await passwords.verify(stored, password, isDisconnected, decoys);
        if (user && (id ?? user.id) === user.id) {
          if (ok) return { user, outdated, isRepetition: false };
          if (await isRepetition?.(user)) return { user, outdated, isRepetition: true };
        }
        await audit.recordFailure({ event: failureEvent, ip, ...(user && { subject: user.id }) });
        return null;
      });
      if (!verified) throw authErrors.INVALID_CREDENTIALS();
      return verified;
    },

    /**
     * Returns the account of a session, proven by its password or, if it has none, by a recent sign-in.
     * @param failureEvent as above
     * @throws INVALID_CREDENTIALS, REAUTHENTICATION_REQUIRED, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED
     */
    async verifyOwner(
      identity: Identity,
      password: string | undefined,
      source: RequestSource,
      failureEvent: string,
    ): Promise<UserDocument> {
      const { id, email } = identity.user;
      if (password !== undefined)
        return (await credentials.verify({ id, email, password }, source, failureEvent)).user;
      const user = await users.findOne({ id });
      if (!user) throw httpErrors.UNAUTHENTICATED();
      if (user.passwordHash !== undefined) throw invalidFields({ path: 'password', message: 'is required' });
      requireRecent(identity, {}, clock);
      return user;
    },
  };
  return credentials;
}

/** The rules for new passwords, shared by registration, password reset and password change. */
export type PasswordRules = ReturnType<typeof createPasswordRules>;

export function createPasswordRules({ passwords, passwordPolicy, siteName }: AuthDependencies) {
  return {
    /** @param path the field of the password @throws VALIDATION_ERROR for a wrong length or invalid characters */
    validateFormat(password: string, path: string = 'password') {
      const problem = passwords.problem(password);
      if (problem) throw httpErrors.VALIDATION_ERROR({ details: [{ path, message: problem }] });
    },

    /** @param path the field of the password @throws WEAK_PASSWORD for common passwords, the address and the site name */
    validateStrength: async (password: string, email: string, path?: string) =>
      passwordPolicy.validate(password, [email, await siteName()], path),
  };
}
