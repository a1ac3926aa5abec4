import type { FastifyBaseLogger } from 'fastify';
import { SECOND } from '../kernel/clock.js';
import type { Metrics } from '../ops/metrics.js';
import type { Telemetry } from '../ops/telemetry.js';
import type { Store } from '../storage/collection.js';
import { lowDiskSpace } from '../storage/inspect.js';
import { aroundCalls, observeStore } from '../storage/observed-store.js';
import { openStore } from '../storage/open.js';

const BUCKETS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** Opens the store of a product, and warns if its disk is nearly full. Its calls are measured if metrics are enabled, and in the traces of requests. */
export async function openMeasuredStore(
  source: Parameters<typeof openStore>[0],
  { metrics, telemetry }: { metrics?: Metrics | undefined; telemetry?: Telemetry | undefined },
  log: Pick<FastifyBaseLogger, 'warn'>,
): Promise<Store> {
  const opened = await openStore(source);
  const store = telemetry ? aroundCalls(opened, telemetry.storeCall) : opened;
  const space = typeof source === 'string' ? lowDiskSpace(source) : undefined;
  if (space) log.warn(`The database URI ${space.message}. ${space.remedy}`);
  if (!metrics) return store;
  const record = metrics.histogram({
    name: 'store_call_duration_seconds',
    help: 'Duration of the calls of the store.',
    labels: ['collection', 'operation'],
    buckets: BUCKETS,
  });
  return observeStore(store, (collection, operation, milliseconds) =>
    record({ collection, operation }, milliseconds / SECOND),
  );
}
