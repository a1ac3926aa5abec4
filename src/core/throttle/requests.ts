import { addressBlock } from '../kernel/addresses.js';
import type { Clock } from '../kernel/clock.js';
import { type AppError, httpErrors } from '../kernel/errors.js';

/** Limits the requests of an address block, in memory: a write per request would cost more than most requests. */
export interface RequestLimit {
  most: number;
  /** Milliseconds. */
  window: number;
  /** Maximum number of address blocks in memory. */
  blocks: number;
}

/**
 * Returns a function that counts a request and returns an error if it exceeds the limit.
 *
 * @param keyOf what is counted together: by default the address block of an address
 */
export function createRequestCount(
  { most, window, blocks }: RequestLimit,
  clock: Clock,
  keyOf: (ip: string) => string = addressBlock,
): (ip: string) => AppError | undefined {
  const counts = new Map<string, number>();
  let endsAt = 0;

  /** Evicts the blocks with the fewest requests first, so that a flood of addresses cannot hide the busiest ones. */
  const makeRoom = (): void => {
    for (let least = 1; counts.size > blocks / 2 && least < most; least++) {
      for (const [block, count] of counts) if (count <= least) counts.delete(block);
    }
  };

  return (ip) => {
    const now = clock.now();
    if (now >= endsAt || now < endsAt - window) {
      counts.clear();
      endsAt = now + window;
    }
    const block = keyOf(ip);
    const count = (counts.get(block) ?? 0) + 1;
    if (count > most) {
      const seconds = Math.ceil((endsAt - now) / 1000);
      return httpErrors.RATE_LIMITED({ headers: { 'retry-after': String(seconds) } });
    }
    if (count === 1 && counts.size >= blocks) makeRoom();
    // If all blocks in memory are over the limit, requests of further blocks are not counted until the window ends.
    if (count > 1 || counts.size < blocks) counts.set(block, count);
    return undefined;
  };
}
