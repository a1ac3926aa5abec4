/** Decides how long writes wait for more writes, so that they share one transaction and its sync. */

/** Writes in one transaction: more would block the event loop (and other processes) for too long. */
export const MAX_BATCH = 512;

/** Event-loop turns. In an idle loop, sixteen turns take less time than the sync that they may save. */
const MAX_TURNS = 16;

/** Upper bound for event loops with long turns. */
const MAX_WAIT_MS = 5;

/**
 * Clients that receive their responses together send their next requests together, but these are read over several
 * event-loop turns. A transaction therefore waits while each turn adds writes, or while it contains less than half of
 * the previous batch. A single write never waits.
 */
export class CommitBatcher {
  readonly #now: () => number;
  /** Turns for which this transaction was postponed, and the time of the first postponement. */
  #turns = 0;
  #since = 0;
  /** Writes queued at the last postponement. */
  #before = 1;
  /** Writes in the previous transaction. */
  #last = 1;

  /** @param now a monotonic clock, in milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Called at the end of each turn with queued writes. Returns whether to commit them now. */
  shouldCommit(queued: number): boolean {
    if (this.#expectsMore(queued) && this.#mayWait()) {
      this.#turns++;
      this.#before = queued;
      return false;
    }
    this.#turns = 0;
    this.#before = 1;
    this.#last = Math.min(queued, MAX_BATCH);
    return true;
  }

  #expectsMore(queued: number): boolean {
    return queued < MAX_BATCH && (queued > this.#before || 2 * queued < this.#last);
  }

  #mayWait(): boolean {
    if (this.#turns === 0) this.#since = this.#now();
    return this.#turns < MAX_TURNS && this.#now() - this.#since < MAX_WAIT_MS;
  }
}
