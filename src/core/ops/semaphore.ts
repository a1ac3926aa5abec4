import { setTimeout as sleep } from 'node:timers/promises';
import { httpErrors } from '../kernel/errors.js';
import { currentBudget, type RequestBudget } from '../storage/request-budget.js';

/** Whether the client has disconnected, so that its request can be skipped. */
export type IsDisconnected = () => boolean;

/** Clients that retry immediately would otherwise keep the event loop busy with rejections (docs/decisions/core/throttle.md). */
const REJECTION_DELAY_MS = 250;

/** Delayed rejections at a time; further ones are immediate, which bounds memory. */
const MAX_DELAYED = 1024;

/** Limits concurrency, with a bounded queue. */
export class Semaphore {
  #running = 0;
  #delayed = 0;
  /** Start the tasks that wait, in this order. */
  readonly #waiting = new Set<() => void>();
  readonly #concurrency: number;
  readonly #maxQueue: number;
  readonly #wait: (milliseconds: number) => Promise<unknown>;

  constructor(
    concurrency: number,
    maxQueue: number,
    wait: (milliseconds: number) => Promise<unknown> = sleep,
  ) {
    this.#concurrency = concurrency;
    this.#maxQueue = maxQueue;
    this.#wait = wait;
  }

  /** Number of running and of waiting tasks. */
  get load(): { running: number; waiting: number } {
    return { running: this.#running, waiting: this.#waiting.size };
  }

  get isIdle(): boolean {
    return this.#running === 0;
  }

  /** Rejects early, before a caller does work whose result would wait in the queue. @throws OVERLOADED if the queue is full */
  async ensureCapacity(): Promise<void> {
    if (this.#isFull) await this.#reject();
  }

  /**
   * @param budget limits the time in the queue, and ends it when the client disconnects
   * @throws OVERLOADED if the queue is full, the time has passed, or the client disconnects while it waits
   */
  async run<T>(work: () => Promise<T>, isDisconnected?: IsDisconnected, budget?: RequestBudget): Promise<T> {
    if (this.#running < this.#concurrency) this.#running++;
    else {
      if (this.#isFull) await this.#reject();
      await this.#turn(budget);
    }
    try {
      if (isDisconnected?.()) throw httpErrors.OVERLOADED();
      return await work();
    } finally {
      const [next] = this.#waiting;
      if (next) next();
      else this.#running--;
    }
  }

  /** A finished task passes its slot on, so the number of running tasks does not change. */
  #turn(budget: RequestBudget | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const start = () => {
        this.#waiting.delete(start);
        end?.();
        resolve();
      };
      const end = budget?.beginTurn(() => {
        this.#waiting.delete(start);
        reject(httpErrors.OVERLOADED());
      });
      this.#waiting.add(start);
    });
  }

  get #isFull(): boolean {
    return this.#waiting.size >= this.#maxQueue;
  }

  async #reject(): Promise<never> {
    if (this.#delayed < MAX_DELAYED) {
      this.#delayed++;
      await this.#wait(REJECTION_DELAY_MS);
      this.#delayed--;
    }
    throw httpErrors.OVERLOADED();
  }
}

/** A semaphore for each key in use. Its tasks call the store, so waiting for them counts as waiting for it. */
export class KeyedSemaphore {
  readonly #semaphores = new Map<string, Semaphore>();
  readonly #concurrency: number;
  readonly #maxQueue: number;

  constructor(concurrency: number, maxQueue: number) {
    this.#concurrency = concurrency;
    this.#maxQueue = maxQueue;
  }

  /** @throws OVERLOADED if the queue of this key is full, or if the request has waited for its limit */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const semaphore = this.#semaphores.get(key) ?? new Semaphore(this.#concurrency, this.#maxQueue);
    this.#semaphores.set(key, semaphore);
    try {
      return await semaphore.run(work, undefined, currentBudget());
    } finally {
      if (semaphore.isIdle) this.#semaphores.delete(key);
    }
  }
}

/** Runs of work that has the same result for all callers who ask while it runs. */
export class Coalescing {
  readonly #running = new Map<string, Promise<unknown>>();

  has(key: string): boolean {
    return this.#running.has(key);
  }

  /** @param key all that the result depends on */
  run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const running = this.#running.get(key) as Promise<T> | undefined;
    if (running) return running;
    const started = work().finally(() => this.#running.delete(key));
    this.#running.set(key, started);
    return started;
  }
}
