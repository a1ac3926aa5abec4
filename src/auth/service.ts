import type { Clock } from '../kernel/clock.js';
import { defineErrors, httpErrors } from '../kernel/errors.js';
import type { Origin } from '../kernel/http.js';
import type { Passwords } from '../kernel/passwords.js';
import type { Session, User } from '../kernel/schemas.js';
import { newId, type Random, sha256 } from '../kernel/secrets.js';
import type { Audit } from '../ops/audit.js';
import { UniqueViolation } from '../storage/collection.js';
import {
  type SessionDocument,
  type Sessions,
  sessionView,
  type UserDocument,
  type Users,
  userView,
} from './store.js';
import type { Claims, SessionTokens, Verdict } from './tokens.js';

const bearer = (error?: string) => ({
  'www-authenticate': `Bearer realm="api"${error ? `, error="${error}"` : ''}`,
});

export const authErrors = defineErrors({
  TOKEN_EXPIRED: [401, 'The access token has expired. Refresh it.'],
  INVALID_CREDENTIALS: [401, 'The e-mail address or the password is wrong.'],
  INVALID_REFRESH_TOKEN: [401, 'The refresh token is not valid. Sign in again.'],
  REFRESH_TOKEN_REUSED: [401, 'The refresh token was used before, so its session has ended. Sign in again.'],
  REGISTRATION_DISABLED: [403, 'New accounts cannot be made at the moment.'],
  ACCOUNT_SUSPENDED: [403, 'This account is suspended.'],
  EMAIL_TAKEN: [409, 'An account with this e-mail address exists already.'],
});

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

export interface AuthService {
  /** @throws REGISTRATION_DISABLED, EMAIL_TAKEN, OVERLOADED, VALIDATION_ERROR for the password's length */
  register(
    input: { email: string; password: string; name?: string },
    origin: Origin,
  ): Promise<Tokens & { user: User }>;
  /** @throws INVALID_CREDENTIALS, ACCOUNT_SUSPENDED, OVERLOADED */
  login(input: { email: string; password: string }, origin: Origin): Promise<Tokens & { user: User }>;
  /** Exchanges a refresh token for its one successor. @throws INVALID_REFRESH_TOKEN, REFRESH_TOKEN_REUSED */
  refresh(refreshToken: string, origin: Origin): Promise<Tokens>;
  /** Who sends this Authorization header, as the store has it now. @throws UNAUTHENTICATED, TOKEN_EXPIRED */
  authenticate(authorization: string | undefined): Promise<Identity>;
  /** Ends the session of a token, the user's others or all of them; nothing when it has ended already. */
  logout(
    input: { authorization?: string; refreshToken?: string; scope: LogoutScope },
    origin: Origin,
  ): Promise<void>;
}

export type LogoutScope = 'local' | 'others' | 'global';

export interface AuthDependencies {
  users: Users;
  sessions: Sessions;
  tokens: SessionTokens;
  passwords: Passwords;
  audit: Audit;
  clock: Clock;
  random: Random;
  /** Whether the operator lets new accounts be made. */
  registrationAllowed(): Promise<boolean>;
  refreshTtl: number;
  sessionMaxAge: number;
}

/** How long the token before the current one still gets the same successor, in milliseconds: two tabs, a lost answer. */
const REUSE_WINDOW = 30_000;

