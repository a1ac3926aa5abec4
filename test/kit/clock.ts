import { type Clock, every, MINUTE, systemClock } from '../../src/kernel/clock.js';

/**
 * A clock that stands still until a test moves it. Background work that is done once a minute, or more rarely, is done
 * only when a server starts, so that a test that lasts a minute on a busy machine meets the same as one that lasts a
 * second.
 */
export interface FakeClock extends Clock {
  advance(milliseconds: number): void;
  set(milliseconds: number): void;
}

/** In the future, so that nothing that secretly reads the real time goes unnoticed. */
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
