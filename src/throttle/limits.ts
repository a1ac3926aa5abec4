import { DAY } from '../kernel/clock.js';

/** What a counter holds about the future. Times are epoch milliseconds. */
export interface LimitState {
  /** Everything is refused before; 0 for nothing. */
  until: number;
  /** The count begins anew after it. */
  expiresAt: number;
}

/** When a counter refuses, and what it remembers. */
export interface Limit {
  name: string;
  /** Longest that a count is remembered, in milliseconds. */
  memory: number;
  /** What follows from the `count`-th time; `expiresAt` is that of a count that goes on. */
  next(count: number, now: number, expiresAt?: number): LimitState;
  /** Milliseconds by which each time moves `expiresAt`; absent where it does not depend on the count. */
  step?: number;
}

/** At most `most` times in a window, which begins with the first. */
export function atMost(name: string, most: number, window: number): Limit {
  return {
    name,
    memory: window,
    next: (count, now, expiresAt = now + window) => ({ expiresAt, until: count >= most ? expiresAt : 0 }),
  };
}

/** `free` times at once, then each after a delay that doubles up to the longest; forgotten after a day without one. */
export function growingDelay(
  name: string,
  { free, first, longest }: { free: number; first: number; longest: number },
): Limit {
  return {
    name,
    memory: DAY,
    next: (count, now) => ({
      expiresAt: now + DAY,
      until: count < free ? 0 : now + Math.min(first * 2 ** (count - free), longest),
    }),
  };
}

/**
 * `burst` times at once and one more every `interval` milliseconds (a leaky bucket): in any period of length T at most
 * `burst + T / interval`, wherever the period begins.
 */
export function leakyBucket(name: string, { burst, interval }: { burst: number; interval: number }): Limit {
  return {
    name,
    memory: burst * interval,
    step: interval,
    next(_count, now, emptyAt = now) {
      const expiresAt = Math.max(emptyAt, now) + interval;
      const roomAt = expiresAt - (burst - 1) * interval;
      return { expiresAt, until: roomAt > now ? roomAt : 0 };
    },
  };
}
