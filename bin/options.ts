import { createReadStream, type ReadStream, readFileSync, statSync } from 'node:fs';
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { TObject, TProperties } from 'typebox';
import { parseList, resolveOptions } from '../src/core/config/options.js';
import { mustBe } from '../src/core/config/validation-messages.js';
import { DisplayName, matchesSchema, readTime } from '../src/core/http/schemas.js';
import { DAY, systemClock } from '../src/core/kernel/clock.js';
import { systemRandom } from '../src/core/kernel/secrets.js';
import { withoutByteOrderMark } from '../src/core/kernel/text.js';
import { KINDS, type Kind } from '../src/idp/provisioning/store.js';
import type { AllowedResource } from '../src/idp/trust/store.js';
import { fail } from './terminal.js';

/** Values of options that several commands read. */

/** A parser for a whole number of a range, with an example for its error message. */
export function parseInteger(minimum: number, maximum: number, example: number): (text: string) => number {
  return (text) => {
    const isInRange = /^\d{1,5}$/.test(text) && Number(text) >= minimum && Number(text) <= maximum;
    if (isInRange) return Number(text);
    throw new InvalidArgumentError(`Use a number from ${minimum} to ${maximum}, like ${example}.`);
  };
}

/** A time, or a day from its beginning on. */
export interface Moment {
  at: number;
  isDay: boolean;
}

const MOMENT = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/;

/** A day in UTC or a time; null for another text, and for a day that does not exist. */
export function readMoment(text: string): Moment | null {
  const at = MOMENT.test(text) ? readTime(text) : Number.NaN;
  return Number.isNaN(at) ? null : { at, isDay: !text.includes('T') };
}

/** When something ends: the end of a day in UTC, or the time itself. */
export function parseEnd(text: string): number {
  const moment = readMoment(text);
  if (!moment)
    throw new InvalidArgumentError(
      `Use a date (2030-01-31) or a time (2030-01-31T12:00:00Z), not '${text}'.`,
    );
  const end = moment.isDay ? moment.at + DAY : moment.at;
  if (end <= systemClock.now()) throw new InvalidArgumentError(`${text} is in the past.`);
  return end;
}

/** An option that is `yes` or `no`. */
export const yesOrNo = (flag: string, description: string): Option =>
  new Option(`${flag} <yes|no>`, description).choices(['yes', 'no']);

/** The value of such an option; undefined if it is not given. */
export const isYes = (value: 'yes' | 'no' | undefined) => value && value === 'yes';

/** The options that are given, and the environment variables for the others. */
export function resolveFlags<P extends TProperties>(schema: TObject<P>, flags: Record<string, unknown>) {
  const given = Object.fromEntries(Object.entries(flags).filter(([, value]) => value !== undefined));
  return resolveOptions(schema, { program: 'idp', given, env: undefined, random: systemRandom }).values;
}

/** The display name, if one is given. It is free text, so the error message describes it and does not repeat it. */
export function displayName(command: Command, { name }: { name?: string }): { name?: string } {
  if (name === undefined) return {};
  return matchesSchema(name, DisplayName)
    ? { name }
    : command.error(`error: --name ${mustBe(DisplayName, name)}.`);
}

/** The content of a JSON file; the command fails if it cannot be read. */
export function readJson(command: Command, file: string): unknown {
  try {
    return JSON.parse(withoutByteOrderMark(readFileSync(file, 'utf8')));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return command.error(`error: ${file} cannot be read as JSON: ${reason}`);
  }
}

/** `human`, `agent` or both, as the option `--kinds` names them. */
export function parseKinds(text: string): Kind[] {
  const kinds = text === 'both' ? [...KINDS] : parseList(text);
  if (kinds.length > 0 && kinds.every((kind): kind is Kind => KINDS.some((known) => known === kind))) {
    return kinds;
  }
  throw new InvalidArgumentError('Use human, agent or both.');
}

/** A resource with scopes, `uri=scope,scope`, for an option that may be repeated. */
export function parseAllowedResource(text: string, before: AllowedResource[] = []): AllowedResource[] {
  const end = text.lastIndexOf('=');
  const [resource, scopes] = end === -1 ? [text, []] : [text.slice(0, end), parseList(text.slice(end + 1))];
  if (!URL.canParse(resource)) {
    throw new InvalidArgumentError('Use uri=scopes, like https://api.example.com=files:read,files:write.');
  }
  return [...before, { resource, scopes }];
}

/** As JSON with all fields; as text in the form of the option. */
export const resourcesView = (resources: AllowedResource[], json: boolean | undefined) =>
  json ? resources : resources.map(({ resource, scopes }) => `${resource}=${scopes.join(',')}`).join(' ');

/** The file that an argument names, or standard input for `-`, and its size if it is known. */
export function openInput(file: string): {
  input: ReadStream | typeof process.stdin;
  bytes: number | undefined;
} {
  if (file === '-') return { input: process.stdin, bytes: undefined };
  const state = statSync(file, { throwIfNoEntry: false });
  if (!state) fail(1, `there is no file ${file}.`);
  if (state.isDirectory()) fail(1, `${file} is a folder. Name a file with lines of JSON, like users.ndjson.`);
  return { input: createReadStream(file), bytes: state.isFile() ? state.size : undefined };
}
