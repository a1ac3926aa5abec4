import type { Store, Write } from '../../src/core/storage/collection.js';
import { withEachCall } from './killed-at.js';

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

/**
 * @param onLostOutcome called for each event whose outcome was stored by the call that was interrupted
 */
export function killableStore(store: Store, life: Life, onLostOutcome: (eventId: string) => void): Store {
  const inserted = new WeakMap<Write, object>();
  const watched = withEachCall(store, (call, name, args) => {
    const [collection, method = ''] = name.split('.');
    return untilKilled(call, () => collection === 'webhook_events' && reportLostOutcome(method, args));
  });
  return {
    ...watched,
    ready: () => store.ready(),
    close: async () => {},
    collection(name, declaration) {
      const documents = watched.collection(name, declaration);
      const inserting = (doc: never) => remembered(documents.inserting(doc), doc);
      return new Proxy(documents, {
        get: (target, property) => (property === 'inserting' ? inserting : Reflect.get(target, property)),
      });
    },
    commit: (writes) =>
      untilKilled(
        () => store.commit(writes),
        ({ committed }) => {
          if (committed) for (const write of writes) reportLostOutcome('insert', [inserted.get(write)]);
        },
      ),
  };

  async function untilKilled<R>(call: () => Promise<R>, onLost: (answer: R) => void): Promise<R> {
    if (life.isOver) throw new Killed();
    const isLast = life.fuse-- <= 0;
    if (isLast) life.isOver = true;
    if (isLast && !life.isInTime) throw new Killed();
    const answer = await call();
    if (!life.isOver) return answer;
    onLost(answer);
    throw new Killed();
  }

  function remembered(write: Write, doc: object): Write {
    inserted.set(write, doc);
    return write;
  }

  function reportLostOutcome(property: string, [first, change]: unknown[]): void {
    const { id, outcome } = (first ?? {}) as { id?: string; outcome?: string };
    const { set } = (change ?? {}) as { set?: { outcome?: string } };
    const stored = property === 'insert' ? outcome : set?.outcome;
    if (id !== undefined && stored !== undefined) onLostOutcome(id);
  }
}
