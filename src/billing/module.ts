import { setTimeout as sleep } from 'node:timers/promises';
import { withLeadingSlash } from '../config/public-url.js';
import type { Scope } from '../http/scope.js';
import { HOUR, SECOND } from '../kernel/clock.js';
import { purgeExpired } from '../ops/purge.js';
import type { ModuleContext } from '../server/module-context.js';
import { type BillingDeletion, createBillingDeletion } from './account-deletion.js';
import { createOpenCheckouts } from './checkout/open-checkouts.js';
import { type CheckoutService, createCheckoutService } from './checkout/service.js';
import { createTrials, trialCollections } from './checkout/trials.js';
import { createCustomerLinks, createEnsureCustomer } from './customers/customers.js';
import { createProfileSync } from './customers/profile-sync.js';
import {
  createGrants,
  createProjector,
  createSummaryOf,
  type Grants,
  type SummaryOf,
} from './entitlement.js';
import { createEventLeases, type Wait } from './events/leases.js';
import { createPaymentRecorder } from './events/payments.js';
import { createEventProcessor } from './events/processor.js';
import { createPurchaseRecorder } from './events/purchases.js';
import { createApplyEvent } from './events/subscription-events.js';
import { createSubscriptionWriter } from './events/subscription-order.js';
import { createLiveDataCheck } from './events/test-mode.js';
import { createWebhook, type Webhook } from './events/webhook.js';
import { type BillingOutbox, createEnqueueMail, type Emit } from './notifications.js';
import { type BillingConfiguration, mayBeLiveKey } from './options.js';
import { createCatalog } from './plans/catalog.js';
import { createPlans, type Plans } from './plans/plans.js';
import { billingAdminPlugin, billingPlugin, webhookPlugin } from './plugin.js';
import { createGateway } from './provider/gateway.js';
import { createPurchaseList, purchaseCollection } from './purchases.js';
import { createBillingJobs, createResync, type Resync } from './reconcile.js';
import { type BillingService, createBillingService } from './service.js';
import {
  type BillingUsers,
  checkoutCollection,
  customerCollection,
  linkedCustomerCollection,
  paymentCollection,
  subscriptionCollection,
  type WebhookEvents,
  webhookEventCollection,
} from './store.js';
import { createSubscriptionChanges, type SubscriptionChanges } from './subscription/changes.js';
import { createSubscriptionDetails } from './subscription/details.js';
import { createDuplicates, duplicateCollection } from './subscription/duplicates.js';
import { createSubscriptionService, type SubscriptionService } from './subscription/service.js';
import { createSubscriptionSync } from './subscription/sync.js';
import { createReportUsage, type ReportUsage, usageCollection } from './usage/reports.js';
import { createUsageJobs } from './usage/sender.js';

/** Subscriptions, payments and grants. The payment provider is the source of truth; the store contains a copy. */
export interface BillingModule {
  service: BillingService;
  checkout: CheckoutService;
  subscription: SubscriptionService;
  changes: SubscriptionChanges;
  reportUsage: ReportUsage;
  summaryOf: SummaryOf;
  grants: Grants;
  plans: Plans;
  deletion: BillingDeletion;
  webhook: Webhook;
  webhookEvents: WebhookEvents;
  resync: Resync;
  /** Sends changed addresses and names to the provider soon. */
  sendProfiles(): void;
  /** The routes for users. */
  plugin(scope: Scope): Promise<void>;
  /** The routes for the operator. */
  adminPlugin(scope: Scope): Promise<void>;
  /** The route for the provider. In a separate scope, because it replaces the body parser. */
  webhookPlugin(scope: Scope): Promise<void>;
}

export interface BillingModuleOptions {
  config: BillingConfiguration;
  users: BillingUsers;
  outbox: BillingOutbox;
  emit: Emit;
  publicUrl(): string;
  /** Whether `resync` processes unmatched events. Default: true. A command leaves them to the server and its listeners. */
  replayEvents?: boolean;
  /** Pauses between two checks of an event in progress. Default: a timer. */
  wait?: Wait;
}

