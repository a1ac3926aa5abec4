import type { JobLog } from './jobs.js';

/** Work that an answer must not wait for: neither how long it takes nor how it ends may be told from outside. */
export interface BackgroundTasks {
  /** Begins the work once the answer has left. It never fails the request; the log says what failed. */
  run(what: string, work: () => Promise<void>): void;
  /** Resolves when everything that was begun has ended. */
  settled(): Promise<void>;
}

export function createBackgroundTasks(log: Pick<JobLog, 'error'>): BackgroundTasks {
  const running = new Set<Promise<void>>();
  return {
    run(what, work) {
      const done = new Promise<void>((resolve) => setImmediate(resolve))
        .then(work)
        .catch((err: unknown) => log.error({ err, work: what }, 'background task after a response failed'))
        .finally(() => running.delete(done));
      running.add(done);
    },

    async settled() {
      while (running.size > 0) await Promise.all(running);
    },
  };
}
