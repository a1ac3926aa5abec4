import type { Shape } from './checks.js';
import type { Collection, Store } from './collection.js';

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
