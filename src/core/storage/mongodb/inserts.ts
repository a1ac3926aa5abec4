/** Inserts: those that arrive together share a command. */
import { createBatches } from '../batches.js';
import { type Call, errorsOf } from './connection.js';
import type { Stored } from './query.js';

/** Returns a function that inserts a document. */
export function createInserts(call: Call): (stored: Stored) => Promise<void> {
  const insertAlone = (stored: Stored) =>
    call(async (collection) => void (await collection.insertOne(stored)));
  const insert = createBatches<Stored, Map<Stored, number>, boolean>(
    'MongoDB',
    (collect) =>
      call(async (collection) => {
        const documents = await collect();
        const [only] = documents as [Stored];
        if (documents.length > 1) {
          const operations = documents.map((document) => ({ insertOne: { document } }));
          return (await errorsOf(documents, collection.bulkWrite(operations, { ordered: false }))).errors;
        }
        await collection.insertOne(only);
        return new Map();
      }),
    (errors, stored) => !errors.has(stored),
  );
  return async (stored) => {
    // Again, because the driver's error of several documents does not contain the violated index.
    if (!(await insert(stored))) await insertAlone(stored);
  };
}
