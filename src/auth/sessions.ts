import { deviceOf } from '../http/circumstances.js';
import type { Session, User } from '../http/schemas.js';
import type { Origin } from '../http/scope.js';
import { type Clock, isRecent, SECOND } from '../kernel/clock.js';
import { AppError, httpErrors } from '../kernel/errors.js';
import { newId, type Random, sha256 } from '../kernel/secrets.js';
import type { Audit } from '../ops/audit.js';
import type { Emit } from '../ops/events.js';
import type { UnknownWritesRegistry } from '../ops/unknown-writes.js';
import { authErrors } from './errors.js';
import type { AuthEvents } from './events.js';
import {
  isDisabled,
  type PresentUser,
  type SessionDocument,
  type Sessions,
  toSessionView,
  type UserDocument,
  type Users,
} from './store.js';
import type { SessionClaims, SessionTokens } from './tokens.js';

/** The user and session of an authenticated request. */
export interface Identity {
  user: User;
  session: Session;
}

export interface IssuedTokens {
  accessToken: string;
  refreshToken: string;
  expiresIn: number;
}

export interface SessionService {
  /** Starts a session, which is invalid until its user is stored. @param amr how the user signed in; default: by password */
  startSession(
    user: UserDocument,
    origin: SessionOrigin,
    amr?: readonly string[],
  ): Promise<IssuedTokens & { user: User }>;
  /** Exchanges a refresh token for its only successor. @throws INVALID_REFRESH_TOKEN, REFRESH_TOKEN_REUSED */
  refresh(refreshToken: string, origin: Origin): Promise<IssuedTokens>;
  /** Returns the user and session of an Authorization header, as stored now. @throws UNAUTHENTICATED, TOKEN_EXPIRED */
  authenticate(authorization: string | undefined): Promise<Identity>;
  /**
   * Ends the session of each token, the other sessions of its user, or all of them. Does nothing for a session that has
   * ended already. An expired token still ends its own session, but no others.
   * @throws UNAUTHENTICATED, TOKEN_EXPIRED
   */
  logout(
    input: { authorization?: string; refreshToken?: string; scope: LogoutScope },
    origin: Pick<Origin, 'ip'>,
  ): Promise<void>;
  /**
   * The user and session of a refresh token in a cookie, for a page. A token that is older than an access token is exchanged,
   * as an application does it. Null if the session has ended.
   */
  resume(refreshToken: string, origin: Origin): Promise<{ identity: Identity; refreshToken: string } | null>;
  /** Ends the other sessions of the user. */
  endOthers(session: { userId: string; id: string }, origin: Pick<Origin, 'ip'>): Promise<void>;
  /** Ends the session of a refresh token, if there is one. */
  endSession(refreshToken: string, origin: Pick<Origin, 'ip'>): Promise<void>;
}

/** From where a user signs in. */
export type SessionOrigin = Pick<Origin, 'ip' | 'browser' | 'system'>;

export type LogoutScope = 'local' | 'others' | 'global';

export interface SessionDependencies {
  users: Users;
  sessions: Sessions;
  tokens: SessionTokens;
  audit: Audit;
  emit: Emit<AuthEvents>;
  presentUser: PresentUser;
  unknownWrites: Pick<UnknownWritesRegistry, 'track'>;
  clock: Clock;
  random: Random;
  /** Seconds. */
  refreshTtl: number;
  /** Seconds. */
  sessionMaxAge: number;
}

const bearer = (error?: string) => ({
  'www-authenticate': `Bearer realm="api"${error ? `, error="${error}"` : ''}`,
});

/** A rotation of which the response of the store was lost. */
interface Rotation {
  id: string;
  presented: string;
  next: string;
  rotatedAt: number;
}

/** How long the previous refresh token still returns the same successor, for parallel requests and lost responses. */
const REUSE_WINDOW_MS = 30_000;

