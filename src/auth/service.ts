import { httpErrors } from '../kernel/errors.js';
import type { Origin } from '../kernel/http.js';
import type { Passwords } from '../kernel/passwords.js';
import type { PasswordPolicy } from '../kernel/passwords-common.js';
import type { User } from '../kernel/schemas.js';
import type { Throttle } from '../ops/throttle.js';
import { UniqueViolation } from '../storage/collection.js';
import { authErrors } from './errors.js';
import { authLimits } from './limits.js';
import { newUserDocument } from './new-users.js';
import {
  createSessionService,
  type SessionDependencies,
  type SessionService,
  type Tokens,
} from './sessions.js';

/** Accounts: who may begin a session. */

export interface AuthService extends Omit<SessionService, 'begin'> {
  /** @throws REGISTRATION_DISABLED, EMAIL_TAKEN, WEAK_PASSWORD, RATE_LIMITED, OVERLOADED, VALIDATION_ERROR for the password's length */
  register(
    input: { email: string; password: string; name?: string },
    origin: Origin,
  ): Promise<Tokens & { user: User }>;
  /** @throws INVALID_CREDENTIALS, ACCOUNT_SUSPENDED, RATE_LIMITED, OVERLOADED */
  login(input: { email: string; password: string }, origin: Origin): Promise<Tokens & { user: User }>;
}

export interface AuthDependencies extends SessionDependencies {
  passwords: Passwords;
  passwordPolicy: PasswordPolicy;
  throttle: Pick<Throttle, 'count' | 'attempt' | 'trust'>;
  /** Whether the operator lets new accounts be made. */
  registrationAllowed(): Promise<boolean>;
  siteName(): Promise<string>;
}

export function createAuth(deps: AuthDependencies): AuthService {
  const { users, passwords, throttle, audit, clock } = deps;
  const { begin, ...sessions } = createSessionService(deps);

  return {
    ...sessions,

    async register({ email, password, name }, origin) {
      if (!(await deps.registrationAllowed())) throw authErrors.REGISTRATION_DISABLED();
      const problem = passwords.problem(password);
      if (problem) throw httpErrors.VALIDATION_ERROR({ details: [{ path: 'password', message: problem }] });
      await deps.passwordPolicy.judge(password, [email, await deps.siteName()]);
      await throttle.count(authLimits.register, origin.ip);
      // Hashed before the address is looked at: a known one takes as long as a new one.
      const passwordHash = await passwords.hash(password, origin.isGone);
      const user = newUserDocument({ email, name, passwordHash, emailVerified: false }, clock.now(), deps);
      await users.insert(user).catch((error: unknown) => {
        throw error instanceof UniqueViolation ? authErrors.EMAIL_TAKEN() : error;
      });
      await throttle.trust(user.email, origin.ip);
      return begin(user, 'user.registered', origin);
    },

    async login({ email, password }, origin) {
      const { ip, isGone } = origin;
      await throttle.count(authLimits.login, ip);
      const account = email.toLowerCase();
      const proven = await throttle.attempt({ account, ip }, async () => {
        const user = await users.findOne({ email: account });
        const { ok, outdated } = await passwords.verify(user?.passwordHash ?? null, password, isGone);
        if (user && ok) return { user, outdated };
        await audit.record({ event: 'login.failed', ip, ...(user && { subject: user.id }) });
        return null;
      });
      if (!proven) throw authErrors.INVALID_CREDENTIALS();
      const { user, outdated } = proven;
      if (user.suspendedAt !== undefined) throw authErrors.ACCOUNT_SUSPENDED();
      if (outdated) {
        const passwordHash = await passwords.hash(password, isGone);
        // Lost against a new password: then the new one stays.
        await users.updateOne(
          { id: user.id, passwordVersion: user.passwordVersion },
          { set: { passwordHash } },
        );
      }
      return begin(user, 'login.succeeded', origin);
    },
  };
}
