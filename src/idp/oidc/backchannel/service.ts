import { DAY, MINUTE, SECOND, toSeconds } from '../../../core/kernel/clock.js';
import { createSealed } from '../../../core/kernel/sealed.js';
import { newId } from '../../../core/kernel/secrets.js';
import { type Effect, effectOf } from '../../../core/ops/commit.js';
import type { Job } from '../../../core/ops/jobs.js';
import { backoffMs, lease, MAX_ATTEMPTS, sendDue } from '../../../core/ops/outbox.js';
import { createPurge } from '../../../core/ops/purge.js';
import type { Page, Write } from '../../../core/storage/collection.js';
import { readPage } from '../../../core/storage/pages.js';
import type { Client } from '../directory.js';
import { PENDING_LIFETIME_MS, REFRESH_MAX_LIFETIME_MS } from '../grant-tokens.js';
import { MAX_SESSION_LIFETIME_MS } from '../sessions.js';
import type { OidcShared } from '../shared.js';
import type { SessionDocument } from '../store.js';
import type { Ping, PostLogoutToken, PostPing } from './request.js';
import type { EndedSessionsDocument, LogoutNoticeDocument } from './store.js';

interface Attempt {
  /** Why the application was not notified; `null` on success. */
  failure: string | null;
  /** Whether it has answered. */
  isReachable: boolean;
}

/** Notifies applications that a session has ended (OpenID Connect Back-Channel Logout 1.0). */
export type BackchannelLogout = ReturnType<typeof createBackchannelLogout>;

/** A notice that an application has not accepted. */
export type LogoutFailure = LogoutNoticeDocument;

/** Ended sessions read from the store at once. */
const BATCH_SIZE = 50;

/** Lifetime of a logout token (Back-Channel Logout §2.4). */
const TOKEN_LIFETIME_SECONDS = 120;

/** Longest reason that is stored. Some contain what a certificate says. */
const MAX_REASON_LENGTH = 300;

/** How long a notice outlives its session, so that attempts go on. */
const RETENTION_MS = DAY;

/** How long operators see at least that it was given up. */
const FAILURE_RETENTION_MS = 7 * DAY;

const FAILING = { failingSince: { gt: 0 } };

const EVENTS = { 'http://schemas.openid.net/event/backchannel-logout': {} };

