import type { Write } from '../../core/storage/collection.js';
import type { SubscriptionDocument } from './store.js';

/** Access to the users' records, which belong to another domain. */
export interface BillingUsers {
  find(userId: string): Promise<BillingUser | null>;
  /** The users whose address or name has changed. */
  profileChanges: {
    list(limit: number): Promise<{ userId: string; changedAt: number }[]>;
    /** Removes a user from the list, unless there was another change. */
    acknowledge(userId: string, changedAt: number): Promise<void>;
  };
  projection: {
    /** The number of projections written so far; null if the user does not exist. */
    revision(userId: string): Promise<number | null>;
    /** Writes if the revision is still the given one, and increments it. */
    write(userId: string, revision: number, projection: Projection): Promise<boolean>;
    /** The same write, to be made together with others. */
    writing(userId: string, revision: number, projection: Projection): Write;
  };
  grants: {
    /** Writes or removes the grant and returns the previous one; `null` if the user does not exist. */
    write(userId: string, grant: Grant | null): Promise<{ before: Grant | undefined } | null>;
  };
}

export interface BillingUser {
  email: string;
  /** Empty if not provided. */
  name: string;
  emailVerified: boolean;
  /** The language of the user's e-mails, if known. */
  locale?: string | undefined;
  /** Whether the account is neither suspended nor being deleted. */
  isOpen: boolean;
  grant?: Grant;
}

/** A plan that the operator gave to a user. Times are Unix times in milliseconds. */
export interface Grant {
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

export const ACCESS_TERMS = ['id', 'status', 'plan', 'startedAt', 'trialEnd', 'pastDueSince'] as const;

/** The part of a subscription that decides on access. */
export type AccessTerms = Pick<SubscriptionDocument, (typeof ACCESS_TERMS)[number]>;
