import { join } from 'node:path';
import t, { type Test } from 'tap';
import {
  addressBlock,
  isLoopbackAddress,
  isPrivateAddress,
  plainAddress,
} from '../../src/kernel/addresses.js';
import { HOUR, MINUTE } from '../../src/kernel/clock.js';
import type { AppError } from '../../src/kernel/errors.js';
import { createAudit } from '../../src/ops/audit.js';
import { atMost, createThrottle, type Throttle } from '../../src/ops/throttle.js';
import { createRequestCount } from '../../src/ops/throttle-requests.js';
import { type Store, StoreUnavailable } from '../../src/storage/collection.js';
import { openStore } from '../../src/storage/open.js';
import { auditOf } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { countedRandom } from '../kit/random.js';
import { temporaryFolder } from '../kit/tmp.js';
import { onMongod } from '../storage/mongod.js';

const SECOND = 1000;
const DAY = 24 * HOUR;
const VICTIM = 'victim@example.test';
const HOME = '192.0.2.1';

/** One of very many addresses. */
const address = (index: number) => `10.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}`;

/** A process of its own on the store: its memory is empty and its connection its own. */
async function newProcess(t: Test, uri: string, { clock = fakeClock(), production = true } = {}) {
  const store = await openStore(uri);
  t.teardown(() => store.close());
  const audit = createAudit(store, { clock, random: countedRandom(uri), log: { error: () => undefined } });
  const throttle = createThrottle(store, { clock, audit, secret: 's', production, limits: undefined });
  return { throttle, store, clock };
}

/** Seconds to wait where it was refused, or what the guess turned out to be. */
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

t.test('[17] an address counts as itself, an IPv6 one as its /64', async (t) => {
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

t.test('[17] an address has one name, without the port that a proxy put behind it', async (t) => {
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

t.test('which networks the public is not in', async (t) => {
  const inside =
    '127.0.0.1 10.9.8.7 172.31.255.255 192.168.1.1 100.127.0.1 169.254.1.1 ::1 fd12::1 fe80::1%eth0';
  for (const ip of inside.split(' ')) t.ok(isPrivateAddress(ip), ip);
  for (const ip of '172.32.0.1 100.128.0.1 11.0.0.1 203.0.113.7 2001:db8::1 ::2 unknown'.split(' ')) {
    t.notOk(isPrivateAddress(ip), ip);
  }
});

t.test('requests are counted per block and minute, and no flood of addresses makes room', async (t) => {
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
  t.notOk(refusalOf(HOME), 'a clock that is set back holds nobody up');

  for (let index = 0; index < 1000; index++) {
    for (let count = 0; count <= 300; count++) refusalOf(address(index));
  }
  t.notOk(refusalOf('203.0.113.7'), 'where all room is taken by the refused, newcomers are let in');
  t.ok(refusalOf(address(999)));
});

t.test(
  '[55][56][58] a day of guesses from 10,000 addresses evaluates 85, and the owner is never refused',
  async (t) => {
    const uri = `sqlite:${join(temporaryFolder(t), 'day.db')}`;
    const { clock, ...first } = await newProcess(t, uri);
    const junk = atMost('junk', 3, DAY);
    for (let done = 0; done < 20_000; done += 2000) {
      await many(2000, (index) => first.throttle.countFor(junk, `${done + index}`, address(index)));
    }
    t.equal(await guess(first.throttle, HOME, true), 'right', 'the owner has been here before');

    const started = clock.now();
    let processes = [first.throttle, (await newProcess(t, uri, { clock })).throttle];
    let [evaluated, sources, visits] = [0, 0, 0];
    while (clock.now() - started < DAY) {
      const outcomes = await many(8, () => guess(processes[sources % 2] as Throttle, address(sources++)));
      evaluated += countOf(outcomes, 'wrong');
      const owner = await many(5, () => guess(processes[visits++ % 2] as Throttle, HOME, true));
      t.equal(countOf(owner, 'right'), 5);
      const waits = outcomes.filter((outcome) => typeof outcome === 'number');
      clock.advance(Math.max(1, ...waits) * SECOND);
      if (visits % 100 === 0)
        processes = [processes[1] as Throttle, (await newProcess(t, uri, { clock })).throttle];
    }
    t.comment(
      `${sources} guesses from as many addresses, ${evaluated} evaluated, ${visits} visits of the owner`,
    );
    t.equal(evaluated, 85, '15 in 1,860 s, then one every 20 minutes');
  },
);

t.test('[58] guesses at once are paid for before any is evaluated', async (t) => {
  await bursts(t, () => `sqlite:${join(temporaryFolder(t), 'burst.db')}`);
});

await onMongod((server) => {
  t.test('[58] guesses at once are paid for before any is evaluated, on MongoDB', (t) =>
    bursts(t, () => server.fresh(t), persistently),
  );
});

/** A busy MongoDB refuses some of a burst, and those ask again. */
async function persistently<T>(call: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof StoreUnavailable) || tries === 5) throw error;
    }
  }
}

