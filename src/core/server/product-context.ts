import type { FastifyInstance } from 'fastify';
import type { AuditLog } from '../ops/audit.js';
import { openMetrics } from '../ops/metrics.js';
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
  values: RateLimitConfiguration & { databaseUri: string; metrics: boolean } & Parameters<
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
  const metrics = values.metrics
    ? await openMetrics(isIdp ? 'idp' : 'saas_backend', runtime.metricsPeers)
    : undefined;
  const source = hostSource(runtime, isIdp ? 'idp' : 'saas') ?? values.databaseUri;
  const store = await openMeasuredStore(source, metrics, fastify.log);
  fastify.addHook('onClose', () => store.close());
  await rejectUnfinishedCopy(store);
  await claimStore(store, product);
  const context = createModuleContext(store, {
    ...runtime,
    ...options,
    log: fastify.log,
    rates: ratesOf(values),
    metrics,
  });
  followLifecycle(fastify, context, values);
  return context;
}
