import { type Static, Type } from 'typebox';
import { Timestamp, toTimestamp, toTimestampOrNull } from '../../core/http/schemas.js';
import type { Collection, Page, Where } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
import type { BillingContext } from './context.js';
import type { CustomerLinks } from './customers/customers.js';
import type { DashboardUrl } from './provider/dashboard.js';
import type { PaymentDocument, SubscriptionDocument } from './store.js';

/** Subscriptions and payments of all users, for the operator. */
export type BillingRecords = ReturnType<typeof createRecords>;

/** At most one condition narrows a list; the first one counts. */
interface Narrowed {
  id?: string | undefined;
  userId?: string | undefined;
  status?: string | undefined;
}

export interface RecordQuery extends Narrowed {
  after: string | undefined;
  limit: number;
}

const NullableText = Type.Union([Type.String(), Type.Null()]);
const NullableInteger = Type.Union([Type.Integer(), Type.Null()]);

const owner = {
  userId: Type.String(),
  /** Null if the user has been deleted. */
  email: NullableText,
};

const SubscriptionRecord = Type.Object({
  id: Type.String(),
  ...owner,
  status: Type.String(),
  plan: Type.String(),
  priceId: NullableText,
  customerId: NullableText,
  startedAt: Timestamp,
  currentPeriodEnd: Type.Union([Timestamp, Type.Null()]),
  cancelAtPeriodEnd: Type.Boolean(),
  endedAt: Type.Union([Timestamp, Type.Null()]),
  /** As the provider states it: `cancellation_requested`, `payment_failed`, `payment_disputed`. */
  cancellationReason: NullableText,
  updatedAt: Timestamp,
  dashboardUrl: NullableText,
});

export type SubscriptionRecord = Static<typeof SubscriptionRecord>;

const PaymentRecord = Type.Object({
  id: Type.String(),
  ...owner,
  status: Type.String(),
  amount: NullableInteger,
  currency: NullableText,
  refundedAmount: Type.Integer(),
  /** The status of the newest dispute. */
  dispute: NullableText,
  subscriptionId: NullableText,
  at: Timestamp,
  dashboardUrl: NullableText,
});

export type PaymentRecord = Static<typeof PaymentRecord>;

export const billingRecordSchemas = { subscription: SubscriptionRecord, payment: PaymentRecord };

export function createRecords(
  { subscriptions, payments, users, dashboardUrl }: BillingContext,
  links: CustomerLinks,
) {
  /** A page whose records name the address of their user. */
  const read = async <T extends Owned, R>(
    collection: Pick<Collection<T>, 'page'>,
    query: Parameters<typeof readPage<T>>[1],
    view: (document: T, email: string | null) => R,
  ): Promise<Page<R>> => {
    const { items, next } = await readPage(collection, query);
    const owners = await Promise.all(items.map(({ userId }) => users.find(userId)));
    return { next, items: items.map((item, index) => view(item, owners[index]?.email ?? null)) };
  };

  return {
    /** The newest first. @throws VALIDATION_ERROR for an invalid `after` */
    subscriptions: ({ after, limit, ...narrowed }: RecordQuery): Promise<Page<SubscriptionRecord>> =>
      read(
        subscriptions,
        { where: whereOf<SubscriptionDocument>(narrowed), sort: 'startedAt', desc: true, after, limit },
        (document, email) => subscriptionRecord(document, email, dashboardUrl),
      ),

    /** The newest first. @throws VALIDATION_ERROR for an invalid `after` */
    payments: ({ after, limit, ...narrowed }: RecordQuery): Promise<Page<PaymentRecord>> =>
      read(
        payments,
        { where: whereOf<PaymentDocument>(narrowed), sort: 'at', desc: true, after, limit },
        (document, email) => paymentRecord(document, email, dashboardUrl),
      ),

    /** The user's customers at the provider, the one for the next purchase first. */
    customers: async (userId: string): Promise<{ id: string; dashboardUrl: string | null }[]> =>
      (await links.list(userId)).map((id) => ({ id, dashboardUrl: dashboardUrl(id) })),
  };
}

type Owned = { id: string; userId: string };

/** One condition at most, so that an index serves it. A status that no document has finds nothing. */
function whereOf<T extends Owned & { status: string }>({ id, userId, status }: Narrowed): Where<T> {
  const where = id !== undefined ? { id } : userId !== undefined ? { userId } : status && { status };
  return (where ?? {}) as Where<T>;
}

function subscriptionRecord(
  document: SubscriptionDocument,
  email: string | null,
  dashboardUrl: DashboardUrl,
): SubscriptionRecord {
  const { id, userId, status, plan, priceId, customerId, cancelAtPeriodEnd, currentPeriodEnd } = document;
  return {
    id,
    userId,
    email,
    status,
    plan,
    priceId: priceId ?? null,
    customerId: customerId ?? null,
    startedAt: toTimestamp(document.startedAt),
    currentPeriodEnd: toTimestampOrNull(currentPeriodEnd),
    cancelAtPeriodEnd,
    endedAt: toTimestampOrNull(document.endedAt),
    cancellationReason: document.cancellationReason ?? null,
    updatedAt: toTimestamp(document.updatedAt),
    dashboardUrl: dashboardUrl(id, document.livemode),
  };
}

function paymentRecord(
  { id, userId, status, amount, currency, refundedAmount, disputes, subscriptionId, at }: PaymentDocument,
  email: string | null,
  dashboardUrl: DashboardUrl,
): PaymentRecord {
  return {
    id,
    userId,
    email,
    status,
    amount: amount ?? null,
    currency: currency ?? null,
    refundedAmount: refundedAmount ?? 0,
    dispute: disputes?.at(-1)?.status ?? null,
    subscriptionId: subscriptionId ?? null,
    at: toTimestamp(at),
    dashboardUrl: dashboardUrl(id),
  };
}
