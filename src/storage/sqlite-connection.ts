/**
 * One SQLite connection, shared by all calls of a process: group commit for writes, one read transaction
 * per turn of the event loop, and patience with other processes that never blocks the loop.
 */
import { performance } from 'node:perf_hooks';
import { StoreUnavailable } from './collection.js';
import { failure, isBusy, whileBusy } from './sqlite-errors.js';
import { Gathering, MAX_BATCH } from './sqlite-gathering.js';

/** What is used of `DatabaseSync`, which `node:sqlite` and its drop-in have in common. */
export interface Database {
  exec(sql: string): void;
  prepare(sql: string): Statement<unknown>;
  close(): void;
}

/** A prepared statement that answers rows of type `R`. */
export interface Statement<R> {
  run(...values: (string | number | null)[]): unknown;
  get(...values: (string | number | null)[]): R | undefined;
  all(...values: (string | number | null)[]): R[];
}

interface Write {
  step: () => unknown;
  resolve: (result: unknown) => void;
  reject: (error: unknown) => void;
}

/** Commits of all connections of this process, so that no snapshot is older than what its own process has said. */
let commits = 0;

/** The queue of writes and the transactions of one open database. */
export class Connection {
  /** How often the file has refused to be written: it is full, read-only, locked, damaged. */
  refusals = 0;
  readonly #db: Database;
  readonly #patience: number;
  readonly #statements = new Map<string, Statement<unknown>>();
  readonly #gathering: Gathering;
  #queue: Write[] = [];
  #turnEnd: NodeJS.Immediate | undefined;
  #flushing = false;
  /** The turn of the loop whose read transaction is open. */
  #readTurn: number | undefined;
  #readAfter = 0;
  #closed = false;
  #closing: Promise<void> | undefined;

  constructor(db: Database, patience: number, now: () => number) {
    this.#db = db;
    this.#patience = patience;
    this.#gathering = new Gathering(now);
  }

  /** The prepared statement of an SQL text; texts are finite, values are bound. */
  sql<R = unknown>(text: string): Statement<R> {
    let statement = this.#statements.get(text);
    if (!statement) {
      statement = this.#db.prepare(text);
      this.#statements.set(text, statement);
    }
    return statement as Statement<R>;
  }

  /** Runs a reading step now, on the snapshot that all reads of this turn of the loop share. */
  read<T>(step: () => T): Promise<T> {
    try {
      return Promise.resolve(this.#readNow(step));
    } catch (error) {
      return isBusy(error)
        ? whileBusy(() => this.#readNow(step), this.#patience)
        : Promise.reject(failure(error));
    }
  }

  /** Runs a writing step under the write lock, with others that come at about the same time; settles after the commit. */
  write<T>(step: () => T): Promise<T> {
    if (this.#closed) return Promise.reject(closed());
    return new Promise<T>((resolve, reject) => {
      this.#queue.push({ step, resolve: resolve as (result: unknown) => void, reject });
      this.#scheduleTurnEnd();
    });
  }

  /** Finishes the writes in the queue, moves the log into the database file, closes. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const last = this.write(() => undefined);
    this.#closed = true;
    // The others in the queue have been told themselves why they failed.
    await last.catch(() => undefined);
    clearImmediate(this.#turnEnd);
    this.#endRead();
    try {
      this.#db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    } catch {
      // Another process is at it, or the disk is full: the log is as durable as the file.
    }
    this.#db.close();
    // Node finalises statements in `close`; its drop-in keeps the file open until they are collected.
    this.#statements.clear();
  }

  #readNow<T>(step: () => T): T {
    if (this.#closed) throw closed();
    // libuv counts a turn just before it polls. A snapshot taken earlier may be older than the commit of
    // another process whose client already talks to us, so it must not outlive the poll.
    const turn = performance.nodeTiming.uvMetricsInfo.loopCount;
    if (this.#readTurn !== turn || this.#readAfter !== commits) {
      this.#endRead();
      this.sql('BEGIN').run();
      this.#readTurn = turn;
      this.#readAfter = commits;
      this.#scheduleTurnEnd();
    }
    try {
      return step();
    } catch (error) {
      this.#endRead();
      throw error;
    }
  }

  #endRead(): void {
    if (this.#readTurn === undefined) return;
    this.#readTurn = undefined;
    this.#rollback();
  }

  #scheduleTurnEnd(): void {
    this.#turnEnd ??= setImmediate(() => {
      this.#turnEnd = undefined;
      this.#endRead();
      const queued = this.#queue.length;
      if (queued === 0 || this.#flushing) return;
      if (this.#gathering.isOver(queued)) void this.#flush();
      else this.#scheduleTurnEnd();
    });
  }

  async #flush(): Promise<void> {
    this.#flushing = true;
    try {
      await whileBusy(() => this.#commitBatch(), this.#patience);
    } catch (error) {
      this.#count(error);
      for (const { reject } of this.#queue.splice(0)) reject(error);
    }
    this.#flushing = false;
    if (this.#queue.length > 0) this.#scheduleTurnEnd();
  }

  /** Throws only while nothing was taken from the queue. */
  #commitBatch(): void {
    this.#endRead();
    this.sql('BEGIN IMMEDIATE').run();
    const batch = this.#queue.splice(0, MAX_BATCH);
    try {
      const settle = batch.map((write) => this.#attempt(write));
      this.sql('COMMIT').run();
      commits++;
      for (const tell of settle) tell();
    } catch (error) {
      this.#rollback();
      const reason = failure(error);
      this.#count(reason);
      for (const { reject } of batch) reject(reason);
    }
  }

  #count(reason: unknown): void {
    if (reason instanceof StoreUnavailable) this.refusals++;
  }

  /** A step that fails alone (SQLite has undone its statement) does not concern the rest of the batch. */
  #attempt({ step, resolve, reject }: Write): () => void {
    try {
      const result = step();
      return () => resolve(result);
    } catch (error) {
      // These may have rolled the transaction back; what follows would be committed one by one.
      if (failure(error) instanceof StoreUnavailable) throw error;
      return () => reject(error);
    }
  }

  #rollback(): void {
    try {
      this.sql('ROLLBACK').run();
    } catch {
      // SQLite has rolled back by itself.
    }
  }
}

function closed(): StoreUnavailable {
  return new StoreUnavailable('the store is closed');
}
