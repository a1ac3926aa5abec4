import type { Collection, Store } from '../../core/storage/collection.js';
import { type TrialCollections, trialCollections } from './checkout/trials.js';
import { type FigureCollections, figureCollections } from './figures/store.js';
import { type Purchases, purchaseCollection } from './purchases.js';
import {
  type Checkouts,
  type Customers,
  checkoutCollection,
  customerCollection,
  type LinkedCustomers,
  linkedCustomerCollection,
  type Payments,
  paymentCollection,
  type Subscriptions,
  subscriptionCollection,
  type WebhookEvents,
  webhookEventCollection,
} from './store.js';
import { type DuplicateDocument, duplicateCollection } from './subscription/duplicates.js';
import { type UsageReports, usageCollection } from './usage/reports.js';

/**
 * Everything that billing stores. Without an API key nothing is added to checkouts and usage, but the deletion of an
 * account removes what was stored while a key was configured.
 */
export interface BillingCollections extends TrialCollections, FigureCollections {
  events: WebhookEvents;
  customers: Customers;
  linkedCustomers: LinkedCustomers;
  checkouts: Checkouts;
  subscriptions: Subscriptions;
  duplicates: Collection<DuplicateDocument>;
  payments: Payments;
  purchases: Purchases;
  usage: UsageReports;
}

export const billingCollections = (store: Store): BillingCollections => ({
  ...trialCollections(store),
  ...figureCollections(store),
  events: webhookEventCollection(store),
  customers: customerCollection(store),
  linkedCustomers: linkedCustomerCollection(store),
  checkouts: checkoutCollection(store),
  subscriptions: subscriptionCollection(store),
  duplicates: duplicateCollection(store),
  payments: paymentCollection(store),
  purchases: purchaseCollection(store),
  usage: usageCollection(store),
});
