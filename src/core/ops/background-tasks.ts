import { withoutBudget } from '../storage/request-budget.js';
import type { JobLog } from './jobs.js';

/** Work after the response, so that clients cannot observe its duration or result. */
export type BackgroundTasks = ReturnType<typeof createBackgroundTasks>;

export function createBackgroundTasks(log: Pick<JobLog, 'error'>) {
  const running = new Set<Promise<unknown>>();
  return {
    /** Starts a task after the response is sent. Its failure is logged and does not affect the request. */
    run(what: string, work: () => Promise<unknown>) {
      const done: Promise<unknown> = new Promise<void>((resolve) => setImmediate(resolve))
        .then(() => withoutBudget(work))
        .catch((err: unknown) => log.error({ err, work: what }, 'background task after a response failed'))
        .finally(() => running.delete(done));
      running.add(done);
    },

    /** Resolves when all tasks have ended. */
    async settled() {
      while (running.size > 0) await Promise.all(running);
    },
  };
}
