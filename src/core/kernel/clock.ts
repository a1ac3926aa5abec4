/** The only source of the current time and of periodic timers. Tests pass a clock that they advance themselves. */
export interface Clock {
  /** Milliseconds since 1970-01-01T00:00:00Z. */
  now(): number;
  /**
   * Calls `run` every `period` milliseconds until the returned function is called. It does not keep the process alive.
   * Default: the timers of Node.js.
   */
  every?(period: number, run: () => void): () => void;
}

/** Durations in milliseconds. */
export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** Whole seconds, as in the time claims of tokens. */
export const toSeconds = (milliseconds: number): number => Math.floor(milliseconds / 1000);

/** Maximum difference between the clocks of processes that share a store. */
export const CLOCK_SKEW_MS = 5 * MINUTE;

/**
 * How far in the future a start time may be and still count as valid or recent. Shorter than the skew, because it
 * extends the validity of secrets.
 */
export const FUTURE_TOLERANCE_MS = MINUTE;

/**
 * Whether a time has passed that was at most `within` milliseconds ahead when it was set. A later time was written by
 * a clock that was wrong, and is treated as passed.
 */
export function isDue(time: number, { now, within }: { now: number; within: number }): boolean {
  return time <= now || time > now + within + CLOCK_SKEW_MS;
}

/**
 * Whether something with a lifetime of at most `life` milliseconds has not expired. A clock that was set back does not
 * extend the lifetime.
 */
export function isUnexpired(expiresAt: number, { now, life }: { now: number; life: number }): boolean {
  return expiresAt > now && expiresAt <= now + life + FUTURE_TOLERANCE_MS;
}

/** Whether something happened at most `within` milliseconds ago. A time in the future is not recent. */
export function isRecent(time: number, { now, within }: { now: number; within: number }): boolean {
  return now - time <= within && time - now <= FUTURE_TOLERANCE_MS;
}

export function every(clock: Clock, period: number, run: () => void): () => void {
  if (clock.every) return clock.every(period, run);
  const timer = setInterval(run, period).unref();
  return () => clearInterval(timer);
}

/** The time of the system. */
export const systemClock: Clock = { now: () => Date.now() };

/** The last `count` days as ISO 8601 dates in UTC, oldest first; today is the last one. */
export function lastDays(clock: Clock, count: number): string[] {
  const today = Math.floor(clock.now() / DAY);
  return Array.from({ length: count }, (_, index) =>
    new Date((today - count + 1 + index) * DAY).toISOString().slice(0, 10),
  );
}

/** Whether a text is a month (`2026-11`) and not a day. */
export const isMonth = (span: string): boolean => span.length === '2026-11'.length;

/** The times of a day or a month (`2026-11-30` or `2026-11`, UTC), as a condition. */
export function timesOf(span: string): { gte: number; lt: number } {
  const start = Date.parse(span);
  const date = new Date(start);
  return { gte: start, lt: isMonth(span) ? date.setUTCMonth(date.getUTCMonth() + 1) : start + DAY };
}
