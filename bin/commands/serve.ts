import closeWithGrace from 'close-with-grace';
import { ConfigurationError } from '../../src/config/configuration-error.js';
import type { Server } from '../../src/server/assembly.js';
import { type ListeningError, listeningProblem } from '../../src/server/listening.js';
import { LEVELS } from '../../src/server/options.js';
import type { Flags, Program } from '../cli.js';
import { type Call, type Command, UsageError } from '../command.js';
import { fail, say, sentences, style } from '../terminal.js';

/** The server: start, what is said of it, and the end. */

const serveCommand: Command = {
  name: 'serve',
  summary: 'starts the server',
  about: 'It listens until SIGINT or SIGTERM, and then finishes what was begun.',
  options: {
    port: { short: 'p', value: '<number>', doc: 'port to listen at, 0 for any free one' },
    host: { value: '<address>', doc: 'address to listen at, else 127.0.0.1, in production 0.0.0.0' },
    'log-level': { value: '<level>', doc: 'trace, debug, info, warn, error, fatal or silent' },
  },
  examples: ['serve', 'serve --port 8000', 'serve -port 0 --host 127.0.0.1 --log-level debug'],
  run: serve,
};

export const commands = [serveCommand];

async function serve(call: Call): Promise<void> {
  const { program } = call;
  const server = await createServer(program, readFlags(call));
  const { log } = server.fastify;
  // A second signal does not wait.
  const ending = closeWithGrace({ logger: log }, async ({ err, signal }) => {
    if (err) log.fatal({ err }, 'stopping after an uncaught error');
    else log.info({ signal }, 'stopping');
    await server.stop();
  });
  try {
    const { url, port } = await server.start();
    if (call.json) say(JSON.stringify({ program: program.name, url, port, pid: process.pid }));
    else if (!server.configuration.production) say(banner(program, server, url));
  } catch (error) {
    ending.uninstall();
    log.debug({ err: error }, 'start failed');
    await server.stop().catch(() => undefined);
    fail(1, `${program.name} cannot start: ${explain(error as Error, program.storeVariable)}`);
  }
}

function readFlags(call: Call): Flags {
  const [port, host, logLevel] = [call.text('port'), call.text('host'), call.text('log-level')];
  if (port !== undefined && !(/^\d{1,5}$/.test(port) && Number(port) <= 65_535)) {
    throw new UsageError(
      `--port takes a number from 0 to 65535, like --port 8000, not '${port}'.`,
      serveCommand,
    );
  }
  if (logLevel !== undefined && !isLevel(logLevel)) {
    throw new UsageError(`--log-level takes one of ${LEVELS.join(', ')}, not '${logLevel}'.`, serveCommand);
  }
  return {
    ...(port !== undefined && { port: Number(port) }),
    ...(host !== undefined && { host }),
    ...(logLevel !== undefined && { logLevel }),
  };
}

function isLevel(text: string): text is (typeof LEVELS)[number] {
  return (LEVELS as readonly string[]).includes(text);
}

async function createServer(program: Program, flags: Flags): Promise<Server> {
  try {
    return await program.createServer(flags);
  } catch (error) {
    if (error instanceof ConfigurationError) throw error;
    return fail(1, `${program.name} cannot start: ${error}`);
  }
}

/** One sentence and its remedy. */
function explain(error: ListeningError & { remedy?: string }, storeVariable: string): string {
  const problem = listeningProblem(error, { port: '--port', host: '--host' });
  if (problem) return `${problem.about} ${problem.message}. ${problem.remedy}`;
  if (error.name === 'StoreUnavailable')
    return `the store that ${storeVariable} names cannot be opened: ${sentences(error)}`;
  return error.message;
}

function banner(program: Program, server: Server, url: string): string {
  const { addresses, credentials, commands } = program.introduce(server, url);
  const { bold, dim, plain } = style();
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
