/** Writes of several documents in one transaction. */
import { performance } from 'node:perf_hooks';
import type { mongodb } from '@fastify/mongodb';
import { CALL_TIMEOUT_MS } from '../calls.js';
import { type Collection, type Commit, StoreUnavailable, type Write } from '../collection.js';
import { applyChange } from '../semantics.js';
import { DUPLICATE_KEY, type MongoCollection, translateUniqueViolation } from './connection.js';
import { and, countableConditions, mongoField, toDocument, toFilter, toStored, toUpdate } from './query.js';

/** The transaction of a write, if it is not alone. */
type Within = { session?: mongodb.ClientSession };

/** A write of one document. */
export interface MongodbWrite extends Write {
  /** Resolves once the collection has its indexes, which a transaction cannot create. */
  indexed(): Promise<void>;
  /** Makes it. False if no document matches. */
  make(within: Within): Promise<boolean>;
}

/** The part of a collection that creates writes. */
export function mongodbWrites<T extends { id: string }>(
  name: string,
  collection: MongoCollection,
  { unique, indexed }: { unique: readonly string[]; indexed(): Promise<void> },
): Pick<Collection<T>, 'inserting' | 'ensuring' | 'changing' | 'deleting'> {
  const writing = (make: MongodbWrite['make']): MongodbWrite => ({
    collection: name,
    indexed,
    make: (within) => translateUniqueViolation(name, make(within)),
  });
  return {
    inserting(doc) {
      const stored = toStored(doc);
      return writing(async (within) => (await collection.insertOne(stored, within)).acknowledged);
    },

    ensuring(doc) {
      const stored = toStored(doc);
      const same = ['id', ...unique].map(mongoField).map((field) => ({ [field]: stored[field] }));
      const options = { upsert: true };
      return writing(async (within) => {
        const update = collection.updateOne(
          { $or: same },
          { $setOnInsert: stored },
          { ...options, ...within },
        );
        return (await update.catch(repeatIfTaken)).acknowledged;
      });
    },

    changing(where, change) {
      const filter = toFilter(where);
      const guards = countableConditions(change);
      const update = toUpdate(change);
      return writing(async (within) => {
        const { matchedCount } = await collection.updateOne(and(filter, ...guards), update, within);
        if (matchedCount > 0 || guards.length === 0) return matchedCount > 0;
        const uncounted = await collection.findOne(filter, within);
        if (uncounted) applyChange(toDocument<T>(uncounted), change);
        return false;
      });
    },

    deleting(where) {
      const filter = toFilter(where);
      return writing(async (within) => (await collection.deleteOne(filter, within)).deletedCount > 0);
    },
  };
}

/** A concurrent transaction has inserted what `ensuring` did not find. */
class Taken extends Error {}

function repeatIfTaken(error: { code?: unknown }): never {
  throw error.code === DUPLICATE_KEY ? new Taken() : error;
}

/**
 * Makes all writes or none. The driver repeats the transaction after a conflict, and a commit whose response was lost: a transaction has a
 * number, by which every later primary knows whether the majority has committed it.
 */
export async function commit(client: mongodb.MongoClient, writes: readonly MongodbWrite[]): Promise<Commit> {
  for (const { indexed } of writes) await indexed();
  const until = performance.now() + CALL_TIMEOUT_MS;
  const makeAll = async (within: Within): Promise<Commit> => {
    // The caller has been told that there was no response.
    if (performance.now() >= until)
      throw new StoreUnavailable('MongoDB: too many conflicts between transactions');
    for (const write of writes) {
      if (await write.make(within)) continue;
      await within.session?.abortTransaction();
      return { committed: false, unmet: write };
    }
    return { committed: true };
  };
  for (;;) {
    try {
      // A single write is atomic by itself.
      if (writes.length < 2) return await makeAll({});
      return await client.withSession((session) =>
        session.withTransaction(() => makeAll({ session }), TRANSACTION),
      );
    } catch (error) {
      if (!(error instanceof Taken)) throw error;
    }
  }
}

const TRANSACTION: mongodb.TransactionOptions = {
  readConcern: { level: 'snapshot' },
  writeConcern: { w: 'majority', j: true, wtimeoutMS: CALL_TIMEOUT_MS },
  readPreference: 'primary',
};
