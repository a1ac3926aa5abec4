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

/** The first documents of a sorted list, over as many pages as it takes. */
export async function firstOf<T extends { id: string }>(
  collection: Pages<T>,
  query: Query<T>,
  most: number,
): Promise<T[]> {
  const found: T[] = [];
  for await (const items of pagesOf(collection, query)) {
    found.push(...items.slice(0, most - found.length));
    if (found.length >= most) break;
  }
  return found;
}
