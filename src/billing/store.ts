import type { Collection, Store } from '../storage/collection.js';

/** One event of the provider: a claim while it is worked on, a memory of its outcome afterwards. */
export interface WebhookEventDocument {
  /** The provider's event id, else the signature that matched: what makes two deliveries the same. */
  id: string;
  type: string;
  /** `data.object.id` */
  objectId: string;
  /** The verified body, so that an unmatched event can be applied once its customer is known. */
  payload: string;
  receivedAt: number;
  attempts: number;
  /** Whoever works on it; a claim that ran out may be taken over. */
  owner: string;
  leaseUntil: number;
  /** Absent until the event is done with. */
  outcome?: 'ignored' | 'unmatched';
}

export type WebhookEvents = Collection<WebhookEventDocument>;

export function webhookEventCollection(store: Store): WebhookEvents {
  return store.collection<WebhookEventDocument>('webhook_events', {
    indexes: [['receivedAt'], ['objectId'], ['outcome', 'receivedAt'], ['leaseUntil'], ['owner']],
  });
}

/** A user as the payment provider knows them. */
export interface CustomerDocument {
  /** The user's id: one customer for each. */
  id: string;
  /** The provider's. */
  customerId: string;
  createdAt: number;
}

export type Customers = Collection<CustomerDocument>;

export function customerCollection(store: Store): Customers {
  return store.collection<CustomerDocument>('customers', { unique: ['customerId'] });
}
