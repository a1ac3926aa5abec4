import { readFileSync } from 'node:fs';
import { mustBe } from '../src/core/config/validation-messages.js';
import { DisplayName, matchesSchema } from '../src/core/http/schemas.js';
import { withoutByteOrderMark } from '../src/core/kernel/text.js';
import type { Invited } from '../src/idp/provisioning/new-links.js';
import type { CommandLine } from './command.js';

/** A line of a file of people, with what is wrong with it by itself. */
export interface Line {
  /** The line of the file on which it begins. */
  line: number;
  person: Invited;
  problem?: string;
}

const COLUMNS = ['handle', 'email', 'name', 'groups', 'application'];

/** The records of a CSV text (RFC 4180), with the lines on which they begin. Empty lines are left out. @throws SyntaxError */
export function parseCsv(text: string): { line: number; cells: string[] }[] {
  const records: { line: number; cells: string[] }[] = [];
  let [line, begin]: [number, number] = [1, 1];
  let cells: string[] = [];
  // A quoted cell, or one without quotation marks; then what ends it.
  for (const match of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n|\n|\r|)/g)) {
    const [whole, quoted, plain = '', end] = match;
    if (end === '' && match.index + whole.length < text.length)
      throw new SyntaxError(`line ${line}: a quotation mark is missing, or inside a cell it is not doubled`);
    if (cells.length === 0) begin = line;
    cells.push(quoted?.replaceAll('""', '"') ?? plain);
    line += whole.match(/\r\n|\n|\r/g)?.length ?? 0;
    if (end === ',') continue;
    const isEmpty = cells.length === 1 && whole === end;
    if (!isEmpty) records.push({ line: begin, cells });
    cells = [];
    if (end === '') break;
  }
  return records;
}

/** Reads people from a file; the command fails if it is no such file. */
export function readPeople(file: string, command: CommandLine): Line[] {
  let records: ReturnType<typeof parseCsv>;
  try {
    records = parseCsv(withoutByteOrderMark(readFileSync(file === '-' ? 0 : file, 'utf8')));
  } catch (error) {
    return command.error(`error: ${file} cannot be read: ${error instanceof Error ? error.message : error}`);
  }
  const [header, ...rows] = records;
  const names = header?.cells.map((cell) => cell.trim().toLowerCase()) ?? [];
  const unknown = names.filter((name, index) => !COLUMNS.includes(name) || names.indexOf(name) !== index);
  if (!names.includes('handle') || unknown.length > 0)
    return command.error(
      `error: the first line of ${file} must name the columns, each once: handle and, optionally, ${COLUMNS.slice(1).join(', ')}.`,
    );
  const seen = new Map<string, number>();
  return rows.map(({ line, cells }) => {
    const cellOf = (name: string) => cells[names.indexOf(name)]?.trim() || undefined;
    const [handle = '', email, name] = [cellOf('handle'), cellOf('email'), cellOf('name')];
    const groups = cellOf('groups')?.split(/[\s,;]+/);
    const person = { handle, email, name, groups, application: cellOf('application') };
    const twin = [handle, email].map((key) => key && seen.get(key.toLowerCase())).find((other) => other);
    for (const key of [handle, email]) if (key) seen.set(key.toLowerCase(), line);
    const problem =
      cells.length === names.length
        ? twin
          ? `repeats the handle or the e-mail address of line ${twin}`
          : name !== undefined && !matchesSchema(name, DisplayName)
            ? `name ${mustBe(DisplayName, name)}`
            : undefined
        : `has ${cells.length} cells instead of ${names.length}`;
    return { line, person, ...(problem !== undefined && { problem }) };
  });
}
