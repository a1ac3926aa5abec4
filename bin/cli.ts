import { existsSync, readFileSync } from 'node:fs';
import { type ParseArgsConfig, parseArgs } from 'node:util';
import closeWithGrace from 'close-with-grace';
import { ConfigurationError } from '../src/kernel/configuration-error.js';
import type { Server } from '../src/server-assembly.js';
import type { ServerConfiguration } from '../src/server-options.js';

/** What both programs share: arguments, `.env`, start, what is said of it, and the end. */

export interface Flags {
  port?: number;
  host?: string;
  logLevel?: LogLevel;
}

type LogLevel = ServerConfiguration['logLevel'];

export interface Program<Values> {
  name: 'saas-backend' | 'idp';
  help: string;
  /** Whether `<name>` alone serves. */
  servesByDefault: boolean;
  /** The variable that names the store, for the sentence about one that cannot be opened. */
  storeVariable: string;
  createServer(flags: Flags): Server<Values>;
  /** What a developer sees once the server listens. */
  introduce(server: Server<Values>, url: string): Introduction;
}

export interface Introduction {
  addresses: Record<string, string>;
  /** Made up for development. Empty when the developer chose them. */
  credentials: Record<string, string>;
  commands: string[];
}

const OPTIONS = {
  port: { type: 'string', short: 'p' },
  host: { type: 'string' },
  'log-level': { type: 'string' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' },
} satisfies ParseArgsConfig['options'];

/** The options of each command, beside those that all have. */
const COMMANDS: Record<string, (keyof typeof OPTIONS)[]> = {
  serve: ['port', 'host', 'log-level'],
  backup: ['json'],
};

/** What the caller of the program typed wrong. */
class UsageError extends Error {}

/** Runs a program to its end. */
export async function run<Values>(program: Program<Values>, argv = process.argv.slice(2)): Promise<void> {
  try {
    const { positionals, values } = parse(argv);
    if (values.help) return say(program.help);
    if (values.version) return say(version());
    const [command, file = ''] = readCommand(program, positionals, values);
    // The environment wins over the file.
    loadEnvironment(program.name);
    if (command === 'serve') await serve(program, readFlags(values));
    else await backup(program, file, values.json === true);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    fail(2, `${program.name}: ${error.message}\n\n${program.help}`);
  }
}

function parse(argv: string[]) {
  try {
    return parseArgs({ args: withDoubleDashes(argv), options: OPTIONS, allowPositionals: true });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

/** `-port 8080` as `--port 8080`; parseArgs would read it as `-p ort`. */
function withDoubleDashes(argv: string[]): string[] {
  const end = argv.indexOf('--');
  return argv.map((argument, index) => {
    const name = /^-([a-z][\w-]+)(=|$)/.exec(argument)?.[1];
    const isOption = name !== undefined && name in OPTIONS && (end === -1 || index < end);
    return isOption ? `-${argument}` : argument;
  });
}

/** The command and what it applies to. */
function readCommand(
  { name, servesByDefault }: Pick<Program<unknown>, 'name' | 'servesByDefault'>,
  [verb, ...others]: string[],
  values: object,
): [command: string, file?: string] {
  if (verb === undefined && !servesByDefault) throw new UsageError(`say what to do: ${name} serve`);
  const command = verb ?? 'serve';
  const options = Object.hasOwn(COMMANDS, command) ? COMMANDS[command] : undefined;
  if (options === undefined) throw new UsageError(`'${command}' is not a command.`);
  const [file, ...rest] = command === 'backup' ? others : [undefined, ...others];
  if (command === 'backup' && !file) throw new UsageError(`say where to: ${name} backup <file>`);
  if (rest[0] !== undefined) throw new UsageError(`'${rest[0]}' is not a command.`);
  const stray = Object.keys(values).find((option) => !(options as string[]).includes(option));
  if (stray !== undefined) throw new UsageError(`'${command}' takes no --${stray}.`);
  return file === undefined ? [command] : [command, file];
}

function readFlags(values: { port?: string; host?: string; 'log-level'?: string }): Flags {
  const { port, host, 'log-level': logLevel } = values;
  if (port !== undefined && !(/^\d{1,5}$/.test(port) && Number(port) <= 65_535)) {
    throw new UsageError(`--port takes a number from 0 to 65535, not '${port}'.`);
  }
  return {
    ...(port !== undefined && { port: Number(port) }),
    ...(host !== undefined && { host }),
    ...(logLevel !== undefined && { logLevel: logLevel as LogLevel }),
  };
}

async function serve<Values>(program: Program<Values>, flags: Flags): Promise<void> {
  const server = createServer(program, flags);
  const { log } = server.fastify;
  // A second signal does not wait.
  const ending = closeWithGrace({ logger: log }, async ({ err, signal }) => {
    if (err) log.fatal({ err }, 'stopping after an uncaught error');
    else log.info({ signal }, 'stopping');
    await server.stop();
  });
  try {
    const { url } = await server.start();
    if (!server.configuration.production) say(banner(program, server, url));
  } catch (error) {
    ending.uninstall();
    log.debug({ err: error }, 'start failed');
    await server.stop().catch(() => undefined);
    fail(1, `${program.name} cannot start: ${explain(error as Error, program.storeVariable)}`);
  }
}

function loadEnvironment(name: string): void {
  if (!existsSync('.env')) return;
  try {
    process.loadEnvFile();
  } catch (error) {
    fail(1, `${name} cannot start: .env cannot be read (${(error as NodeJS.ErrnoException).code}).`);
  }
}

async function backup<Values>(
  { name, storeVariable }: Program<Values>,
  file: string,
  json: boolean,
): Promise<void> {
  // It knows the options of both programs, which a server that starts need not load.
  const { writeBackup } = await import('./backup.js');
  try {
    say(await writeBackup(name, file, json));
  } catch (error) {
    if (error instanceof ConfigurationError) fail(1, error.message);
    fail(1, `${name} cannot back up what ${storeVariable} names: ${sentences(error as Error)}`);
  }
}

function createServer<Values>(program: Program<Values>, flags: Flags): Server<Values> {
  try {
    return program.createServer(flags);
  } catch (error) {
    return fail(
      1,
      error instanceof ConfigurationError ? error.message : `${program.name} cannot start: ${error}`,
    );
  }
}

/** One sentence and its remedy. */
function explain(error: NodeJS.ErrnoException & StartError, storeVariable: string): string {
  const { port, address, message } = error;
  if (error.code === 'EADDRINUSE')
    return `port ${port} is in use. Stop what listens there, or choose another one with --port.`;
  if (error.code === 'EACCES' && error.syscall === 'listen')
    return `port ${port} is reserved for the system. Choose one above 1023 with --port.`;
  if (error.code === 'EADDRNOTAVAIL' || error.code === 'ENOTFOUND')
    return `this machine has no address ${address ?? error.hostname}. Choose another one with --host.`;
  if (error.name === 'StoreUnavailable')
    return `the store that ${storeVariable} names cannot be opened: ${sentences(error)}`;
  return message;
}

/** What happened and, where it is known, what to do about it. */
function sentences({ message, remedy }: Error & { remedy?: string }): string {
  return remedy === undefined ? message : `${message}. ${remedy}`;
}

/** What errors of the listener and of the store tell beside their message. */
interface StartError {
  remedy?: string;
  port?: number;
  address?: string;
  hostname?: string;
}

function banner<Values>(program: Program<Values>, server: Server<Values>, url: string): string {
  const { addresses, credentials, commands } = program.introduce(server, url);
  const style =
    process.stdout.isTTY && process.stdout.hasColors() ? (code: number) => `\x1b[${code}m` : () => '';
  const [bold, dim, plain] = [style(1), style(2), style(0)];
  const rows = (entries: Record<string, string>) =>
    Object.entries(entries).map(([name, value]) => `  ${name.padEnd(16)}${bold}${value}${plain}`);
  return [
    `${bold}${program.name}${plain} is ready.`,
    '',
    ...rows(addresses),
    ...rows(credentials),
    ...(Object.keys(credentials).length > 0
      ? [`  ${dim}Made up for development, kept in ${server.configuration.generated.file}${plain}`]
      : []),
    '',
    'Try:',
    ...commands.map((command) => `  ${command}`),
    '',
  ].join('\n');
}

function version(): string {
  return JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')).version;
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

function fail(code: number, text: string): never {
  process.stderr.write(`${text}\n`);
  process.exit(code);
}
