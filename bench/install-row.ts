/** The size of an installation: the packed tarball, installed in an empty folder without scripts. */
import { createConsumer } from '../test/package/consumer.js';
import type { Result } from './report.js';
import { type Bench, below } from './rounds.js';

export async function install(bench: Bench): Promise<Result[]> {
  bench.progress(`${bench.row}: npm install`);
  const { installed, bytes } = await createConsumer(bench.lab.folder());
  return [
    below('an installation has', 'packages', Object.keys(installed).length, 220),
    below('an installation takes', 'MiB', bytes / 2 ** 20, 100),
  ];
}
