import { setTimeout as sleep } from 'node:timers/promises';
import { httpErrors } from '../kernel/errors.js';

/** Whether the client has hung up, so that its turn can be skipped. */
export type IsDisconnected = () => boolean;

/**
 * Milliseconds until whoever is turned away hears of it. Clients that come again at once, as a flood does, would
 * otherwise keep the event loop busy with nothing but refusals.
 */
const PAUSE = 250;

/** So many are kept waiting for their refusal; more hear of it at once, so that they take up no memory. */
const MOST_PAUSED = 1024;

/** Lets so many in at once, and so many wait for their turn. */
export class Semaphore {
  #running = 0;
  #paused = 0;
  readonly #waiting: (() => void)[] = [];
  readonly #width: number;
  readonly #queue: number;
  readonly #pause: (milliseconds: number) => Promise<unknown>;

  constructor(width: number, queue: number, pause: (milliseconds: number) => Promise<unknown> = sleep) {
    this.#width = width;
    this.#queue = queue;
    this.#pause = pause;
  }

  /** Nobody is inside. */
  get isIdle(): boolean {
    return this.#running === 0;
  }

  /** Whether a job waits for its turn. */
  get hasWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** For whoever would have work on the way to the gate. @throws OVERLOADED when too many wait */
  async ensureCapacity(): Promise<void> {
    if (this.#isFull) await this.#turnAway();
  }

  /** @throws OVERLOADED when too many wait, or the client is gone when its turn has come */
  async run<T>(work: () => Promise<T>, isDisconnected?: IsDisconnected): Promise<T> {
    if (this.#running < this.#width) this.#running++;
    else {
      if (this.#isFull) await this.#turnAway();
      // A finished job hands its place on, so the count stays as it is.
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    try {
      // Whoever hung up while waiting costs nothing.
      if (isDisconnected?.()) throw httpErrors.OVERLOADED();
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running--;
    }
  }

  get #isFull(): boolean {
    return this.#waiting.length >= this.#queue;
  }

  async #turnAway(): Promise<never> {
    if (this.#paused < MOST_PAUSED) {
      this.#paused++;
      await this.#pause(PAUSE);
      this.#paused--;
    }
    throw httpErrors.OVERLOADED();
  }
}

/** A gate for each key that is in use. */
export class KeyedSemaphore {
  readonly #gates = new Map<string, Semaphore>();
  readonly #width: number;
  readonly #queue: number;

  constructor(width: number, queue: number) {
    this.#width = width;
    this.#queue = queue;
  }

  /** Whether a job waits for its turn at this key. */
  hasWaiting(key: string): boolean {
    return this.#gates.get(key)?.hasWaiting === true;
  }

  /** @throws OVERLOADED when too many wait at this key */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const gate = this.#gates.get(key) ?? new Semaphore(this.#width, this.#queue);
    this.#gates.set(key, gate);
    try {
      return await gate.run(work);
    } finally {
      if (gate.isIdle) this.#gates.delete(key);
    }
  }
}
