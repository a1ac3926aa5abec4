import { toAuditView } from '../../core/ops/audit.js';
import {
  type NamedRecord,
  withNames,
  writeNamedActor,
  writeNamedDetail,
} from '../../shared/console-kit/audit.js';
import { type Column, tableOf } from '../../shared/console-kit/tables.js';
import type { MailSummary } from '../../shared/email/service.js';
import type { Purchase } from '../billing/schemas.js';
import type { OwnOrganization } from '../organizations/schemas.js';
import { amountColumn, paymentColumnsOf, subscriptionColumns } from './billing.js';
import type { AdminServices } from './services.js';

/** Rows of each list on the page, which stays small for a user with many sessions. */
export const LISTED = 10;

interface SectionOptions<Item> {
  title: string;
  columns: readonly Column<Item>[];
  /** The first items, the newest first. */
  read(ownerId: string, limit: number): Promise<readonly Item[]>;
  empty: string;
  /** The complete list, relative to the root; absent if the section is complete. */
  path?(ownerId: string): string;
}

/** A list on the page of a user or an organization: reads the view of its table. */
export const section =
  <Item>({ title: heading, columns, read, empty, path }: SectionOptions<Item>) =>
  async (ownerId: string, root: string) => {
    const items = await read(ownerId, LISTED);
    const moreHref = path && items.length >= LISTED ? root + path(ownerId) : undefined;
    return { heading, empty, moreHref, ...tableOf(columns, items, root) };
  };

export const purchaseColumns: readonly Column<Purchase>[] = [
  { label: 'Status', text: ({ status }) => status, kind: 'status' },
  { label: 'Plan', text: ({ plan }) => plan, kind: 'word' },
  amountColumn,
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
  { label: 'Mail', text: ({ template }) => template, kind: 'word' },
  { label: 'To', text: ({ to }) => to },
  { label: 'Status', text: ({ status }) => status, kind: 'status' },
  { label: 'Created', text: ({ createdAt }) => createdAt, kind: 'time' },
];

const auditColumns: readonly Column<NamedRecord>[] = [
  { label: 'Time', text: ({ at }) => at, kind: 'time' },
  { label: 'Event', text: ({ event }) => event, kind: 'code' },
  { label: 'By', text: writeNamedActor },
  { label: 'From', text: ({ ip }) => ip, kind: 'code' },
  { label: 'Detail', text: writeNamedDetail },
];

/** Their first records are searched for failed sign-ins. */
const SEARCHED = 500;

const FAILED_SIGN_INS = new Set(['login.failed', 'login.code-refused', 'factor.failed']);

/** What a user or an organization has bought. */
export function sectionsOfOwner(
  { billing: { records, purchases }, provider }: AdminServices,
  kind: 'user' | 'organization',
) {
  const first = (ownerId: string, limit: number) => ({ ownerId, limit, after: undefined });
  return [
    section({
      title: 'Subscriptions',
      columns: subscriptionColumns,
      read: async (id, limit) => (await records.subscriptions(first(id, limit))).items,
      empty: `The ${kind} has no subscription.`,
      path: (id) => `subscriptions?q=${id}`,
    }),
    section({
      title: 'Payments',
      columns: paymentColumnsOf(provider !== undefined),
      read: async (id, limit) => (await records.payments(first(id, limit))).items,
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
export function createUserSections(services: AdminServices) {
  const { email, audit, organizations, nameOf } = services;
  return [
    ...(organizations
      ? [
          section({
            title: 'Organizations',
            columns: membershipColumns,
            read: organizations.organizations.listOf,
            empty: 'The user belongs to no organization.',
          }),
        ]
      : []),
    ...sectionsOfOwner(services, 'user'),
    section({
      title: 'E-mails',
      columns: mailColumns,
      read: (id, limit) => firstOf(email.service.listByUser(id), limit),
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
