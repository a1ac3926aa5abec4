import type { TSchema } from 'typebox';
import { writeAmount } from '../../core/kernel/currencies.js';
import { type ListedAudit, toAuditView } from '../../core/ops/audit.js';
import {
  type NamedRecord,
  type NameOf,
  withNames,
  writeDetail,
  writeNamedActor,
} from '../../shared/console-kit/audit.js';
import type { Column } from '../../shared/console-kit/tables.js';
import type { EmailService, MailSummary } from '../../shared/email/service.js';
import type { PurchaseList } from '../billing/purchases.js';
import type { BillingRecords } from '../billing/records.js';
import type { Purchase } from '../billing/schemas.js';
import type { OwnOrganization } from '../organizations/schemas.js';
import { paymentColumns, refundColumn, subscriptionColumns } from './billing.js';

/** A list on the page of a user. */
export interface UserSection<Item> {
  title: string;
  columns: readonly Column<Item>[];
  /** The first items, the newest first. */
  read(userId: string, limit: number): Promise<readonly Item[]>;
  empty: string;
  /** The complete list, relative to the root; absent if the section is complete. */
  path?(userId: string): string;
}

export interface UserSectionSources {
  billing: BillingRecords;
  purchases: PurchasesSource;
  /** Whether the payment provider can be asked for refunds. */
  canRefund: boolean;
  mails: EmailService;
  audit: ListedAudit;
  /** The organizations of a user; absent if they are not enabled. */
  organizations: ((userId: string) => Promise<OwnOrganization[]>) | undefined;
}

export interface PurchasesSource {
  page: PurchaseList['page'];
  /** The schema of a purchase in JSON. */
  schema: TSchema;
}

export const purchaseColumns: readonly Column<Purchase>[] = [
  { label: 'Status', text: ({ status }) => status, kind: 'status' },
  { label: 'Plan', text: ({ plan }) => plan },
  { label: 'Amount', text: ({ amount, currency }) => writeAmount(amount, currency), kind: 'number' },
  { label: 'Purchased', text: ({ purchasedAt }) => purchasedAt, kind: 'time' },
  { label: 'ID', text: ({ id }) => id, kind: 'code' },
];

const membershipColumns: readonly Column<OwnOrganization>[] = [
  { label: 'Name', text: ({ name }) => name, href: ({ id }) => `organizations/${id}` },
  { label: 'Role', text: ({ role }) => role, kind: 'status' },
  { label: 'Members', text: ({ members }) => members, kind: 'number' },
  { label: 'ID', text: ({ id }) => id, kind: 'code' },
];

const mailColumns: readonly Column<MailSummary>[] = [
  { label: 'Mail', text: ({ template }) => template },
  { label: 'To', text: ({ to }) => to },
  { label: 'Status', text: ({ status }) => status, kind: 'status' },
  { label: 'Created', text: ({ createdAt }) => createdAt, kind: 'time' },
];

const auditColumns: readonly Column<NamedRecord>[] = [
  { label: 'Time', text: ({ at }) => at, kind: 'time' },
  { label: 'Event', text: ({ event }) => event, kind: 'code' },
  { label: 'By', text: writeNamedActor },
  { label: 'From', text: ({ ip }) => ip, kind: 'code' },
  { label: 'Detail', text: ({ detail }) => writeDetail(detail) },
];

/** Their first records are searched for failed sign-ins. */
const SEARCHED = 500;

const FAILED_SIGN_INS = new Set(['login.failed', 'login.code-refused', 'factor.failed']);

/** A list among others. */
export const section = <Item>(given: UserSection<Item>): UserSection<never> => given as UserSection<never>;

/** What a user or an organization has bought. */
export function sectionsOfOwner(
  { billing, purchases, canRefund }: Pick<UserSectionSources, 'billing' | 'purchases' | 'canRefund'>,
  kind: 'user' | 'organization',
): UserSection<never>[] {
  const first = (ownerId: string, limit: number) => ({ ownerId, limit, after: undefined });
  return [
    section({
      title: 'Subscriptions',
      columns: subscriptionColumns,
      read: async (id, limit) => (await billing.subscriptions(first(id, limit))).items,
      empty: `The ${kind} has no subscription.`,
      path: (id) => `subscriptions?q=${id}`,
    }),
    section({
      title: 'Payments',
      columns: canRefund ? [...paymentColumns, refundColumn] : paymentColumns,
      read: async (id, limit) => (await billing.payments(first(id, limit))).items,
      empty: `The ${kind} has made no payment.`,
      path: (id) => `payments?q=${id}`,
    }),
    section({
      title: 'One-time purchases',
      columns: purchaseColumns,
      read: async (id, limit) => (await purchases.page(id, undefined, limit)).items,
      empty: `The ${kind} has made no one-time purchase.`,
      ...(kind === 'user' && { path: (id) => `users/${id}/purchases` }),
    }),
  ];
}

/** What the other domains store about a user: the first rows, with links to the lists. */
export function createUserSections(
  sources: UserSectionSources,
  nameOf: NameOf,
): readonly UserSection<never>[] {
  const { mails, audit, organizations } = sources;
  return [
    ...(organizations
      ? [
          section({
            title: 'Organizations',
            columns: membershipColumns,
            read: organizations,
            empty: 'The user belongs to no organization.',
          }),
        ]
      : []),
    ...sectionsOfOwner(sources, 'user'),
    section({
      title: 'E-mails',
      columns: mailColumns,
      read: (id, limit) => firstOf(mails.listByUser(id), limit),
      empty: 'No mail about the user is stored.',
      path: (id) => `mails?q=${id}`,
    }),
    section({
      title: 'Failed sign-ins',
      columns: auditColumns,
      read: async (id, limit) =>
        withNames(
          (await firstOf(audit.listOf(id), SEARCHED))
            .filter(({ event }) => FAILED_SIGN_INS.has(event))
            .slice(0, limit)
            .map(toAuditView),
          nameOf,
        ),
      empty: `None is among the newest ${SEARCHED} records about the user.`,
    }),
    section({
      title: 'Audit',
      columns: auditColumns,
      read: async (id, limit) => withNames((await firstOf(audit.listOf(id), limit)).map(toAuditView), nameOf),
      empty: 'No record about the user is stored.',
      path: (id) => `audit?q=${id}`,
    }),
  ];
}

/** The first items of a list that comes in pages. */
export async function firstOf<T>(pages: AsyncIterable<readonly T[]>, limit: number): Promise<readonly T[]> {
  for await (const items of pages) return items.slice(0, limit);
  return [];
}
