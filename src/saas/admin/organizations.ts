import type { FastifyTypebox } from '../../core/http/routes.js';
import { toAuditView } from '../../core/ops/audit.js';
import { auditColumns, withNames } from '../../shared/console-kit/audit.js';
import {
  type ConditionalLink,
  DANGEROUS,
  type DetailRow,
  linksBelow,
  registerDetail,
} from '../../shared/console-kit/details.js';
import { ANY_PART, registerList } from '../../shared/console-kit/lists.js';
import type { Column } from '../../shared/console-kit/tables.js';
import type { OperatedOrganization } from '../organizations/administration.js';
import type { Invitation, Member } from '../organizations/schemas.js';
import { subscriptionLinks } from './billing-actions.js';
import type { AdminServices } from './services.js';
import { accessOf, limitView, planFacts } from './user-page.js';
import { LISTED, section, sectionsOfOwner } from './user-sections.js';
import { isCustomerId, planColumn } from './users.js';

/** The list of organizations, their pages and the lists of their members. */
export async function organizationsPlugin(fastify: FastifyTypebox, services: AdminServices): Promise<void> {
  const { console, organizations, billing, audit, resolveUser, nameOf } = services;
  if (!organizations) return;
  const { administration, members, invitations } = organizations;
  const { schemas } = administration;
  const membersOf = async (id: string, after: string | undefined, limit: number) => {
    const page = await members.list(id, after, limit);
    return { items: page.members.map((one) => ({ ...one, id })), next: page.next };
  };
  const sections = [
    section({
      title: 'Members',
      columns: memberColumns,
      read: async (id, limit) => (await membersOf(id, undefined, limit)).items,
      empty: 'Nobody is a member.',
    }),
    section({
      title: 'Open invitations',
      columns: invitationColumns,
      read: async (id) => (await invitations.list(id, undefined)).invitations,
      empty: 'No invitation is open.',
    }),
    ...sectionsOfOwner(services, 'organization'),
    section({
      title: 'Audit',
      columns: logColumns,
      read: async (about, limit) =>
        withNames((await audit.search({ about, after: undefined, limit })).items.map(toAuditView), nameOf),
      empty: 'No record about the organization is stored.',
    }),
  ];

  registerList<OperatedOrganization>(fastify, console, {
    path: 'organizations',
    title: 'Organizations',
    search: { label: 'Search', hint: ANY_PART, maxLength: 200 },
    columns,
    item: schemas.organization,
    read: async ({ search, after, limit }) =>
      search === undefined
        ? administration.list(after, limit)
        : { items: await administration.search(search, limit), next: null },
    find: async ({ search, limit }) => administration.search(search, limit, await resolveUser(search)),
    isNamed: ({ id, slug, name }, text) =>
      [id, slug].includes(text.toLowerCase()) || isCustomerId(text, slug, name),
    empty: 'There are no organizations yet. Users create them at POST /api/organizations.',
  });

  registerList<ListedMember>(fastify, console, {
    path: 'organizations/:id/members',
    section: 'organizations',
    title: 'Members',
    links: [{ path: 'organizations/:id', label: 'Back to the organization' }],
    columns: memberColumns,
    item: schemas.member,
    async read({ parameters: { id = '' }, after, limit }) {
      await administration.find(id);
      return membersOf(id, after, limit);
    },
    empty: 'The organization has no members: it is being deleted.',
  });

  registerDetail<OperatedOrganization>(fastify, console, {
    path: 'organizations/:id',
    section: 'organizations',
    item: schemas.organization,
    find: ({ id = '' }) => administration.find(id),
    async view(organization, root) {
      const { id, name, state } = organization;
      const [customers, held, limits, ...tables] = await Promise.all([
        billing.records.customers(id),
        billing.records.subscriptions({ ownerId: id, limit: LISTED, after: undefined }),
        state === 'active' ? billing.quotas.list(id) : [],
        ...sections.map((tableOfSection) => tableOfSection(id, root)),
      ]);
      return {
        title: name,
        isPerson: true,
        answer:
          state === 'active'
            ? accessOf(organization, held.items)
            : { state, headline: 'The organization is being deleted', detail: '' },
        facts: [...factsOf(organization), ...planFacts(organization, customers)],
        limits: limits.map(limitView),
        actions: [...linksTo(organization, services), ...subscriptionLinks(held.items, root)],
        tables,
      };
    },
  });
}