export function createBackchannelLogout(deps: OidcShared & { post: PostLogoutToken; postPing: PostPing }) {
  const { notices, endedSessions, sessionDocuments, directory, keys, post, issuer, wake } = deps;
  const { commit, audit, clock, random, log } = deps;

  /** Makes the notices of ended sessions due, or lets them wait for the session that continues theirs. */
  const enqueueNotices = async ({
    session,
    continuedBy,
    sub,
    epoch = 0,
  }: EndedSessionsDocument): Promise<void> => {
    const waiting = { attempts: 0, dueAt: null };
    const due = { set: { dueAt: clock.now() } };
    const next = continuedBy === undefined ? null : await sessionDocuments.findOne({ id: continuedBy });
    if (session !== undefined && next) {
      const expiresAt = next.createdAt + MAX_SESSION_LIFETIME_MS;
      const ofSession = { session, ...waiting };
      await notices.updateMany({ ...ofSession, expiresAt: { lt: expiresAt } }, { set: { expiresAt } });
      await notices.updateMany(ofSession, { set: { session: next.id } });
    } else if (session !== undefined) {
      await notices.updateMany({ session, ...waiting }, due);
    } else if (sub !== undefined) {
      // The principal may have signed in again since.
      for (const earlier of [null, { lt: epoch }])
        await notices.updateMany({ sub, epoch: earlier, ...waiting }, due);
    }
  };

  const enqueueAll = async (signal: AbortSignal): Promise<void> => {
    for (let isMore = true; isMore && !signal.aborted; ) {
      const { items } = await endedSessions.page({ sort: 'id', limit: BATCH_SIZE });
      for (const ended of items) {
        await enqueueNotices(ended);
        await endedSessions.deleteOne({ id: ended.id });
      }
      isMore = items.length === BATCH_SIZE;
    }
  };

  const createToken = ({ clientId, sub, sid }: LogoutNoticeDocument, client: Client): Promise<string> => {
    const now = toSeconds(clock.now());
    const claims = {
      iss: issuer(),
      aud: clientId,
      sub,
      sid,
      iat: now,
      exp: now + TOKEN_LIFETIME_SECONDS,
      jti: newId('jti_', clock, random),
      events: EVENTS,
    };
    return keys.sign(claims, client.idTokenAlg, 'logout+jwt');
  };

  /** Sends a notice, to where its client wants it now; null if there is nothing to send any more. */
  const senderOf = async (notice: LogoutNoticeDocument): Promise<(() => Promise<number>) | null> => {
    if (notice.ping !== undefined) {
      const uri = (await directory.findPrincipal(notice.clientId))?.notificationEndpoint;
      const ping = notice.expiresAt > clock.now() ? pings.open(notice.ping) : null;
      return ping && uri !== undefined ? () => deps.postPing(uri, ping) : null;
    }
    const client = await directory.findClient(notice.clientId);
    const uri = client?.backchannelLogoutUri;
    return client && uri !== undefined ? async () => post(uri, await createToken(notice, client)) : null;
  };

  const attempt = async (send: () => Promise<number>): Promise<Attempt> => {
    try {
      const status = await send();
      return { failure: status === 200 || status === 204 ? null : `status ${status}`, isReachable: true };
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      const printable = reason.slice(0, MAX_REASON_LENGTH).replaceAll(/[\p{Cc}\p{Cs}]/gu, ' ');
      return { failure: printable || 'no reason', isReachable: false };
    }
  };

  /** Returns whether the application can be notified of other ended sessions now. */
  const deliver = async (due: LogoutNoticeDocument): Promise<boolean> => {
    const { id, clientId, sub, attempts } = due;
    const send = await senderOf(due);
    if (!send) {
      await notices.deleteOne({ id, attempts });
      return true;
    }
    const leased = await lease(notices, due, clock.now());
    if (!leased) return true;
    const own = { id, attempts: leased.attempts };
    const { failure, isReachable } = await attempt(send);
    if (failure === null) {
      await notices.deleteOne(own);
      return isReachable;
    }
    if (leased.ping !== undefined) {
      // Nobody sees to it: the agent polls as well, and the sealed content ends with the request.
      const retrying = { set: { dueAt: clock.now() + backoffMs(leased.attempts) } };
      await notices.updateOne(own, retrying);
      return isReachable;
    }
    const failed = { failingSince: leased.failingSince ?? clock.now(), lastFailure: failure };
    if (leased.attempts < MAX_ATTEMPTS) {
      await notices.updateOne(own, {
        set: { ...failed, dueAt: clock.now() + backoffMs(leased.attempts) },
      });
      return isReachable;
    }
    const expiresAt = Math.max(leased.expiresAt, clock.now() + FAILURE_RETENTION_MS - RETENTION_MS);
    const detail = `${clientId}: ${failure}`;
    const { committed } = await commit([
      notices.changing(own, { set: { ...failed, expiresAt }, unset: ['dueAt'] }),
      audit.entry({ event: 'logout.undelivered', subject: sub, ip: 'local', detail }),
    ]);
    if (committed)
      log.warn(
        { clientId, reason: failure },
        'an application could not be notified that a session has ended',
      );
    return isReachable;
  };

  /** Delivers notices of one client, one after the other. One that cannot be reached is not called again for each of them. */
  const deliverTo = async (due: readonly LogoutNoticeDocument[], signal: AbortSignal) => {
    for (const notice of due) {
      if (signal.aborted) return;
      if (await deliver(notice)) continue;
      const now = clock.now();
      const others = { clientId: notice.clientId, dueAt: { lte: now } };
      await notices.updateMany(others, { set: { dueAt: now + backoffMs(1) } });
      return;
    }
  };

  const pings = createSealed<Ping>('ping of an agent', {
    ...{ keys: deps.seeds, lifetimeMs: PENDING_LIFETIME_MS, clock, random },
  });

  const outdated = () => ({ expiresAt: { lt: clock.now() - RETENTION_MS } });

  return {
    /** The notice for a client that receives a code for this scope in a session, for the commit of that code. */
    async notice(
      { id: clientId, backchannelLogoutUri }: Pick<Client, 'id' | 'backchannelLogoutUri'>,
      { id: session, sub, epoch, createdAt }: SessionDocument,
      scope: string,
    ): Promise<Write | undefined> {
      if (backchannelLogoutUri === undefined) return undefined;
      const id = `${session}.${clientId}`;
      // A refresh token outlives the session, and a disabled account ends it.
      const isLasting = scope.split(' ').includes('offline_access');
      const expiresAt = isLasting
        ? clock.now() + REFRESH_MAX_LIFETIME_MS
        : createdAt + MAX_SESSION_LIFETIME_MS;
      const known = await notices.findOne({ id });
      if (known)
        return known.expiresAt < expiresAt - DAY
          ? notices.changing({ id }, { set: { expiresAt } })
          : undefined;
      return notices.ensuring({
        id,
        clientId,
        sub,
        sid: session,
        session,
        ...(epoch !== undefined && { epoch }),
        expiresAt,
        attempts: 0,
      });
    },

    /** What an agent shall get when its request is decided, as it is stored until then. */
    sealPing: pings.seal,

    /** Tells it to the agent, after the commit of the decision. */
    ping: (id: string, agent: string, ping: string, expiresAt: number): Effect => {
      const named = { id, clientId: agent, sub: agent, sid: id, session: id };
      return effectOf(notices.ensuring({ ...named, ping, expiresAt, attempts: 0, dueAt: clock.now() }), wake);
    },

    jobs: {
      send: {
        everySeconds: MINUTE / SECOND,
        async run({ signal }) {
          await enqueueAll(signal);
          await sendDue(notices, { groupOf: ({ clientId }) => clientId, clock, signal }, (due) =>
            deliverTo(due, signal),
          );
        },
      },
      purge: createPurge(notices, { where: outdated, sort: 'expiresAt' }),
    } satisfies { send: Job; purge: Job },

    /** Notices that are due, up to `limit`. */
    countDue: (limit: number): Promise<number> => notices.count({ dueAt: { lte: clock.now() } }, limit),

    /** Notices that applications have not accepted. */
    failures: {
      /** The latest first. @throws VALIDATION_ERROR for an invalid `after` */
      list: ({ after, limit }: { after: string | undefined; limit: number }): Promise<Page<LogoutFailure>> =>
        readPage(notices, { where: FAILING, sort: 'failingSince', desc: true, after, limit }),

      /** Up to `limit`. */
      count: (limit: number): Promise<number> => notices.count(FAILING, limit),

      find: (id: string): Promise<LogoutFailure | null> => notices.findOne({ id, ...FAILING }),

      /** Makes the next attempt now. `false` if there is no such notice any more. */
      async retry(id: string, record: Effect): Promise<boolean> {
        const due = notices.changing({ id, ...FAILING }, { set: { dueAt: clock.now() } });
        return (await commit([effectOf(due, wake), record])).committed;
      },
    },
  };
}
