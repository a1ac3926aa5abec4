import type { Store } from '../../src/core/storage/collection.js';
import { aroundCalls } from '../../src/core/storage/observed-store.js';

/**
 * A store whose calls pass through a function.
 *
 * @param atCall gets the call, its name, such as `users.findOne`, and its arguments
 */
export function withEachCall(
  store: Store,
  atCall: <T>(call: () => Promise<T>, name: string, args: unknown[]) => Promise<T>,
): Store {
  return aroundCalls(store, (call, collection, operation, parameters) =>
    operation === 'commit'
      ? atCall(call, operation, [parameters])
      : atCall(call, `${collection}.${operation}`, [...parameters]),
  );
}
