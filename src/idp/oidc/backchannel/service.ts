import {
  CLOCK_SKEW_MS,
  type Clock,
  DAY,
  HOUR,
  isUnexpired,
  MINUTE,
  SECOND,
  toSeconds,
} from '../../../core/kernel/clock.js';
import { newId, type Random } from '../../../core/kernel/secrets.js';
import type { Audit } from '../../../core/ops/audit.js';
import type { Job, JobLog } from '../../../core/ops/jobs.js';
import { purgeMatching } from '../../../core/ops/purge.js';
import { nullIfTaken, type Page } from '../../../core/storage/collection.js';
import { readPage } from '../../../core/storage/pages.js';
import type { Client, Directory, Principal } from '../directory.js';
import { REFRESH_MAX_LIFETIME_MS } from '../grant-tokens.js';
import type { Keys } from '../keys.js';
import { MAX_SESSION_LIFETIME_MS } from '../sessions.js';
import type { SessionDocument, Sessions } from '../store.js';
import type { PostLogoutToken } from './request.js';
import { announceEnd, type LogoutNoticeDocument, type LogoutNotices } from './store.js';

interface Attempt {
  /** Why the application was not notified; `null` on success. */
  failure: string | null;
  /** Whether it has answered. */
  isReachable: boolean;
}

/** Notifies applications that a session has ended (OpenID Connect Back-Channel Logout 1.0). */
export type BackchannelLogout = ReturnType<typeof createBackchannelLogout>;

/** A notice that an application has not accepted. */
export interface LogoutFailure {
  id: string;
  clientId: string;
  sub: string;
  since: number;
  attempts: number;
  reason: string;
  /** Absent if it was given up. */
  nextAttemptAt?: number;
}

export interface BackchannelDependencies {
  notices: LogoutNotices;
  sessionDocuments: Pick<Sessions, 'findOne'>;
  directory: Pick<Directory, 'findClient' | 'findPrincipal'>;
  keys: Pick<Keys, 'sign'>;
  post: PostLogoutToken;
  issuer(): string;
  /** Runs the job soon. */
  wake(): void;
  audit: Pick<Audit, 'record'>;
  clock: Clock;
  random: Random;
  log: Pick<JobLog, 'warn'>;
}

const BATCH_SIZE = 50;

/** Applications called in parallel. */
const CONCURRENCY = 5;

/** Time after which another process may take over a notice; longer than any attempt. */
const LEASE_MS = MINUTE;

/** 30 seconds, tripled after each attempt: eight attempts within nine hours. */
const MAX_ATTEMPTS = 8;
const backoffMs = (attempts: number): number => 30 * SECOND * 3 ** (attempts - 1);

/** An upper bound of `backoffMs`. */
const MAX_BACKOFF_MS = 8 * HOUR;

/** How long a change that was announced may take. */
const CHANGE_MS = MINUTE;

/** Lifetime of a logout token (Back-Channel Logout §2.4). */
const TOKEN_LIFETIME_SECONDS = 120;

/** Longest reason that is stored. Some contain what a certificate says. */
const MAX_REASON_LENGTH = 300;

/** How long a notice outlives its session, so that attempts go on. */
const RETENTION_MS = 24 * HOUR;

/** How long operators see at least that it was given up. */
const FAILURE_RETENTION_MS = 7 * DAY;

/** Notices by client, in their order. */
function byClient(notices: readonly LogoutNoticeDocument[]): Map<string, LogoutNoticeDocument[]> {
  const found = new Map<string, LogoutNoticeDocument[]>();
  for (const notice of notices) {
    const others = found.get(notice.clientId);
    if (others) others.push(notice);
    else found.set(notice.clientId, [notice]);
  }
  return found;
}

const FAILING = { failingSince: { gt: 0 } };

const failureOf = (notice: LogoutNoticeDocument): LogoutFailure => ({
  id: notice.id,
  clientId: notice.clientId,
  sub: notice.sub,
  since: notice.failingSince ?? 0,
  attempts: notice.attempts,
  reason: notice.lastFailure ?? '',
  ...(notice.dueAt !== undefined && { nextAttemptAt: notice.dueAt }),
});

