import { decimalsOf } from '../../core/kernel/currencies.js';
import { type KeyFigure, keyFigureOf, plain } from '../../shared/console-kit/key-figures.js';
import type { TimeSeries } from '../../shared/console-kit/plots.js';

/** What is counted: for the days or months of a period and as many before, or for days of its own. */
export interface Counted extends Omit<TimeSeries, 'days'> {
  id: string;
  days?: readonly string[];
  /** How the values come about, as sentences. */
  definition: string;
  /** The list of what is counted, relative to the root. */
  path?: string;
}

/** What a number needs of it. */
type CountedFigure = Pick<Counted, 'id' | 'unit' | 'isSummable' | 'series' | 'bound' | 'path'>;

/** The trends that have a number, in the order of their importance. */
const FIGURES = [
  { id: 'mrr', label: 'Monthly recurring revenue', isGoodUp: true },
  { id: 'mrr-changes', label: 'Net new MRR', isGoodUp: true },
  { id: 'churn', label: 'Churned revenue', isGoodUp: false },
  { id: 'subscriptions', label: 'Active subscriptions', series: 'active', isGoodUp: true },
  { id: 'trials-ending', label: 'Trials ending within 7 days', isGoodUp: true },
  { id: 'failed-payments', label: 'Failed payments', isGoodUp: false },
  { id: 'sign-ups', label: 'Sign-ups', isGoodUp: true },
  { id: 'active-users', label: 'Active users', isGoodUp: true },
] as const;

/** @param trends of twice the days or months of a period; of several currencies, the first counts */
export function keyFiguresOf(trends: readonly CountedFigure[]): KeyFigure[] {
  const find = (id: string) => trends.find((one) => one.id === id || one.id.replace(/-[a-z]{3}$/, '') === id);
  return FIGURES.flatMap((figure) => {
    const { id, label, isGoodUp } = figure;
    if (id === 'churn') return churnOf({ name: id, label, isGoodUp }, find('mrr'), find('mrr-changes')) ?? [];
    const trend = find(id);
    if (!trend) return [];
    const { isSummable, unit, path, bound } = trend;
    const values = sumsOf(trend, 'series' in figure ? figure.series : undefined);
    const amount = /^[A-Z]{3}$/.test(unit) && { write: writerOf(unit), isDifference: id === 'mrr-changes' };
    return keyFigureOf({ name: id, label, isGoodUp, values, isSummable, path, bound, ...amount }) ?? [];
  });
}

/** What left of the revenue at the beginning of the period, in percent. */
function churnOf(
  figure: Pick<KeyFigure, 'name' | 'label' | 'isGoodUp'>,
  revenue: CountedFigure | undefined,
  changes: CountedFigure | undefined,
): KeyFigure | null {
  if (!revenue || !changes) return null;
  const [levels, churned] = [sumsOf(revenue, undefined), sumsOf(changes, 'churned')];
  const half = levels.length / 2;
  const rateOf = (from: number, to: number): number | null => {
    const known = (value: number | null) => value !== null;
    const start = levels.slice(0, from).findLast(known) ?? levels.slice(from, to).find(known);
    if (!start) return null;
    const lost = churned.slice(from, to).reduce<number>((sum, value) => sum - (value ?? 0), 0);
    return (100 * lost) / start;
  };
  const [rate, before] = [rateOf(half, 2 * half), rateOf(0, half)];
  if (rate === null) return null;
  const change = before === null ? null : rate - before;
  return {
    ...figure,
    value: `${plain(rate)} %`,
    change: change === null ? null : `${plain(Math.abs(change))} points`,
    isUp: change ? change > 0 : null,
    values: churned.slice(half).map((value) => value && -value),
    ...(changes.path !== undefined && { path: changes.path }),
  };
}

/** The values of one series, or the sums of all. */
function sumsOf({ series }: Pick<CountedFigure, 'series'>, name: string | undefined): (number | null)[] {
  const counted = name === undefined ? series : series.filter((one) => one.name === name);
  const days = counted[0]?.values.map((_, day) => day) ?? [];
  return days.map((day) => {
    const known = counted.flatMap(({ values }) => values[day] ?? []);
    return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0);
  });
}

/** Smaller amounts are shown with their cents. */
const MIN_WHOLE = 100;

/** @param currency ISO 4217, upper case */
const writerOf = (currency: string) => (value: number) => {
  const digits = Math.abs(value) < MIN_WHOLE && value % 1 !== 0 ? decimalsOf(currency) : 0;
  const fractions = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return new Intl.NumberFormat('en', { style: 'currency', currency, ...fractions }).format(value);
};
