/** A collection of the port as a collection of MongoDB. */
import type { mongodb } from '@fastify/mongodb';
import type { Shape } from './checks.js';
import type { Collection } from './collection.js';
import {
  after,
  type Bson,
  countable,
  documentOf,
  filterOf,
  keyOf,
  type Stored,
  storedOf,
  updateOf,
} from './mongodb-query.js';
import { applyChange, cursorAfter, positionOf } from './semantics.js';

/** What the driver calls a collection. */
export type Driven = mongodb.Collection<Stored>;

/** Runs one call of the port on a collection that has its indexes. */
export type Call = <R>(step: (collection: Driven) => Promise<R>) => Promise<R>;

/** Documents that one step of a `Many` handles. */
const MANY = 256;

/** The calls of the port on one collection. */
export function mongodbCollection<T extends { id: string }>(shape: Shape, call: Call): Collection<T> {
  return {
    insert(doc) {
      return call(async (collection) => void (await collection.insertOne(storedOf(doc))));
    },

    findOne(where) {
      return call(async (collection) => orNull<T>(await collection.findOne(filterOf(where))));
    },

    updateOne(where, change) {
      const filter = filterOf(where);
      const guards = countable(change);
      return call(async (collection) => {
        for (;;) {
          const stored = await collection.findOneAndUpdate(allOf(filter, ...guards), updateOf(change), {
            returnDocument: 'after',
          });
          if (stored || guards.length === 0) return orNull<T>(stored);
          const uncounted = await collection.findOne(filter);
          if (!uncounted) return null;
          // Throws, unless somebody has changed the document in between.
          applyChange(documentOf<T>(uncounted), change);
        }
      });
    },

    deleteOne(where) {
      return call(async (collection) => orNull<T>(await collection.findOneAndDelete(filterOf(where))));
    },

    updateMany(where, change) {
      const guards = countable(change);
      return inSteps(filterOf(where), call, async (collection, some) => {
        if (guards.length > 0) {
          const uncounted = await collection.findOne(allOf(some, { $nor: [{ $and: guards }] }));
          if (uncounted) applyChange(documentOf<T>(uncounted), change);
        }
        return (await collection.updateMany(allOf(some, ...guards), updateOf(change))).matchedCount;
      });
    },

    deleteMany(where) {
      return inSteps(
        filterOf(where),
        call,
        async (collection, some) => (await collection.deleteMany(some)).deletedCount,
      );
    },

    async page({ where, sort, desc = false, after: cursor, limit }) {
      const filter = filterOf(where ?? {});
      const spans = cursor === undefined ? [] : [after(sort, desc, positionOf(shape, sort, desc, cursor))];
      // Required fields are unique: a tie-breaker would only keep MongoDB from their index.
      const order = shape.required.has(sort) ? [sort] : [sort, 'id'];
      // One more than asked for tells whether there is a next page.
      const options = { sort: keys(order, desc ? -1 : 1), limit: limit + 1, batchSize: limit + 1 };
      const stored = await call((collection) => collection.find(allOf(filter, ...spans), options).toArray());
      const items = stored.slice(0, limit).map((one) => documentOf<T>(one));
      const last = items.at(-1);
      return { items, next: last && stored.length > limit ? cursorAfter(sort, desc, last) : null };
    },

    count(where = {}) {
      return call((collection) => collection.countDocuments(filterOf(where)));
    },
  };
}

/** Creates the indexes that are not there yet. Their names are MongoDB's own, so that an operator may come first. */
export async function createIndexes(collection: Driven, { unique, indexes }: Shape): Promise<void> {
  const wanted = [
    ...unique.map((field) => ({ key: keys([field]), unique: true })),
    // The id at the end makes the order of `page` the order of the index.
    ...indexes.map((fields) => ({ key: keys([...fields, 'id']) })),
  ];
  if (wanted.length > 0) await collection.createIndexes(wanted);
}

/** The ids first: a changed document may match again. Each step is a call of its own, so that none takes long. */
async function inSteps(
  filter: Bson,
  call: Call,
  step: (collection: Driven, some: Bson) => Promise<number>,
): Promise<number> {
  const found = await call((collection) => collection.find(filter, { projection: { _id: 1 } }).toArray());
  let handled = 0;
  for (let from = 0; from < found.length; from += MANY) {
    const ids = found.slice(from, from + MANY).map(({ _id }) => _id);
    handled += await call((collection) => step(collection, allOf({ _id: { $in: ids } }, filter)));
  }
  return handled;
}

/** One alone stays as it is: MongoDB has a shortcut to an id. */
function allOf(first: Bson, ...others: Bson[]): Bson {
  return others.length === 0 ? first : { $and: [first, ...others] };
}

function keys(fields: readonly string[], direction: 1 | -1 = 1): Record<string, 1 | -1> {
  return Object.fromEntries(fields.map((field) => [keyOf(field), direction]));
}

function orNull<T extends { id: string }>(stored: Stored | null): T | null {
  return stored && documentOf<T>(stored);
}
