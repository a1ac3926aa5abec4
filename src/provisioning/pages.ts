import type { Collection, DeclaredField, Page, Where } from '../storage/collection.js';
import { RefusedSelector } from '../storage/collection.js';
import { invalid } from './errors.js';

/** Documents on one page of a list. */
const PAGE = 100;

/** @param after the `next` of the page before. @throws VALIDATION_ERROR when it is none */
export async function pageOf<T extends { id: string }>(
  documents: Collection<T>,
  sort: DeclaredField<T>,
  after: string | undefined,
  where?: Where<T> | undefined,
): Promise<Page<T>> {
  try {
    return await documents.page({
      sort,
      limit: PAGE,
      ...(where !== undefined && { where }),
      ...(after !== undefined && { after }),
    });
  } catch (error) {
    throw error instanceof RefusedSelector
      ? invalid({ path: 'after', message: 'must be the next value of the previous page' })
      : error;
  }
}
