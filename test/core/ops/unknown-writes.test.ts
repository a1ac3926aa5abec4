import t from 'tap';
import { createUnknownWrites } from '../../../src/core/ops/unknown-writes.js';
import { StoreUnavailable } from '../../../src/core/storage/collection.js';
import { fakeClock } from '../../kit/clock.js';

/** An outage cannot fill the memory of a process with writes whose outcome is unknown. */

const UNKNOWN = new StoreUnavailable('no response', { mayHaveTakenEffect: true });

function registry() {
  const logged: unknown[][] = [];
  const clock = { now: fakeClock().now, every: () => () => undefined };
  const log = { error: (...line: unknown[]) => void logged.push(line) };
  return { logged, unknownWrites: createUnknownWrites({ clock, log }) };
}

t.test('ten thousand keys of all kinds are remembered; a further one replaces the oldest', async (t) => {
  const { logged, unknownWrites } = registry();
  const silent = unknownWrites.track<number>('silent', async () => true);
  const reported = unknownWrites.track<number>('reported', async () => true, 'lost');
  reported.remember('0', 0, UNKNOWN);
  silent.remember('1', 1, UNKNOWN);
  for (let key = 2; key < 10_000; key++) reported.remember(String(key), key, UNKNOWN);
  t.strictSame(logged, []);

  silent.remember('10000', 10_000, UNKNOWN);
  t.notOk(await reported.settle('0'), 'the oldest key is dropped, whatever its kind');
  t.strictSame(logged, [[{ count: 1, lost: [0] }, 'lost']]);

  silent.remember('10001', 10_001, UNKNOWN);
  t.notOk(await silent.settle('1'));
  t.ok(await reported.settle('2'));
  t.equal(logged.length, 1, 'a harmless loss is not logged');
});

t.test('a key has 32 attempts at most', async (t) => {
  const { unknownWrites } = registry();
  let settled: number[] = [];
  const writes = unknownWrites.track<number>('write', async (attempts) => {
    settled = [...attempts];
    return true;
  });
  for (let attempt = 0; attempt < 40; attempt++) writes.remember('key', attempt, UNKNOWN);
  await unknownWrites.settleAll();
  t.strictSame(
    settled,
    Array.from({ length: 32 }, (_, attempt) => attempt),
  );
  t.notOk(await writes.settle('key'), 'a settled key takes no memory');
});

t.test('a write whose outcome is known is not remembered', async (t) => {
  const { unknownWrites } = registry();
  const writes = unknownWrites.track<number>('write', async () => true);
  writes.remember('refused', 1, new Error('refused'));
  writes.remember('unsent', 1, new StoreUnavailable('not sent'));
  t.notOk(await writes.settle('refused'));
  t.notOk(await writes.settle('unsent'));
});
