import { addressOf } from '../../core/http/mailboxes.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { toTimestamp, toTimestampOrNull } from '../../core/http/schemas.js';
import { registerBulkList } from '../../shared/console-kit/bulk.js';
import { ANY_PART, allFound, type List, registerList } from '../../shared/console-kit/lists.js';
import { nameOfState } from '../../shared/console-kit/marks.js';
import type { Kind, PrincipalDocument, PrincipalState } from '../provisioning/store.js';
import { type ConsoleServices, operatorSource, requireCurrent } from './sources.js';
import { MAX_READ, matcherOf, pageByUse, USE_OPTIONS } from './uses.js';

const KIND_LABELS: Record<Kind, string> = { human: 'Person', agent: 'Agent' };

/** Those that the filter by use is about. */
const ACTIVE_AGENTS = { kind: 'agent', state: 'active' } as const;

const STATES: readonly PrincipalState[] = ['active', 'invited', 'disabled', 'deleted'];

/** What a principal is, in a word. */
export const kindOf = ({ kind, operatorSince }: PrincipalDocument): string =>
  operatorSince === undefined ? KIND_LABELS[kind] : 'Operator';

/** The name of a principal on a page: that of an agent that has registered itself is its own claim. */
export const nameOf = ({ kind, handle, mintedAt }: PrincipalDocument): string =>
  kind === 'agent' && mintedAt === undefined ? `${handle} (registered itself, not verified)` : handle;

export const COLUMNS: List<PrincipalDocument>['columns'] = [
  {
    label: 'User name',
    text: nameOf,
    detail: ({ name }) => name ?? null,
    initials: ({ name }) => name ?? null,
    href: ({ id }) => `principals/${id}`,
    kind: 'who',
  },
  { label: 'Name', text: ({ name }) => name ?? null, only: 'csv' },
  { label: 'Kind', text: kindOf },
  { label: 'State', text: ({ state }) => state, kind: 'status' },
  { label: 'Created', text: ({ createdAt }) => toTimestamp(createdAt), kind: 'time' },
  { label: 'ID', text: ({ id }) => id, kind: 'code' },
];

/** The lists of principals and of invitations that were not accepted yet. */
export async function principalListsPlugin(
  fastify: FastifyTypebox,
  { console, clock, sources: { principals, links } }: ConsoleServices,
): Promise<void> {
  const list: List<PrincipalDocument> = {
    path: 'principals',
    title: 'People and agents',
    links: [
      { path: 'agents/create', label: 'Create an agent' },
      { path: 'invitations/create', label: 'Invite a person' },
    ],
    search: { label: 'Search', hint: ANY_PART, maxLength: 254 },
    filters: [
      {
        name: 'kind',
        label: 'Kind',
        options: [
          { value: 'human', label: 'People' },
          { value: 'agent', label: 'Agents' },
        ],
      },
      {
        name: 'state',
        label: 'State',
        options: STATES.map((value) => ({ value, label: nameOfState(value) })),
      },
      { name: 'use', label: 'Agents', options: USE_OPTIONS },
    ],
    columns: COLUMNS,
    total: principals.estimate,
    async read({ search, filters: { kind, state, use }, after, limit }) {
      if (use && (kind === 'human' || (state !== undefined && state !== 'active')))
        return { items: [], next: null };
      const chosen = use ? ACTIVE_AGENTS : { kind: kind as Kind, state: state as PrincipalState };
      const read = (limit: number) => principals.list({ prefix: search, ...chosen, after, limit });
      return pageByUse(read, { use, limit, now: clock.now() });
    },
    async find({ search, filters: { kind, state, use } }) {
      const hits = await principals.search(search, MAX_READ);
      const isFiltered = (kind ?? state ?? use) !== undefined;
      const matches = matcherOf(use, clock.now());
      return (isFiltered ? allFound(hits, MAX_READ) : hits).filter(
        (one) =>
          matches(one) &&
          (!use || (one.kind === 'agent' && one.state === 'active')) &&
          (kind === undefined || one.kind === kind) &&
          // Of a deleted account, the user name remains, so that it is not given to others.
          (state === undefined ? one.state !== 'deleted' || one.id === search : one.state === state),
      );
    },
    isNamed: ({ id, handle, email }, text) => [id, handle, email].includes(text.toLowerCase()),
    empty: 'There is nobody yet. Create an agent or invite a person.',
    bulk: [
      {
        verb: 'disable',
        label: 'Disable',
        button: 'Disable all',
        isDestructive: true,
        consequences:
          'None of them can sign in or get tokens any more: sessions, tokens and delegations end. Operators are passed over. Each can be enabled again.',
        // An operator is disabled on the page of the person only: otherwise nobody might be left.
        applies: ({ state, operatorSince }) => state === 'active' && operatorSince === undefined,
        nameOf,
        run: async ({ id }, _, by) => requireCurrent(await principals.disable(id, operatorSource(by))),
      },
    ],
  };
  await registerBulkList(fastify, console, list);

  registerList(fastify, console, {
    path: 'invitations',
    title: 'Invitations',
    intro:
      'People who were invited and have not used their link yet. An invitation is removed 30 days after its link has expired.',
    links: [{ path: 'invitations/create', label: 'Invite a person' }],
    search: {
      label: 'Search',
      hint: 'The beginning of a user name.',
      maxLength: 254,
      // It is one of the people already.
      isAsked: () => false,
    },
    filters: [{ name: 'state', label: 'Link', options: [{ value: 'expired', label: 'expired' }] }],
    columns: [
      ...COLUMNS.slice(0, 2),
      { label: 'E-mail address', text: (principal) => addressOf(principal) ?? null },
      {
        label: 'Link',
        text: (principal) => (links.hasExpired(principal) ? 'expired' : 'open'),
        kind: 'status',
      },
      { label: 'Link expires', text: ({ linkExpiresAt }) => toTimestampOrNull(linkExpiresAt), kind: 'time' },
      {
        label: 'Send again',
        text: () => 'New link',
        href: ({ id }) => `invitations/${id}/resend`,
      },
      {
        label: 'Withdraw',
        text: () => 'Withdraw',
        href: ({ id }) => `invitations/${id}/withdraw`,
      },
    ],
    read: ({ search, filters, after, limit }) =>
      principals.list({
        prefix: search,
        state: 'invited',
        hasExpiredLink: filters['state'] === 'expired',
        after,
        limit,
      }),
    empty: 'There are no open invitations.',
  });
}
