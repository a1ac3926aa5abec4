import { Option } from 'commander';
import { ConfigurationError } from '../../src/core/config/configuration-error.js';
import { defined } from '../../src/core/kernel/fields.js';
import type { Server } from '../../src/core/server/assembly.js';
import { type ListeningError, listeningProblem } from '../../src/core/server/listening.js';
import { LEVELS } from '../../src/core/server/options.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { STOP_SIGNALS, stopGracefully } from '../graceful-stop.js';
import { parseInteger } from '../options.js';
import type { Program, ServeOptions } from '../program.js';
import { fail, say, sentences, style } from '../terminal.js';

const MAX_WORKERS = 256;

export function define(command: CommandLine, program: Program): void {
  command
    .description('Start the server. SIGINT or SIGTERM stops it after current requests are finished.')
    .option('-p, --port <number>', 'Port to listen on; 0 takes a free one', parseInteger(0, 65_535, 8000))
    .option('--host <address>', 'Address to listen on (default: 127.0.0.1, in production 0.0.0.0)')
    .addOption(new Option('--log-level <level>', 'Lowest level to log').choices(LEVELS))
    .option(
      '--workers <number>',
      'Processes that share the port, for example one for each processor (default: 1)',
      parseInteger(1, MAX_WORKERS, 4),
    )
    .examples(
      `${program.name} serve --port 8000`,
      `${program.name} serve --port 0 --host 127.0.0.1 --log-level debug`,
      `${program.name} serve --workers 4`,
    )
    .action((options: ServeOptions & CommonOptions) => serve(program, options));
}

async function serve(
  program: Program,
  { json, port, host, logLevel, workers: count = 1 }: ServeOptions & CommonOptions,
): Promise<void> {
  const workers = count > 1 ? await import('../workers.js') : undefined;
  if (workers?.isPrimary) return workers.supervise(program.name, count);
  const metricsPeers = workers?.createMetricsPeers();
  const server = await createServer(program, defined({ port, host, logLevel, metricsPeers }));
  workers?.requireSharedStore(program, server.configuration.values);
  const { log } = server.fastify;
  // A second signal ends the process at once; those of workers are handled by the primary.
  const skip = workers ? [...STOP_SIGNALS] : [];
  let isStopping = false;
  const closing = stopGracefully({ logger: log, skip }, async ({ err, signal }) => {
    isStopping = true;
    if (err) log.fatal({ err }, 'stopping after an uncaught error');
    else log.info({ signal }, 'stopping');
    await server.stop();
  });
  workers?.followPrimary(closing.close);
  try {
    const { url, port: listening } = await server.start();
    const pid = workers ? process.ppid : process.pid;
    const setup = (await program.createSetupLink?.(server)) ?? null;
    const more = setup && { setup_url: setup.url };
    const ready = JSON.stringify({ program: program.name, url, port: listening, pid, ...more });
    const lines = [
      ...(server.configuration.production ? [] : [banner(program, server, url)]),
      ...(setup ? [`${setup.purpose}\n  ${setup.url}\n`] : []),
    ];
    const text = json ? ready : lines.length > 0 ? lines.join('\n') : null;
    if (workers) workers.announce({ logLevel: log.level, text });
    else if (text !== null) say(text);
  } catch (error) {
    // A stop during the start closes the store that the start still uses.
    if (isStopping) return;
    closing.uninstall();
    log.debug({ err: error }, 'start failed');
    await server.stop().catch(() => undefined);
    fail(1, `${program.name} cannot start: ${explain(error as Error, program.storeVariable)}`);
  }
}

async function createServer(program: Program, options: ServeOptions): Promise<Server> {
  try {
    return await program.createServer(options);
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
  // The same host as in links and cookies.
  const local = url.replace(/^http:\/\/(127\.0\.0\.1|\[::1\])(?=:)/, 'http://localhost');
  const { addresses, credentials, commands } = program.introduce(server, local);
  const { bold, dim, plain } = style();
  const rows = (entries: Record<string, string>) =>
    Object.entries(entries).map(([name, value]) => `  ${name.padEnd(16)}${bold}${value}${plain}`);
  return [
    `${bold}${program.name}${plain} is ready.`,
    '',
    ...rows(addresses),
    ...rows(credentials),
    ...(Object.keys(credentials).length > 0
      ? [`  ${dim}Generated for development, stored in ${server.configuration.generated.file}${plain}`]
      : []),
    '',
    'Try:',
    ...commands.map((command) => `  ${command}`),
    '',
  ].join('\n');
}
