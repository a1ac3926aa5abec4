import { DAY } from '../../core/kernel/clock.js';
import type { Page } from '../../core/storage/collection.js';

/** Agents and applications that nobody uses, and agents that end: the overview counts them, and lists show them. */

const UNUSED_MS = 90 * DAY;
const SOON_MS = 14 * DAY;

/** How many are read at a time, and how many of those that a search finds the filters are applied to. */
export const MAX_READ = 1000;

interface Used {
  createdAt: number;
  lastUsedAt?: number;
  expiresAt?: number;
}

const USES = {
  unused: ({ lastUsedAt, createdAt }: Used, now: number): boolean =>
    (lastUsedAt ?? createdAt) < now - UNUSED_MS,
  ending: ({ expiresAt = 0 }: Used, now: number): boolean => expiresAt > now && expiresAt < now + SOON_MS,
};

export const UNUSED = [{ value: 'unused', label: 'Not used for 90 days' }];
export const USE_OPTIONS = [...UNUSED, { value: 'ending', label: 'Ends within 14 days' }];

/** Whether a chosen use applies to an item; every item if none is chosen. */
export function matcherOf(use: string | undefined, now: number): (item: Used) => boolean {
  const applies = USES[use as keyof typeof USES];
  return (item) => !applies || applies(item, now);
}

/** A page of a list, which a chosen use narrows. */
export async function pageByUse<T extends Used>(
  read: (limit: number) => Promise<Page<T>>,
  { use, limit, now }: { use: string | undefined; limit: number; now: number },
): Promise<Page<T>> {
  const { items, next } = await read(use ? MAX_READ : limit);
  return { items: items.filter(matcherOf(use, now)), next };
}
