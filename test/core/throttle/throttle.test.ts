import { join } from 'node:path';
import t, { type Test } from 'tap';
import {
  addressBlock,
  isLoopbackAddress,
  isPrivateAddress,
  plainAddress,
} from '../../../src/core/kernel/addresses.js';
import { HOUR, MINUTE } from '../../../src/core/kernel/clock.js';
import type { AppError } from '../../../src/core/kernel/errors.js';
import { createAudit } from '../../../src/core/ops/audit.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { createRequestCount } from '../../../src/core/throttle/requests.js';
import { createThrottle, fixedWindow, type Throttle } from '../../../src/core/throttle/throttle.js';
import { auditOf } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';

const SECOND = 1000;
const DAY = 24 * HOUR;
const VICTIM = 'victim@example.test';
const HOME = '192.0.2.1';

/** One of a large number of addresses. */
const address = (index: number) => `10.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}`;

/** A separate process on the store: with empty memory and its own connection. */
async function newProcess(t: Test, uri: string, { clock = fakeClock(), production = true } = {}) {
  const store = await openStore(uri);
  t.teardown(() => store.close());
  const audit = createAudit(store, { clock, random: countedRandom(uri), log: { error: () => undefined } });
  const throttle = createThrottle(store, { clock, audit, secret: 's', production, limits: undefined });
  return { throttle, store, clock };
}

/** The seconds to wait if refused, or the result of the guess. */
type Outcome = 'right' | 'wrong' | number;

async function guess(throttle: Throttle, ip: string, isRight = false, account = VICTIM): Promise<Outcome> {
  return throttle
    .attempt({ account, ip }, async () => (isRight ? true : null))
    .then(
      (found) => (found ? 'right' : 'wrong'),
      (error: AppError) => {
        if (error.code !== 'RATE_LIMITED') throw error;
        return Number(error.headers['retry-after']);
      },
    );
}

const many = <T>(count: number, call: (index: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, (_, index) => call(index)));

const countOf = (outcomes: Outcome[], what: Outcome) => outcomes.filter((outcome) => outcome === what).length;

