/** A row and its floor take turns, so that a machine that slows down slows both. */
import type { Lab } from './lab.js';
import type { Result } from './report.js';

/** What a row measures with. */
export interface Bench {
  lab: Lab;
  /** The name of the row. */
  row: string;
  /** How long each figure is measured in all. */
  seconds: number;
  quick: boolean;
  /** Tells whoever waits. */
  progress(text: string): void;
}

export type Measure = (seconds: number) => Promise<number>;

export interface Comparison {
  value: number;
  floor: number;
  ratio: number;
}

/** Short enough that a machine whose speed wavers has much the same for a row and its floor. */
const TURN = 0.4;

/** Seconds until a program is as fast as it stays: so long it is being compiled while it runs. */
const WARM_UP = 6;

/** Both, warmed up, in turns. @param turn seconds of one turn, where a short one has too little to count */
export async function compare(
  bench: Bench,
  measure: Measure,
  floor: Measure,
  turn = TURN,
): Promise<Comparison> {
  return summary(await inTurns(bench, { measure, floor }, turn));
}

/** What is compared, each in a process of its own. */
export interface Pair {
  measure: Measure;
  floor: Measure;
}

/** Of one program, two processes may differ by a fifth in speed for as long as they live. */
const STARTS = 5;

/** The same, with both started several times. @param open starts both */
export async function compareAnew(bench: Bench, open: () => Promise<Pair>, turn = TURN): Promise<Comparison> {
  const starts = bench.quick ? 1 : STARTS;
  const turns: Turn[] = [];
  for (let start = 1; start <= starts; start++) {
    const part = { ...bench, row: `${bench.row}, start ${start}`, seconds: bench.seconds / starts };
    turns.push(...(await inTurns(part, await open(), turn)));
    await bench.lab.clear();
  }
  return summary(turns);
}

/** What both did in one turn each. */
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

/** Each figure is the median of its turns, and the ratio that of the pairs. */
function summary(turns: readonly Turn[]): Comparison {
  return {
    value: median(turns.map(({ value }) => value)),
    floor: median(turns.map(({ floor }) => floor)),
    ratio: median(turns.map(({ value, floor }) => value / floor)),
  };
}

/** A comparison as a line of the table. @param least the goal, as a ratio */
export function result(
  what: string,
  name: string,
  compared: Comparison,
  least?: number,
  remark = '',
): Result {
  const { value, floor, ratio } = compared;
  return {
    what,
    value,
    unit: '/s',
    floor: { name, value: floor },
    ratio,
    ...(least !== undefined && { goal: { text: `≥ ${least}${remark}`, met: ratio >= least } }),
  };
}

/** A figure as a line of the table. @param hello what bare Fastify has of it, where it can be compared */
export function below(what: string, unit: string, value: number, limit: number, hello?: number): Result {
  return {
    what,
    value,
    unit,
    ...(hello !== undefined && { floor: { name: 'hello', value: hello }, ratio: value / hello }),
    goal: { text: `< ${limit} ${unit}`, met: value < limit },
  };
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The value that this share of the values does not exceed. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN;
}
