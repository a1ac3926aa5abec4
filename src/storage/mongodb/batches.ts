/** Calls of a few turns of the event loop that share a command, because a command costs the driver and mongod 0.1 ms each. */
import { performance } from 'node:perf_hooks';
import { setImmediate as endOfTurn } from 'node:timers/promises';
import { CallBatcher } from '../call-batcher.js';
import { withoutBudget } from '../request-budget.js';
import { waitFor } from './connection.js';

/** Items per command, so that a large answer does not delay the first ones. */
const MAX_ITEMS = 64;

/** A command that has not been sent yet. */
interface Batch<T, R> {
  items: Set<T>;
  /** Several calls may add the same item. */
  calls: number;
  result: Promise<R>;
}

/** Waits for more calls, closes the batch and returns its items. */
export type Collect<T> = () => Promise<T[]>;

/**
 * Returns a function that adds an item to the next command and returns the result of the command. It is sent after the call,
 * so the result is as recent as that of a command of its own.
 *
 * @param send collects the items and sends the command
 */
export function createBatches<T, R>(send: (collect: Collect<T>) => Promise<R>): (item: T) => Promise<R> {
  let waiting: Batch<T, R> | undefined;
  const batcher = new CallBatcher(() => performance.now(), MAX_ITEMS);

  const open = (): Batch<T, R> => {
    const items = new Set<T>();
    const close = () => {
      if (waiting === batch) waiting = undefined;
    };
    const collect = async () => {
      do await endOfTurn();
      while (!batcher.shouldSend(batch.calls));
      // Later calls need a command of their own.
      close();
      return [...items];
    };
    // Several requests share the command, so none of them limits it.
    const batch: Batch<T, R> = { items, calls: 0, result: withoutBudget(() => send(collect)) };
    // The call may fail before it collects, for example because the store is closed.
    batch.result.then(close, close);
    return batch;
  };

  return (item) =>
    waitFor(() => {
      if (!waiting || waiting.items.size >= MAX_ITEMS) waiting = open();
      waiting.items.add(item);
      waiting.calls++;
      return waiting.result;
    });
}
