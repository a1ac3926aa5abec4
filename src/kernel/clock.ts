/** The only source of the current time. Tests pass a clock that they move by hand. */
export interface Clock {
  /** Milliseconds since 1970-01-01T00:00:00Z. */
  now(): number;
}

/** Whole seconds, as tokens and signatures count them. */
export const toSeconds = (milliseconds: number): number => Math.floor(milliseconds / 1000);

export const systemClock: Clock = { now: () => Date.now() };
