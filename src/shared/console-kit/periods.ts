import { Type } from 'typebox';
import { type Clock, DAY, lastDays } from '../../core/kernel/clock.js';

/** The periods of an overview, of which the operator chooses one. As much time before it is read, too, for the changes. */

const PERIODS = {
  '7d': { label: '7 days', count: 7, isMonths: false },
  '30d': { label: '30 days', count: 30, isMonths: false },
  '12m': { label: '12 months', count: 12, isMonths: true },
} as const;

export type PeriodName = keyof typeof PERIODS;

export const DEFAULT_PERIOD: PeriodName = '30d';

/** In the query of an overview. */
export const PeriodQuery = Type.Optional(Type.Enum(Object.keys(PERIODS) as PeriodName[]));

/** What is read for a period. */
export type Period = ReturnType<typeof periodOf>;

type Values = readonly (number | null)[];

export function periodOf(name: PeriodName, clock: Clock) {
  const { label, count, isMonths } = PERIODS[name];
  const days = isMonths ? daysOfMonths(2 * count, clock) : lastDays(clock, 2 * count);
  const spanOf = (day: string) => (isMonths ? day.slice(0, '2026-11'.length) : day);
  const spans = [...new Set(days.map(spanOf))];
  return {
    label,
    /** The number of spans of the period: half of those that are read. */
    count,
    /** Days or months in UTC (`2026-11-30` or `2026-11`), the oldest first. */
    spans,
    /** Every day of the spans, which the stored figures are about. */
    days,

    /** The values of the spans by those of the days. Of a level, the last known one counts; null where nothing is known. */
    fold(values: Values, isSummable: boolean): (number | null)[] {
      const folded = new Map<string, number | null>(spans.map((span) => [span, null]));
      for (const [index, day] of days.entries()) {
        const value = values[index] ?? null;
        if (value === null) continue;
        const span = spanOf(day);
        folded.set(span, isSummable ? (folded.get(span) ?? 0) + value : value);
      }
      return [...folded.values()];
    },
  };
}

/** The days of the last months, until today. */
function daysOfMonths(months: number, clock: Clock): string[] {
  const now = new Date(clock.now());
  const start = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - months + 1);
  return lastDays(clock, Math.floor((clock.now() - start) / DAY) + 1);
}

/** The links to the periods, for the head of a page. */
export const periodLinks = (current: PeriodName) =>
  Object.entries(PERIODS).map(([name, { label }]) => ({
    label,
    href: `?period=${name}`,
    isCurrent: name === current,
  }));
