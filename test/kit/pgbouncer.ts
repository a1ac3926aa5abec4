/** Starts Debian's PgBouncer on loopback, in transaction mode, with fewer connections to the server than it accepts from clients. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { serverPort } from './port.js';

export interface Pgbouncer {
  readonly port: number;
  /** kill -9, or SIGTERM, which ends its connections at once; then it starts again. */
  restart(signal: 'SIGKILL' | 'SIGTERM'): Promise<void>;
  stop(): Promise<void>;
}

/**
 * @param folder for its configuration
 * @param owner the user who runs it, because it does not run as root
 * @param upstream the port of the PostgreSQL server
 */
export async function startPgbouncer(
  folder: string,
  owner: { uid: number; gid: number } | null,
  upstream: number,
): Promise<Pgbouncer> {
  const port = await serverPort();
  const [file, users] = [join(folder, 'pgbouncer.ini'), join(folder, 'users.txt')];
  writeFileSync(users, '"postgres" ""\n');
  const settings = {
    listen_addr: '127.0.0.1',
    listen_port: port,
    unix_socket_dir: '',
    pool_mode: 'transaction',
    default_pool_size: 4,
    max_client_conn: 1000,
    server_login_retry: 1,
    // Other users are those of the server.
    auth_type: 'trust',
    auth_file: users,
    auth_user: 'postgres',
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
  writeFileSync(
    file,
    ['[databases]', `* = host=127.0.0.1 port=${upstream}`, '[pgbouncer]', ...lines, ''].join('\n'),
  );
  const path = `${process.env['PATH']}:/usr/sbin`;
  const start = async (): Promise<ChildProcess> => {
    const child = spawn('pgbouncer', [file], {
      ...owner,
      cwd: folder,
      env: { ...process.env, PATH: path },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const output: string[] = [];
    await new Promise<void>((resolve, reject) => {
      createInterface(child.stderr).on('line', (line) => {
        if (line.includes('process up')) resolve();
        else output.push(line);
      });
      child.once('error', reject);
      child.once('exit', () => reject(new Error(`pgbouncer did not start: ${output.join('\n')}`)));
    });
    return child;
  };
  let child = await start();
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    const exit = once(child, 'exit');
    child.kill(signal);
    await exit;
  };
  return {
    port,
    async restart(signal) {
      await end(signal);
      child = await start();
    },
    stop: () => end('SIGTERM'),
  };
}
