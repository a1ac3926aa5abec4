/** Calls to one MongoDB deployment, with translated errors. */
import type { mongodb } from '@fastify/mongodb';
import { noResponse, RunningCalls, waitFor } from '../calls.js';
import { StoreUnavailable, UniqueViolation } from '../collection.js';
import type { Stored } from './query.js';

/** The driver's collection type. */
export type MongoCollection = mongodb.Collection<Stored>;

/** Runs one call of the port on a collection that has its indexes. */
export type Call = <R>(step: (collection: MongoCollection) => Promise<R>) => Promise<R>;

/** Tracks running calls and releases the connection after the last one. */
export class Connection {
  readonly #release: () => Promise<void>;
  readonly #calls = new RunningCalls();

  /** @param release called after the last call has ended */
  constructor(release: () => Promise<void>) {
    this.#release = release;
  }

  /** Runs a step with the call timeout, within the budget of the request. */
  call<R>(step: () => Promise<R>): Promise<R> {
    return this.#calls.run(
      () => waitFor<R>((resolve, reject) => void step().then(resolve, reject), timeoutError),
      toStoreError,
    );
  }

  /** Waits for running calls, then releases the connection. */
  close(): Promise<void> {
    return this.#calls.close(this.#release);
  }
}

/** The error of a call without a response: what was sent may still take effect. */
const timeoutError = (hasBegun: boolean) => noResponse('MongoDB', hasBegun);

/**
 * Converts driver errors to StoreUnavailable; and socket errors (such as `EPIPE` when the server has just closed the
 * connection), which the driver passes on unchanged.
 */
function toStoreError(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const isSystemError = /^E[A-Z]+$/.test(String((error as NodeJS.ErrnoException).code));
  if (!isSystemError && !isDriverError(error)) return error;
  // Not even an error of the server selection shows that nothing was sent: the driver selects again for a repetition.
  return new StoreUnavailable(`MongoDB: ${error.message}`, { cause: error, mayHaveTakenEffect: true });
}

/**
 * By the name of the base class, because a host's driver may be another copy, and not every error of the driver has a
 * name that begins with `Mongo`.
 */
function isDriverError(error: object): boolean {
  const base: unknown = Object.getPrototypeOf(error);
  if (typeof base !== 'object' || base === null) return false;
  return base.constructor.name === 'MongoError' || isDriverError(base);
}

/** The server's code of an error. */
export const DUPLICATE_KEY = 11000;

/** What a command of several writes has done. */
export interface BulkOutcome<T> {
  /** The codes of those that the server has rejected one by one; it has applied the others. */
  errors: Map<T, number>;
  result: mongodb.BulkWriteResult | undefined;
}

/** Reads the outcome of a command of several writes. @throws every error that is not about single ones */
export async function errorsOf<T>(
  writes: readonly T[],
  sent: Promise<mongodb.BulkWriteResult>,
): Promise<BulkOutcome<T>> {
  try {
    return { errors: new Map(), result: await sent };
  } catch (error) {
    const { writeErrors, result } = error as BulkError;
    const errors = [writeErrors ?? []].flat();
    // Without the write concern, the others are not known to be stored.
    if (errors.length === 0 || result?.getWriteConcernError()) throw error;
    return { errors: new Map(errors.map(({ index, code }) => [writes[index] as T, code])), result };
  }
}

/** An error of several writes. A host's driver may be another copy, so `instanceof` does not recognize it. */
interface BulkError {
  writeErrors?: WriteError | readonly WriteError[];
  result?: mongodb.BulkWriteResult;
}

type WriteError = Pick<mongodb.WriteError, 'index' | 'code'>;

/** Converts duplicate key errors. Without the cause, because its message contains the value. */
export async function translateUniqueViolation<R>(collection: string, result: Promise<R>): Promise<R> {
  try {
    return await result;
  } catch (error) {
    const { code, keyPattern = {} } = error as { code?: unknown; keyPattern?: object };
    const [key] = Object.keys(keyPattern);
    if (code !== DUPLICATE_KEY || key === undefined) throw error;
    throw new UniqueViolation(collection, key === '_id' ? 'id' : key);
  }
}
