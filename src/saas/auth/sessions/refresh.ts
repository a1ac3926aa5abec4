import { isRecent, SECOND } from '../../../core/kernel/clock.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import type { SessionDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { isSessionValid, type SessionDocument, type UserDocument } from '../store.js';
import { lastDayBefore, lastUseOf } from './activity.js';
import type { Claims, IssuedTokens, SessionClaims } from './tokens.js';

/** The refresh tokens of sessions: each is exchanged once for its only successor. */
export type Refresh = ReturnType<typeof createRefresh>;

export interface RefreshDependencies extends SessionDependencies {
  /** The session and its user if the session is valid now. */
  findValidSession(claims: SessionClaims): Promise<{ user: UserDocument; session: SessionDocument } | null>;
  /** Further claims of the access token. Absent if there are none. @throws NOT_READY, INTERNAL */
  claimsOf?(user: UserDocument, sessionId: string): Promise<Claims>;
}

/** A rotation of which the response of the store was lost. */
interface Rotation {
  id: string;
  presented: string;
  next: string;
  rotatedAt: number;
}

export function createRefresh(deps: RefreshDependencies) {
  const { sessions, tokens, audit, commit, event, clock } = deps;
  const reuseWindowMs = deps.refreshReuseWindow * SECOND;

  /**
   * Begins the window of a rotation again that took effect unnoticed, because its client repeats it when the store
   * responds again. A rotation of another time was answered, so its window stays closed.
   */
  const rotations = deps.unknownWrites.track<Rotation>('refresh', async (attempts) => {
    const [{ id, presented, next }] = attempts as [Rotation];
    // A write that changes nothing, because a read does not see what the majority has not confirmed yet.
    const session = await sessions.updateOne(
      { id, currentId: next, revokedAt: null },
      { set: { currentId: next } },
    );
    if (!session) return false;
    if (!attempts.some(({ rotatedAt }) => rotatedAt === session.rotatedAt)) return true;
    const rotatedAt = clock.now();
    // The outcome of this write may remain unknown as well.
    attempts.push({ id, presented, next, rotatedAt });
    await sessions.changeOne({ id, currentId: next, revokedAt: null }, { set: { rotatedAt } });
    return true;
  });

  /** Exchanges a refresh token for its only successor. @throws INVALID_REFRESH_TOKEN, REFRESH_TOKEN_REUSED */
  return async function refresh(refreshToken: string, { ip }: { ip: string }): Promise<IssuedTokens> {
    const verified = tokens.verifyRefresh(refreshToken);
    const found = verified && !verified.isExpired ? await deps.findValidSession(verified.claims) : null;
    if (!verified || !found) throw authErrors.INVALID_REFRESH_TOKEN();
    const { user } = found;
    const { sid: id, jti } = verified.claims;
    // Before the rotation, so that a failure does not use up the token.
    const claims = deps.claimsOf && (await deps.claimsOf(user, id));
    const presented = sha256(jti);
    const nextId = tokens.nextRefreshId(id, jti);
    const now = clock.now();
    const next = sha256(nextId);
    const change = {
      previousId: presented,
      currentId: next,
      rotatedAt: now,
      ...lastDayBefore(lastUseOf(found.session), now),
      expiresAt: tokens.refreshExpiry(found.session),
    };
    const isRotated = await sessions
      .changeOne(
        { id, userId: user.id, currentId: presented, revokedAt: null, expiresAt: { gt: now } },
        { set: change },
      )
      .catch((error: unknown) => {
        rotations.remember(presented, { id, presented, next, rotatedAt: now }, error);
        throw error;
      });
    if (isRotated) rotations.forget(presented);
    else await rotations.settle(presented);
    // Of a session that is not revoked, no other field that the tokens contain ever changes.
    const session = isRotated ? { ...found.session, ...change } : await sessions.findOne({ id });
    if (!session || !isSessionValid(user, session, now)) throw authErrors.INVALID_REFRESH_TOKEN();
    if (isRotated) return tokens.issue(session, nextId, claims);

    // The token was used before. Within the window it returns the same successor; after that it is treated as stolen
    // (RFC 9700 §4.14.2).
    const isPrevious = session.previousId === presented;
    const inWindow = isPrevious && isRecent(session.rotatedAt, { now: clock.now(), within: reuseWindowMs });
    if (inWindow) return tokens.issue(session, nextId, claims);

    await commit([
      sessions.changing({ id, revokedAt: null }, { set: { revokedAt: clock.now() } }),
      await event('session.revoked', { userId: session.userId, scope: 'local', sessionId: id }),
      audit.entry({ event: 'refresh.reused', subject: session.userId, ip }),
    ]);
    throw authErrors.REFRESH_TOKEN_REUSED();
  };
}
