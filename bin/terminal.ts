import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';

/** Output: results are written to stdout, everything else to stderr. */

export function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

export function complain(text: string): void {
  process.stderr.write(`${text}\n`);
}

let isErrorJson = false;

/** Whether the command line has `--json` as an option: its errors are then one line of JSON, the last on stderr. */
export function readErrorFormat(argv: readonly string[]): void {
  const end = argv.indexOf('--');
  isErrorJson = argv.slice(0, end === -1 ? argv.length : end).some((word) => /^--?json$/.test(word));
}

export const printsJsonErrors = (): boolean => isErrorJson;

/**
 * Ends the process with an error. All errors of commands come here.
 * @param code the exit code: 1, or 2 for invalid arguments
 * @param name what the error is, for programs
 */
export function fail(code: number, text: string, name = code === 2 ? 'INVALID_ARGUMENTS' : 'FAILED'): never {
  complain(isErrorJson ? JSON.stringify({ error: { code: name, message: text } }) : text);
  process.exit(code);
}

/** Asks on the terminal for the name of what is deleted; the command fails with another answer. */
export async function confirmDeletion(command: Command, name: string): Promise<void> {
  if (!process.stdin.isTTY) command.error('error: there is no terminal to confirm the deletion. Use --yes.');
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  lines.once('SIGINT', () => fail(130, ''));
  const answer = await lines.question(`This cannot be undone. Type ${name} to delete it: `);
  lines.close();
  if (answer.trim() !== name) fail(1, 'Nothing is deleted: this is another name.');
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
