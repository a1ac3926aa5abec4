import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';

/** A program of this package as a process. */
export interface Program {
  readonly pid: number;
  /** Every printed line, of stdout and stderr. */
  readonly lines: readonly string[];
  /** The first match in its output, past or future. Rejects when it ends without one. */
  printed(pattern: RegExp): Promise<RegExpExecArray>;
  /** The address it listens at, once printed. */
  url(): Promise<string>;
  signal(name: NodeJS.Signals): void;
  /** kill -9 */
  kill(): Promise<void>;
  /** Sends SIGTERM; resolves with the exit code. */
  terminate(): Promise<number | null>;
  /** The exit code, once it has ended and all output is read. */
  ended(): Promise<number | null>;
}

export interface ProgramOptions {
  args?: readonly string[];
  cwd?: string;
  /** The whole environment except PATH. */
  env?: Record<string, string>;
}

/** The compiled root of the package. */
const DIST = new URL('../../', import.meta.url);

/** The path of a compiled file: `bin/saas-backend.js`, `test/kit/saas-server.js`. */
export function compiled(path: string): string {
  return fileURLToPath(new URL(path, DIST));
}

/** Starts `node <script>`; the process ends with the test. */
export function startProgram(
  t: Pick<Test, 'teardown'>,
  script: string,
  options: ProgramOptions = {},
): Program {
  return startCommand(t, process.execPath, { ...options, args: [script, ...(options.args ?? [])] });
}

/** Starts any program; the process ends with the test. */
export function startCommand(
  t: Pick<Test, 'teardown'>,
  command: string,
  options: ProgramOptions = {},
): Program {
  const child = spawn(command, [...(options.args ?? [])], {
    cwd: options.cwd,
    env: { PATH: process.env['PATH'], ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const closed = once(child, 'close').then(([code]) => code as number | null);
  t.teardown(async () => {
    child.kill('SIGKILL');
    await closed;
  });

  const lines: string[] = [];
  const watchers = new Set<() => void>();
  const collect = (line: string) => {
    lines.push(line);
    for (const look of watchers) look();
  };
  for (const stream of [child.stdout, child.stderr]) createInterface(stream).on('line', collect);

  const printed = (pattern: RegExp): Promise<RegExpExecArray> =>
    new Promise((resolve, reject) => {
      const look = () => {
        const match = lines.map((line) => pattern.exec(line)).find((found) => found !== null);
        if (!match) return;
        watchers.delete(look);
        resolve(match);
      };
      watchers.add(look);
      look();
      void closed.then((code) => {
        look();
        reject(new Error(`ended with ${code} before it printed ${pattern}:\n${lines.join('\n')}`));
      });
    });

  return {
    pid: pidOf(child),
    lines,
    printed,
    url: async () => (await printed(/\bat (https?:\/\/[^\s"]+)/))[1] as string,
    signal: (name) => void child.kill(name),
    async kill() {
      child.kill('SIGKILL');
      await closed;
    },
    terminate() {
      child.kill('SIGTERM');
      return closed;
    },
    ended: () => closed,
  };
}

function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error(`cannot start ${child.spawnargs.join(' ')}`);
  return child.pid;
}

/** The processes that a process has started and that run. */
export function childrenOf(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
    return text === '' ? [] : text.split(' ').map(Number);
  } catch {
    return [];
  }
}

/** Sends a signal to a process unless it has ended. */
export function sendSignal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
