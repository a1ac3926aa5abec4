import { type Clock, DAY, MINUTE } from '../kernel/clock.js';
import type { Lease } from '../ops/jobs.js';
import { leasesOver } from './claims.js';
import type { FetchLog } from './fetch.js';
import type { Processor } from './process.js';
import type { Refresh } from './refresh.js';
import type { Subscriptions, WebhookEventDocument, WebhookEvents } from './store.js';

/**
 * The background's part: events that nobody finished, events whose owner has become known unnoticed, subscriptions in
 * doubt and those whose period ended without a word.
 */
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

/** How long an event of nobody's is worth another look. */
const HOPE = 30 * DAY;

/** How long an event is remembered. The provider repeats one for three days and lists it for thirty. */
const MEMORY = 90 * DAY;

/** When to ask again about a subscription that the provider could not tell of. */
const AGAIN = 15 * MINUTE;

export function createRecheck(deps: RecheckDependencies): (lease: Pick<Lease, 'signal'>) => Promise<void> {
  const { events, subscriptions, processor, refresh, clock, log } = deps;

  /** Takes up every event of one page after the other; one that fails keeps none of the others waiting. */
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

  const askAgain = async (signal: AbortSignal): Promise<void> => {
    if (!refresh) return;
    const query = { where: { recheckAt: { lte: clock.now() } }, sort: 'recheckAt', limit: PAGE } as const;
    const { items } = await subscriptions.page(query);
    for (const { id, userId, rev } of items) {
      if (signal.aborted) return;
      try {
        await refresh.one(id, userId);
      } catch (err) {
        log.warn({ err, subscription: id }, 'a subscription in doubt could not be settled');
        await subscriptions.updateOne(
          { id, rev },
          { set: { recheckAt: clock.now() + AGAIN }, inc: { rev: 1 } },
        );
      }
    }
    if (items.length === PAGE) await askAgain(signal);
  };

  return async ({ signal }) => {
    const now = clock.now();
    for (const leaseUntil of leasesOver(now)) await resumeAll({ outcome: null, leaseUntil }, signal);
    await resumeAll({ outcome: 'unmatched', receivedAt: { gte: now - HOPE } }, signal);
    await askAgain(signal);
    await events.deleteMany({ receivedAt: { lt: now - MEMORY } });
  };
}
