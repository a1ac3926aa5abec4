import { type Clock, SECOND } from '../kernel/clock.js';
import type { Collection } from '../storage/collection.js';
import type { Metrics } from './metrics.js';

/**
 * Metrics of the background jobs: the runs of this process, and the state that all processes share. Their label is `task`,
 * because Prometheus sets the label `job` itself.
 */

/** Documents counted for each purge at a scrape. */
export const MAX_COUNTED_BACKLOG = 10_000;

/** Exceeds the number of jobs. */
const MAX_LEASES = 100;

interface JobMeasurement {
  leases: Pick<Collection<{ id: string; dueAt: number }>, 'page'>;
  /** The jobs by name, which may be added later. */
  entries: ReadonlyMap<string, { job: { countBacklog?(limit: number): Promise<number> } }>;
  clock: Clock;
}

/** Declares the metrics and returns what records the runs. */
export function measureJobs(metrics: Metrics, { leases, entries, clock }: JobMeasurement) {
  const countRun = metrics.counter({
    name: 'job_runs_total',
    help: 'Runs of background jobs by outcome: success or failure.',
    labels: ['task', 'outcome'],
  });
  const countRemoved = metrics.counter({
    name: 'purge_removed_documents_total',
    help: 'Expired documents that background jobs have deleted.',
    labels: ['task'],
  });
  const lastSuccess = new Map<string, number>();
  metrics.gauge(
    {
      name: 'job_last_success_timestamp_seconds',
      help: 'Unix time of the last successful run in these processes.',
      labels: ['task'],
      combine: 'max',
    },
    () => [...lastSuccess].map(([job, time]) => ({ labels: { task: job }, value: time / SECOND })),
  );
  metrics.storeGauge(
    {
      name: 'job_lag_seconds',
      help: 'Time for which a background job has been due, in any process.',
      labels: ['task'],
    },
    async () => {
      const { items } = await leases.page({ sort: 'id', limit: MAX_LEASES });
      return items
        .filter(({ id }) => entries.has(id))
        .map(({ id, dueAt }) => ({ labels: { task: id }, value: Math.max(0, clock.now() - dueAt) / SECOND }));
    },
  );
  metrics.storeGauge(
    {
      name: 'purge_backlog_documents',
      help: `Documents that a purge has to delete, counted up to ${MAX_COUNTED_BACKLOG}.`,
      labels: ['task'],
    },
    async () => {
      const counts = [...entries].map(async ([task, { job }]) => {
        const value = await job.countBacklog?.(MAX_COUNTED_BACKLOG);
        return value === undefined ? [] : [{ labels: { task }, value }];
      });
      return (await Promise.all(counts)).flat();
    },
  );
  return {
    /** Shows a job before its first run. */
    added(task: string, { countBacklog }: { countBacklog?: unknown }): void {
      for (const outcome of ['success', 'failure']) countRun({ task, outcome }, 0);
      if (countBacklog) countRemoved({ task }, 0);
    },
    /** @param report what a purge has deleted */
    // biome-ignore lint/suspicious/noConfusingVoidType: the runs of other jobs resolve with nothing
    succeeded(job: string, report: { removed: number } | void): void {
      countRun({ task: job, outcome: 'success' });
      if (report) countRemoved({ task: job }, report.removed);
      lastSuccess.set(job, clock.now());
    },
    failed: (job: string): void => countRun({ task: job, outcome: 'failure' }),
  };
}
