import { invalidFields } from '../kernel/errors.js';
import { type Collection, canSearch, type Page, type PageQuery, RefusedSelector } from './collection.js';

/** Documents read at once from a list that is read completely. */
const BATCH_SIZE = 500;

/** Documents of a page in a response. */
const PAGE_SIZE = 100;

type Pages<T extends { id: string }> = Pick<Collection<T>, 'page'>;
type Query<T> = Omit<PageQuery<T>, 'after' | 'limit'>;

/** A sorted list, page by page. */
export async function* pagesOf<T extends { id: string }>(
  collection: Pages<T>,
  query: Query<T>,
  limit: number = BATCH_SIZE,
): AsyncGenerator<T[], void, undefined> {
  let after: string | null | undefined;
  while (after !== null) {
    const page = await collection.page({ ...query, limit, ...(after !== undefined && { after }) });
    yield page.items;
    after = page.next;
  }
}

/** All documents of a list that is known to be short. */
export async function allOf<T extends { id: string }>(collection: Pages<T>, query: Query<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const items of pagesOf(collection, query)) all.push(...items);
  return all;
}

/** The document that a text identifies, and then others that contain it: none of these for a text that is too short. */
export async function searchFirst<T extends { id: string }>(
  collection: Pick<Collection<T>, 'search'>,
  { text, limit, identified }: { text: string; limit: number; identified: Promise<T | null> | null },
): Promise<T[]> {
  const [one, found] = await Promise.all([identified, canSearch(text) ? collection.search(text, limit) : []]);
  return one ? [one, ...found.filter(({ id }) => id !== one.id)].slice(0, limit) : found;
}

/** The first documents of a sorted list, page by page. */
export async function* firstPagesOf<T extends { id: string }>(
  collection: Pages<T>,
  query: Query<T>,
  limit: number,
): AsyncGenerator<T[], void, undefined> {
  let left = limit;
  for await (const items of pagesOf(collection, query)) {
    yield items.slice(0, left);
    left -= items.length;
    if (left <= 0) return;
  }
}

/** Converts the documents of all pages. */
export async function* mapPages<T, R>(
  pages: AsyncIterable<readonly T[]>,
  view: (item: T) => R,
): AsyncGenerator<R[], void, undefined> {
  for await (const items of pages) yield items.map(view);
}

/**
 * A page for a response of the API.
 *
 * @param query `after` is the `next` of the previous page, as the client sent it; `limit` is 100 by default
 * @throws VALIDATION_ERROR for an invalid `after`
 */
export async function readPage<T extends { id: string }>(
  collection: Pages<T>,
  {
    after,
    limit = PAGE_SIZE,
    ...query
  }: Query<T> & { after: string | undefined; limit?: number | undefined },
): Promise<Page<T>> {
  try {
    return await collection.page({ ...query, limit, ...(after !== undefined && { after }) });
  } catch (error) {
    throw error instanceof RefusedSelector
      ? invalidFields({ path: 'after', message: 'must be the next value of the previous page' })
      : error;
  }
}
