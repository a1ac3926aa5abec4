/** A collection of the storage port on MongoDB. */
import type { Shape } from '../checks.js';
import { type Collection, EXACT_COUNT_LIMIT } from '../collection.js';
import { createLookups } from '../lookups.js';
import { applyChange, pageOf, positionOf } from '../semantics.js';
import { type Call, DUPLICATE_KEY, type MongoCollection } from './connection.js';
import { createInserts } from './inserts.js';
import {
  and,
  type Bson,
  conditionAfter,
  countableConditions,
  mongoField,
  partsField,
  partsOf,
  type Stored,
  textFilter,
  toDocument,
  toDocumentOrNull,
  toFilter,
  toStages,
  toStored,
  toUpdate,
} from './query.js';
import { createUpdates } from './updates.js';
import { guardedChange } from './writes.js';

/** Documents per step of `updateMany` and `deleteMany`. */
const STEP_SIZE = 256;

/**
 * Implements the port on one collection.
 * @param read a call that only reads, by default like any other
 */
export function mongodbCollection<T extends { id: string }>(
  shape: Shape,
  call: Call,
  read: Call = call,
): Omit<Collection<T>, 'inserting' | 'ensuring' | 'changing' | 'deleting'> {
  const lookUp = createLookups<T, Stored>(
    'MongoDB',
    shape,
    (field, collect) => read(async (collection) => findEach(collection, mongoField(field), await collect())),
    toDocument,
  );
  const insertStored = createInserts(call);
  const updateById = createUpdates(call);
  const updateOne: Collection<T>['updateOne'] = (where, change) => {
    const { filter, update, matchesUncounted } = guardedChange(where, change, shape.text);
    return call(async (collection) => {
      for (;;) {
        const stored = await collection.findOneAndUpdate(filter, update, { returnDocument: 'after' });
        // A document that matches now has changed in between.
        if (stored || !(await matchesUncounted(collection))) return toDocumentOrNull<T>(stored);
      }
    });
  };
  const changeOne: Collection<T>['changeOne'] = async (where, change) => {
    const { id } = where as { id?: unknown };
    if (typeof id === 'string') {
      const outcome = await updateById({ filter: { _id: id }, update: toStages(where, change, shape.text) });
      if (outcome !== 'rejected') return outcome === 'matched';
    }
    // In a command of its own, whose response shows whether there is a document, or why it was refused.
    return (await updateOne(where, change)) !== null;
  };
  return {
    insert: (doc) => insertStored(toStored(doc, shape.text)),

    async insertMany(docs) {
      if (docs.length === 0) return true;
      return call(async (collection) => {
        try {
          await collection.insertMany(docs.map((doc) => toStored(doc, shape.text)));
          return true;
        } catch (error) {
          if ((error as { code?: unknown }).code !== DUPLICATE_KEY) throw error;
          return false;
        }
      });
    },

    findOne(where) {
      const find = async (collection: MongoCollection) =>
        toDocumentOrNull<T>(await collection.findOne(toFilter(where)));
      return lookUp(where) ?? read(find);
    },

    changeOne,

    updateOne,

    deleteOne(where) {
      return call(async (collection) =>
        toDocumentOrNull<T>(await collection.findOneAndDelete(toFilter(where))),
      );
    },

    updateMany(where, change) {
      const guards = countableConditions(change);
      return forEachStep(toFilter(where), { call, read }, async (collection, some) => {
        if (guards.length > 0) {
          const uncounted = await collection.findOne(and(some, { $nor: [{ $and: guards }] }));
          if (uncounted) applyChange(toDocument<T>(uncounted), change);
        }
        return (await collection.updateMany(and(some, ...guards), toUpdate(change, shape.text))).matchedCount;
      });
    },

    deleteMany(where) {
      return forEachStep(
        toFilter(where),
        { call, read },
        async (collection, some) => (await collection.deleteMany(some)).deletedCount,
      );
    },

    async page({ where, sort, desc = false, after: cursor, limit }) {
      const filter = toFilter(where ?? {});
      const spans =
        cursor === undefined ? [] : [conditionAfter(sort, desc, positionOf(shape, sort, desc, cursor))];
      // Required fields are unique: a tie-breaker would keep MongoDB from using their index.
      const order = shape.required.has(sort) ? [sort] : [sort, 'id'];
      // One more document than requested shows whether there is a next page.
      const options = { sort: keys(order, desc ? -1 : 1), limit: limit + 1, batchSize: limit + 1 };
      const stored = await read((collection) => collection.find(and(filter, ...spans), options).toArray());
      return pageOf(stored.map(toDocument<T>), { sort, desc, limit });
    },

    async search(text, limit) {
      const found = await read((collection) =>
        collection.find(textFilter(shape.text, text), { limit, batchSize: limit + 1 }).toArray(),
      );
      return found.map(toDocument<T>);
    },

    count(where = {}, limit) {
      return read((collection) =>
        collection.countDocuments(toFilter(where), limit === undefined ? {} : { limit }),
      );
    },

    async estimate() {
      const some = await read((collection) =>
        collection.countDocuments({}, { limit: EXACT_COUNT_LIMIT + 1 }),
      );
      if (some <= EXACT_COUNT_LIMIT) return { count: some, isExact: true };
      // From the metadata of the collection, which can be wrong after a crash of the server.
      const estimated = await call((collection) => collection.estimatedDocumentCount());
      return { count: Math.max(some, estimated), isExact: false };
    },
  };
}

