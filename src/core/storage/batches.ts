/** Calls of a few turns of the event loop that share a command, because a command costs the driver and the server 0.1 ms each or more. */
import { performance } from 'node:perf_hooks';
import { setImmediate as endOfTurn } from 'node:timers/promises';
import { CallBatcher } from './call-batcher.js';
import { noResponse, waitFor } from './calls.js';
import { withoutBudget } from './request-budget.js';

/** Items per command, so that a large answer does not delay the first ones. */
const MAX_ITEMS = 64;

/** A command that has not been sent yet. */
interface Batch<T, R> {
  items: Set<T>;
  /** More than the items if several calls have added the same one. */
  calls: Waiting<R>[];
}

/** A call that waits for the result of its command. */
interface Waiting<R> {
  resolve(result: R): void;
  reject(error: unknown): void;
}

/** Waits for more calls, closes the batch and returns its items. */
export type Collect<T> = () => Promise<T[]>;

/**
 * Returns a function that adds an item to the next command and returns its part of the result. The command is sent after
 * the call, so the result is as recent as that of a command of its own.
 *
 * @param engine its name, for the error of a call without a response
 * @param send collects the items and sends the command
 * @param partOf returns the part of the result that belongs to an item
 */
export function createBatches<T, R, P>(
  engine: string,
  send: (collect: Collect<T>) => Promise<R>,
  partOf: (result: R, item: T) => P,
): (item: T) => Promise<P> {
  let waiting: Batch<T, R> | undefined;
  const batcher = new CallBatcher(() => performance.now(), MAX_ITEMS);

  const open = (): Batch<T, R> => {
    const batch: Batch<T, R> = { items: new Set(), calls: [] };
    const close = () => {
      if (waiting === batch) waiting = undefined;
    };
    const collect = async () => {
      do await endOfTurn();
      while (!batcher.shouldSend(batch.calls.length));
      // Later calls need a command of their own.
      close();
      return [...batch.items];
    };
    // Several requests share the command, so none of them limits it.
    const sent = withoutBudget(() => send(collect));
    // One handler for all calls, because each promise of a request costs time. The command may fail before it collects, for
    // example because the store is closed.
    sent.then(
      (result) => {
        for (const { resolve } of batch.calls) resolve(result);
      },
      (error: unknown) => {
        close();
        for (const { reject } of batch.calls) reject(error);
      },
    );
    return batch;
  };

  return (item) =>
    waitFor(
      (resolve, reject) => {
        if (!waiting || waiting.items.size >= MAX_ITEMS) waiting = open();
        waiting.items.add(item);
        waiting.calls.push({
          resolve: (result) => {
            try {
              resolve(partOf(result, item));
            } catch (error) {
              reject(error);
            }
          },
          reject,
        });
      },
      (hasBegun) => noResponse(engine, hasBegun),
    );
}
