import { type Clock, DAY, MINUTE, SECOND } from '../kernel/clock.js';
import type { Job, JobLog } from '../ops/jobs.js';
import { isSubscriptionMissing } from './errors.js';
import { expiredLeases } from './event-leases.js';
import type { EventProcessor } from './event-processor.js';
import type { SubscriptionDocument, Subscriptions, WebhookEventDocument, WebhookEvents } from './store.js';
import type { SubscriptionSync } from './sync.js';

/** The background jobs of billing. */
export interface BillingJobs {
  /** Resumes events whose worker crashed, and syncs uncertain and overdue subscriptions with the provider. */
  settle: Job;
  /** Retries unmatched events and deletes old ones. */
  reconcile: Job;
}

export interface BillingJobDependencies {
  events: WebhookEvents;
  subscriptions: Subscriptions;
  processor: EventProcessor;
  /** Absent while no API key is configured. */
  sync: SubscriptionSync | undefined;
  clock: Clock;
  log: Pick<JobLog, 'warn'>;
}

const PAGE_SIZE = 100;

/** Three runs fit into the minute after an outage within which every subscription must be up to date. */
const SETTLE_INTERVAL_SECONDS = 20;
const RECONCILE_INTERVAL_SECONDS = 300;

/** The provider allows 25 requests per second in test mode. */
const CONCURRENT_CALLS = 4;

/** How long an unmatched event is retried. */
const RETRY_UNMATCHED_MS = 30 * DAY;

/** How long an event is kept. The provider redelivers one for three days and lists it for thirty. */
const EVENT_RETENTION_MS = 90 * DAY;

/** Shorter than the interval of the job, so that the next run asks again. */
const RETRY_UNANSWERED_MS = 15 * SECOND;

/** When to ask again about a subscription that the provider does not have. */
const RETRY_MISSING_MS = 15 * MINUTE;

export function createBillingJobs(deps: BillingJobDependencies): BillingJobs {
  const { events, subscriptions, processor, sync, clock, log } = deps;

  /** Processes every matching event; a failure does not stop the others. */
  const resumeAll = async (
    where: Parameters<WebhookEvents['page']>[0]['where'] & object,
    signal: AbortSignal,
  ): Promise<void> => {
    const query = { where, sort: 'receivedAt', limit: PAGE_SIZE } as const;
    for (let after: { after?: string } = {}; !signal.aborted; ) {
      const page = await events.page({ ...query, ...after });
      for (const document of page.items) if (!signal.aborted) await resume(document);
      if (page.next === null) return;
      after = { after: page.next };
    }
  };

  const resume = async (document: WebhookEventDocument): Promise<void> => {
    try {
      await processor.resume(document);
    } catch (err) {
      log.warn({ err, event: document.id }, 'a payment event could not be processed in the background');
    }
  };

  /** Whether the provider answered. */
  const syncDue = async (
    { syncOne }: SubscriptionSync,
    { id, userId, rev }: SubscriptionDocument,
  ): Promise<boolean> => {
    try {
      await syncOne(id, userId);
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
    if (!sync) return;
    const due = { recheckAt: { lte: clock.now() } };
    const { items } = await subscriptions.page({ where: due, sort: 'recheckAt', limit: PAGE_SIZE });
    for (let first = 0; first < items.length; first += CONCURRENT_CALLS) {
      if (signal.aborted) return;
      const batch = items.slice(first, first + CONCURRENT_CALLS);
      const answers = await Promise.all(batch.map((subscription) => syncDue(sync, subscription)));
      // While the provider is down, each run makes one batch of calls, however many subscriptions are due.
      if (!answers.includes(true)) return;
    }
    if (items.length === PAGE_SIZE) await syncAllDue(signal);
  };

  return {
    settle: {
      everySeconds: SETTLE_INTERVAL_SECONDS,
      async run({ signal }) {
        for (const leaseUntil of expiredLeases(clock.now()))
          await resumeAll({ outcome: null, leaseUntil }, signal);
        await syncAllDue(signal);
      },
    },
    reconcile: {
      everySeconds: RECONCILE_INTERVAL_SECONDS,
      async run({ signal }) {
        const now = clock.now();
        const receivedAt = { gte: now - RETRY_UNMATCHED_MS };
        await resumeAll({ outcome: 'unmatched', receivedAt }, signal);
        await events.deleteMany({ receivedAt: { lt: now - EVENT_RETENTION_MS } });
      },
    },
  };
}
