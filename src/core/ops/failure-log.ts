import { addressBlock } from '../kernel/addresses.js';
import { type Clock, HOUR } from '../kernel/clock.js';

/**
 * Decides which rejected attempts get an audit record of their own, so that unauthenticated clients cannot fill the
 * store: the first ones of an address block are recorded individually, further ones in hourly summaries. All limits are
 * per process.
 */

/** Individual records per address block and hour. */
const MAX_RECORDS_PER_BLOCK = 10;

/** Individual records per hour, of all address blocks together. */
const MAX_RECORDS = 500;

/** Summaries per hour; further failures are summarized by event, with `several` as address. */
const MAX_SUMMARIES = 100;

const WINDOW_MS = HOUR;

export interface FailedAttempt {
  event: string;
  subject?: string;
  ip: string;
  detail?: string;
}

/** Several failures of one event. `ip` is an address block, or `several`. */
export interface FailureSummary {
  event: string;
  ip: string;
  count: number;
}

export class FailureLog {
  readonly #clock: Clock;
  #startedAt: number;
  #recorded = 0;
  readonly #recordedByBlock = new Map<string, number>();
  readonly #summaries = new Map<string, FailureSummary>();

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#startedAt = clock.now();
  }

  /** Whether this failure gets a record of its own; otherwise it is added to a summary. */
  admits({ event, ip }: FailedAttempt): boolean {
    const block = addressBlock(ip);
    const recorded = this.#recordedByBlock.get(block) ?? 0;
    if (recorded < MAX_RECORDS_PER_BLOCK && this.#recorded < MAX_RECORDS) {
      this.#recorded++;
      this.#recordedByBlock.set(block, recorded + 1);
      return true;
    }
    this.#count(event, block);
    return false;
  }

  /** Removes and returns the summaries of a window that has ended, or with `force` of the current one. */
  takeSummaries(force = false): FailureSummary[] {
    const now = this.#clock.now();
    const hasEnded = now >= this.#startedAt + WINDOW_MS || now < this.#startedAt;
    if (!hasEnded && !force) return [];
    const due = [...this.#summaries.values()];
    this.#summaries.clear();
    if (hasEnded) {
      this.#startedAt = now;
      this.#recorded = 0;
      this.#recordedByBlock.clear();
    }
    return due;
  }

  #count(event: string, block: string): void {
    const isKnown = this.#summaries.has(`${event} ${block}`);
    const ip = isKnown || this.#summaries.size < MAX_SUMMARIES ? block : 'several';
    const key = `${event} ${ip}`;
    const summary = this.#summaries.get(key) ?? { event, ip, count: 0 };
    summary.count++;
    this.#summaries.set(key, summary);
  }
}
