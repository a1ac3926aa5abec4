import type { User } from '../http/schemas.js';
import type { Origin } from '../http/scope.js';
import { nullIfTaken, UniqueViolation } from '../storage/collection.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import { authLimits } from './limits.js';
import type { NewPasswords } from './new-password.js';
import { newUserDocument } from './new-users.js';
import type { SessionService, Tokens } from './sessions.js';
import { isClosed, type UserDocument } from './store.js';

/** New accounts. */
export interface Registration {
  /**
   * Answers with the first session, or with `null` where the address must be confirmed first: then the answer and
   * the work are the same for a known address, whose owner gets a mail instead.
   * @throws REGISTRATION_DISABLED, EMAIL_TAKEN, WEAK_PASSWORD, RATE_LIMITED, OVERLOADED, VALIDATION_ERROR for the password's length
   */
  register(
    input: { email: string; password: string; name?: string },
    origin: Origin,
  ): Promise<(Tokens & { user: User }) | null>;
}

export interface RegistrationDependencies
  extends Pick<
    AuthDependencies,
    | 'users'
    | 'mails'
    | 'emit'
    | 'viewOf'
    | 'audit'
    | 'passwords'
    | 'throttle'
    | 'backgroundTasks'
    | 'clock'
    | 'random'
    | 'registrationAllowed'
    | 'verificationRequired'
  > {
  newPasswords: NewPasswords;
  begin: SessionService['begin'];
  sendVerification(user: UserDocument): Promise<void>;
  sendReset(user: UserDocument): Promise<void>;
}

export function createRegistration(deps: RegistrationDependencies): Registration {
  const { users, mails, newPasswords, throttle, audit, clock } = deps;

  const announce = async (user: UserDocument) =>
    deps.emit('user.registered', { userId: user.id, user: await deps.viewOf(user) });

  /** One look-up and one commit before the answer, whether or not the address is known; the rest after it. */
  const registerUnseen = async (user: UserDocument, { ip }: Origin): Promise<void> => {
    const repeated = (known: UserDocument) =>
      audit.recordFailure({ event: 'registration.repeated', subject: known.id, ip });
    let known = await users.findOne({ email: user.email });
    if (known) await repeated(known);
    else if ((await users.insert(user).then(() => user, nullIfTaken)) === null) {
      known = await users.findOne({ email: user.email });
      if (known) await repeated(known);
    } else await announce(user);
    deps.backgroundTasks.run('registration', async () => {
      if (!known) await audit.record({ event: 'user.registered', subject: user.id, ip });
      if (known && isClosed(known)) return;
      const { reset, verify } = authLimits.mailTo;
      if (!(await throttle.tryCountKey(known ? reset : verify, user.email, ip))) return;
      // Somebody else may have chosen the password; its owner gets to choose a new one.
      await (known ? deps.sendReset(known) : deps.sendVerification(user));
    });
  };

  return {
    async register({ email, password, name }, origin) {
      if (!(await deps.registrationAllowed())) throw authErrors.REGISTRATION_DISABLED();
      newPasswords.check(password);
      await newPasswords.validate(password, email);
      await throttle.count(authLimits.register, origin.ip);
      // Hashed before the address is looked at: a known one takes as long as a new one.
      const passwordHash = await deps.passwords.hash(password, origin.isDisconnected);
      const user = newUserDocument({ email, name, passwordHash, emailVerified: false }, clock.now(), deps);
      if (deps.verificationRequired) {
        await registerUnseen(user, origin);
        return null;
      }
      if (await users.findOne({ email: user.email })) throw authErrors.EMAIL_TAKEN();
      // The account last: what fails before it leaves nothing behind that counts, and nothing that counts fails after it.
      const session = await deps.begin(user);
      await users.insert(user).catch((error: unknown) => {
        throw error instanceof UniqueViolation ? authErrors.EMAIL_TAKEN() : error;
      });
      await announce(user);
      await audit.record({ event: 'user.registered', subject: user.id, ip: origin.ip });
      deps.backgroundTasks.run('welcome', async () => {
        await Promise.all([throttle.trustOnly(user.email, origin.ip), mails.welcome(user)]);
      });
      return session;
    },
  };
}
