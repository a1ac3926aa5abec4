import { Type } from 'typebox';
import type { Console } from '../console/console.js';
import { type List, type ListQuery, registerList } from '../console/lists.js';
import { User } from '../http/schemas.js';
import type { Scope } from '../http/scope.js';
import type { Page } from '../storage/collection.js';

export interface UsersSource {
  /** Users by the beginning of their address or by their ID; without `search` all, the newest first. */
  list(query: Pick<ListQuery, 'search' | 'after' | 'limit'>): Promise<Page<User>>;
  find(by: { id: string } | { email: string }): Promise<{ id: string } | null>;
}

/** The ID of the user that an operator means by an ID or an e-mail address; `undefined` if there is none. */
export type ResolveUser = (text: string) => Promise<string | undefined>;

export const createResolveUser =
  ({ find }: Pick<UsersSource, 'find'>): ResolveUser =>
  async (text) =>
    (await find(text.includes('@') ? { email: text } : { id: text }))?.id;

/** The list of users. */
export async function usersPlugin(
  scope: Scope,
  { console, users }: { console: Console; users: UsersSource },
): Promise<void> {
  const list: List<User> = {
    path: 'users',
    title: 'Users',
    search: {
      label: 'Search',
      hint: 'The beginning of an e-mail address, or a user ID.',
      maxLength: 254,
    },
    item: Type.Object(User.properties),
    columns: [
      { label: 'E-mail address', text: ({ email }) => email },
      { label: 'Name', text: ({ name }) => name },
      { label: 'Subscription', text: ({ subscription: { status } }) => status, kind: 'status' },
      { label: 'Plan', text: ({ subscription: { plan } }) => plan },
      { label: 'Registered', text: ({ createdAt }) => createdAt, kind: 'time' },
      { label: 'ID', text: ({ id }) => id, kind: 'code' },
    ],
    read: users.list,
    empty:
      'There are no users yet. They register at POST /api/auth/register, or you create one with saas-backend user create.',
  };
  registerList(scope, console, list);
}
