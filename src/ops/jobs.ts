import type { FastifyBaseLogger } from 'fastify';
import { type Clock, every, hasCome, SECOND } from '../kernel/clock.js';
import { newId, type Random } from '../kernel/secrets.js';
import { nullIfTaken, type Store } from '../storage/collection.js';

/**
 * Background work under a lease in the store, so that any number of processes do it once. The lease only saves
 * double work: a process that was held up may still act after it, so whatever a job writes is guarded by a
 * conditional update of its own or by the term.
 */

/** Who does a job at the moment, and when it is to be done again. */
interface LeaseDocument {
  /** Name of the job. */
  id: string;
  owner: string;
  /** Nobody else takes the job before. */
  until: number;
  /** Raised with every taking. */
  term: number;
  /** Not before, unless somebody asks. */
  dueAt: number;
}

/** What a run is told. */
export interface Lease {
  /** Higher than in every run before: an effect that carries it can be refused where a higher one has been. */
  readonly term: number;
  /** Aborted when the lease is lost or the process stops: begin nothing more. */
  readonly signal: AbortSignal;
}

export interface Job {
  everySeconds: number;
  run(lease: Lease): Promise<void>;
}

export interface Jobs {
  /** @throws when the name is taken */
  add(name: string, job: Job): void;
  /** Does what is due now, and from then on whatever gets due. Starting again changes nothing. */
  start(): void;
  /**
   * Does a job at once, due or not, unless another process does it. Where it runs here already, it runs once more.
   * Resolves when that is done; it never rejects, because the log says what failed.
   */
  runNow(name: string): Promise<void>;
  /** Begins nothing more and resolves when what runs has ended. */
  stop(): Promise<void>;
}

export type JobLog = Pick<FastifyBaseLogger, 'info' | 'warn' | 'error'>;

/** What this process knows of one job. */
interface Entry {
  name: string;
  job: Job;
  running?: Promise<void> | undefined;
  /** The run after that one. */
  next?: Promise<void> | undefined;
  /** Ends its timer. */
  stop?: () => void;
  /** Whether the last run failed, and the log has said so. */
  isFailing: boolean;
}

const LEASE = 30_000;

/** A timer that is early by less than this share of its period does not miss its turn. */
const EARLY = 0.1;

/** @param lease milliseconds after which another process takes over from one that is gone */
export function createJobs(
  store: Store,
  { clock, random, log, lease = LEASE }: { clock: Clock; random: Random; log: JobLog; lease?: number },
): Jobs {
  const leases = store.collection<LeaseDocument>('leases', { fields: ['owner', 'until', 'term', 'dueAt'] });
  const owner = newId('own_', clock, random);
  const entries = new Map<string, Entry>();
  const held = new Set<AbortController>();
  let isStarted = false;
  let isStopping = false;

  /** The lease, or null where somebody else has it or nothing is due. */
  const take = async ({ name, job }: Entry, isAsked: boolean): Promise<LeaseDocument | null> => {
    for (;;) {
      const known = await leases.findOne({ id: name });
      const now = clock.now();
      const held = { owner, until: now + lease };
      if (!known) {
        const first = { id: name, ...held, term: 1, dueAt: now };
        if (await leases.insert(first).then(() => true, nullIfTaken)) return first;
        continue;
      }
      const { term, until, dueAt } = known;
      const isDue = isAsked || hasCome(dueAt, { now, within: job.everySeconds * SECOND });
      if (!isDue || !hasCome(until, { now, within: lease })) return null;
      const taken = await leases.updateOne({ id: name, term, until, dueAt }, { set: held, inc: { term: 1 } });
      if (taken) return taken;
      // Somebody else was first: to take it, or to end a run that may not have seen what this one is asked for.
    }
  };

  /** Keeps the lease during `work`; what cannot be prolonged counts as lost. */
  const holding = async ({ id, term }: LeaseDocument, work: (lease: Lease) => Promise<void>) => {
    const end = new AbortController();
    held.add(end);
    const prolong = async () => {
      const kept = await leases.updateOne({ id, owner, term }, { set: { until: clock.now() + lease } });
      if (!kept) end.abort();
    };
    const timer = setInterval(() => prolong().catch(() => end.abort()), lease / 3).unref();
    try {
      await work({ term, signal: end.signal });
    } finally {
      clearInterval(timer);
      held.delete(end);
    }
  };

  const attempt = async (entry: Entry, isAsked: boolean): Promise<void> => {
    const { name, job } = entry;
    const taken = await take(entry, isAsked);
    if (!taken) return;
    const begun = clock.now();
    let dueAt = begun;
    try {
      await holding(taken, job.run);
      dueAt += job.everySeconds * SECOND * (1 - EARLY);
    } finally {
      const mine = { id: name, owner, term: taken.term };
      await leases.updateOne(mine, { set: { until: clock.now(), dueAt: Math.round(dueAt) } });
    }
  };

  /** One run, its failure logged: the first of a series, and the end of the series. */
  const run = async (entry: Entry, isAsked: boolean): Promise<void> => {
    if (isStopping) return;
    try {
      await attempt(entry, isAsked);
      if (entry.isFailing) log.info({ job: entry.name }, 'background job succeeds again');
      entry.isFailing = false;
    } catch (err) {
      if (!entry.isFailing) log.error({ err, job: entry.name }, 'background job failed and will be retried');
      entry.isFailing = true;
    }
  };

  const begin = (entry: Entry, isAsked: boolean): Promise<void> => {
    entry.running = run(entry, isAsked).finally(() => {
      entry.running = undefined;
    });
    return entry.running;
  };

  const tick = (entry: Entry) => {
    if (!entry.running) void begin(entry, false);
  };

  const tickAlways = (entry: Entry) => {
    tick(entry);
    entry.stop = every(clock, entry.job.everySeconds * SECOND, () => tick(entry));
  };

  return {
    add(name, job) {
      if (entries.has(name)) throw new Error(`There is a job '${name}' already.`);
      const entry: Entry = { name, job, isFailing: false };
      entries.set(name, entry);
      if (isStarted) tickAlways(entry);
    },

    start() {
      if (isStarted || isStopping) return;
      isStarted = true;
      for (const entry of entries.values()) tickAlways(entry);
    },

    runNow(name) {
      const entry = entries.get(name);
      if (!entry) throw new Error(`There is no job '${name}'.`);
      if (!entry.running) return begin(entry, true);
      entry.next ??= entry.running.then(() => {
        entry.next = undefined;
        return begin(entry, true);
      });
      return entry.next;
    },

    async stop() {
      isStopping = true;
      for (const end of held) end.abort();
      for (const entry of entries.values()) entry.stop?.();
      await Promise.all([...entries.values()].map(({ running, next }) => next ?? running));
    },
  };
}
