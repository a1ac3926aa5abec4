import { type Clock, SECOND } from '../kernel/clock.js';
import type { Metrics } from '../ops/metrics.js';
import type { Mails } from './store.js';

/** Mails counted at a scrape. */
const MAX_COUNTED = 10_000;

/** Mails whose age is compared at a scrape. */
const MAX_COMPARED = 200;

/** Only mails that are not finished have the field. */
const UNFINISHED = { dueAt: { gte: 0 } };

/** Declares the metrics of the outbox. */
export function measureOutbox(metrics: Metrics, { mails, clock }: { mails: Mails; clock: Clock }): void {
  metrics.storeGauge(
    { name: 'mail_outbox_mails', help: `Mails that are not sent yet, counted up to ${MAX_COUNTED}.` },
    async () => [{ labels: {}, value: await mails.count(UNFINISHED, MAX_COUNTED) }],
  );
  metrics.storeGauge(
    {
      name: 'mail_outbox_oldest_age_seconds',
      help: `Age of the oldest mail among the ${MAX_COMPARED} that are attempted next; 0 if there is none.`,
    },
    async () => {
      const { items } = await mails.page({ where: UNFINISHED, sort: 'dueAt', limit: MAX_COMPARED });
      const oldest = Math.min(...items.map(({ createdAt }) => createdAt), clock.now());
      return [{ labels: {}, value: (clock.now() - oldest) / SECOND }];
    },
  );
}
