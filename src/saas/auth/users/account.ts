import type { Identity } from '../../../core/http/identity.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { toTimestamp } from '../../../core/http/schemas.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import type { LinkUse, UsedLinks } from '../../../core/ops/used-links.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { eventIdOf, proofOfUse } from '../events.js';
import { authLimits } from '../limits.js';
import { RESET_LINK_TTL_MS } from '../links/link-tokens.js';
import type { ListedSession } from '../schemas.js';
import type { SessionService } from '../sessions/sessions.js';
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
  revokeSession: SessionService['revokeSession'];
  usedLinks: UsedLinks<UserDocument>;
}

const MAX_LISTED_SESSIONS = 100;

export function createAccountService(deps: AccountServiceDependencies) {
  const { users, sessions, mails, credentials, passwords, passwordRules, audit, usedLinks, clock } = deps;

  /** A change is marked like the use of a link; each version of the password is changed once. */
  const useOf = (userId: string, sessionId: string, passwordVersion: number): LinkUse =>
    usedLinks.begin(userId, sha256(`${sessionId} ${passwordVersion}`));

  /** Sets the password and ends all other sessions. `null` if the account has changed since `user` was read. */
  const setPassword = async (
    user: UserDocument,
    { usedLinkHash, unansweredSince }: LinkUse,
    { sessionId, password }: { sessionId: string; password: string },
    source: RequestSource,
  ): Promise<UserDocument | null> => {
    const { id, email, passwordVersion, sessionEpoch } = user;
    await passwordRules.validateStrength(password, email, 'newPassword');
    const passwordHash = await passwords.hash(password, source.isDisconnected);
    const expiresAt = clock.now() + RESET_LINK_TTL_MS;
    const usedLink = { kind: 'password', expiresAt, passwordChanged: true, addressVerified: false } as const;
    await deps.announceEvent(
      'session.revoked',
      othersRevoked(id, sessionId, usedLinkHash),
      proofOfUse(id, usedLinkHash),
    );
    const changed = await users.updateOne(
      // The condition on the epoch fails if this session was ended in the meantime: `keptSession` must not revive it.
      { id, passwordVersion, sessionEpoch, suspendedAt: null },
      {
        set: { passwordHash, keptSession: sessionId, usedLinkHash, usedLink, unansweredSince },
        unset: PASSWORD_BOUND_LINK_FIELDS,
        inc: { passwordVersion: 1, sessionEpoch: 1 },
      },
    );
    if (!changed) return null;
    await deps.commit([mails.passwordChanged(user, passwordVersion + 1, source)]);
    await deps.foreignHashes.remove(user);
    return changed;
  };

  /** Whether a failed request of the same session has changed the password to `password`. */
  const hasSetPassword = async (
    use: LinkUse,
    password: string,
    { ip, isDisconnected }: RequestSource,
  ): Promise<boolean> => {
    const user = await usedLinks.findUnanswered(use);
    if (user?.usedLink?.kind !== 'password') return false;
    // Does not throw: a guess at the current password counts even if this limit is exceeded.
    if (!(await deps.throttle.tryCountKey(authLimits.repetition, use.usedLinkHash, ip))) return false;
    const { ok } = await passwords.verify(user.passwordHash ?? null, password, isDisconnected);
    return ok;
  };

  return {
    /**
     * Sets the new password and ends all other sessions, in one write. A repetition of a request that has failed after that
     * succeeds in the same session and with the same new password only.
     * @throws INVALID_CREDENTIALS, WEAK_PASSWORD, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED
     */
    async changePassword(
      { user: { id, email }, session }: Identity,
      { currentPassword, newPassword }: { currentPassword: string; newPassword: string },
      source: RequestSource,
    ) {
      passwordRules.validateFormat(newPassword, 'newPassword');
      const { user, isRepetition } = await credentials.verify(
        {
          id,
          email,
          password: currentPassword,
          async isRepetition({ passwordVersion, usedLinkHash }) {
            const use = useOf(id, session.id, passwordVersion - 1);
            return usedLinkHash === use.usedLinkHash && hasSetPassword(use, newPassword, source);
          },
        },
        source,
        'password.change-refused',
      );
      const current = await sessions.findOne({ id: session.id });
      if (!current || !isSessionValid(user, current, clock.now())) throw httpErrors.UNAUTHENTICATED();
      const use = useOf(id, session.id, isRepetition ? user.passwordVersion - 1 : user.passwordVersion);
      await usedLinks.complete(use, async () => {
        const isChanged =
          isRepetition ||
          (await setPassword(user, use, { sessionId: session.id, password: newPassword }, source)) !== null ||
          (await hasSetPassword(use, newPassword, source));
        if (!isChanged) throw authErrors.INVALID_CREDENTIALS();
        await Promise.all([
          deps.throttle.trustOnly(email, source.ip),
          audit.record({ event: 'password.changed', subject: id, ip: source.ip }),
        ]);
        await deps.emit('session.revoked', othersRevoked(id, session.id, use.usedLinkHash));
      });
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
          refreshedAt: toTimestamp(session.rotatedAt),
          ...deviceIn(session),
          current: session.id === current.id,
        }));
    },

    /** @throws NOT_FOUND if the caller has no such session */
    revokeSession: ({ user }: { user: { id: string } }, id: string, { ip }: RequestSource) =>
      deps.revokeSession(user.id, id, { ip }),
  };
}

const othersRevoked = (userId: string, sessionId: string, usedLinkHash: string) =>
  ({ id: eventIdOf({ usedLinkHash }), userId, scope: 'others', sessionId }) as const;
