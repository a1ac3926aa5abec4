/** The store that domains use: validates the arguments of every call to an engine. */
import {
  checkChange,
  checkConditions,
  checkDocument,
  checkLimit,
  checkPage,
  checkSearch,
  checkWhere,
  type Shape,
  shapeOf,
} from './checks.js';
import { type Collection, type Declaration, type Store, StoreUnavailable } from './collection.js';

/** Implemented by each engine. Its collections receive valid arguments only. */
export interface Engine extends Omit<Store, 'collection'> {
  collection<T extends { id: string }>(shape: Shape): Collection<T>;
}

/** What each engine does with a valid URI. */
export interface EngineModule {
  open(uri: string): Promise<Store>;
  /** Describes the state of a database, without changing it. @throws the error that would prevent the start */
  inspect(uri: string): Promise<string>;
  /** Passes an existing database of any version to `step`. Creates and changes nothing. */
  read<R>(uri: string, step: (database: ReadableDatabase) => Promise<R>): Promise<R>;
}

/** A database that is not opened as a store. */
export interface ReadableDatabase {
  /** `null` if it or one of its fields does not exist. */
  collection<T extends { id: string }>(shape: Shape): Promise<ReadableCollection<T> | null>;
  /** The names of the tables or collections, those of the engine itself included. */
  collectionNames(): Promise<string[]>;
  /** The time of the database server (milliseconds). Absent if the database has no clock of its own. */
  serverTime?(): Promise<number>;
}

export type ReadableCollection<T extends { id: string }> = Pick<Collection<T>, 'page' | 'count'>;

/** @throws StoreUnavailable if a newer version has written a database, whose layout this one does not know */
export function rejectNewerLayout(database: string, version: number, known: number): void {
  if (version <= known) return;
  throw new StoreUnavailable(
    `${database} was written by a newer version (layout ${version}, this one reads ${known})`,
    { remedy: 'Install that version again, or restore the backup made before it.' },
  );
}

/** Adds the validation to an engine. */
export function checkedStore(engine: Engine): Store {
  const known = new Map<string, { declaration: string; collection: unknown }>();
  return {
    // `commit` as well: every write comes from a checked collection.
    ...engine,
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
  };
}

/** The properties in which two declarations of a collection must be equal; only those of indexes are ordered. */
function declarationKey<T>(declaration: Declaration<T>): unknown[] {
  const {
    fields = [],
    numbers = [],
    booleans = [],
    unique = [],
    indexes = [],
    sparse = [],
    text = [],
  } = declaration;
  return [...[fields, numbers, booleans, unique, sparse, text].map((some) => [...some].sort()), indexes];
}

type Documents = Collection<{ id: string }>;
type Checks<Name extends keyof Documents> = {
  readonly [Key in Name]: (shape: Shape, ...parameters: Parameters<Documents[Key]>) => void;
};

const checkUpdate = (shape: Shape, where: object, change: object): void => {
  checkWhere(shape, where);
  checkChange(shape, change);
};

/** What creates writes, and calls nothing. */
const WRITE_CHECKS: Checks<'inserting' | 'ensuring' | 'changing' | 'deleting'> = {
  inserting: checkDocument,
  ensuring: checkDocument,
  changing: checkUpdate,
  deleting: checkWhere,
};

const CALL_CHECKS: Checks<Exclude<keyof Documents, keyof typeof WRITE_CHECKS>> = {
  insert: checkDocument,
  insertMany(shape, docs) {
    for (const doc of docs) checkDocument(shape, doc);
  },
  findOne: checkWhere,
  updateOne: checkUpdate,
  changeOne: checkUpdate,
  deleteOne: checkWhere,
  updateMany(shape, where, change) {
    checkWhere(shape, where);
    checkChange(shape, change, true);
  },
  deleteMany: checkWhere,
  page: checkPage,
  search: checkSearch,
  count(shape, where = {}, limit) {
    checkConditions(shape, where);
    if (limit !== undefined) checkLimit(limit);
  },
  estimate() {},
};

/** The methods of a collection that call the database. */
export const CALLS = Object.keys(CALL_CHECKS) as (keyof typeof CALL_CHECKS)[];

type Method = (...parameters: unknown[]) => unknown;

/** Passes the promises of the engine on, because an async function adds a promise and turns of the microtask queue to each call. */
function checkedCollection<T extends { id: string }>(shape: Shape, inner: Collection<T>): Collection<T> {
  const methods = Object.entries({ ...CALL_CHECKS, ...WRITE_CHECKS }).map(
    ([name, check]): [string, Method] => {
      const call = inner[name as keyof Documents] as Method;
      return [
        name,
        (...parameters) => {
          try {
            (check as Method)(shape, ...parameters);
          } catch (error) {
            // An invalid argument of a call causes a rejection like any other error.
            if (name in WRITE_CHECKS) throw error;
            return Promise.reject(error);
          }
          return call(...parameters);
        },
      ];
    },
  );
  return Object.fromEntries(methods) as unknown as Collection<T>;
}
