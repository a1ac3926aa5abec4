/** Writes of several documents in one transaction. */
import { performance } from 'node:perf_hooks';
import type { mongodb } from '@fastify/mongodb';
import { createBatches } from '../batches.js';
import { CALL_TIMEOUT_MS } from '../calls.js';
import type { Shape } from '../checks.js';
import {
  type Change,
  type Collection,
  type Commit,
  StoreUnavailable,
  type Where,
  type Write,
} from '../collection.js';
import { applyChange } from '../semantics.js';
import {
  type Connection,
  DUPLICATE_KEY,
  type MongoCollection,
  translateUniqueViolation,
} from './connection.js';
import {
  and,
  countableConditions,
  mongoField,
  type Stored,
  toDocument,
  toFilter,
  toStored,
  toUpdate,
} from './query.js';

/** The transaction of a write, if it is not alone. */
type Within = { session?: mongodb.ClientSession };

/** A write of one document. */
export interface MongodbWrite extends Write {
  /** Resolves once the collection has its indexes, which a transaction cannot create. */
  indexed(): Promise<void>;
  /** Makes it. False if no document matches. */
  make(within: Within): Promise<boolean>;
  /** The document, if it only inserts one. */
  readonly inserted?: { into: MongoCollection; stored: Stored };
}

/** A change of one document, under the condition that `inc` leads to a safe integer. */
export function guardedChange<T extends { id: string }>(
  where: Where<T>,
  change: Change<T>,
  text: readonly string[],
) {
  const filter = toFilter(where);
  const guards = countableConditions(change);
  return {
    filter: and(filter, ...guards),
    update: toUpdate(change, text),
    /** After no document was changed: whether one matches. @throws RefusedDocument if `inc` cannot be applied to it */
    async matchesUncounted(collection: MongoCollection, within: Within = {}): Promise<boolean> {
      const found = guards.length === 0 ? null : await collection.findOne(filter, within);
      if (found) applyChange(toDocument<T>(found), change);
      return found !== null;
    },
  };
}

/** The part of a collection that creates writes. */
export function mongodbWrites<T extends { id: string }>(
  name: string,
  collection: MongoCollection,
  { unique, text }: Pick<Shape, 'unique' | 'text'>,
  indexed: () => Promise<void>,
): Pick<Collection<T>, 'inserting' | 'ensuring' | 'changing' | 'deleting'> {
  const writing = (make: MongodbWrite['make']): MongodbWrite => ({
    collection: name,
    indexed,
    make: (within) => translateUniqueViolation(name, make(within)),
  });
  return {
    inserting(doc) {
      const stored = toStored(doc, text);
      return {
        ...writing(async (within) => (await collection.insertOne(stored, within)).acknowledged),
        inserted: { into: collection, stored },
      };
    },

    ensuring(doc) {
      const stored = toStored(doc, text);
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
      const { filter, update, matchesUncounted } = guardedChange(where, change, text);
      return writing(async (within) => {
        const { matchedCount } = await collection.updateOne(filter, update, within);
        if (matchedCount === 0) await matchesUncounted(collection, within);
        return matchedCount > 0;
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
 * Returns `Store.commit`. The driver repeats a transaction after a conflict, and a commit whose response was lost: a transaction has a
 * number, by which every later primary knows whether the majority has committed it.
 */
export function createCommits(
  client: mongodb.MongoClient,
  connection: Pick<Connection, 'call'>,
): (writes: readonly MongodbWrite[]) => Promise<Commit> {
  const commitAlone = (writes: readonly MongodbWrite[]) => connection.call(() => commit(client, writes));
  // False if one of the documents exists: the transaction does not tell which of them.
  const insertTogether = createBatches<readonly MongodbWrite[], boolean, boolean>(
    'MongoDB',
    (collect) => connection.call(async () => insertAll(client, (await collect()).flat())),
    (inserted) => inserted,
  );
  return async (writes) => {
    const isShared = writes.length > 1 && writes.every(({ inserted }) => inserted);
    return isShared && (await insertTogether(writes)) ? { committed: true } : commitAlone(writes);
  };
}

/** Inserts the documents of several commits in one transaction. Returns false, with nothing written, if one of them exists. */
async function insertAll(client: mongodb.MongoClient, writes: readonly MongodbWrite[]): Promise<boolean> {
  for (const { indexed } of writes) await indexed();
  const documents = new Map<MongoCollection, Stored[]>();
  for (const { inserted } of writes) {
    if (!inserted) continue;
    const others = documents.get(inserted.into);
    if (others) others.push(inserted.stored);
    else documents.set(inserted.into, [inserted.stored]);
  }
  try {
    await transact(client, async (session) => {
      for (const [collection, stored] of documents) await collection.insertMany(stored, { session });
    });
    return true;
  } catch (error) {
    if ((error as { code?: unknown }).code !== DUPLICATE_KEY) throw error;
    return false;
  }
}

/** Makes all writes or none. */
async function commit(client: mongodb.MongoClient, writes: readonly MongodbWrite[]): Promise<Commit> {
  for (const { indexed } of writes) await indexed();
  const makeAll = async (within: Within): Promise<Commit> => {
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
      return await transact(client, (session) => makeAll({ session }));
    } catch (error) {
      if (!(error instanceof Taken)) throw error;
    }
  }
}

/** Runs a transaction, again after each conflict with another one. */
function transact<R>(
  client: mongodb.MongoClient,
  step: (session: mongodb.ClientSession) => Promise<R>,
): Promise<R> {
  const until = performance.now() + CALL_TIMEOUT_MS;
  return client.withSession((session) =>
    session.withTransaction(() => {
      // The caller has been told that there was no response.
      if (performance.now() >= until)
        throw new StoreUnavailable('MongoDB: too many conflicts between transactions');
      return step(session);
    }, TRANSACTION),
  );
}

const TRANSACTION: mongodb.TransactionOptions = {
  readConcern: { level: 'snapshot' },
  writeConcern: { w: 'majority', j: true, wtimeoutMS: CALL_TIMEOUT_MS },
  readPreference: 'primary',
};
