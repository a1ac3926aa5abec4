import t from 'tap';
import { timesOf } from '../../../src/core/kernel/clock.js';
import { periodOf } from '../../../src/shared/console-kit/periods.js';

/** The days and months of an overview. */

const at = (time: string) => ({ now: () => Date.parse(time) });

t.test('a period of months begins at the first of a month, two years before', async (t) => {
  const { spans, days, count } = periodOf('12m', at('2028-02-29T23:59:59Z'));
  t.same([spans.length, count], [24, 12]);
  t.same([spans[0], spans.at(-1)], ['2026-03', '2028-02']);
  t.same([days[0], days.at(-1)], ['2026-03-01', '2028-02-29']);
  t.equal(days.length, 366 + 365, 'with the leap day');
});

t.test('sums add up by month, levels are the last known one, and unknown months stay unknown', async (t) => {
  const { spans, days, fold } = periodOf('12m', at('2027-01-02T00:00:00Z'));
  const values = days.map((day) => ({ '2026-12-30': 3, '2026-12-31': 4, '2027-01-01': 5 })[day] ?? null);
  t.same(fold(values, true).slice(-3), [null, 7, 5]);
  t.same(fold(values, false).slice(-3), [null, 4, 5]);
  t.equal(spans.at(-1), '2027-01');
});

t.test('a span ends where the next one begins', async (t) => {
  for (const name of ['7d', '12m'] as const) {
    const { spans } = periodOf(name, at('2026-03-31T12:00:00Z'));
    for (const [index, span] of spans.slice(1).entries())
      t.equal(timesOf(spans[index] ?? '').lt, timesOf(span).gte, span);
  }
});
