import type { Identity } from '../../../core/http/identity.js';
import { deviceOf, type SessionSource } from '../../../core/http/request-details.js';
import type { RequestSource } from '../../../core/http/routes.js';
import type { User } from '../../../core/http/schemas.js';
import { isRecent, SECOND } from '../../../core/kernel/clock.js';
import { AppError, httpErrors } from '../../../core/kernel/errors.js';
import { newId, sha256 } from '../../../core/kernel/secrets.js';
import type { AuditRecord } from '../../../core/ops/audit.js';
import type { Effect } from '../../../core/ops/commit.js';
import type { Write } from '../../../core/storage/collection.js';
import type { SessionDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import type { TokenSubject } from '../hooks.js';
import {
  isDisabled,
  isSessionValid,
  type SessionDocument,
  toSessionView,
  type UserDocument,
} from '../store.js';
import { hasRole, withRolesOf } from '../users/roles.js';
import { createCookieSessions } from './cookie-sessions.js';
import { createRefresh, type RefreshDependencies } from './refresh.js';
import type { IssuedTokens } from './tokens.js';

export type SessionService = ReturnType<typeof createSessionService>;

/** The claims of a token that identify its session and user. */
type SessionIds = Record<'sub' | 'sid', string>;

export type LogoutScope = 'local' | 'others' | 'global';

const bearer = (error?: string) => ({
  'www-authenticate': `Bearer realm="api"${error ? `, error="${error}"` : ''}`,
});

/** What the audit records of the end of a session of an operator, instead of a logout of the user. */
const endOf = ({ impersonator }: SessionDocument) =>
  impersonator && { event: 'impersonation.ended', by: impersonator.userId, detail: impersonator.reason };

const nullIfUnauthorized = (error: unknown): null => {
  if (error instanceof AppError && error.statusCode === 401) return null;
  throw error;
};

export function createSessionService(deps: SessionDependencies) {
  const { users, sessions, tokens, audit, commit, event, clock, random } = deps;

  /**
   * The user of a session, with the roles that count in it. Null if its operator is suspended, or has lost the role or ended the
   * own sessions. Costs sessions of users nothing.
   */
  const userIn = async (user: UserDocument, { impersonator, impersonatorEpoch }: SessionDocument) => {
    if (!impersonator) return user;
    const { impersonationRoles = [] } = deps;
    const operator = await users.findOne({ id: impersonator.userId });
    const mayContinue =
      operator !== null &&
      !isDisabled(operator) &&
      operator.sessionEpoch === impersonatorEpoch &&
      hasRole(operator, impersonationRoles) &&
      !hasRole(user, impersonationRoles) &&
      user.operatorRole === undefined;
    return mayContinue ? withRolesOf(user, operator) : null;
  };

  /** Returns the session and its user if the session is valid now. */
  const findValidSession = async (
    claims: SessionIds,
  ): Promise<{ user: UserDocument; session: SessionDocument } | null> => {
    const [stored, session] = await Promise.all([
      users.findOne({ id: claims.sub }),
      sessions.findOne({ id: claims.sid }),
    ]);
    if (!stored || !session || !isSessionValid(stored, session, clock.now())) return null;
    if ((await deps.admits?.(stored.id)) === false) return null;
    const user = await userIn(stored, session);
    return user && { user, session };
  };

  const { accessTokenClaims } = deps.hooks ?? {};
  const claimsOf = async (user: UserDocument, sessionId: string, reason: TokenSubject['reason']) =>
    accessTokenClaims?.({ user: deps.presentUser(user), sessionId, reason });

  const continuing: RefreshDependencies = {
    ...deps,
    findValidSession,
    ...(accessTokenClaims && { claimsOf: (user, sessionId) => claimsOf(user, sessionId, 'refresh') }),
  };
  const refresh = createRefresh(continuing);
  const cookieSessions = createCookieSessions(continuing);

  /** The write that ends one, all or all other sessions. */
  const ending = (
    { id, sessionEpoch }: UserDocument,
    session: SessionDocument,
    scope: LogoutScope,
  ): Write => {
    if (scope === 'local')
      return sessions.changing({ id: session.id, revokedAt: null }, { set: { revokedAt: clock.now() } });
    const inc = { sessionEpoch: 1 };
    return scope === 'global'
      ? users.changing({ id }, { inc, unset: ['keptSession'] })
      : users.changing({ id, sessionEpoch }, { inc, set: { keptSession: session.id } });
  };

  /** Logs out with the claims of one token. Does nothing when its session has ended already. */
  const logoutWith = async (claims: SessionIds, scope: LogoutScope, ip: string): Promise<void> => {
    const found = await findValidSession(claims);
    if (!found) return;
    const { user, session } = found;
    if (session.impersonator && scope !== 'local') throw authErrors.IMPERSONATED();
    const sessionId = scope === 'global' ? {} : { sessionId: session.id };
    const { committed } = await commit([
      ending(user, session, scope),
      await event('session.revoked', { userId: user.id, scope, ...sessionId }),
      audit.entry({ event: 'logout', subject: user.id, ip, detail: scope, ...endOf(session) }),
    ]);
    // A concurrent logout may have started a new epoch and ended this session, so its validity is checked again.
    if (!committed && scope === 'others') return logoutWith(claims, scope, ip);
  };

  /** Null if the token is used or its session has ended. */
  const refreshOrEnd = (refreshToken: string, source: RequestSource): Promise<string | null> =>
    refresh(refreshToken, source).then((issued) => issued.refreshToken, nullIfUnauthorized);

  /** Returns the user and session of an Authorization header, as stored now. @throws UNAUTHENTICATED, TOKEN_EXPIRED */
  const authenticate = async (authorization: string | undefined): Promise<Identity> => {
    if (authorization === undefined) throw httpErrors.UNAUTHENTICATED({ headers: bearer() });
    const verified = tokens.verifyBearer(authorization);
    if (!verified) throw httpErrors.UNAUTHENTICATED({ headers: bearer('invalid_token') });
    if (verified.isExpired) throw authErrors.TOKEN_EXPIRED({ headers: bearer('invalid_token') });
    const found = await findValidSession(verified.claims);
    if (!found) throw httpErrors.UNAUTHENTICATED({ headers: bearer('invalid_token') });
    return { user: deps.presentUser(found.user), session: toSessionView(found.session) };
  };

  /** Ends one session; unmet if the user has no such session, or it has ended. */
  const revocation = async (
    userId: string,
    id: string,
    actor: Pick<AuditRecord, 'by' | 'ip' | 'detail'>,
  ): Promise<(Write | Effect)[]> => {
    const now = clock.now();
    return [
      sessions.changing({ id, userId, revokedAt: null, expiresAt: { gt: now } }, { set: { revokedAt: now } }),
      await event('session.revoked', { userId, scope: 'local', sessionId: id }),
      audit.entry({ event: 'session.revoked', subject: userId, ...actor }),
    ];
  };

  return {
    revocation,

    /** Keeps the organization that is active in a session; null for none. */
    async chooseOrganization(id: string, organizationId: string | null): Promise<void> {
      const change =
        organizationId === null ? { unset: ['organizationId'] as const } : { set: { organizationId } };
      await sessions.changeOne({ id }, change);
    },

    /**
     * A session for the caller to store, with its tokens.
     * @param amr how the user signed in; default: by password
     * @param authenticatedAt when; default: now
     * @param operator who acts as the user
     */
    async newSession(
      user: UserDocument,
      source: SessionSource,
      amr?: readonly string[],
      authenticatedAt?: number,
      operator: Pick<SessionDocument, 'impersonator' | 'impersonatorEpoch'> = {},
    ): Promise<{ session: SessionDocument; signedIn: IssuedTokens & { user: User } }> {
      const now = clock.now();
      const refreshId = tokens.newRefreshId();
      const session: SessionDocument = {
        id: newId('ses_', clock, random),
        userId: user.id,
        epoch: user.sessionEpoch,
        currentId: sha256(refreshId),
        rotatedAt: now,
        createdAt: now,
        expiresAt: tokens.refreshExpiry({ createdAt: now, ...operator }),
        ...(authenticatedAt !== undefined && { authenticatedAt: Math.min(authenticatedAt, now) }),
        ...(amr && { amr }),
        ...(operator.impersonator ? operator : deviceOf(source)),
      };
      const claims = accessTokenClaims && (await claimsOf(user, session.id, 'login'));
      const signedIn = { user: deps.presentUser(user), ...tokens.issue(session, refreshId, claims) };
      return { session, signedIn };
    },

    refresh,
    issueForCookie: cookieSessions.issueForCookie,

    authenticate,

    /** The user and session of a request, as stored now; null for a visitor who is not signed in. */
    async readSession(given: { authorization: string | undefined; cookie: string | undefined }) {
      if (given.authorization !== undefined)
        return authenticate(given.authorization).catch(nullIfUnauthorized);
      return given.cookie === undefined ? null : cookieSessions.readCookieSession(given.cookie);
    },

    /**
     * The user and session of a refresh token in a cookie, for a page. A token that is older than an access token is exchanged,
     * as an application does it. Null if the session has ended.
     */
    async resume(
      refreshToken: string,
      source: RequestSource,
    ): Promise<{ identity: Identity; hasPassword: boolean; refreshToken: string } | null> {
      const verified = tokens.verifyRefresh(refreshToken);
      const found = verified && !verified.isExpired ? await findValidSession(verified.claims) : null;
      if (!verified || !found) return null;
      const { user, session } = found;
      const within = tokens.accessTtl * SECOND;
      const isFresh =
        session.currentId === sha256(verified.claims.jti) &&
        isRecent(session.rotatedAt, { now: clock.now(), within });
      const next = isFresh ? refreshToken : await refreshOrEnd(refreshToken, source);
      if (next === null) return null;
      const identity = { user: deps.presentUser(user), session: toSessionView(session) };
      return { identity, hasPassword: user.passwordHash !== undefined, refreshToken: next };
    },

    /** Ends one session. @throws NOT_FOUND if the user has no such session, or it has ended */
    async revokeSession(userId: string, id: string, actor: Pick<AuditRecord, 'by' | 'ip' | 'detail'>) {
      if (!(await commit(await revocation(userId, id, actor))).committed) throw httpErrors.NOT_FOUND();
    },

    /** Ends the other sessions of the user. */
    endOthers: ({ userId: sub, id: sid }: { userId: string; id: string }, { ip }: RequestSource) =>
      logoutWith({ sub, sid }, 'others', ip),

    /** Ends the session of a refresh token, if there is one. */
    async endSession(refreshToken: string, { ip }: { ip: string }) {
      const verified = tokens.verifyRefresh(refreshToken);
      if (verified) await logoutWith(verified.claims, 'local', ip);
    },

    /**
     * Ends the session of each token, the other sessions of its user, or all of them. Does nothing for a session that has
     * ended already. An expired token still ends its own session, but no others.
     * @throws UNAUTHENTICATED, TOKEN_EXPIRED
     */
    async logout(
      {
        authorization,
        refreshToken,
        scope,
      }: { authorization?: string; refreshToken?: string; scope: LogoutScope },
      { ip }: { ip: string },
    ) {
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
