import type { FastifyInstance } from 'fastify';
import { SECOND } from '../kernel/clock.js';
import type { AuditLog } from '../ops/audit.js';
import { type Metrics, openMetrics } from '../ops/metrics.js';
import { openTelemetry } from '../ops/telemetry.js';
import { lastBackup } from '../storage/existing.js';
import { type HostConnections, hostSource } from '../storage/host-database.js';
import { type RateLimitConfiguration, ratesOf } from '../throttle/options.js';
import { claimStore } from './claimed-store.js';
import { openMeasuredStore } from './measured-store.js';
import {
  createModuleContext,
  followLifecycle,
  type ModuleContext,
  type ModuleContextOptions,
} from './module-context.js';
import type { RuntimeOptions } from './runtime-options.js';
import { rejectUnfinishedCopy } from './unfinished-copy.js';

interface ProductContextOptions<A extends AuditLog>
  extends Pick<ModuleContextOptions<A>, 'production' | 'createAudit' | 'throttleSecret'> {
  product: 'saas-backend' | 'idp';
  values: RateLimitConfiguration & { databaseUri: string; metrics: boolean; telemetry: boolean } & Parameters<
      typeof followLifecycle
    >[2];
  runtime: Pick<ModuleContextOptions<A>, 'clock' | 'random' | 'hashing' | 'limits'> &
    HostConnections & { metricsPeers?: RuntimeOptions['metricsPeers'] | undefined };
}

/** Opens the store of a product and what all of its modules use, until `fastify` closes. */
export async function openProductContext<A extends AuditLog>(
  fastify: FastifyInstance,
  { product, values, runtime, ...options }: ProductContextOptions<A>,
): Promise<ModuleContext<A>> {
  const isIdp = product === 'idp';
  const telemetry = values.telemetry ? await openTelemetry() : undefined;
  const metrics =
    values.metrics || telemetry
      ? await openMetrics(isIdp ? 'idp' : 'saas_backend', runtime.metricsPeers, telemetry?.meter)
      : undefined;
  const source = hostSource(runtime, isIdp ? 'idp' : 'saas') ?? values.databaseUri;
  if (metrics && typeof source === 'string' && source.startsWith('sqlite:')) measureBackup(metrics, source);
  const store = await openMeasuredStore(source, { metrics, telemetry }, fastify.log);
  fastify.addHook('onClose', () => {
    metrics?.close();
    return store.close();
  });
  await rejectUnfinishedCopy(store);
  await claimStore(store, product);
  const context = createModuleContext(store, {
    ...runtime,
    ...options,
    log: fastify.log,
    rates: ratesOf(values),
    metrics,
    telemetry,
  });
  followLifecycle(fastify, context, values);
  return context;
}

function measureBackup(metrics: Metrics, uri: string): void {
  metrics.gauge(
    {
      name: 'backup_last_success_timestamp_seconds',
      help: 'Unix time of the last backup by the command of the program; 0 if there was none.',
      combine: 'max',
    },
    () => [{ labels: {}, value: (lastBackup(uri) ?? 0) / SECOND }],
  );
}
