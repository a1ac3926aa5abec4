/**
 * Another process on the same store: `node worker.js '{ databaseUri, task, late, rounds }'`. Its clock is `late`
 * milliseconds behind, so that its lease ends sooner for the other processes.
 */
import { systemRandom } from '../../../src/core/kernel/secrets.js';
import { createJobs } from '../../../src/core/ops/jobs.js';
import { UniqueViolation } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';

const { databaseUri, task, late = 0, rounds = 0 } = JSON.parse(process.argv[2] ?? '{}');
const store = await openStore(databaseUri);
const counters = store.collection<{ id: string; count: number }>('counters', { fields: ['count'] });
const effects = store.collection<{ id: string; term: number }>('effects');
const jobs = createJobs(store, {
  clock: { now: () => Date.now() - late },
  random: systemRandom,
  log: { info() {}, warn() {}, error: ({ err }: { err: unknown }) => console.log('failed', err) } as never,
  leaseMs: 5_000,
});

let count = 0;
let own = 0;
jobs.add('count', {
  everySeconds: 3600,
  async run({ term }) {
    if (task === 'hang') {
      console.log(`holds term ${term}`);
      // Keeps the process alive and does not renew its lease.
      await new Promise(() => setInterval(() => undefined, 1000));
    }
    // Without the lease two processes read the same number, and one of them cannot write its effect.
    count = (await counters.findOne({ id: 'one' }))?.count ?? 0;
    if (count >= rounds) return;
    await effects.insert({ id: `effect-${count}`, term }).catch((error: unknown) => {
      if (error instanceof UniqueViolation) console.log(`collision at ${count}`);
      throw error;
    });
    await counters.updateOne({ id: 'one', count }, { inc: { count: 1 } });
    own++;
  },
});

process.once('SIGUSR2', async () => {
  while (count < rounds) await jobs.runNow('count');
  console.log(`done ${own}`);
  process.exit();
});
// Keeps the process alive until the signal.
setInterval(() => undefined, 1000);
await store.ready();
if (task === 'hang') await jobs.runNow('count');
console.log('ready');
