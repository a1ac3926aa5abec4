import { performance } from 'node:perf_hooks';
import type { FastifyBaseLogger } from 'fastify';
import { type Clock, every, isDue, MINUTE, SECOND } from '../kernel/clock.js';
import { newId, type Random } from '../kernel/secrets.js';
import { type Declaration, nullIfTaken, type Store } from '../storage/collection.js';
import { withoutBudget } from '../storage/request-budget.js';
import { measureJobs } from './job-metrics.js';
import type { Metrics } from './metrics.js';

/**
 * Periodic jobs under a lease in the store, so that one of any number of processes runs them. A delayed process may
 * still write after its lease has expired, so jobs guard their writes by conditional updates or by the term.
 */

/** The lease of one job and the time of its next run. */
export interface LeaseDocument {
  /** Name of the job. */
  id: string;
  owner: string;
  /** End of the lease: a time in the past after a run, 0 after a graceful stop of the owner. */
  until: number;
  /** Incremented with each acquisition. */
  term: number;
  /** Time of the next scheduled run. */
  dueAt: number;
}

/** The name of the collection of leases. */
export const LEASE_COLLECTION = 'leases';

/** Its declaration. */
export const LEASE_FIELDS = {
  fields: ['owner'],
  numbers: ['until', 'term', 'dueAt'],
} satisfies Declaration<LeaseDocument>;

/** The lease under which a job runs. */
export interface Lease {
  /** A fencing token: higher than in all earlier runs. */
  readonly term: number;
  /** Aborted when the lease is lost or the process stops. */
  readonly signal: AbortSignal;
}

/** What a run that deletes documents achieved. */
export interface RunReport {
  /** Number of documents deleted. */
  removed: number;
  /** False if documents remain: the next run follows at once. */
  isComplete: boolean;
}

export interface Job {
  everySeconds: number;
  /** A purge reports its progress. */
  run(lease: Lease): Promise<void> | Promise<RunReport>;
  /** Counts the documents that a purge has to delete, up to `limit`. */
  countBacklog?(limit: number): Promise<number>;
}

export type Jobs = ReturnType<typeof createJobs>;

export type JobLog = Pick<FastifyBaseLogger, 'info' | 'warn' | 'error'>;

/** The state of one job in this process. */
interface Entry {
  name: string;
  job: Job;
  running?: Promise<void> | undefined;
  /** The run that follows the current one. */
  next?: Promise<void> | undefined;
  /** Stops the timer. */
  stop?: () => void;
  /** Whether the last run failed and the failure was logged. */
  isFailing: boolean;
  /** Whether the last run left documents that a purge deletes. */
  isBehind: boolean;
}

const LEASE_MS = 30_000;

/** How often a process checks whether a job is due; more often for shorter intervals. */
const CHECK_INTERVAL_MS = MINUTE;

const checkIntervalOf = ({ everySeconds }: Job): number => Math.min(everySeconds * SECOND, CHECK_INTERVAL_MS);

/** Share of its period by which a timer may fire early and still find its job due. */
const TIMER_TOLERANCE = 0.1;

