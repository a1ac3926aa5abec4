/** Progress of a script: a line that is replaced on a terminal, otherwise one every few seconds, so that nobody takes it for hanging. */
import { performance } from 'node:perf_hooks';
import { createProgress as createBar, type Progress } from '../../bin/progress.js';

const INTERVAL_MS = 8000;

let toldAt = performance.now();

/** Prints a line of progress without a terminal, unless another was printed lately. */
export function tell(text: string): void {
  if (performance.now() - toldAt < INTERVAL_MS) return;
  toldAt = performance.now();
  process.stdout.write(`${text}\n`);
}

export function createProgress(unit: { name: string; write(count: number): string }): Progress {
  if (process.stderr.isTTY) return createBar(unit);
  const of = (total: number | undefined) => (total === undefined ? '' : ` of ${unit.write(total)}`);
  return {
    show: (done, total) => tell(`${unit.write(done)}${of(total)} ${unit.name}`),
    end() {},
  };
}
