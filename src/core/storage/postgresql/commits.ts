/**
 * Writes of several documents in one transaction. Each transaction leaves a marker, by which its outcome is known after the
 * connection was lost. The markers of a process are a few rows: a commit replaces the marker of an earlier one, and fails if
 * that is not there.
 */
import { type Commit, StoreUnavailable, type Write } from '../collection.js';
import { type Connection, pause, type Send } from './connection.js';
import { isTransient, Unmet } from './errors.js';
import type { Statement } from './pipeline.js';
import { arrayLiteral, expectingOne } from './query.js';

/** A write of one document, as part of a transaction. */
export interface PostgresqlWrite extends Write {
  /** Resolves once its table exists; `undefined` if it does already. */
  exists(): Promise<void> | undefined;
  readonly statement: Statement;
  /** The existing document that it changes, if its id is known. */
  readonly document?: { table: string; id: string };
}

/** A row of the markers, which one commit at a time uses. */
interface Lane {
  readonly id: string;
  /** The marker of its last commit; empty before the first. */
  marker: string;
}

/**
 * Returns `Store.commit`.
 *
 * @param table the quoted name of the table of markers
 * @param processId distinguishes the rows of this process
 */
export function createCommits(
  connection: Connection,
  table: string,
  processId: string,
): (writes: readonly PostgresqlWrite[]) => Promise<Commit> {
  const free: Lane[] = [];
  let lanes = 0;
  let commits = 0;
  const takeLane = (): Lane => free.pop() ?? { id: `${processId}.${++lanes}`, marker: '' };

  const leave = (lane: Lane, marker: string): Statement => ({
    text: `INSERT INTO ${table} AS held (lane, marker) VALUES ($1, $3)
      ON CONFLICT (lane) DO UPDATE SET marker = $3, at = now() WHERE held.marker = $2 RETURNING 1`,
    values: [lane.id, lane.marker, marker],
  });

  /** Whether a commit of unknown outcome was made. If it was not, its transaction can no longer be committed afterwards. */
  const settle = async (send: Send, lane: Lane, marker: string): Promise<boolean> => {
    const replaced = `${marker} not made`;
    const read: Statement = { text: `SELECT marker FROM ${table} WHERE lane = $1`, values: [lane.id] };
    for (let attempt = 0; ; attempt++) {
      try {
        // Waits for a transaction that still holds the row.
        const [, [[found] = []] = []] = await send(leave(lane, replaced), read);
        lane.marker = found ?? '';
        return found === marker;
      } catch (error) {
        // Without an effect or with it, the same statements lead to the same answer.
        if (!isTransient(error) && !isUnknown(error)) throw error;
      }
      await pause(attempt);
    }
  };

  return async (writes) => {
    if (writes.length === 0) return { committed: true };
    const locks = locksOf(writes);
    return connection.write(async (send) => {
      await Promise.all(writes.map(({ exists }) => exists()));
      const lane = takeLane();
      const marker = String(++commits);
      try {
        await send(
          expectingOne(leave(lane, marker), 'markers'),
          ...locks,
          ...writes.map(({ statement }) => statement),
        );
        lane.marker = marker;
      } catch (error) {
        if (isUnknown(error)) {
          // If that fails, the lane is not used again.
          const isMade = await settle(send, lane, marker);
          free.push(lane);
          if (isMade) return { committed: true };
          throw new StoreUnavailable(error.message, { cause: error.cause });
        }
        free.push(lane);
        const unmet = error instanceof Unmet ? writes[error.index - locks.length - 1] : undefined;
        if (unmet) return { committed: false, unmet };
        throw error;
      }
      free.push(lane);
      return { committed: true };
    });
  };
}

/** Locks several documents in the same order in each commit, so that two commits do not wait for each other. */
function locksOf(writes: readonly PostgresqlWrite[]): Statement[] {
  const documents = writes.flatMap(({ document }) => document ?? []);
  if (documents.length < 2) return [];
  const tables = [...new Set(documents.map(({ table }) => table))].sort();
  return tables.map((table) => ({
    text: `SELECT 1 FROM ${table} WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE`,
    values: [arrayLiteral(documents.flatMap((one) => (one.table === table ? one.id : [])))],
  }));
}

function isUnknown(error: unknown): error is StoreUnavailable {
  return error instanceof StoreUnavailable && error.mayHaveTakenEffect;
}
