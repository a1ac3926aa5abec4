import type { Identity } from '../../../core/http/identity.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { toTimestamp } from '../../../core/http/schemas.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import type { ListedSession } from '../schemas.js';
import { lastUseOf } from '../sessions/activity.js';
import type { Credentials, PasswordRules } from '../sign-in/credentials.js';
import {
  deviceIn,
  isSessionValid,
  PASSWORD_BOUND_LINK_FIELDS,
  toSessionView,
  type UserDocument,
} from '../store.js';

/** Account management by the signed-in user. */
export type AccountService = ReturnType<typeof createAccountService>;

export interface AccountServiceDependencies extends AuthDependencies {
  credentials: Credentials;
  passwordRules: PasswordRules;
}

/** A new password, chosen in a session. */
interface SessionPassword {
  sessionId: string;
  password: string;
}

const MAX_LISTED_SESSIONS = 100;

export function createAccountService(deps: AccountServiceDependencies) {
  const { users, sessions, mails, credentials, passwords, passwordRules, audit, commit, event, clock } = deps;

  /** Whether this session has set the password that is the current one. */
  const hasSetPassword = async (
    user: UserDocument,
    { sessionId, password }: SessionPassword,
    { isDisconnected }: RequestSource,
  ): Promise<boolean> =>
    user.keptSession === sessionId &&
    (await passwords.verify(user.passwordHash ?? null, password, isDisconnected)).ok;

  /** Sets the password and ends all other sessions. False if the account has changed since `user` was read. */
  const setPassword = async (
    user: UserDocument,
    { sessionId, password }: SessionPassword,
    source: RequestSource,
  ): Promise<boolean> => {
    const { id, email, passwordVersion, sessionEpoch } = user;
    await passwordRules.validateStrength(password, email, 'newPassword');
    const passwordHash = await passwords.hash(password, source.isDisconnected);
    const { committed } = await commit([
      users.changing(
        // The condition on the epoch fails if this session was ended in the meantime: `keptSession` must not revive it.
        { id, passwordVersion, sessionEpoch, suspendedAt: null },
        {
          set: { passwordHash, keptSession: sessionId },
          unset: [...PASSWORD_BOUND_LINK_FIELDS, 'usedLink'],
          inc: { passwordVersion: 1, sessionEpoch: 1 },
        },
      ),
      mails.passwordChanged(user, passwordVersion + 1, source),
      audit.entry({ event: 'password.changed', subject: id, ip: source.ip }),
      await event('session.revoked', { userId: id, scope: 'others', sessionId }),
      await deps.foreignHashes.removing(user),
    ]);
    return committed;
  };

  return {
    /**
     * Sets the new password and ends all other sessions. A repetition succeeds in the same session, while the new password is the
     * current one.
     * @throws INVALID_CREDENTIALS, WEAK_PASSWORD, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED
     */
    async changePassword(
      { user: { id, email }, session }: Identity,
      { currentPassword, newPassword }: { currentPassword: string; newPassword: string },
      source: RequestSource,
    ) {
      passwordRules.validateFormat(newPassword, 'newPassword');
      const given = { sessionId: session.id, password: newPassword };
      const isRepetition = (user: UserDocument) => hasSetPassword(user, given, source);
      const verified = await credentials.verify(
        { id, email, password: currentPassword, isRepetition },
        source,
        'password.change-refused',
      );
      const current = await sessions.findOne({ id: session.id });
      if (!current || !isSessionValid(verified.user, current, clock.now()))
        throw httpErrors.UNAUTHENTICATED();
      if (!verified.isRepetition && !(await setPassword(verified.user, given, source))) {
        const user = await users.findOne({ id });
        if (!user || !(await isRepetition(user))) throw authErrors.INVALID_CREDENTIALS();
      }
      await deps.throttle.trustOnly(email, source.ip);
    },

    /** Returns the valid sessions, newest first. */
    async listSessions({
      user: { id },
      session: current,
    }: Record<'user' | 'session', { id: string }>): Promise<ListedSession[]> {
      const now = clock.now();
      const where = { userId: id, revokedAt: null, expiresAt: { gt: now } };
      const [user, currentSession, { items }] = await Promise.all([
        users.findOne({ id }),
        sessions.findOne({ id: current.id }),
        sessions.page({ where, sort: 'createdAt', desc: true, limit: MAX_LISTED_SESSIONS }),
      ]);
      const isListed = items.some((session) => session.id === current.id);
      const all = isListed || !currentSession ? items : [...items, currentSession];
      return all
        .filter((session) => user !== null && isSessionValid(user, session, now))
        .map((session) => ({
          ...toSessionView(session),
          refreshedAt: toTimestamp(lastUseOf(session)),
          ...deviceIn(session),
          current: session.id === current.id,
        }));
    },
  };
}
