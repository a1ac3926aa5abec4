import { withoutBudget } from '../storage/request-budget.js';
import type { JobLog } from './jobs.js';

/** Work after the response, so that clients cannot observe its duration or result. */
export interface BackgroundTasks {
  /** Starts a task after the response is sent. Its failure is logged and does not affect the request. */
  run(what: string, work: () => Promise<void>): void;
  /** Resolves when all tasks have ended. */
  settled(): Promise<void>;
}

export function createBackgroundTasks(log: Pick<JobLog, 'error'>): BackgroundTasks {
  const running = new Set<Promise<void>>();
  return {
    run(what, work) {
      const done = new Promise<void>((resolve) => setImmediate(resolve))
        .then(() => withoutBudget(work))
        .catch((err: unknown) => log.error({ err, work: what }, 'background task after a response failed'))
        .finally(() => running.delete(done));
      running.add(done);
    },

    async settled() {
      while (running.size > 0) await Promise.all(running);
    },
  };
}
