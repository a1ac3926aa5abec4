import { setTimeout as sleep } from 'node:timers/promises';
import { withLeadingSlash } from '../../core/config/public-url.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { createBillingDeletion } from './account-deletion.js';
import { createCheckoutPurge, createOpenCheckouts } from './checkout/open-checkouts.js';
import { createCheckoutService } from './checkout/service.js';
import { createTrials } from './checkout/trials.js';
import { billingCollections } from './collections.js';
import { createCustomerLinks, createEnsureCustomer } from './customers/customers.js';
import { createProfileSync } from './customers/profile-sync.js';
import { createListHeld, createProjector, createSummaryOf } from './entitlement.js';
import type { Wait } from './events/leases.js';
import { createBillingEvents } from './events/module.js';
import { webhookPlugin } from './events/webhook.js';
import { createBillingFigures, createFigureJob } from './figures/service.js';
import { createGrants } from './grants.js';
import {
  type AnnounceNotification,
  type BillingOutbox,
  createEnqueueMail,
  type Emit,
} from './notifications.js';
import { type BillingConfiguration, mayBeLiveKey } from './options.js';
import { createCatalog } from './plans/catalog.js';
import { createPlans } from './plans/plans.js';
import { billingAdminPlugin, billingPlugin } from './plugin.js';
import { createDashboardUrl } from './provider/dashboard.js';
import { createGateway } from './provider/gateway.js';
import { createPurchaseList } from './purchases.js';
import { createBillingJobs, createResync } from './reconcile.js';
import { createRecords } from './records.js';
import { createBillingService } from './service.js';
import { createSubscriptionChanges } from './subscription/changes.js';
import { createSubscriptionDetails } from './subscription/details.js';
import { createDuplicates } from './subscription/duplicates.js';
import { createSubscriptionService } from './subscription/service.js';
import { createSubscriptionSync } from './subscription/sync.js';
import { createSubscriptionWriter } from './subscription/writer.js';
import { createReportUsage } from './usage/reports.js';
import { createUsageJobs } from './usage/sender.js';
import type { BillingUsers } from './users.js';

/** Subscriptions, payments and grants. The payment provider is the source of truth; the store contains a copy. */
export type BillingModule = ReturnType<typeof createBillingModule>;

export interface BillingModuleOptions {
  config: BillingConfiguration;
  users: BillingUsers;
  outbox: BillingOutbox;
  emit: Emit;
  /** Gives a notification to webhooks before the step that prevents its repetition. Default: there are none. */
  record?: Emit;
  announceEvent: AnnounceNotification;
  publicUrl(): string;
  /** Whether `resync` processes unmatched events. Default: true. A command leaves them to the server and its listeners. */
  replayEvents?: boolean;
  /** Pauses between two checks of an event in progress. Default: a timer. */
  wait?: Wait;
}

