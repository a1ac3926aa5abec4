import * as Plot from '@observablehq/plot';
import { parseHTML } from 'linkedom';
import { isMonth } from '../../core/kernel/clock.js';
import { type Column, tableOf } from './tables.js';

/**
 * Plots of values per day as SVG, with a sentence and a table that say the same. Load this file dynamically: it is the only
 * one that knows the plot library, which takes 100 ms to load. The appearance is in `style.css`, because the content
 * security policy refuses style attributes.
 */

/** Values per day or month. */
export interface TimeSeries {
  /** What is shown, as the first words of the summary: `Sign-ups`. */
  label: string;
  /** Stands at the vertical axis: `users`, `EUR`. */
  unit: string;
  /** ISO 8601 days or months in UTC without gaps, the oldest first. */
  days: readonly string[];
  /** Their colours follow this order; at most `MAX_SERIES`. */
  series: readonly Series[];
  /** `stacked`: bars whose heights add up, negative values below the axis; `lines`: values side by side. */
  shape: 'stacked' | 'lines';
  /** Whether the values of several days add up, such as events; false for levels, such as balances. */
  isSummable: boolean;
  /** Takes the width of a page instead of a third; with the values of as many days before, as a dashed line. */
  wide?: { before: readonly (number | null)[] };
  /** Counting ended here: a value of `bound` or more is written `10,000+`. */
  bound?: number;
}

export interface Series {
  name: string;
  /** One value per day; `null` where it is unknown. */
  values: readonly (number | null)[];
}

/** There are as many colours in `style.css`. */
export const MAX_SERIES = 8;

/** Units of the view box, which the page scales so little that the text stays legible. A telephone shows `narrow` in place of `wide`. */
const SIZES = {
  small: { width: 360, height: 200, className: 'plot' },
  wide: { width: 720, height: 250, className: 'plot-wide' },
  narrow: { width: 360, height: 220, className: 'plot-narrow' },
};
const FONT_SIZE = 12;

const MAX_TICKS = 4;

/** The library calls a few functions of the DOM. */
const { document } = parseHTML('<html></html>');

/**
 * The plot as markup that needs no escaping, with a legend if there are several series; a sentence for everyone, which is also its
 * text alternative; and the view of the partial `_console-table`. Series without a value other than 0 are left out. Takes 3 ms for
 * 30 days: let requests through between several plots.
 */
export function renderPlot(timeSeries: TimeSeries) {
  if (timeSeries.series.length > MAX_SERIES) throw new RangeError(`A plot has at most ${MAX_SERIES} series.`);
  const coloured = timeSeries.series.map((one, index) => ({ ...one, colour: colour(index) }));
  const filled = coloured.filter(({ values }) => values.some((value) => value !== null && value !== 0));
  const series = filled.length > 0 ? filled : coloured.slice(0, 1);
  const shown = { ...timeSeries, series };
  const summary = summarize(shown);
  const svg = shown.wide
    ? draw(shown, summary, 'wide') + draw(shown, summary, 'narrow')
    : draw(shown, summary, 'small');
  return { svg: legendOf(shown) + svg, summary, table: tabulate(shown) };
}

type Coloured = Omit<TimeSeries, 'series'> & { series: readonly (Series & { colour: string })[] };

const coloursOf = ({ series }: Coloured) => ({
  type: 'ordinal' as const,
  domain: series.map(({ name }) => name),
  range: series.map(({ colour }) => colour),
});

function draw(shown: Coloured, summary: string, size: keyof typeof SIZES): string {
  const { unit, days, series, shape, bound, wide } = shown;
  const names = series.map(({ name }) => name);
  const points = series.flatMap(({ name, values }) =>
    days.map((day, index) => ({ name, day, value: values[index] ?? null })),
  );
  const earlier = (wide?.before ?? []).map((value, index) => ({ name: '', day: days[index] ?? '', value }));
  const extent = extentOf([...points, ...(shape === 'lines' ? earlier : [])], shape);
  const position = { x: 'day', y: 'value' };
  const marks =
    shape === 'stacked'
      ? Plot.barY(points, {
          ...position,
          fill: 'name',
          order: names,
          title: ({ name, day, value }) => `${day}, ${name}: ${writeValue(value)}`,
        })
      : [
          wide ? Plot.areaY(points, { ...position, fill: 'name', fillOpacity: 0.08 }) : null,
          Plot.lineY(earlier, {
            ...position,
            stroke: 'currentColor',
            strokeOpacity: 0.5,
            strokeDasharray: '3 4',
          }),
          Plot.lineY(points, { ...position, stroke: 'name', strokeWidth: 2 }),
          wide ? null : Plot.dot(points, { ...position, fill: 'name', r: 1.5 }),
        ];
  const isBounded = bound !== undefined && extent[1] >= bound;
  const plot: Drawing = asDrawing(
    Plot.plot({
      document,
      ...SIZES[size],
      marginTop: 28,
      marginRight: 16,
      marginBottom: 28,
      marginLeft: 48,
      ariaLabel: summary,
      color: coloursOf(shown),
      x: {
        type: shape === 'stacked' ? 'band' : 'point',
        domain: days,
        label: null,
        ticks: someOf(days),
        tickFormat: shortDate,
      },
      y: {
        label: unit,
        labelArrow: 'none',
        grid: true,
        nice: true,
        domain: extent,
        // Half a user does not exist.
        ticks: Math.min(MAX_TICKS, Math.ceil(extent[1] - extent[0])),
        tickFormat: shortNumber,
      },
      marks: [marks, Plot.ruleY([0]), isBounded ? Plot.ruleY([bound], { strokeDasharray: '4 3' }) : null],
    }),
  );
  plot.setAttribute('role', 'img');
  // Its text is the label of the whole; groups must not have one.
  for (const group of plot.querySelectorAll('g[aria-label]')) group.removeAttribute('aria-label');
  plot.setAttribute('font-size', String(FONT_SIZE));
  return withoutStyles(plot.outerHTML);
}

