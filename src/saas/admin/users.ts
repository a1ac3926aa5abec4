import { type Static, Type } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { Nullable, Timestamp, User } from '../../core/http/schemas.js';
import type { BulkAction } from '../../shared/console-kit/actions.js';
import { registerBulkActions } from '../../shared/console-kit/bulk.js';
import type { Console } from '../../shared/console-kit/console.js';
import { ANY_PART, allFound, type List, registerList } from '../../shared/console-kit/lists.js';
import { OPERATOR_ROLES } from '../../shared/console-kit/roles.js';
import type { Column } from '../../shared/console-kit/tables.js';
import type { UserDirectory, UserState } from '../auth/users/users.js';
import type { BillingRecords } from '../billing/records.js';

/** A user as the operator sees it. */
export const OperatedUser = Type.Object({
  ...User.properties,
  state: Type.Enum(['active', 'suspended', 'deleting']),
  suspendedAt: Nullable(Timestamp),
  granted: Nullable(Type.Object({ plan: Type.String(), since: Timestamp, until: Nullable(Timestamp) })),
  hasPassword: Type.Boolean(),
  /** What operators have written. */
  note: Nullable(Type.Object({ text: Type.String(), by: Type.String(), at: Timestamp })),
  /** In the admin area; absent for everybody but operators. */
  operatorRole: Type.Optional(Type.Enum([...OPERATOR_ROLES])),
});
export type OperatedUser = Static<typeof OperatedUser>;

/** The ID of the user or the organization that an operator means by an ID, an e-mail address or a customer at the provider. */
export type ResolveUser = (text: string) => Promise<string | undefined>;

export const createResolveUser =
  ({ find }: UserDirectory, { ownerOf }: Pick<BillingRecords, 'ownerOf'>): ResolveUser =>
  async (text) => {
    if (text.startsWith('cus_')) return (await ownerOf(text)) ?? undefined;
    return (await find(text.includes('@') ? { email: text } : { id: text }))?.id;
  };

/** Whether a text has found something by its customer ID, and not as a part of what else it is called. */
export const isCustomerId = (text: string, ...names: readonly string[]): boolean =>
  /^cus_\w+$/.test(text) && !names.some((name) => name.toLowerCase().includes(text.toLowerCase()));

/** How many of those that a search finds a filter is applied to. */
const FILTERED = 1000;

/** The name and the address of a user by its ID; null for every other text. */
export const createNameOfUser =
  ({ find }: UserDirectory) =>
  async (id: string): Promise<string | null> => {
    const user = id.startsWith('usr_') ? await find({ id }) : null;
    // A user chooses the name: alone, it might be that of another operator.
    return user && (user.name ? `${user.name} (${user.email})` : user.email);
  };

/** The list of users. */
export async function usersPlugin(
  fastify: FastifyTypebox,
  {
    console,
    users,
    resolveUser,
    bulk,
  }: {
    console: Console;
    users: UserDirectory;
    resolveUser: ResolveUser;
    bulk: readonly BulkAction<OperatedUser>[];
  },
): Promise<void> {
  const list: List<OperatedUser> = {
    bulk,
    path: 'users',
    title: 'Users',
    search: {
      label: 'Search',
      hint: ANY_PART,
      maxLength: 254,
    },
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
  };
  registerList(fastify, console, list);
  await registerBulkActions(fastify, console, list);
}

/** A user in a list, with a link to the page. */
export const userColumn: Column<Pick<OperatedUser, 'id' | 'name' | 'email'>> = {
  label: 'User',
  text: ({ name, email }) => name || email,
  detail: ({ name, email }) => (name ? email : null),
  href: ({ id }) => `users/${id}`,
  kind: 'who',
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
  { label: 'Plan', text: ({ subscription: { plan } }) => plan },
  { label: 'Registered', text: ({ createdAt }) => createdAt, kind: 'time', isSorted: true },
  { label: 'ID', text: ({ id }) => id, kind: 'code', only: 'csv' },
];
