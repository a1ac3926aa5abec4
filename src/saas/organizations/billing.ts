import type { SubscriptionSummary } from '../../core/http/schemas.js';
import type { Effect } from '../../core/ops/commit.js';
import type { BilledRecord } from '../billing/owners.js';

/** What billing does for organizations, whose records it writes as those of users. */
export interface OrganizationBilling {
  /** The subscription that gives access now. */
  summaryOf(record: BilledRecord): SubscriptionSummary;
  /** For the commit of another name or address for invoices: the mark by which the payment provider learns of it. */
  profileMark(): { profileChangedAt?: number };
  /** What follows that commit. */
  profileChanged: Effect;
  /** The members that a plan is paid for. */
  seats: {
    /** How many members an organization may have; `Infinity` if no plan limits them. */
    limitOf(record: BilledRecord): number;
    /** For the commit of another number of members: the mark by which the quantity of its plan follows. */
    mark(record: BilledRecord): { seatsDueAt?: number };
  };
}
