import t from 'tap';
import { renderPlot, type TimeSeries } from '../../../src/shared/console-kit/plots.js';

/** Plots of values per day. */

const DAYS = ['2026-10-30', '2026-10-31', '2026-11-01', '2026-11-02'];

const SIGN_UPS: TimeSeries = {
  label: 'Sign-ups',
  unit: 'users',
  days: DAYS,
  series: [{ name: 'Sign-ups', values: [3, 0, 12, 1] }],
  shape: 'stacked',
  isSummable: true,
};

const BALANCES: TimeSeries = {
  label: 'Balances',
  unit: 'EUR',
  days: DAYS,
  series: [
    { name: 'savings', values: [null, 1000, 1500.5, 2000] },
    { name: 'debts', values: [null, -10, -20, -30] },
  ],
  shape: 'lines',
  isSummable: false,
};

/** The texts of an SVG, in order. */
const textsOf = (svg: string) => [...svg.matchAll(/<text[^>]*>([^<]*)</g)].map(([, text]) => text);

t.test('a plot has axes with days, the unit and whole numbers', async (t) => {
  const texts = textsOf(renderPlot(SIGN_UPS).svg);
  t.ok(texts.includes('users'), 'the unit');
  for (const text of ['Oct 30', 'Nov 2', '0', '2', '12']) t.ok(texts.includes(text), text);
  const one = renderPlot({ ...SIGN_UPS, series: [{ name: 'Sign-ups', values: [0, 1, 0, 0] }] });
  t.same(
    textsOf(one.svg).filter((text) => /^[\d.]+$/.test(text ?? '')),
    ['0', '1'],
  );
});

t.test('the content security policy of the pages has nothing to refuse in a plot', async (t) => {
  for (const { svg } of [SIGN_UPS, BALANCES].map(renderPlot)) {
    t.notMatch(svg, /<style|\sstyle=|<script|\son\w+=|href|url\(/);
    t.match(svg, /<svg[^>]*role="img"/);
    t.match(svg, 'var(--series-1)');
  }
});

t.test('names of series are escaped', async (t) => {
  const name = `<script>"&'</script>`;
  for (const shape of ['stacked', 'lines'] as const) {
    const { svg } = renderPlot({
      ...BALANCES,
      label: name,
      unit: name,
      shape,
      series: BALANCES.series.map(({ values }, index) => ({ name: name + index, values })),
    });
    t.notMatch(svg.replace(/="[^"]*"/g, ''), /<script|<\w[^>]*"/);
    t.match(svg, '&lt;script');
  }
});

t.test('the table has the values of the plot, the newest day first', async (t) => {
  const { table } = renderPlot(BALANCES);
  t.same(
    table.columns.map(({ label }) => label),
    ['Day (UTC)', 'savings', 'debts'],
  );
  const rows = table.rows.map(({ cells }) => cells.map(({ text }) => text));
  t.same(rows[0], ['2026-11-02', '2,000', '-30']);
  t.same(rows[3], ['2026-10-30', '–', '–'], 'unknown values are no zeros');
});

t.test('days without events, and no days at all, are a plot as well', async (t) => {
  const empty = renderPlot({ ...SIGN_UPS, series: [{ name: 'Sign-ups', values: [0, 0, 0, 0] }] });
  t.match(empty.svg, '<svg');
  t.match(renderPlot({ ...SIGN_UPS, days: [], series: [{ name: 'Sign-ups', values: [] }] }).svg, '<svg');
});
