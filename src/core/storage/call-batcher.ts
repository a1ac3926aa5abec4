/** Decides how long calls wait for more calls, so that they share one transaction, with its sync, or one command. */

/** Event-loop turns. In an idle loop, sixteen turns take less time than the sync or the command that they may save. */
const MAX_TURNS = 16;

/** Upper bound for event loops with long turns. */
const MAX_WAIT_MS = 5;

/**
 * Clients that receive their responses together send their next requests together, but these are read over several
 * event-loop turns. A batch therefore waits while each turn adds calls, or while it contains less than half of the
 * previous batch. A single call never waits.
 */
export class CallBatcher {
  readonly #now: () => number;
  readonly #maxCalls: number;
  /** Turns for which this batch was postponed, and the time of the first postponement. */
  #turns = 0;
  #since = 0;
  /** Calls queued at the last postponement. */
  #before = 1;
  /** Calls in the previous batch. */
  #last = 1;

  /**
   * @param now a monotonic clock, in milliseconds
   * @param maxCalls a batch of that many does not wait
   */
  constructor(now: () => number, maxCalls: number) {
    this.#now = now;
    this.#maxCalls = maxCalls;
  }

  /** Called at the end of each turn with queued calls. Returns whether to send them now. */
  shouldSend(queued: number): boolean {
    if (this.#expectsMore(queued) && this.#mayWait()) {
      this.#turns++;
      this.#before = queued;
      return false;
    }
    this.#turns = 0;
    this.#before = 1;
    this.#last = Math.min(queued, this.#maxCalls);
    return true;
  }

  #expectsMore(queued: number): boolean {
    return queued < this.#maxCalls && (queued > this.#before || 2 * queued < this.#last);
  }

  #mayWait(): boolean {
    if (this.#turns === 0) this.#since = this.#now();
    return this.#turns < MAX_TURNS && this.#now() - this.#since < MAX_WAIT_MS;
  }
}
