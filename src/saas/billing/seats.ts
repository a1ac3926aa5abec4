import { isOrganizationId } from '../../core/http/identity.js';
import { invalidFields } from '../../core/kernel/errors.js';
import type { BillingContext } from './context.js';
import { isEntitled } from './entitlement.js';
import type { BilledRecord } from './owners.js';

/**
 * Seats: what the quantity of a plan has to do with the members of an organization. With `limit`, it has at most as many members as it has
 * bought; with `members`, the quantity follows the number of members.
 */
export type Seats = ReturnType<typeof createSeats>;

export function createSeats({ owners, plans, counts, pastDue, clock }: BillingContext) {
  const heldWith = ({ subscriptionsHeld = [] }: BilledRecord, seats: 'limit' | 'members') =>
    subscriptionsHeld.filter(
      (terms) =>
        plans.configOf(terms.plan)?.seats === seats &&
        counts(terms) &&
        isEntitled(terms, pastDue, clock.now()),
    );

  return {
    /** How many members an organization may have; `Infinity` if no plan limits them. */
    limitOf(organization: BilledRecord): number {
      const quantities = heldWith(organization, 'limit').map(({ quantity = 1 }) => quantity);
      return quantities.length === 0 ? Number.POSITIVE_INFINITY : Math.max(...quantities);
    },

    /** For the commit that changes the number of members. */
    mark: (organization: BilledRecord): { seatsDueAt?: number } =>
      heldWith(organization, 'members').length > 0 ? { seatsDueAt: clock.now() } : {},

    /**
     * The quantity of an order for a price: what is given, or at first the number of members. Undefined: the default of the order, or
     * what is present.
     * @throws VALIDATION_ERROR for fewer seats than members
     */
    async quantityOf(ownerId: string, priceId: string, given: number | undefined, present?: number) {
      const seats = plans.seatsOf(priceId);
      if (seats === undefined || !isOrganizationId(ownerId)) return given;
      const { members = 1 } = (await owners.find(ownerId)) ?? {};
      const { min = 1 } = plans.checkoutOf(priceId).quantity ?? {};
      if (seats === 'members' && (given ?? members) !== members)
        throw invalidFields({ path: 'quantity', message: `must be ${members}, the number of members` });
      if (seats === 'limit' && (given ?? present ?? members) < members)
        throw invalidFields({ path: 'quantity', message: `must be ${members} or more, for the members` });
      return seats === 'members'
        ? members
        : (given ?? (present === undefined ? Math.max(members, min) : undefined));
    },
  };
}
