import { isDeepStrictEqual } from 'node:util';
import type { Collection, Declaration, Store, Where, Write } from '../../core/storage/collection.js';
import { allOf, pagesOf } from '../../core/storage/pages.js';
import { changeTo } from '../../core/storage/semantics.js';

/** One event of the provider: the record of its outcome, or its lease while the provider is asked about it. */
export interface PaymentEventDocument {
  /** The provider's event ID, else the signature that matched. Identifies repeated deliveries. */
  id: string;
  type: string;
  /** `data.object.id` */
  objectId: string;
  /** The provider's customer, else the subscription, else the payment. Used to find the events of a user. */
  about?: string;
  /**
   * The verified body, so that an interrupted or unmatched event can be applied later. Absent with any other outcome.
   */
  payload?: string;
  receivedAt: number;
  /** Incremented when another worker processes it, for optimistic locking. */
  attempts: number;
  /** Until when its worker has the lease. Absent if the event was stored with its outcome. */
  leaseUntil?: number;
  /** Absent until the event is completed. */
  outcome?: EventOutcome;
}

/**
 * - `processed`: it changed or recorded something
 * - `stale`: a newer state is stored already
 * - `ignored`: its type has no effect here
 * - `unmatched`: its user is not known yet
 */
export type EventOutcome = (typeof EVENT_OUTCOMES)[number];

export const EVENT_OUTCOMES = ['processed', 'stale', 'ignored', 'unmatched'] as const;

export type PaymentEvents = Collection<PaymentEventDocument>;

export const paymentEventCollection = (store: Store): PaymentEvents =>
  store.collection<PaymentEventDocument>('webhook_events', {
    indexes: [
      ['about', 'outcome', 'receivedAt'],
      ['outcome', 'receivedAt'],
    ],
    numbers: ['receivedAt', 'attempts'],
  });

/** Until when the provider's events were compared with the received ones. */
export interface EventMarkDocument {
  id: string;
  /** Unix time in milliseconds. */
  until: number;
}

export const eventMarkCollection = (store: Store): Collection<EventMarkDocument> =>
  store.collection<EventMarkDocument>('event_marks', { numbers: ['until'] });

/**
 * A customer at the provider, who belongs to one owner. An owner can have several, for example one that a Payment Link created and one from
 * before this product.
 */
export interface CustomerDocument {
  /** The provider's customer ID. */
  id: string;
  ownerId: string;
  /** When to send the user's address and name to the provider. Absent if it has them. */
  profileDueAt?: number;
  /** Failed attempts since the last change. */
  profileAttempts?: number;
  /** When the provider rejected the present values for good, and its codes. */
  profileRejectedAt?: number;
  profileRejection?: string;
  createdAt: number;
}

export type Customers = Collection<CustomerDocument>;

export const CUSTOMER_COLLECTION = 'customers';

/** The names of the fields in filters. */
export const CUSTOMER_FIELDS = {
  indexes: [['ownerId', 'createdAt'], ['profileDueAt'], ['profileRejectedAt']],
  numbers: ['createdAt', 'profileDueAt', 'profileRejectedAt'],
} satisfies Declaration<CustomerDocument>;

export const customerCollection = (store: Store): Customers =>
  store.collection<CustomerDocument>(CUSTOMER_COLLECTION, CUSTOMER_FIELDS);

/** The customers whose address or name the provider rejects. */
export const countRejectedProfiles = (customers: Pick<Customers, 'count'>): Promise<number> =>
  customers.count({ profileRejectedAt: { gte: 0 } });

/** The newest checkout session of a user for a subject; see `OpenCheckouts`. */
export interface CheckoutDocument {
  /** User ID and subject. */
  id: string;
  ownerId: string;
  /** SHA-256 of the order. */
  fingerprint: string;
  /** Identifies the reservation, and is the idempotency key of its session. */
  key: string;
  /** Absent until the provider has opened the session. */
  sessionId?: string;
  expiresAt: number;
}

export const checkoutCollection = (store: Store): Collection<CheckoutDocument> =>
  store.collection<CheckoutDocument>('checkouts', {
    indexes: [['ownerId'], ['expiresAt']],
    fields: ['key', 'sessionId'],
    numbers: ['expiresAt'],
  });

/** What the subscription covers, and for how long. Times are Unix times in milliseconds. */
export interface SubscriptionTerms {
  /** One of the eight documented statuses, or a later one. */
  status: string;
  plan: string;
  customerId?: string;
  priceId?: string;
  /** The prices of its other items. */
  otherPriceIds?: string[];
  quantity?: number;
  currentPeriodStart?: number;
  currentPeriodEnd?: number;
  trialEnd?: number;
  cancelAtPeriodEnd: boolean;
  cancelAt?: number;
  canceledAt?: number;
  endedAt?: number;
  /** Why it was canceled, as the provider states it. */
  cancellationReason?: string;
  /** When it was created at the provider. */
  startedAt: number;
  /** What it consists of. */
  items: SubscriptionItem[];
  /** A change that applies when its invoice is paid. */
  pendingUpdate?: { items: SubscriptionItem[]; expiresAt?: number };
  /** Why the status is `paused`, as the provider states it. */
  pauseReason?: string;
  /** While invoices are not collected. `behavior`: what happens to them. */
  collectionPause?: { behavior: string; resumesAt?: number };
  /** The provider's schedule of later changes. */
  scheduleId?: string;
  discountIds?: string[];
  /** Whether only the metadata of the subscription or its price names the plan. */
  isPlanFromMetadata?: boolean;
  /** False in the provider's test mode; absent if unknown. */
  livemode?: boolean;
}

