/** Updates by the ID whose caller needs no document: those that arrive together share a command. */

import { createBatches } from '../batches.js';
import { StoreUnavailable } from '../collection.js';
import { type Call, errorsOf, type MongoCollection } from './connection.js';
import { type Bson, CONVERSION_FAILURE } from './query.js';

/** An update of the document with this `_id`, by the stages of `toStages`. */
export interface Update {
  filter: { _id: string };
  update: Bson[];
}

/** Whether a document has been changed; `rejected`: the server has refused this one update, or there is perhaps no document. */
export type Outcome = 'matched' | 'unmatched' | 'rejected';

/** Returns a function that runs an update. */
export function createUpdates(call: Call): (update: Update) => Promise<Outcome> {
  return createBatches<Update, Map<Update, number>, Outcome>(
    'MongoDB',
    (collect) => call(async (collection) => failuresOf(await collect(), collection)),
    (failures, update) => {
      const code = failures.get(update);
      if (code === undefined) return 'matched';
      return code === CONVERSION_FAILURE ? 'unmatched' : 'rejected';
    },
  );
}

/**
 * The error codes of the updates that have not been applied. Without `upsert`, an update without a document would be no error,
 * and the response does not name it. The stages fail then, so nothing is ever inserted.
 */
async function failuresOf(
  updates: readonly Update[],
  collection: MongoCollection,
): Promise<Map<Update, number>> {
  const operations = updates.map((update) => ({ updateOne: { ...update, upsert: true } }));
  const { errors, result } = await errorsOf(updates, collection.bulkWrite(operations, { ordered: false }));
  // A server that counts otherwise is not one whose errors are known.
  if (result?.matchedCount !== updates.length - errors.size) {
    throw new StoreUnavailable('MongoDB: the response does not count every update', {
      mayHaveTakenEffect: true,
    });
  }
  return errors;
}
