import type { Collection, Store } from '../../src/storage/collection.js';

/** The store of a process that is killed at work: after a given number of calls, no call returns. */

export interface Life {
  /** The number of calls before the kill. */
  fuse: number;
  /** Whether the last call reaches the store and only its result is lost. */
  isInTime: boolean;
  isOver: boolean;
}

export class Killed extends Error {
  override readonly name = 'Killed';
}

const CALLS = new Set([
  'insert',
  'findOne',
  'updateOne',
  'changeOne',
  'deleteOne',
  'updateMany',
  'deleteMany',
  'page',
  'count',
]);

/** @param onLostOutcome called for each event whose outcome was stored by the call that was interrupted */
export function killableStore(store: Store, life: Life, onLostOutcome: (eventId: string) => void): Store {
  return {
    ...store,
    ready: () => store.ready(),
    close: async () => {},
    collection(name, declaration) {
      const collection = store.collection(name, declaration);
      return new Proxy(collection, {
        get(target, property) {
          const call = Reflect.get(target, property);
          if (typeof property !== 'string' || !CALLS.has(property)) return call;
          return async (...args: unknown[]) => {
            if (life.isOver) throw new Killed();
            const isLast = life.fuse-- <= 0;
            if (isLast) life.isOver = true;
            if (isLast && !life.isInTime) throw new Killed();
            const answer = await (call as (...args: unknown[]) => Promise<unknown>).apply(target, args);
            if (!life.isOver) return answer;
            if (name === 'webhook_events') reportLostOutcome(property, args);
            throw new Killed();
          };
        },
      }) as Collection<never> as ReturnType<typeof store.collection<never>>;
    },
  } as Store;

  function reportLostOutcome(property: string, [first, change]: unknown[]): void {
    const { id, outcome } = (first ?? {}) as { id?: string; outcome?: string };
    const { set } = (change ?? {}) as { set?: { outcome?: string } };
    const stored = property === 'insert' ? outcome : set?.outcome;
    if (id !== undefined && stored !== undefined) onLostOutcome(id);
  }
}
