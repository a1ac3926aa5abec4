import { initialsOf, sentenceCase } from './marks.js';

/** Tables of the pages of operators: of lists, of parts of a page and of plots. */

export interface Column<Item> {
  label: string;
  /** The value in the table. */
  text(item: Item): string | number | null;
  /** The value in CSV, for programs. Default: that of the table. */
  csv?(item: Item): string | number | null;
  /** A page about it, relative to the root, or an absolute URL. That of the first column is opened by a click anywhere in the row. */
  href?(item: Item): string | null;
  /**
   * `time`: an ISO 8601 time; `number`: aligned right; `code`: an identifier; `status`: a state; `word`: a name in an API, written
   * as a word; `who`: a name with its initials.
   * Default: text.
   */
  kind?: 'time' | 'number' | 'code' | 'status' | 'word' | 'who';
  /** A second line below the text. */
  detail?(item: Item): string | null;
  /** Whose initials stand beside it, for `who`. Default: those of the text. */
  initials?(item: Item): string | null;
  /** Whether the list is ordered by this column, the newest or highest first. */
  isSorted?: boolean;
  /** Where the column appears. Default: both. */
  only?: 'page' | 'csv';
}

/**
 * The view of the partial `_console-table`. The first page of a row is opened by a click anywhere in it. Columns in which nothing
 * stands are left out, except the first.
 */
export function tableOf<Item>(all: readonly Column<Item>[], items: readonly Item[], root: string) {
  const columns = all.filter(
    ({ only, text }, index) =>
      only !== 'csv' &&
      (index === 0 || items.length === 0 || items.some((item) => (text(item) ?? '') !== '')),
  );
  return {
    columns: columns.map(({ label, kind, isSorted = false }) => ({
      label,
      isNumber: kind === 'number',
      isSorted,
    })),
    rows: items.map((item) => {
      return {
        cells: columns.map(({ label, text, href, kind, detail, initials }, index) => {
          const value = text(item);
          const target = href?.(item) ?? undefined;
          const isOutside = target !== undefined && /^https?:/.test(target);
          const shown = value === null ? undefined : kind;
          return {
            label,
            text: shown === 'word' ? sentenceCase(String(value)) : value,
            href: target === undefined || isOutside ? target : root + target,
            isWhole: index === 0 && target !== undefined && !isOutside,
            time: shown === 'time' ? value : undefined,
            isNumber: kind === 'number',
            isCode: shown === 'code',
            isStatus: shown === 'status',
            initials: shown === 'who' ? initialsOf(initials?.(item) || String(value)) : undefined,
            detail: detail?.(item) ?? undefined,
            isPlain: shown === undefined || shown === 'number' || shown === 'word',
          };
        }),
      };
    }),
    isEmpty: items.length === 0,
  };
}

/** ISO 8601 to `2026-01-31 12:00 UTC`. */
export const toMinute = (timestamp: string): string => `${timestamp.slice(0, 16).replace('T', ' ')} UTC`;
