import { once } from 'node:events';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { createJobs, type Job, type Lease } from '../../../src/core/ops/jobs.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { type FakeClock, fakeClock } from '../../kit/clock.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { gate } from '../../kit/wait.js';

const LEASE = 30_000;

interface Line {
  level: string;
  words: string;
}

const leasesOf = (store: Store) =>
  store.collection<{ id: string; until: number; term: number; owner: string; dueAt: number }>('leases', {
    fields: ['owner'],
    numbers: ['until', 'term', 'dueAt'],
  });

/** A store and the jobs of any number of processes on it. */
async function laboratory(t: Test, clock: FakeClock = fakeClock()) {
  const store = await openStore(`sqlite:${join(temporaryFolder(t), 'jobs.db')}`);
  const lines: Line[] = [];
  const say = (level: string) => (_: object, words: string) => void lines.push({ level, words });
  const log = { info: say('info'), warn: say('warn'), error: say('error') } as never;
  let processes = 0;
  const newJobs = (leaseMs?: number) => {
    const random = countedRandom(`process ${processes++}`);
    const jobs = createJobs(store, { clock, random, log, ...(leaseMs !== undefined && { leaseMs }) });
    t.teardown(() => jobs.stop());
    return jobs;
  };
  t.teardown(() => store.close());
  return { store, clock, lines, newJobs };
}

t.test('two processes run a job once per interval, and again on request', async (t) => {
  const { clock, newJobs } = await laboratory(t);
  const terms: number[] = [];
  const job: Job = { everySeconds: 3600, run: async ({ term }) => void terms.push(term) };
  const [one, two] = [newJobs(), newJobs()];
  for (const jobs of [one, two]) jobs.add('work', job);

  // A start runs what is due; requesting another run waits for it.
  const done = gate();
  one.add('last', { everySeconds: 3600, run: async () => done.open() });
  one.start();
  one.start();
  await done.opened;
  await one.stop();
  t.same(terms, [1]);

  const third = newJobs();
  const looked = gate();
  third.add('work', job);
  third.add('other', { everySeconds: 3600, run: async () => looked.open() });
  third.start();
  await looked.opened;
  await third.stop();
  t.same(terms, [1], 'it was not due');

  await two.runNow('work');
  t.same(terms, [1, 2]);
  clock.advance(3_599_000);
  two.start();
  await two.stop();
  t.same(terms, [1, 2, 3], 'a timer that is a second early does not miss its turn');
  await two.runNow('work');
  t.same(terms, [1, 2, 3], 'a stopped process begins nothing');
});

t.test('of processes that run a job at the same time, one does at a time', async (t) => {
  const { newJobs } = await laboratory(t);
  let [running, most, runs] = [0, 0, 0];
  const job: Job = {
    everySeconds: 3600,
    async run() {
      most = Math.max(most, ++running);
      for (let turn = 0; turn < 10; turn++) await setImmediate();
      running--;
      runs++;
    },
  };
  const processes = Array.from({ length: 4 }, () => newJobs());
  for (const jobs of processes) jobs.add('work', job);
  for (let round = 0; round < 10; round++) await Promise.all(processes.map((jobs) => jobs.runNow('work')));
  t.equal(most, 1);
  t.ok(runs >= 10, `${runs} runs`);
});

t.test('after the lease another process takes over, and writes of the first are refused', async (t) => {
  const { store, clock, newJobs } = await laboratory(t);
  const effects = store.collection<{ id: string; term: number; by: string }>('effects', {
    numbers: ['term'],
  });
  await effects.insert({ id: 'one', term: 0, by: 'nobody' });
  const apply = (term: number, by: string) =>
    effects.updateOne({ id: 'one', term: { lt: term } }, { set: { term, by } });

  const [slow, quick] = [newJobs(), newJobs()];
  const [holds, goesOn] = [gate(), gate()];
  slow.add('work', {
    everySeconds: 60,
    async run({ term }) {
      holds.open();
      await goesOn.opened;
      t.equal(await apply(term, 'slow'), null, 'the effect of an older term');
    },
  });
  quick.add('work', { everySeconds: 60, run: async ({ term }) => void (await apply(term, 'quick')) });

  const slowRun = slow.runNow('work');
  await holds.opened;
  clock.advance(LEASE - 1);
  await quick.runNow('work');
  t.match(await effects.findOne({ id: 'one' }), { term: 0 }, 'the lease still holds');
  clock.advance(1);
  await quick.runNow('work');
  t.match(await effects.findOne({ id: 'one' }), { term: 2, by: 'quick' });
  goesOn.open();
  await slowRun;
  t.match(await effects.findOne({ id: 'one' }), { term: 2, by: 'quick' });

  await quick.runNow('work');
  t.match(await effects.findOne({ id: 'one' }), { term: 3 }, 'the late end of the first freed nothing');
});

