import type { Collection, Store } from '../../src/core/storage/collection.js';

/** The methods that create a write for `Store.commit`, and call nothing. */
type WriteMethod = 'inserting' | 'ensuring' | 'changing' | 'deleting';

const isWrite = (name: string): name is WriteMethod =>
  ['inserting', 'ensuring', 'changing', 'deleting'].includes(name);

/**
 * A store whose calls pass through a function.
 *
 * @param atCall gets the call, its name, such as `users.findOne`, and its arguments
 */
export function withEachCall(
  store: Store,
  atCall: <T>(call: () => Promise<T>, name: string, args: unknown[]) => Promise<T>,
): Store {
  const wrapped = <T extends { id: string }>(documents: Collection<T>, of: string): Collection<T> =>
    new Proxy(documents, {
      get: (target, name: keyof Collection<T>) => {
        if (isWrite(name)) return target[name];
        const method = target[name] as (...args: unknown[]) => Promise<unknown>;
        return (...args: unknown[]) => atCall(() => method.apply(target, args), `${of}.${name}`, args);
      },
    });
  return {
    ...store,
    collection: (name, declaration) => wrapped(store.collection(name, declaration), name),
    commit: (writes) => atCall(() => store.commit(writes), 'commit', [writes]),
  };
}
