/** The only source of the current time. Tests pass a clock that they move by hand. */
export interface Clock {
  /** Milliseconds since 1970-01-01T00:00:00Z. */
  now(): number;
}

/** Spans of time in milliseconds. */
export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** Whole seconds, as tokens and signatures count them. */
export const toSeconds = (milliseconds: number): number => Math.floor(milliseconds / 1000);

export const systemClock: Clock = { now: () => Date.now() };
