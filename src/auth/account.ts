import { toTimestamp } from '../http/schemas.js';
import type { Origin } from '../http/scope.js';
import { httpErrors } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import { UNANSWERED_LINK_FIELDS } from '../ops/used-links.js';
import type { Credentials, PasswordRules } from './credentials.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import type { ListedSession } from './schemas.js';
import { type Identity, isSessionValid } from './sessions.js';
import { PASSWORD_BOUND_LINK_FIELDS, toSessionView } from './store.js';

/** Account management by the signed-in user. */
export interface AccountService {
  /**
   * Sets the new password and ends all other sessions, in one write.
   * @throws INVALID_CREDENTIALS, WEAK_PASSWORD, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED
   */
  changePassword(
    identity: Identity,
    given: { currentPassword: string; newPassword: string },
    origin: Origin,
  ): Promise<void>;
  /** Returns the valid sessions, newest first. */
  listSessions(identity: Identity): Promise<ListedSession[]>;
  /** @throws NOT_FOUND if the caller has no such session */
  revokeSession(identity: Identity, id: string, origin: Origin): Promise<void>;
}

export interface AccountServiceDependencies
  extends Pick<
    AuthDependencies,
    'users' | 'sessions' | 'passwords' | 'foreignHashes' | 'throttle' | 'mails' | 'emit' | 'clock'
  > {
  credentials: Credentials;
  passwordRules: PasswordRules;
  audit: Audit;
}

const MAX_LISTED_SESSIONS = 100;

export function createAccountService(deps: AccountServiceDependencies): AccountService {
  const { users, sessions, mails, credentials, passwordRules, audit, clock } = deps;

  return {
    async changePassword({ user: { id, email }, session }, { currentPassword, newPassword }, origin) {
      const { ip, isDisconnected } = origin;
      passwordRules.validateFormat(newPassword, 'newPassword');
      const given = { id, email, password: currentPassword };
      const { user } = await credentials.verify(given, origin, 'password.change-refused');
      const current = await sessions.findOne({ id: session.id });
      if (!current || !isSessionValid(user, current, clock.now())) throw httpErrors.UNAUTHENTICATED();
      await passwordRules.validateStrength(newPassword, email, 'newPassword');
      const passwordHash = await deps.passwords.hash(newPassword, isDisconnected);
      // The mail is enqueued before the change and sent only after it, so a crash in between loses nothing.
      await mails.passwordChanged(user, user.passwordVersion + 1, origin);
      const changed = await users.updateOne(
        // The condition on the epoch fails if this session was ended in the meantime: `keptSession` must not revive it.
        { id, passwordVersion: user.passwordVersion, sessionEpoch: user.sessionEpoch, suspendedAt: null },
        {
          set: { passwordHash, keptSession: session.id },
          unset: [...PASSWORD_BOUND_LINK_FIELDS, ...UNANSWERED_LINK_FIELDS],
          inc: { passwordVersion: 1, sessionEpoch: 1 },
        },
      );
      if (!changed) throw authErrors.INVALID_CREDENTIALS();
      await Promise.all([
        deps.foreignHashes.remove(user),
        deps.throttle.trustOnly(email, ip),
        audit.record({ event: 'password.changed', subject: id, ip }),
      ]);
      deps.emit('session.revoked', { userId: id, scope: 'others', sessionId: session.id });
    },

    async listSessions({ user: { id }, session: current }) {
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
          refreshedAt: toTimestamp(session.rotatedAt),
          current: session.id === current.id,
        }));
    },

    async revokeSession({ user: { id: userId } }, id, { ip }) {
      const now = clock.now();
      const revoked = await sessions.updateOne(
        { id, userId, revokedAt: null, expiresAt: { gt: now } },
        { set: { revokedAt: now } },
      );
      if (!revoked) throw httpErrors.NOT_FOUND();
      await audit.record({ event: 'session.revoked', subject: userId, ip });
      deps.emit('session.revoked', { userId, scope: 'local', sessionId: id });
    },
  };
}
