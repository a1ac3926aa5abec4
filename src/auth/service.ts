import { httpErrors } from '../kernel/errors.js';
import type { Origin } from '../kernel/http.js';
import type { Passwords } from '../kernel/passwords.js';
import type { User } from '../kernel/schemas.js';
import { newId } from '../kernel/secrets.js';
import { UniqueViolation } from '../storage/collection.js';
import { authErrors } from './errors.js';
import {
  createSessionService,
  type SessionDependencies,
  type SessionService,
  type Tokens,
} from './sessions.js';
import type { UserDocument } from './store.js';

/** Accounts: who may begin a session. */

export interface AuthService extends Omit<SessionService, 'begin'> {
  /** @throws REGISTRATION_DISABLED, EMAIL_TAKEN, OVERLOADED, VALIDATION_ERROR for the password's length */
  register(
    input: { email: string; password: string; name?: string },
    origin: Origin,
  ): Promise<Tokens & { user: User }>;
  /** @throws INVALID_CREDENTIALS, ACCOUNT_SUSPENDED, OVERLOADED */
  login(input: { email: string; password: string }, origin: Origin): Promise<Tokens & { user: User }>;
}

export interface AuthDependencies extends SessionDependencies {
  passwords: Passwords;
  /** Whether the operator lets new accounts be made. */
  registrationAllowed(): Promise<boolean>;
}

export function createAuth(deps: AuthDependencies): AuthService {
  const { users, passwords, audit, clock, random } = deps;
  const { begin, ...sessions } = createSessionService(deps);

  return {
    ...sessions,

    async register({ email, password, name }, origin) {
      if (!(await deps.registrationAllowed())) throw authErrors.REGISTRATION_DISABLED();
      const problem = passwords.problem(password);
      if (problem) throw httpErrors.VALIDATION_ERROR({ details: [{ path: 'password', message: problem }] });
      // Hashed before the address is looked at: a known one takes as long as a new one.
      const passwordHash = await passwords.hash(password, origin.isGone);
      const user: UserDocument = {
        id: newId('usr_', clock, random),
        email: email.toLowerCase(),
        ...(name ? { name } : {}),
        passwordHash,
        passwordVersion: 1,
        emailVerified: false,
        sessionEpoch: 0,
        subscriptionStatus: 'none',
        subscriptionPlan: 'free',
        createdAt: clock.now(),
      };
      await users.insert(user).catch((error: unknown) => {
        throw error instanceof UniqueViolation ? authErrors.EMAIL_TAKEN() : error;
      });
      return begin(user, 'user.registered', origin);
    },

    async login({ email, password }, origin) {
      const user = await users.findOne({ email: email.toLowerCase() });
      const { ok, outdated } = await passwords.verify(user?.passwordHash ?? null, password, origin.isGone);
      if (!user || !ok) {
        await audit.record({ event: 'login.failed', ip: origin.ip, ...(user && { subject: user.id }) });
        throw authErrors.INVALID_CREDENTIALS();
      }
      if (user.suspendedAt !== undefined) throw authErrors.ACCOUNT_SUSPENDED();
      if (outdated) {
        const passwordHash = await passwords.hash(password, origin.isGone);
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
