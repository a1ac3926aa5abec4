/** Calls on one MongoDB deployment: bounded in time, counted until they end, their errors told in our words. */
import { StoreUnavailable, UniqueViolation } from './collection.js';

/** Milliseconds after which a call is refused, whatever the driver still tries. */
export const PATIENCE = 5000;

/** The calls that are under way, and the end of the connection after them. */
export class Connection {
  readonly #release: () => Promise<void>;
  readonly #calls = new Set<Promise<unknown>>();
  #closing: Promise<void> | undefined;

  /** @param release what to do when the last call has ended */
  constructor(release: () => Promise<void>) {
    this.#release = release;
  }

  /** Runs a step and answers within the patience. */
  async call<R>(step: () => Promise<R>): Promise<R> {
    if (this.#closing) throw new StoreUnavailable('the store is closed');
    const call = inTime(step());
    this.#calls.add(call);
    try {
      return await call;
    } catch (error) {
      throw failure(error);
    } finally {
      this.#calls.delete(call);
    }
  }

  /** Lets what was begun end, then releases the connection. */
  close(): Promise<void> {
    this.#closing ??= Promise.allSettled(this.#calls).then(this.#release);
    return this.#closing;
  }
}

async function inTime<R>(result: Promise<R>): Promise<R> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const error = new StoreUnavailable(`MongoDB: no answer within ${PATIENCE / 1000} seconds`);
    timer = setTimeout(reject, PATIENCE, error);
  });
  try {
    return await Promise.race([result, late]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * The error to throw: StoreUnavailable for whatever the driver says, by name, because a host's driver may be another
 * copy than ours; and for what a socket says (`EPIPE` where the server has just hung up), which it passes on as it is.
 */
function failure(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const isOfTheSystem = /^E[A-Z]+$/.test(String((error as NodeJS.ErrnoException).code));
  if (!isOfTheSystem && !error.name.startsWith('Mongo')) return error;
  return new StoreUnavailable(`MongoDB: ${error.message}`, { cause: error });
}

/** Tells a taken value by its field. Without the cause, because its message holds the value. */
export async function namingTheField<R>(collection: string, result: Promise<R>): Promise<R> {
  try {
    return await result;
  } catch (error) {
    const { code, keyPattern = {} } = error as { code?: unknown; keyPattern?: object };
    const [key] = Object.keys(keyPattern);
    if (code !== 11000 || key === undefined) throw error;
    throw new UniqueViolation(collection, key === '_id' ? 'id' : key);
  }
}