/** @param ask makes one call of a burst */
async function bursts(
  t: Test,
  fresh: () => string,
  ask: <T>(call: () => Promise<T>) => Promise<T> = (call) => call(),
): Promise<void> {
  const uri = fresh();
  const clock = fakeClock();
  const processes: Throttle[] = [];
  for (let count = 0; count < 4; count++) processes.push((await newProcess(t, uri, { clock })).throttle);
  const pick = (index: number) => processes[index % 4] as Throttle;

  const guesses = await many(500, (index) => ask(() => guess(pick(index), address(index))));
  t.equal(countOf(guesses, 'wrong'), 10);
  const limit = atMost('volume', 30, MINUTE);
  const counted = await Promise.allSettled(
    Array.from({ length: 500 }, (_, index) => ask(() => pick(index).count(limit, '2001:db8::1'))),
  );
  t.equal(
    counted.filter(({ status }) => status === 'fulfilled').length,
    30,
    'exactly as many as there is room for',
  );
  t.same(await many(2, (index) => pick(index).countFor(limit, 'a', HOME)), [true, true]);

  const operators = await many(100, (index) =>
    pick(0)
      .attemptAsOperator(HOME, async () => null)
      .then(
        () => index,
        () => -1,
      ),
  );
  t.equal(operators.filter((index) => index >= 0).length, 10);
}

t.test('[56] a source that is known is held up by its own failures only', async (t) => {
  const { throttle, clock, store } = await newProcess(t, 'sqlite::memory:');
  t.equal(await guess(throttle, HOME, true), 'right');
  for (let index = 0; index < 11; index++) await guess(throttle, address(index));
  t.equal(await guess(throttle, '203.0.113.7', true), 60, 'strangers wait, also with the right password');
  t.equal(
    countOf(await many(200, () => guess(throttle, HOME, true)), 'right'),
    200,
    'right ones at once are all let in',
  );

  const wrong = await many(100, () => guess(throttle, HOME));
  t.equal(countOf(wrong, 'wrong'), 10, 'ten per minute');
  t.equal(await guess(throttle, HOME, true), 60, 'then right and wrong wait alike');
  clock.advance(MINUTE);
  t.equal(await guess(throttle, HOME, true), 'right');
  t.equal(countOf(await many(100, () => guess(throttle, HOME)), 'wrong'), 10, 'a success begins anew');

  await throttle.trust(VICTIM, '2001:db8::1');
  t.equal(
    await guess(throttle, '2001:db8::ffff', true),
    'right',
    'so does a link that was sent to the owner',
  );
  for (let index = 0; index < 11; index++) await guess(throttle, address(index));
  clock.advance(31 * DAY);
  for (let index = 0; index < 11; index++) await guess(throttle, address(index));
  t.type(await guess(throttle, '2001:db8::ffff', true), 'number', 'which is forgotten after 30 days');
  t.notMatch(
    JSON.stringify(await everything(store)),
    /192\.0\.2\.1|2001:db8|victim/,
    'neither names nor addresses are stored',
  );
});

t.test('right guesses are given back, and so are those that were never evaluated', async (t) => {
  const { throttle } = await newProcess(t, 'sqlite::memory:');
  for (let index = 0; index < 50; index++) t.equal(await guess(throttle, address(index), true), 'right');
  for (let index = 0; index < 50; index++) {
    const failing = throttle.attempt({ account: 'a', ip: HOME }, async () => {
      throw new Error('the store is down');
    });
    await t.rejects(failing, /the store is down/);
  }
  const guesses = await many(20, (index) => guess(throttle, address(100 + index)));
  t.equal(countOf(guesses, 'wrong'), 10);
  t.equal(countOf(await many(20, (index) => guess(throttle, address(index), false, 'a')), 'wrong'), 10);
});

t.test('a refusal says when to come back, is audited once, and no clock makes it longer', async (t) => {
  const { throttle, clock, store } = await newProcess(t, 'sqlite::memory:');
  for (let count = 0; count < 15; count++) {
    let wait: Outcome = await guess(throttle, address(count));
    while (typeof wait === 'number') {
      clock.advance(wait * SECOND - 1);
      t.equal(await guess(throttle, address(count)), 1, `not before ${wait} s`);
      clock.advance(1);
      wait = await guess(throttle, address(count));
    }
  }
  const hits = (await auditOf(store)).filter(({ event }) => event === 'throttle.hit');
  t.equal(hits.length, 5, 'one for each delay');
  t.match(hits[0], { detail: 'guesses', ip: address(10) });

  t.type(await guess(throttle, address(99)), 'number');
  clock.advance(-HOUR - DAY);
  t.equal(await guess(throttle, address(99)), 'wrong', 'a count from the future binds nobody');

  clock.advance(5 * DAY);
  const purged = await throttle.purge(new AbortController().signal);
  t.ok(purged > 0);
  t.equal(await store.collection('throttles', COUNTERS).count(), 0);
});

t.test(
  'what has the shape of a random secret waits for no other source, and counts as a failure',
  async (t) => {
    const { throttle } = await newProcess(t, 'sqlite::memory:');
    const attempt = (ip: string, isRight: boolean) =>
      throttle
        .attempt({ account: VICTIM, ip, isUnguessable: true }, async () => (isRight ? true : null))
        .catch((error: AppError) => error.code);
    for (let index = 0; index < 20; index++) await guess(throttle, address(index));
    t.equal(await attempt(HOME, true), true);
    const wrong = await many(100, () => attempt(HOME, false));
    t.equal(wrong.filter((outcome) => outcome === null).length, 10);
    t.equal(await attempt(HOME, true), 'RATE_LIMITED', 'right and wrong look the same');
    t.equal(await guess(throttle, HOME), 60, 'and other passwords from there wait, too');
    t.equal(await attempt('203.0.113.7', true), true);
  },
);

const COUNTERS = { fields: ['count', 'until', 'told'], indexes: [['expiresAt']] } as never;

async function everything(store: Store): Promise<unknown[]> {
  const counters = await store.collection('throttles', COUNTERS).page({ sort: 'id', limit: 1000 });
  const sources = await store
    .collection('knownSources', { indexes: [['expiresAt']] } as never)
    .page({ sort: 'id', limit: 1000 });
  return [...counters.items, ...sources.items];
}