export function createBillingModule(
  context: Pick<
    ModuleContext,
    'store' | 'clock' | 'random' | 'log' | 'audit' | 'jobs' | 'metrics' | 'accountData'
  >,
  {
    config,
    users,
    outbox,
    emit,
    record = async () => undefined,
    announceEvent,
    publicUrl,
    replayEvents = true,
    wait = sleep,
  }: BillingModuleOptions,
) {
  const { store, clock, random, log, audit, jobs, metrics } = context;
  const { paymentSecretKey: key, billingReturnUrlRelative: returnPath, pastDue } = config;
  const gateway = key === undefined ? undefined : createGateway(key, config.paymentApiUrl);
  const plans = createPlans(config, (priceId) =>
    log.warn({ priceId }, `purchased price ${priceId} has no configured plan; no access granted`),
  );
  const collections = billingCollections(store);
  const dashboardUrl = createDashboardUrl(key, config.paymentApiUrl);
  const base = {
    ...collections,
    dashboardUrl,
    gateway,
    plans,
    users,
    emit,
    record,
    announceEvent,
    pastDue,
    audit,
    clock,
    random,
    log,
  };

  const links = createCustomerLinks(base);
  const trials = createTrials(base);
  const deletion = createBillingDeletion({ ...base, links, trials });
  const listHeld = createListHeld(base);
  const duplicates = createDuplicates(base);
  const projector = createProjector(listHeld, users, duplicates.report);
  const writer = createSubscriptionWriter(collections.subscriptions, clock);
  const { deleteIfUserIsGone } = deletion;
  const writes = { ...base, links, projector, writer, deleteIfUserIsGone };

  const billingUrl = () => publicUrl() + withLeadingSlash(returnPath);
  const events = createBillingEvents({
    ...writes,
    store,
    secrets: webhookSecretsOf(config),
    ignoresTestEvents: mayBeLiveKey(key),
    enqueueMail: createEnqueueMail({ ...base, outbox, billingUrl }),
    wait,
    metrics,
  });
  const { processor, eventLog } = events;
  const sync = gateway && createSubscriptionSync({ ...writes, gateway });
  const shared = { ...writes, ...events, sync, publicUrl, returnPath };

  const purchases = createPurchaseList(base);
  const service = createBillingService({ ...shared, purchases });
  const details = createSubscriptionDetails(base);
  const subscription = createSubscriptionService({ ...shared, listHeld, details });
  const changes = createSubscriptionChanges({ ...shared, subscription });
  const catalog = createCatalog(base);
  const checkout = createCheckoutService({
    ...shared,
    catalog,
    ensureCustomer: createEnsureCustomer(shared),
    openCheckouts: gateway && createOpenCheckouts({ ...base, gateway }),
    trials,
  });

  context.accountData.add({
    section: { name: 'billing', read: service.recordsOf },
    close: deletion.cancelSubscriptions,
    delete: deletion.deleteBillingData,
  });

  const { reconcile, retryUnmatched, purge } = createBillingJobs(shared);
  jobs.add('billing-reconcile', reconcile);
  jobs.add('billing-retry-unmatched', retryUnmatched);
  jobs.add('billing-event-purge', purge);
  if (gateway) {
    const usageJobs = createUsageJobs({ ...base, reports: collections.usage, gateway });
    jobs.add('billing-usage', usageJobs.send);
    jobs.add('billing-usage-purge', usageJobs.purge);
    jobs.add('customer-profiles', createProfileSync({ ...base, gateway }));
    jobs.add('checkout-purge', createCheckoutPurge(base));
  }

  const isConfigured = key !== undefined || webhookSecretsOf(config).length > 0;
  if (isConfigured) jobs.add('billing-figures', createFigureJob({ ...base }));

  return {
    service,
    checkout,
    subscription,
    catalog,
    changes,
    reportUsage: createReportUsage({
      ...base,
      reports: collections.usage,
      isConfigured: gateway !== undefined,
    }),
    summaryOf: createSummaryOf(base),
    grants: createGrants(base),
    plans,
    deletion,
    webhook: events.webhook,
    webhookEvents: collections.events,
    /** For the operator. */
    eventLog,
    records: createRecords(base),
    purchases,
    /** Absent if neither an API key nor a webhook secret is configured. */
    figures: isConfigured ? createBillingFigures(base) : undefined,
    duplicates,
    resync: createResync({
      ...shared,
      replayUnmatched: replayEvents ? processor.replayUnmatched : undefined,
    }),
    /** Sends changed addresses and names to the provider soon. */
    sendProfiles: gateway ? () => void jobs.runNow('customer-profiles') : () => undefined,
    /** The routes for users. */
    plugin: (fastify: FastifyTypebox) =>
      billingPlugin(fastify, {
        service,
        checkout,
        subscription,
        catalog,
        changes,
        purchases,
        allowPause: config.billingAllowPause === true,
      }),
    /** The routes for the operator. */
    adminPlugin: (fastify: FastifyTypebox) => billingAdminPlugin(fastify, { duplicates }),
    /** The route for the provider. In a separate context, because it replaces the body parser. */
    webhookPlugin: (fastify: FastifyTypebox) => webhookPlugin(fastify, events),
  };
}

const webhookSecretsOf = (config: BillingConfiguration): string[] =>
  [config.paymentWebhookSecret, config.paymentWebhookSecretPrevious].filter((secret) => secret !== undefined);
