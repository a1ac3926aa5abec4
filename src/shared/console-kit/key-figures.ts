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

export interface Counted extends Pick<KeyFigure, 'name' | 'label' | 'isGoodUp' | 'path'> {
  /** Of twice the days of a period, the oldest first. */
  values: readonly (number | null)[];
  /** Whether the values of several days add up; false for levels, of which the last one counts. */
  isSummable: boolean;
  write?(value: number): string;
  /** Whether the change is a number of the same kind, because a share of it would mean nothing. */
  isDifference?: boolean;
}

/** Null if nothing was counted in the period. */
export function keyFigureOf({
  values: all,
  isSummable,
  write = plain,
  isDifference = false,
  ...figure
}: Counted): KeyFigure | null {
  const values = all.slice(all.length / 2);
  const now = totalOf(values, isSummable);
  const before = totalOf(all.slice(0, all.length / 2), isSummable);
  if (now === null) return null;
  const change = before === null ? null : now - before;
  const writeChange = (): string | null => {
    if (change === null || before === null) return null;
    return isDifference || before === 0
      ? write(Math.abs(change))
      : `${plain(Math.abs((100 * change) / before))} %`;
  };
  return { ...figure, values, value: write(now), change: writeChange(), isUp: change ? change > 0 : null };
}

/** A number that is not counted by day. */
export const levelFigure = (figure: Pick<KeyFigure, 'name' | 'label' | 'value' | 'path'>): KeyFigure => ({
  ...figure,
  change: null,
  isUp: null,
  isGoodUp: true,
  values: [],
});

/** The sum of what adds up, the last value of a level; null if nothing is known. */
function totalOf(values: readonly (number | null)[], isSummable: boolean): number | null {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return null;
  return isSummable ? known.reduce((sum, value) => sum + value, 0) : (known.at(-1) ?? null);
}

const NUMBERS = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const plain = (value: number): string => NUMBERS.format(value);

/** The view of the partial `_console-figures`. @param root of the console as seen from the page */
export const figureViews = (figures: readonly KeyFigure[], root: string) =>
  figures.map(({ label, value, change, isUp, isGoodUp, values, path }) => ({
    label,
    value,
    change,
    direction: isUp === isGoodUp ? 'up' : 'down',
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
