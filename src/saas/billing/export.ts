import { toTimestamp } from '../../core/http/schemas.js';
import { defined } from '../../core/kernel/fields.js';
import { mapPages, pagesOf } from '../../core/storage/pages.js';
import type { BillingContext } from './context.js';
import type { CustomerLinks } from './customers/customers.js';
import type { PurchaseList } from './purchases.js';
import type { Quotas } from './quotas/service.js';
import type { Purchase, QuotaView } from './schemas.js';
import { listSubscriptions, type PaymentDocument, type SubscriptionDocument } from './store.js';
import { listUsage } from './usage/reports.js';

/** What is stored about a user, for export. */
export interface BillingRecords {
  /** The user's customers at the provider. */
  customers: { customerId: string; createdAt: string }[];
  subscriptions: Record<string, unknown>[];
  /** The newest first, a page at a time. */
  payments: AsyncIterable<Record<string, unknown>[]>;
  purchases: AsyncIterable<Purchase[]>;
  usage: AsyncIterable<Record<string, unknown>[]>;
  /** What the user has used of the limits of the plans. */
  limits: QuotaView[];
}

export function createBillingExport(
  { subscriptions, payments, usage }: BillingContext,
  { links, purchases, quotas }: { links: CustomerLinks; purchases: PurchaseList; quotas: Quotas },
) {
  return async (ownerId: string): Promise<BillingRecords> => {
    const [customers, limits, all] = await Promise.all([
      links.all(ownerId),
      quotas.list(ownerId),
      listSubscriptions(subscriptions, ownerId),
    ]);
    return {
      customers: customers.map(({ id, createdAt }) => ({
        customerId: id,
        createdAt: toTimestamp(createdAt),
      })),
      subscriptions: all.map(({ rev, ...subscription }) => subscriptionRecord(subscription)),
      payments: mapPages(pagesOf(payments, { where: { ownerId }, sort: 'at', desc: true }), paymentRecord),
      purchases: purchases.all(ownerId),
      usage: listUsage(usage, ownerId),
      limits,
    };
  };
}

/** A payment with its times in ISO 8601, in the same order of fields whichever event was first. */
function paymentRecord(payment: PaymentDocument): Record<string, unknown> {
  const { id, ownerId, status, at, refundedAt, refunds, disputes, rev, reportedBy, ...more } = payment;
  const { recheckAt, operatorRefund, ...rest } = more;
  const facts = Object.fromEntries(Object.entries(rest).sort(([a], [b]) => (a < b ? -1 : 1)));
  const reported = disputes?.map((dispute) => withTimes(dispute, 'at', 'closedAt'));
  const record = { id, ownerId, ...facts, status, refundedAt, disputes: reported, at };
  return withTimes(defined(record), 'refundedAt', 'at');
}

/** A subscription with its times in ISO 8601, without unknown ones, which are 0. */
function subscriptionRecord(subscription: Partial<SubscriptionDocument>): Record<string, unknown> {
  const { quantity, items, pendingUpdate, collectionPause, ...rest } = subscription;
  const known = Object.entries(rest).filter(([, value]) => value !== 0);
  const shown = known.map(([name, value]) => [name, typeof value === 'number' ? toTimestamp(value) : value]);
  return defined({
    ...Object.fromEntries(shown),
    quantity,
    items,
    pendingUpdate: pendingUpdate && withTimes(pendingUpdate, 'expiresAt'),
    collectionPause: collectionPause && withTimes(collectionPause, 'resumesAt'),
  });
}

/** With these times in ISO 8601. */
const withTimes = <T extends object>(object: T, ...times: (keyof T)[]): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(object).map(([name, value]) => [
      name,
      times.includes(name as keyof T) ? toTimestamp(value) : value,
    ]),
  );
