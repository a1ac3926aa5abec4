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

/**
 * Both, warmed up, in turns; each figure is the median of its turns, and the ratio that of the pairs.
 * @param turn seconds of one turn, where a short one has too little to count
 */
export async function compare(
  bench: Bench,
  measure: Measure,
  floor: Measure,
  turn = TURN,
): Promise<Comparison> {
  const { seconds, row, progress } = bench;
  progress(`${row}: warming up`);
  const warmUp = Math.min(2, seconds);
  await floor(warmUp);
  await measure(warmUp);
  const pairs: { value: number; floor: number }[] = [];
  for (let left = seconds; left > 0; left -= turn) {
    progress(`${row}: ${left.toFixed(1)} s left of each`);
    pairs.push({ floor: await floor(turn), value: await measure(turn) });
  }
  return {
    value: median(pairs.map(({ value }) => value)),
    floor: median(pairs.map((pair) => pair.floor)),
    ratio: median(pairs.map((pair) => pair.value / pair.floor)),
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
