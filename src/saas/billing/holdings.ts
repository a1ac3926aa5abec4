import { allOf } from '../../core/storage/pages.js';
import type { BillingContext } from './context.js';
import { type EntitlementTerms, grantTerms, isEntitled } from './entitlement.js';
import type { PlanGrant } from './owners.js';
import { findPaymentOf, isPaymentOf, type PurchaseDocument } from './purchases.js';
import {
  isReturned,
  isTerminal,
  listSubscriptions,
  type PaymentDocument,
  type SubscriptionDocument,
} from './store.js';

/**
 * What users hold: subscriptions, one-time purchases of plans, and the plan that the operator granted. Everything that depends on it
 * (access, checkout, changes, duplicates, pages) reads it here.
 */
export type Holdings = ReturnType<typeof createHoldings>;

export interface Holding extends EntitlementTerms {
  /** The ID of the subscription or of the checkout session of the purchase; `grant`. */
  id: string;
  /** Of the plans of a family, a user has one at a time. Absent for what has no plan of this product, such as a retainer. */
  family?: string;
  /** The same of all its items, add-ons included. */
  families: string[];
  entitled: boolean;
  /** The plans to which it gives access now, those of its other items included. */
  entitledPlans: string[];
  /** What it is. */
  subscription?: SubscriptionDocument;
  purchase?: PurchaseDocument;
  grant?: PlanGrant;
}

/** What a commit changes of the documents that give access. */
export interface HeldChanges {
  subscription?: SubscriptionDocument | undefined;
  purchase?: PurchaseDocument | undefined;
  payment?: PaymentDocument | undefined;
}

export function createHoldings(context: BillingContext) {
  const { subscriptions, purchases, payments, owners, plans, pastDue, counts, clock } = context;

  const holding = (
    id: string,
    terms: EntitlementTerms,
    source: Pick<Holding, 'subscription' | 'purchase' | 'grant'>,
  ): Holding => {
    const entitled = isEntitled(terms, pastDue, clock.now());
    const family = plans.familyOf(terms.plan);
    const others = source.subscription?.otherPriceIds ?? [];
    const all = [terms.plan, ...others.flatMap((priceId) => plans.configured?.get(priceId) ?? [])];
    return {
      ...terms,
      ...source,
      id,
      ...(family !== undefined && { family }),
      families: all.flatMap((plan) => plans.familyOf(plan) ?? []),
      entitled,
      entitledPlans: entitled ? all : [],
    };
  };

  const ofSubscription = (subscription: SubscriptionDocument): Holding => {
    const { id, status, plan, startedAt, trialEnd, pastDueSince } = subscription;
    return holding(id, { status, plan, startedAt, trialEnd, pastDueSince }, { subscription });
  };

  /** The paid purchases of plans that are sold once. */
  const paidPurchases = async (ownerId: string, changed: HeldChanges): Promise<PurchaseDocument[]> => {
    if (!plans.hasPurchases) return [];
    const stored = await allOf(purchases, { where: { ownerId }, sort: 'at', desc: true });
    const paid: PurchaseDocument[] = [];
    for (const purchase of withChanged(stored, changed.purchase)) {
      if (purchase.status !== 'paid' || !plans.isPurchase(purchase.plan)) continue;
      const isChanged = changed.payment && isPaymentOf(purchase, changed.payment);
      const payment = isChanged ? changed.payment : await findPaymentOf(payments, purchase);
      if (!payment || !isReturned(payment)) paid.push(purchase);
    }
    return paid;
  };

  /**
   * What a user has bought: the subscriptions, ended ones included, the newest first, and the purchases.
   * @param changed replaces what is stored
   */
  const listBought = async (ownerId: string, changed: HeldChanges = {}): Promise<Holding[]> => {
    const [stored, paid] = await Promise.all([
      listSubscriptions(subscriptions, ownerId),
      paidPurchases(ownerId, changed),
    ]);
    return [
      ...withChanged(stored, changed.subscription).filter(counts).map(ofSubscription),
      ...paid
        .filter(counts)
        .map((purchase) =>
          holding(
            purchase.id,
            { status: 'active', plan: purchase.plan, startedAt: purchase.at },
            { purchase },
          ),
        ),
    ];
  };

  return {
    ofSubscription,
    listBought,

    /** The same and the grant, if it is in force. For a user who does not exist, what was bought before. */
    async list(ownerId: string): Promise<{ isKnown: boolean; holdings: Holding[] }> {
      const [bought, user] = await Promise.all([listBought(ownerId), owners.find(ownerId)]);
      const grant = user?.grant && holding('grant', grantTerms(user.grant), { grant: user.grant });
      return { isKnown: user !== null, holdings: grant?.entitled ? [...bought, grant] : bought };
    },
  };
}

/** Whether a subscription is held that has not ended. */
export const isRunning = ({ subscription }: Holding): boolean =>
  subscription !== undefined && !isTerminal(subscription.status);

/** Whether a subscription has an item with the price. */
export const hasPrice = ({ subscription }: Holding, price: string): boolean =>
  subscription?.priceId === price || subscription?.otherPriceIds?.includes(price) === true;

const withChanged = <T extends { id: string }>(stored: T[], changed: T | undefined): T[] =>
  changed ? [...stored.filter(({ id }) => id !== changed.id), changed] : stored;
