import t, { type Test } from 'tap';
import { auditCollection, createAudit } from '../../../src/core/ops/audit.js';
import { followAudit } from '../../../src/core/ops/audit-reader.js';
import { createUnknownWrites } from '../../../src/core/ops/unknown-writes.js';
import { StoreUnavailable } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { auditOf, saasApp, storeOf } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { countedRandom } from '../../kit/random.js';

/** The audit stays readable and bounded: failures are summarised, and old records are removed. */

const SECOND = 1000;
const HOUR = 3_600_000;
const DAY = 24 * HOUR;

async function auditOn(t: Test) {
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const clock = fakeClock();
  const log = { error: (problem: unknown) => t.fail(String(problem)) };
  const audit = createAudit(store, { clock, random: countedRandom(), log });
  const records = auditCollection(store);
  const list = async () => (await records.page({ sort: 'id', limit: 1000 })).items;
  return { audit, clock, list };
}

t.test('records of an outage are stored after it, and only lost ones are logged as lost', async (t) => {
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const collection = auditCollection(store);
  let outage: 'none' | 'lost' | 'unanswered' = 'none';
  const unavailable = () => new StoreUnavailable('no response', { mayHaveTakenEffect: true });
  const insert: typeof collection.insert = async (record) => {
    if (outage !== 'lost') await collection.insert(record);
    if (outage !== 'none') throw unavailable();
  };
  const failing = { ...store, collection: () => ({ ...collection, insert }) } as unknown as typeof store;
  const logged: unknown[] = [];
  const log = { error: (...line: unknown[]) => void logged.push(line) };
  const clock = { now: fakeClock().now, every: () => () => undefined };
  const unknownWrites = createUnknownWrites({ clock, log });
  const audit = createAudit(failing, { clock, random: countedRandom(), log, unknownWrites });
  const record = (event: string) => audit.record({ event, ip: '192.0.2.1' });
  const events = async () =>
    (await collection.page({ sort: 'id', limit: 10 })).items.map(({ event }) => event).sort();

  outage = 'unanswered';
  await record('first');
  outage = 'lost';
  await record('second');
  await unknownWrites.settleAll();
  t.strictSame(await events(), ['first']);
  outage = 'none';
  await unknownWrites.settleAll();
  t.strictSame(await events(), ['first', 'second']);
  t.strictSame(logged, []);

  outage = 'lost';
  for (const event of ['third', 'fourth']) await record(event);
  await unknownWrites.close();
  t.match(logged, [
    [{ count: 2, lost: [{ event: 'third' }, { event: 'fourth' }] }, 'audit records were lost'],
  ]);
  await record('fifth');
  t.match(logged[1], [{ count: 1, lost: [{ event: 'fifth' }] }, 'audit records were lost']);
});

const failure = (ip: string) => ({ event: 'login.failed', ip });

t.test('ten failures an hour of one address block are recorded, and the rest summarised', async (t) => {
  const { audit, clock, list } = await auditOn(t);
  for (let attempt = 0; attempt < 1000; attempt++) await audit.recordFailure(failure('2001:db8::1'));
  t.equal((await list()).length, 10);
  for (let attempt = 0; attempt < 7; attempt++) await audit.recordFailure(failure('2001:db8::2'));
  t.equal((await list()).length, 10, 'another address of the block changes nothing');
  await audit.recordFailure(failure('203.0.113.7'));
  t.equal((await list()).length, 11, 'another block has records of its own');
  clock.advance(HOUR);
  await audit.recordFailure(failure('203.0.113.7'));
  const added = (await list()).slice(11);
  t.equal(added.length, 2);
  t.match(
    added.find(({ count }) => count !== undefined),
    { event: 'login.failed', ip: '2001:db8:0:0::/64', count: 997 },
  );
  t.ok(
    added.some(({ ip, count }) => ip === '203.0.113.7' && count === undefined),
    'the next failure has a record of its own again',
  );
});

