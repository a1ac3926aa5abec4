import type { TObject } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { AppError, httpErrors } from '../../core/kernel/errors.js';
import { registerAction } from './actions.js';
import type { Console } from './console.js';
import { type List, listQueryOf, querySchema } from './lists.js';

/** A request changes at most so many. */
const MAX_ITEMS = 500;
/** Each change takes milliseconds, but a database may be slow. */
const TIMEOUT_MS = 60_000;
/** Items that a message names. */
const NAMED = 5;

interface Selection<Item> {
  items: readonly Item[];
  query: string;
}

/** The actions with everything that a list shows; see {@link List.bulk}. */
export async function registerBulkActions<Item>(
  fastify: FastifyTypebox,
  console: Console,
  list: List<Item>,
): Promise<void> {
  const { path, section = path, bulk = [] } = list;
  for (const { verb, label, applies, nameOf, run, consequences, ...action } of bulk) {
    await registerAction<Selection<Item>, TObject>(fastify, console, {
      path: `${path}/all/${verb}`,
      section,
      querystring: querySchema(list),
      async find(parameters, texts) {
        const { after: _, row: __, done: ___, ...query } = texts;
        const { items, next } = await list.read(listQueryOf(list, query, { parameters, limit: MAX_ITEMS }));
        if (next !== null)
          throw httpErrors.VALIDATION_ERROR({
            message: `The list has more than ${MAX_ITEMS} entries. Narrow the search or the filter.`,
          });
        return { items: items.filter(applies), query: new URLSearchParams(query).toString() };
      },
      title: ({ items }) => `${label}: ${items.length}`,
      consequences: async ({ items }) => `${consequences} ${summaryOf(items.map(nameOf))}`,
      typed: ({ items }) => String(items.length),
      timeoutMs: TIMEOUT_MS,
      ...action,
      run: ({ items }, fields, by) => changeAll(items, { nameOf, change: (item) => run(item, fields, by) }),
      done: 'All of them were changed.',
      returnTo: ({ query }) => `${path}?${query}`,
    });
  }
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