t.test('an IPv4 address counts by itself, an IPv6 address by its /64', async (t) => {
  for (const [ip, block] of [
    ['203.0.113.7', '203.0.113.7'],
    ['::ffff:203.0.113.7', '203.0.113.7'],
    ['::FFFF:cb00:7107', '203.0.113.7'],
    ['0:0:0:0:0:ffff:203.0.113.7', '203.0.113.7'],
    ['2001:db8:0:1::', '2001:db8:0:1::/64'],
    ['2001:DB8:0:0001:ffff:ffff:ffff:ffff', '2001:db8:0:1::/64'],
    ['2001:db8::2:0:0:0:1', '2001:db8:0:2::/64'],
    ['2001:db8:0:1:0:ffff:203.0.113.7', '2001:db8:0:1::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['::', '0:0:0:0::/64'],
    [undefined, 'unknown'],
    ['', 'unknown'],
    ['a', 'unknown'],
    ['203.0.113.7:80', 'unknown'],
    ['203.0.113.07', 'unknown'],
    ['1'.repeat(1000), 'unknown'],
  ] as const) {
    t.equal(addressBlock(ip), block, `${ip}`);
  }
  for (const ip of ['127.0.0.1', '127.8.9.1', '::1', '::ffff:127.0.0.1']) t.ok(isLoopbackAddress(ip), ip);
  for (const ip of ['128.0.0.1', '::2', '10.0.0.1', 'localhost', undefined]) {
    t.notOk(isLoopbackAddress(ip), `${ip}`);
  }
});

t.test('an address has one normal form, without a port added by a proxy', async (t) => {
  for (const [text, address] of [
    ['203.0.113.7', '203.0.113.7'],
    ['203.0.113.7:51234', '203.0.113.7'],
    ['::ffff:203.0.113.7', '203.0.113.7'],
    ['[::FFFF:203.0.113.7]:80', '203.0.113.7'],
    ['2001:db8::7', '2001:db8::7'],
    ['[2001:db8::7]', '2001:db8::7'],
    ['[2001:db8::7]:443', '2001:db8::7'],
    [undefined, 'unknown'],
    ['', 'unknown'],
    ['a', 'unknown'],
    ['203.0.113.7:', 'unknown'],
    ['203.0.113.7:80:80', 'unknown'],
    ['[203.0.113.7', 'unknown'],
    ['1.2.3:80', 'unknown'],
    ['203.0.113.7\n', 'unknown'],
  ] as const) {
    t.equal(plainAddress(text), address, `${text}`);
  }
});

t.test('private and reserved networks are recognized', async (t) => {
  const inside =
    '127.0.0.1 10.9.8.7 172.31.255.255 192.168.1.1 100.127.0.1 169.254.1.1 ::1 fd12::1 fe80::1%eth0';
  for (const ip of inside.split(' ')) t.ok(isPrivateAddress(ip), ip);
  for (const ip of '172.32.0.1 100.128.0.1 11.0.0.1 203.0.113.7 2001:db8::1 ::2 unknown'.split(' ')) {
    t.notOk(isPrivateAddress(ip), ip);
  }
});

t.test('requests are counted per block and minute, even in a flood of addresses', async (t) => {
  const clock = fakeClock();
  const refusalOf = createRequestCount({ most: 300, window: MINUTE, blocks: 1000 }, clock);
  for (let count = 0; count < 300; count++) t.notOk(refusalOf(HOME));
  t.match(refusalOf(HOME), { code: 'RATE_LIMITED', headers: { 'retry-after': '60' } });
  const newcomers = Array.from({ length: 20_000 }, (_, index) => refusalOf(address(index)));
  t.same(new Set(newcomers), new Set([undefined]), 'newcomers are let in');
  t.ok(refusalOf(HOME), 'the one that asked too much is still known');
  clock.advance(59_001);
  t.match(refusalOf(HOME), { headers: { 'retry-after': '1' } });
  clock.advance(999);
  t.notOk(refusalOf(HOME));
  clock.advance(-HOUR);
  t.notOk(refusalOf(HOME), 'a clock set back causes no refusals');

  for (let index = 0; index < 1000; index++) {
    for (let count = 0; count <= 300; count++) refusalOf(address(index));
  }
  t.notOk(refusalOf('203.0.113.7'), 'where all room is taken by the refused, newcomers are let in');
  t.ok(refusalOf(address(999)));
});

t.test('at most 100 guesses in any 24 hours are evaluated, from any number of addresses', async (t) => {
  const uri = `sqlite:${join(temporaryFolder(t), 'day.db')}`;
  const { clock, ...first } = await newProcess(t, uri);
  t.equal(await guess(first.throttle, HOME, true), 'right', 'the owner has been here before');

  const started = clock.now();
  let processes = [first.throttle, (await newProcess(t, uri, { clock })).throttle];
  const evaluatedAt: number[] = [];
  let [sources, visits] = [0, 0];
  while (clock.now() - started < 2 * DAY && evaluatedAt.length < 200) {
    const outcomes = await many(10, () => guess(processes[sources % 2] as Throttle, address(sources++)));
    evaluatedAt.push(...Array(countOf(outcomes, 'wrong')).fill(clock.now()));
    const owner = await guess(processes[visits++ % 2] as Throttle, HOME, true);
    t.equal(owner, 'right');
    const waits = outcomes.filter((outcome) => typeof outcome === 'number');
    if (waits.length > 0) clock.advance(Math.min(...waits) * SECOND);
    if (visits % 20 === 0)
      processes = [processes[1] as Throttle, (await newProcess(t, uri, { clock })).throttle];
  }
  t.comment(`${sources} guesses, ${evaluatedAt.length} evaluated, ${visits} visits of the owner`);
  const days = evaluatedAt.map((from) => evaluatedAt.filter((at) => at >= from && at <= from + DAY).length);
  t.equal(Math.max(...days), 100);
  t.equal(evaluatedAt.filter((at) => at === started).length, 60, 'so many at once');
});

t.test('process clocks that differ by minutes allow no further guesses', async (t) => {
  const uri = `sqlite:${join(temporaryFolder(t), 'skew.db')}`;
  const ahead = fakeClock();
  ahead.advance(4 * MINUTE);
  const processes = [await newProcess(t, uri, { clock: ahead }), await newProcess(t, uri)];
  const alternately = async (count: number, from: (index: number) => string, account: string) => {
    const outcomes: Outcome[] = [];
    for (let index = 0; index < count; index++) {
      const { throttle } = processes[index % 2] as (typeof processes)[number];
      outcomes.push(await guess(throttle, from(index), false, account));
    }
    return countOf(outcomes, 'wrong');
  };
  // The process whose clock is ahead guesses first.
  t.equal(await alternately(200, address, 'budget'), 60);
  // By its clock, the delays after the tenth and the eleventh guess have already ended.
  t.ok((await alternately(100, () => HOME, 'source')) <= 12);
});

t.test('guesses from one address block never block the owner elsewhere', async (t) => {
  const { throttle, clock } = await newProcess(t, 'sqlite::memory:');
  const started = clock.now();
  const evaluated: number[] = [0, 0, 0];
  let fresh = 0;
  while (clock.now() - started < 3 * DAY) {
    const day = Math.floor((clock.now() - started) / DAY);
    const outcome = await guess(throttle, '2001:db8::1');
    if (outcome === 'wrong') evaluated[day] = (evaluated[day] ?? 0) + 1;
    t.equal(await guess(throttle, address(fresh++), true), 'right', 'the owner at a new place');
    if (typeof outcome === 'number') {
      t.type(await guess(throttle, '2001:db8::ffff', true), 'number', 'where right and wrong wait alike');
      clock.advance(outcome * SECOND);
    }
  }
  t.same(evaluated, [22, 6, 6]);
});

t.test('guesses from one IPv6 network never block the owner elsewhere', async (t) => {
  const { throttle, clock } = await newProcess(t, 'sqlite::memory:');
  const started = clock.now();
  let [evaluated, blocks, fresh] = [0, 0, 0];
  while (clock.now() - started < DAY) {
    const outcomes = await many(10, () => guess(throttle, `2001:db8:1:${(blocks++).toString(16)}::1`));
    evaluated += countOf(outcomes, 'wrong');
    t.equal(await guess(throttle, `2001:db8:2:${(fresh++).toString(16)}::1`, true), 'right');
    const waits = outcomes.filter((outcome) => typeof outcome === 'number');
    if (waits.length > 0) clock.advance(Math.min(...waits) * SECOND);
  }
  t.equal(evaluated, 20 + 11);
  t.equal(await guess(throttle, address(1), true), 'right');
});

/** The throttles of four processes on one store. */
async function fourProcesses(t: Test) {
  const uri = `sqlite:${join(temporaryFolder(t), 'shared.db')}`;
  const clock = fakeClock();
  const processes: Throttle[] = [];
  for (let count = 0; count < 4; count++) processes.push((await newProcess(t, uri, { clock })).throttle);
  return { clock, pick: (index: number) => processes[index % 4] as Throttle };
}

t.test('concurrent right guesses from a new address are never refused', async (t) => {
  const { pick } = await fourProcesses(t);
  for (let count = 0; count < 9; count++) await guess(pick(0), HOME);
  const outcomes = await many(30, (index) => guess(pick(index), HOME, true));
  t.equal(countOf(outcomes, 'right'), 30);
  t.equal(await guess(pick(1), HOME), 'wrong', 'the tenth that is wrong');
  t.equal(await guess(pick(2), HOME, true), 60, 'no wrong one was forgiven');
});

t.test('concurrent guesses are counted before any is evaluated', async (t) => {
  const { clock, pick } = await fourProcesses(t);
  const guesses = await many(500, (index) => guess(pick(index), address(index)));
  t.equal(countOf(guesses, 'wrong'), 60);
  t.equal(countOf(guesses, 'right'), 0);
  for (const account of ['known', 'unknown']) {
    if (account === 'known') await pick(0).trust(account, HOME);
    const fromOne = await many(100, (index) => guess(pick(index), HOME, false, account));
    t.equal(countOf(fromOne, 'wrong'), 10, `from one address, ${account} to the account`);
    clock.advance(MINUTE);
    const next = await many(16, (index) => guess(pick(index), HOME, false, account));
    t.equal(countOf(next, 'wrong'), 1, 'after the delay: one');
  }
  const limit = fixedWindow('volume', 30, MINUTE);
  const isCounted = (index: number) =>
    pick(index)
      .count(limit, '2001:db8::1')
      .then(
        () => true,
        () => false,
      );
  const counted = await many(500, isCounted);
  t.equal(counted.filter(Boolean).length, 30, 'exactly as many as there is room for');
  t.same(await many(2, (index) => pick(index).tryCountKey(limit, 'a', HOME)), [true, true]);

  const operators = await Promise.allSettled(
    Array.from({ length: 100 }, () => pick(0).attemptAsOperator(HOME, async () => null)),
  );
  t.equal(operators.filter(({ status }) => status === 'fulfilled').length, 10);
});

t.test('a known source is limited only by its own failures', async (t) => {
  const { throttle, clock, store } = await newProcess(t, 'sqlite::memory:');
  t.equal(await guess(throttle, HOME, true), 'right');
  for (let index = 0; index < 61; index++) await guess(throttle, address(index));
  t.equal(
    await guess(throttle, '203.0.113.7', true),
    36 * 60,
    'strangers wait, also with the right password',
  );
  t.equal(
    countOf(await many(200, () => guess(throttle, HOME, true)), 'right'),
    200,
    'right ones at once are all let in',
  );

  const wrong = await many(100, () => guess(throttle, HOME));
  t.equal(countOf(wrong, 'wrong'), 10, 'ten wrong ones');
  t.equal(await guess(throttle, HOME, true), 60, 'then right and wrong wait alike');
  clock.advance(MINUTE);
  t.equal(await guess(throttle, HOME, true), 'right');
  t.equal(countOf(await many(100, () => guess(throttle, HOME)), 'wrong'), 1, 'a success forgives no failure');
  clock.advance(DAY);
  t.equal(countOf(await many(100, () => guess(throttle, HOME)), 'wrong'), 10, 'a day without one does');

  await throttle.trust(VICTIM, '2001:db8::1');
  t.equal(
    await guess(throttle, '2001:db8::ffff', true),
    'right',
    'a link that was sent to the owner makes a source known, too',
  );
  clock.advance(31 * DAY);
  for (let index = 0; index < 61; index++) await guess(throttle, address(index));
  t.type(await guess(throttle, '2001:db8::ffff', true), 'number', 'which is forgotten after 30 days');
  t.notMatch(
    JSON.stringify(await everything(store)),
    /192\.0\.2\.1|2001:db8|victim/,
    'neither names nor addresses are stored',
  );
});

t.test('a right guess removes its own count and no other', async (t) => {
  const { throttle } = await newProcess(t, 'sqlite::memory:');
  for (let index = 0; index < 80; index++) t.equal(await guess(throttle, address(index), true), 'right');
  for (let index = 0; index < 80; index++) {
    const failing = throttle.attempt({ account: 'a', ip: HOME }, async () => {
      throw new Error('the store is down');
    });
    await t.rejects(failing, /the store is down/, 'what was never evaluated is taken back, too');
  }
  // Right and wrong guesses, alternating and concurrent.
  const wrong: Outcome[] = [];
  for (let index = 0; index < 12; index++) {
    wrong.push(...(await many(2, (own) => guess(throttle, HOME, own === 0, 'b'))));
  }
  t.equal(countOf(wrong, 'wrong'), 10);
  t.equal(countOf(wrong, 'right'), 10);
  const strangers: Outcome[] = [];
  for (let index = 0; index < 70; index++) {
    strangers.push(await guess(throttle, address(1000 + 2 * index), false));
    strangers.push(await guess(throttle, address(1001 + 2 * index), true));
  }
  t.equal(countOf(strangers, 'wrong'), 60, 'the same holds for the budget of the account');
});

t.test('a guess cut off by the end of its process counts as a failure', async (t) => {
  const uri = `sqlite:${join(temporaryFolder(t), 'dead.db')}`;
  const { throttle, clock } = await newProcess(t, uri);
  for (let count = 0; count < 9; count++) await guess(throttle, HOME);
  void throttle.attempt({ account: VICTIM, ip: HOME }, () => new Promise(() => undefined));
  const other = (await newProcess(t, uri, { clock })).throttle;
  const isCounted = async () => (await guess(throttle, address(1), true)) === 'right';
  await waitUntil('the unfinished guess is counted', isCounted);
  clock.advance(11 * SECOND);
  t.equal(await guess(other, HOME, true), 49, 'taken for a failure');
  clock.advance(49 * SECOND);
  t.equal(await guess(other, HOME, true), 'right');
});

t.test('a refusal has Retry-After, is audited, and no clock change prolongs it', async (t) => {
  const { throttle, clock, store } = await newProcess(t, 'sqlite::memory:');
  for (let count = 0; count < 15; count++) {
    let wait: Outcome = await guess(throttle, HOME);
    while (typeof wait === 'number') {
      clock.advance(wait * SECOND - 1);
      t.equal(await guess(throttle, HOME), 1, `not before ${wait} s`);
      clock.advance(1);
      wait = await guess(throttle, HOME);
    }
  }
  for (let count = 0; count < 1000; count++) t.type(await guess(throttle, HOME), 'number');
  const hits = (await auditOf(store)).filter(({ event }) => event === 'throttle.hit');
  t.match(hits[0], { detail: 'guesses.source', ip: HOME });
  t.equal(hits.length, 10, 'of a flood of refusals, ten per hour and address');

  clock.advance(-HOUR - DAY);
  t.equal(await guess(throttle, HOME), 'wrong', 'a count from the future has no effect');

  clock.advance(5 * DAY);
  const purged = await throttle.purge(new AbortController().signal);
  t.ok(purged.removed > 0);
  t.equal(await store.collection('throttles', COUNTERS).count(), 0);
});

t.test('a right 256-bit secret is always accepted, and wrong ones are counted', async (t) => {
  const { throttle } = await newProcess(t, 'sqlite::memory:');
  const attempt = (kind: 'agent' | 'client', isRight: boolean, account = VICTIM) =>
    throttle
      .attempt(
        { account, ip: HOME, kind, perAddress: fixedWindow(`failures.${kind}`, 15, MINUTE) },
        async () => (isRight ? true : null),
      )
      .catch((error: AppError) => error.code);
  const wrong = await many(100, () => attempt('agent', false));
  t.equal(wrong.filter((outcome) => outcome === null).length, 10);
  t.equal(await attempt('agent', false), 'RATE_LIMITED');
  t.equal(await attempt('agent', true), true);
  t.equal(await attempt('client', false), null, 'of the other kind');
  t.equal(await guess(throttle, HOME), 'wrong', 'nor are passwords');
  const others = await many(10, (index) => attempt('client', false, `${index}`));
  const more = await many(10, (index) => attempt('client', false, `${10 + index}`));
  t.equal(
    [...others, ...more].filter((outcome) => outcome === null).length,
    14,
    'the address has a limit, too',
  );
  t.equal(await attempt('client', true, 'nobody else'), true);
});

const COUNTERS = { numbers: ['count', 'until', 'pending', 'expiresAt'], indexes: [['expiresAt']] } as never;

async function everything(store: Store): Promise<unknown[]> {
  const counters = await store.collection('throttles', COUNTERS).page({ sort: 'id', limit: 1000 });
  const sources = await store
    .collection('knownSources', { numbers: ['expiresAt'], indexes: [['expiresAt'], ['account']] } as never)
    .page({ sort: 'id', limit: 1000 });
  return [...counters.items, ...sources.items];
}
