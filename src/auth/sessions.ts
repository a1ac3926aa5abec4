import type { Session, User } from '../http/schemas.js';
import type { Origin } from '../http/scope.js';
import { type Clock, isRecent } from '../kernel/clock.js';
import { httpErrors } from '../kernel/errors.js';
import { newId, type Random, sha256 } from '../kernel/secrets.js';
import type { Audit } from '../ops/audit.js';
import type { Emit } from '../ops/events.js';
import { authErrors } from './errors.js';
import type { AuthEvents } from './events.js';
import {
  isClosed,
  type SessionDocument,
  type Sessions,
  sessionView,
  type UserDocument,
  type Users,
  type ViewOf,
} from './store.js';
import type { Claims, SessionTokens } from './tokens.js';

/** Sessions: how they begin, go on and end. */

/** Who makes a request. */
export interface Identity {
  user: User;
  session: Session;
}

export interface Tokens {
  accessToken: string;
  refreshToken: string;
  expiresIn: number;
}

export interface SessionService {
  /** Begins a session, which is dead for as long as its user is not stored. */
  begin(user: UserDocument): Promise<Tokens & { user: User }>;
  /** Exchanges a refresh token for its one successor. @throws INVALID_REFRESH_TOKEN, REFRESH_TOKEN_REUSED */
  refresh(refreshToken: string, origin: Origin): Promise<Tokens>;
  /** Who sends this Authorization header, as the store has it now. @throws UNAUTHENTICATED, TOKEN_EXPIRED */
  authenticate(authorization: string | undefined): Promise<Identity>;
  /**
   * Ends the session of each token, its user's others or all of them; nothing when it has ended already. People come
   * back after a token has expired: it still ends its own session, and nothing more.
   * @throws UNAUTHENTICATED, TOKEN_EXPIRED
   */
  logout(
    input: { authorization?: string; refreshToken?: string; scope: LogoutScope },
    origin: Pick<Origin, 'ip'>,
  ): Promise<void>;
}

export type LogoutScope = 'local' | 'others' | 'global';

export interface SessionDependencies {
  users: Users;
  sessions: Sessions;
  tokens: SessionTokens;
  audit: Audit;
  emit: Emit<AuthEvents>;
  viewOf: ViewOf;
  clock: Clock;
  random: Random;
  /** Seconds. */
  refreshTtl: number;
  sessionMaxAge: number;
}

const bearer = (error?: string) => ({
  'www-authenticate': `Bearer realm="api"${error ? `, error="${error}"` : ''}`,
});

/** How long the token before the current one still gets the same successor, in milliseconds: two tabs, a lost answer. */
const REUSE_WINDOW = 30_000;