t.test('a long run renews its lease, and is aborted when it loses it', async (t) => {
  const { store, clock, newJobs } = await laboratory(t);
  // The timers of jobs keep no process alive, and nothing else is under way here.
  const awake = setInterval(() => undefined, 1000);
  t.teardown(() => clearInterval(awake));
  const leases = leasesOf(store);
  const short = 30;
  const [long, other] = [newJobs(short), newJobs(short)];
  const started = gate();
  let lost = false;
  long.add('work', {
    everySeconds: 60,
    async run({ signal }) {
      started.open();
      await once(signal, 'abort');
      lost = true;
    },
  });
  other.add('work', { everySeconds: 60, run: async () => void t.fail('the lease was kept') });
  const run = long.runNow('work');
  await started.opened;
  clock.advance(short - 1);
  for (;;) {
    const held = await leases.findOne({ id: 'work' });
    if (held && held.until === clock.now() + short) break;
    await setImmediate();
  }
  clock.advance(short - 1);
  await other.runNow('work');
  t.equal(lost, false);
  await leases.updateOne({ id: 'work' }, { set: { owner: 'somebody else' }, inc: { term: 1 } });
  await run;
  t.equal(lost, true);
});

t.test('a failing run is logged once and retried', async (t) => {
  const { clock, lines, newJobs } = await laboratory(t);
  const jobs = newJobs();
  let attempts = 0;
  jobs.add('work', {
    everySeconds: 60,
    async run() {
      if (++attempts < 3) throw new Error('broken');
    },
  });
  await jobs.runNow('work');
  await jobs.runNow('work');
  t.same(lines, [{ level: 'error', words: 'background job failed and will be retried' }]);
  const other = newJobs();
  other.add('work', { everySeconds: 60, run: async () => void attempts++ });
  clock.advance(1);
  other.start();
  await other.stop();
  t.equal(attempts, 3, 'it is due for the next process');
  await jobs.runNow('work');
  t.equal(attempts, 4);
  t.match(lines[1], { level: 'info', words: 'background job succeeds again' });
  t.equal(lines.length, 2);
});

t.test('a job requested while it runs runs once more, and a stop waits for it', async (t) => {
  const { newJobs } = await laboratory(t);
  const jobs = newJobs();
  const gates = [gate(), gate()];
  const runs: Lease[] = [];
  const begun = [gate(), gate(), gate()];
  jobs.add('work', {
    everySeconds: 60,
    async run(lease) {
      const number = runs.push(lease) - 1;
      begun[number]?.open();
      await gates[number]?.opened;
    },
  });
  const first = jobs.runNow('work');
  await begun[0]?.opened;
  const more = Array.from({ length: 10 }, () => jobs.runNow('work'));
  gates[0]?.open();
  await first;
  await begun[1]?.opened;
  t.equal(runs.length, 2);
  const after = jobs.runNow('work');
  const stopped = jobs.stop();
  t.equal(runs[1]?.signal.aborted, true);
  gates[1]?.open();
  await Promise.all([...more, after, stopped]);
  t.equal(runs.length, 2, 'nothing was begun after the stop');
  t.throws(() => jobs.runNow('other'), /no job 'other'/);
  t.throws(() => jobs.add('work', { everySeconds: 1, run: async () => {} }), /already/);
});

t.test('an incomplete run is followed at once by the next, and the backlog is logged', async (t) => {
  const { clock, lines, newJobs } = await laboratory(t);
  const jobs = newJobs();
  const done = gate();
  const terms: number[] = [];
  jobs.add('purge', {
    everySeconds: 3600,
    async run({ term }) {
      terms.push(term);
      if (term === 3) done.open();
      return { removed: 10, isComplete: term >= 3 };
    },
  });
  jobs.start();
  await done.opened;
  await jobs.runNow('purge');
  t.same(terms, [1, 2, 3, 4]);
  const behind = { level: 'info', words: 'purge continues: expired documents remain' };
  t.same(lines, [behind, behind, { level: 'info', words: 'purge has caught up' }]);

  const other = newJobs();
  other.add('purge', { everySeconds: 3600, run: async () => void t.fail('a complete run is not due again') });
  clock.advance(3_500_000);
  other.start();
  await other.stop();
});

t.test('an incomplete run that is stopped leaves the job to other processes', async (t) => {
  const { clock, newJobs } = await laboratory(t);
  const [one, two] = [newJobs(), newJobs()];
  let runs = 0;
  one.add('purge', {
    everySeconds: 3600,
    async run() {
      runs++;
      void one.stop();
      return { removed: 1, isComplete: false };
    },
  });
  await one.runNow('purge');
  t.equal(runs, 1, 'a stopped process begins nothing');
  two.add('purge', { everySeconds: 3600, run: async () => void runs++ });
  clock.advance(1);
  two.start();
  await two.stop();
  t.equal(runs, 2);
});

t.test('processes check every minute whether an hourly job has failed', async (t) => {
  const timers: { period: number; run: () => void }[] = [];
  const every = (period: number, run: () => void) => {
    timers.push({ period, run });
    return () => {};
  };
  const { store, clock, newJobs } = await laboratory(t, { ...fakeClock(), every });
  const jobs = newJobs();
  const leases = leasesOf(store);
  const runs = [gate(), gate()];
  let count = 0;
  jobs.add('purge', {
    everySeconds: 3600,
    async run() {
      runs[count]?.open();
      if (++count === 1) throw new Error('the store does not respond');
    },
  });
  jobs.start();
  await runs[0]?.opened;
  t.same(
    timers.map(({ period }) => period),
    [60_000],
  );
  const check = async () => {
    // The failed run ends with its lease.
    while ((await leases.findOne({ id: 'purge', until: { lte: clock.now() } })) === null)
      await setImmediate();
    await setImmediate();
    clock.advance(60_000);
    timers[0]?.run();
  };
  await check();
  await runs[1]?.opened;
  await check();
  await jobs.stop();
  t.equal(count, 2, 'after a success the job is due in an hour');
});