export function createBillingModule(
  context: Pick<ModuleContext, 'store' | 'clock' | 'random' | 'log' | 'audit' | 'jobs'>,
  { config, users, outbox, emit, publicUrl, replayEvents = true, wait = sleep }: BillingModuleOptions,
): BillingModule {
  const { store, clock, random, log, audit, jobs } = context;
  const { paymentSecretKey: key, billingReturnUrlRelative: returnPath, pastDue } = config;
  const events = webhookEventCollection(store);
  const customers = customerCollection(store);
  const subscriptions = subscriptionCollection(store);
  const payments = paymentCollection(store);
  const usage = usageCollection(store);
  const checkouts = checkoutCollection(store);
  const reported = duplicateCollection(store);
  const linkedCustomers = linkedCustomerCollection(store);
  const purchaseDocuments = purchaseCollection(store);
  const links = createCustomerLinks({ customers, linkedCustomers, clock });
  const base = {
    events,
    customers,
    checkouts,
    subscriptions,
    payments,
    duplicates: reported,
    users,
    emit,
    pastDue,
    clock,
    log,
  };

  const gateway = key === undefined ? undefined : createGateway(key, config.paymentApiUrl);
  const plans = createPlans(config, (priceId) =>
    log.warn({ priceId }, `purchased price ${priceId} has no configured plan; no access granted`),
  );
  const purchases = createPurchaseList({ ...base, purchases: purchaseDocuments, plans });
  const writer = createSubscriptionWriter(subscriptions, clock);
  const duplicates = createDuplicates({ ...base, plans });
  const projector = createProjector(purchases.listHeld, users, duplicates.report);
  const trials = createTrials({ ...base, ...trialCollections(store), gateway, random });
  const deletion = createBillingDeletion({
    ...base,
    linkedCustomers,
    links,
    purchases: purchaseDocuments,
    usage,
    trials,
    gateway,
  });
  const { deleteIfUserIsGone } = deletion;
  const leases = createEventLeases(events, { clock, random, wait });
  const recorder = createPaymentRecorder({ ...base, gateway });
  const purchaseRecorder = createPurchaseRecorder({
    ...base,
    purchases: purchaseDocuments,
    recorder,
    projector,
    plans,
    gateway,
  });
  const processor = createEventProcessor({
    ...base,
    links,
    leases,
    recorder,
    purchaseRecorder,
    deleteIfUserIsGone,
    applyEvent: createApplyEvent({ ...base, writer, plans, gateway }),
    projector,
    enqueueMail: createEnqueueMail({
      ...base,
      outbox,
      billingUrl: () => publicUrl() + withLeadingSlash(returnPath),
    }),
    concernsLiveData: createLiveDataCheck(base),
  });
  const sync =
    gateway && createSubscriptionSync({ ...base, gateway, writer, plans, projector, deleteIfUserIsGone });

  const shared = { ...base, processor, deleteIfUserIsGone, gateway, sync };
  const service = createBillingService({ ...shared, purchases, usage, publicUrl, returnPath });
  const details = createSubscriptionDetails({ ...base, plans, gateway });
  const subscription = createSubscriptionService({
    ...shared,
    links,
    purchases,
    purchaseRecorder,
    plans,
    details,
  });
  const changes = createSubscriptionChanges({ ...shared, writer, plans, subscription, audit });
  const catalog = createCatalog({ ...base, plans, gateway });
  const checkout = createCheckoutService({
    ...shared,
    catalog,
    ensureCustomer: createEnsureCustomer(shared),
    openCheckouts: gateway && createOpenCheckouts({ ...base, gateway, random }),
    trials,
    plans,
    publicUrl,
    returnPath,
  });
  const webhook = createWebhook({
    secrets: webhookSecretsOf(config),
    leases,
    processor,
    ignoresTestEvents: mayBeLiveKey(key),
    audit,
    clock,
  });

  const { reconcile, retryUnmatched } = createBillingJobs({
    ...shared,
    recorder,
    purchases: purchaseDocuments,
    purchaseRecorder,
  });
  // The names of the leases in the store, from an earlier version.
  jobs.add('billing-settle', reconcile);
  jobs.add('billing-recheck', retryUnmatched);
  if (gateway) {
    const usageJobs = createUsageJobs({ ...base, reports: usage, gateway });
    jobs.add('billing-usage', usageJobs.send);
    jobs.add('billing-usage-purge', usageJobs.purge);
  }
  jobs.add('checkout-purge', {
    everySeconds: HOUR / SECOND,
    run: async ({ signal }) => void (await purgeExpired(checkouts, { now: clock.now(), signal })),
  });

  if (gateway) jobs.add('customer-profiles', createProfileSync({ ...base, gateway }));

  return {
    service,
    checkout,
    subscription,
    changes,
    reportUsage: createReportUsage({ ...base, reports: usage, isConfigured: gateway !== undefined }),
    summaryOf: createSummaryOf({
      listHeld: purchases.listHeld,
      pastDue,
      clock,
    }),
    grants: createGrants({ users, audit, clock }),
    plans,
    deletion,
    webhook,
    webhookEvents: events,
    resync: createResync({
      ...shared,
      replayUnmatched: replayEvents ? processor.replayUnmatched : undefined,
    }),
    sendProfiles: gateway ? () => void jobs.runNow('customer-profiles') : () => undefined,
    plugin: (scope) =>
      billingPlugin(scope, {
        service,
        checkout,
        subscription,
        catalog,
        changes,
        purchases,
        allowPause: config.billingAllowPause === true,
      }),
    adminPlugin: (scope) => billingAdminPlugin(scope, { duplicates }),
    webhookPlugin: (scope) => webhookPlugin(scope, { webhook }),
  };
}

const webhookSecretsOf = (config: BillingConfiguration): string[] =>
  [config.paymentWebhookSecret, config.paymentWebhookSecretPrevious].filter((secret) => secret !== undefined);