t.test('failures from many address blocks lead to a bounded number of records', async (t) => {
  const { audit, list } = await auditOn(t);
  for (let block = 0; block < 2000; block++)
    await audit.recordFailure(failure(`2001:db8:0:${block.toString(16)}::1`));
  t.equal((await list()).length, 500);
  await audit.close();
  const summaries = (await list()).filter(({ count }) => count !== undefined);
  t.equal(summaries.length, 101);
  t.equal(
    summaries.reduce((sum, { count = 0 }) => sum + count, 0),
    1500,
    'no failure is lost',
  );
  t.match(
    summaries.find(({ ip }) => ip === 'several'),
    { count: 1400 },
  );
});

t.test('a process that stops records its open summaries', async (t) => {
  const saas = await saasApp(t, { limits: false });
  const failures = async () =>
    (await auditOf(await storeOf(t, saas))).filter(({ event }) => event === 'login.failed');
  for (let attempt = 0; attempt < 30; attempt++) {
    await saas.request('POST', '/api/auth/login', {
      body: { email: 'user@example.test', password: `wrong ${attempt}` },
    });
  }
  t.equal((await failures()).length, 10);
  await saas.server.stop();
  t.ok((await failures()).some(({ count }) => count === 20));
});

t.test('records are removed after their retention', async (t) => {
  const { audit, clock, list } = await auditOn(t);
  for (let record = 0; record < 450; record++) await audit.record({ event: 'logout', ip: '203.0.113.7' });
  clock.advance(DAY);
  await audit.record({ event: 'password.changed', ip: '203.0.113.7' });
  const signal = new AbortController().signal;
  clock.advance(29 * DAY - 1);
  t.match(await audit.purge(30, signal), { removed: 0 }, 'not before their time');
  clock.advance(1);
  t.same(await audit.purge(30, signal), { removed: 450, isComplete: true });
  t.match(await list(), [{ event: 'password.changed' }]);
  t.match(
    await audit.purge(30, AbortSignal.abort()),
    { removed: 0, isComplete: false },
    'a process that stops removes nothing more',
  );
});

t.test('followed records are seen once, whatever the order of their IDs', async (t) => {
  const store = await openStore('sqlite::memory:');
  t.teardown(() => store.close());
  const records = auditCollection(store);
  const clock = fakeClock();
  const log = { error: (problem: unknown) => t.fail(String(problem)) };
  const writerAt = (skew: number, name: string) => {
    const own = { now: () => clock.now() + skew };
    return createAudit(store, { clock: own, random: countedRandom(name), log });
  };
  // Writers whose clocks differ, and records that are stored later than their time, in one millisecond and at random.
  const skews = [0, 0, 1, -2 * SECOND, -4 * 60 * SECOND, 50 * SECOND];
  const names = skews.map((_, index) => `writer ${index}`);
  const writers = names.map((name, index) => ({ name, audit: writerAt(skews[index] ?? 0, name) }));
  const expected = new Set<string>();
  const write = async (count: number) => {
    await Promise.all(
      writers.map(async ({ audit, name }) => {
        for (let n = 0; n < count; n++) {
          const event = `${name} ${expected.size}`;
          expected.add(event);
          await audit.record({ event, ip: '203.0.113.7' });
        }
      }),
    );
  };
  await write(20);
  expected.clear();
  const stopping = new AbortController();
  let rounds = 0;
  let writing = Promise.resolve();
  const pause = async () => {
    rounds++;
    clock.advance(SECOND);
    // Not awaited before the next round, so that it reads while others write.
    if (rounds < 40) writing = Promise.all([writing, write(3)]).then(() => undefined);
    else await writing;
    if (rounds === 100) stopping.abort();
    // A clock that is set back repeats nothing.
    if (rounds === 75) clock.advance(-3600 * SECOND);
  };
  const seen: string[] = [];
  const options = { last: 5, clock, signal: stopping.signal, pause };
  for await (const page of followAudit(records, options)) seen.push(...page.map(({ event }) => event));
  const added = seen.slice(5);
  t.equal(added.length, expected.size);
  t.same(new Set(added), expected);
});
