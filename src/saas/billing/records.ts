import { type Static, Type } from 'typebox';
import { Nullable, Timestamp, toTimestamp, toTimestampOrNull } from '../../core/http/schemas.js';
import type { Collection, DeclaredField, Page, Where } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
import type { BillingContext } from './context.js';
import type { CustomerLinks } from './customers/customers.js';
import type { Holdings } from './holdings.js';
import { Purchase, Time } from './schemas.js';
import type { PaymentDocument, SubscriptionDocument } from './store.js';
import { OPERATOR_ACTIONS, operatorActionsOf } from './subscription/change-rules.js';

/** Subscriptions and payments of all owners, for the operator. */
export type BillingRecords = ReturnType<typeof createRecords>;

/** At most one condition narrows a list; the first one counts. */
interface Narrowed {
  id?: string | undefined;
  ownerId?: string | undefined;
  status?: string | undefined;
}

export interface RecordQuery extends Narrowed {
  after: string | undefined;
  limit: number;
}

const NullableText = Nullable(Type.String());

/** What every record has. */
const owned = {
  id: Type.String(),
  /** `usr_…` or `org_…` */
  ownerId: Type.String(),
  /** Null if the owner has been deleted. */
  email: NullableText,
  status: Type.String(),
};

const SubscriptionRecord = Type.Object({
  ...owned,
  plan: Type.String(),
  priceId: NullableText,
  customerId: NullableText,
  startedAt: Timestamp,
  currentPeriodEnd: Time,
  cancelAtPeriodEnd: Type.Boolean(),
  endedAt: Time,
  trialEnd: Time,
  /** What can be done with it at the payment provider; nothing without an API key. */
  actions: Type.Array(Type.Enum(OPERATOR_ACTIONS)),
  /** As the provider states it: `cancellation_requested`, `payment_failed`, `payment_disputed`. */
  cancellationReason: NullableText,
  updatedAt: Timestamp,
  dashboardUrl: NullableText,
});

export type SubscriptionRecord = Static<typeof SubscriptionRecord>;

const PaymentRecord = Type.Object({
  ...owned,
  amount: Nullable(Type.Integer()),
  currency: NullableText,
  refundedAmount: Type.Integer(),
  /** What is left to refund at the payment provider; 0 without an API key. */
  refundableAmount: Type.Integer(),
  /** The status of the newest dispute. */
  dispute: NullableText,
  subscriptionId: NullableText,
  at: Timestamp,
  dashboardUrl: NullableText,
});

export type PaymentRecord = Static<typeof PaymentRecord>;

export function createRecords(
  { subscriptions, payments, owners, gateway, dashboardUrl }: BillingContext,
  { links, holdings }: { links: CustomerLinks; holdings: Holdings },
) {
  /** A page of the newest records, which name the address of their owner. */
  const read = async <T extends Owned, R>(
    collection: Pick<Collection<T>, 'page'>,
    sort: DeclaredField<T>,
    { after, limit, ...narrowed }: RecordQuery,
    view: (document: T) => R,
  ): Promise<Page<R & Static<Type.TObject<typeof owned>>>> => {
    const query = { where: whereOf<T>(narrowed), sort, desc: true, after, limit };
    const { items, next } = await readPage(collection, query);
    const found = await Promise.all(items.map(({ ownerId }) => owners.find(ownerId)));
    const recordOf = (document: T, index: number) => {
      const { id, ownerId, status } = document;
      return { id, ownerId, email: found[index]?.email ?? null, status, ...view(document) };
    };
    return { next, items: items.map(recordOf) };
  };

  return {
    schemas: { subscription: SubscriptionRecord, payment: PaymentRecord, purchase: Purchase },

    /** The newest first. @throws VALIDATION_ERROR for an invalid `after` */
    subscriptions: (query: RecordQuery): Promise<Page<SubscriptionRecord>> =>
      read(subscriptions, 'startedAt', query, (document: SubscriptionDocument) => ({
        plan: document.plan,
        priceId: document.priceId ?? null,
        customerId: document.customerId ?? null,
        startedAt: toTimestamp(document.startedAt),
        currentPeriodEnd: toTimestampOrNull(document.currentPeriodEnd),
        cancelAtPeriodEnd: document.cancelAtPeriodEnd,
        endedAt: toTimestampOrNull(document.endedAt),
        trialEnd: toTimestampOrNull(document.trialEnd),
        actions: gateway ? operatorActionsOf(holdings.ofSubscription(document)) : [],
        cancellationReason: document.cancellationReason ?? null,
        updatedAt: toTimestamp(document.updatedAt),
        dashboardUrl: dashboardUrl(document.id, document.livemode),
      })),

    /** The newest first. @throws VALIDATION_ERROR for an invalid `after` */
    payments: (query: RecordQuery): Promise<Page<PaymentRecord>> =>
      read(payments, 'at', query, (document: PaymentDocument) => ({
        amount: document.amount ?? null,
        currency: document.currency ?? null,
        refundedAmount: document.refundedAmount ?? 0,
        refundableAmount: gateway ? leftOf(document) : 0,
        dispute: document.disputes?.at(-1)?.status ?? null,
        subscriptionId: document.subscriptionId ?? null,
        at: toTimestamp(document.at),
        dashboardUrl: dashboardUrl(document.id),
      })),

    /** Whose customer at the provider this is; null if it is unknown. */
    ownerOf: links.findUser,

    /** The owner's customers at the provider, the one for the next purchase first. */
    customers: async (ownerId: string): Promise<{ id: string; dashboardUrl: string | null }[]> =>
      (await links.list(ownerId)).map((id) => ({ id, dashboardUrl: dashboardUrl(id) })),
  };
}

/** What was paid and not refunded. */
const leftOf = ({ status, amount = 0, refundedAmount = 0 }: PaymentDocument): number =>
  status === 'paid' ? Math.max(0, amount - refundedAmount) : 0;

type Owned = { id: string; ownerId: string; status: string };

/** One condition at most, so that an index serves it. A status that no document has finds nothing. */
function whereOf<T extends Owned>({ id, ownerId, status }: Narrowed): Where<T> {
  const where = id !== undefined ? { id } : ownerId !== undefined ? { ownerId } : status && { status };
  return (where ?? {}) as Where<T>;
}
