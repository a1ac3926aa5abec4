import { setTimeout as sleep } from 'node:timers/promises';
import { withLeadingSlash } from '../../core/config/public-url.js';
import { type CommitParts, decideAndCommit } from '../../core/ops/commit.js';
import type { EventOf } from '../../core/ops/events.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { nullIfTaken } from '../../core/storage/collection.js';
import { createModeCheck } from './entitlement.js';
import { billingErrors } from './errors.js';
import type { Wait } from './events/leases.js';
import { figureCollections } from './figures/store.js';
import type { BillingEvents, BillingOutbox } from './notifications.js';
import type { BillingConfiguration } from './options.js';
import type { BillingOwner, BillingOwners } from './owners.js';
import { createPlans } from './plans/plans.js';
import type { CheckoutParameters } from './provider/checkout-sessions.js';
import { createDashboardUrl } from './provider/dashboard.js';
import { createGateway, type Gateway } from './provider/gateway.js';
import { purchaseCollection } from './purchases.js';
import { quotaCollections } from './quotas/store.js';
import type { CheckoutOrder } from './schemas.js';
import { billingCollections } from './store.js';
import { usageCollection } from './usage/reports.js';

export interface BillingModuleOptions {
  config: BillingConfiguration;
  owners: BillingOwners;
  outbox: BillingOutbox;
  event: EventOf<BillingEvents>;
  publicUrl(): string;
  /** The page to which who paid for this owner returns. Default: the option `billingReturnUrlRelative`. */
  returnPathOf?(ownerId: string): string;
  /** The hook `checkoutSession`. */
  editCheckout?: EditCheckout | undefined;
  /** Whether `resync` processes unmatched events. Default: true. A command leaves them to the server and its listeners. */
  replayEvents?: boolean;
  /** Pauses between two checks of an event in progress. Default: a timer. */
  wait?: Wait;
}

/** A checkout session that is about to be opened. */
export interface NewCheckoutSession {
  /** As the order has them, in the names of the provider. */
  parameters: CheckoutParameters;
  /** Who buys: a user, or an organization with the address for its invoices. */
  owner: { id: string; email: string };
  /** What is bought, and the options that code on the server has set. */
  order: CheckoutOrder;
}

export type EditCheckout = (session: NewCheckoutSession) => Promise<CheckoutParameters>;

/** The services of the product that billing uses. */
export type BillingModuleContext = Pick<
  ModuleContext,
  | 'store'
  | 'commit'
  | 'clock'
  | 'random'
  | 'log'
  | 'audit'
  | 'jobs'
  | 'metrics'
  | 'accountData'
  | 'throttle'
  | 'backgroundTasks'
>;

/** Writes and effects that are made in one commit. */
export type CommitPart = Parameters<CommitParts>[0][number];

/** What the services of billing have in common. */
export type BillingContext = ReturnType<typeof createBillingContext>;

export function createBillingContext(
  { store, commit, clock, random, log, audit, metrics, throttle, backgroundTasks }: BillingModuleContext,
  options: BillingModuleOptions,
) {
  const { config, owners, outbox, event, publicUrl } = options;
  const { paymentSecretKey: key, paymentApiUrl, pastDue } = config;
  const gateway = key === undefined ? undefined : createGateway(key, paymentApiUrl);
  /** Commits what was derived from stored data. False if a concurrent write came first, after which the caller reads again. */
  const tryCommit = async (parts: readonly CommitPart[]): Promise<boolean> =>
    (await commit(parts).catch(nullIfTaken))?.committed === true;
  return {
    commit,
    tryCommit,
    /**
     * Commits what `derive` reads and changes for an owner, again after each concurrent write. Nothing if it returns null, or if the owner
     * does not exist or is being deleted.
     */
    commitForOwner: (
      ownerId: string,
      derive: (owner: BillingOwner) => Promise<readonly CommitPart[] | null>,
    ): Promise<void> =>
      decideAndCommit(commit, async () => {
        const owner = await owners.find(ownerId);
        const parts = owner && !owner.isBeingDeleted ? await derive(owner) : null;
        return { parts: parts ?? [], result: undefined, repeatIfTaken: true };
      }),
    // Without an API key nothing is added to checkouts and usage, but the deletion of an account removes what was stored
    // while a key was configured.
    ...billingCollections(store),
    ...figureCollections(store),
    ...quotaCollections(store),
    purchases: purchaseCollection(store),
    usage: usageCollection(store),
    clock,
    random,
    log,
    audit,
    backgroundTasks,
    metrics,
    throttle,
    config,
    pastDue,
    owners,
    outbox,
    event,
    plans: createPlans(config, (priceId) =>
      log.warn({ priceId }, `purchased price ${priceId} has no configured plan; no access granted`),
    ),
    editCheckout: options.editCheckout,
    /** Absent while no API key is configured. */
    gateway,
    /** @throws BILLING_NOT_CONFIGURED */
    requireGateway(): Gateway {
      if (!gateway) throw billingErrors.BILLING_NOT_CONFIGURED();
      return gateway;
    },
    counts: createModeCheck(key),
    dashboardUrl: createDashboardUrl(key, paymentApiUrl),
    /** A page of the application to which users return. */
    returnUrl: (
      ownerId: string,
      path = options.returnPathOf?.(ownerId) ?? config.billingReturnUrlRelative,
    ): string => publicUrl() + withLeadingSlash(path),
    /** The provider may sign with any of them. Without secrets, every delivery is rejected. */
    webhookSecrets: [config.paymentWebhookSecret, config.paymentWebhookSecretPrevious].filter(
      (secret) => secret !== undefined,
    ),
    wait: options.wait ?? sleep,
  };
}