/** A price in a subscription. Metered prices have no quantity. */
export interface SubscriptionItem {
  priceId: string;
  quantity?: number;
  /** What it costs. Absent in pending updates. */
  price?: ItemPrice;
}

export interface ItemPrice {
  /** Per unit, in the currency's smallest unit. Absent if it depends on the quantity. */
  unitAmount?: number;
  currency?: string;
  /** `day`, `week`, `month` or `year` */
  interval: string;
  intervalCount: number;
  isMetered?: true;
}

export interface SubscriptionDocument extends SubscriptionTerms {
  /** The provider's subscription ID. */
  id: string;
  ownerId: string;
  /** When payments began to fail. */
  pastDueSince?: number;
  /** The provider's time up to which the terms are known; 0 if no event had a time. */
  at: number;
  /** The same for the status, which invoices change as well. */
  statusAt: number;
  /** When the last applied update was received: used to detect older events without a time. */
  heardAt: number;
  /** Time of the next sync: at once while uncertain, else that of `changeCheckAt`, of the end of the trial, or after the end of the period. */
  recheckAt?: number;
  /** When to look for the result of a change that the provider has not answered. */
  changeCheckAt?: number;
  /** Incremented by every write, for optimistic locking. */
  rev: number;
  createdAt: number;
  updatedAt: number;
}

/** The provider never changes a subscription with such a status again. */
export const isTerminal = (status: string): boolean =>
  status === 'canceled' || status === 'incomplete_expired';

export type Subscriptions = Collection<SubscriptionDocument>;

export const SUBSCRIPTION_COLLECTION = 'subscriptions';

/** The names of the fields in filters. */
export const SUBSCRIPTION_FIELDS = {
  indexes: [['ownerId', 'startedAt'], ['status', 'startedAt'], ['startedAt'], ['recheckAt']],
  numbers: ['startedAt', 'recheckAt', 'rev'],
} satisfies Declaration<SubscriptionDocument>;

export const subscriptionCollection = (store: Store): Subscriptions =>
  store.collection<SubscriptionDocument>(SUBSCRIPTION_COLLECTION, {
    ...SUBSCRIPTION_FIELDS,
    view: {
      name: 'subscription_view',
      columns: {
        id: ['text', 'id'],
        owner_id: ['text', 'ownerId'],
        plan: ['text', 'plan'],
        status: ['text', 'status'],
        quantity: ['number', 'quantity'],
        started_at: ['time', 'startedAt'],
        current_period_end: ['time', 'currentPeriodEnd'],
        trial_end: ['time', 'trialEnd'],
        cancel_at_period_end: ['boolean', 'cancelAtPeriodEnd'],
        ended_at: ['time', 'endedAt'],
      },
    },
  });

const TEST_SUBSCRIPTIONS_SHOWN = 20;

/** The first subscriptions of test mode that would give access in it. */
export async function findTestSubscriptions(subscriptions: Pick<Subscriptions, 'page'>): Promise<string[]> {
  const found: string[] = [];
  for (const status of ['active', 'trialing', 'past_due'])
    for await (const page of pagesOf(subscriptions, { where: { status }, sort: 'startedAt' })) {
      found.push(...page.flatMap(({ id, livemode }) => (livemode === false ? [id] : [])));
      if (found.length >= TEST_SUBSCRIPTIONS_SHOWN) return found.slice(0, TEST_SUBSCRIPTIONS_SHOWN);
    }
  return found;
}

/** Every subscription of a user, ended ones included, the newest first. */
export const listSubscriptions = (subscriptions: Subscriptions, ownerId: string) =>
  allOf(subscriptions, { where: { ownerId }, sort: 'startedAt', desc: true });

/** An invoice with the result of its collection, or a payment without an invoice, such as that of a single purchase. */
export interface PaymentDocument {
  /** The ID of the invoice; of a payment without an invoice the ID of its payment intent, else of its charge or session. */
  id: string;
  ownerId: string;
  subscriptionId?: string;
  status: 'paid' | 'failed' | 'voided';
  /** In the currency's smallest unit. */
  amount?: number;
  currency?: string;
  attempts?: number;
  /** The provider's time, else the time of processing. */
  at: number;
  /** The payment intent and the charge of an invoice, by which refunds and disputes refer to it. */
  paymentIntentId?: string;
  chargeId?: string;
  /** What each charge has given back, because an invoice can be paid by several, and the provider's time of the newest refund. */
  refunds?: Record<string, { amount: number; at: number }>;
  /** The sum of all refunds, and the provider's time of the newest. */
  refundedAmount?: number;
  refundedAt?: number;
  disputes?: Dispute[];
  /** The last refund by an operator. */
  operatorRefund?: OperatorRefund;
  /** When to ask the provider again which invoice the charge belongs to. */
  recheckAt?: number;
  /** The event that reported each fact first: another event about the same fact notifies no one again. */
  reportedBy: Record<string, string>;
  /** Incremented by every write, for optimistic locking. */
  rev: number;
}

