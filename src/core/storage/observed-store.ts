import { performance } from 'node:perf_hooks';
import type { Collection, Store } from './collection.js';

/** Receives the duration of each call of a method, whether or not it failed. */
export type ObserveCall = (collection: string, operation: string, milliseconds: number) => void;

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
export function observeStore(inner: Store, observe: ObserveCall): Store {
  return {
    ...inner,
    collection: (name, declaration) => observeCollection(name, inner.collection(name, declaration), observe),
    // Several collections share the duration: it is attributed to the first.
    commit: (writes) =>
      measure(
        () => inner.commit(writes),
        (milliseconds) => observe(writes[0]?.collection ?? '', 'commit', milliseconds),
      ),
  };
}

function observeCollection<T extends { id: string }>(
  name: string,
  inner: Collection<T>,
  observe: ObserveCall,
): Collection<T> {
  const measured = (operation: (typeof OPERATIONS)[number]) => {
    const call = inner[operation] as (...parameters: unknown[]) => Promise<unknown>;
    const end = (milliseconds: number) => observe(name, operation, milliseconds);
    return (...parameters: unknown[]): Promise<unknown> => measure(() => call(...parameters), end);
  };
  const entries = OPERATIONS.map((operation) => [operation, measured(operation)]);
  return { ...inner, ...Object.fromEntries(entries) };
}

function measure<R>(call: () => Promise<R>, observe: (milliseconds: number) => void): Promise<R> {
  const startedAt = performance.now();
  const result = call();
  const end = () => observe(performance.now() - startedAt);
  result.then(end, end);
  return result;
}
