import { CLOCK_SKEW_MS } from '../kernel/clock.js';
import { idsUntil } from '../kernel/secrets.js';
import type { Collection } from '../storage/collection.js';

/** Documents with an expiry. */
export type Expiring = Pick<Collection<{ id: string; expiresAt: number }>, 'page' | 'deleteMany'>;

/** Keeps documents that are still valid for a process whose clock is slow. */
export const PURGE_MARGIN_MS = CLOCK_SKEW_MS;

/** Documents deleted in one step. */
const BATCH_SIZE = 200;

/** Documents deleted in one run, which bounds the CPU time that a backlog takes. */
const MAX_PER_RUN = 100_000;

/** Deletes documents that expired more than five minutes ago, in batches, until none is left or `signal` is aborted. */
export async function purgeExpired(
  documents: Expiring,
  { now, signal }: { now: number; signal: AbortSignal },
): Promise<number> {
  const expiresAt = { lte: now - PURGE_MARGIN_MS };
  let removed = 0;
  while (removed < MAX_PER_RUN && !signal.aborted) {
    const { items } = await documents.page({ where: { expiresAt }, sort: 'expiresAt', limit: BATCH_SIZE });
    if (items.length === 0) break;
    // The expiry is checked again, because a document may have been renewed since it was read.
    removed += await documents.deleteMany({ id: { in: items.map(({ id }) => id) }, expiresAt });
  }
  return removed;
}

/** Documents whose identifier was created by `newId` and contains the creation time. */
export type Timestamped = Pick<Collection<{ id: string }>, 'page' | 'deleteMany'>;

/**
 * Deletes documents created up to `time`, in batches, until none is left or `signal` is aborted. It needs no index,
 * because identifiers sort by creation time.
 */
export async function purgeCreatedBefore(
  documents: Timestamped,
  prefix: string,
  { time, signal }: { time: number; signal: AbortSignal },
): Promise<number> {
  const where = { id: { lt: idsUntil(prefix, time) } };
  let removed = 0;
  while (removed < MAX_PER_RUN && !signal.aborted) {
    const { items } = await documents.page({ where, sort: 'id', limit: BATCH_SIZE });
    if (items.length === 0) break;
    removed += await documents.deleteMany({ id: { in: items.map(({ id }) => id) } });
  }
  return removed;
}