/** A refund that an operator has begun. */
export interface OperatorRefund {
  /** `from` and `to`: the refunded amounts of the charge before and after. */
  change: { charge: string; from: number; to: number; reason: string };
  /** By which the provider makes it once. */
  key: string;
  /** Whether the provider has made it, and the audit says so. */
  isRecorded: boolean;
}

/** A customer's objection to a charge. */
export interface Dispute {
  id: string;
  /** As at the provider: `needs_response`, `under_review`, `won`, `lost`, … */
  status: string;
  reason?: string;
  amount?: number;
  at: number;
  /** Absent while it is open. */
  closedAt?: number;
}

/** Whether the refunds of a payment are its whole amount. */
export const isFullyRefunded = ({
  amount,
  refundedAmount = 0,
}: Pick<PaymentDocument, 'amount' | 'refundedAmount'>) =>
  refundedAmount > 0 && refundedAmount >= (amount ?? 0);

/**
 * Whether a customer has a payment back: by refunds, or because the seller lost a dispute about it. The amount of a dispute
 * does not matter, because it can differ from that of the payment, for example by the exchange rate.
 */
export const isReturned = (
  payment: Pick<PaymentDocument, 'amount' | 'refundedAmount' | 'disputes'>,
): boolean => isFullyRefunded(payment) || payment.disputes?.some(({ status }) => status === 'lost') === true;

export type Payments = Collection<PaymentDocument>;

export const paymentCollection = (store: Store): Payments =>
  store.collection<PaymentDocument>('payments', {
    indexes: [['ownerId', 'at'], ['status', 'at'], ['at'], ['paymentIntentId'], ['chargeId'], ['recheckAt']],
    numbers: ['at', 'recheckAt', 'rev'],
  });

/**
 * Inserts a document, or writes it if the revision is still the one that was read, for a commit. Undefined for a write that would only
 * increment the revision.
 */
export function writingRevision<T extends { id: string; rev: number }>(
  collection: Collection<T>,
  stored: T | null,
  document: T,
): Write | undefined {
  if (!stored) return collection.inserting(document);
  if (isDeepStrictEqual({ ...document, rev: stored.rev }, stored)) return undefined;
  const { id, rev } = stored;
  return collection.changing({ id, rev } as Where<T>, changeTo(stored, document));
}

/** The trial of a person, identified by the address. Once it was used, only the fingerprint and a time remain. */
export interface TrialDocument {
  /** HMAC of the normalized address. */
  id: string;
  ownerId?: string;
  /** The checkout to which the trial belongs. */
  checkoutId?: string;
  /** Replaced by every write, for optimistic locking. */
  rev: string;
  usedAt?: number;
}

export const trialCollections = (store: Store) => ({
  trials: store.collection<TrialDocument>('trials', { indexes: [['ownerId']], fields: ['rev'] }),
  /** A random key of this installation. */
  keys: store.collection<{ id: string; key: string }>('billing_keys'),
});

/** That the duplicate subscriptions of a user were reported. */
export interface DuplicateDocument {
  /** The user's ID. */
  id: string;
  /** The newest of the subscriptions in the last report. */
  subscriptionId: string;
  /** The same of every report. */
  reportedIds: string[];
  at: number;
}

export const duplicateCollection = (store: Store): Collection<DuplicateDocument> =>
  store.collection<DuplicateDocument>('duplicate_subscriptions', { fields: ['subscriptionId'] });

/**
 * A price with a lookup key that plans name. Stored, so that a price that the key has left keeps its plan, and a start does not wait for the
 * provider.
 */
export interface KeyedPriceDocument {
  /** Of the price. */
  id: string;
  lookupKey: string;
  /** When it had the key last: the newest one is sold. */
  at: number;
}

export const keyedPriceCollection = (store: Store): Collection<KeyedPriceDocument> =>
  store.collection<KeyedPriceDocument>('billing_prices', { indexes: [['lookupKey', 'at']], numbers: ['at'] });

/** What billing stores, besides usage, purchases, quotas and figures. */
export const billingCollections = (store: Store) => ({
  ...trialCollections(store),
  paymentEvents: paymentEventCollection(store),
  eventMarks: eventMarkCollection(store),
  keyedPrices: keyedPriceCollection(store),
  customers: customerCollection(store),
  checkouts: checkoutCollection(store),
  subscriptions: subscriptionCollection(store),
  duplicates: duplicateCollection(store),
  payments: paymentCollection(store),
});
