/** The size of an installation: the packed tarball, installed in an empty folder without scripts. */
import { createConsumer } from '../test/package/consumer.js';
import type { Result } from './report.js';
import { atMost, type Bench } from './rounds.js';

export async function install(bench: Bench): Promise<Result[]> {
  bench.progress(`${bench.row}: npm install`);
  const { installed, bytes } = await createConsumer(bench.lab.folder());
  return [
    atMost('an installation has', 'packages', Object.keys(installed).length, 220),
    atMost('an installation takes', 'MiB', bytes / 2 ** 20, 100),
  ];
}
