/** Look-ups by id: those of one turn of the event loop share a query, because a query costs the driver 0.1 ms. */
import { setImmediate as endOfTurn } from 'node:timers/promises';
import { currentBudget, withoutBudget } from '../request-budget.js';
import { type Call, waitFor } from './connection.js';
import type { Stored } from './query.js';

/** Ids per query, so that a large answer does not delay the first ones. */
const MAX_IDS = 64;

/** A query that has not been sent yet. */
interface Batch {
  ids: Set<string>;
  /** By id. */
  found: Promise<Map<string, Stored>>;
}

/**
 * Returns a function that finds a document by its id. The query is sent after the call, at the end of the turn, so what
 * it returns is as recent as with a query of its own.
 */
export function createLookups(call: Call): (id: string) => Promise<Stored | null> {
  let waiting: Batch | undefined;

  const open = (): Batch => {
    const ids = new Set<string>();
    const find: Parameters<typeof call<Map<string, Stored>>>[0] = async (collection) => {
      await endOfTurn();
      // Later calls need a query of their own.
      if (waiting === batch) waiting = undefined;
      const [only] = ids;
      if (ids.size === 1) return byId([await collection.findOne({ _id: only as string })]);
      const options = { batchSize: ids.size + 1 };
      return byId(await collection.find({ _id: { $in: [...ids] } }, options).toArray());
    };
    // Several requests share the query, so none of them limits it.
    const found = withoutBudget(() => call(find));
    const batch = { ids, found };
    const close = () => {
      if (waiting === batch) waiting = undefined;
    };
    // The call may fail before it reaches the query, for example because the store is closed.
    found.then(close, close);
    return batch;
  };

  return async (id) => {
    if (!waiting || waiting.ids.size >= MAX_IDS) waiting = open();
    const { ids, found } = waiting;
    ids.add(id);
    const documents = currentBudget() ? waitFor(() => found) : found;
    return (await documents).get(id) ?? null;
  };
}

const byId = (documents: (Stored | null)[]): Map<string, Stored> =>
  new Map(documents.flatMap((one) => (one ? [[one._id, one]] : [])));
