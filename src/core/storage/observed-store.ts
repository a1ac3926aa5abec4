import { performance } from 'node:perf_hooks';
import type { Collection, Store } from './collection.js';

/** Returns what receives the duration of each call of a method, whether or not it failed. */
export type ObserveCalls = (collection: string, operation: string) => (milliseconds: number) => void;

const OPERATIONS = [
  'insert',
  'insertMany',
  'findOne',
  'updateOne',
  'changeOne',
  'deleteOne',
  'updateMany',
  'deleteMany',
  'page',
  'count',
  'estimate',
] as const satisfies readonly (keyof Collection<{ id: string }>)[];

/** A store whose calls are measured. Callers get the promise of the inner store, so that calls take no longer. */
export function observeStore(inner: Store, observeCalls: ObserveCalls): Store {
  const observers = new Map<string, ReturnType<ObserveCalls>>();
  const observerOf = (collection: string) => {
    const observe = observers.get(collection) ?? observeCalls(collection, 'writeAll');
    observers.set(collection, observe);
    return observe;
  };
  return {
    collection: (name, declaration) =>
      observeCollection(name, inner.collection(name, declaration), observeCalls),
    // Several collections share the duration: it is attributed to the first.
    writeAll: (writes) => measure(observerOf(writes[0]?.collection ?? ''), () => inner.writeAll(writes)),
    isAtomic: inner.isAtomic,
    ...(inner.requestTimeoutMs !== undefined && { requestTimeoutMs: inner.requestTimeoutMs }),
    ...(inner.serverTime && { serverTime: inner.serverTime }),
    ready: () => inner.ready(),
    close: () => inner.close(),
  };
}

function observeCollection<T extends { id: string }>(
  name: string,
  inner: Collection<T>,
  observeCalls: ObserveCalls,
): Collection<T> {
  const measured = (operation: (typeof OPERATIONS)[number]) => {
    const observe = observeCalls(name, operation);
    const call = inner[operation] as (...parameters: unknown[]) => Promise<unknown>;
    return (...parameters: unknown[]): Promise<unknown> => measure(observe, () => call(...parameters));
  };
  const entries = OPERATIONS.map((operation) => [operation, measured(operation)]);
  const { inserting, changing, replacing } = inner;
  return { ...Object.fromEntries(entries), inserting, changing, replacing } as Collection<T>;
}

function measure<R>(observe: (milliseconds: number) => void, call: () => Promise<R>): Promise<R> {
  const startedAt = performance.now();
  const result = call();
  const end = () => observe(performance.now() - startedAt);
  result.then(end, end);
  return result;
}
