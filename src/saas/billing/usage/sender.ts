import { toTimestamp } from '../../../core/http/schemas.js';
import { DAY, HOUR, SECOND } from '../../../core/kernel/clock.js';
import type { Job } from '../../../core/ops/jobs.js';
import { lease, sendDue } from '../../../core/ops/outbox.js';
import { createPurge } from '../../../core/ops/purge.js';
import type { BillingContext } from '../context.js';
import type { CustomerLinks } from '../customers/customers.js';
import { referenceTo } from '../owners.js';
import type { Gateway } from '../provider/gateway.js';
import type { UsageDocument } from './reports.js';

/**
 * Sends usage to the provider, each report once. An attempt is stored before its request: after a crash or a timeout it
 * is unknown whether the provider has recorded the usage. It refuses an identifier that it knows for 24 hours, so within
 * that time the attempt is repeated, and afterwards the report fails instead of being counted twice.
 */

const SEND_INTERVAL_SECONDS = 10;

/** How long an unknown attempt can be repeated: the provider's 24 hours, without the duration of an attempt and skew. */
const REPEATABLE_MS = 23 * HOUR;

/** How long a report can be sent: the provider refuses events older than 35 days. */
const SENDABLE_MS = 35 * DAY - HOUR;

const MAX_BACKOFF_MS = HOUR;

/** How often a report of a user without a customer is looked at: usage is not charged before a purchase. */
const WAIT_FOR_CUSTOMER_MS = HOUR;

/** How long finished reports are kept, so that their keys are recognized. */
const RETENTION_MS = 90 * DAY;

export function createUsageJobs(
  { usage: reports, commit, event, clock, log }: BillingContext,
  { links, gateway }: { links: CustomerLinks; gateway: Gateway },
) {
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
    const { id, attempts, ownerId, meter, quantity, key } = report;
    const endedAt = clock.now();
    const notification = {
      id,
      at: toTimestamp(endedAt),
      ...referenceTo(ownerId),
      meter,
      quantity,
      key,
      reason,
    };
    const failed = await commit([
      reports.changing(
        { id, attempts },
        { set: { status: 'failed', reason, endedAt }, unset: ['dueAt', 'unconfirmedSince'] },
      ),
      await event('usage.failed', notification),
    ]);
    if (!failed.committed) return;
    log.error(
      { ownerId, meter, quantity, key, reason },
      'usage could not be reported to the payment provider',
    );
  };

  /** Sends one report. Returns whether the provider is available. */
  const send = async (due: UsageDocument, customerId: string): Promise<boolean> => {
    if (!(await checkDue(due))) return true;
    const { id, attempts, meter, quantity, reportedAt, unconfirmedSince } = due;
    const now = clock.now();
    const leased = await lease(reports, due, now, { unconfirmedSince: unconfirmedSince ?? now });
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
      log.warn({ meter, ownerId: due.ownerId, reason }, 'the payment provider refused usage; it is retried');
    // An earlier attempt remains unknown, whatever the result of this one.
    const isUnconfirmed = outcome === 'unknown' || unconfirmedSince !== undefined;
    await reports.updateOne(own, {
      set: { dueAt: clock.now() + backoffMs(leased.attempts), reason },
      ...(!isUnconfirmed && { unset: ['unconfirmedSince'] as const }),
    });
    return outcome === 'refused';
  };

  const waitForCustomer = async (report: UsageDocument): Promise<void> => {
    const { id, attempts } = report;
    if (await checkDue({ ...report, reason: 'the user has no customer' }))
      await reports.updateOne({ id, attempts }, { set: { dueAt: clock.now() + WAIT_FOR_CUSTOMER_MS } });
  };

  return {
    /** Sends what is due. */
    send: {
      everySeconds: SEND_INTERVAL_SECONDS,
      run(job) {
        // While the provider is down, each run makes a few requests, however much is due.
        const outage = new AbortController();
        const signal = AbortSignal.any([job.signal, outage.signal]);
        // The provider allows one call per customer and meter at a time.
        return sendDue(reports, { groupOf: ({ ownerId }) => ownerId, clock, signal }, async (all) => {
          const [customerId] = await links.list(String(all[0]?.ownerId));
          for (const report of all) {
            if (signal.aborted) return;
            if (customerId === undefined) await waitForCustomer(report);
            else if (!(await send(report, customerId))) outage.abort();
          }
        });
      },
    } satisfies Job,
    /** Deletes the reports that have been stored long enough. */
    purge: createPurge(reports, {
      where: () => ({ endedAt: { lt: clock.now() - RETENTION_MS } }),
      sort: 'endedAt',
    }),
  };
}

/** 10 seconds, doubled after each attempt, up to an hour. */
const backoffMs = (attempts: number): number =>
  Math.min(MAX_BACKOFF_MS, 10 * SECOND * 2 ** Math.min(attempts - 1, 10));
