import type { FastifyTypebox } from '../../core/http/routes.js';
import { createEncryption } from '../../core/kernel/encryption.js';
import { createOutbound, type OutboundOptions, type Reach } from '../../core/outbound/request.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Console } from '../../shared/console-kit/console.js';
import { createDeliveryService } from './deliveries.js';
import { createEncryptionJob } from './encryption.js';
import { createEndpointHealth } from './health.js';
import { measureWebhooks } from './metrics.js';
import { createWebhookOutbox } from './outbox.js';
import { createDeliveryPersonalData } from './personal-data.js';
import { webhookPagesPlugin } from './plugin.js';
import { ANSWER_TIMEOUT_MS, createSender } from './sender.js';
import { createEndpointService } from './service.js';
import { deliveryCollection, endpointCollection } from './store.js';

/** Webhooks: events for endpoints of the integrator, in an outbox in the store, and the job that sends them. */
export type WebhooksModule = ReturnType<typeof createWebhooksModule>;

export interface WebhooksModuleOptions {
  /** The names of all events. */
  names: readonly string[];
  reach: Reach;
  /** The encryption keys, the current one first. */
  keys: readonly string[];
  lookup?: OutboundOptions['lookup'];
}

export function createWebhooksModule(
  {
    store,
    commit,
    jobs,
    clock,
    random,
    log,
    metrics,
    audit,
    accountData,
  }: Pick<
    ModuleContext,
    'store' | 'commit' | 'jobs' | 'clock' | 'random' | 'log' | 'metrics' | 'audit' | 'accountData'
  >,
  { names, reach, keys, lookup }: WebhooksModuleOptions,
) {
  const endpoints = endpointCollection(store);
  const deliveries = deliveryCollection(store);
  const encryption = createEncryption({
    keys,
    purpose: 'saas-backend webhooks',
    unreadable: (id) =>
      `The secret of endpoint ${id} cannot be decrypted. Set SETTINGS_ENCRYPTION_KEY or SETTINGS_ENCRYPTION_KEY_PREVIOUS to the key that encrypted it, or rotate the secret.`,
    random,
  });
  const wake = () => {
    sender.notify();
    void jobs.runNow('webhooks');
  };
  const base = { endpoints, deliveries, commit, encryption, wake, audit, clock, random, log };
  const sender = createSender({
    ...base,
    health: createEndpointHealth(base),
    send: createOutbound({ reach, timeoutMs: ANSWER_TIMEOUT_MS, ...(lookup && { lookup }) }),
    onAttempt: metrics && measureWebhooks(metrics, base),
  });
  const outbox = createWebhookOutbox(base);
  const service = createEndpointService({ ...base, names, reach });
  const personalData = createDeliveryPersonalData(base);
  accountData.add({ section: { name: 'webhookDeliveries', read: personalData.listByUser } });
  jobs.add('webhooks', sender.jobs.send);
  jobs.add('webhooks-purge', sender.jobs.purge);
  jobs.add('webhooks-encryption', createEncryptionJob(base));
  return {
    outbox,
    service,
    personalData,
    /** The pages of the admin area. */
    adminPlugin: (fastify: FastifyTypebox, { console }: { console: Console }) =>
      webhookPagesPlugin(fastify, { console, endpoints: service, deliveries: createDeliveryService(base) }),
  };
}