const columns: readonly Column<OperatedOrganization>[] = [
  {
    label: 'Name',
    text: ({ name }) => name,
    detail: ({ slug }) => slug,
    href: ({ id }) => `organizations/${id}`,
    kind: 'who',
  },
  { label: 'Slug', text: ({ slug }) => slug, only: 'csv' },
  { label: 'Members', text: ({ members }) => members, kind: 'number' },
  { label: 'State', text: ({ state }) => state, kind: 'status' },
  { label: 'Subscription', text: ({ subscription: { status } }) => status, kind: 'status' },
  planColumn,
  { label: 'Created', text: ({ createdAt }) => createdAt, kind: 'time' },
  { label: 'ID', text: ({ id }) => id, kind: 'code' },
];

/** A member with the ID of the organization. */
type ListedMember = Member & { id: string };

const memberColumns: readonly Column<ListedMember>[] = [
  {
    label: 'E-mail address',
    text: ({ email, userId }) => email || userId,
    href: ({ userId }) => `users/${userId}`,
  },
  { label: 'Name', text: ({ name }) => name },
  { label: 'Role', text: ({ role }) => role, kind: 'status' },
  { label: 'Joined', text: ({ joinedAt }) => joinedAt, kind: 'time' },
  {
    label: 'Change',
    text: () => 'Role',
    href: ({ id, userId }) => `organizations/${id}/members/${userId}/role`,
  },
  {
    label: 'Remove',
    text: () => 'Remove',
    href: ({ id, userId }) => `organizations/${id}/members/${userId}/remove`,
  },
];

const invitationColumns: readonly Column<Invitation>[] = [
  { label: 'To', text: ({ email }) => email },
  { label: 'Role', text: ({ role }) => role, kind: 'status' },
  { label: 'Sent', text: ({ createdAt }) => createdAt, kind: 'time' },
  { label: 'Valid until', text: ({ expiresAt }) => expiresAt, kind: 'time' },
];

const logColumns = auditColumns((subject) => (subject.startsWith('usr_') ? `users/${subject}` : null));

function linksTo({ id, state, granted }: OperatedOrganization, { provider }: AdminServices) {
  const links: ConditionalLink[] = [
    ['members', 'All members', true],
    ['rename', 'Change name and slug', state === 'active'],
    ['add-member', 'Add a member', state === 'active'],
    ['grant', granted === null ? 'Grant a plan' : 'Change the granted plan', state === 'active', 'Billing'],
    ['revoke-grant', 'Withdraw the granted plan', granted !== null, 'Billing'],
    ['resync', 'Sync with the payment provider', provider !== undefined, 'Billing'],
    ['delete', 'Delete', state === 'active', DANGEROUS],
  ];
  return linksBelow(id, links);
}

function factsOf(organization: OperatedOrganization): DetailRow[] {
  const { id, slug, state, members, owners, billingEmail, logoUrl, createdAt } = organization;
  return [
    { label: 'ID', text: id, isCode: true },
    { label: 'Slug', text: slug, isCode: true },
    { label: 'State', state },
    {
      label: 'Members',
      text: `${members}, of which ${owners} ${owners === 1 ? 'is an owner' : 'are owners'}`,
    },
    { label: 'Address for invoices', text: billingEmail },
    { label: 'Logo', text: logoUrl },
    { label: 'Created', time: createdAt },
  ];
}
