/** The environment of the measurements: a temporary folder, and processes that end with the row that started them. */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { serverPort } from '../kit/port.js';

/** A server under test or a baseline. */
export interface Served {
  readonly url: string;
  readonly pid: number;
  /** Milliseconds from the start of the process until it listened. */
  readonly startedIn: number;
}

/** A process that runs tasks on demand: `rate` returns the runs per second. */
export interface Worker {
  rate(task: string, seconds: number): Promise<number>;
}

export type Program = 'saas-backend' | 'idp';

export const ADMIN_TOKEN = secret();
export const WEBHOOK_SECRET = secret();

const DIST = new URL('../../', import.meta.url);

/** For the start and the end of a process: far longer than either takes on a busy machine. */
const PROCESS_TIMEOUT_MS = 60_000;

export interface UnboundOptions {
  /** The database: otherwise a new one. */
  uri?: string;
  /** Additional environment variables. */
  more?: Record<string, string>;
  /** Number of processes that share the port. */
  workers?: number;
}

export class Lab {
  readonly #children = new Set<ChildProcess>();
  readonly #profiles: string | undefined;
  readonly #newDatabase: (() => string) | undefined;
  #folders: string[] = [];

  /**
   * @param profiles folder for a CPU profile of every program under test
   * @param newDatabase returns the URI of an empty database; otherwise, each is a SQLite file
   */
  constructor(profiles?: string, newDatabase?: () => string) {
    this.#profiles = profiles;
    this.#newDatabase = newDatabase;
    process.once('exit', () => {
      for (const child of this.#children) child.kill('SIGKILL');
      this.#removeFolders();
    });
  }

  /** One of the two programs as in production, on a new SQLite file. */
  async program(name: Program, row: string): Promise<Served> {
    const port = await serverPort();
    const args = ['serve', '--host', '127.0.0.1', '--port', String(port)];
    return this.#product(`bin/${name}.js`, args, port, row, this.database(name));
  }

  /** The same server without limits on the number of requests. */
  async unbound(
    name: Program,
    row: string,
    { uri = this.database(name), more, workers = 1 }: UnboundOptions = {},
  ): Promise<Served> {
    const port = await serverPort();
    const args = [name, String(port), String(workers)];
    return this.#product('test/bench/unbound-server.js', args, port, row, uri, more);
  }

  /** The URI of a new database. */
  database(name: Program): string {
    return this.#newDatabase?.() ?? `sqlite:${join(this.folder(), `${name}.db`)}`;
  }

  #product(
    script: string,
    args: string[],
    port: number,
    row: string,
    uri: string,
    more: Record<string, string> = {},
  ): Promise<Served> {
    const profiling = ['--cpu-prof', `--cpu-prof-dir=${this.#profiles}`, `--cpu-prof-name=${row}.cpuprofile`];
    return this.#serve(script, args, port, this.#profiles === undefined ? [] : profiling, {
      NODE_ENV: 'production',
      LOG_LEVEL: 'warn',
      DATABASE_URI: uri,
      PUBLIC_URL: 'https://app.example',
      JWT_ACCESS_SECRET: secret(),
      JWT_REFRESH_SECRET: secret(),
      PAYMENT_WEBHOOK_SECRET: WEBHOOK_SECRET,
      IDP_DATABASE_URI: uri,
      IDP_PUBLIC_URL: 'https://id.example',
      IDP_ED25519_SEED: secret(),
      IDP_ADMIN_TOKEN: ADMIN_TOKEN,
      ...more,
    });
  }

  /** A minimal server that responds with `json`. */
  async floor(kind: 'hello' | 'jwt', json = '{}'): Promise<Served> {
    const port = await serverPort();
    return this.#serve('test/bench/floor-server.js', [kind, String(port)], port, [], {
      NODE_ENV: 'production',
      ANSWER: json,
    });
  }

  /**
   * A third-party server. Its output goes to its log.
   *
   * @param args returns its arguments, given its port and folder
   * @param more returns its environment variables, given its port
   */
  async peer(
    program: string,
    args: (port: number, folder: string) => string[],
    more: (port: number) => Record<string, string> = () => ({}),
  ): Promise<Served> {
    const port = await serverPort();
    const since = performance.now();
    const child = this.#launch({ NODE_ENV: 'production', ...more(port) }, (cwd, env, log) =>
      spawn(resolve(program), args(port, cwd), { cwd, env, stdio: ['ignore', log, log] }),
    );
    await once(child, 'spawn');
    await listening(port, child);
    return served(port, child, since);
  }

  worker(script: 'floor-work' | 'commit-work', ...args: string[]): Worker {
    const child = this.#fork(`test/bench/${script}.js`, args, [], { NODE_ENV: 'production' });
    return {
      rate: (task, seconds) =>
        new Promise((resolve, reject) => {
          const lost = (code: number) => reject(new Error(`${script} ended with ${code} at ${task}`));
          child.once('exit', lost);
          child.once('message', (perSecond: number) => {
            child.off('exit', lost);
            resolve(perSecond);
          });
          child.send({ task, seconds });
        }),
    };
  }

  folder(): string {
    const folder = mkdtempSync(join(tmpdir(), 'saas-backend-bench-'));
    this.#folders.push(folder);
    return folder;
  }

  /** Ends the started processes and removes their files. */
  async clear(): Promise<void> {
    await Promise.all(
      [...this.#children].map(async (child) => {
        const closed = once(child, 'close', { signal: AbortSignal.timeout(PROCESS_TIMEOUT_MS) });
        child.kill('SIGTERM');
        await closed.catch((cause: Error) => {
          const what = `${child.spawnargs.join(' ')}, process ${child.pid},`;
          throw new Error(`${what} has not ended ${PROCESS_TIMEOUT_MS / 1000} s after SIGTERM`, { cause });
        });
      }),
    );
    this.#removeFolders();
  }

  async #serve(
    script: string,
    args: string[],
    port: number,
    execArgv: string[],
    env: Record<string, string>,
  ): Promise<Served> {
    const since = performance.now();
    const child = this.#fork(script, args, execArgv, env);
    await listening(port, child);
    return served(port, child, since);
  }

  #fork(script: string, args: string[], execArgv: string[], env: Record<string, string>): ChildProcess {
    return this.#launch(env, (cwd, env, log) =>
      fork(fileURLToPath(new URL(script, DIST)), args, {
        cwd,
        execArgv,
        env,
        stdio: ['ignore', log, 'inherit', 'ipc'],
      }),
    );
  }

  /** @param start spawns a process with its folder, its environment and the file of its log */
  #launch(
    more: Record<string, string>,
    start: (cwd: string, env: NodeJS.ProcessEnv, log: number) => ChildProcess,
  ): ChildProcess {
    const cwd = this.folder();
    // To a file, as under a service manager: a terminal would slow down logging.
    const log = openSync(join(cwd, 'log'), 'a');
    // NODE_OPTIONS of the caller applies to all servers, including baselines and peers.
    const env = { PATH: process.env['PATH'], NODE_OPTIONS: process.env['NODE_OPTIONS'], ...more };
    const child = start(cwd, env, log);
    closeSync(log);
    this.#children.add(child);
    child.once('close', () => this.#children.delete(child));
    return child;
  }

  #removeFolders(): void {
    for (const folder of this.#folders) rmSync(folder, { recursive: true, force: true });
    this.#folders = [];
  }
}