export function createSessionService(deps: SessionDependencies): SessionService {
  const { users, sessions, tokens, audit, emit, clock, random } = deps;

  const expiry = (createdAt: number): number =>
    Math.min(clock.now() + deps.refreshTtl * 1000, createdAt + deps.sessionMaxAge * 1000);

  const issueTokens = (session: SessionDocument, refreshId: string): IssuedTokens => ({
    accessToken: tokens.signAccess(session),
    refreshToken: tokens.signRefresh(session, refreshId),
    expiresIn: tokens.accessTtl,
  });

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

  /** Returns the session and its user if the session is valid now. */
  const findValidSession = async (
    claims: Pick<SessionClaims, 'sub' | 'sid'>,
  ): Promise<{ user: UserDocument; session: SessionDocument } | null> => {
    const [user, session] = await Promise.all([
      users.findOne({ id: claims.sub }),
      sessions.findOne({ id: claims.sid }),
    ]);
    return user && session && isSessionValid(user, session, clock.now()) ? { user, session } : null;
  };

  /** Ends the sessions of a scope in one write. Returns `false` when a concurrent write came first. */
  const endSessions = async (
    { id, sessionEpoch }: UserDocument,
    session: SessionDocument,
    scope: LogoutScope,
  ): Promise<boolean> => {
    if (scope === 'local') {
      const notRevoked = { id: session.id, revokedAt: null };
      return sessions.changeOne(notRevoked, { set: { revokedAt: clock.now() } });
    }
    const inc = { sessionEpoch: 1 };
    return scope === 'global'
      ? users.changeOne({ id }, { inc, unset: ['keptSession'] })
      : users.changeOne({ id, sessionEpoch }, { inc, set: { keptSession: session.id } });
  };

  /** Logs out with the claims of one token. Does nothing when its session has ended already. */
  const logoutWith = async (
    claims: Pick<SessionClaims, 'sub' | 'sid'>,
    scope: LogoutScope,
    ip: string,
  ): Promise<void> => {
    const found = await findValidSession(claims);
    if (!found) return;
    const { user, session } = found;
    const isEnded = await endSessions(user, session, scope);
    // A concurrent logout may have started a new epoch and ended this session, so its validity is checked again.
    if (!isEnded && scope === 'others') return logoutWith(claims, scope, ip);
    await audit.record({ event: 'logout', subject: user.id, ip, detail: scope });
    const sessionId = scope === 'global' ? {} : { sessionId: session.id };
    if (isEnded) emit('session.revoked', { userId: user.id, scope, ...sessionId });
  };

  const refresh: SessionService['refresh'] = async (refreshToken, { ip }) => {
    const verified = tokens.verifyRefresh(refreshToken);
    const found = verified && !verified.isExpired ? await findValidSession(verified.claims) : null;
    if (!verified || !found) throw authErrors.INVALID_REFRESH_TOKEN();
    const { user } = found;
    const { sid: id, jti } = verified.claims;
    const presented = sha256(jti);
    const nextId = tokens.nextRefreshId(id, jti);
    const now = clock.now();
    const next = sha256(nextId);
    const change = {
      previousId: presented,
      currentId: next,
      rotatedAt: now,
      expiresAt: expiry(found.session.createdAt),
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
    if (isRotated) return issueTokens(session, nextId);

    // The token was used before. Within the window it returns the same successor; after that it is treated as stolen
    // (RFC 9700 §4.14.2).
    const isPrevious = session.previousId === presented;
    const inWindow = isPrevious && isRecent(session.rotatedAt, { now: clock.now(), within: REUSE_WINDOW_MS });
    if (inWindow && session.currentId === next) return issueTokens(session, nextId);
    // Another version of this package may derive successors differently, so this is not treated as a replay.
    if (inWindow) throw authErrors.INVALID_REFRESH_TOKEN();

    const revoked = await sessions.changeOne({ id, revokedAt: null }, { set: { revokedAt: clock.now() } });
    if (revoked) {
      emit('session.revoked', { userId: session.userId, scope: 'local', sessionId: id });
      await audit.record({ event: 'refresh.reused', subject: session.userId, ip });
    }
    throw authErrors.REFRESH_TOKEN_REUSED();
  };

  /** Null if the token is used or its session has ended. */
  const refreshOrEnd = (refreshToken: string, origin: Origin): Promise<string | null> =>
    refresh(refreshToken, origin).then(
      (issued) => issued.refreshToken,
      (error: unknown) => {
        if (error instanceof AppError && error.statusCode === 401) return null;
        throw error;
      },
    );

  return {
    async startSession(user, origin, amr) {
      const now = clock.now();
      const refreshId = tokens.newRefreshId();
      const session: SessionDocument = {
        id: newId('ses_', clock, random),
        userId: user.id,
        epoch: user.sessionEpoch,
        currentId: sha256(refreshId),
        rotatedAt: now,
        createdAt: now,
        expiresAt: expiry(now),
        ...(amr && { amr }),
        ...deviceOf(origin),
      };
      await sessions.insert(session);
      return { user: await deps.presentUser(user), ...issueTokens(session, refreshId) };
    },

    refresh,

    async authenticate(authorization) {
      if (authorization === undefined) throw httpErrors.UNAUTHENTICATED({ headers: bearer() });
      const verified = tokens.verifyBearer(authorization);
      if (!verified) throw httpErrors.UNAUTHENTICATED({ headers: bearer('invalid_token') });
      if (verified.isExpired) throw authErrors.TOKEN_EXPIRED({ headers: bearer('invalid_token') });
      const found = await findValidSession(verified.claims);
      if (!found) throw httpErrors.UNAUTHENTICATED({ headers: bearer('invalid_token') });
      return { user: await deps.presentUser(found.user), session: toSessionView(found.session) };
    },

    async resume(refreshToken, origin) {
      const verified = tokens.verifyRefresh(refreshToken);
      const found = verified && !verified.isExpired ? await findValidSession(verified.claims) : null;
      if (!verified || !found) return null;
      const { user, session } = found;
      const within = tokens.accessTtl * SECOND;
      const isFresh =
        session.currentId === sha256(verified.claims.jti) &&
        isRecent(session.rotatedAt, { now: clock.now(), within });
      const next = isFresh ? refreshToken : await refreshOrEnd(refreshToken, origin);
      if (next === null) return null;
      const identity = { user: await deps.presentUser(user), session: toSessionView(session) };
      return { identity, refreshToken: next };
    },

    endOthers: ({ userId: sub, id: sid }, { ip }) => logoutWith({ sub, sid }, 'others', ip),

    async endSession(refreshToken, { ip }) {
      const verified = tokens.verifyRefresh(refreshToken);
      if (verified) await logoutWith(verified.claims, 'local', ip);
    },

    async logout({ authorization, refreshToken, scope }, { ip }) {
      const [first, second] = [
        authorization === undefined ? null : tokens.verifyBearer(authorization),
        refreshToken === undefined ? null : tokens.verifyRefresh(refreshToken),
      ]
        .filter((token) => token !== null)
        .sort((one, other) => Number(one.isExpired) - Number(other.isExpired));
      if (!first) {
        const isAnonymous = (authorization ?? refreshToken) === undefined;
        throw httpErrors.UNAUTHENTICATED({ headers: isAnonymous ? bearer() : bearer('invalid_token') });
      }
      if (first.isExpired && scope !== 'local') {
        throw authErrors.TOKEN_EXPIRED({ headers: bearer('invalid_token') });
      }
      await logoutWith(first.claims, scope, ip);
      if (!second || second.claims.sid === first.claims.sid) return;
      // The second token may belong to another session or user and is handled independently.
      if (!second.isExpired) await logoutWith(second.claims, scope, ip);
      else if (scope !== 'others') await logoutWith(second.claims, 'local', ip);
    },
  };
}

/** Whether a session may be used. Sessions of an earlier epoch are invalid, except `keptSession`. */
export function isSessionValid(user: UserDocument, session: SessionDocument, now: number): boolean {
  return (
    session.userId === user.id &&
    session.revokedAt === undefined &&
    session.expiresAt > now &&
    !isDisabled(user) &&
    (session.epoch === user.sessionEpoch || session.id === user.keptSession)
  );
}
