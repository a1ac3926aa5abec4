import { type Clock, every, MINUTE, systemClock } from '../../src/core/kernel/clock.js';

/**
 * A clock that advances only when a test moves it. Background jobs with an interval of a minute or longer run
 * only when a server starts, so that a test behaves the same on a slow and on a fast
 * machine.
 */
export interface FakeClock extends Clock {
  advance(milliseconds: number): void;
  set(milliseconds: number): void;
}

/** In the future, to detect uses of the real clock. */
const START = Date.UTC(2040, 0, 1);

export function fakeClock(start: number = START): FakeClock {
  let time = start;
  return {
    now: () => time,
    every: (period, run) => (period < MINUTE ? every(systemClock, period, run) : () => {}),
    advance(milliseconds) {
      time += milliseconds;
    },
    set(milliseconds) {
      time = milliseconds;
    },
  };
}
