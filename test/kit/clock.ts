import type { Clock } from '../../src/kernel/clock.js';

/** A clock that stands still until a test moves it. */
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
    advance(milliseconds) {
      time += milliseconds;
    },
    set(milliseconds) {
      time = milliseconds;
    },
  };
}
