/** Inserts: those of one turn share a command. */
import { createBatches } from './batches.js';
import type { Call } from './connection.js';
import type { Stored } from './query.js';

/** Returns a function that inserts a document. */
export function createInserts(call: Call): (stored: Stored) => Promise<void> {
  const insertAlone = (stored: Stored) =>
    call(async (collection) => void (await collection.insertOne(stored)));
  const insert = createBatches<Stored, Set<Stored>>((collect) =>
    call(async (collection) => {
      const documents = await collect();
      const [only] = documents as [Stored];
      if (documents.length > 1)
        return rejectedOf(documents, collection.insertMany(documents, { ordered: false }));
      await collection.insertOne(only);
      return new Set();
    }),
  );
  return async (stored) => {
    const rejected = await insert(stored);
    // Again, because the driver's error of several documents does not contain the violated index.
    if (rejected.has(stored)) await insertAlone(stored);
  };
}

/** The documents that the server has rejected one by one; it has stored the others. @throws any other error */
async function rejectedOf(documents: readonly Stored[], inserting: Promise<unknown>): Promise<Set<Stored>> {
  try {
    await inserting;
    return new Set();
  } catch (error) {
    const { writeErrors, result } = error as BulkError;
    const errors = [writeErrors ?? []].flat();
    // Without the write concern, the documents are not known to be stored.
    if (errors.length === 0 || result?.getWriteConcernError()) throw error;
    return new Set(errors.map(({ index }) => documents[index] as Stored));
  }
}

/** An error of `insertMany`. A host's driver may be another copy, so `instanceof` does not recognize it. */
interface BulkError {
  writeErrors?: { index: number } | readonly { index: number }[];
  result?: { getWriteConcernError(): unknown };
}
