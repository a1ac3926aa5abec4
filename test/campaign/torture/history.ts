/** What the clients of a campaign asked, and what they learnt: the input of the checker. */

/**
 * `ok`: acknowledged. `refused`: answered, without any effect. `unknown`: not answered, or with an error after which the
 * change may be there.
 */
export type Outcome = 'ok' | 'refused' | 'unknown';

/** What the model demands of the operations on one key. `test/campaign/torture/checker.ts` */
export type Rule =
  | 'register'
  | 'once'
  | 'successor'
  | 'stale-token'
  | 'durable'
  | 'delivery'
  | 'honest'
  | 'final'
  | 'probe';

export interface Operation {
  rule: Rule;
  /** Operations with the same rule and key are checked together. */
  key: string;
  kind: 'read' | 'write';
  /** The request, for people. */
  what: string;
  /** The product and the number of its process. */
  target: string;
  /** Milliseconds since the campaign began. */
  start: number;
  end: number;
  outcome: Outcome;
  /** What was written or read. */
  value?: string;
  /** For `final`: the value that must be read. */
  expected?: string;
  /** For `honest`: when the credential was first presented. */
  since?: number;
  /** The status, the error code, or why there is no answer. */
  detail: string;
}

export class History {
  readonly operations: Operation[] = [];
  readonly #now: () => number;

  constructor(now: () => number) {
    const startedAt = now();
    this.#now = () => now() - startedAt;
  }

  /** Milliseconds since the campaign began. */
  now(): number {
    return this.#now();
  }

  add(operation: Operation): void {
    this.operations.push(operation);
  }
}

/** One line of a report. */
export function describe(operation: Operation): string {
  const { start, end, target, what, value, outcome, detail } = operation;
  const time = `${seconds(start)} to ${seconds(end)}`.padEnd(20);
  const shown = value === undefined ? '' : ` [${value}]`;
  return `${time} ${target.padEnd(8)} ${what}${shown}: ${outcome} (${detail})`;
}

const seconds = (milliseconds: number): string => (milliseconds / 1000).toFixed(3);
