/** The store that domains use: validates the arguments of every call to an engine. */
import {
  checkChange,
  checkConditions,
  checkDocument,
  checkLimit,
  checkPage,
  checkWhere,
  type Shape,
  shapeOf,
} from './checks.js';
import type { Collection, Declaration, Store } from './collection.js';

/** Implemented by each engine. Its collections receive valid arguments only. */
export interface Engine extends Omit<Store, 'collection'> {
  collection<T extends { id: string }>(shape: Shape): Collection<T>;
}

/** What each engine does with a valid URI. */
export interface EngineModule {
  open(uri: string): Promise<Store>;
  /** Describes the state of a database, without changing it. @throws the error that would prevent the start */
  inspect(uri: string): Promise<string>;
  /** The time of the database server (milliseconds); `null` if the database has no clock of its own. */
  serverTime(uri: string): Promise<number | null>;
  /** Reads an existing collection of any version. `null` if it or one of its fields does not exist. */
  readCollection<T extends { id: string }, R>(
    uri: string,
    shape: Shape,
    read: (documents: Pick<Collection<T>, 'page' | 'count'>) => Promise<R>,
  ): Promise<R | null>;
  /** The names of the tables or collections, those of the engine itself included. */
  collectionNames(uri: string): Promise<string[]>;
}

/** Adds the validation to an engine. */
export function checkedStore(engine: Engine): Store {
  const known = new Map<string, { declaration: string; collection: unknown }>();
  return {
    collection<T extends { id: string }>(name: string, declaration: Declaration<T> = {}): Collection<T> {
      const written = JSON.stringify(declarationKey(declaration));
      const before = known.get(name);
      if (before && before.declaration !== written)
        throw new TypeError(`${name} is already declared with other fields, unique fields or indexes`);
      const shape = shapeOf(name, declaration);
      const collection = before?.collection ?? checkedCollection(shape, engine.collection<T>(shape));
      known.set(name, { declaration: written, collection });
      return collection as Collection<T>;
    },
    // Every write comes from a checked collection.
    commit: (writes) => engine.commit(writes),
    ...(engine.requestTimeoutMs !== undefined && { requestTimeoutMs: engine.requestTimeoutMs }),
    ...(engine.serverTime && { serverTime: engine.serverTime }),
    ready: () => engine.ready(),
    close: () => engine.close(),
  };
}

/** The properties in which two declarations of a collection must be equal; only those of indexes are ordered. */
function declarationKey<T>(declaration: Declaration<T>): unknown[] {
  const { fields = [], numbers = [], booleans = [], unique = [], indexes = [] } = declaration;
  return [...[fields, numbers, booleans, unique].map((some) => [...some].sort()), indexes];
}

// An invalid argument causes a rejection like any other error. The methods that requests call most pass the promise of the
// engine on, because an async function adds a promise and turns of the microtask queue to each call.
function checkedCollection<T extends { id: string }>(shape: Shape, inner: Collection<T>): Collection<T> {
  return {
    insert(doc) {
      try {
        checkDocument(shape, doc);
      } catch (error) {
        return Promise.reject(error);
      }
      return inner.insert(doc);
    },
    async insertMany(docs) {
      for (const doc of docs) checkDocument(shape, doc);
      return docs.length === 0 || (await inner.insertMany(docs));
    },
    findOne(where) {
      try {
        checkWhere(shape, where);
      } catch (error) {
        return Promise.reject(error);
      }
      return inner.findOne(where);
    },
    async updateOne(where, change) {
      checkWhere(shape, where);
      checkChange(shape, change);
      return await inner.updateOne(where, change);
    },
    changeOne(where, change) {
      try {
        checkWhere(shape, where);
        checkChange(shape, change);
      } catch (error) {
        return Promise.reject(error);
      }
      return inner.changeOne(where, change);
    },
    async deleteOne(where) {
      checkWhere(shape, where);
      return await inner.deleteOne(where);
    },
    async updateMany(where, change) {
      checkWhere(shape, where);
      checkChange(shape, change, true);
      return await inner.updateMany(where, change);
    },
    async deleteMany(where) {
      checkWhere(shape, where);
      return await inner.deleteMany(where);
    },
    async page(query) {
      checkPage(shape, query);
      return await inner.page(query);
    },
    async count(where = {}, limit) {
      checkConditions(shape, where);
      if (limit !== undefined) checkLimit(limit);
      return await inner.count(where, limit);
    },
    async estimate() {
      return await inner.estimate();
    },
    inserting(doc) {
      checkDocument(shape, doc);
      return inner.inserting(doc);
    },
    ensuring(doc) {
      checkDocument(shape, doc);
      return inner.ensuring(doc);
    },
    changing(where, change) {
      checkWhere(shape, where);
      checkChange(shape, change);
      return inner.changing(where, change);
    },
    deleting(where) {
      checkWhere(shape, where);
      return inner.deleting(where);
    },
  };
}
