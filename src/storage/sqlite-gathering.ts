/** How long writes wait for others, to share with them a transaction and the sync that ends it. */

/** Turns of the event loop. One that brings nothing takes microseconds; the sync it may save takes a hundred and more. */
const MAX_TURNS = 16;

/**
 * Clients that were answered together ask again together, but what they ask is read over several turns of the loop.
 * So a transaction waits while each turn brings more, and while it has not half of what the last one had. A write
 * that comes alone after another that did so waits for nobody.
 */
export class Gathering {
  #turns = 0;
  #before = 1;
  #last = 1;

  /** To be asked at the end of each turn in which writes are queued: whether to commit them now. */
  isOver(queued: number): boolean {
    const expectsMore = queued > this.#before || 2 * queued < this.#last;
    if (expectsMore && this.#turns < MAX_TURNS) {
      this.#turns++;
      this.#before = queued;
      return false;
    }
    this.#turns = 0;
    this.#before = 1;
    this.#last = queued;
    return true;
  }
}
