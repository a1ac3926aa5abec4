import { type Clock, SECOND } from '../kernel/clock.js';
import type { Collection } from '../storage/collection.js';
import type { Sample } from './metrics.js';

/** What the documents of an outbox have in common: only those that are not finished have `dueAt`. */
interface OutboxDocument {
  id: string;
  createdAt: number;
  dueAt?: number;
}

/** Documents counted at a scrape. */
export const MAX_COUNTED = 10_000;

/** Documents whose age is compared at a scrape. */
export const MAX_COMPARED = 200;

const PENDING = { dueAt: { gte: 0 } };

/** The number of documents that are not finished, up to `MAX_COUNTED`. */
export async function pendingCount(
  outbox: Pick<Collection<OutboxDocument>, 'count'>,
): Promise<Sample<never>[]> {
  return [{ labels: {}, value: await outbox.count(PENDING, MAX_COUNTED) }];
}

/** The age in seconds of the oldest among the `MAX_COMPARED` that are due next; 0 if there is none. */
export async function oldestPendingAge(
  outbox: Pick<Collection<OutboxDocument>, 'page'>,
  clock: Clock,
): Promise<Sample<never>[]> {
  const { items } = await outbox.page({ where: PENDING, sort: 'dueAt', limit: MAX_COMPARED });
  const now = clock.now();
  const oldest = Math.min(...items.map(({ createdAt }) => createdAt), now);
  return [{ labels: {}, value: (now - oldest) / SECOND }];
}
