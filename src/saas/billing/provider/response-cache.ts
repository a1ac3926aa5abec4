import { type Clock, MINUTE, SECOND } from '../../../core/kernel/clock.js';

/** Responses of the provider by key, each fetched once for all requests of a minute. */
export type ResponseCache<T> = (key: string, fetch: () => Promise<T>) => Promise<T>;

const CACHE_MS = MINUTE;

/** Failures are cached as well, because otherwise every request would wait for a call that times out. */
const FAILURE_CACHE_MS = 10 * SECOND;

/** Bounds the memory of a process. */
const MAX_ENTRIES = 1000;

export function createResponseCache<T>(clock: Clock): ResponseCache<T> {
  const entries = new Map<string, { response: Promise<T>; at: number; lifetimeMs: number }>();

  return (key, fetch) => {
    const found = entries.get(key);
    if (found && Math.abs(clock.now() - found.at) < found.lifetimeMs) return found.response;
    const entry = { response: fetch(), at: clock.now(), lifetimeMs: CACHE_MS };
    entries.delete(key);
    entries.set(key, entry);
    const [oldest] = entries.keys();
    if (entries.size > MAX_ENTRIES && oldest !== undefined) entries.delete(oldest);
    entry.response.catch(() => Object.assign(entry, { at: clock.now(), lifetimeMs: FAILURE_CACHE_MS }));
    return entry.response;
  };
}
