/** A row, as text: `null` becomes an empty cell. */
export type CsvRow = readonly (string | number | boolean | null)[];

/**
 * Serializes pages of rows as CSV (RFC 4180) with a header row. What spreadsheets would execute as a formula gets a leading
 * apostrophe, also after a separator within a value: in many languages, spreadsheets separate cells at semicolons.
 */
export async function* csvOf(
  header: readonly string[],
  pages: AsyncIterable<readonly CsvRow[]>,
): AsyncGenerator<string, void, undefined> {
  const { stringify } = await import('csv-stringify/sync');
  const write = (rows: readonly CsvRow[]) =>
    stringify(
      rows.map((row) => row.map((value) => (typeof value === 'string' ? withoutFormulas(value) : value))),
      { escape_formulas: true, record_delimiter: 'windows', cast: { boolean: String } },
    );
  yield write([header]);
  for await (const rows of pages) if (rows.length > 0) yield write(rows);
}

/** The beginnings of a formula after a separator, where `escape_formulas` does not look. */
const FORMULA_AFTER_SEPARATOR = /(?<=[;,|\t\r\n][\s"']{0,8})(?=[=+@\uff1d\uff0b\uff0d\uff20-])/g;

const withoutFormulas = (text: string): string => text.replaceAll(FORMULA_AFTER_SEPARATOR, "'");
