import { toTimestamp } from '../../../core/http/schemas.js';
import { CLOCK_SKEW_MS, type Clock, DAY, HOUR, MINUTE, SECOND } from '../../../core/kernel/clock.js';
import type { CommitParts } from '../../../core/ops/commit.js';
import type { EventOf } from '../../../core/ops/events.js';
import type { Job, JobLog } from '../../../core/ops/jobs.js';
import { purgeMatching } from '../../../core/ops/purge.js';
import type { CustomerLinks } from '../customers/customers.js';
import type { BillingEvents } from '../notifications.js';
import type { Gateway } from '../provider/gateway.js';
import type { UsageDocument, UsageReports } from './reports.js';

/**
 * Sends usage to the provider, each report once. An attempt is stored before its request: after a crash or a timeout it
 * is unknown whether the provider has recorded the usage. It refuses an identifier that it knows for 24 hours, so within
 * that time the attempt is repeated, and afterwards the report fails instead of being counted twice.
 */

export interface UsageSenderDependencies {
  reports: UsageReports;
  links: Pick<CustomerLinks, 'list'>;
  gateway: Pick<Gateway, 'createMeterEvent'>;
  commit: CommitParts;
  event: EventOf<BillingEvents>;
  clock: Clock;
  log: Pick<JobLog, 'error' | 'warn'>;
}

const SEND_INTERVAL_SECONDS = 10;

/** Reports read from the store at once. */
const BATCH_SIZE = 100;

/** Users whose reports are sent in parallel. The provider allows 25 requests per second in test mode. */
const CONCURRENCY = 4;

/** Time after which another process may take over a report; longer than any attempt. */
const LEASE_MS = MINUTE;

/** How long an unknown attempt can be repeated: the provider's 24 hours, without the duration of an attempt and skew. */
const REPEATABLE_MS = 23 * HOUR;

/** How long a report can be sent: the provider refuses events older than 35 days. */
const SENDABLE_MS = 35 * DAY - HOUR;

const MAX_BACKOFF_MS = HOUR;

/** How often a report of a user without a customer is looked at: usage is not charged before a purchase. */
const WAIT_FOR_CUSTOMER_MS = HOUR;

/** How long finished reports are kept, so that their keys are recognized. */
const RETENTION_MS = 90 * DAY;