const EVENTS = { 'http://schemas.openid.net/event/backchannel-logout': {} };

export function createBackchannelLogout(deps: BackchannelDependencies) {
  const { notices, sessionDocuments, directory, keys, post, issuer, wake, audit, clock, random, log } = deps;

  /** Whether the session of a notice has ended, and not only expired. */
  const hasEnded = async ({ session, sub, epoch }: LogoutNoticeDocument): Promise<boolean> => {
    if (!(await sessionDocuments.findOne({ id: session }))) return true;
    const principal: Principal | null = await directory.findPrincipal(sub);
    return principal === null || principal.epoch !== epoch;
  };

  /** Waits again for the end of a session, once the announced change must be over and unless another was announced. */
  const wait = (notice: LogoutNoticeDocument) => {
    const { id, attempts, dueAt = 0, announcedAt = 0 } = notice;
    const isChanging = isUnexpired(announcedAt + CHANGE_MS, { now: clock.now(), life: CHANGE_MS });
    return notices.updateOne(
      { id, attempts, dueAt },
      isChanging ? { set: { dueAt: clock.now() + SECOND } } : { unset: ['dueAt', 'announcedAt'] },
    );
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

  const attempt = async (notice: LogoutNoticeDocument, client: Client, uri: string): Promise<Attempt> => {
    try {
      const status = await post(uri, await createToken(notice, client));
      return { failure: status === 200 || status === 204 ? null : `status ${status}`, isReachable: true };
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      const printable = reason.slice(0, MAX_REASON_LENGTH).replaceAll(/[\p{Cc}\p{Cs}]/gu, ' ');
      return { failure: printable || 'no reason', isReachable: false };
    }
  };

  /** Returns whether the application can be notified of other ended sessions now. */
  const deliver = async (due: LogoutNoticeDocument): Promise<boolean> => {
    if (!(await hasEnded(due))) {
      await wait(due);
      return true;
    }
    const { id, clientId, sub, attempts, dueAt = 0 } = due;
    const client = await directory.findClient(clientId);
    const uri = client?.backchannelLogoutUri;
    if (!client || uri === undefined) {
      await notices.deleteOne({ id, attempts });
      return true;
    }
    const leased = await notices.updateOne(
      { id, attempts, dueAt },
      { set: { dueAt: clock.now() + LEASE_MS }, inc: { attempts: 1 } },
    );
    if (!leased) return true;
    const own = { id, attempts: leased.attempts };
    const { failure, isReachable } = await attempt(leased, client, uri);
    if (failure === null) {
      await notices.deleteOne(own);
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
    const givenUp = { set: { ...failed, expiresAt }, unset: ['dueAt', 'announcedAt'] } as const;
    if (await notices.updateOne(own, givenUp)) {
      log.warn(
        { clientId, reason: failure },
        'an application could not be notified that a session has ended',
      );
      const detail = `${clientId}: ${failure}`;
      await audit.record({ event: 'logout.undelivered', subject: sub, ip: 'local', detail });
    }
    return isReachable;
  };

  /** Delivers notices of one client, one after the other. One that cannot be reached is not called again for each of them. */
  const deliverTo = async (clientId: string, due: LogoutNoticeDocument[], signal: AbortSignal) => {
    for (const notice of due) {
      if (signal.aborted) return;
      if (await deliver(notice)) continue;
      const now = clock.now();
      await notices.updateMany({ clientId, dueAt: { lte: now } }, { set: { dueAt: now + backoffMs(1) } });
      return;
    }
  };

  const outdated = () => ({ expiresAt: { lt: clock.now() - RETENTION_MS } });

  return {
    /** Before a client receives a code for this scope in a session. */
    async remember(
      { id: clientId, backchannelLogoutUri }: Pick<Client, 'id' | 'backchannelLogoutUri'>,
      { id: session, sub, epoch, createdAt }: SessionDocument,
      scope: string,
    ) {
      if (backchannelLogoutUri === undefined) return;
      const id = `${session}.${clientId}`;
      // A refresh token outlives the session, and a disabled account ends it.
      const isLasting = scope.split(' ').includes('offline_access');
      const expiresAt = isLasting
        ? clock.now() + REFRESH_MAX_LIFETIME_MS
        : createdAt + MAX_SESSION_LIFETIME_MS;
      const notice = {
        id,
        clientId,
        sub,
        sid: session,
        session,
        ...(epoch !== undefined && { epoch }),
        expiresAt,
        attempts: 0,
      };
      const isNew = (await notices.insert(notice).then(() => true, nullIfTaken)) !== null;
      if (!isNew) await notices.updateOne({ id, expiresAt: { lt: expiresAt - DAY } }, { set: { expiresAt } });
      // A concurrent end of the session either finds the notice or is found here.
      if (isNew && !(await sessionDocuments.findOne({ id: session })))
        await announceEnd({ session }, async () => {}, deps);
    },

    async continueIn({ id: session, epoch, createdAt }: SessionDocument, { id: previous }: SessionDocument) {
      const expiresAt = createdAt + MAX_SESSION_LIFETIME_MS;
      const waiting = { session: previous, dueAt: null };
      await notices.updateMany({ ...waiting, expiresAt: { lt: expiresAt } }, { set: { expiresAt } });
      await notices.updateMany(waiting, { set: { session, ...(epoch !== undefined && { epoch }) } });
    },

    endSession: <T>(session: string, change: () => Promise<T>): Promise<T> =>
      announceEnd({ session }, change, deps),

    jobs: {
      send: {
        everySeconds: MINUTE / SECOND,
        async run({ signal }) {
          const deliverAll = async (dueAt: { lte: number } | { gt: number }) => {
            for (let isMore = true; isMore && !signal.aborted; ) {
              const { items } = await notices.page({ where: { dueAt }, sort: 'dueAt', limit: BATCH_SIZE });
              const queue = byClient(items).entries();
              const worker = async () => {
                for (const [clientId, due] of queue) await deliverTo(clientId, due, signal);
              };
              await Promise.all(Array.from({ length: CONCURRENCY }, worker));
              isMore = items.length === BATCH_SIZE;
            }
          };
          await deliverAll({ lte: clock.now() });
          // Due implausibly late: scheduled by a clock that has been set back since.
          await deliverAll({ gt: clock.now() + MAX_BACKOFF_MS + CLOCK_SKEW_MS });
        },
      },
      purge: {
        everySeconds: HOUR / SECOND,
        run: ({ signal }) => purgeMatching(notices, { where: outdated(), sort: 'expiresAt', signal }),
        countBacklog: (limit) => notices.count(outdated(), limit),
      },
    } satisfies { send: Job; purge: Job },

    /** Notices that are due, up to `limit`. */
    countDue: (limit: number): Promise<number> => notices.count({ dueAt: { lte: clock.now() } }, limit),

    /** Notices that applications have not accepted. */
    failures: {
      /** The latest first. @throws VALIDATION_ERROR for an invalid `after` */
      async list({
        after,
        limit,
      }: {
        after: string | undefined;
        limit: number;
      }): Promise<Page<LogoutFailure>> {
        const query = { where: FAILING, sort: 'failingSince', desc: true, after, limit } as const;
        const { items, next } = await readPage(notices, query);
        return { items: items.map(failureOf), next };
      },

      /** Up to `limit`. */
      count: (limit: number): Promise<number> => notices.count(FAILING, limit),

      async find(id: string): Promise<LogoutFailure | null> {
        const notice = await notices.findOne({ id, ...FAILING });
        return notice && failureOf(notice);
      },

      /** Makes the next attempt now. `false` if there is no such notice any more. */
      async retry(id: string): Promise<boolean> {
        const retried = await notices.updateOne({ id, ...FAILING }, { set: { dueAt: clock.now() } });
        if (retried) wake();
        return retried !== null;
      },
    },
  };
}
