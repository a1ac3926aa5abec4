/** What belongs together is one commit: its cost in time, compared with that of one write. */
import type { Result } from './report.js';
import { compare, type Row } from './rounds.js';

/** @param most the goal, as a multiple of the time of one write */
export function commit(most: number): Row {
  return async (bench) => {
    const { lab, database } = bench;
    const uri = database?.newDatabase() ?? lab.database('saas-backend');
    const worker = lab.worker('commit-work', uri);
    const { value, floor, ratio } = await compare(
      bench,
      (seconds) => worker.rate('write', seconds),
      (seconds) => worker.rate('commit', seconds),
    );
    const result: Result = {
      what: 'a commit of three documents',
      value: 1000 / floor,
      unit: 'ms',
      floor: { name: 'one write', value: 1000 / value },
      ratio,
      goal: { text: `≤ ${most}`, met: ratio <= most },
    };
    return [result];
  };
}
