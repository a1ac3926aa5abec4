import type { Program } from './cli.js';
import { COMMON, type Command, type OptionDeclaration } from './command.js';

/** What `--help` says. */

/** Of a program: every command in a line, those of a group as the group has them. */
export function programHelp(program: Program, commands: readonly Command[]): string {
  const { name, summary, standard, environment } = program;
  return [
    summary,
    '',
    'Usage',
    ...commands.map((command) => `  ${usage(program, command)}`),
    '',
    'Commands',
    ...columns(
      commands.map((command) => [
        command.name,
        command.summary + (command.name === standard ? ', also without a word' : ''),
      ]),
    ),
    '',
    ...commonOptions(),
    '',
    `${name} <command> --help tells the options of a command.`,
    '',
    'Examples',
    ...commands.flatMap(({ examples: [first] }) => `  ${name} ${first}`),
    '',
    environment,
  ].join('\n');
}

/** Of one command. */
export function commandHelp(program: Program, command: Command): string {
  const { summary, about, options = {}, examples } = command;
  const described = Object.entries(options).map(([name, option]) => [spelling(name, option), option.doc]);
  return [
    `${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`,
    ...(about ? [about] : []),
    '',
    'Usage',
    `  ${usage(program, command)}`,
    '',
    ...(described.length > 0 ? ['Options', ...columns(described), ''] : []),
    ...commonOptions(),
    '',
    'Examples',
    ...examples.map((example) => `  ${program.name} ${example}`),
  ].join('\n');
}

function usage({ name: program, standard }: Program, { name, takes = [], options = {} }: Command): string {
  const words = name === standard ? `[${name}]` : name;
  return [program, words, ...takes, ...(Object.keys(options).length > 0 ? ['[options]'] : [])].join(' ');
}

function commonOptions(): string[] {
  const rows = Object.entries(COMMON).map(([name, option]) => [spelling(name, option), option.doc]);
  return ['Of every command', ...columns(rows)];
}

function spelling(name: string, { short, value }: OptionDeclaration): string {
  return `${short ? `-${short}, ` : '    '}--${name}${value ? ` ${value}` : ''}`;
}

function columns(rows: readonly (readonly string[])[]): string[] {
  const width = Math.max(...rows.map(([left = '']) => left.length));
  return rows.map(([left = '', right = '']) => `  ${left.padEnd(width)}  ${right}`.trimEnd());
}
