import { CLOCK_SKEW_MS, type Clock, HOUR, MINUTE, SECOND } from '../kernel/clock.js';
import type { Change, Collection, Where } from '../storage/collection.js';

/**
 * Sends what is stored in an outbox. An attempt increments `attempts` in one conditional update, and stores its result only if that number
 * is unchanged: of any number of processes, one makes it.
 */
export interface Outgoing {
  id: string;
  attempts: number;
  /** When to attempt it next, or to take it over from a process that has ended. Absent once it is finished. */
  dueAt?: number;
}

/** Time after which another process may take over an item; longer than any attempt. */
const LEASE_MS = MINUTE;

/** Begins an attempt, and returns the item as it is then; null if another process has begun it. */
export const lease = <T extends Outgoing>(
  items: Pick<Collection<T>, 'updateOne'>,
  { id, attempts, dueAt = 0 }: T,
  now: number,
  set: Partial<T> = {},
): Promise<T | null> =>
  items.updateOne(
    { id, attempts, dueAt } as Where<T>,
    { set: { ...set, dueAt: now + LEASE_MS }, inc: { attempts: 1 } } as Change<T>,
  );

/** Attempts with `backoffMs` between them, within nine hours. */
export const MAX_ATTEMPTS = 8;

/** An upper bound of `backoffMs`, with a jitter of 25 %. */
const MAX_BACKOFF_MS = 8 * HOUR;

/** 30 seconds, tripled after each attempt. */
export const backoffMs = (attempts: number): number => 30 * SECOND * 3 ** (attempts - 1);

/** Items read from the store at once. */
const BATCH_SIZE = 50;

/** Groups sent in parallel. */
const CONCURRENCY = 5;

/** Sends all items that are due, those of a group one after the other. Rejects with the first error after all have settled. */
export async function sendDue<T extends Outgoing>(
  items: Pick<Collection<T>, 'page'>,
  { groupOf, clock, signal }: { groupOf(item: T): string; clock: Clock; signal: AbortSignal },
  send: (group: readonly T[]) => Promise<void>,
): Promise<void> {
  const outbox = items as unknown as Pick<Collection<Outgoing>, 'page'>;
  const now = clock.now();
  // Due implausibly late: scheduled by a clock that has been set back since.
  for (const dueAt of [{ lte: now }, { gt: now + MAX_BACKOFF_MS + CLOCK_SKEW_MS }]) {
    for (let isMore = true; isMore && !signal.aborted; ) {
      const page = await outbox.page({ where: { dueAt }, sort: 'dueAt', limit: BATCH_SIZE });
      const due = page.items as T[];
      const queue = inGroups(due, groupOf);
      const worker = async () => {
        for (const group of queue) if (!signal.aborted) await send(group);
      };
      const results = await Promise.allSettled(Array.from({ length: CONCURRENCY }, worker));
      const failed = results.find((result) => result.status === 'rejected');
      if (failed) throw failed.reason;
      isMore = due.length === BATCH_SIZE;
    }
  }
}

/** In their order. */
function inGroups<T>(items: readonly T[], groupOf: (item: T) => string): IterableIterator<T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) groups.set(groupOf(item), [...(groups.get(groupOf(item)) ?? []), item]);
  return groups.values();
}
