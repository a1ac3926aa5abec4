import { toTimestamp } from '../http/schemas.js';
import type { Collection, Page, Store } from '../storage/collection.js';
import { mapPages, pagesOf, readPage } from '../storage/pages.js';
import { type Plans, UNKNOWN_PLAN } from './plans/plans.js';
import type { Purchase } from './schemas.js';
import {
  type HeldSubscription,
  isFullyRefunded,
  listSubscriptions,
  type PaymentDocument,
  type Payments,
  type Subscriptions,
} from './store.js';

/** A one-time purchase. What was refunded is stored with its payment. */
export interface PurchaseDocument {
  /** The ID of the checkout session. */
  id: string;
  userId: string;
  /** `pending`: the payment method confirms later. */
  status: 'pending' | 'paid' | 'failed';
  /** Empty until the items are known. */
  items: PurchasedItem[];
  /** The plan of the first item that has one, else `unknown`. */
  plan: string;
  /** In the currency's smallest unit. */
  amount?: number;
  currency?: string;
  /** The ID under which its payment is stored, if anything was to be paid. */
  paymentId: string;
  /** The provider's time of the payment, or of the purchase while it is not paid. */
  at: number;
  /** The event that reported the payment first: another event about it notifies no one again. */
  reportedBy?: string;
  /** When to fetch the items again. */
  recheckAt?: number;
  /** Incremented by every write, for optimistic locking. */
  rev: number;
  createdAt: number;
}

export interface PurchasedItem {
  priceId: string;
  quantity: number;
}

export type Purchases = Collection<PurchaseDocument>;

export function purchaseCollection(store: Store): Purchases {
  return store.collection<PurchaseDocument>('purchases', {
    indexes: [['userId', 'at'], ['recheckAt']],
    fields: ['rev'],
  });
}

/** The purchases of users, and the access that they give. */
export interface PurchaseList {
  /** The newest first. @throws VALIDATION_ERROR for an invalid `after` */
  page(userId: string, after: string | undefined): Promise<Page<Purchase>>;
  /** Every purchase, for export. */
  all(userId: string): AsyncIterable<Purchase[]>;
  /** Every subscription of a user, and as active ones the paid purchases of plans that are sold once. */
  listHeld(userId: string): Promise<HeldSubscription[]>;
}

export interface PurchaseListDependencies {
  purchases: Purchases;
  payments: Payments;
  subscriptions: Subscriptions;
  plans: Pick<Plans, 'hasPurchases' | 'isPurchase'>;
}

export function createPurchaseList(deps: PurchaseListDependencies): PurchaseList {
  const { purchases, payments, subscriptions, plans } = deps;

  const paymentOf = async ({ paymentId }: PurchaseDocument): Promise<PaymentDocument | null> =>
    (await payments.findOne({ id: paymentId })) ?? payments.findOne({ paymentIntentId: paymentId });

  const view = async (purchase: PurchaseDocument): Promise<Purchase> =>
    purchaseView(purchase, await paymentOf(purchase));

  return {
    async page(userId, after) {
      const { items, next } = await readPage(purchases, { where: { userId }, sort: 'at', desc: true, after });
      return { items: await Promise.all(items.map(view)), next };
    },

    async *all(userId) {
      const pages = pagesOf(purchases, { where: { userId }, sort: 'at', desc: true });
      for await (const views of mapPages(pages, view)) yield await Promise.all(views);
    },

    async listHeld(userId) {
      const all: HeldSubscription[] = await listSubscriptions(subscriptions, userId);
      if (!plans.hasPurchases) return all;
      for await (const page of pagesOf(purchases, { where: { userId }, sort: 'at', desc: true })) {
        for (const purchase of page) {
          if (purchase.status !== 'paid' || !plans.isPurchase(purchase.plan)) continue;
          const payment = await paymentOf(purchase);
          if (!payment || !isFullyRefunded(payment)) all.push(heldPurchase(purchase));
        }
      }
      return all;
    },
  };
}

function purchaseView(
  { id, plan, items, amount, currency, at, ...purchase }: PurchaseDocument,
  payment: PaymentDocument | null,
): Purchase {
  const { refundedAmount = 0 } = payment ?? {};
  const isRefunded = payment !== null && isFullyRefunded(payment);
  const isPaid = purchase.status === 'paid';
  return {
    id,
    status: isPaid && isRefunded ? 'refunded' : purchase.status,
    plan: plan === UNKNOWN_PLAN ? null : plan,
    items,
    amount: amount ?? null,
    currency: currency ?? null,
    refundedAmount,
    refundableAmount: isPaid ? Math.max(0, (amount ?? 0) - refundedAmount) : 0,
    purchasedAt: toTimestamp(at),
  };
}

/** A purchase as a subscription without an end. */
function heldPurchase({ id, userId, plan, items, at, rev, createdAt }: PurchaseDocument): HeldSubscription {
  const [item] = items;
  return {
    id,
    userId,
    isPurchase: true,
    status: 'active',
    plan,
    ...(item && { priceId: item.priceId, quantity: item.quantity }),
    cancelAtPeriodEnd: false,
    startedAt: at,
    currentPeriodStart: at,
    at,
    statusAt: at,
    heardAt: at,
    rev,
    createdAt,
    updatedAt: at,
  };
}
