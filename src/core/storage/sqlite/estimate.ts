import type { Connection } from './connection.js';

/** Places at which an estimate looks, and rows that it reads at each. */
const SAMPLES = 64;
const SAMPLE_SIZE = 16;

/**
 * Estimates the rows of a large table from the gaps between row numbers at evenly distributed places. A count reads the
 * whole of an index instead: 30 ms per million rows, during which the process serves no request.
 */
export function estimateRows(connection: Connection, table: string): number {
  const range = connection
    .sql<{ first: number; last: number }>(
      `SELECT (SELECT min(_rowid_) FROM ${table}) AS first, (SELECT max(_rowid_) FROM ${table}) AS last`,
    )
    .get();
  if (!range) return 0;
  const width = (range.last - range.first + 1) / SAMPLES;
  const sample = connection.sql<{ n: number; last: number | null }>(
    `SELECT count(*) AS n, max(row) AS last FROM (SELECT _rowid_ AS row FROM ${table} WHERE _rowid_ >= ? AND _rowid_ < ? ORDER BY _rowid_ LIMIT ?)`,
  );
  let rows = 0;
  for (let index = 0; index < SAMPLES; index++) {
    const [from, to] = [
      range.first + Math.floor(index * width),
      range.first + Math.floor((index + 1) * width),
    ];
    const { n, last } = sample.get(from, to, SAMPLE_SIZE) ?? { n: 0, last: null };
    // With fewer rows than the sample takes, all rows of the section are counted.
    rows += n < SAMPLE_SIZE || last === null ? n : (n * (to - from)) / (last - from + 1);
  }
  return Math.round(rows);
}
