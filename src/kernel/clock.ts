/** The only source of the current time, and of what is done periodically. Tests pass a clock that they move by hand. */
export interface Clock {
  /** Milliseconds since 1970-01-01T00:00:00Z. */
  now(): number;
  /**
   * Calls `run` each time a period in milliseconds has passed, until the function that is returned is called. It does not keep the process
   * alive. Default: the timers of Node.js.
   */
  every?(period: number, run: () => void): () => void;
}

/** Spans of time in milliseconds. */
export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** Whole seconds, as tokens and signatures count them. */
export const toSeconds = (milliseconds: number): number => Math.floor(milliseconds / 1000);

/** How far apart the clocks of processes on one store may be. */
export const SKEW = 5 * MINUTE;

/**
 * Whether a time has come that was at most `within` milliseconds away when it was set. One that is further away was
 * set by a clock that ran ahead and has been put back since; nobody waits until it gets there again.
 */
export function hasCome(time: number, { now, within }: { now: number; within: number }): boolean {
  return time <= now || time > now + within + SKEW;
}

/**
 * Whether something still holds that was to hold for at most `life` milliseconds: also after a clock was put back, it
 * holds no longer than that.
 */
export function stillHolds(expiresAt: number, { now, life }: { now: number; life: number }): boolean {
  return expiresAt > now && expiresAt <= now + life + MINUTE;
}

/** Whether something happened at most `within` milliseconds ago. What happens in the future only, happened long ago. */
export function isRecent(time: number, { now, within }: { now: number; within: number }): boolean {
  return now - time <= within && time - now <= MINUTE;
}

export function every(clock: Clock, period: number, run: () => void): () => void {
  if (clock.every) return clock.every(period, run);
  const timer = setInterval(run, period).unref();
  return () => clearInterval(timer);
}

export const systemClock: Clock = { now: () => Date.now() };
