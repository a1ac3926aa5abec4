/**
 * `node --import shift-clock.js`: shifts the system clock of a program by the milliseconds in the file TORTURE_CLOCK, as if
 * the clock of its machine were set. Timers continue, because they use the monotonic clock.
 */
import { readFileSync } from 'node:fs';

/** How often the file is read. */
const INTERVAL_MS = 20;

const file = process.env['TORTURE_CLOCK'];
const System = Date;
const systemNow = Date.now;
let shift = 0;
let readAt = Number.NEGATIVE_INFINITY;

function now(): number {
  const elapsed = performance.now();
  if (file !== undefined && elapsed - readAt >= INTERVAL_MS) {
    readAt = elapsed;
    try {
      shift = Number(readFileSync(file, 'utf8')) || 0;
    } catch {
      shift = 0;
    }
  }
  return systemNow() + shift;
}

System.now = now;
globalThis.Date = new Proxy(System, {
  construct: (target, parameters, newTarget) =>
    Reflect.construct(target, parameters.length === 0 ? [now()] : parameters, newTarget) as Date,
});
