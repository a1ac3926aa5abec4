import { readFileSync } from 'node:fs';
import module from 'node:module';
import { fileURLToPath } from 'node:url';
import { Argument, type Command, CommanderError } from 'commander';
import type { FastifyInstance } from 'fastify';
import { ConfigurationError } from '../src/core/config/configuration-error.js';
import { packageVersion } from '../src/core/kernel/package-files.js';
import type { MetricsPeers } from '../src/core/ops/metrics.js';
import type { Server } from '../src/core/server/assembly.js';
import type { Finding } from '../src/core/server/doctor.js';
import type { ServerConfiguration } from '../src/core/server/options.js';
import type { Store } from '../src/core/storage/collection.js';
import { CommandLine, type CommonOptions, firstWord } from './command.js';
import { completionScript, SHELLS, type Shell } from './completion.js';
import { EnvFileError, parseEnvFile } from './env-file.js';
import { fail, handleBrokenPipe, printsJsonErrors, readErrorFormat, say, style } from './terminal.js';

/** Shared by both programs: commands, help, `.env` and exit codes. */

export interface ServeOptions {
  port?: number;
  host?: string;
  logLevel?: ServerConfiguration['logLevel'];
  /** Number of processes. Default 1. */
  workers?: number;
  metricsPeers?: MetricsPeers;
}

// biome-ignore lint/suspicious/noExplicitAny: commands do not depend on the values
export interface Program<Values = any> {
  name: 'saas-backend' | 'idp';
  /** One sentence for the help. */
  summary: string;
  /** Their summaries, by the names of their files in `commands/`. */
  commands: Record<string, string>;
  /** The command to run if the arguments contain none. */
  defaultCommand?: string;
  examples: string;
  /** The variable that names the store, for error messages. */
  storeVariable: string;
  /** @param sendMailTo receives a test mail */
  examine(sendMailTo?: string): Promise<Finding[]>;
  /** Imports the function that declares all collections of the product. */
  loadCollections(): Promise<(store: Store) => void>;
  /** Imports the server, which no other command needs. */
  createServer(options: ServeOptions): Promise<Server<Values>>;
  /** A link that has to be used before the program is useful, once the server listens; `null` if there is none. */
  createSetupLink?(server: Server<Values>): Promise<SetupLink | null>;
  /** The banner that a developer sees once the server listens. */
  introduce(server: Server<Values>, url: string): Introduction;
}

export interface SetupLink {
  /** What the link is for, as a sentence. */
  purpose: string;
  url: string;
}

/** One file of `commands/`. */
export interface CommandModule {
  /** Declares arguments, options and action, or the subcommands of a group. */
  define(command: CommandLine, program: Program): void;
}

export interface Introduction {
  addresses: Record<string, string>;
  /** The generated credentials; empty when the developer chose them. */
  credentials: Record<string, string>;
  commands: string[];
}

const CONFIGURATION = `
Environment variables configure the program. It also reads them from a .env file
in the current folder; the .env.example of this package lists them. With
NODE_ENV=production, nothing is generated: all secrets have to be set.`;

const EXIT_CODES = `
Exits with 1 on failure, 2 on invalid arguments.`;

/** The page of the OpenAPI document where there is one, else the document. */
export function apiReference(fastify: FastifyInstance, url: string, prefix: string): Record<string, string> {
  const hasPage = fastify.hasRoute({ method: 'GET', url: `${prefix}/docs` });
  return { 'API reference': `${url}${prefix}/${hasPage ? 'docs' : 'openapi.json'}` };
}

/**
 * Keeps compiled code for the next start, from Node.js 22 on. Not in Node's default, the shared temporary folder, where other users
 * could plant code: who writes here can change the program itself. `NODE_COMPILE_CACHE` takes precedence.
 */
function enableCompileCache(): void {
  // Missing in the types of Node.js 20.
  const { enableCompileCache } = module as { enableCompileCache?: (folder: string) => unknown };
  enableCompileCache?.(fileURLToPath(new URL('../.cache', import.meta.url)));
}

/** Runs a program with the arguments of the process. */
export async function run<Values>(program: Program<Values>, argv = process.argv.slice(2)): Promise<void> {
  enableCompileCache();
  handleBrokenPipe();
  readErrorFormat(argv);
  try {
    await createCommandLine(program, argv).parseAsync(argv, { from: 'user' });
  } catch (error) {
    if (error instanceof ConfigurationError) fail(1, error.message, 'INVALID_CONFIGURATION');
    if (!(error instanceof CommanderError)) {
      if (printsJsonErrors() && error instanceof Error) fail(1, error.message);
      throw error;
    }
    // Commander has printed the help or the error.
    if (error.exitCode !== 0) process.exit(2);
  }
}

