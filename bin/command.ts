import { type ParseArgsConfig, parseArgs } from 'node:util';
import { suggestion } from '../src/kernel/text.js';
import type { Program } from './cli.js';

/** What a command declares of itself, and how what somebody typed is read by it. */

export interface OptionDeclaration {
  /** What follows it: `<number>`. Absent: it is there or not. */
  value?: `<${string}>`;
  short?: string;
  /** For the help: what it does, and what holds without it. */
  doc: string;
}

export interface Command {
  /** The words that call it: `user create`. */
  name: string;
  /** What it applies to, in order: `<file>` is needed, `[file]` is not. */
  takes?: readonly (`<${string}>` | `[${string}]`)[];
  /** What it does, without a full stop. */
  summary: string;
  /** Further sentences for its own help. */
  about?: string;
  /** Beside those that every command has. */
  options?: Record<string, OptionDeclaration>;
  /** Without the name of the program. */
  examples: readonly [string, ...string[]];
  run(call: Call): Promise<void>;
}

/** One file of `commands/`. */
export interface CommandGroup {
  commands: readonly Command[];
}

/** A command as somebody called it. */
export interface Call {
  program: Program;
  /** What it applies to. */
  args: readonly string[];
  /** The value of an option. */
  text(option: string): string | undefined;
  isSet(option: string): boolean;
  /** Whether to answer with one line of JSON. */
  json: boolean;
}

/** What the caller of the program typed wrong. */
export class UsageError extends Error {
  /** The command whose help is shown with it. */
  readonly command: Command | undefined;

  constructor(message: string, command?: Command) {
    super(message);
    this.command = command;
  }
}

export const COMMON: Record<string, OptionDeclaration> = {
  json: { doc: 'answer with one line of JSON' },
  help: { short: 'h', doc: '' },
  version: { short: 'v', doc: '' },
};

/** @throws UsageError */
export function readCall(program: Program, command: Command, argv: readonly string[]): Call {
  const options = { ...command.options, ...COMMON };
  const { positionals, values } = parse(command, options, withDoubleDashes(argv, { command, options }));
  const call: Call = {
    program,
    args: positionals,
    text: (option) => values[option] as string | undefined,
    isSet: (option) => values[option] !== undefined,
    json: values['json'] === true,
  };
  if (!call.isSet('help') && !call.isSet('version')) checkArguments(program, command, positionals);
  return call;
}

function parse(command: Command, options: Record<string, OptionDeclaration>, args: string[]) {
  const known = Object.entries(options).map(([name, { value, short }]) => [
    name,
    { type: value === undefined ? 'boolean' : 'string', ...(short && { short }) },
  ]);
  const config: ParseArgsConfig = { args, options: Object.fromEntries(known), allowPositionals: true };
  try {
    return parseArgs(config);
  } catch (error) {
    throw new UsageError(explain(error as NodeJS.ErrnoException, options), command);
  }
}

/** What parseArgs found wrong. Its own sentences go on about the library. */
function explain(
  { code, message }: NodeJS.ErrnoException,
  options: Record<string, OptionDeclaration>,
): string {
  const name = /'(?:-\w, )?--?([\w-]+)/.exec(message)?.[1] ?? '';
  const known = Object.hasOwn(options, name) ? options[name] : undefined;
  if (code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION') return unknownOption(`--${name}`, options);
  if (known?.value !== undefined) return `'--${name}' needs a value: --${name} ${known.value}`;
  return known ? `'--${name}' takes no value.` : message.replace(/\..*$/s, '.');
}

function unknownOption(option: string, options: Record<string, OptionDeclaration>): string {
  const name = option.replace(/^-+/, '');
  return `Unknown option '${option}'.${suggestion(name, Object.keys(options), '--')}`;
}

/**
 * `-port 8080` as `--port 8080`; parseArgs would read it as `-p ort`, and `-prot 8080` as `-p rot`.
 *
 * @throws UsageError for words with one dash that are no option
 */
function withDoubleDashes(
  argv: readonly string[],
  { command, options }: { command: Command; options: Record<string, OptionDeclaration> },
): string[] {
  const end = argv.indexOf('--');
  return argv.map((argument, index) => {
    const name = /^-([a-z][\w-]+)(=|$)/.exec(argument)?.[1];
    if (name === undefined || (end !== -1 && index > end)) return argument;
    if (Object.hasOwn(options, name)) return `-${argument}`;
    const short = Object.values(options).find((option) => option.short === name.charAt(0));
    // `-p8080`: values that follow their option at once are numbers.
    if (short?.value !== undefined && /^.\d+$/.test(name)) return argument;
    throw new UsageError(unknownOption(`-${name}`, options), command);
  });
}

function checkArguments(program: Program, command: Command, args: readonly string[]): void {
  const { takes = [], name, options = {} } = command;
  const missing = takes.find((wanted, index) => wanted.startsWith('<') && args[index] === undefined);
  if (missing !== undefined) {
    throw new UsageError(`${missing} is missing: ${[program.name, name, ...takes].join(' ')}`, command);
  }
  const stray = args[takes.length];
  if (stray === undefined) return;
  // Where a password is read, the stray argument may be one.
  const shown = 'password-stdin' in options ? 'another argument' : `'${stray}'`;
  throw new UsageError(`'${name}' does not take ${shown}.`, command);
}
