/** Writes of several documents in one step of a transaction. */
import { type Commit, StoreUnavailable, type Write } from '../collection.js';
import type { Connection } from './connection.js';
import { toStoreError } from './errors.js';

/** A write of one document, as part of a step. */
export interface SqliteWrite extends Write {
  /** Resolves once its table exists; `undefined` if it does already. */
  exists(): Promise<void> | undefined;
  /** Makes it within a transaction. False if no document matches. @throws UniqueViolation */
  step(): unknown;
}

/** Makes all writes or none. */
export function commit(connection: Connection, writes: readonly SqliteWrite[]): Promise<Commit> {
  const creating = writes.flatMap(({ exists }) => exists() ?? []);
  const write = () => connection.write(() => makeAll(connection, writes));
  // Synchronous once the tables exist: a call made before `close` must be queued before it.
  return creating.length === 0 ? write() : Promise.all(creating).then(write);
}

/** A savepoint makes the writes atomic within the transaction, which they share with those of other calls. */
function makeAll(connection: Connection, writes: readonly SqliteWrite[]): Commit {
  const run = (text: string): void => void connection.sql(text).run();
  const undo = (): void => {
    run('ROLLBACK TO "commit"');
    run('RELEASE "commit"');
  };
  run('SAVEPOINT "commit"');
  try {
    const unmet = writes.find(({ step }) => step() === false);
    if (unmet) {
      undo();
      return { committed: false, unmet };
    }
  } catch (error) {
    // After an error of the store, the whole transaction ends, and perhaps the savepoint is gone already.
    if (!(toStoreError(error) instanceof StoreUnavailable)) undo();
    throw error;
  }
  run('RELEASE "commit"');
  return { committed: true };
}
