import { CLOCK_SKEW_MS } from '../kernel/clock.js';
import { idsUntil } from '../kernel/secrets.js';
import type { Collection } from '../storage/collection.js';

/** Documents that end at a time of their own. */
export type Expiring = Pick<Collection<{ id: string; expiresAt: number }>, 'page' | 'deleteMany'>;

/** Clocks of processes differ: nothing goes that another one may still take for alive. */
export const PURGE_MARGIN_MS = CLOCK_SKEW_MS;

/** Documents that are removed in one step. */
const BATCH = 200;

/** Documents that are removed in one round, so that a backlog does not take the processor for long. */
const ROUND = 100_000;

/** Removes what has been over for five minutes, in small steps, until nothing is left or `signal` ends it. */
export async function purgeExpired(
  documents: Expiring,
  { now, signal }: { now: number; signal: AbortSignal },
): Promise<number> {
  const expiresAt = { lte: now - PURGE_MARGIN_MS };
  let removed = 0;
  while (removed < ROUND && !signal.aborted) {
    const { items } = await documents.page({ where: { expiresAt }, sort: 'expiresAt', limit: BATCH });
    if (items.length === 0) break;
    // Asked again, because what was prolonged since it was read lives on.
    removed += await documents.deleteMany({ id: { in: items.map(({ id }) => id) }, expiresAt });
  }
  return removed;
}

/** Documents whose identifier, made by `newId`, tells when they were created. */
export type Timestamped = Pick<Collection<{ id: string }>, 'page' | 'deleteMany'>;

/**
 * Removes documents created until `time`, in small steps, until none is left or `signal` ends it. It needs no index of
 * its own, because identifiers sort by creation.
 */
export async function purgeCreatedBefore(
  documents: Timestamped,
  prefix: string,
  { time, signal }: { time: number; signal: AbortSignal },
): Promise<number> {
  const where = { id: { lt: idsUntil(prefix, time) } };
  let removed = 0;
  while (removed < ROUND && !signal.aborted) {
    const { items } = await documents.page({ where, sort: 'id', limit: BATCH });
    if (items.length === 0) break;
    removed += await documents.deleteMany({ id: { in: items.map(({ id }) => id) } });
  }
  return removed;
}