function createCommandLine(program: Program, argv: readonly string[]): Command {
  const { name, summary, commands, defaultCommand } = program;
  const root = new CommandLine(name);
  root
    .description(summary)
    .usage(defaultCommand === undefined ? '<command> [options]' : '[command] [options]')
    .enablePositionalOptions()
    .exitOverride()
    .showHelpAfterError()
    .configureHelp(helpLayout())
    .helpCommand(false)
    .optionsGroup('Global options:')
    .helpOption('-h, --help', 'Show this help')
    .version(packageVersion(), '-v, --version', 'Print the version')
    .addHelpText('after', `\n${name} <command> --help shows the subcommands and options of a command.`)
    .addHelpText('after', program.examples)
    .addHelpText('after', CONFIGURATION)
    .addHelpText('afterAll', EXIT_CODES)
    .hook('preSubcommand', (_root, command) => load(command as CommandLine, program));
  // Without a command only: a mistyped command must not be taken for an argument of the default one.
  const isUnnamed = firstWord(argv)?.startsWith('-') ?? true;
  for (const [word, summary] of Object.entries(commands)) {
    root.command(word, { isDefault: isUnnamed && word === defaultCommand }).summary(summary);
  }
  root
    .command('help')
    .summary('Show the help of a command')
    .argument('[command...]')
    .option('--json', 'Print errors as JSON')
    .action((words: string[]) => showHelp(root, words, program));
  root
    .command('version')
    .summary('Print the version')
    .option('--json', 'Print one line of JSON')
    .action(({ json }: CommonOptions) =>
      say(json ? JSON.stringify({ version: packageVersion() }) : packageVersion()),
    );
  root
    .command('completion')
    .summary('Print a script that completes commands and options in a shell')
    .addArgument(new Argument('<shell>').choices(SHELLS))
    .option('--json', 'Print errors as JSON')
    .examples(`source <(${name} completion bash)`, `${name} completion fish | source`)
    .action(async (shell: Shell) => {
      for (const command of root.commands) await load(command as CommandLine, program);
      say(completionScript(shell, root));
    });
  return root;
}

/** The help of the command that the words name. */
async function showHelp(root: CommandLine, words: readonly string[], program: Program): Promise<void> {
  let command: Command = root;
  for (const word of words) {
    const next = command.commands.find((one) => one.name() === word);
    if (!next) return command.error(`error: unknown command '${word}'`);
    if (command === root) await load(next as CommandLine, program);
    command = next;
  }
  command.outputHelp();
}

async function load(command: CommandLine, program: Program): Promise<void> {
  const summary = program.commands[command.name()];
  if (summary === undefined) return;
  const { define }: CommandModule = await import(`./commands/${command.name()}.js`);
  command.description(summary).hook('preAction', () => loadEnvironment(program.name));
  define(command, program);
  for (const group of groupsIn(command)) group.usage('<command> [options]').helpCommand(false);
  for (const leaf of leavesIn(command)) {
    leaf.optionsGroup('Global options:');
    // Commands that print more than one line of JSON declare the option themselves.
    if (!leaf.options.some(({ long }) => long === '--json')) leaf.option('--json', 'Print one line of JSON');
    leaf.version(packageVersion(), '-v, --version', 'Print the version');
  }
}

/** The command and those below it that have subcommands. */
const groupsIn = (command: Command): Command[] =>
  command.commands.length === 0 ? [] : [command, ...command.commands.flatMap(groupsIn)];

const leavesIn = (command: Command): readonly Command[] =>
  command.commands.length === 0 ? [command] : command.commands.flatMap(leavesIn);

function helpLayout() {
  const { bold, plain } = style();
  const argument = (declared: Argument) =>
    declared.required ? `<${declared.name()}>` : `[${declared.name()}]`;
  return {
    // Short descriptions are written for the list of commands, which has no full stops.
    commandDescription: (command: Command) => command.description().replace(/[^.]$/, '$&.'),
    styleTitle: (title: string) => `${bold}${title}${plain}`,
    optionTerm: ({ short, flags }: { short?: string; flags: string }) => (short ? flags : `    ${flags}`),
    subcommandTerm: (command: Command) =>
      [command.name(), ...command.registeredArguments.map(argument)].join(' '),
  };
}

/**
 * Loads the `.env` file of the current folder; existing variables take precedence. Without a word, no line of it is ignored:
 * NODE_ENV=production must not be lost.
 */
async function loadEnvironment(name: string): Promise<void> {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(readFileSync('.env'));
    (await import('../src/core/config/options.js')).completeEnvironment(parseEnvFile(text));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return;
    if (error instanceof EnvFileError) fail(1, `${name} cannot start: ${error.message}`);
    if (error instanceof TypeError) fail(1, `${name} cannot start: .env is not in UTF-8. Save it as UTF-8.`);
    fail(1, `${name} cannot start: .env cannot be read (${code}). Let this user read it, or move it away.`);
  }
}
