/**
 * One SQLite connection, shared by all calls of a process: group commit for writes, and waits for other
 * processes' locks that never block the loop.
 */
import { CallBatcher } from '../call-batcher.js';
import { StoreUnavailable } from '../collection.js';
import { isBusy, retryWhileBusy, toStoreError } from './errors.js';

/** The part of `DatabaseSync` that `node:sqlite` and its drop-in share. */
export interface Database {
  exec(sql: string): void;
  prepare(sql: string): Statement<unknown>;
  close(): void;
}

/** A prepared statement that returns rows of type `R`. */
export interface Statement<R> {
  run(...values: (string | number | null)[]): { changes: number | bigint };
  get(...values: (string | number | null)[]): R | undefined;
  all(...values: (string | number | null)[]): R[];
}

interface Write {
  step: () => unknown;
  resolve: (result: unknown) => void;
  reject: (error: unknown) => void;
}

/** Writes in one transaction: more would block the event loop (and other processes) for too long. */
const MAX_BATCH = 512;

/** The queue of writes and the transactions of one open database. */
export class Connection {
  /** Number of rejected writes: disk full, read-only, locked or damaged file. */
  refusals = 0;
  readonly #db: Database;
  readonly #lockTimeoutMs: number;
  readonly #statements = new Map<string, Statement<unknown>>();
  readonly #batcher: CallBatcher;
  #queue: Write[] = [];
  #turnEnd: NodeJS.Immediate | undefined;
  #flushing = false;
  #closed = false;
  #closing: Promise<void> | undefined;

  constructor(db: Database, lockTimeoutMs: number, now: () => number) {
    this.#db = db;
    this.#lockTimeoutMs = lockTimeoutMs;
    this.#batcher = new CallBatcher(now, MAX_BATCH);
  }

  /** The prepared statement of an SQL text. The number of texts is finite; values are bound. */
  sql<R = unknown>(text: string): Statement<R> {
    let statement = this.#statements.get(text);
    if (!statement) {
      statement = this.#db.prepare(text);
      this.#statements.set(text, statement);
    }
    return statement as Statement<R>;
  }

  /** Runs a read step now. */
  read<T>(step: () => T): Promise<T> {
    try {
      return Promise.resolve(this.#readNow(step));
    } catch (error) {
      return isBusy(error)
        ? retryWhileBusy(() => this.#readNow(step), this.#lockTimeoutMs)
        : Promise.reject(toStoreError(error));
    }
  }

  /** Queues a write step; steps that arrive together share one transaction. Settles after its commit. */
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
    // A connection that has only read must not write when it closes, not even an empty transaction.
    const isWriting = this.#queue.length > 0 || this.#flushing;
    const last = isWriting ? this.write(() => undefined) : Promise.resolve();
    this.#closed = true;
    // Other queued writes have already been rejected with their own error.
    await last.catch(() => undefined);
    clearImmediate(this.#turnEnd);
    try {
      this.#db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    } catch {
      // Another process is checkpointing, or the disk is full; the log is as durable as the file.
    }
    this.#db.close();
    // Node finalises statements in `close`; its drop-in keeps the file open until they are collected.
    this.#statements.clear();
  }

  #readNow<T>(step: () => T): T {
    if (this.#closed) throw closed();
    return step();
  }

  #scheduleTurnEnd(): void {
    this.#turnEnd ??= setImmediate(() => {
      this.#turnEnd = undefined;
      const queued = this.#queue.length;
      if (queued === 0 || this.#flushing) return;
      if (this.#batcher.shouldSend(queued)) void this.#flush();
      else this.#scheduleTurnEnd();
    });
  }

  async #flush(): Promise<void> {
    this.#flushing = true;
    try {
      await retryWhileBusy(() => this.#commitBatch(), this.#lockTimeoutMs);
    } catch (error) {
      this.#count(error);
      for (const { reject } of this.#queue.splice(0)) reject(error);
    }
    this.#flushing = false;
    if (this.#queue.length > 0) this.#scheduleTurnEnd();
  }

  /** Throws only while nothing was taken from the queue. */
  #commitBatch(): void {
    this.sql('BEGIN IMMEDIATE').run();
    const batch = this.#queue.splice(0, MAX_BATCH);
    try {
      const settle = batch.map((write) => this.#attempt(write));
      this.sql('COMMIT').run();
      for (const resolveWrite of settle) resolveWrite();
    } catch (error) {
      this.#rollback();
      const reason = toStoreError(error);
      this.#count(reason);
      for (const { reject } of batch) reject(reason);
    }
  }

  #count(reason: unknown): void {
    if (reason instanceof StoreUnavailable) this.refusals++;
  }

  /** A step that fails alone (SQLite has undone its statement) does not affect the rest of the batch. */
  #attempt({ step, resolve, reject }: Write): () => void {
    try {
      const result = step();
      return () => resolve(result);
    } catch (error) {
      // Such errors may have rolled the transaction back; later steps would then be committed individually.
      if (toStoreError(error) instanceof StoreUnavailable) throw error;
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
