import type { Store } from '../../src/core/storage/collection.js';
import { withEachCall } from './each-call.js';

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

export function killableStore(store: Store, life: Life): Store {
  const watched = withEachCall(store, async (call) => {
    if (life.isOver) throw new Killed();
    const isLast = life.fuse-- <= 0;
    if (isLast) life.isOver = true;
    if (isLast && !life.isInTime) throw new Killed();
    const answer = await call();
    if (life.isOver) throw new Killed();
    return answer;
  });
  return { ...watched, ready: () => store.ready(), close: async () => {} };
}
