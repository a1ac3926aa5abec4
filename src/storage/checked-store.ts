/** The store that domains use: the port's argument checks in front of an engine. */
import {
  checkChange,
  checkConditions,
  checkDocument,
  checkPage,
  checkWhere,
  type Shape,
  shapeOf,
} from './checks.js';
import type { Collection, Declaration, Store } from './collection.js';

/** Implemented by each engine. Its collections receive checked arguments only. */
export interface Engine extends Pick<Store, 'ready' | 'close'> {
  collection<T extends { id: string }>(shape: Shape): Collection<T>;
}

/** Puts the checks in front of an engine. */
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
    ready: () => engine.ready(),
    close: () => engine.close(),
  };
}

/** What two declarations of one collection must agree on; the order of `fields` and `unique` does not matter. */
function declarationKey<T>({ fields = [], unique = [], indexes = [] }: Declaration<T>): unknown[] {
  return [[...fields].sort(), [...unique].sort(), indexes];
}

// All methods are async, so that a refused argument rejects like any other failure.
function checkedCollection<T extends { id: string }>(shape: Shape, inner: Collection<T>): Collection<T> {
  return {
    async insert(doc) {
      checkDocument(shape, doc);
      return inner.insert(doc);
    },
    async findOne(where) {
      checkWhere(shape, where);
      return inner.findOne(where);
    },
    async updateOne(where, change) {
      checkWhere(shape, where);
      checkChange(shape, change);
      return inner.updateOne(where, change);
    },
    async deleteOne(where) {
      checkWhere(shape, where);
      return inner.deleteOne(where);
    },
    async updateMany(where, change) {
      checkWhere(shape, where);
      checkChange(shape, change, true);
      return inner.updateMany(where, change);
    },
    async deleteMany(where) {
      checkWhere(shape, where);
      return inner.deleteMany(where);
    },
    async page(query) {
      checkPage(shape, query);
      return inner.page(query);
    },
    async count(where = {}) {
      checkConditions(shape, where);
      return inner.count(where);
    },
  };
}
