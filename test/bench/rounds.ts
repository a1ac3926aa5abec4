/** A row and its baseline are measured in turns, so that changes of the machine's speed affect both. */
import type { Lab, Program, Served, UnboundOptions } from './lab.js';
import type { Result } from './report.js';
import type { DatabaseServer } from './servers.js';

/** The environment of a row. */
export interface Bench {
  lab: Lab;
  /** The name of the row. */
  row: string;
  /** The total measuring time of each figure. */
  seconds: number;
  /** How often each program is started: two processes of one may differ in speed by a fifth for their whole life. */
  starts: number;
  quick: boolean;
  /** Where the programs keep their data, instead of a SQLite file. */
  database?: DatabaseServer;
  /** Reports progress to the user. */
  progress(text: string): void;
}

/** Measures one or several lines of the table. */
export type Row = (bench: Bench) => Promise<Result[]>;

/** A server without limits on the number of requests, on a new database of the row's engine. */
export function serve(
  { lab, row, database }: Bench,
  name: Program,
  options: Omit<UnboundOptions, 'uri'> = {},
): Promise<Served> {
  return lab.unbound(name, row, { ...options, ...(database && { uri: database.newDatabase() }) });
}

export type Measure = (seconds: number) => Promise<number>;

export interface Comparison {
  value: number;
  floor: number;
  ratio: number;
}

/** Short enough that fluctuations of the machine's speed affect a row and its baseline alike. */
const TURN = 0.4;

/** Seconds until the JIT compiler has optimized a program. */
const WARM_UP = 4;

/** Measures both in turns, after a warm-up. @param turn seconds of one turn, if the default is too short to count */
export async function compare(
  bench: Bench,
  measure: Measure,
  floor: Measure,
  turn = TURN,
): Promise<Comparison> {
  return summary(await inTurns(bench, { measure, floor }, turn));
}

/** A measurement and its baseline, each in its own process. */
export interface Pair {
  measure: Measure;
  floor: Measure;
}

/** The same, with several starts of both. @param open starts both */
export async function compareAnew(bench: Bench, open: () => Promise<Pair>, turn = TURN): Promise<Comparison> {
  const { starts } = bench;
  const turns: Turn[] = [];
  for (let start = 1; start <= starts; start++) {
    const part = { ...bench, row: `${bench.row}, start ${start}`, seconds: bench.seconds / starts };
    turns.push(...(await inTurns(part, await open(), turn)));
    await bench.lab.clear();
  }
  return summary(turns);
}

/** The results of both in one turn. */
interface Turn {
  value: number;
  floor: number;
}

async function inTurns(
  { seconds, row, quick, progress }: Bench,
  { measure, floor }: Pair,
  turn: number,
): Promise<Turn[]> {
  progress(`${row}: warming up`);
  const warmUp = quick ? Math.min(1, seconds) : WARM_UP;
  await floor(warmUp);
  await measure(warmUp);
  const turns: Turn[] = [];
  for (let left = seconds; left > 0; left -= turn) {
    progress(`${row}: ${left.toFixed(1)} s left of each`);
    turns.push({ floor: await floor(turn), value: await measure(turn) });
  }
  return turns;
}

/** Each figure is the median of its turns, and the ratio is the median of the ratios per turn. */
function summary(turns: readonly Turn[]): Comparison {
  return {
    value: median(turns.map(({ value }) => value)),
    floor: median(turns.map(({ floor }) => floor)),
    ratio: median(turns.map(({ value, floor }) => value / floor)),
  };
}

/** A comparison as a line of the table. @param least the goal, as a ratio */
export function result(what: string, name: string, compared: Comparison, least?: number): Result {
  const { value, floor, ratio } = compared;
  return {
    what,
    value,
    unit: '/s',
    floor: { name, value: floor },
    ratio,
    ...(least !== undefined && { goal: { text: `≥ ${least}`, met: ratio >= least } }),
  };
}

/** A figure as a line of the table. @param hello the same figure of bare Fastify, where comparable */
export function atMost(what: string, unit: string, value: number, limit: number, hello?: number): Result {
  return {
    what,
    value,
    unit,
    ...(hello !== undefined && { floor: { name: 'hello', value: hello }, ratio: value / hello }),
    goal: { text: `≤ ${limit} ${unit}`, met: value <= limit },
  };
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The quantile: this share of the values is at most the result. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN;
}