/** Empty for a single series. */
function legendOf(shown: Coloured): string {
  if (shown.series.length === 1) return '';
  // `document` is missing in the types of the library.
  const options = { document, color: coloursOf(shown), className: 'legend' };
  return withoutStyles(asDrawing(Plot.legend(options)).outerHTML);
}

/** What is used of an element. The types of browsers, which those of the library name, may be missing or empty. */
interface Drawing {
  outerHTML: string;
  setAttribute(name: string, value: string): void;
  querySelectorAll(selector: string): Iterable<{ removeAttribute(name: string): void }>;
}
const asDrawing = (element: unknown): Drawing => element as Drawing;

const colour = (index: number) => `var(--series-${index + 1})`;

/** The days to write at the horizontal axis: the newest and some at equal distances before. */
function someOf(days: readonly string[]): string[] {
  const distance = Math.max(1, Math.ceil(days.length / MAX_TICKS));
  return days.filter((_, index) => (days.length - 1 - index) % distance === 0);
}

interface Point {
  day: string;
  value: number | null;
}

/** The lowest and the highest value of the vertical axis, which contains zero. */
function extentOf(points: readonly Point[], shape: TimeSeries['shape']): [low: number, high: number] {
  const sums = new Map<string, { low: number; high: number }>();
  for (const { day, value } of points) {
    const { low, high } = sums.get(day) ?? { low: 0, high: 0 };
    const [negative, positive] = [Math.min(0, value ?? 0), Math.max(0, value ?? 0)];
    sums.set(
      day,
      shape === 'stacked'
        ? { low: low + negative, high: high + positive }
        : { low: Math.min(low, negative), high: Math.max(high, positive) },
    );
  }
  const all = [...sums.values()];
  const low = Math.min(0, ...all.map((sum) => sum.low));
  const high = Math.max(0, ...all.map((sum) => sum.high));
  return low === 0 && high === 0 ? [0, 1] : [low, high];
}

/** Removes the style sheets of the library, which the content security policy refuses. */
const withoutStyles = (markup: string): string => markup.replace(/<style>[^<]*<\/style>/g, '');

function summarize(timeSeries: TimeSeries): string {
  const { label, unit, days, series, isSummable } = timeSeries;
  const isKnown = (_: string, index: number) =>
    series.some(({ values }) => typeof values[index] === 'number');
  const known = days.filter(isKnown);
  const [first, last] = [known[0], known.at(-1)];
  if (first === undefined || last === undefined) return `${label} (${unit}): no data yet.`;
  const period = isSummable && first !== last ? `${first} to ${last}` : last;
  const figures = series.map((one) => {
    const figure = isSummable
      ? totalOf(one, timeSeries)
      : writeValue(one.values[days.indexOf(last)], timeSeries.bound);
    return series.length === 1 ? figure : `${one.name} ${figure}`;
  });
  return `${label} (${unit}), ${period}: ${figures.join('; ')}.`;
}

function totalOf({ values }: Series, { days, bound }: TimeSeries): string {
  const total = values.reduce<number>((sum, value) => sum + (value ?? 0), 0);
  const most = Math.max(0, ...values.map((value) => value ?? 0));
  const isBounded = bound !== undefined && most >= bound;
  const peak = most > 0 ? `, most on ${days[values.indexOf(most)]} (${writeValue(most, bound)})` : '';
  return `${writeValue(total)}${isBounded ? '+' : ''} in total${peak}`;
}

/** The newest day first. */
function tabulate({ label, unit, days, series, bound }: TimeSeries) {
  const columns: Column<number>[] = [
    { label: isMonth(days[0] ?? '') ? 'Month (UTC)' : 'Day (UTC)', text: (index) => days[index] ?? null },
    ...series.map(({ name, values }) => ({
      label: series.length === 1 ? `${name} (${unit})` : name,
      text: (index: number) => writeValue(values[index], bound),
      kind: 'number' as const,
    })),
  ];
  return { tableLabel: label, ...tableOf(columns, [...days.keys()].reverse(), '') };
}

const LOCALE = 'en';

const numbers = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 2 });
const compact = new Intl.NumberFormat(LOCALE, { notation: 'compact' });
const months = new Intl.DateTimeFormat(LOCALE, { month: 'short', year: '2-digit', timeZone: 'UTC' });
const dates = new Intl.DateTimeFormat(LOCALE, { month: 'short', day: 'numeric', timeZone: 'UTC' });

function writeValue(value: number | null | undefined, bound = Number.POSITIVE_INFINITY): string {
  if (value === null || value === undefined) return '–';
  return value >= bound ? `${numbers.format(bound)}+` : numbers.format(value);
}

const shortNumber = (value: number): string => compact.format(value);

const shortDate = (span: string): string => (isMonth(span) ? months : dates).format(new Date(span));
