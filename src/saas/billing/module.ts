import type { FastifyTypebox } from '../../core/http/routes.js';
import type { Jobs } from '../../core/ops/jobs.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import { createBillingDeletion } from './account-deletion.js';
import { createCheckoutService } from './checkout/service.js';
import { createTrials } from './checkout/trials.js';
import {
  type BillingContext,
  type BillingModuleContext,
  type BillingModuleOptions,
  createBillingContext,
} from './context.js';
import { type CustomerLinks, createCustomerLinks, createEnsureCustomer } from './customers/customers.js';
import { createCustomerImport } from './customers/import.js';
import { createProfileSync } from './customers/profile-sync.js';
import { createSummaryOf } from './entitlement.js';
import { createPaymentEvents } from './events/module.js';
import type { EventRecovery } from './events/recovery.js';
import { webhookPlugin } from './events/webhook.js';
import { createBillingExport } from './export.js';
import { createBillingFigures, createFigureJob, measureFigures } from './figures/service.js';
import { createGrants } from './grants.js';
import { createHoldings } from './holdings.js';
import { createCatalog } from './plans/catalog.js';
import { createLookupKeys } from './plans/lookup-keys.js';
import { billingAdminPlugin, billingPlugin, type OwnerOf } from './plugin.js';
import { createOpenPortal } from './portal.js';
import { createProjector } from './projection.js';
import { createPurchaseList } from './purchases.js';
import { createQuotas } from './quotas/service.js';
import { type BillingJobDependencies, createBillingJobs } from './reconcile.js';
import { createRecords } from './records.js';
import { createRefunds } from './refunds.js';
import { createResync } from './resync.js';
import { createSeatJob } from './seat-job.js';
import { createSeats } from './seats.js';
import { CUSTOMER_COLLECTION } from './store.js';
import { createSubscriptionChanges } from './subscription/changes.js';
import { createDuplicates } from './subscription/duplicates.js';
import { createSubscriptionService } from './subscription/service.js';
import { createSubscriptionSync } from './subscription/sync.js';
import { createSubscriptionWriter } from './subscription/writer.js';
import { createReportUsage } from './usage/reports.js';
import { createUsageJobs } from './usage/sender.js';

/** Subscriptions, payments and grants. The payment provider is the source of truth; the store contains a copy. */
export type BillingModule = ReturnType<typeof createBillingModule>;

export function createBillingModule(product: BillingModuleContext, options: BillingModuleOptions) {
  const context = createBillingContext(product, options);
  const { config, gateway } = context;
  const writes = createSubscriptionWrites(context);
  const { links, holdings, trials, duplicates, writer, quotas, sync } = writes;
  const deletion = createBillingDeletion(context, { links, quotas, trials });
  const events = createPaymentEvents(context, writes);
  const { processor } = events;

  const seats = createSeats(context);
  const purchases = createPurchaseList(context);
  const subscription = createSubscriptionService(context, { ...writes, ...events });
  const changes = createSubscriptionChanges(context, { writer, holdings, seats, subscription, sync });
  const lookupKeys = createLookupKeys(context);
  const catalog = createCatalog(context, { links, lookupKeys });
  const ensureCustomer = createEnsureCustomer(context, links, processor.replayUnmatched);
  const checkout = createCheckoutService(context, { ensureCustomer, holdings, seats, catalog, trials, sync });
  const userApi = {
    openPortal: createOpenPortal(context, links),
    checkout,
    subscription,
    catalog,
    changes,
    purchases,
    quotas,
  };

  product.accountData.add({
    section: { name: 'billing', read: createBillingExport(context, { links, purchases, quotas }) },
    close: deletion.cancelSubscriptions,
    delete: deletion.deleteBillingData,
  });
  if (gateway)
    product.jobs.add('organization-seats', createSeatJob(context, { holdings, subscription, changes }));
  const isConfigured = gateway !== undefined || context.webhookSecrets.length > 0;
  if (isConfigured) product.jobs.add('billing-figures', createFigureJob(context));
  if (isConfigured && context.metrics) measureFigures(context.metrics, context);
  addJobs(product.jobs, context, { ...events, links, sync });

  return {
    ...userApi,
    reportUsage: createReportUsage(context),
    summaryOf: createSummaryOf(context),
    grants: createGrants(context),
    plans: context.plans,
    /** To be awaited before anything is done with plans. */
    loadPrices: lookupKeys.load,
    deletion,
    webhook: events.webhook,
    paymentEvents: context.paymentEvents,
    eventLog: events.eventLog,
    seats,
    records: createRecords(context, writes),
    refunds: createRefunds(context),
    /** Absent if neither an API key nor a webhook secret is configured. */
    figures: isConfigured ? createBillingFigures(context) : undefined,
    duplicates,
    /** Links customers of the provider that existed before to users. */
    importCustomers: createCustomerImport(context, { links, sync }),
    /** For the commit of a new user. */
    customers: { collection: CUSTOMER_COLLECTION, linking: links.linking },
    resync: createResync(context, {
      sync,
      recovery: events.recovery,
      replayUnmatched: options.replayEvents === false ? undefined : processor.replayUnmatched,
    }),
    /** Sends changed addresses and names to the provider soon. */
    profileChanged: {
      writes: [],
      afterCommit: () => (gateway ? void product.jobs.runNow('customer-profiles') : undefined),
    },
    /** For the commit of another address or name. */
    profileMark: () => (gateway ? { profileChangedAt: context.clock.now() } : {}),
    /** The routes for users. */
    plugin: (fastify: FastifyTypebox, ownerOf: OwnerOf) =>
      billingPlugin(fastify, { ...userApi, ownerOf, allowPause: config.billingAllowPause === true }),
    /** The routes for the operator. */
    adminPlugin: (fastify: FastifyTypebox) => billingAdminPlugin(fastify, duplicates),
    /** The route for the provider. In a separate context, because it replaces the body parser. */
    webhookPlugin: (fastify: FastifyTypebox) => webhookPlugin(fastify, events.webhook),
  };
}

/** What writes subscriptions, their customers and the access that they give. */
function createSubscriptionWrites(context: BillingContext) {
  const links = createCustomerLinks(context);
  const trials = createTrials(context);
  const holdings = createHoldings(context);
  const duplicates = createDuplicates(context, holdings);
  const projector = createProjector(context, holdings, duplicates.reporting);
  const writer = createSubscriptionWriter(context);
  const quotas = createQuotas(context);
  const sync = createSubscriptionSync(context, { writer, projector });
  return { links, trials, holdings, quotas, duplicates, projector, writer, sync };
}

function addJobs(
  jobs: Jobs,
  context: BillingContext,
  deps: BillingJobDependencies & { links: CustomerLinks; recovery: EventRecovery },
): void {
  const { reconcile, retryUnmatched, purge } = createBillingJobs(context, deps);
  jobs.add('billing-reconcile', reconcile);
  jobs.add('billing-retry-unmatched', retryUnmatched);
  jobs.add('billing-event-purge', purge);
  const { gateway, checkouts, clock } = context;
  if (!gateway) return;
  const usage = createUsageJobs(context, { links: deps.links, gateway });
  jobs.add('billing-event-recovery', deps.recovery.job);
  jobs.add('billing-usage', usage.send);
  jobs.add('billing-usage-purge', usage.purge);
  jobs.add('customer-profiles', createProfileSync(context, gateway));
  jobs.add('checkout-purge', createExpiryPurge(checkouts, clock));
}
