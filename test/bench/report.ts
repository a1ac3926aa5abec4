/** The results, as a table for people and as JSON for machines. */
import { availableParallelism, cpus } from 'node:os';

export type Result = Figure | Skipped;

/** A row that could not be measured. */
export interface Skipped {
  what: string;
  /** The reason. */
  skipped: string;
}

export interface Figure {
  what: string;
  value: number;
  unit: string;
  /** The baseline, in the same unit and run. */
  floor?: { name: string; value: number };
  /** The ratio of `value` to the baseline: the median of the rounds. */
  ratio?: number;
  goal?: { text: string; met: boolean };
}

export function table(results: readonly Result[]): string {
  const rows = results
    .filter(isMeasured)
    .map(({ what, value, unit, floor, ratio, goal }) => [
      what,
      `${shown(value)} ${unit}`,
      floor ? `${floor.name} ${shown(floor.value)}` : '',
      ratio === undefined ? '' : ratio.toFixed(2),
      goal?.text ?? '',
      goal ? (goal.met ? 'met' : 'unmet') : '',
    ]);
  const lines = [['', 'measured', 'floor', 'ratio', 'goal', ''], ...rows];
  const widths = (lines[0] as string[]).map((_, column) =>
    Math.max(...lines.map((line) => (line[column] as string).length)),
  );
  const text = lines.map((line) =>
    line.map((cell, column) => cell.padEnd(widths[column] as number)).join('  '),
  );
  const skipped = results.flatMap((one) =>
    'skipped' in one ? [`${one.what} was skipped: ${one.skipped}`] : [],
  );
  return [...text.map((line) => line.trimEnd()), ...skipped].join('\n');
}

const isMeasured = (result: Result): result is Figure => !('skipped' in result);

/** @param how the conditions of the measurement */
export function machineReadable(results: readonly Result[], how: Record<string, string | number>): string {
  const machine = { node: process.version, cpu: cpus()[0]?.model, cores: availableParallelism() };
  return `${JSON.stringify({ at: new Date().toISOString(), ...machine, ...how, results }, null, 2)}\n`;
}

function shown(value: number): string {
  const digits = value < 1 ? 3 : value < 100 ? 1 : 0;
  return value.toLocaleString('en', { maximumFractionDigits: digits });
}
