/**
 * Whether the operations on one register are linearizable (Herlihy and Wing): each takes effect at one moment between its
 * request and its response. The search is that of Wing and Gong with the memory of visited states of Lowe. A write with an
 * unknown outcome takes effect at any time after its request, or never.
 */
import type { Operation } from './history.js';

interface Entry {
  operation: Operation;
  isWrite: boolean;
  value: string | undefined;
  start: number;
  end: number;
  isOptional: boolean;
}

/** The operations to report around the one without a place. */
const REPORTED = 12;

/**
 * A register has no value before its first write.
 * @returns null, or the operations around the first one that has no place in any order
 */
export function linearize(operations: readonly Operation[]): Operation[] | null {
  const entries = entriesOf(operations);
  const search = new Search(entries);
  return search.run() ? null : around(entries, search.furthest);
}

function entriesOf(operations: readonly Operation[]): Entry[] {
  const read = new Set(
    operations.filter(({ kind, outcome }) => kind === 'read' && outcome === 'ok').map(({ value }) => value),
  );
  return operations
    .filter(({ kind, outcome, value }) => {
      if (outcome === 'ok') return true;
      // A write that no client has seen need not have taken effect.
      return kind === 'write' && outcome === 'unknown' && read.has(value);
    })
    .map((operation) => ({
      operation,
      isWrite: operation.kind === 'write',
      value: operation.value,
      start: operation.start,
      end: operation.outcome === 'unknown' ? Number.POSITIVE_INFINITY : operation.end,
      isOptional: operation.outcome === 'unknown',
    }))
    .sort((one, other) => one.start - other.start);
}

interface Step {
  candidates: number[];
  /** The place of the next candidate to try. */
  next: number;
  /** What the last candidate replaced. */
  before: string | undefined;
  taken: number | undefined;
}

class Search {
  readonly #entries: Entry[];
  readonly #isDone: boolean[];
  readonly #seen = new Set<string>();
  #value: string | undefined;
  /** Every entry before it is done. */
  #first = 0;
  #remaining: number;
  /** The most operations that any order has explained, and the first one that it left over. */
  furthest = 0;
  #most = -1;

  constructor(entries: Entry[]) {
    this.#entries = entries;
    this.#isDone = entries.map(() => false);
    this.#remaining = entries.filter(({ isOptional }) => !isOptional).length;
  }

  run(): boolean {
    const total = this.#remaining;
    const steps: Step[] = [this.#step()];
    for (;;) {
      if (this.#remaining === 0) return true;
      const step = steps.at(-1) as Step;
      if (step.taken !== undefined) this.#undo(step);
      const index = step.candidates[step.next++];
      if (index === undefined) {
        steps.pop();
        if (steps.length === 0) return false;
        continue;
      }
      this.#take(step, index);
      if (total - this.#remaining > this.#most) {
        this.#most = total - this.#remaining;
        this.furthest = this.#firstRequired();
      }
      const state = this.#state();
      if (this.#seen.has(state)) continue;
      this.#seen.add(state);
      steps.push(this.#step());
    }
  }

  #step(): Step {
    return { candidates: this.#candidates(), next: 0, before: undefined, taken: undefined };
  }

  /** Operations that began before any other one that is left was answered, and that fit the value. */
  #candidates(): number[] {
    const found: number[] = [];
    let earliestEnd = Number.POSITIVE_INFINITY;
    for (let index = this.#first; index < this.#entries.length; index++) {
      if (this.#isDone[index]) continue;
      const entry = this.#entries[index] as Entry;
      if (entry.start > earliestEnd) break;
      earliestEnd = Math.min(earliestEnd, entry.end);
      found.push(index);
    }
    const possible = found.filter((index) => {
      const entry = this.#entries[index] as Entry;
      return entry.start <= earliestEnd && (entry.isWrite || entry.value === this.#value);
    });
    // A read that fits the value excludes nothing, so that it needs no alternative.
    const read = possible.find((index) => !this.#entries[index]?.isWrite);
    return read === undefined ? possible : [read];
  }

  #take(step: Step, index: number): void {
    const entry = this.#entries[index] as Entry;
    step.taken = index;
    step.before = this.#value;
    this.#isDone[index] = true;
    if (entry.isWrite) this.#value = entry.value;
    if (!entry.isOptional) this.#remaining--;
    while (this.#isDone[this.#first]) this.#first++;
  }

  #undo(step: Step): void {
    const index = step.taken as number;
    step.taken = undefined;
    this.#isDone[index] = false;
    this.#value = step.before;
    if (!this.#entries[index]?.isOptional) this.#remaining++;
    this.#first = Math.min(this.#first, index);
  }

  #firstRequired(): number {
    const index = this.#entries.findIndex((entry, place) => !this.#isDone[place] && !entry.isOptional);
    return index < 0 ? this.#entries.length - 1 : index;
  }

  /** The value, and which operations are left: all that began after the last one that may be next, and some before. */
  #state(): string {
    const left: number[] = [];
    let earliestEnd = Number.POSITIVE_INFINITY;
    let limit = this.#first;
    for (; limit < this.#entries.length; limit++) {
      const entry = this.#entries[limit] as Entry;
      if (entry.start > earliestEnd) break;
      if (this.#isDone[limit]) continue;
      earliestEnd = Math.min(earliestEnd, entry.end);
      left.push(limit);
    }
    return `${left.join()} ${limit} ${this.#value}`;
  }
}

function around(entries: Entry[], index: number): Operation[] {
  const middle = entries[index];
  if (!middle) return [];
  const near = [...entries].sort(
    (one, other) => Math.abs(one.start - middle.start) - Math.abs(other.start - middle.start),
  );
  return near
    .slice(0, REPORTED)
    .sort((one, other) => one.start - other.start)
    .map(({ operation }) => operation);
}
