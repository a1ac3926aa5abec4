import { canonicalEmail } from '../../../core/http/mailboxes.js';
import type { RequestSource } from '../../../core/http/routes.js';
import type { NewUserFields } from '../../../core/http/user-metadata.js';
import type { CommitPart } from '../../../core/ops/commit.js';
import { nullIfTaken } from '../../../core/storage/collection.js';
import type { Limit } from '../../../core/throttle/limits.js';
import type { AuthDependencies } from '../dependencies.js';
import { authLimits } from '../limits.js';
import { isDisabled, newUserDocument, type UserDocument } from '../store.js';
import type { PasswordRules } from './credentials.js';
import type { SignedIn, SignIn } from './sign-in.js';

/** Creates accounts over HTTP. */
export type Registration = ReturnType<typeof createRegistration>;

export interface RegistrationDependencies extends AuthDependencies, SignIn {
  passwordRules: PasswordRules;
  sendVerification(user: UserDocument): Promise<void>;
  sendReset(user: UserDocument, source: RequestSource): Promise<void>;
}

export function createRegistration(deps: RegistrationDependencies) {
  const { users, passwordRules, throttle, audit, commit, createAccount, registered, clock } = deps;

  /**
   * Stores a user who has to verify the address first. The calls of the store before the response are the same whether or not the
   * account exists; the rest is done after it. Of concurrent registrations of a new address, all but one are refused by its unique
   * field.
   *
   * @param others what is stored in the commit of the user
   */
  const registerUnverified = async (
    user: UserDocument,
    source: RequestSource,
    others: readonly CommitPart[] = [],
  ): Promise<void> => {
    const { ip } = source;
    const findExisting = () => users.findOne({ email: user.email });
    const [found, effects] = await Promise.all([findExisting(), registered(user, source)]);
    const repeated = { event: 'registration.repeated', ip };
    const isNew = await commit(
      found
        ? [
            // Only so that a known address takes the same writes.
            users.changing({ id: found.id }, { set: { registrationRepeatedAt: clock.now() } }),
            audit.failureEntry({ ...repeated, subject: found.id }),
          ]
        : [users.inserting(user), ...effects, ...others],
    ).then(() => !found, nullIfTaken);
    const { reset, verify } = authLimits.mailTo;
    const mayMail = (limit: Limit) => throttle.tryCountKey(limit, user.email, ip);
    deps.backgroundTasks.run('registration', async () => {
      if (isNew) {
        if (await mayMail(verify)) await deps.sendVerification(user);
        return;
      }
      // A concurrent registration was first. If its account has been deleted since, the address has to be registered again.
      const existing = found ?? (await findExisting());
      if (!existing) return;
      if (!found) await audit.recordFailure({ ...repeated, subject: existing.id });
      // The existing account may have been created by someone else, so the owner of the address can choose a new
      // password.
      if (!isDisabled(existing) && (await mayMail(reset))) await deps.sendReset(existing, source);
    });
  };

  return {
    registerUnverified,

    /**
     * Returns the first session, or `null` when the address must be verified first: then the response and its duration
     * are the same for an existing account, whose owner gets a mail instead.
     * @throws REGISTRATION_DISABLED, REGISTRATION_REJECTED, EMAIL_TAKEN, WEAK_PASSWORD, RATE_LIMITED, OVERLOADED, VALIDATION_ERROR for the password's length and the fields
     */
    async register(
      {
        email,
        password,
        name,
        fields: given,
        locale,
      }: {
        email: string;
        password: string;
        name?: string;
        fields?: NewUserFields;
        locale?: string | undefined;
      },
      source: RequestSource,
    ): Promise<SignedIn | null> {
      const fields = deps.userFields?.change(undefined, given, 'visitor');
      passwordRules.validateFormat(password);
      await passwordRules.validateStrength(password, email);
      const person = { email: canonicalEmail(email), ...(name && { name }), ...(fields && { fields }) };
      await deps.admit(person, 'password', source);
      // Hashed before the lookup, so that existing accounts take as long as new ones.
      const passwordHash = await deps.passwords.hash(password, source.isDisconnected);
      const profile = { email, name, fields, locale, passwordHash, emailVerified: false };
      const user = newUserDocument(profile, clock.now(), deps);
      if (deps.verificationRequired) {
        await registerUnverified(user, source);
        return null;
      }
      const session = await createAccount(user, source);
      deps.backgroundTasks.run('trust', () => throttle.trustOnly(user.email, source.ip));
      return session;
    },
  };
}
