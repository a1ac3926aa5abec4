import type { Identity } from '../../../core/http/identity.js';
import { isRecent, SECOND } from '../../../core/kernel/clock.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import { authErrors } from '../errors.js';
import { type SessionDocument, toSessionView, type UserDocument } from '../store.js';
import { isDueForUse, lastDayBefore, lastUseOf } from './activity.js';
import type { RefreshDependencies } from './refresh.js';
import type { IssuedAccess } from './tokens.js';

/**
 * Sessions of browsers that a server uses while it renders a page: it reads the cookie, whose token is not exchanged. A response
 * that is lost, a page that is fetched in advance, or two servers at the same time can therefore end no session.
 */
export function createCookieSessions(deps: RefreshDependencies) {
  const { sessions, tokens, clock } = deps;
  const reuseWindowMs = deps.refreshReuseWindow * SECOND;

  /** Keeps a session that is in use from ending, as a refresh does. An operator's ends after its time in any case. */
  const recordUse = async (session: SessionDocument): Promise<SessionDocument> => {
    const now = clock.now();
    if (session.impersonator || !isDueForUse(session, { now, lifetimeMs: tokens.refreshTtl * SECOND }))
      return session;
    const { id, currentId, expiresAt } = session;
    const change = {
      // Not `rotatedAt`, which would begin the time again in which the previous token is accepted.
      seenAt: now,
      expiresAt: tokens.refreshExpiry(session),
      ...lastDayBefore(lastUseOf(session), now),
    };
    // Otherwise a refresh or another request has done so meanwhile, or the session has ended.
    const isRecorded = await sessions.changeOne(
      { id, currentId, expiresAt, revokedAt: null },
      { set: change },
    );
    return isRecorded ? { ...session, ...change } : session;
  };

  /**
   * Null unless the token is of a cookie, and the newest of its session or, for a short time, the one before. An older one ends
   * nothing here: it may be that of a request which was sent before the refresh.
   */
  const find = async (cookie: string): Promise<{ user: UserDocument; session: SessionDocument } | null> => {
    const verified = tokens.verifyRefresh(cookie);
    if (!verified?.isOfCookie || verified.isExpired) return null;
    const found = await deps.findValidSession(verified.claims);
    if (!found) return null;
    const { user, session } = found;
    const presented = sha256(verified.claims.jti);
    const isPrevious =
      session.previousId === presented &&
      isRecent(session.rotatedAt, { now: clock.now(), within: reuseWindowMs });
    if (session.currentId !== presented && !isPrevious) return null;
    return { user, session: await recordUse(session) };
  };

  return {
    /** The user and the session of a cookie; null if there is none that is valid. */
    async readCookieSession(cookie: string): Promise<Identity | null> {
      const found = await find(cookie);
      return found && { user: deps.presentUser(found.user), session: toSessionView(found.session) };
    },

    /** An access token for the session of a cookie. @throws INVALID_REFRESH_TOKEN */
    async issueForCookie(cookie: string | undefined): Promise<IssuedAccess> {
      const found = cookie === undefined ? null : await find(cookie);
      if (!found) throw authErrors.INVALID_REFRESH_TOKEN();
      const { user, session } = found;
      return tokens.issueAccess(session, deps.claimsOf && (await deps.claimsOf(user, session.id)));
    },
  };
}
