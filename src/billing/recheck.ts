import { type Clock, DAY, MINUTE, SECOND } from '../kernel/clock.js';
import type { Job } from '../ops/jobs.js';
import { leasesOver } from './claims.js';
import { isUnknownSubscription } from './errors.js';
import type { FetchLog } from './fetch.js';
import type { Processor } from './process.js';
import type { Refresh } from './refresh.js';
import type { SubscriptionDocument, Subscriptions, WebhookEventDocument, WebhookEvents } from './store.js';

/** The background jobs of billing. */
export interface BillingJobs {
  /** Settles what is in doubt: events whose worker is gone, and subscriptions that the provider is to be asked about. */
  settle: Job;
  /** Retries events whose owner was unknown, and removes old ones. */
  recheck: Job;
}

export interface RecheckDependencies {
  events: WebhookEvents;
  subscriptions: Subscriptions;
  processor: Processor;
  /** Absent while no key is configured. */
  refresh: Refresh | undefined;
  clock: Clock;
  log: FetchLog;
}

const PAGE = 100;

/** Three runs fit in the minute after an outage within which everything must be settled. Seconds. */
const SETTLE_EVERY = 20;
const RECHECK_EVERY = 300;

/** Subscriptions asked about at once. The provider refuses more than 25 requests per second in its test mode. */
const CONCURRENT_CALLS = 4;

/** How long an event without an owner is retried. */
const RETRY_UNMATCHED_MS = 30 * DAY;

/** How long an event is kept. The provider repeats one for three days and lists it for thirty. */
const EVENT_RETENTION_MS = 90 * DAY;

/** Shorter than the interval of the job, so that the next run asks again. */
const RETRY_UNANSWERED_MS = 15 * SECOND;

/** When to ask again about a subscription that the provider says it does not have. */
const RETRY_UNKNOWN_MS = 15 * MINUTE;

export function createBillingJobs(deps: RecheckDependencies): BillingJobs {
  const { events, subscriptions, processor, refresh, clock, log } = deps;

  /** Processes every event of the query; one that fails does not stop the others. */
  const resumeAll = async (
    where: Parameters<WebhookEvents['page']>[0]['where'] & object,
    signal: AbortSignal,
  ): Promise<void> => {
    const query = { where, sort: 'receivedAt', limit: PAGE } as const;
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
  const ask = async (from: Refresh, held: SubscriptionDocument): Promise<boolean> => {
    const { id, userId, rev } = held;
    try {
      await from.one(id, userId);
      return true;
    } catch (err) {
      log.warn({ err, subscription: id }, 'an uncertain subscription could not be reconciled');
      const isAnswered = isUnknownSubscription(err);
      const recheckAt = clock.now() + (isAnswered ? RETRY_UNKNOWN_MS : RETRY_UNANSWERED_MS);
      await subscriptions.updateOne({ id, rev }, { set: { recheckAt }, inc: { rev: 1 } });
      return isAnswered;
    }
  };

  const askAboutDue = async (signal: AbortSignal): Promise<void> => {
    if (!refresh) return;
    const due = { recheckAt: { lte: clock.now() } };
    const { items } = await subscriptions.page({ where: due, sort: 'recheckAt', limit: PAGE });
    for (let first = 0; first < items.length; first += CONCURRENT_CALLS) {
      if (signal.aborted) return;
      const batch = items.slice(first, first + CONCURRENT_CALLS);
      const answers = await Promise.all(batch.map((held) => ask(refresh, held)));
      // A provider that is down is asked a few times per run, however many subscriptions are in doubt.
      if (!answers.includes(true)) return;
    }
    if (items.length === PAGE) await askAboutDue(signal);
  };

  return {
    settle: {
      everySeconds: SETTLE_EVERY,
      async run({ signal }) {
        for (const leaseUntil of leasesOver(clock.now()))
          await resumeAll({ outcome: null, leaseUntil }, signal);
        await askAboutDue(signal);
      },
    },
    recheck: {
      everySeconds: RECHECK_EVERY,
      async run({ signal }) {
        const now = clock.now();
        const receivedAt = { gte: now - RETRY_UNMATCHED_MS };
        await resumeAll({ outcome: 'unmatched', receivedAt }, signal);
        await events.deleteMany({ receivedAt: { lt: now - EVENT_RETENTION_MS } });
      },
    },
  };
}
