import { addressBlock } from '../kernel/addresses.js';
import type { Clock } from '../kernel/clock.js';
import { type AppError, httpErrors } from '../kernel/errors.js';

/**
 * How many requests of any kind an address block may make. Kept in the memory of the process: it bounds volume and
 * guards no account, and a write for every request would cost more than most requests.
 */
export interface RequestLimit {
  most: number;
  /** Milliseconds. */
  window: number;
  /** Address blocks that are remembered. */
  blocks: number;
}

/** Counts a request, and answers with its refusal when there were too many. */
export function createRequestCount(
  { most, window, blocks }: RequestLimit,
  clock: Clock,
): (ip: string) => AppError | undefined {
  const counts = new Map<string, number>();
  let endsAt = 0;

  /** Whoever asked least is forgotten first: a flood of addresses never hides those that asked too much. */
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
    const block = addressBlock(ip);
    const count = (counts.get(block) ?? 0) + 1;
    if (count > most) {
      const seconds = Math.ceil((endsAt - now) / 1000);
      return httpErrors.RATE_LIMITED({ headers: { 'retry-after': String(seconds) } });
    }
    if (count === 1 && counts.size >= blocks) makeRoom();
    // Full of blocks that are refused already: newcomers go uncounted until the window ends.
    if (count > 1 || counts.size < blocks) counts.set(block, count);
    return undefined;
  };
}
