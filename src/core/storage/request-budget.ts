/**
 * Limits how long the calls of one request wait for the database in all: a request of several calls would otherwise wait
 * several times as long as its client. Engines whose calls may wait apply it (`Store.requestTimeoutMs`).
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { EventEmitter } from 'node:events';
import { performance } from 'node:perf_hooks';

const budgets = new AsyncLocalStorage<RequestBudget>();

/** The time that one request has left for waiting. Calls that run at the same time count once. */
export class RequestBudget {
  #leftMs: number;
  #waiting = 0;
  #waitingSince = 0;
  #hasEnded = false;
  readonly #now: () => number;
  readonly #socket: Pick<EventEmitter, 'once' | 'off'> | undefined;

  /**
   * @param now a monotonic clock, in milliseconds
   * @param socket the connection of the client
   */
  constructor(
    timeoutMs: number,
    now: () => number = () => performance.now(),
    socket?: Pick<EventEmitter, 'once' | 'off'>,
  ) {
    this.#leftMs = timeoutMs;
    this.#now = now;
    this.#socket = socket;
  }

  /** Runs `work`, whose calls and those of everything that it starts count. */
  run<R>(work: () => R): R {
    return budgets.run(this, work);
  }

  /** Called after the response: what the request has started and left running is limited per call. */
  end(): void {
    this.#hasEnded = true;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  leftMs(): number {
    return this.#leftMs - (this.#waiting > 0 ? this.#now() - this.#waitingSince : 0);
  }

  /** Called when the last of the time has passed: a timer may fire some milliseconds early by the clock. */
  spend(): void {
    this.#leftMs = 0;
  }

  /** Counts the time from now until the returned function is called for the first time. */
  beginWait(): () => void {
    if (this.#waiting++ === 0) this.#waitingSince = this.#now();
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      if (--this.#waiting === 0) this.#leftMs -= this.#now() - this.#waitingSince;
    };
  }

  /**
   * Counts the time for which a request waits for others, which may wait for the store, until the returned function is called.
   * @param giveUp called if the time has passed or the client has disconnected before
   */
  beginTurn(giveUp: () => void): () => void {
    const endWait = this.beginWait();
    const end = () => {
      clearTimeout(timer);
      this.#socket?.off('close', stop);
      endWait();
    };
    const stop = () => {
      end();
      giveUp();
    };
    const timer = setTimeout(() => {
      stop();
      this.spend();
    }, this.leftMs());
    this.#socket?.once('close', stop);
    return end;
  }
}

/** The budget of the request that runs this code; `undefined` outside of requests. */
export function currentBudget(): RequestBudget | undefined {
  const budget = budgets.getStore();
  return budget?.hasEnded ? undefined : budget;
}

/** Runs work that serves more than the current request. */
export function withoutBudget<R>(work: () => R): R {
  return budgets.exit(work);
}
