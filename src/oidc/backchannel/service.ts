import {
  CLOCK_SKEW_MS,
  type Clock,
  HOUR,
  isUnexpired,
  MINUTE,
  SECOND,
  toSeconds,
} from '../../kernel/clock.js';
import { newId, type Random } from '../../kernel/secrets.js';
import type { Audit } from '../../ops/audit.js';
import type { Job, JobLog } from '../../ops/jobs.js';
import { purgeMatching } from '../../ops/purge.js';
import { nullIfTaken } from '../../storage/collection.js';
import type { Client, Directory, Principal } from '../directory.js';
import type { Keys } from '../keys.js';
import { MAX_SESSION_LIFETIME_MS, type SessionFollower } from '../sessions.js';
import type { SessionDocument, Sessions } from '../store.js';
import type { PostLogoutToken } from './request.js';
import { announceEnd, type EndSessions, type LogoutNoticeDocument, type LogoutNotices } from './store.js';

/** Tells applications that a session has ended (OpenID Connect Back-Channel Logout 1.0). */
export interface BackchannelLogout extends SessionFollower {
  /** Before a client receives a code in a session. */
  remember(client: Pick<Client, 'id' | 'backchannelLogoutUri'>, session: SessionDocument): Promise<void>;
  endSessions: EndSessions;
  jobs: { send: Job; purge: Job };
  /** Notices that are due, up to `limit`. */
  countDue(limit: number): Promise<number>;
}

export interface BackchannelDependencies {
  notices: LogoutNotices;
  sessions: Pick<Sessions, 'findOne'>;
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

/** How long a notice outlives its session, so that attempts go on. */
const RETENTION_MS = 24 * HOUR;

const EVENTS = { 'http://schemas.openid.net/event/backchannel-logout': {} };

export function createBackchannelLogout(deps: BackchannelDependencies): BackchannelLogout {
  const { notices, sessions, directory, keys, post, issuer, wake, audit, clock, random, log } = deps;

  const announce = async <T>(of: { sub: string } | { session: string }, change: () => Promise<T>) => {
    const isAnnounced = await announceEnd(notices, of, clock.now());
    const result = await change();
    if (isAnnounced) wake();
    return result;
  };

  /** Whether the session of a notice has ended, and not only expired. */
  const hasEnded = async ({ session, sub, epoch }: LogoutNoticeDocument): Promise<boolean> => {
    if (!(await sessions.findOne({ id: session }))) return true;
    const principal: Principal | null = await directory.findPrincipal(sub);
    return principal === null || principal.epoch !== epoch;
  };

  /** Waits again for the end of a session, once the announced change must be over. */
  const wait = (notice: LogoutNoticeDocument) => {
    const { id, attempts, announcedAt = 0 } = notice;
    const isChanging = isUnexpired(announcedAt + CHANGE_MS, { now: clock.now(), life: CHANGE_MS });
    return notices.updateOne(
      { id, attempts },
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

  /** Why the application was not told; `null` on success. */
  const attempt = async (
    notice: LogoutNoticeDocument,
    client: Client,
    uri: string,
  ): Promise<string | null> => {
    try {
      const status = await post(uri, await createToken(notice, client));
      return status === 200 || status === 204 ? null : `status ${status}`;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  };

  const deliver = async (due: LogoutNoticeDocument): Promise<void> => {
    if (!(await hasEnded(due))) {
      await wait(due);
      return;
    }
    const { id, clientId, sub, attempts, dueAt = 0 } = due;
    const client = await directory.findClient(clientId);
    const uri = client?.backchannelLogoutUri;
    if (!client || uri === undefined) {
      await notices.deleteOne({ id, attempts });
      return;
    }
    const leased = await notices.updateOne(
      { id, attempts, dueAt },
      { set: { dueAt: clock.now() + LEASE_MS }, inc: { attempts: 1 } },
    );
    if (!leased) return;
    const own = { id, attempts: leased.attempts };
    const reason = await attempt(leased, client, uri);
    if (reason === null) {
      await notices.deleteOne(own);
      return;
    }
    if (leased.attempts < MAX_ATTEMPTS) {
      await notices.updateOne(own, { set: { dueAt: clock.now() + backoffMs(leased.attempts) } });
      return;
    }
    if (!(await notices.deleteOne(own))) return;
    log.warn({ clientId, reason }, 'an application could not be told that a session has ended');
    await audit.record({
      event: 'logout.undelivered',
      subject: sub,
      ip: 'local',
      detail: `${clientId}: ${reason}`,
    });
  };

  const outdated = () => ({ expiresAt: { lt: clock.now() - RETENTION_MS } });

  return {
    async remember({ id: clientId, backchannelLogoutUri }, { id: session, sub, epoch, createdAt }) {
      if (backchannelLogoutUri === undefined) return;
      const notice = {
        id: `${session}.${clientId}`,
        ...{ clientId, sub, sid: session, session },
        ...(epoch !== undefined && { epoch }),
        expiresAt: createdAt + MAX_SESSION_LIFETIME_MS,
        attempts: 0,
      };
      const isNew = (await notices.insert(notice).then(() => true, nullIfTaken)) !== null;
      // A concurrent end of the session either finds the notice or is found here.
      if (isNew && !(await sessions.findOne({ id: session }))) await announce({ session }, async () => {});
    },

    async continueIn({ id: session, epoch, createdAt }, { id: previous }) {
      await notices.updateMany(
        { session: previous, dueAt: null },
        {
          set: {
            session,
            expiresAt: createdAt + MAX_SESSION_LIFETIME_MS,
            ...(epoch !== undefined && { epoch }),
          },
        },
      );
    },

    endSession: (session, change) => announce({ session }, change),

    endSessions: (sub, change) => announce({ sub }, change),

    jobs: {
      send: {
        everySeconds: MINUTE / SECOND,
        async run({ signal }) {
          const deliverAll = async (dueAt: { lte: number } | { gt: number }) => {
            for (let isMore = true; isMore && !signal.aborted; ) {
              const { items } = await notices.page({ where: { dueAt }, sort: 'dueAt', limit: BATCH_SIZE });
              const queue = items.values();
              const worker = async () => {
                for (const notice of queue) if (!signal.aborted) await deliver(notice);
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
    },

    countDue: (limit) => notices.count({ dueAt: { lte: clock.now() } }, limit),
  };
}