export function createUsageJobs(deps: UsageSenderDependencies) {
  const { reports, links, gateway, commit, event, clock, log } = deps;

  /** Whether a report may be sent now. If not, it has failed or is no longer due. */
  const checkDue = async (report: UsageDocument): Promise<boolean> => {
    const { unconfirmedSince, reportedAt } = report;
    const now = clock.now();
    if (unconfirmedSince !== undefined && now >= unconfirmedSince + REPEATABLE_MS) {
      await fail(report, 'unconfirmed');
      return false;
    }
    if (now < reportedAt + SENDABLE_MS) return true;
    await fail(report, report.reason ?? 'not sent in time');
    return false;
  };

  const fail = async (report: UsageDocument, reason: string): Promise<void> => {
    const { id, attempts, userId, meter, quantity, key } = report;
    const endedAt = clock.now();
    const notification = { id, at: toTimestamp(endedAt), userId, meter, quantity, key, reason };
    const failed = await commit([
      reports.changing(
        { id, attempts },
        { set: { status: 'failed', reason, endedAt }, unset: ['dueAt', 'unconfirmedSince'] },
      ),
      await event('usage.failed', notification),
    ]);
    if (!failed.committed) return;
    log.error(
      { userId, meter, quantity, key, reason },
      'usage could not be reported to the payment provider',
    );
  };

  /** Sends one report. Returns whether the provider is available. */
  const send = async (due: UsageDocument, customerId: string): Promise<boolean> => {
    if (!(await checkDue(due))) return true;
    const { id, attempts, dueAt = 0, meter, quantity, reportedAt, unconfirmedSince } = due;
    const now = clock.now();
    const leased = await reports.updateOne(
      { id, attempts, dueAt },
      {
        set: { dueAt: now + LEASE_MS, unconfirmedSince: unconfirmedSince ?? now },
        inc: { attempts: 1 },
      },
    );
    if (!leased) return true;
    const usage = { identifier: id, meter, customerId, quantity, at: reportedAt };
    const { outcome, reason = outcome } = await gateway.createMeterEvent(usage);
    const own = { id, attempts: leased.attempts };
    if (outcome === 'accepted') {
      await reports.updateOne(own, {
        set: { status: 'sent', endedAt: clock.now() },
        unset: ['dueAt', 'unconfirmedSince', 'reason'],
      });
      return true;
    }
    if (outcome === 'refused' && attempts === 0)
      log.warn({ meter, userId: due.userId, reason }, 'the payment provider refused usage; it is retried');
    // An earlier attempt remains unknown, whatever the result of this one.
    const isUnconfirmed = outcome === 'unknown' || unconfirmedSince !== undefined;
    await reports.updateOne(own, {
      set: { dueAt: clock.now() + backoffMs(leased.attempts), reason },
      ...(!isUnconfirmed && { unset: ['unconfirmedSince'] as const }),
    });
    return outcome === 'refused';
  };

  /** Sends the reports of a user one after the other: the provider allows one call per customer and meter at a time. */
  const sendAllOf = async (
    userId: string,
    all: readonly UsageDocument[],
    signal: AbortSignal,
  ): Promise<boolean> => {
    const [customerId] = await links.list(userId);
    if (customerId === undefined) {
      const dueAt = clock.now() + WAIT_FOR_CUSTOMER_MS;
      for (const report of all) {
        const { id, attempts } = report;
        if (await checkDue({ ...report, reason: 'the user has no customer' }))
          await reports.updateOne({ id, attempts }, { set: { dueAt } });
      }
      return true;
    }
    for (const report of all) {
      if (signal.aborted) return true;
      if (!(await send(report, customerId))) return false;
    }
    return true;
  };

  const sendDue = async (dueAt: { lte: number } | { gt: number }, signal: AbortSignal): Promise<boolean> => {
    for (let isMore = true; isMore && !signal.aborted; ) {
      const { items } = await reports.page({ where: { dueAt }, sort: 'dueAt', limit: BATCH_SIZE });
      const queue = groupByUser(items).entries();
      let isAvailable = true;
      const worker = async () => {
        for (const [userId, all] of queue) {
          if (!isAvailable || signal.aborted) return;
          if (!(await sendAllOf(userId, all, signal))) isAvailable = false;
        }
      };
      await Promise.all(Array.from({ length: CONCURRENCY }, worker));
      // While the provider is down, each run makes a few requests, however much is due.
      if (!isAvailable) return false;
      isMore = items.length === BATCH_SIZE;
    }
    return true;
  };

  /** The reports that have been stored long enough. */
  const ended = () => ({ endedAt: { lt: clock.now() - RETENTION_MS } });

  return {
    /** Sends what is due. */
    send: {
      everySeconds: SEND_INTERVAL_SECONDS,
      async run({ signal }) {
        if (!(await sendDue({ lte: clock.now() }, signal))) return;
        // Reports due implausibly late were scheduled by a clock that has been set back since.
        await sendDue({ gt: clock.now() + MAX_BACKOFF_MS + CLOCK_SKEW_MS }, signal);
      },
    } satisfies Job,
    /** Deletes old reports. */
    purge: {
      everySeconds: HOUR / SECOND,
      run: ({ signal }) => purgeMatching(reports, { where: ended(), sort: 'endedAt', signal }),
      countBacklog: (limit) => reports.count(ended(), limit),
    } satisfies Job,
  };
}

function groupByUser(all: readonly UsageDocument[]): Map<string, UsageDocument[]> {
  const groups = new Map<string, UsageDocument[]>();
  for (const report of all) {
    const group = groups.get(report.userId);
    if (group) group.push(report);
    else groups.set(report.userId, [report]);
  }
  return groups;
}

/** 10 seconds, doubled after each attempt, up to an hour. */
const backoffMs = (attempts: number): number =>
  Math.min(MAX_BACKOFF_MS, 10 * SECOND * 2 ** Math.min(attempts - 1, 10));
