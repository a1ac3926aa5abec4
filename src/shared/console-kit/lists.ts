import type { FastifyReply, FastifyRequest } from 'fastify';
import { type TSchema, Type } from 'typebox';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { After, Envelope, Next, ok } from '../../core/http/schemas.js';
import { streamText } from '../../core/http/streams.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { canSearch, type Estimate, type Page } from '../../core/storage/collection.js';
import type { BulkAction } from './actions.js';
import { type Console, Done, type Found, ownPath, Parameters, rootOf } from './console.js';
import { csvOf } from './csv.js';
import { type Column, tableOf } from './tables.js';

/** A list of the console: as a page, as CSV and, if the console has an API, as JSON. */
export interface List<Item> {
  /** Relative to the root, without a leading slash: `users` or `users/:id/sessions`. Also the name of the CSV file. */
  path: string;
  /** The entry of the navigation. Default: `path`. */
  section?: string;
  title: string;
  /** A sentence about what the list contains. */
  intro?: string;
  search?: Search;
  filters?: readonly Filter[];
  columns: readonly Column<Item>[];
  /** The schema of an item in JSON; absent: the list has no JSON. */
  item?: TSchema;
  /** @throws VALIDATION_ERROR for an invalid `after` */
  read(query: ListQuery): Promise<ListPage<Item>>;
  /** Finds by any part of a text, in place of `read`, if the text is long enough: the first ones, without a next page. */
  find?(query: SearchQuery): Promise<readonly Item[]>;
  /** Whether a text is an identifier of an item, so that a search for it leads to the page. */
  isNamed?(item: Item, text: string): boolean;
  /** How many there are in all, if that is known at a cost that does not grow with them. */
  total?(): Promise<Estimate>;
  /** What the operator can do when there is nothing yet, as a sentence. */
  empty: string;
  /** Links above the list, relative to the root; they may contain the parameters of `path`. */
  links?: readonly { path: string; label: string }[];
  /** What can be done with everything that a search or a filter shows; see `registerBulkList`. */
  bulk?: readonly BulkAction<Item>[];
}

/** A search field. */
export interface Search {
  label: string;
  /** What it finds, as a sentence. */
  hint: string;
  maxLength: number;
  /** Whether the search of the whole console asks the list as well. Default: always. */
  isAsked?(text: string): boolean | Promise<boolean>;
}

/** What the beginning of an address cannot find: the texts of a search by any part of a name. */
export const ANY_PART = 'Any part of a name or an address, or an ID.';

/** A page that may not be full although another one follows, because the search for it is limited. */
export interface ListPage<Item> extends Page<Item> {
  /** What was searched, as a sentence. */
  note?: string | undefined;
}

/** A filter with fixed choices, a day (UTC) or a word; without a value, everything is listed. */
export interface Filter {
  name: string;
  label: string;
  hint?: string;
  options?: readonly { value: string; label: string }[];
  /** Without `options`. */
  type?: 'date' | 'text';
}

/** The texts that a filter without choices accepts. */
const TYPED = {
  date: { accepts: 'a day like 2026-01-31', pattern: '^(\\d{4}-\\d{2}-\\d{2})?$' },
  text: { accepts: 'at most 64 letters, dots and underscores', maxLength: 64, pattern: '^[\\w.]*$' },
};

export interface ListQuery {
  search: string | undefined;
  /** The chosen value of each filter. */
  filters: Record<string, string | undefined>;
  /** The parameters of the path. */
  parameters: Record<string, string>;
  after: string | undefined;
  limit: number;
}

export interface SearchQuery extends Pick<ListQuery, 'filters' | 'limit'> {
  search: string;
}

const PAGE_SIZE = 50;
/** Rows of one list in the search of the whole console. */
const FOUND_SIZE = 8;
/** Documents read at once for CSV. */
const BATCH_SIZE = 500;

export function registerList<Item>(fastify: FastifyTypebox, console: Console, given: List<Item>): void {
  const list = { ...given, read: (query: ListQuery) => readOrFind(given, query) };
  const { path, item } = list;
  if (list.search) console.searches.push((text, root) => findIn(list, text, root));
  const columns = list.columns.filter(({ only }) => only !== 'page');
  const schema = { params: Parameters, querystring: querySchema(list) };
  const queryOf = ({ query, params }: FastifyRequest, limit: number): ListQuery =>
    listQueryOf(list, query as QueryTexts, { parameters: params as Record<string, string>, limit });

  fastify.get(`/${path}`, { config: console.config, schema }, async (request, reply) => {
    const query = queryOf(request, PAGE_SIZE);
    const isWhole = query.search === undefined && Object.values(query.filters).every((one) => !one);
    const [page, total] = await Promise.all([list.read(query), isWhole ? list.total?.() : undefined]);
    return sendPage(console, list, { request, reply, query, page, total: total && writeEstimate(total) });
  });

  fastify.get(`/${path}.csv`, { config: console.configFor('support'), schema }, async (request, reply) => {
    const query = queryOf(request, BATCH_SIZE);
    // Read before the response begins, so that its errors are ordinary responses.
    const pages = rowsOf(columns, list, query, complete(await list.read(query)));
    const name = path.replace(/\/:\w+/g, '').replaceAll('/', '-');
    reply.header('content-disposition', `attachment; filename="${name}.csv"`).type('text/csv; charset=utf-8');
    const header = columns.map(({ label }) => label);
    return streamText(request, reply, csvOf(header, pages));
  });

  if (console.api === undefined || item === undefined) return;
  const Answer = Envelope(Type.Object({ items: Type.Array(item), next: Next }));
  fastify.get(
    `${console.api}/${path}`,
    { config: access(console.access), schema: { ...schema, response: { 200: Answer } } },
    // The compiler cannot relate an item to its schema here; the serializer only writes what the schema names.
    async (request) => {
      const query = queryOf(request, PAGE_SIZE);
      // A search by text has one page.
      const limit = given.find && query.search !== undefined ? BATCH_SIZE : PAGE_SIZE;
      return ok(complete(await list.read({ ...query, limit })) as { items: never[]; next: string | null });
    },
  );
}

