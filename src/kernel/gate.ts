import { httpErrors } from './errors.js';

/** Whether the client has hung up, so that its turn can be skipped. */
export type IsGone = () => boolean;

/** Lets so many in at once, and so many wait for their turn. */
export class Gate {
  #running = 0;
  readonly #waiting: (() => void)[] = [];
  readonly #width: number;
  readonly #queue: number;

  constructor(width: number, queue: number) {
    this.#width = width;
    this.#queue = queue;
  }

  /** Nobody is inside. */
  get isIdle(): boolean {
    return this.#running === 0;
  }

  /** For whoever would have work on the way to the gate. @throws OVERLOADED when too many wait */
  ensureRoom(): void {
    if (this.#waiting.length >= this.#queue) throw httpErrors.OVERLOADED();
  }

  /** @throws OVERLOADED when too many wait, or the client is gone when its turn has come */
  async run<T>(work: () => Promise<T>, isGone?: IsGone): Promise<T> {
    if (this.#running < this.#width) this.#running++;
    else {
      this.ensureRoom();
      // A finished job hands its place on, so the count stays as it is.
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    try {
      // Whoever hung up while waiting costs nothing.
      if (isGone?.()) throw httpErrors.OVERLOADED();
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running--;
    }
  }
}

/** A gate for each key that is in use. */
export class Gates {
  readonly #gates = new Map<string, Gate>();
  readonly #width: number;
  readonly #queue: number;

  constructor(width: number, queue: number) {
    this.#width = width;
    this.#queue = queue;
  }

  /** @throws OVERLOADED when too many wait at this key */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const gate = this.#gates.get(key) ?? new Gate(this.#width, this.#queue);
    this.#gates.set(key, gate);
    try {
      return await gate.run(work);
    } finally {
      if (gate.isIdle) this.#gates.delete(key);
    }
  }
}
