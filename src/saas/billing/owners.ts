import { isOrganizationId } from '../../core/http/identity.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { Write } from '../../core/storage/collection.js';
import { asText, type Json } from './provider/json.js';
import type { SubscriptionDocument } from './store.js';

/** An owner is a user or an organization: it has the customers at the provider, the subscriptions and the purchases. */

/** An owner in events, and in the metadata of the provider's objects. */
export type OwnerReference =
  | { userId: string; organizationId?: never }
  | { organizationId: string; userId?: never };

export const referenceTo = (ownerId: string): OwnerReference =>
  isOrganizationId(ownerId) ? { organizationId: ownerId } : { userId: ownerId };

export const ownerNotFound = (ownerId: string) =>
  httpErrors.NOT_FOUND({
    message: `The ${isOrganizationId(ownerId) ? 'organization' : 'user'} was not found.`,
  });

/** The ID of the owner whom metadata names. */
export const ownerIn = ({ userId, organizationId }: Json): string | undefined =>
  asText(userId) ?? asText(organizationId);

/** Access to the records of users and organizations, which belong to other domains. */
export interface BillingOwners {
  find(id: string): Promise<BillingOwner | null>;
  /** A user, by the address in any case. */
  findByEmail(email: string): Promise<BillingOwner | null>;
  /** The owners whose address or name has changed. */
  profileChanges: {
    list(limit: number): Promise<{ ownerId: string; changedAt: number }[]>;
    /** Removes an owner from the list, unless there was another change. */
    acknowledge(ownerId: string, changedAt: number): Promise<void>;
  };
  /** The organizations whose number of members has changed, or whose subscription. */
  seatChanges: {
    list(now: number, limit: number): Promise<SeatChange[]>;
    /** Does nothing if there was another change. */
    acknowledge(change: SeatChange): Promise<void>;
    postpone(change: SeatChange, until: number): Promise<void>;
  };
  /**
   * Writes the projection if the revision is still the one that was read. Unmet, as the other writes, if the owner does not exist or is
   * being deleted: nothing can be inserted after the deletion has begun.
   */
  projecting(owner: BillingOwner, projection: Projection): Write;
  /** For a commit that inserts data of an owner without a change of the projection. With an owner as it was read, only if the revision is the same. */
  locking(owner: Pick<BillingOwner, 'id'> & { rev?: number }): Write;
  /** Writes or removes the grant. */
  granting(ownerId: string, grant: PlanGrant | null): Write;
}

export interface SeatChange {
  ownerId: string;
  members: number;
  dueAt: number;
}

/** What the record of an owner has for billing. */
export interface BilledRecord {
  id: string;
  createdAt: number;
  /** Status of the best subscription. */
  subscriptionStatus: string;
  subscriptionPlan: string;
  /** The subscriptions that may grant access; absent before the first sync. */
  subscriptionsHeld?: AccessTerms[];
  /** The plan that the operator granted. */
  grant?: PlanGrant;
  /** Incremented by every commit about subscriptions, purchases and payments; absent before the first. */
  subscriptionRev?: number;
  /** When to compare the quantity of plans that count members. */
  seatsDueAt?: number;
  /** When the address or the name has changed that the provider does not know yet. */
  profileChangedAt?: number;
  /** Start of the deletion, which is irrevocable. */
  deletingAt?: number;
}

export interface BillingOwner {
  id: string;
  /** Incremented by every commit about the owner's subscriptions, purchases and payments, for optimistic locking. */
  rev: number;
  /** Of an organization, the address for its invoices. */
  email: string;
  /** Empty if not provided. */
  name: string;
  emailVerified: boolean;
  /** The language of the e-mails, if known. */
  locale?: string | undefined;
  /** Whether the owner is neither suspended nor being deleted. */
  isOpen: boolean;
  isBeingDeleted: boolean;
  grant?: PlanGrant;
  /** What may give access, as it was projected. */
  held: AccessTerms[];
  createdAt: number;
  /** Of an organization. */
  members?: number;
}

/** A plan that the operator gave to an owner. Times are Unix times in milliseconds. */
export interface PlanGrant {
  plan: string;
  since: number;
  /** Absent: until the grant is revoked. */
  until?: number;
}

/** An owner's subscriptions as stored in the owner's record. */
export interface Projection {
  /** Of the best subscription. */
  status: string;
  plan: string;
  /** The subscriptions that may grant access. */
  held: AccessTerms[];
  /** Absent unless a plan counts members. */
  seatsDueAt?: number;
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
