import { isDeepStrictEqual } from 'node:util';
import { defined } from '../../core/kernel/fields.js';
import type { BillingContext, CommitPart } from './context.js';
import { mayEntitle, NO_SUBSCRIPTION, selectShown } from './entitlement.js';
import type { HeldChanges, Holding, Holdings } from './holdings.js';
import { ACCESS_TERMS, type AccessTerms, type BillingOwner, type Projection } from './owners.js';
import type { SubscriptionDocument } from './store.js';

/** Copies the access terms of what owners have bought to their records, so that reading an owner needs no further query. */

export type Projector = ReturnType<typeof createProjector>;

export function createProjector(
  { owners, plans, commitForOwner, clock }: BillingContext,
  { listBought }: Holdings,
  reportDuplicates: (ownerId: string, bought: readonly Holding[]) => Promise<CommitPart[]>,
) {
  const projectionOf = (bought: Holding[], { members }: BillingOwner): Projection => {
    const { status, plan } = selectShown(bought, plans) ?? NO_SUBSCRIPTION;
    const held = bought.filter(mayEntitle).map(accessTermsOf);
    // The number of members may have changed since the order.
    const countsMembers =
      members !== undefined && held.some((one) => plans.configOf(one.plan)?.seats === 'members');
    return { status, plan, held, ...(countsMembers && { seatsDueAt: clock.now() }) };
  };

  /**
   * The owner's record after a change, for the commit of that change: two changes of an owner are made one after the other.
   * @param owner as read before what the change was derived from
   */
  const projecting = async (owner: BillingOwner, changed?: HeldChanges): Promise<CommitPart[]> => {
    const bought = await listBought(owner.id, changed);
    return [
      owners.projecting(owner, projectionOf(bought, owner)),
      ...(await reportDuplicates(owner.id, bought)),
    ];
  };

  return {
    projecting,

    /** Writes the record again, for example after a change of the options. */
    project: (ownerId: string) => commitForOwner(ownerId, (owner) => projecting(owner)),
  };
}

/** Whether two states of a subscription result in the same user record. */
export const haveSameProjection = (before: SubscriptionDocument, after: SubscriptionDocument): boolean =>
  ACCESS_TERMS.every((name) => isDeepStrictEqual(before[name], after[name]));

const accessTermsOf = ({ id, status, plan, startedAt, subscription, purchase }: Holding): AccessTerms => {
  if (subscription) {
    const terms = ACCESS_TERMS.map((name) => [name, subscription[name]]);
    return defined(Object.fromEntries(terms)) as AccessTerms;
  }
  const { livemode, items: [item] = [] } = purchase ?? {};
  return defined({ id, status, plan, startedAt, quantity: item?.quantity, livemode });
};
