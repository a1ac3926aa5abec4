import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { parseEnv } from 'node:util';
import { ConfigurationError } from '../src/config/configuration-error.js';
import { suggestion } from '../src/kernel/text.js';
import type { Server } from '../src/server/assembly.js';
import type { Finding } from '../src/server/doctor.js';
import type { ServerConfiguration } from '../src/server/options.js';
import { type Command, type CommandGroup, readCall, UsageError } from './command.js';
import { commandHelp, programHelp } from './help.js';
import { fail, handleBrokenPipe, say } from './terminal.js';

/** From what somebody typed to the command that was meant. */

export interface Flags {
  port?: number;
  host?: string;
  logLevel?: ServerConfiguration['logLevel'];
}

// biome-ignore lint/suspicious/noExplicitAny: commands are the same for both programs, whatever their values
export interface Program<Values = any> {
  name: 'saas-backend' | 'idp';
  /** What it is, in one sentence. */
  summary: string;
  /** Where its configuration comes from. */
  environment: string;
  /** First word → the file of its commands, loaded when it is called. */
  groups: Record<string, () => Promise<CommandGroup>>;
  /** The command that is meant where none is named. */
  standard?: string;
  /** The variable that names the store, for the sentence about one that cannot be opened. */
  storeVariable: string;
  /** What is right and wrong with its configuration and its surroundings. */
  examine(): Promise<Finding[]>;
  /** Loads the server, which no other command needs. */
  createServer(flags: Flags): Promise<Server<Values>>;
  /** What a developer sees once the server listens. */
  introduce(server: Server<Values>, url: string): Introduction;
}

export interface Introduction {
  addresses: Record<string, string>;
  /** Made up for development. Empty when the developer chose them. */
  credentials: Record<string, string>;
  commands: string[];
}

const HELP = /^(-h|--?help)$/;

/** Runs a program to its end. */
export async function run<Values>(program: Program<Values>, argv = process.argv.slice(2)): Promise<void> {
  handleBrokenPipe();
  try {
    const [first = ''] = argv;
    if (HELP.test(first)) return say(await wholeHelp(program));
    if (/^(-v|--?version)$/.test(first)) return say(version());
    const { commands, command, rest } = await findCommand(program, argv);
    if (!command) return say(programHelp(program, commands));
    const call = readCall(program, command, rest);
    if (call.isSet('help')) return say(commandHelp(program, command));
    if (call.isSet('version')) return say(version());
    // The environment wins over the file.
    await loadEnvironment(program.name);
    await command.run(call);
  } catch (error) {
    if (error instanceof ConfigurationError) fail(1, error.message);
    if (!(error instanceof UsageError)) throw error;
    const help = error.command ? commandHelp(program, error.command) : await wholeHelp(program);
    fail(2, `${program.name}: ${error.message}\n\n${help}`);
  }
}

interface Found {
  /** All that begin with the same word. */
  commands: readonly Command[];
  /** Absent where that word alone asks for help. */
  command?: Command;
  /** What was typed behind it. */
  rest: readonly string[];
}

async function findCommand(program: Program, argv: readonly string[]): Promise<Found> {
  const isNamed = argv[0] !== undefined && !argv[0].startsWith('-');
  const word = isNamed ? argv[0] : program.standard;
  const rest = isNamed ? argv.slice(1) : argv;
  if (word === undefined) throw new UsageError(`a command is missing: ${program.name} serve`);
  const load = Object.hasOwn(program.groups, word) ? program.groups[word] : undefined;
  if (!load) {
    throw new UsageError(`'${word}' is not a command.${suggestion(word, Object.keys(program.groups))}`);
  }
  const { commands } = await load();
  const [second = ''] = rest;
  const command = commands.find(({ name }) => name === word || name === `${word} ${second}`);
  if (command) return { commands, command, rest: command.name === word ? rest : rest.slice(1) };
  if (HELP.test(second)) return { commands, rest };
  const names = commands.map(({ name }) => name);
  const meant = suggestion(`${word} ${second}`, names);
  const wrong =
    second === '' || second.startsWith('-') ? '' : `'${word} ${second}' is not a command.${meant} `;
  throw new UsageError(`${wrong}Use one of: ${names.map((name) => `${program.name} ${name}`).join(', ')}`);
}

async function wholeHelp(program: Program): Promise<string> {
  const groups = await Promise.all(Object.values(program.groups).map((load) => load()));
  return programHelp(
    program,
    groups.flatMap(({ commands }) => commands),
  );
}

async function loadEnvironment(name: string): Promise<void> {
  try {
    // Node's loadEnvFile takes what may not be read for a file that is not there, and a byte order mark for a part of
    // the first name: NODE_ENV=production would be lost without a word.
    const text = new TextDecoder('utf-8', { fatal: true }).decode(readFileSync('.env'));
    (await import('../src/config/options.js')).completeEnvironment(parseEnv(text));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return;
    if (error instanceof TypeError) fail(1, `${name} cannot start: .env is not in UTF-8. Save it as UTF-8.`);
    fail(1, `${name} cannot start: .env cannot be read (${code}). Let this user read it, or move it away.`);
  }
}

function version(): string {
  return createRequire(import.meta.url)('saas-backend/package.json').version;
}
