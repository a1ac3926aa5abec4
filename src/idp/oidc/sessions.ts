import { deviceOf } from '../../core/http/circumstances.js';
import { type Cookie, createCookie } from '../../core/http/cookies.js';
import type { Origin } from '../../core/http/scope.js';
import { type Clock, HOUR, isUnexpired } from '../../core/kernel/clock.js';
import { isSecretOf, newId, newToken, type Random, sha256 } from '../../core/kernel/secrets.js';
import type { Directory, Principal } from './directory.js';
import { SESSION, type SessionDocument, type Sessions } from './store.js';

/** A user who is signed in in this browser. */
export interface SignedInUser {
  principal: Principal;
  session: SessionDocument;
}

/** Sessions of users, for single sign-on. Agents have none. */
export interface SessionService {
  /** The user of a session cookie, if the session is valid. Without a cookie, the store is not read. */
  find(token: string | undefined): Promise<SignedInUser | null>;
  /** Starts a session after a successful sign-in, and ends the previous one of the browser. */
  start(
    principal: Principal,
    previous: string | undefined,
    from: Origin,
    amr?: readonly string[],
  ): Promise<{ token: string; session: SessionDocument }>;
  /** The valid sessions of a user, the newest first, up to a hundred. */
  list(principal: Pick<Principal, 'id' | 'epoch'>): Promise<SessionDocument[]>;
  /** Extends a session by an hour when it is used. */
  extend(session: SessionDocument): Promise<void>;
  /** Ends the session with this `sid` of an id_token. Returns whether it existed. */
  end(sid: string): Promise<boolean>;
  /** The same for a session of this user only. */
  endOwn(sub: string, sid: string): Promise<boolean>;
  /** Ends all sessions of the user except this one. */
  endOthers(sub: string, current: string): Promise<void>;
  /** Removes all sessions of a user who is deleted. */
  forget(sub: string): Promise<void>;
}

export interface SessionDependencies {
  sessions: Sessions;
  directory: Pick<Directory, 'findPrincipal'>;
  follower: SessionFollower;
  clock: Clock;
  random: Random;
}

/** Follows sessions, so that applications are told when one ends. */
export interface SessionFollower {
  /** The same user has signed in again in the same browser. */
  continueIn(next: SessionDocument, previous: SessionDocument): Promise<void>;
  /** Runs a change that ends a session. */
  endSession<T>(session: string, change: () => Promise<T>): Promise<T>;
}

const IDLE_LIFETIME_MS = HOUR;
export const MAX_SESSION_LIFETIME_MS = 12 * HOUR;
const MAX_LISTED = 100;

export function createSessionService(deps: SessionDependencies): SessionService {
  const { sessions, directory, follower, clock, random } = deps;

  const expiry = (createdAt: number): number =>
    Math.min(clock.now() + IDLE_LIFETIME_MS, createdAt + MAX_SESSION_LIFETIME_MS);

  const findSession = async (token: string | undefined): Promise<SessionDocument | null> => {
    const id = token === undefined ? undefined : sessionIdOf(token);
    const session = token === undefined || id === undefined ? null : await sessions.findOne({ id });
    return session && isSecretOf(token ?? '', session.tokenHash) ? session : null;
  };

  const end = async (sid: string): Promise<boolean> => {
    if (!isSessionId(sid)) return false;
    return (await follower.endSession(sid, () => sessions.deleteOne({ id: sid }))) !== null;
  };

  return {
    async find(token) {
      const session = await findSession(token);
      if (!session || !isUnexpired(session.expiresAt, { now: clock.now(), life: IDLE_LIFETIME_MS }))
        return null;
      const principal = await directory.findPrincipal(session.sub);
      return principal && principal.epoch === session.epoch ? { principal, session } : null;
    },

    async start({ id: sub, epoch }, previous, from, amr) {
      const now = clock.now();
      const id = newId(SESSION, clock, random);
      const token = newToken(random, id.slice(SESSION.length));
      const session: SessionDocument = {
        id,
        tokenHash: sha256(token),
        sub,
        ...(epoch !== undefined && { epoch }),
        authTime: now,
        ...(amr && { amr: [...amr] }),
        ...deviceOf(from),
        createdAt: now,
        expiresAt: expiry(now),
      };
      const ended = await findSession(previous);
      const endPrevious = () => ended && sessions.deleteOne({ id: ended.id });
      if (ended && ended.sub === sub) {
        await sessions.insert(session);
        await follower.continueIn(session, ended);
        await endPrevious();
      } else {
        await Promise.all([
          sessions.insert(session),
          ended && follower.endSession(ended.id, async () => endPrevious()),
        ]);
      }
      return { token, session };
    },

    async list({ id: sub, epoch }) {
      const { items } = await sessions.page({ where: { sub }, sort: 'id', desc: true, limit: MAX_LISTED });
      const now = clock.now();
      return items.filter(
        (session) =>
          session.epoch === epoch && isUnexpired(session.expiresAt, { now, life: IDLE_LIFETIME_MS }),
      );
    },

    async extend({ id, createdAt }) {
      await sessions.updateOne({ id }, { set: { expiresAt: expiry(createdAt) } });
    },

    end,

    async endOwn(sub, sid) {
      const session = isSessionId(sid) ? await sessions.findOne({ id: sid }) : null;
      return session?.sub === sub && (await end(sid));
    },

    async endOthers(sub, current) {
      for (;;) {
        const { items } = await sessions.page({ where: { sub }, sort: 'id', limit: MAX_LISTED });
        const others = items.filter(({ id }) => id !== current);
        if (others.length === 0) return;
        await Promise.all(others.map(({ id }) => end(id)));
      }
    },

    async forget(sub) {
      await sessions.deleteMany({ sub });
    },
  };
}

/** The token contains the id of its session, to find it without an index. */
function sessionIdOf(token: string): string | undefined {
  const name = /^([0-9a-f]{32})[\w-]{43}$/.exec(token)?.[1];
  return name === undefined ? undefined : SESSION + name;
}

const isSessionId = (text: string): boolean => /^sid_[0-9a-f]{32}$/.test(text);

export interface Cookies {
  /** Binds a form to a browser. */
  form: Cookie;
  /** The token of the session. */
  session: Cookie;
}

export const createCookies = (issuer: () => string): Cookies => ({
  form: createCookie('idp', issuer),
  session: createCookie('idp-session', issuer),
});

/** The path of the issuer, which includes what a proxy adds. */
export function mountPath(issuer: string): string {
  return new URL(issuer).pathname.replace(/\/$/, '');
}
