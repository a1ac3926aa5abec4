/** The other end of `Lab.worker`. */
import { performance } from 'node:perf_hooks';

/** Does a thing once, for one of those who do it at the same time. */
export type Task = (argument: number) => unknown;

interface Order {
  task: string;
  seconds: number;
  argument?: number;
}

/** Obeys orders for as long as the parent lives; `concurrency` of each task run at a time. */
export function work(tasks: Record<string, Task>, concurrency: Record<string, number>): void {
  process.on('message', async ({ task, seconds, argument = 0 }: Order) => {
    const run = tasks[task] as Task;
    const since = performance.now();
    const end = since + seconds * 1000;
    let count = 0;
    const repeat = async () => {
      do {
        const result = run(argument);
        // An await per signature would be measured with it.
        if (result instanceof Promise) await result;
        count++;
      } while (performance.now() < end);
    };
    await Promise.all(Array.from({ length: concurrency[task] ?? 1 }, repeat));
    process.send?.((count * 1000) / (performance.now() - since));
  });
  process.once('disconnect', () => process.exit());
}
