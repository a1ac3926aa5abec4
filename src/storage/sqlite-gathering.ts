/** How long writes wait for others, to share with them a transaction and the sync that ends it. */

/** Writes in one transaction: more would hold up the loop (and other processes) for too long. */
export const MAX_BATCH = 512;

/** Turns of the event loop. In a loop at rest sixteen take less than the sync that they may save. */
const MAX_TURNS = 16;

/** Milliseconds, for a loop whose turns are long. */
const MAX_WAIT = 5;

/**
 * Clients that were answered together ask again together, but what they ask is read over several turns of the loop.
 * So a transaction waits while each turn brings more, and while it has not half of what the last one had. Where
 * writes come one at a time, none waits.
 */
export class Gathering {
  readonly #now: () => number;
  /** Ends of turns at which this transaction was put off, and the time of the first. */
  #turns = 0;
  #since = 0;
  /** Writes queued when it was last put off. */
  #before = 1;
  /** Writes of the last transaction. */
  #last = 1;

  /** @param now milliseconds that only go forward */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** To be asked at the end of each turn in which writes are queued: whether to commit them now. */
  isOver(queued: number): boolean {
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
    return this.#turns < MAX_TURNS && this.#now() - this.#since < MAX_WAIT;
  }
}
