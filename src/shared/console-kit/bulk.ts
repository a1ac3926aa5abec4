import { type TObject, Type } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { AppError, httpErrors } from '../../core/kernel/errors.js';
import { sha256 } from '../../core/kernel/secrets.js';
import { withoutBudget } from '../../core/storage/request-budget.js';
import { registerAction } from './actions.js';
import type { Console } from './console.js';
import {
  type List,
  type ListPage,
  type ListQuery,
  listQueryOf,
  querySchema,
  readOrFind,
  registerList,
} from './lists.js';

/** A request changes at most so many: the first ones, and another request those that are left. */
const MAX_ITEMS = 500;
/** Pages of a list in which they are looked for. */
const MAX_PAGES = 20;

const NOT_NARROWED = 'Narrow the list by a search or a filter first.';
const CHANGED = 'The list has changed since the page was shown. Load it again.';
const HASH = { accepts: 'a value of the page', pattern: '^[\\w-]{43}$' };
/** Each change takes milliseconds, but a database may be slow. */
const TIMEOUT_MS = 60_000;
/** Items that a message names. */
const NAMED = 5;

interface Selection<Item> {
  items: readonly Item[];
  /** Whether the list has more. */
  isPart: boolean;
  query: string;
  /** Of the identifiers: a form that was rendered for others is refused. */
  fingerprint: string;
}

/** Registers a list, and the actions with everything that it shows: see {@link List.bulk}. */
export async function registerBulkList<Item extends { id: string }>(
  fastify: FastifyTypebox,
  console: Console,
  list: List<Item>,
): Promise<void> {
  registerList(fastify, console, list);
  const { path, section = path, bulk = [] } = list;
  for (const { verb, label, applies, nameOf, run, consequences, roleOn, ...action } of bulk) {
    await registerAction<Selection<Item>, TObject>(fastify, console, {
      path: `${path}/all/${verb}`,
      section,
      querystring: querySchema(list),
      async find(parameters, texts) {
        const { after: _, row: __, done: ___, ...query } = texts;
        if (Object.keys(query).length === 0) throw httpErrors.VALIDATION_ERROR({ message: NOT_NARROWED });
        const selected = listQueryOf(list, query, { parameters, limit: MAX_ITEMS });
        const { items, isPart } = await applicableOf((one) => readOrFind(list, one), selected, applies);
        // A search has no order.
        const fingerprint = sha256(JSON.stringify(items.map(({ id }) => id).sort()));
        return { items, isPart, fingerprint, query: new URLSearchParams(query).toString() };
      },
      title: ({ items, isPart }) => `${label}: ${isPart ? 'the first ' : ''}${items.length}`,
      consequences: async ({ items }) => `${consequences} ${summaryOf(items.map(nameOf))}`,
      typed: ({ items }) => String(items.length),
      timeoutMs: TIMEOUT_MS,
      ...action,
      ...(roleOn && { roleOn: ({ items }) => items.map(roleOn).find((role) => role !== undefined) }),
      inputs: [...(action.inputs ?? []), { name: 'shown', label: 'Shown', type: 'hidden' }],
      values: ({ fingerprint }) => ({ shown: fingerprint }),
      fields: Type.Object({ ...action.fields?.properties, shown: Type.Optional(Type.String(HASH)) }),
      // Each change has the time of a request of its own.
      run: ({ items, fingerprint }, { shown, ...fields }, by) => {
        if (shown !== undefined && shown !== fingerprint)
          throw httpErrors.VERSION_CONFLICT({ message: CHANGED });
        const change = (item: Item) => withoutBudget(() => run(item, fields, by));
        return changeAll(items, { nameOf, change });
      },
      done: 'All of them were changed.',
      returnTo: ({ query }) => `${path}?${query}`,
    });
  }
}

/** The first items to which a change applies: those that were changed before may still be in the list. */
export async function applicableOf<Item>(
  read: (query: ListQuery) => Promise<ListPage<Item>>,
  query: ListQuery,
  applies: (item: Item) => boolean,
): Promise<Pick<Selection<Item>, 'items' | 'isPart'>> {
  const items: Item[] = [];
  let after: string | null | undefined;
  let isPart = false;
  for (let pages = 0; after !== null && pages < MAX_PAGES && items.length < MAX_ITEMS; pages++) {
    const page: ListPage<Item> = await read({ ...query, after });
    items.push(...page.items.filter(applies));
    after = page.next;
    isPart = after !== null || page.note !== undefined;
  }
  return { items: items.slice(0, MAX_ITEMS), isPart: isPart || items.length > MAX_ITEMS };
}

/**
 * Changes each item, also after one was refused.
 *
 * @throws VALIDATION_ERROR that names what was not changed
 * @throws AppError of a field of the form, which is the same for all, and of the server
 */
export async function changeAll<Item>(
  items: readonly Item[],
  { nameOf, change }: { nameOf(item: Item): string; change(item: Item): Promise<unknown> },
): Promise<void> {
  const refused: string[] = [];
  for (const item of items) {
    try {
      await change(item);
    } catch (error) {
      const isAboutItem = error instanceof AppError && error.statusCode < 500 && !error.details?.length;
      if (!isAboutItem) throw error;
      refused.push(`${nameOf(item)}: ${error.message}`);
    }
  }
  if (refused.length === 0) return;
  const rest = refused.length - NAMED;
  const named = refused.slice(0, NAMED).join(' ') + (rest > 0 ? ` And ${rest} more.` : '');
  const changed = `${items.length - refused.length} of ${items.length} were changed.`;
  throw httpErrors.VALIDATION_ERROR({ message: `${changed} Not changed: ${named}` });
}

/** The first ones by name. */
function summaryOf(names: readonly string[]): string {
  if (names.length === 0) return 'It applies to none of the entries.';
  const rest = names.length - NAMED;
  return `These are ${names.slice(0, NAMED).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}.`;
}
