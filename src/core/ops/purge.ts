import { performance } from 'node:perf_hooks';
import { setTimeout } from 'node:timers/promises';
import { CLOCK_SKEW_MS, type Clock, HOUR, SECOND } from '../kernel/clock.js';
import { idsUntil } from '../kernel/secrets.js';
import type { Collection, DeclaredField, Where } from '../storage/collection.js';
import type { Job, RunReport } from './jobs.js';

/** Documents with an expiry. */
export type Expiring = Pick<Collection<{ id: string; expiresAt: number }>, 'page' | 'deleteMany' | 'count'>;

/** Keeps documents that are still valid for a process whose clock is slow. */
export const PURGE_MARGIN_MS = CLOCK_SKEW_MS;

/** Documents read and deleted in one step. */
export const PURGE_BATCH_SIZE = 200;

/** Documents of one run, after which other processes may take over the job. */
const MAX_PER_RUN = 100_000;

/** Longest pause between two batches. */
const MAX_PAUSE_MS = 1000;

/** One step of a purge. */
export interface Batch {
  /** Number of documents deleted. */
  removed: number;
  /** Whether no further documents match. */
  isLast: boolean;
}

/**
 * Repeats `next` until it reports the last batch, the run has read 100,000 documents or `signal` is aborted. After each
 * batch it pauses for as long as the batch took, so that requests have at least half of the store's capacity.
 */
export async function purgeInBatches(signal: AbortSignal, next: () => Promise<Batch>): Promise<RunReport> {
  let removed = 0;
  for (let seen = 0; seen < MAX_PER_RUN && !signal.aborted; seen += PURGE_BATCH_SIZE) {
    const startedAt = performance.now();
    const batch = await next();
    removed += batch.removed;
    if (batch.isLast) return { removed, isComplete: true };
    const pauseMs = Math.min(MAX_PAUSE_MS, performance.now() - startedAt);
    // An abort ends the pause by a rejection, and the loop by its condition.
    await setTimeout(pauseMs, undefined, { signal }).catch(() => undefined);
  }
  return { removed, isComplete: false };
}

/**
 * Deletes the documents that match, in batches in the order of `sort`. The conditions are checked again when a document
 * is deleted, because it may have changed since it was read.
 */
export function purgeMatching<T extends { id: string }>(
  documents: Pick<Collection<T>, 'page' | 'deleteMany'>,
  { where, sort, signal }: { where: Where<T>; sort: DeclaredField<T>; signal: AbortSignal },
): Promise<RunReport> {
  return purgeInBatches(signal, async () => {
    const { items, next } = await documents.page({ where, sort, limit: PURGE_BATCH_SIZE });
    if (items.length === 0) return { removed: 0, isLast: true };
    const removed = await documents.deleteMany({ ...where, id: { in: items.map(({ id }) => id) } });
    return { removed, isLast: next === null };
  });
}

/** Deletes documents that expired more than five minutes ago. */
export function purgeExpired(
  documents: Expiring,
  { now, signal }: { now: number; signal: AbortSignal },
): Promise<RunReport> {
  return purgeMatching(documents, { where: expiredAt(now), sort: 'expiresAt', signal });
}

/** Counts the documents that `purgeExpired` would delete, up to `limit`. */
export const countExpired = (documents: Pick<Expiring, 'count'>, now: number, limit: number) =>
  documents.count(expiredAt(now), limit);

const expiredAt = (now: number) => ({ expiresAt: { lte: now - PURGE_MARGIN_MS } });

/** The job that deletes expired documents every hour. */
export const createExpiryPurge = (documents: Expiring, clock: Clock): Job =>
  createPurge(documents, { where: () => expiredAt(clock.now()), sort: 'expiresAt' });

/** The job that deletes the documents that match at the time of its run. */
export const createPurge = <T extends { id: string }>(
  documents: Pick<Collection<T>, 'page' | 'deleteMany' | 'count'>,
  {
    where,
    sort,
    everySeconds = HOUR / SECOND,
  }: { where: () => Where<T>; sort: DeclaredField<T>; everySeconds?: number },
) =>
  ({
    everySeconds,
    run: ({ signal }) => purgeMatching(documents, { where: where(), sort, signal }),
    countBacklog: (limit) => documents.count(where(), limit),
  }) satisfies Job;

/**
 * Deletes documents created up to `time`. It needs no index, because identifiers that `newId` has created sort by their time.
 */
export function purgeCreatedBefore(
  documents: Pick<Collection<{ id: string }>, 'page' | 'deleteMany'>,
  prefix: string,
  { time, signal }: { time: number; signal: AbortSignal },
): Promise<RunReport> {
  return purgeMatching(documents, { where: { id: { lt: idsUntil(prefix, time) } }, sort: 'id', signal });
}

/** Counts several kinds of documents and adds up the results. */
export async function countEach(counts: readonly Promise<number>[]): Promise<number> {
  return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
}

/** Runs purges one after another and adds up their reports. */
export async function purgeEach(purges: readonly (() => Promise<RunReport>)[]): Promise<RunReport> {
  const total = { removed: 0, isComplete: true };
  for (const purge of purges) {
    const { removed, isComplete } = await purge();
    total.removed += removed;
    total.isComplete &&= isComplete;
  }
  return total;
}
