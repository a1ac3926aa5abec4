import type { Collection, PageQuery } from './collection.js';

const PAGE = 500;

type Pages<T extends { id: string }> = Pick<Collection<T>, 'page'>;
type Query<T> = Omit<PageQuery<T>, 'after' | 'limit'>;

/** A whole sorted list, a page of it at a time. */
export async function* pagesOf<T extends { id: string }>(
  collection: Pages<T>,
  query: Query<T>,
): AsyncGenerator<T[], void, undefined> {
  let after: string | null | undefined;
  while (after !== null) {
    const page = await collection.page({ ...query, limit: PAGE, ...(after !== undefined && { after }) });
    yield page.items;
    after = page.next;
  }
}

/** The first documents of a sorted list, a page of them at a time. */
export async function* firstPagesOf<T extends { id: string }>(
  collection: Pages<T>,
  query: Query<T>,
  most: number,
): AsyncGenerator<T[], void, undefined> {
  let left = most;
  for await (const items of pagesOf(collection, query)) {
    yield items.slice(0, left);
    left -= items.length;
    if (left <= 0) return;
  }
}

/** Pages of documents as others see them. */
export async function* mapPages<T, R>(
  pages: AsyncIterable<readonly T[]>,
  view: (item: T) => R,
): AsyncGenerator<R[], void, undefined> {
  for await (const items of pages) yield items.map(view);
}
