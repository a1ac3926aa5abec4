import type { Collection, PageQuery } from './collection.js';

const PAGE = 500;

/** The first documents of a sorted list, over as many pages as it takes. */
export async function firstOf<T extends { id: string }>(
  collection: Pick<Collection<T>, 'page'>,
  query: Omit<PageQuery<T>, 'after' | 'limit'>,
  most: number,
): Promise<T[]> {
  const found: T[] = [];
  let after: string | null | undefined;
  while (found.length < most && after !== null) {
    const limit = Math.min(PAGE, most - found.length);
    const page = await collection.page({ ...query, limit, ...(after !== undefined && { after }) });
    found.push(...page.items);
    after = page.next;
  }
  return found;
}
