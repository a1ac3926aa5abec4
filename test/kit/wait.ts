import { setImmediate, setTimeout } from 'node:timers/promises';

/** Milliseconds between two tries. */
const POLL_INTERVAL_MS = 10;

/** Tries before a wait fails, after at least a minute. */
const TRIES = 6000;

/** Turns of the event loop before a wait fails: at least a minute if each of them reads a database. */
const TURNS = 1_000_000;

/**
 * Waits for a condition that a test can only observe by polling, such as the state of another process. `everyTurn`
 * polls in every turn of the event loop, for states that may last only milliseconds.
 */
export async function waitUntil(
  what: string,
  condition: () => boolean | Promise<boolean>,
  { everyTurn = false } = {},
): Promise<void> {
  const tries = everyTurn ? TURNS : TRIES;
  for (let count = 0; count < tries; count++) {
    if (await condition()) return;
    await (everyTurn ? setImmediate() : setTimeout(POLL_INTERVAL_MS));
  }
  throw new Error(`${what}: not after ${tries} tries`);
}

/** A promise that another part of a test resolves, such as a handler that waits as long as the test needs. */
export function gate(): { open: () => void; opened: Promise<void> } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, opened };
}