export type QueryTexts = { q?: string; after?: string } & Record<string, string | undefined>;

/** What a list shows by the query of a page that {@link querySchema} accepts. */
export function listQueryOf<Item>(
  { filters = [] }: Pick<List<Item>, 'filters'>,
  { q, after, ...rest }: QueryTexts,
  more: Pick<ListQuery, 'parameters' | 'limit'>,
): ListQuery {
  const chosen = Object.fromEntries(filters.map(({ name }) => [name, rest[name] || undefined]));
  return { search: q?.trim() || undefined, filters: chosen, after: after || undefined, ...more };
}

export function querySchema<Item>({ search, filters = [] }: List<Item>) {
  const choice = ({ options, type = 'text' }: Filter) =>
    Type.Optional(
      Type.String(
        options
          ? {
              accepts: `one of ${options.map(({ value }) => value).join(', ')}`,
              pattern: `^(${['', ...options.map(({ value }) => value.replace(/[^\w]/g, '\\$&'))].join('|')})$`,
            }
          : TYPED[type],
      ),
    );
  return Type.Object({
    ...(search && {
      q: Type.Optional(
        Type.String({
          accepts: `a text of at most ${search.maxLength} characters`,
          maxLength: search.maxLength,
          pattern: '^[^\\p{Cc}\\p{Cs}]*$',
        }),
      ),
    }),
    ...Object.fromEntries(filters.map((filter) => [filter.name, choice(filter)])),
    after: After,
    // The number of the first row, which a cursor does not tell.
    row: Type.Optional(Type.String({ accepts: 'the number of a row', maxLength: 9, pattern: '^[1-9]\\d*$' })),
    done: Done,
  });
}

/** What a list shows: by any part of a text where it can, otherwise as `read` says. */
export async function readOrFind<Item>(
  { find, read }: List<Item>,
  query: ListQuery,
): Promise<ListPage<Item>> {
  const { search, filters, limit } = query;
  if (!find || search === undefined || !canSearch(search)) return read(query);
  // One more than requested shows whether there are others.
  const found = await find({ search, filters, limit: limit + 1 });
  const note = `These are the first ${limit}. A longer part of the name or the address finds fewer.`;
  return { items: found.slice(0, limit), next: null, ...(found.length > limit && { note }) };
}

/** What a search has found, to be filtered. @throws VALIDATION_ERROR if it may have found more */
export function allFound<Item>(found: Item[], limit: number): Item[] {
  if (found.length >= limit)
    throw invalidFields({
      path: 'q',
      message: `finds ${limit} or more, too many for a filter. Search for a longer part`,
    });
  return found;
}

/** For programs, which see no note. @throws VALIDATION_ERROR for a search that has found more than it gives */
function complete<Item>(page: ListPage<Item>): ListPage<Item> {
  if (page.next === null && page.note !== undefined)
    throw invalidFields({ path: 'q', message: `finds too many. ${page.note}` });
  return page;
}

/** What a list contributes to the search of the whole console. */
async function findIn<Item>(list: List<Item>, search: string, root: string): Promise<Found | null> {
  const { title, path, columns, isNamed } = list;
  const { maxLength = 0, isAsked } = list.search ?? {};
  if (search.length > maxLength || (await isAsked?.(search)) === false) return null;
  const query = { search, filters: {}, parameters: {}, after: undefined, limit: FOUND_SIZE };
  const { items, next, note } = await list.read(query);
  if (items.length === 0) return null;
  const hasMore = next !== null || note !== undefined;
  const pageOf = (item: Item) =>
    columns.flatMap(({ href }) => href?.(item) ?? []).find((href) => !/^https?:/.test(href));
  return {
    heading: title,
    moreHref: hasMore ? `${root}${path}?${new URLSearchParams({ q: search })}` : undefined,
    table: tableOf(columns, items, root),
    identified: items.flatMap((item) => (isNamed?.(item, search) ? (pageOf(item) ?? []) : [])),
  };
}