export function createAuth(deps: AuthDependencies): AuthService {
  const { users, sessions, tokens, passwords, audit, clock, random } = deps;

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

  const beginSession = async (user: UserDocument, event: string, { ip }: Origin) => {
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
    // Both writes share one commit.
    await Promise.all([sessions.insert(session), audit.record({ event, subject: user.id, ip })]);
    return { user: userView(user), ...issue(session, refreshId) };
  };

  return {
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
      return beginSession(user, 'user.registered', origin);
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
      return beginSession(user, 'login.succeeded', origin);
    },

    async refresh(refreshToken, { ip }) {
      const { claims } = tokens.verifyRefresh(refreshToken) as { claims?: Claims };
      const alive = claims && (await findAlive(claims));
      if (!alive) throw authErrors.INVALID_REFRESH_TOKEN();
      const { id, createdAt } = alive.session;
      const presented = sha256(claims.jti);
      const successors = tokens.successorsOf(id, claims.jti);
      const [nextId] = successors;
      const rotated = await sessions.updateOne(
        { id, currentId: presented, revokedAt: null },
        {
          set: {
            previousId: presented,
            currentId: sha256(nextId),
            rotatedAt: clock.now(),
            expiresAt: expiry(createdAt),
          },
        },
      );
      if (rotated) return issue(rotated, nextId);

      // Somebody was first. Inside the window everybody gets what that one got; later it is a stolen token.
      const session = await sessions.findOne({ id, revokedAt: null });
      if (!session) throw authErrors.INVALID_REFRESH_TOKEN();
      const inWindow = session.previousId === presented && clock.now() - session.rotatedAt <= REUSE_WINDOW;
      const same = successors.find((successor) => sha256(successor) === session.currentId);
      if (inWindow && same) return issue(session, same);
      await sessions.updateOne({ id, revokedAt: null }, { set: { revokedAt: clock.now() } });
      await audit.record({ event: 'refresh.reused', subject: session.userId, ip });
      throw authErrors.REFRESH_TOKEN_REUSED();
    },

    async authenticate(authorization) {
      if (authorization === undefined) throw httpErrors.UNAUTHENTICATED({ headers: bearer() });
      const verdict = verdictOn(authorization, tokens);
      if ('failure' in verdict) {
        const refuse = verdict.failure === 'expired' ? authErrors.TOKEN_EXPIRED : httpErrors.UNAUTHENTICATED;
        throw refuse({ headers: bearer('invalid_token') });
      }
      const alive = await findAlive(verdict.claims);
      if (!alive) throw httpErrors.UNAUTHENTICATED({ headers: bearer('invalid_token') });
      return { user: userView(alive.user), session: sessionView(alive.session) };
    },

    async logout({ authorization, refreshToken, scope }, { ip }) {
      const verdict = authorization
        ? verdictOn(authorization, tokens)
        : refreshToken
          ? tokens.verifyRefresh(refreshToken)
          : null;
      if (!verdict) throw httpErrors.UNAUTHENTICATED({ headers: bearer() });
      if ('failure' in verdict) throw httpErrors.UNAUTHENTICATED({ headers: bearer('invalid_token') });
      const alive = await findAlive(verdict.claims);
      if (!alive) return;
      const { user, session } = alive;
      if (scope === 'local') {
        await sessions.updateOne({ id: session.id, revokedAt: null }, { set: { revokedAt: clock.now() } });
      } else {
        // One write ends them all; what it spares is named in the same write.
        const kept =
          scope === 'others' ? { set: { keptSession: session.id } } : { unset: ['keptSession' as const] };
        await users.updateOne({ id: user.id }, { inc: { sessionEpoch: 1 }, ...kept });
      }
      await audit.record({ event: 'logout', subject: user.id, ip, detail: scope });
    },
  };
}

function isAlive(user: UserDocument, session: SessionDocument, now: number): boolean {
  return (
    session.userId === user.id &&
    session.revokedAt === undefined &&
    session.expiresAt > now &&
    user.suspendedAt === undefined &&
    (session.epoch === user.sessionEpoch || session.id === user.keptSession)
  );
}

/** The access token of an Authorization header (RFC 6750 §2.1; the scheme's case does not matter). */
function verdictOn(authorization: string, tokens: SessionTokens): Verdict {
  const token = /^bearer +([\w.~+/-]+=*) *$/i.exec(authorization)?.[1];
  return token ? tokens.verifyAccess(token) : { failure: 'invalid' };
}
