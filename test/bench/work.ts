/** The worker side of `Lab.worker`. */
import { performance } from 'node:perf_hooks';

/** Runs a task once; several runs may be concurrent. */
export type Task = () => unknown;

interface Order {
  task: string;
  seconds: number;
}

/** Executes tasks until the parent ends; `concurrency` of each run at a time, otherwise one. */
export function work(tasks: Record<string, Task>, concurrency: Record<string, number> = {}): void {
  process.on('message', async ({ task, seconds }: Order) => {
    const run = tasks[task] as Task;
    const since = performance.now();
    const end = since + seconds * 1000;
    let count = 0;
    const repeat = async () => {
      do {
        const result = run();
        // An await per signature would affect the measurement.
        if (result instanceof Promise) await result;
        count++;
      } while (performance.now() < end);
    };
    await Promise.all(Array.from({ length: concurrency[task] ?? 1 }, repeat));
    process.send?.((count * 1000) / (performance.now() - since));
  });
  process.once('disconnect', () => process.exit());
}
