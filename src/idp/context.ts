import type { FastifyInstance } from 'fastify';
import type { Resolved } from '../core/config/options.js';
import { createAudit } from '../core/ops/audit.js';
import { openMetrics } from '../core/ops/metrics.js';
import { claimStore } from '../core/server/claimed-store.js';
import { openMeasuredStore } from '../core/server/measured-store.js';
import { createModuleContext, followLifecycle, type ModuleContext } from '../core/server/module-context.js';
import { rejectUnfinishedCopy } from '../core/server/unfinished-copy.js';
import { hostSource } from '../core/storage/host-database.js';
import { ratesOf } from '../core/throttle/options.js';
import type { Appearance } from './appearance.js';
import type { IdpConfiguration, ResolvedIdp } from './options.js';

/** What the modules of the provider get beside the services of every module. */
export interface IdpContext extends ModuleContext, Appearance, Resolved<IdpConfiguration> {
  issuer(): string;
  /** Whether people have pages at `/account`. */
  hasAccountPages: boolean;
}

/** Opens the store and what all modules use, until `fastify` closes. */
export async function openContext(
  fastify: FastifyInstance,
  { config, runtime }: ResolvedIdp,
  own: Appearance & Pick<IdpContext, 'issuer' | 'hasAccountPages'>,
): Promise<IdpContext> {
  const { values, production } = config;
  const metrics = values.metrics ? await openMetrics('idp', runtime.metricsPeers) : undefined;
  const store = await openMeasuredStore(
    hostSource(runtime, 'idp') ?? values.databaseUri,
    metrics,
    fastify.log,
  );
  fastify.addHook('onClose', () => store.close());
  await rejectUnfinishedCopy(store);
  await claimStore(store, 'idp');
  const context = createModuleContext(store, {
    ...runtime,
    production,
    log: fastify.log,
    createAudit,
    throttleSecret: values.ed25519Seed,
    rates: ratesOf(values),
    metrics,
  });
  followLifecycle(fastify, context, values);
  return { ...config, ...context, ...own };
}
