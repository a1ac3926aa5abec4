import type { TimeSeries } from '../../shared/console-kit/plots.js';
import { decimalsOf } from './billing.js';

/** A number of the overview, with its change against the days before. */
export interface KeyFigure {
  name: string;
  label: string;
  /** As it is shown: `€3,666`. */
  value: string;
  /** Against the period before, as it is shown: `11.2 %`; null if that is not known. */
  change: string | null;
  /** Whether the number has grown; null without a change. */
  isUp: boolean | null;
  /** Whether growth is good news. */
  isGoodUp: boolean;
  /** The values of the period. */
  values: readonly (number | null)[];
  /** The list of what is counted, relative to the root. */
  path?: string | undefined;
}

/** What is counted by day. */
interface Counted extends Pick<TimeSeries, 'unit' | 'isSummable' | 'series'> {
  id: string;
  /** The list of what is counted, relative to the root. */
  path?: string;
}

/** The trends that have a number, in the order of their importance. */
const FIGURES = [
  { id: 'mrr', label: 'Monthly recurring revenue', isGoodUp: true },
  { id: 'mrr-changes', label: 'Net new MRR', isGoodUp: true },
  { id: 'subscriptions', label: 'Active subscriptions', series: 'active', isGoodUp: true },
  { id: 'active-users', label: 'Active users', isGoodUp: true },
  { id: 'sign-ups', label: 'Sign-ups', isGoodUp: true },
  { id: 'failed-payments', label: 'Failed payments', isGoodUp: false },
] as const;

const MAX_FIGURES = 5;

/** @param trends of twice the days of a period */
export function keyFiguresOf(trends: readonly Counted[]): KeyFigure[] {
  const figures = FIGURES.flatMap((figure) => {
    const { id, label, isGoodUp } = figure;
    const trend = trends.find((one) => one.id === id || one.id.replace(/-[a-z]{3}$/, '') === id);
    if (!trend) return [];
    const sums = sumsOf(trend, 'series' in figure ? figure.series : undefined);
    const half = sums.length / 2;
    const now = totalOf(sums.slice(half), trend.isSummable);
    const before = totalOf(sums.slice(0, half), trend.isSummable);
    if (now === null) return [];
    const write = writerOf(trend.unit);
    const change = before === null ? null : now - before;
    return [
      {
        name: id,
        label,
        value: write(now),
        change:
          change === null ? null : writeChange(change, before, id === 'mrr-changes' ? write : undefined),
        isUp: change === null || change === 0 ? null : change > 0,
        isGoodUp,
        values: sums.slice(half),
        path: trend.path,
      },
    ];
  });
  return figures.slice(0, MAX_FIGURES);
}

/** The values of one series, or the sums of all. */
function sumsOf({ series }: Pick<Counted, 'series'>, name: string | undefined): (number | null)[] {
  const counted = name === undefined ? series : series.filter((one) => one.name === name);
  const days = counted[0]?.values.map((_, day) => day) ?? [];
  return days.map((day) => {
    const known = counted.flatMap(({ values }) => values[day] ?? []);
    return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0);
  });
}

/** The sum of what adds up, the last value of a level; null if nothing is known. */
function totalOf(values: readonly (number | null)[], isSummable: boolean): number | null {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return null;
  return isSummable ? known.reduce((sum, value) => sum + value, 0) : (known.at(-1) ?? null);
}

const plain = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

function writerOf(unit: string): (value: number) => string {
  if (!/^[A-Z]{3}$/.test(unit)) return (value) => plain.format(value);
  const digits = { maximumFractionDigits: 0, minimumFractionDigits: 0 };
  const whole = new Intl.NumberFormat('en', { style: 'currency', currency: unit, ...digits });
  const decimals = decimalsOf(unit);
  const exact = new Intl.NumberFormat('en', {
    style: 'currency',
    currency: unit,
    minimumFractionDigits: decimals,
  });
  return (value) => (Math.abs(value) < MIN_WHOLE && value % 1 !== 0 ? exact : whole).format(value);
}

/** Smaller amounts are shown with their cents. */
const MIN_WHOLE = 100;

/** In percent, or as a number where a share of nothing means nothing. */
function writeChange(change: number, before: number | null, write?: (value: number) => string): string {
  if (write || !before) return (write ?? plain.format)(Math.abs(change));
  return `${plain.format(Math.abs((100 * change) / before))} %`;
}

const [WIDTH, HEIGHT, MARGIN] = [64, 20, 2];

/** The line of a sparkline in a drawing of 64 × 20 units. */
export function sparklineOf(values: readonly (number | null)[]): string {
  const known = values.map((value, index) => ({ value, index })).filter(({ value }) => value !== null);
  if (known.length < 2) return '';
  const all = known.map(({ value }) => Number(value));
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const scale = (HEIGHT - 2 * MARGIN) / (high - low || 1);
  const points = known.map(({ value, index }) => {
    const x = MARGIN + (index * (WIDTH - 2 * MARGIN)) / (values.length - 1);
    const y = HEIGHT - MARGIN - (Number(value) - low) * scale;
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  return `M${points.join('L')}`;
}
