import type { Write } from '../../core/storage/collection.js';
import type { SubscriptionDocument } from './store.js';

/** Access to the users' records, which belong to another domain. */
export interface BillingOwners {
  find(ownerId: string): Promise<BillingOwner | null>;
  /** By the address, in any case. */
  findByEmail(email: string): Promise<BillingOwner | null>;
  /** The users whose address or name has changed. */
  profileChanges: {
    list(limit: number): Promise<{ ownerId: string; changedAt: number }[]>;
    /** Removes a user from the list, unless there was another change. */
    acknowledge(ownerId: string, changedAt: number): Promise<void>;
  };
  /**
   * Writes the projection if the revision is still the one that was read. Unmet, as the other writes, if the user does not exist or is
   * being deleted: nothing can be inserted after the deletion has begun.
   */
  projecting(user: BillingOwner, projection: Projection): Write;
  /** For a commit that inserts data of a user without a change of the projection. With a user as it was read, only if the revision is the same. */
  locking(user: Pick<BillingOwner, 'id'> & { rev?: number }): Write;
  /** Writes or removes the grant. */
  granting(ownerId: string, grant: PlanGrant | null): Write;
}

export interface BillingOwner {
  id: string;
  /** Incremented by every commit about the user's subscriptions, purchases and payments, for optimistic locking. */
  rev: number;
  email: string;
  /** Empty if not provided. */
  name: string;
  emailVerified: boolean;
  /** The language of the user's e-mails, if known. */
  locale?: string | undefined;
  /** Whether the account is neither suspended nor being deleted. */
  isOpen: boolean;
  isBeingDeleted: boolean;
  grant?: PlanGrant;
  /** What may give access, as it was projected. */
  held: AccessTerms[];
  createdAt: number;
}

/** A plan that the operator gave to a user. Times are Unix times in milliseconds. */
export interface PlanGrant {
  plan: string;
  since: number;
  /** Absent: until the grant is revoked. */
  until?: number;
}

/** A user's subscriptions as stored in the user's record. */
export interface Projection {
  /** Of the best subscription. */
  status: string;
  plan: string;
  /** The subscriptions that may grant access. */
  held: AccessTerms[];
}

export const ACCESS_TERMS = [
  'id',
  'status',
  'plan',
  'startedAt',
  'trialEnd',
  'pastDueSince',
  'otherPriceIds',
  'quantity',
  'currentPeriodStart',
  'currentPeriodEnd',
  'livemode',
] as const;

/** The part of a subscription that decides on access and limits. */
export type AccessTerms = Pick<SubscriptionDocument, (typeof ACCESS_TERMS)[number]>;
