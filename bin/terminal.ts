/** Output: results are written to stdout, everything else to stderr. */

export function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

export function complain(text: string): void {
  process.stderr.write(`${text}\n`);
}

export function fail(code: number, text: string): never {
  complain(text);
  process.exit(code);
}

/** One line of JSON, or each field on a line of its own. */
export function answer({ json }: { json?: true }, fields: Record<string, unknown>, note?: string): void {
  const width = Math.max(...Object.keys(fields).map((name) => name.length));
  const lines = Object.entries(fields).map(([name, value]) => `${name.padEnd(width)}  ${readable(value)}`);
  say(json ? JSON.stringify(fields) : lines.join('\n'));
  if (note !== undefined && !json) complain(note);
}

/** One line of JSON, or one line for each row. */
export function answerList(
  { json }: { json?: true },
  name: string,
  rows: Record<string, unknown>[],
  columns: readonly string[],
): void {
  const cells = rows.map((row) => columns.map((column) => readable(row[column])));
  const widths = columns.map((_, index) => Math.max(...cells.map((row) => row[index]?.length ?? 0)));
  const lines = cells.map((row) => row.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join('  '));
  if (json) say(JSON.stringify({ [name]: rows }));
  else if (lines.length === 0) complain(`There are no ${name}.`);
  else say(lines.map((line) => line.trimEnd()).join('\n'));
}

function readable(value: unknown): string {
  if (Array.isArray(value)) return value.join(' ') || '-';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  return value === '' || value === undefined ? '-' : String(value);
}

/** The message and, if known, the remedy. */
export function sentences({ message, remedy }: Error & { remedy?: string }): string {
  return remedy === undefined ? message : `${message}. ${remedy}`;
}

/** The escape codes of the terminal; empty if stdout is not a terminal or NO_COLOR is set, which `hasColors` reads. */
export function style(): Record<'bold' | 'dim' | 'red' | 'yellow' | 'green' | 'plain', string> {
  const isColored = process.stdout.isTTY && process.stdout.hasColors();
  const code = (number: number) => (isColored ? `\x1b[${number}m` : '');
  return { bold: code(1), dim: code(2), red: code(31), yellow: code(33), green: code(32), plain: code(0) };
}

/** A failed write to stdout sets the exit code. A closed pipe (EPIPE) causes no message. */
export function handleBrokenPipe(): void {
  process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
    process.exitCode = 1;
    if (code !== 'EPIPE') complain(`The output cannot be written (${code}).`);
  });
  // There is no other stream to report this on.
  process.stderr.on('error', () => undefined);
}
