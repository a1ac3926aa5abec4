import { type Cookie, createCookie } from '../../core/http/cookies.js';
import { deviceOf } from '../../core/http/request-details.js';
import type { RequestSource } from '../../core/http/routes.js';
import { HOUR, isUnexpired } from '../../core/kernel/clock.js';
import { isSecretOf, newId, newToken, sha256 } from '../../core/kernel/secrets.js';
import { decideAndCommit, type Effect } from '../../core/ops/commit.js';
import type { Write } from '../../core/storage/collection.js';
import type { Principal } from './directory.js';
import type { OidcShared } from './shared.js';
import { SESSION, type SessionDocument } from './store.js';

/** A user who is signed in in this browser. */
export interface SignedInUser {
  principal: Principal;
  session: SessionDocument;
}

/** Sessions of users, for single sign-on. Agents have none. */
export type SessionService = ReturnType<typeof createSessionService>;

const IDLE_LIFETIME_MS = HOUR;
export const MAX_SESSION_LIFETIME_MS = 12 * HOUR;
const MAX_LISTED = 100;

/** Sessions that end in one commit. */
const MAX_ENDED = 10;

export function createSessionService(shared: OidcShared) {
  const { sessionDocuments, directory, endSession, continueSession, commit, clock, random } = shared;

  const expiry = (createdAt: number): number =>
    Math.min(clock.now() + IDLE_LIFETIME_MS, createdAt + MAX_SESSION_LIFETIME_MS);

  const findSession = async (token: string | undefined): Promise<SessionDocument | null> => {
    const id = token === undefined ? undefined : sessionIdOf(token);
    const session = token === undefined || id === undefined ? null : await sessionDocuments.findOne({ id });
    return session && isSecretOf(token ?? '', session.tokenHash) ? session : null;
  };

  /** Ends the session with this `sid` of an id_token. Returns whether it existed. */
  const end = async (sid: string, record: Effect): Promise<boolean> =>
    isSessionId(sid) &&
    (await commit([sessionDocuments.deleting({ id: sid }), await endSession(sid), record])).committed;

  return {
    /** The user of a session cookie, if the session is valid. Without a cookie, the store is not read. */
    async find(token: string | undefined): Promise<SignedInUser | null> {
      const session = await findSession(token);
      if (!session || !isUnexpired(session.expiresAt, { now: clock.now(), life: IDLE_LIFETIME_MS }))
        return null;
      const principal = await directory.findPrincipal(session.sub);
      return principal && principal.epoch === session.epoch ? { principal, session } : null;
    },

    /**
     * Starts a session after a successful sign-in, and ends the previous one of the browser.
     * @param record of the sign-in
     */
    async start(
      { id: sub, epoch }: Principal,
      previous: string | undefined,
      source: RequestSource,
      { amr, record }: { amr?: readonly string[] | undefined; record?: Effect | undefined },
    ): Promise<{ token: string; session: SessionDocument }> {
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
        ...deviceOf(source),
        createdAt: now,
        expiresAt: expiry(now),
      };
      // The same user continues in the new session.
      const leave = (left: SessionDocument) =>
        left.sub === sub ? continueSession(left.id, id) : endSession(left.id);
      return decideAndCommit(commit, async () => {
        const left = await findSession(previous);
        const parts = [
          sessionDocuments.inserting(session),
          ...(left ? [sessionDocuments.deleting({ id: left.id }), await leave(left)] : []),
          record,
        ];
        return { parts, result: { token, session } };
      });
    },

    /** The valid sessions of a user, the newest first, up to a hundred. */
    async list({ id: sub, epoch }: Pick<Principal, 'id' | 'epoch'>): Promise<SessionDocument[]> {
      const { items } = await sessionDocuments.page({
        where: { sub },
        sort: 'id',
        desc: true,
        limit: MAX_LISTED,
      });
      const now = clock.now();
      return items.filter(
        (session) =>
          session.epoch === epoch && isUnexpired(session.expiresAt, { now, life: IDLE_LIFETIME_MS }),
      );
    },

    /** Extends a session by an hour when it is used, for the commit of its use: there is none once it has ended. */
    extending: ({ id, createdAt }: SessionDocument): Write =>
      sessionDocuments.changing({ id }, { set: { expiresAt: expiry(createdAt) } }),

    end,

    /** The same for a session of this user only. */
    async endOwn(sub: string, sid: string, record: Effect): Promise<boolean> {
      const session = isSessionId(sid) ? await sessionDocuments.findOne({ id: sid }) : null;
      return session?.sub === sub && (await end(sid, record));
    },

    /** Ends all sessions of the user except this one, if there are any. */
    async endOthers(sub: string, current: string, record: Effect) {
      for (let isRecorded = false; ; ) {
        const { items } = await sessionDocuments.page({ where: { sub }, sort: 'id', limit: MAX_ENDED + 1 });
        const others = items.filter(({ id }) => id !== current).slice(0, MAX_ENDED);
        if (others.length === 0) return;
        const { committed } = await commit([
          ...others.map(({ id }) => sessionDocuments.deleting({ id })),
          ...(await Promise.all(others.map(({ id }) => endSession(id)))),
          isRecorded ? undefined : record,
        ]);
        // One of them may have ended since it was read.
        isRecorded ||= committed;
      }
    },

    /** Removes all sessions of a user who is deleted. */
    async forget(sub: string) {
      await sessionDocuments.deleteMany({ sub });
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
