import type { Clock } from '../../core/kernel/clock.js';
import type { Metrics } from '../../core/ops/metrics.js';
import { MAX_COMPARED, MAX_COUNTED, oldestPendingAge, pendingCount } from '../../core/ops/outbox-metrics.js';
import type { Deliveries } from './store.js';

/** Declares the metrics of webhooks. Returns the function that counts attempts. */
export function measureWebhooks(
  metrics: Metrics,
  { deliveries, clock }: { deliveries: Deliveries; clock: Clock },
): (result: 'delivered' | 'refused' | 'unanswered') => void {
  metrics.storeGauge(
    {
      name: 'webhook_pending_deliveries',
      help: `Deliveries that are pending, counted up to ${MAX_COUNTED}.`,
    },
    () => pendingCount(deliveries),
  );
  metrics.storeGauge(
    {
      name: 'webhook_failed_deliveries',
      help: `Deliveries of the last 30 days that failed for good, counted up to ${MAX_COUNTED}.`,
    },
    async () => [{ labels: {}, value: await deliveries.count({ status: 'failed' }, MAX_COUNTED) }],
  );
  metrics.storeGauge(
    {
      name: 'webhook_oldest_pending_age_seconds',
      help: `Age of the oldest delivery among the ${MAX_COMPARED} that are attempted next; 0 if there is none.`,
    },
    () => oldestPendingAge(deliveries, clock),
  );
  const count = metrics.counter({
    name: 'webhook_attempts_total',
    help: 'Attempts to deliver an event: delivered, refused by the endpoint, or unanswered.',
    labels: ['result'],
    initial: [{ result: 'delivered' }, { result: 'refused' }, { result: 'unanswered' }],
  });
  return (result) => count({ result });
}
