/** The numbers at the head of an overview: each with its change against the period before, and its course as a small line. */

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

/** What a number is made of. */
export interface FigureInput extends Pick<KeyFigure, 'name' | 'label' | 'isGoodUp' | 'path'> {
  /** Of twice the days of a period, the oldest first. */
  values: readonly (number | null)[];
  /** Whether the values of several days add up; false for levels, of which the last one counts. */
  isSummable: boolean;
  write?(value: number): string;
  /** Counting ended at this value. */
  bound?: number | undefined;
  /** Whether the change is a number of the same kind, because a share of it would mean nothing. */
  isDifference?: boolean;
}

/**
 * Null if nothing was counted in the period. The present day or month is not over: the change of what adds up is that of the others, and
 * unknown if one of those before is.
 */
export function keyFigureOf({
  values: all,
  isSummable,
  write = plain,
  isDifference = false,
  bound = Number.POSITIVE_INFINITY,
  ...figure
}: FigureInput): KeyFigure | null {
  const half = all.length / 2;
  const values = all.slice(half);
  const now = totalOf(values, isSummable);
  if (now === null) return null;
  const earlier = isSummable ? all.slice(1, half) : all.slice(0, half);
  const [last, before] = isSummable
    ? [totalOf(values.slice(0, -1), true), earlier.includes(null) ? null : totalOf(earlier, true)]
    : [now, totalOf(earlier, false)];
  const change = before === null || last === null ? null : last - before;
  const written = (amount: number) =>
    isDifference || !before ? write(Math.abs(amount)) : `${plain(Math.abs((100 * amount) / before))} %`;
  const isBounded = values.some((value) => value !== null && value >= bound);
  return {
    ...figure,
    values,
    value: `${write(now)}${isBounded ? '+' : ''}`,
    change: change === null ? null : written(change),
    isUp: change ? change > 0 : null,
  };
}

/** The sum of what adds up, the last value of a level; null if nothing is known. */
function totalOf(values: readonly (number | null)[], isSummable: boolean): number | null {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return null;
  return isSummable ? known.reduce((sum, value) => sum + value, 0) : (known.at(-1) ?? null);
}

const NUMBERS = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
export const plain = (value: number): string => NUMBERS.format(value);

/** A number without a course has its label and value alone. */
export type ShownFigure = Pick<KeyFigure, 'label' | 'value' | 'path'> & Partial<KeyFigure>;

/** The view of the partial `_console-figures`. @param root of the console as seen from the page */
export const figureViews = (figures: readonly ShownFigure[], root: string) =>
  figures.map(({ label, value, change = null, isUp = null, isGoodUp = true, values = [], path }) => ({
    label,
    value,
    change,
    direction: isUp === null ? '' : isUp === isGoodUp ? 'up' : 'down',
    arrow: isUp === null ? '' : isUp ? '▲' : '▼',
    spark: sparklineOf(values),
    href: path === undefined ? false : root + path,
  }));

const [WIDTH, HEIGHT, MARGIN] = [64, 20, 2];

/** A line in a drawing of 64 × 20 units; empty if there are no two values. */
function sparklineOf(values: readonly (number | null)[]): string {
  const known = values.flatMap((value, index) => (value === null ? [] : [{ value, index }]));
  if (known.length < 2) return '';
  const all = known.map(({ value }) => value);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const scale = (HEIGHT - 2 * MARGIN) / (high - low || 1);
  const points = known.map(({ value, index }) => {
    const x = MARGIN + (index * (WIDTH - 2 * MARGIN)) / (values.length - 1);
    const y = HEIGHT - MARGIN - (value - low) * scale;
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  return `M${points.join('L')}`;
}