/** @param since the time when the process was started */
function served(port: number, { pid }: ChildProcess, since: number): Served {
  return { url: `http://127.0.0.1:${port}`, pid: pid as number, startedIn: performance.now() - since };
}

/** 256 random bits. */
export function secret(): string {
  return randomBytes(32).toString('hex');
}

/** In production the program logs nothing at this level when it listens, so this polls the port. */
async function listening(port: number, child: ChildProcess): Promise<void> {
  const command = child.spawnargs.join(' ');
  for (const since = performance.now(); ; ) {
    const end = child.exitCode ?? child.signalCode;
    if (end !== null) throw new Error(`${command} ended with ${end}`);
    if (performance.now() - since > PROCESS_TIMEOUT_MS) {
      throw new Error(
        `${command}, process ${child.pid}, does not listen after ${PROCESS_TIMEOUT_MS / 1000} s`,
      );
    }
    const isOpen = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => resolve(true)).once('error', () => resolve(false));
      socket.once('connect', () => socket.destroy());
    });
    if (isOpen) return;
    await sleep(2);
  }
}

/** Resident memory of a process in MiB; undefined without /proc. */
export function residentMemory(pid: number): number | undefined {
  try {
    const kibibytes = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return Number(kibibytes) / 1024;
  } catch {
    return undefined;
  }
}
