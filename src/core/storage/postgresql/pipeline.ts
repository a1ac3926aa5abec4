/**
 * Statements that are sent together and form one transaction: PostgreSQL begins it with the first of them and commits it at the
 * end of the message, or undoes all at the first error. One round trip, without any state that a pooler would have to keep.
 */
import type { Connection, Submittable } from 'pg';

/** An SQL text with `$1`, `$2` …, and their values. */
export interface Statement {
  readonly text: string;
  readonly values: readonly (string | null)[];
}

/** The columns of a row, as text. */
export type Row = readonly (string | null)[];

/** The part of the driver's connection in use, which its types describe for named statements only. */
interface Protocol {
  readonly stream: { cork(): void; uncork(): void };
  parse(query: { text: string }): void;
  bind(config: { values: readonly (string | null)[] }): void;
  execute(): void;
  sync(): void;
}

/** What the driver calls a query, as pg-cursor and pg-query-stream are: https://node-postgres.com/apis/cursor */
export class Pipeline implements Submittable {
  /** The rows of each statement, after the commit. */
  readonly committed: Promise<Row[][]>;
  /** Whether anything was sent: not on a connection that has ended before. */
  isSent = false;
  readonly #statements: readonly Statement[];
  readonly #results: Row[][] = [];
  #rows: Row[] = [];
  #resolve!: (results: Row[][]) => void;
  #reject!: (error: unknown) => void;

  constructor(statements: readonly Statement[]) {
    this.#statements = statements;
    this.committed = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** The number of statements that were executed. After an error of the server, the next one has caused it. */
  get executed(): number {
    return this.#results.length;
  }

  submit(connection: Connection): void {
    const protocol = connection as unknown as Protocol;
    this.isSent = true;
    // As one packet, if it is not too large.
    protocol.stream.cork();
    for (const { text, values } of this.#statements) {
      protocol.parse({ text });
      protocol.bind({ values });
      protocol.execute();
    }
    protocol.sync();
    protocol.stream.uncork();
  }

  handleDataRow({ fields }: { fields: Row }): void {
    this.#rows.push(fields);
  }

  handleCommandComplete(): void {
    this.#results.push(this.#rows);
    this.#rows = [];
  }

  handleReadyForQuery(): void {
    this.#resolve(this.#results);
  }

  handleError(error: unknown): void {
    this.#reject(error);
  }
}
