import type { Store } from '../../../core/storage/collection.js';

/** What a user has used of one limit. */
export interface QuotaDocument {
  /** User ID and name. */
  id: string;
  ownerId: string;
  name: string;
  /** The start of the period that `used` counts. */
  start: number;
  used: number;
  /** What can be used beyond the limit of the period, and after it. */
  credits: number;
}

/** Credits that a user got, each once. */
export interface CreditDocument {
  /** Of user, name and key. */
  id: string;
  ownerId: string;
  name: string;
  quantity: number;
  at: number;
}

export const quotaCollections = (store: Store) => ({
  quotas: store.collection<QuotaDocument>('quotas', {
    indexes: [['ownerId']],
    numbers: ['start', 'used', 'credits'],
  }),
  credits: store.collection<CreditDocument>('quota_credits', { indexes: [['ownerId']] }),
});
