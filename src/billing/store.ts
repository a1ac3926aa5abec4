import type { Collection, Store } from '../storage/collection.js';

/** One event of the provider: a claim while it is worked on, a memory of its outcome backgroundTasks. */
export interface WebhookEventDocument {
  /** The provider's event id, else the signature that matched: what makes two deliveries the same. */
  id: string;
  type: string;
  /** `data.object.id` */
  objectId: string;
  /** Whose it is: the provider's customer, or the subscription where it names none. By this it is found again. */
  about?: string;
  /** The verified body, so that an event can be applied again. */
  payload: string;
  receivedAt: number;
  attempts: number;
  /** Whoever works on it; a claim that ran out may be taken over. */
  owner: string;
  leaseUntil: number;
  /** Absent until the event is done with. */
  outcome?: EventOutcome;
}

/**
 * - `processed`: it changed something, or recorded what it tells of
 * - `stale`: something newer is known already
 * - `ignored`: its kind changes nothing here
 * - `unmatched`: nobody here is known by it yet
 */
export type EventOutcome = 'processed' | 'stale' | 'ignored' | 'unmatched';

export type WebhookEvents = Collection<WebhookEventDocument>;

export function webhookEventCollection(store: Store): WebhookEvents {
  return store.collection<WebhookEventDocument>('webhook_events', {
    indexes: [['receivedAt'], ['about'], ['outcome', 'receivedAt']],
    fields: ['leaseUntil', 'owner'],
  });
}

/** A user as the payment provider knows them. */
export interface CustomerDocument {
  /** The user's id: one customer for each. */
  id: string;
  /** The provider's: one user for each. */
  customerId: string;
  createdAt: number;
}

export type Customers = Collection<CustomerDocument>;

export function customerCollection(store: Store): Customers {
  return store.collection<CustomerDocument>('customers', { unique: ['customerId'] });
}

/** What is sold, and for how long. Epoch milliseconds. */
export interface SubscriptionTerms {
  /** One of the provider's eight, or whatever it has come up with since. */
  status: string;
  plan: string;
  customerId?: string;
  priceId?: string;
  /** What else is part of it. */
  otherPriceIds?: string[];
  quantity?: number;
  currentPeriodStart?: number;
  currentPeriodEnd?: number;
  trialEnd?: number;
  cancelAtPeriodEnd: boolean;
  cancelAt?: number;
  canceledAt?: number;
  endedAt?: number;
  /** When the provider made it. */
  startedAt: number;
}

export interface SubscriptionDocument extends SubscriptionTerms {
  /** The provider's. */
  id: string;
  userId: string;
  /** Since when payments have been failing. */
  pastDueSince?: number;
  /** The provider's time up to which the terms are known; 0 where nothing said. */
  at: number;
  /** The same of the status, which invoices change, too. */
  statusAt: number;
  /** The event applied last, so that its repetition after a crash is recognised. */
  lastEvent?: string;
  /** When the news of it reached us that were applied last: by this an event that has no time is found to be old. */
  heardAt: number;
  /** When to ask the provider again: at once while in doubt, else when the period is over. */
  recheckAt?: number;
  /** Raised by every write: whoever writes names the one it has read. */
  rev: number;
  createdAt: number;
  updatedAt: number;
}

export type Subscriptions = Collection<SubscriptionDocument>;

export function subscriptionCollection(store: Store): Subscriptions {
  return store.collection<SubscriptionDocument>('subscriptions', {
    indexes: [['userId', 'startedAt'], ['recheckAt']],
    fields: ['rev'],
  });
}

/** An invoice that was paid or could not be collected, of a subscription or of a single purchase. */
export interface PaymentDocument {
  /** The invoice. */
  id: string;
  userId: string;
  subscriptionId?: string;
  status: 'paid' | 'failed';
  /** In the currency's smallest unit. */
  amount?: number;
  currency?: string;
  attempts?: number;
  /** The provider's time; ours where it says none. */
  at: number;
}

export type Payments = Collection<PaymentDocument>;

export function paymentCollection(store: Store): Payments {
  return store.collection<PaymentDocument>('payments', {
    indexes: [['userId', 'at']],
    fields: ['status'],
  });
}