/** Finds the documents with these values of the field, by value. */
async function findEach(
  collection: MongoCollection,
  key: string,
  values: readonly string[],
): Promise<Map<string, Stored>> {
  const [only] = values;
  const found =
    values.length === 1
      ? [await collection.findOne({ [key]: only })]
      : await collection.find({ [key]: { $in: values } }, { batchSize: values.length + 1 }).toArray();
  return new Map(found.flatMap((one) => (one ? [[one[key] as string, one]] : [])));
}

/** Creates missing indexes, under MongoDB's default names, so that an operator can create them beforehand. */
export async function createIndexes(
  collection: MongoCollection,
  { unique, indexes, sparse, text }: Shape,
): Promise<void> {
  const wanted = [
    ...unique.map((field) => ({ key: keys([field]), unique: true })),
    // With the id at the end, the index has the order of `page`.
    ...indexes.map((fields) => ({ key: keys([...fields, 'id']) })),
    ...sparse.map((field) => ({
      key: keys([field, 'id']),
      partialFilterExpression: { [field]: { $exists: true } },
    })),
    ...text.map((field) => ({ key: { [`${partsField(field)}.parts`]: 1 as const } })),
  ];
  if (wanted.length > 0) await collection.createIndexes(wanted);
}

/**
 * Adds the parts of texts to some documents of an older version, unless they change meanwhile. Returns false if there are none.
 * The index knows documents without parts.
 */
export async function fillParts(collection: MongoCollection, { text }: Shape): Promise<boolean> {
  const lacking = text.map((field) => ({ [`${partsField(field)}.parts`]: null }));
  const found = await collection
    .find({ $or: lacking }, { limit: STEP_SIZE, batchSize: STEP_SIZE + 1 })
    .toArray();
  if (found.length === 0) return false;
  const updates = found.map((stored) => {
    const texts = Object.fromEntries(text.map((field) => [field, stored[field] ?? null]));
    return { updateOne: { filter: { _id: stored._id, ...texts }, update: { $set: partsOf(text, stored) } } };
  });
  await collection.bulkWrite(updates, { ordered: false });
  return true;
}

/** The ids of a filter that names few of them, as a purge does. */
function idsIn(filter: Bson): string[] | undefined {
  const ids = (filter['_id'] as { $in?: string[] } | undefined)?.$in;
  return ids && ids.length <= STEP_SIZE ? ids : undefined;
}

/** Collects the ids first, because a changed document may match again. Each step is a separate call with its own timeout. */
async function forEachStep(
  filter: Bson,
  { call, read }: { call: Call; read: Call },
  step: (collection: MongoCollection, some: Bson) => Promise<number>,
): Promise<number> {
  const known = idsIn(filter);
  if (known) return known.length === 0 ? 0 : call((collection) => step(collection, filter));
  const found = await read((collection) => collection.find(filter, { projection: { _id: 1 } }).toArray());
  let handled = 0;
  for (let from = 0; from < found.length; from += STEP_SIZE) {
    const ids = found.slice(from, from + STEP_SIZE).map(({ _id }) => _id);
    handled += await call((collection) => step(collection, and({ _id: { $in: ids } }, filter)));
  }
  return handled;
}

function keys(fields: readonly string[], direction: 1 | -1 = 1): Record<string, 1 | -1> {
  return Object.fromEntries(fields.map((field) => [mongoField(field), direction]));
}
