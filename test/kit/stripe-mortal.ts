import type { Collection, Store } from '../../src/storage/collection.js';

/** A store as a process has it that is killed in the middle of its work: from some call on, nothing comes back. */

export interface Life {
  /** Calls that are still made. */
  fuse: number;
  /** Whether the last of them still reaches the store, and only its answer is lost. */
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
  'deleteOne',
  'updateMany',
  'deleteMany',
  'page',
  'count',
]);

/** @param onLostMark told of each event whose mark was stored although nobody lived to see it */
export function mortal(store: Store, life: Life, onLostMark: (eventId: string) => void): Store {
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
            if (name === 'webhook_events') tellLostMark(args);
            throw new Killed();
          };
        },
      }) as Collection<never> as ReturnType<typeof store.collection<never>>;
    },
  } as Store;

  function tellLostMark([where, change]: unknown[]): void {
    const { id } = (where ?? {}) as { id?: string };
    const { set } = (change ?? {}) as { set?: { outcome?: string } };
    if (id !== undefined && set?.outcome !== undefined) onLostMark(id);
  }
}
