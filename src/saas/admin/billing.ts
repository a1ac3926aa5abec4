import { isOrganizationId } from '../../core/http/identity.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { formatAmount, writeAmount } from '../../core/kernel/currencies.js';
import type { Page } from '../../core/storage/collection.js';
import { type ListQuery, registerList } from '../../shared/console-kit/lists.js';
import type { Column } from '../../shared/console-kit/tables.js';
import type { PaymentRecord, RecordQuery, SubscriptionRecord } from '../billing/records.js';
import type { AdminServices } from './services.js';

/** The lists of subscriptions and payments. */
export async function billingPagesPlugin(
  fastify: FastifyTypebox,
  { console, billing, resolveUser, organizations, provider }: AdminServices,
): Promise<void> {
  const { schemas, subscriptions, payments } = billing.records;
  const ownerColumn = ownerColumnOf(organizations !== undefined);
  const search = {
    label: 'Search',
    hint: 'The ID of a subscription, a payment or a customer, or the ID or e-mail address of its owner.',
    maxLength: 254,
  };

  /** A search for an owner lists what belongs to the owner, any other text is an ID. */
  const read =
    <T>(list: (query: RecordQuery) => Promise<Page<T>>) =>
    async ({ search: text, filters: { status }, after, limit }: ListQuery): Promise<Page<T>> => {
      if (text === undefined) return list({ status, after, limit });
      const ownerId = isOrganizationId(text) ? text : await resolveUser(text);
      return list(ownerId === undefined ? { id: text, after, limit } : { ownerId, after, limit });
    };

  registerList<SubscriptionRecord>(fastify, console, {
    path: 'subscriptions',
    title: 'Subscriptions',
    search,
    filters: [
      statusFilter([
        ['active', 'Active'],
        ['trialing', 'Trialing'],
        ['past_due', 'Past due'],
        ['unpaid', 'Unpaid'],
        ['paused', 'Paused'],
        ['incomplete', 'Incomplete'],
        ['canceled', 'Canceled'],
        ['incomplete_expired', 'Incomplete, expired'],
      ]),
    ],
    columns: [ownerColumn, ...subscriptionColumns],
    item: schemas.subscription,
    read: read(subscriptions),
    isNamed: ({ id }, text) => id === text,
    empty:
      'There are no subscriptions yet. They appear when the payment provider reports them to POST /api/billing/webhook.',
  });

  registerList<PaymentRecord>(fastify, console, {
    path: 'payments',
    title: 'Payments',
    intro: 'Amounts are what the customer was charged, before refunds.',
    search,
    filters: [
      statusFilter([
        ['paid', 'Paid'],
        ['failed', 'Failed'],
        ['voided', 'Voided'],
      ]),
    ],
    columns: [ownerColumn, ...paymentColumnsOf(provider !== undefined)],
    item: schemas.payment,
    read: read(payments),
    isNamed: ({ id }, text) => id === text,
    empty:
      'There are no payments yet. They appear when the payment provider reports them to POST /api/billing/webhook.',
  });
}

/** Whose a record is. @param hasOrganizations whether organizations have pages */
const ownerColumnOf = (hasOrganizations: boolean): Column<SubscriptionRecord | PaymentRecord> => ({
  label: 'Owner',
  text: ({ email, ownerId }) =>
    isOrganizationId(ownerId) ? `organization ${email ?? ownerId}` : (email ?? ownerId),
  href({ email, ownerId }) {
    if (email === null) return null;
    if (!isOrganizationId(ownerId)) return `users/${ownerId}`;
    return hasOrganizations ? `organizations/${ownerId}` : null;
  },
});

const idColumn: Column<SubscriptionRecord | PaymentRecord> = {
  label: 'ID',
  text: ({ id }) => id,
  href: ({ dashboardUrl }) => dashboardUrl,
  kind: 'code',
};

const statusFilter = (options: readonly (readonly [value: string, label: string])[]) => ({
  name: 'status',
  label: 'Status',
  options: options.map(([value, label]) => ({ value, label })),
});

const ENDED = new Set(['canceled', 'incomplete_expired']);

const renewalOf = ({ status, cancelAtPeriodEnd, cancellationReason }: SubscriptionRecord): string | null => {
  const because = cancellationReason === null ? '' : `: ${cancellationReason.replaceAll('_', ' ')}`;
  if (ENDED.has(status)) return `ended${because}`;
  return cancelAtPeriodEnd ? `no, canceled${because}` : 'yes';
};

/** A period that was paid in advance may end after the subscription. */
const endOf = ({ status, endedAt, currentPeriodEnd }: SubscriptionRecord): string | null =>
  ENDED.has(status) ? endedAt : currentPeriodEnd;

/** The columns beside the owner. */
export const subscriptionColumns: readonly Column<SubscriptionRecord>[] = [
  { label: 'Status', text: ({ status }) => status, kind: 'status' },
  { label: 'Plan', text: ({ plan }) => plan, kind: 'word' },
  { label: 'Started', text: ({ startedAt }) => startedAt, kind: 'time' },
  { label: 'Period ends', text: endOf, kind: 'time' },
  { label: 'Renews', text: renewalOf },
  idColumn,
];

/** What was paid, as people write it; in CSV as programs read it. */
export const amountColumn = {
  label: 'Amount',
  text: ({ amount, currency }) =>
    amount === null || currency === null ? null : formatAmount(amount, currency),
  csv: ({ amount, currency }) => writeAmount(amount, currency),
  kind: 'number',
} as const satisfies Column<Pick<PaymentRecord, 'amount' | 'currency'>>;

const refundOf = ({ refundedAmount, currency }: PaymentRecord) => ({
  amount: refundedAmount === 0 ? null : refundedAmount,
  currency,
});

/** The columns beside the owner. @param canRefund whether the payment provider can be asked for refunds */
export const paymentColumnsOf = (canRefund: boolean): readonly Column<PaymentRecord>[] => [
  { label: 'Status', text: ({ status }) => status, kind: 'status' },
  amountColumn,
  {
    label: 'Refunded',
    text: (payment) => amountColumn.text(refundOf(payment)),
    csv: (payment) => amountColumn.csv(refundOf(payment)),
    kind: 'number',
  },
  { label: 'Dispute', text: ({ dispute }) => dispute, kind: 'status' },
  { label: 'Time', text: ({ at }) => at, kind: 'time' },
  idColumn,
  ...(canRefund ? [refundColumn] : []),
];

const refundHref = ({ id, refundableAmount, email }: PaymentRecord): string | null =>
  refundableAmount > 0 && email !== null ? `payments/${id}/refund` : null;

const refundColumn: Column<PaymentRecord> = {
  label: 'Action',
  text: (payment) => refundHref(payment) && 'Refund',
  href: refundHref,
  only: 'page',
};