export function createSessionService(deps: SessionDependencies): SessionService {
  const { users, sessions, tokens, audit, emit, clock, random } = deps;

  const expiry = (createdAt: number): number =>
    Math.min(clock.now() + deps.refreshTtl * 1000, createdAt + deps.sessionMaxAge * 1000);

  const issue = (session: SessionDocument, refreshId: string): Tokens => ({
    accessToken: tokens.access(session),
    refreshToken: tokens.refresh(session, refreshId),
    expiresIn: tokens.accessTtl,
  });

  /** The session and its user, if both are alive now. */
  const findAlive = async (
    claims: Claims,
  ): Promise<{ user: UserDocument; session: SessionDocument } | null> => {
    const [user, session] = await Promise.all([
      users.findOne({ id: claims.sub }),
      sessions.findOne({ id: claims.sid }),
    ]);
    return user && session && isAlive(user, session, clock.now()) ? { user, session } : null;
  };

  /** One write ends them; what it spares is named in the same write. Whether it did. */
  const end = async (
    { id, sessionEpoch }: UserDocument,
    session: SessionDocument,
    scope: LogoutScope,
  ): Promise<boolean> => {
    if (scope === 'local') {
      const open = { id: session.id, revokedAt: null };
      return (await sessions.updateOne(open, { set: { revokedAt: clock.now() } })) !== null;
    }
    const inc = { sessionEpoch: 1 };
    const ended =
      scope === 'global'
        ? await users.updateOne({ id }, { inc, unset: ['keptSession'] })
        : await users.updateOne({ id, sessionEpoch }, { inc, set: { keptSession: session.id } });
    return ended !== null;
  };

  /** What logout does for one token; nothing where its session has ended already. */
  const endFor = async (claims: Claims, scope: LogoutScope, ip: string): Promise<void> => {
    const alive = await findAlive(claims);
    if (!alive) return;
    const { user, session } = alive;
    const isEnded = await end(user, session, scope);
    // Meanwhile another epoch has begun, perhaps without this session: what was to be spared may be dead.
    if (!isEnded && scope === 'others') return endFor(claims, scope, ip);
    await audit.record({ event: 'logout', subject: user.id, ip, detail: scope });
    const sessionId = scope === 'global' ? {} : { sessionId: session.id };
    if (isEnded) emit('session.revoked', { userId: user.id, scope, ...sessionId });
  };

  return {
    async begin(user) {
      const now = clock.now();
      const refreshId = tokens.firstId();
      const session: SessionDocument = {
        id: newId('ses_', clock, random),
        userId: user.id,
        epoch: user.sessionEpoch,
        currentId: sha256(refreshId),
        rotatedAt: now,
        createdAt: now,
        expiresAt: expiry(now),
      };
      await sessions.insert(session);
      return { user: await deps.viewOf(user), ...issue(session, refreshId) };
    },

    async refresh(refreshToken, { ip }) {
      const verdict = tokens.verifyRefresh(refreshToken);
      const user = verdict && !verdict.isExpired ? await users.findOne({ id: verdict.claims.sub }) : null;
      if (!verdict || !user || isClosed(user)) throw authErrors.INVALID_REFRESH_TOKEN();
      const { sid: id, jti } = verdict.claims;
      const presented = sha256(jti);
      const nextId = tokens.successorOf(id, jti);
      const now = clock.now();
      // The token says when the session began, so that one that goes on is read and written in one step. What has ended
      // with its epoch is rotated like any other and then refused: it stays dead.
      const rotated = await sessions.updateOne(
        { id, userId: user.id, currentId: presented, revokedAt: null, expiresAt: { gt: now } },
        {
          set: {
            previousId: presented,
            currentId: sha256(nextId),
            rotatedAt: now,
            expiresAt: expiry(verdict.beganAt),
          },
        },
      );
      const session = rotated ?? (await sessions.findOne({ id }));
      if (!session || !isAlive(user, session, now)) throw authErrors.INVALID_REFRESH_TOKEN();
      if (rotated) return issue(rotated, nextId);

      // Somebody was first. Inside the window everybody gets what that one got; later it is a stolen token.
      const isPrevious = session.previousId === presented;
      const inWindow = isPrevious && isRecent(session.rotatedAt, { now: clock.now(), within: REUSE_WINDOW });
      if (inWindow && session.currentId === sha256(nextId)) return issue(session, nextId);
      // Derived otherwise, as another version of ours may do. Nobody stole anything.
      if (inWindow) throw authErrors.INVALID_REFRESH_TOKEN();

      const ended = await sessions.updateOne({ id, revokedAt: null }, { set: { revokedAt: clock.now() } });
      if (ended) {
        emit('session.revoked', { userId: session.userId, scope: 'local', sessionId: id });
        await audit.record({ event: 'refresh.reused', subject: session.userId, ip });
      }
      throw authErrors.REFRESH_TOKEN_REUSED();
    },

    async authenticate(authorization) {
      if (authorization === undefined) throw httpErrors.UNAUTHENTICATED({ headers: bearer() });
      const verdict = tokens.verifyBearer(authorization);
      if (!verdict) throw httpErrors.UNAUTHENTICATED({ headers: bearer('invalid_token') });
      if (verdict.isExpired) throw authErrors.TOKEN_EXPIRED({ headers: bearer('invalid_token') });
      const alive = await findAlive(verdict.claims);
      if (!alive) throw httpErrors.UNAUTHENTICATED({ headers: bearer('invalid_token') });
      return { user: await deps.viewOf(alive.user), session: sessionView(alive.session) };
    },

    async logout({ authorization, refreshToken, scope }, { ip }) {
      const [first, second] = [
        authorization === undefined ? null : tokens.verifyBearer(authorization),
        refreshToken === undefined ? null : tokens.verifyRefresh(refreshToken),
      ]
        .filter((verdict) => verdict !== null)
        .sort((one, other) => Number(one.isExpired) - Number(other.isExpired));
      if (!first) {
        const isAnonymous = (authorization ?? refreshToken) === undefined;
        throw httpErrors.UNAUTHENTICATED({ headers: isAnonymous ? bearer() : bearer('invalid_token') });
      }
      if (first.isExpired && scope !== 'local') {
        throw authErrors.TOKEN_EXPIRED({ headers: bearer('invalid_token') });
      }
      await endFor(first.claims, scope, ip);
      if (!second || second.claims.sid === first.claims.sid) return;
      // Of another session, perhaps of another user: each token does what it would do alone.
      if (!second.isExpired) await endFor(second.claims, scope, ip);
      else if (scope !== 'others') await endFor(second.claims, 'local', ip);
    },
  };
}

/** Whether a session may be used. One of an ended epoch may not, unless the user's document spares it. */
export function isAlive(user: UserDocument, session: SessionDocument, now: number): boolean {
  return (
    session.userId === user.id &&
    session.revokedAt === undefined &&
    session.expiresAt > now &&
    !isClosed(user) &&
    (session.epoch === user.sessionEpoch || session.id === user.keptSession)
  );
}
