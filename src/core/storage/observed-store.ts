import { performance } from 'node:perf_hooks';
import { CALLS } from './checked-store.js';
import type { Collection, Store } from './collection.js';

/** Makes a call of a store. `parameters` are those of the method; those of a commit are its writes, in the collection of the first. */
export type Around = <R>(
  call: () => Promise<R>,
  collection: string,
  operation: string,
  parameters: readonly unknown[],
) => Promise<R>;

/** A store whose calls pass through a function. */
export function aroundCalls(inner: Store, around: Around): Store {
  const ofCollection = <T extends { id: string }>(name: string, collection: Collection<T>): Collection<T> => {
    const calls = CALLS.map((operation) => {
      const method = collection[operation] as (...parameters: unknown[]) => Promise<unknown>;
      const call = (...parameters: unknown[]) =>
        around(() => method(...parameters), name, operation, parameters);
      return [operation, call];
    });
    return { ...collection, ...Object.fromEntries(calls) };
  };
  return {
    ...inner,
    collection: (name, declaration) => ofCollection(name, inner.collection(name, declaration)),
    commit: (writes) => around(() => inner.commit(writes), writes[0]?.collection ?? '', 'commit', writes),
  };
}

/**
 * A store whose calls are measured. Callers get the promise of the inner store, so that calls take no longer.
 *
 * @param observe receives the duration of each call, whether or not it failed
 */
export function observeStore(
  inner: Store,
  observe: (collection: string, operation: string, milliseconds: number) => void,
): Store {
  return aroundCalls(inner, (call, collection, operation) => {
    const startedAt = performance.now();
    const result = call();
    const end = () => observe(collection, operation, performance.now() - startedAt);
    result.then(end, end);
    return result;
  });
}
