/** Look-ups by the ID or a unique field: those that arrive together share a query. */
import { type Collect, createBatches } from './batches.js';
import type { Shape } from './checks.js';
import type { Where } from './collection.js';

/**
 * Returns a function that looks up the document of a filter; `undefined` if the filter is another one.
 *
 * @param find collects values of the field, and returns what it has found by value
 * @param toDocument decodes a document for one of its callers
 */
export function createLookups<T, F>(
  engine: string,
  { required }: Shape,
  find: (field: string, collect: Collect<string>) => Promise<Map<string, F>>,
  toDocument: (found: F) => T,
): (where: Where<T>) => Promise<T | null> | undefined {
  const partOf = (found: Map<string, F>, value: string): T | null => {
    const one = found.get(value);
    return one === undefined ? null : toDocument(one);
  };
  const lookUps = new Map(
    [...required].map((field) => [
      field,
      createBatches<string, Map<string, F>, T | null>(engine, (collect) => find(field, collect), partOf),
    ]),
  );
  return (where) => {
    const [[field = '', value] = [], second] = Object.entries(where);
    return second || typeof value !== 'string' ? undefined : lookUps.get(field)?.(value);
  };
}
