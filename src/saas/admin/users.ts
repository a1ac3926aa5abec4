import type { FastifyTypebox } from '../../core/http/routes.js';
import { registerBulkList } from '../../shared/console-kit/bulk.js';
import { ANY_PART, allFound } from '../../shared/console-kit/lists.js';
import type { Column } from '../../shared/console-kit/tables.js';
import type { UserState } from '../auth/users/users.js';
import { OperatedUser } from './schemas.js';
import type { AdminServices } from './services.js';
import { bulkUserActions } from './user-bulk.js';

/** Whether a text has found something by its customer ID, and not as a part of what else it is called. */
export const isCustomerId = (text: string, ...names: readonly string[]): boolean =>
  /^cus_\w+$/.test(text) && !names.some((name) => name.toLowerCase().includes(text.toLowerCase()));

/** How many of those that a search finds a filter is applied to. */
const FILTERED = 1000;

/** The list of users. */
export async function usersPlugin(fastify: FastifyTypebox, services: AdminServices): Promise<void> {
  const { console, resolveUser } = services;
  const users = services.users.directory;
  await registerBulkList<OperatedUser>(fastify, console, {
    bulk: bulkUserActions(services),
    path: 'users',
    title: 'Users',
    search: { label: 'Search', hint: ANY_PART, maxLength: 254 },
    filters: [
      {
        name: 'show',
        label: 'Show',
        options: [
          { value: 'suspended', label: 'Suspended' },
          { value: 'deleting', label: 'Being deleted' },
          { value: 'unverified', label: 'Address not verified' },
          { value: 'operators', label: 'Operators' },
        ],
      },
    ],
    item: OperatedUser,
    columns,
    total: users.estimate,
    read: ({ search, filters, after, limit }) =>
      users.list({ search, state: filters['show'] as UserState | undefined, after, limit }),
    async find({ search, filters: { show }, limit }) {
      if (show === undefined) return users.search(search, limit, await resolveUser(search));
      const found = allFound(await users.search(search, FILTERED, await resolveUser(search)), FILTERED);
      return found.filter(
        ({ state, emailVerified, operatorRole }) =>
          state === show ||
          (show === 'unverified' && !emailVerified) ||
          (show === 'operators' && operatorRole !== undefined),
      );
    },
    isNamed: ({ id, email, name }, text) =>
      [id, email].includes(text.toLowerCase()) || isCustomerId(text, email, name ?? ''),
    empty:
      'There are no users yet. They register at POST /api/auth/register, or you create one with saas-backend user create.',
  });
}

/** A user in a list, with a link to the page. */
export const userColumn: Column<Pick<OperatedUser, 'id' | 'name' | 'email'>> = {
  label: 'User',
  text: ({ name, email }) => name || email,
  detail: ({ name, email }) => (name ? email : null),
  href: ({ id }) => `users/${id}`,
  kind: 'who',
};

/** The plan of a user or an organization. Who has no subscription is free, which the state beside it says. */
export const planColumn: Column<{ subscription: { status: string; plan: string } }> = {
  label: 'Plan',
  text: ({ subscription: { status, plan } }) => (status === 'none' ? null : plan),
  csv: ({ subscription: { plan } }) => plan,
  kind: 'word',
};

const columns: readonly Column<OperatedUser>[] = [
  { ...userColumn, only: 'page' },
  { label: 'E-mail address', text: ({ email }) => email, only: 'csv' },
  { label: 'Name', text: ({ name }) => name, only: 'csv' },
  { label: 'Verified', text: ({ emailVerified }) => (emailVerified ? 'yes' : 'no'), only: 'csv' },
  {
    label: 'Account',
    // What needs no attention is not said.
    text: ({ state, emailVerified }) => (state !== 'active' ? state : emailVerified ? null : 'unverified'),
    kind: 'status',
    only: 'page',
  },
  { label: 'State', text: ({ state }) => state, only: 'csv' },
  { label: 'Access', text: ({ subscription: { status } }) => status, kind: 'status', only: 'page' },
  { label: 'Subscription', text: ({ subscription: { status } }) => status, only: 'csv' },
  planColumn,
  { label: 'Registered', text: ({ createdAt }) => createdAt, kind: 'time', isSorted: true },
  { label: 'ID', text: ({ id }) => id, kind: 'code', only: 'csv' },
];