/** @param leaseMs time after which another process takes over from a crashed one */
export function createJobs(
  store: Store,
  {
    clock,
    random,
    log,
    metrics,
    leaseMs = LEASE_MS,
  }: { clock: Clock; random: Random; log: JobLog; metrics?: Metrics | undefined; leaseMs?: number },
) {
  const leases = store.collection<LeaseDocument>(LEASE_COLLECTION, LEASE_FIELDS);
  const owner = newId('own_', clock, random);
  const entries = new Map<string, Entry>();
  const record = metrics && measureJobs(metrics, { leases, entries, clock });
  const controllers = new Set<AbortController>();
  let isStarted = false;
  let isStopping = false;
  let stopped: Promise<void> | undefined;
  let hasAcquired = false;

  /** Acquires the lease; null if another process holds it or the job is not due. */
  const acquire = async ({ name, job }: Entry, isForced: boolean): Promise<LeaseDocument | null> => {
    for (;;) {
      const known = await leases.findOne({ id: name });
      const now = clock.now();
      const ownership = { owner, until: now + leaseMs };
      if (!known) {
        const first = { id: name, ...ownership, term: 1, dueAt: now };
        if (await leases.insert(first).then(() => true, nullIfTaken)) return first;
        continue;
      }
      const { term, until, dueAt } = known;
      const shouldRun = isForced || isDue(dueAt, { now, within: job.everySeconds * SECOND });
      if (!shouldRun || !isDue(until, { now, within: leaseMs })) return null;
      const acquired = await leases.updateOne(
        { id: name, term, until, dueAt },
        { set: ownership, inc: { term: 1 } },
      );
      if (acquired) return acquired;
      // Another process has changed the lease. A forced run must not rely on the run of that process, so the loop reads
      // the lease again.
    }
  };

  /** Renews the lease during `work`; a failed renewal counts as a lost lease. */
  const withLease = async ({ id, term }: LeaseDocument, work: Job['run']) => {
    const controller = new AbortController();
    controllers.add(controller);
    const renew = async () => {
      const renewed = await leases.updateOne({ id, owner, term }, { set: { until: clock.now() + leaseMs } });
      if (!renewed) controller.abort();
    };
    const timer = setInterval(() => renew().catch(() => controller.abort()), leaseMs / 3).unref();
    try {
      return await work({ term, signal: controller.signal });
    } finally {
      clearInterval(timer);
      controllers.delete(controller);
    }
  };

  /** Returns whether another run should follow at once. A failed or incomplete run leaves the job due. */
  const attempt = async (entry: Entry, isForced: boolean): Promise<boolean> => {
    const { name, job } = entry;
    const acquired = await acquire(entry, isForced);
    if (!acquired) return false;
    hasAcquired = true;
    let dueAt = clock.now();
    try {
      const startedAt = performance.now();
      const report = await withLease(acquired, job.run);
      record?.succeeded(name, report);
      if (report) logProgress(entry, report, (performance.now() - startedAt) / SECOND);
      if (report && !report.isComplete) return true;
      dueAt += job.everySeconds * SECOND - checkIntervalOf(job) * TIMER_TOLERANCE;
      return false;
    } finally {
      const own = { id: name, owner, term: acquired.term };
      await leases.updateOne(own, { set: { until: clock.now(), dueAt: Math.round(dueAt) } });
    }
  };

  /** Logs every run that leaves documents, and the one that deletes the last of them. */
  const logProgress = (entry: Entry, { removed, isComplete }: RunReport, seconds: number): void => {
    if (!isComplete || entry.isBehind) {
      const perSecond = Math.round(removed / Math.max(0.001, seconds));
      const progress = { job: entry.name, removed, seconds: Math.round(seconds), perSecond };
      log.info(progress, isComplete ? 'purge has caught up' : 'purge continues: expired documents remain');
    }
    entry.isBehind = !isComplete;
  };

  /** Runs a job and logs the first failure of a series and the first success after it. */
  const run = async (entry: Entry, isForced: boolean): Promise<void> => {
    try {
      // The lease is free between two runs, so that another process may continue.
      for (let follows = !isStopping, forced = isForced; follows; forced = false) {
        follows = (await attempt(entry, forced)) && !isStopping;
      }
      if (entry.isFailing) log.info({ job: entry.name }, 'background job succeeds again');
      entry.isFailing = false;
    } catch (err) {
      record?.failed(entry.name);
      if (!entry.isFailing) log.error({ err, job: entry.name }, 'background job failed and will be retried');
      entry.isFailing = true;
    }
  };

  const begin = (entry: Entry, isForced: boolean): Promise<void> => {
    entry.running = withoutBudget(() => run(entry, isForced)).finally(() => {
      entry.running = undefined;
    });
    return entry.running;
  };

  const tick = (entry: Entry) => {
    if (!entry.running) void begin(entry, false);
  };

  const schedule = (entry: Entry) => {
    tick(entry);
    entry.stop = every(clock, checkIntervalOf(entry.job), () => tick(entry));
  };

  const finish = async () => {
    isStopping = true;
    for (const controller of controllers) controller.abort();
    for (const entry of entries.values()) entry.stop?.();
    await Promise.all([...entries.values()].map(({ running, next }) => next ?? running));
    if (!hasAcquired) return;
    try {
      // Shows the copy of a store that this process has stopped.
      await leases.updateMany({ owner }, { set: { until: 0 } });
    } catch (err) {
      log.warn({ err }, 'the stop of the background jobs could not be recorded');
    }
  };

  return {
    /** @throws if a job of this name exists */
    add(name: string, job: Job) {
      if (entries.has(name)) throw new Error(`There is a job '${name}' already.`);
      const entry: Entry = { name, job, isFailing: false, isBehind: false };
      entries.set(name, entry);
      record?.added(name, job);
      if (isStarted) schedule(entry);
    },

    /**
     * Runs the jobs that are due, now and periodically. A run that failed, or whose process crashed, is repeated within a
     * minute. Further calls have no effect.
     */
    start() {
      if (isStarted || isStopping) return;
      isStarted = true;
      for (const entry of entries.values()) schedule(entry);
    },

    /** Runs the jobs that are due and not running here, once. Returns the names of those that failed. */
    async runDue(): Promise<string[]> {
      const started = [...entries.values()].filter(({ running }) => !running);
      await Promise.all(started.map((entry) => begin(entry, false)));
      return started.filter(({ isFailing }) => isFailing).map(({ name }) => name);
    },

    /**
     * Runs a job now, unless another process runs it. If the job is running in this process, it runs once more
     * afterwards. Resolves after the run; failures are logged and do not reject.
     */
    runNow(name: string) {
      const entry = entries.get(name);
      if (!entry) throw new Error(`There is no job '${name}'.`);
      if (!entry.running) return begin(entry, true);
      entry.next ??= entry.running.then(() => {
        entry.next = undefined;
        return begin(entry, true);
      });
      return entry.next;
    },

    /** Starts no further runs and resolves when the current ones have ended. */
    stop() {
      stopped ??= finish();
      return stopped;
    },
  };
}
