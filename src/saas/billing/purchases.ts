import { toTimestamp } from '../../core/http/schemas.js';
import type { Collection, Page, Store } from '../../core/storage/collection.js';
import { mapPages, pagesOf, readPage } from '../../core/storage/pages.js';
import { UNKNOWN_PLAN } from './plans/plans.js';
import type { Purchase } from './schemas.js';
import { isReturned, type PaymentDocument, type Payments } from './store.js';

/** A one-time purchase. What was refunded is stored with its payment. */
export interface PurchaseDocument {
  /** The ID of the checkout session. */
  id: string;
  ownerId: string;
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
  /** False in the provider's test mode; absent if unknown. */
  livemode?: boolean;
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
    indexes: [['ownerId', 'at'], ['recheckAt']],
    numbers: ['at', 'recheckAt', 'rev'],
  });
}

/** The purchases of users. */
export type PurchaseList = ReturnType<typeof createPurchaseList>;

/** The payment of a purchase; null if nothing was to be paid. */
export const findPaymentOf = async (
  payments: Payments,
  { paymentId }: PurchaseDocument,
): Promise<PaymentDocument | null> =>
  (await payments.findOne({ id: paymentId })) ?? payments.findOne({ paymentIntentId: paymentId });

export const isPaymentOf = (
  { paymentId }: PurchaseDocument,
  { id, paymentIntentId }: PaymentDocument,
): boolean => id === paymentId || paymentIntentId === paymentId;

export function createPurchaseList({ purchases, payments }: { purchases: Purchases; payments: Payments }) {
  const view = async (purchase: PurchaseDocument): Promise<Purchase> => {
    const { id, plan, items, amount = null, currency = null, at } = purchase;
    const payment = await findPaymentOf(payments, purchase);
    const { refundedAmount = 0 } = payment ?? {};
    const isRefunded = payment !== null && isReturned(payment);
    const isPaid = purchase.status === 'paid';
    return {
      id,
      status: isPaid && isRefunded ? 'refunded' : purchase.status,
      plan: plan === UNKNOWN_PLAN ? null : plan,
      items,
      amount,
      currency,
      refundedAmount,
      refundableAmount: isPaid && !isRefunded ? Math.max(0, (amount ?? 0) - refundedAmount) : 0,
      purchasedAt: toTimestamp(at),
    };
  };

  return {
    /** The newest first. @throws VALIDATION_ERROR for an invalid `after` */
    async page(ownerId: string, after: string | undefined, limit?: number): Promise<Page<Purchase>> {
      const query = { where: { ownerId }, sort: 'at', desc: true, after, ...(limit && { limit }) } as const;
      const { items, next } = await readPage(purchases, query);
      return { items: await Promise.all(items.map(view)), next };
    },

    /** Every purchase, for export. */
    async *all(ownerId: string) {
      const pages = pagesOf(purchases, { where: { ownerId }, sort: 'at', desc: true });
      for await (const views of mapPages(pages, view)) yield await Promise.all(views);
    },
  };
}
