/** A row, as text: `null` becomes an empty cell. */
export type CsvRow = readonly (string | number | boolean | null)[];

/**
 * Serializes pages of rows as CSV (RFC 4180) with a header row. Values that spreadsheets would execute as formulas get a
 * leading apostrophe.
 */
export async function* csvOf(
  header: readonly string[],
  pages: AsyncIterable<readonly CsvRow[]>,
): AsyncGenerator<string, void, undefined> {
  const { stringify } = await import('csv-stringify/sync');
  const write = (rows: readonly CsvRow[]) =>
    stringify(
      rows.map((row) => [...row]),
      { escape_formulas: true, record_delimiter: 'windows', cast: { boolean: String } },
    );
  yield write([header]);
  for await (const rows of pages) if (rows.length > 0) yield write(rows);
}