/** The rows of a page and of all that follow. */
async function* rowsOf<Item>(
  columns: readonly Column<Item>[],
  { read }: List<Item>,
  query: ListQuery,
  first: Page<Item>,
) {
  for (let page = first; ; page = await read({ ...query, after: page.next })) {
    yield page.items.map((item) => columns.map(({ text, csv = text }) => csv(item)));
    if (page.next === null) return;
  }
}

interface RenderedList<Item> {
  request: FastifyRequest;
  reply: FastifyReply;
  query: ListQuery;
  page: ListPage<Item>;
  total: string | undefined;
}

/** `548`, `about 12,300`: to three digits, because an estimate is not more precise. */
export const writeEstimate = ({ count, isExact }: Estimate): string =>
  isExact ? withSeparators(count) : `about ${withSeparators(Number(count.toPrecision(3)))}`;

export const withSeparators = (count: number): string => count.toLocaleString('en-US');

function sendPage<Item>(
  console: Console,
  list: List<Item>,
  { request, reply, query, page, total }: RenderedList<Item>,
): FastifyReply {
  const { path, section = path, title, intro, columns, search, filters = [], empty, links = [] } = list;
  const { bulk = [] } = list;
  const root = rootOf(request);
  const own = ownPath(request);
  const chosen = new URLSearchParams();
  if (query.search !== undefined) chosen.set('q', query.search);
  for (const [name, value] of Object.entries(query.filters)) if (value !== undefined) chosen.set(name, value);
  const isNarrowed = chosen.size > 0;
  /** A link to the list with other parameters; `undefined` removes one. */
  const href = (extension: string, more: Record<string, string | undefined> = {}) => {
    const parameters = new URLSearchParams(chosen);
    for (const [name, value] of Object.entries(more)) {
      if (value === undefined) parameters.delete(name);
      else parameters.set(name, value);
    }
    return `${own}${extension}${parameters.size > 0 ? `?${parameters}` : ''}`;
  };
  const first = query.after === undefined ? 1 : Number((request.query as { row?: string }).row ?? 1);
  const last = first + page.items.length - 1;
  const isWhole = !isNarrowed && first === 1 && page.items.length > 0 && page.next === null;
  return console.send(request, reply, {
    template: 'console-list',
    section,
    view: {
      title,
      intro,
      tools: [
        ...links.map(({ path, label }, index) => ({
          href: root + withParameters(path, query.parameters),
          label,
          isPrimary: index === 0 && path.endsWith('/create'),
        })),
        ...(isNarrowed && page.items.length > 0 && bulk.length > 0
          ? [menuOf(bulk, `${root}${path}/all`, chosen)]
          : []),
        ...(page.items.length === 0 ? [] : [{ href: href('.csv'), label: 'Export as CSV' }]),
      ],
      action: own,
      hasChips: search !== undefined || filters.length > 0,
      search: search && {
        ...search,
        value: query.search,
        kept: Object.entries(query.filters).flatMap(([name, value]) => (value ? [{ name, value }] : [])),
      },
      filters: filters.map((filter) => chipOf(filter, query, href)),
      clearHref: isNarrowed ? own : undefined,
      ...tableOf(columns, page.items, root),
      note: page.note,
      empty: isNarrowed ? 'Nothing matches. Check the spelling or clear the search.' : empty,
      total: total ?? (isWhole ? withSeparators(last) : undefined),
      position: page.items.length > 0 && `${first}–${last}`,
      hasFooter: page.items.length > 0 || query.after !== undefined || page.next !== null,
      firstHref: query.after === undefined ? undefined : href(''),
      nextHref: page.next === null ? undefined : href('', { after: page.next, row: String(last + 1) }),
    },
  });
}

const menuOf = <Item>(bulk: readonly BulkAction<Item>[], path: string, chosen: URLSearchParams) => ({
  label: 'With all of these',
  entries: bulk.map(({ verb, label, isDestructive = false }) => ({
    href: `${path}/${verb}?${chosen}`,
    label,
    isDangerous: isDestructive,
  })),
});

/** A filter as a menu: links to its choices, or a form for a day or a word. */
function chipOf(
  { name, label, hint, options, type = 'text' }: Filter,
  { search, filters }: ListQuery,
  href: (extension: string, more: Record<string, string | undefined>) => string,
) {
  const value = filters[name];
  const others = Object.entries({ q: search, ...filters, [name]: undefined });
  return {
    name,
    label,
    hint,
    type,
    value,
    chosen: options?.find((option) => option.value === value)?.label ?? value ?? false,
    isSelect: options !== undefined,
    options: options && [
      { label: 'Any', href: href('', { [name]: undefined }), isChosen: value === undefined },
      ...options.map((one) => ({
        label: one.label,
        href: href('', { [name]: one.value }),
        isChosen: one.value === value,
      })),
    ],
    kept: others.flatMap(([name, value]) => (value ? [{ name, value }] : [])),
  };
}

const withParameters = (path: string, parameters: Record<string, string>) =>
  path.replace(/:(\w+)/g, (_, name) => encodeURIComponent(parameters[name] ?? ''));
