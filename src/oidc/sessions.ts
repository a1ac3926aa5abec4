import { type Clock, stillHolds } from '../kernel/clock.js';
import { isSecretOf, newId, newToken, type Random, sha256 } from '../kernel/secrets.js';
import type { Directory, Principal } from './model.js';
import { SESSION, type SessionDocument, type Sessions } from './store.js';

/** Somebody who has signed in before, in this browser. */
export interface Visitor {
  principal: Principal;
  session: SessionDocument;
}

/** What spares people the password at the next application. Agents have none. */
export interface SessionService {
  /** The session of a cookie, if it is alive. Without a cookie the store is not asked. */
  find(token: string | undefined): Promise<Visitor | null>;
  /** A new session of somebody who has just proved who it is; what the browser had before ends. */
  begin(
    principal: Principal,
    before: string | undefined,
  ): Promise<{ token: string; session: SessionDocument }>;
  /** It was used: another hour. */
  prolong(session: SessionDocument): Promise<void>;
  /** By its identifier, the `sid` of an id_token. Answers whether there was one. */
  end(sid: string): Promise<boolean>;
}

export interface SessionDependencies {
  sessions: Sessions;
  directory: Pick<Directory, 'findPrincipal'>;
  clock: Clock;
  random: Random;
}

const IDLE = 3600_000;
const ABSOLUTE = 12 * 3600_000;

export function createSessionService(deps: SessionDependencies): SessionService {
  const { sessions, directory, clock, random } = deps;

  const expiry = (createdAt: number): number => Math.min(clock.now() + IDLE, createdAt + ABSOLUTE);

  const findSession = async (token: string | undefined): Promise<SessionDocument | null> => {
    const id = token === undefined ? undefined : sessionIdOf(token);
    const session = token === undefined || id === undefined ? null : await sessions.findOne({ id });
    return session && isSecretOf(token ?? '', session.tokenHash) ? session : null;
  };

  return {
    async find(token) {
      const session = await findSession(token);
      if (!session || !stillHolds(session.expiresAt, { now: clock.now(), life: IDLE })) return null;
      const principal = await directory.findPrincipal(session.sub);
      return principal && principal.epoch === session.epoch ? { principal, session } : null;
    },

    async begin({ id: sub, epoch }, before) {
      const now = clock.now();
      const id = newId(SESSION, clock, random);
      const token = newToken(random, id.slice(SESSION.length));
      const session: SessionDocument = {
        id,
        tokenHash: sha256(token),
        sub,
        ...(epoch !== undefined && { epoch }),
        authTime: now,
        createdAt: now,
        expiresAt: expiry(now),
      };
      const ended = await findSession(before);
      await Promise.all([sessions.insert(session), ended && sessions.deleteOne({ id: ended.id })]);
      return { token, session };
    },

    async prolong({ id, createdAt }) {
      await sessions.updateOne({ id }, { set: { expiresAt: expiry(createdAt) } });
    },

    async end(sid) {
      return isSessionId(sid) && (await sessions.deleteOne({ id: sid })) !== null;
    },
  };
}

/** It names its session, which is so found by its own key. */
function sessionIdOf(token: string): string | undefined {
  const name = /^([0-9a-f]{32})[\w-]{43}$/.exec(token)?.[1];
  return name === undefined ? undefined : SESSION + name;
}

const isSessionId = (text: string): boolean => /^sid_[0-9a-f]{32}$/.test(text);
