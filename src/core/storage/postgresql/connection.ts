/** Calls to one PostgreSQL server through a pool, each with a timeout. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool, PoolClient } from 'pg';
import { noResponse, RunningCalls, timeLeft, waitFor } from '../calls.js';
import { withoutBudget } from '../request-budget.js';
import { breaksConnection, isTransient, isUnmet, Standby, toStoreError, Unmet } from './errors.js';
import { Pipeline, type Row, type Statement } from './pipeline.js';

/**
 * Sent before the statements of each call, in the same packet. Its settings end with the transaction. The server gives up at
 * the end of the call: it would otherwise wait for a lock that may be released long after the caller has left. Commits are
 * acknowledged once they are on disk, whatever the database or the role is set to. A standby says that it is one.
 */
const PRELUDE = `SELECT pg_is_in_recovery(), set_config('statement_timeout', $1, true),
CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN set_config('synchronous_commit', 'on', true) END`;

/** The statement timeout that means none. */
const UNLIMITED = '0';

const MAX_PAUSE_MS = 250;

/** Sends statements as one transaction. Returns the rows of each. @throws Unmet */
export type Send = (...statements: Statement[]) => Promise<Row[][]>;

/** A call and its timeout. */
interface Call {
  readonly leftMs: () => number;
  readonly isRead: boolean;
  hasEnded: boolean;
  /** Whether a write was sent whose outcome is not known yet. */
  mayHaveTakenEffect: boolean;
  /** The client that executes its statements now. */
  client?: PoolClient | undefined;
  /** Why it is being repeated. */
  problem?: unknown;
}

/** The pool and its running calls. */
export class Connection {
  readonly #pool: Pool;
  readonly #release: () => Promise<void>;
  readonly #calls = new RunningCalls();

  /** @param release called after the last call has ended */
  constructor(pool: Pool, release: () => Promise<void>) {
    this.#pool = pool;
    this.#release = release;
  }

  /** Runs a call that writes, within the budget of the request. While it cannot have taken effect, it is repeated. */
  write<R>(step: (send: Send) => Promise<R>): Promise<R> {
    return this.#calls.run(() => this.#limited(false, step));
  }

  /** Runs a call that only reads. */
  read<R>(step: (send: Send) => Promise<R>): Promise<R> {
    return this.#calls.run(() => this.#limited(true, step));
  }

  /**
   * Runs what several calls wait for.
   *
   * @param step `read` runs a limited call; `send` has no time limit, because the creation of an index may take long
   */
  migrate(step: (read: Connection['read'], send: Send) => Promise<void>): Promise<void> {
    const unlimited: Call = { leftMs: () => 0, isRead: false, hasEnded: false, mayHaveTakenEffect: false };
    const begin = () =>
      step(
        (inner) => this.#limited(true, inner),
        (...statements) => this.#send(unlimited, UNLIMITED, statements),
      );
    return this.#calls.run(() => withoutBudget(begin));
  }

  /** Waits for running calls, then releases the pool. */
  close(): Promise<void> {
    return this.#calls.close(this.#release);
  }

  #limited<R>(isRead: boolean, step: (send: Send) => Promise<R>): Promise<R> {
    const call: Call = { leftMs: timeLeft(), isRead, hasEnded: false, mayHaveTakenEffect: false };
    const send: Send = (...statements) =>
      this.#send(call, String(Math.max(1, Math.ceil(call.leftMs()))), statements);
    return waitFor<R>(
      (resolve, reject) => void repeat(call, () => step(send)).then(resolve, reject),
      (hasBegun) => (hasBegun ? giveUp(call) : noResponse('PostgreSQL', false)),
    );
  }

  async #send(call: Call, timeout: string, statements: readonly Statement[]): Promise<Row[][]> {
    if (call.hasEnded) throw noResponse('PostgreSQL', false);
    const client = await connectTo(this.#pool);
    // The caller has left while the call was waiting for a client.
    if (call.hasEnded) {
      client.off('error', ignore);
      client.release();
      throw noResponse('PostgreSQL', false);
    }
    call.client = client;
    call.mayHaveTakenEffect = !call.isRead;
    const pipeline = new Pipeline([{ text: PRELUDE, values: [timeout] }, ...statements]);
    try {
      client.query(pipeline);
      const [[state] = [], ...results] = await pipeline.committed;
      if (state?.[0] === 't') throw new Standby();
      release(call);
      return results;
    } catch (error) {
      release(call, breaksConnection(error));
      throw isUnmet(error)
        ? new Unmet(pipeline.executed - 1)
        : toStoreError(error, !call.isRead && pipeline.isSent);
    }
  }
}

/** With a callback, because a server that ends the connection at once can send both in one packet: a promise resolves after it. */
function connectTo(pool: Pool): Promise<PoolClient> {
  return new Promise<PoolClient>((resolve, reject) => {
    // Certificates that cannot be read make the pool throw.
    pool.connect((error, client) => {
      client?.on('error', ignore);
      if (client) resolve(client);
      else reject(error);
    });
  }).catch((error) => {
    throw toStoreError(error, false);
  });
}

/** Retries a step until it succeeds, an error is permanent, or its call times out. */
async function repeat<R>(call: Call, step: () => Promise<R>): Promise<R> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await step();
    } catch (error) {
      if (call.hasEnded || !isTransient(error)) throw error;
      call.problem = error;
      call.mayHaveTakenEffect = false;
    }
    await pause(attempt);
  }
}

/** Pauses before an attempt is repeated, with jitter, so that two transactions do not meet again. */
export async function pause(attempt: number): Promise<void> {
  await sleep(Math.min(5 * 2 ** attempt, MAX_PAUSE_MS) * (0.5 + Math.random()));
}

/** Ends a call that has timed out. A connection that still executes it is closed. */
function giveUp(call: Call): unknown {
  call.hasEnded = true;
  release(call, true);
  const isKnown = call.problem !== undefined && !call.mayHaveTakenEffect;
  return isKnown ? call.problem : noResponse('PostgreSQL', call.mayHaveTakenEffect);
}

function release(call: Call, isBroken = false): void {
  const { client } = call;
  if (!client) return;
  call.client = undefined;
  client.off('error', ignore);
  client.release(isBroken);
}

/** The statements in progress fail with the same error. */
const ignore = (): void => {};
