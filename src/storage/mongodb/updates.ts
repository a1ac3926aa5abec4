/** Updates by the ID whose caller needs no document: those that arrive together share a command. */
import { StoreUnavailable } from '../collection.js';
import { createBatches } from './batches.js';
import { type Call, errorsOf, type MongoCollection } from './connection.js';
import type { Bson } from './query.js';

/** An update of the document with this `_id`, if it also matches the other conditions. */
export interface Update {
  filter: Bson & { _id: string };
  update: Bson;
}

/** Whether a document has been changed; `rejected`: the server has refused to evaluate or apply this update alone. */
export type Outcome = 'matched' | 'unmatched' | 'rejected';

/** The server's code for the change of an `_id`. */
const IMMUTABLE_FIELD = 66;

/**
 * Fails an update that matches no document, because the response to several updates counts the matches only: `$setOnInsert`
 * is evaluated without a match only, and an `_id` other than that of the filter cannot be inserted. Nothing ever is.
 */
const FAIL_WITHOUT_MATCH = { $setOnInsert: { _id: '' } };

/** Returns a function that runs an update. */
export function createUpdates(call: Call): (update: Update) => Promise<Outcome> {
  return createBatches<Update, Map<Update, number>, Outcome>(
    (collect) => call(async (collection) => failuresOf(await collect(), collection)),
    (failures, update) => {
      const code = failures.get(update);
      if (code === undefined) return 'matched';
      return code === IMMUTABLE_FIELD ? 'unmatched' : 'rejected';
    },
  );
}

/** The error codes of the updates that have not been applied. */
async function failuresOf(
  updates: readonly Update[],
  collection: MongoCollection,
): Promise<Map<Update, number>> {
  const operations = updates.map(({ filter, update }) => ({
    updateOne: { filter, update: { ...update, ...FAIL_WITHOUT_MATCH }, upsert: true, hint: { _id: 1 } },
  }));
  const { errors, result } = await errorsOf(updates, collection.bulkWrite(operations, { ordered: false }));
  // A server that counts otherwise is not one whose errors are known.
  if (result?.matchedCount !== updates.length - errors.size) {
    throw new StoreUnavailable('MongoDB: the response does not count every update', {
      mayHaveTakenEffect: true,
    });
  }
  return errors;
}
