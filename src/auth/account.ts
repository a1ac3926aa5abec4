import { toTimestamp } from '../http/schemas.js';
import type { Origin } from '../http/scope.js';
import { httpErrors } from '../kernel/errors.js';
import type { Audit } from '../ops/audit.js';
import type { Credentials } from './credentials.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import type { NewPasswords } from './new-password.js';
import type { ListedSession } from './schemas.js';
import { type Identity, isAlive } from './sessions.js';
import { RECOVERY_LINKS, sessionView } from './store.js';

/** What owners do with their account while they are signed in. */
export interface Account {
  /**
   * This session goes on, the others end, in one write.
   * @throws INVALID_CREDENTIALS, WEAK_PASSWORD, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED
   */
  changePassword(
    identity: Identity,
    given: { currentPassword: string; newPassword: string },
    origin: Origin,
  ): Promise<void>;
  /** The sessions that are alive, the newest first. */
  listSessions(identity: Identity): Promise<ListedSession[]>;
  /** @throws NOT_FOUND when the caller has no such session */
  revokeSession(identity: Identity, id: string, origin: Origin): Promise<void>;
}

export interface AccountDependencies
  extends Pick<
    AuthDependencies,
    'users' | 'sessions' | 'passwords' | 'foreignHashes' | 'throttle' | 'mails' | 'emit' | 'clock'
  > {
  credentials: Credentials;
  newPasswords: NewPasswords;
  audit: Audit;
}

const MOST_LISTED = 100;

export function createAccount(deps: AccountDependencies): Account {
  const { users, sessions, mails, credentials, newPasswords, audit, clock } = deps;

  return {
    async changePassword(
      { user: { id, email }, session },
      { currentPassword, newPassword },
      { ip, isDisconnected },
    ) {
      newPasswords.check(newPassword, 'newPassword');
      const given = { id, email, password: currentPassword };
      const { user } = await credentials.prove(given, { ip, isDisconnected }, 'password.change-refused');
      const kept = await sessions.findOne({ id: session.id });
      if (!kept || !isAlive(user, kept, clock.now())) throw httpErrors.UNAUTHENTICATED();
      await newPasswords.validate(newPassword, email, 'newPassword');
      const passwordHash = await deps.passwords.hash(newPassword, isDisconnected);
      // First the mail that tells of it: it waits for the version, and a crash in between loses nothing.
      await mails.passwordChanged(user, user.passwordVersion + 1);
      const changed = await users.updateOne(
        // Where an epoch has ended meanwhile, this session may have ended with it, and must not come back.
        { id, passwordVersion: user.passwordVersion, sessionEpoch: user.sessionEpoch, suspendedAt: null },
        {
          set: { passwordHash, keptSession: session.id },
          unset: RECOVERY_LINKS,
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
      const [user, mine, { items }] = await Promise.all([
        users.findOne({ id }),
        sessions.findOne({ id: current.id }),
        sessions.page({ where, sort: 'createdAt', desc: true, limit: MOST_LISTED }),
      ]);
      const isListed = items.some((session) => session.id === current.id);
      const all = isListed || !mine ? items : [...items, mine];
      return all
        .filter((session) => user !== null && isAlive(user, session, now))
        .map((session) => ({
          ...sessionView(session),
          refreshedAt: toTimestamp(session.rotatedAt),
          current: session.id === current.id,
        }));
    },

    async revokeSession({ user: { id: userId } }, id, { ip }) {
      const now = clock.now();
      const ended = await sessions.updateOne(
        { id, userId, revokedAt: null, expiresAt: { gt: now } },
        { set: { revokedAt: now } },
      );
      if (!ended) throw httpErrors.NOT_FOUND();
      await audit.record({ event: 'session.revoked', subject: userId, ip });
      deps.emit('session.revoked', { userId, scope: 'local', sessionId: id });
    },
  };
}
