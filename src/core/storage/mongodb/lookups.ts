/** Look-ups by the ID or a unique field: those that arrive together share a query. */
import { createBatches } from './batches.js';
import type { Call } from './connection.js';
import { mongoField, type Stored, toDocumentOrNull } from './query.js';

/** Returns a function that finds the document with a value of the field. */
export function createLookups<T extends { id: string }>(
  call: Call,
  field: string,
): (value: string) => Promise<T | null> {
  const key = mongoField(field);
  return createBatches<string, Map<string, Stored>, T | null>(
    (collect) =>
      call(async (collection) => {
        const values = await collect();
        const [only] = values;
        const found =
          values.length === 1
            ? [await collection.findOne({ [key]: only })]
            : await collection.find({ [key]: { $in: values } }, { batchSize: values.length + 1 }).toArray();
        return new Map(found.flatMap((one) => (one ? [[one[key] as string, one]] : [])));
      }),
    (found, value) => toDocumentOrNull(found.get(value) ?? null),
  );
}
