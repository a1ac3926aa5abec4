import { DAY, MINUTE, SECOND } from '../../core/kernel/clock.js';
import type { Job } from '../../core/ops/jobs.js';
import { countEach, purgeEach, purgeMatching } from '../../core/ops/purge.js';
import type { Collection, Where } from '../../core/storage/collection.js';
import { pagesOf } from '../../core/storage/pages.js';
import type { BillingContext } from './context.js';
import { isSubscriptionMissing } from './errors.js';
import type { ChargeRecorder } from './events/charges.js';
import type { EventProcessor } from './events/processor.js';
import type { PurchaseRecorder } from './events/purchase-recorder.js';
import { EVENT_OUTCOMES, type PaymentEventDocument, type SubscriptionDocument } from './store.js';
import type { SubscriptionSync } from './subscription/sync.js';

export interface BillingJobDependencies {
  processor: EventProcessor;
  charges: ChargeRecorder;
  purchaseRecorder: PurchaseRecorder;
  sync: SubscriptionSync;
}

/** A record that lacks something only the provider knows. */
interface DueRecord {
  id: string;
  ownerId: string;
  at: number;
  recheckAt?: number;
}

interface DueRecords {
  records: Pick<Collection<DueRecord>, 'page' | 'updateOne'>;
  complete(record: DueRecord): Promise<'done' | 'missing' | 'unanswered'>;
}

const PAGE_SIZE = 100;

/** Three runs fit into the minute after an outage within which every subscription must be up to date. */
const RECONCILE_INTERVAL_SECONDS = 20;
const RETRY_INTERVAL_SECONDS = 300;

/** The provider allows 25 requests per second in test mode. */
const CONCURRENT_CALLS = 4;

/** How long an unmatched event is retried. */
const RETRY_UNMATCHED_MS = 30 * DAY;

/** How long an event is kept. The provider redelivers events for three days and lists them for thirty. */
const EVENT_RETENTION_MS = 90 * DAY;

/** Shorter than the interval of the job, so that the next run retries. */
const RETRY_UNANSWERED_MS = 15 * SECOND;

/** When to retry a subscription that does not exist at the provider. */
const RETRY_MISSING_MS = 15 * MINUTE;

/** The background jobs of billing. */
export function createBillingJobs(context: BillingContext, deps: BillingJobDependencies) {
  const { paymentEvents, subscriptions, payments, purchases, gateway, clock, log } = context;
  const { processor, sync } = deps;

  /** Processes every matching event; a failure does not stop the others. */
  const resumeAll = async (where: Where<PaymentEventDocument>, signal: AbortSignal): Promise<void> => {
    for await (const page of pagesOf(paymentEvents, { where, sort: 'receivedAt' }, PAGE_SIZE))
      for (const document of page) {
        if (signal.aborted) return;
        await processor.resume(document).catch((err: unknown) => {
          log.warn({ err, event: document.id }, 'a payment event could not be processed in the background');
        });
      }
  };

  /** Syncs one subscription. Returns whether the provider responded. */
  const syncDue = async ({ id, ownerId, rev }: SubscriptionDocument): Promise<boolean> => {
    try {
      await sync.syncOne(id, ownerId);
      return true;
    } catch (err) {
      log.warn({ err, subscription: id }, 'a subscription could not be reconciled with the payment provider');
      const isAnswered = isSubscriptionMissing(err);
      const recheckAt = clock.now() + (isAnswered ? RETRY_MISSING_MS : RETRY_UNANSWERED_MS);
      await subscriptions.updateOne({ id, rev }, { set: { recheckAt }, inc: { rev: 1 } });
      return isAnswered;
    }
  };

  const syncAllDue = async (signal: AbortSignal): Promise<void> => {
    if (!gateway) return;
    const due = { recheckAt: { lte: clock.now() } };
    const { items } = await subscriptions.page({ where: due, sort: 'recheckAt', limit: PAGE_SIZE });
    for (let first = 0; first < items.length; first += CONCURRENT_CALLS) {
      if (signal.aborted) return;
      const batch = items.slice(first, first + CONCURRENT_CALLS);
      const answers = await Promise.all(batch.map(syncDue));
      // While the provider is down, each run makes one batch of calls, however many subscriptions are due.
      if (!answers.includes(true)) return;
    }
    if (items.length === PAGE_SIZE) await syncAllDue(signal);
  };

  /** Fetches what is missing in records: the invoices of refunds and disputes, and the items of purchases. */
  const completeDue = async ({ records, complete }: DueRecords, signal: AbortSignal): Promise<void> => {
    const due = { recheckAt: { lte: clock.now() } };
    const { items } = await records.page({ where: due, sort: 'recheckAt', limit: PAGE_SIZE });
    for (const record of items) {
      if (signal.aborted) return;
      const result = await complete(record);
      if (result === 'done') continue;
      const delayMs = result === 'missing' ? RETRY_MISSING_MS : RETRY_UNANSWERED_MS;
      const isHopeless = record.at < clock.now() - RETRY_UNMATCHED_MS;
      const recheckAt = clock.now() + delayMs;
      await records.updateOne(
        { id: record.id },
        isHopeless ? { unset: ['recheckAt'] } : { set: { recheckAt } },
      );
      // The next run continues with the others, which are due earlier.
      if (result === 'unanswered') return;
    }
  };

  // By outcome, because the only index that orders all events by time begins with it.
  const outdated = () =>
    [...EVENT_OUTCOMES, null].map((outcome) => ({
      outcome,
      receivedAt: { lt: clock.now() - EVENT_RETENTION_MS },
    }));

  return {
    /** Resumes events whose worker crashed, and syncs uncertain and overdue subscriptions with the provider. */
    reconcile: {
      everySeconds: RECONCILE_INTERVAL_SECONDS,
      async run({ signal }) {
        await resumeAll({ outcome: null }, signal);
        await syncAllDue(signal);
        await completeDue({ records: payments, complete: deps.charges.attribute }, signal);
        await completeDue({ records: purchases, complete: deps.purchaseRecorder.fetchItems }, signal);
      },
    } satisfies Job,
    retryUnmatched: {
      everySeconds: RETRY_INTERVAL_SECONDS,
      async run({ signal }) {
        const receivedAt = { gte: clock.now() - RETRY_UNMATCHED_MS };
        await resumeAll({ outcome: 'unmatched', receivedAt }, signal);
      },
    } satisfies Job,
    /** Deletes old events. */
    purge: {
      everySeconds: RETRY_INTERVAL_SECONDS,
      run: ({ signal }) =>
        purgeEach(
          outdated().map(
            (where) => () => purgeMatching(paymentEvents, { where, sort: 'receivedAt', signal }),
          ),
        ),
      countBacklog: (limit) => countEach(outdated().map((where) => paymentEvents.count(where, limit))),
    } satisfies Job,
  };
}
