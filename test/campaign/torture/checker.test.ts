/** The checker of the campaign (`npm run torture`) accepts possible histories and rejects impossible ones. */
import t from 'tap';
import { diceOf } from '../../kit/stripe-simulator.js';
import { check, PROTECTED_MS } from './checker.js';
import { longestGap } from './figures.js';
import type { Operation, Outcome, Rule } from './history.js';

const operation = (rule: Rule, more: Partial<Operation>): Operation => ({
  ...{ rule, key: 'k', kind: 'write', what: '', target: 'saas#0', start: 0, end: 1 },
  ...{ outcome: 'ok', detail: '200' },
  ...more,
});

/** `write 1 0-10`, `read 2 5-7`, `write 3 5-9 unknown` */
function register(...lines: string[]): Operation[] {
  return lines.map((line) => {
    const [kind, value, time, outcome = 'ok'] = line.split(' ') as [
      Operation['kind'],
      string,
      string,
      Outcome,
    ];
    const [start, end] = time.split('-').map(Number) as [number, number];
    return operation('register', { kind, value, start, end, outcome });
  });
}

const POSSIBLE: Record<string, string[]> = {
  'one after the other': ['write 1 0-1', 'read 1 2-3', 'write 2 4-5', 'read 2 6-7'],
  'a read during a write sees either value': ['write 1 0-1', 'write 2 2-9', 'read 1 3-4', 'read 2 5-6'],
  'concurrent writes in either order': ['write 1 0-9', 'write 2 0-9', 'read 1 10-11', 'read 1 12-13'],
  'an unanswered write took effect later': ['write 1 0-1', 'write 2 2-3 unknown', 'read 1 4-5', 'read 2 6-7'],
  'an unanswered write had no effect': ['write 1 0-1', 'write 2 2-3 unknown', 'read 1 4-5'],
  'an unanswered write took effect before another one': [
    ...['write 1 0-1', 'write 2 2-3 unknown', 'write 3 4-9', 'read 2 5-6', 'read 3 10-11'],
  ],
  'a refused write had no effect': ['write 1 0-1', 'write 2 2-3 refused', 'read 1 4-5'],
  'a value that is written twice': ['write 1 0-1', 'write 2 2-3', 'write 1 4-5', 'read 1 6-7'],
  'an unanswered read': ['write 1 0-1', 'read 7 2-3 unknown'],
};

const IMPOSSIBLE: Record<string, string[]> = {
  'a lost write': ['write 1 0-1', 'write 2 2-3', 'read 1 4-5'],
  'a stale read': ['write 1 0-1', 'write 2 2-3', 'read 2 4-5', 'read 1 6-7'],
  'a value that was never written': ['write 1 0-1', 'read 2 2-3'],
  'a value from the future': ['write 1 0-1', 'read 2 2-3', 'write 2 4-5'],
  'a refused write with an effect': ['write 1 0-1', 'write 2 2-3 refused', 'read 2 4-5'],
  'two orders of concurrent writes': ['write 1 0-9', 'write 2 0-9', 'read 1 10-11', 'read 2 12-13'],
  'a write that took effect and disappeared': [
    ...['write 1 0-1', 'write 2 2-3 unknown', 'read 2 4-5', 'read 1 6-7'],
  ],
  'an unanswered write that took effect twice': [
    ...['write 1 0-1', 'write 2 2-3 unknown', 'read 2 4-5', 'write 3 6-7', 'read 2 8-9'],
  ],
};

t.test('histories of a register that are possible are accepted', async (t) => {
  for (const [name, lines] of Object.entries(POSSIBLE)) t.strictSame(check(register(...lines)), [], name);
});

t.test('histories of a register that are impossible are rejected', async (t) => {
  for (const [name, lines] of Object.entries(IMPOSSIBLE)) {
    const [violation] = check(register(...lines));
    t.match(violation, { rule: 'register', key: 'k' }, name);
    t.ok(violation?.operations.length, `${name}: with its operations`);
  }
});

t.test('one wrong read among thousands of concurrent operations is found', async (t) => {
  const dice = diceOf(1);
  const history = register('write 0 0-1');
  let value = '0';
  // A real register, whose operations take effect at a moment between their beginning and their end.
  for (let time = 10; history.length < 4000; time += 10) {
    const span = { start: time - dice.whole(25), end: time + 1 + dice.whole(25) };
    const kind = dice.happens(0.4) ? 'write' : 'read';
    if (kind === 'write') value = String(time);
    const outcome = kind === 'write' && dice.happens(0.02) ? 'unknown' : 'ok';
    history.push(operation('register', { kind, value, outcome, ...span }));
  }
  t.strictSame(check(history), []);
  const reads = history.filter(({ kind }) => kind === 'read');
  const late = reads.at(-1) as Operation;
  late.value = reads[Math.floor(reads.length / 2)]?.value as string;
  t.equal(check(history).length, 1);
});

t.test('each rule rejects what it forbids', async (t) => {
  const cases: [string, Operation[], Operation[]][] = [
    [
      'a thing that is accepted twice',
      [
        operation('once', {}),
        operation('once', { outcome: 'unknown' }),
        operation('once', { outcome: 'refused' }),
      ],
      [operation('once', {}), operation('once', {})],
    ],
    [
      'two successors of one token',
      [operation('successor', { value: 'a' }), operation('successor', { value: 'a' })],
      [operation('successor', { value: 'a' }), operation('successor', { value: 'b' })],
    ],
    [
      'a stolen token that is accepted',
      [operation('stale-token', { outcome: 'refused' })],
      [operation('stale-token', {})],
    ],
    [
      'an acknowledged write that is not found',
      [operation('durable', { kind: 'read', outcome: 'refused' }), operation('durable', {})],
      [operation('durable', {}), operation('durable', { kind: 'read', outcome: 'refused', start: 5 })],
    ],
    [
      'an event that is processed twice',
      [operation('delivery', { value: 'processed' }), operation('delivery', { value: 'duplicate' })],
      [operation('delivery', { value: 'processed' }), operation('delivery', { value: 'processed' })],
    ],
    [
      'an honest client that is signed out',
      [operation('honest', { outcome: 'refused', since: 0, end: PROTECTED_MS + 1 })],
      [operation('honest', { outcome: 'refused', since: 0, end: PROTECTED_MS })],
    ],
    [
      'a wrong final state',
      [operation('final', { value: '7', expected: '7' })],
      [operation('final', { value: '6', expected: '7' })],
    ],
    [
      'an internal error',
      [operation('probe', { outcome: 'unknown', detail: '503 NOT_READY' })],
      [operation('probe', { outcome: 'unknown', detail: '500 INTERNAL' })],
    ],
  ];
  for (const [name, allowed, forbidden] of cases) {
    t.strictSame(check(allowed), [], `without ${name}`);
    t.equal(check(forbidden).length, 1, name);
  }
  const others = [operation('once', { key: 'a' }), operation('once', { key: 'b' })];
  t.strictSame(check(others), [], 'different keys are independent');
});

t.test('the longest gap of an event includes the time before the first success after it', async (t) => {
  const acknowledged = [10, 20, 95, 100].map((end) => operation('register', { end }));
  const others = [operation('register', { end: 50, kind: 'read' }), operation('once', { end: 60 })];
  const gap = (start: number, end: number) =>
    longestGap([...acknowledged, ...others], 'write', { start, end });
  t.equal(gap(15, 30), 75, 'from the last success before it');
  t.equal(gap(30, 110), 75);
  t.equal(gap(96, 200), 100, 'without a success after it, until its end');
});
