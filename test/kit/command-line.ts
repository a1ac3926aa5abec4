import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import type { Test } from 'tap';
import { parseJson } from './app.js';
import type { Command, Result } from './command-runner.js';
import { compiled } from './process.js';
import { temporaryFolder } from './tmp.js';

/** The result of a command. */
export interface Typed {
  code: number;
  out: string;
  err: string;
  /** What a command prints as one line of JSON. */
  // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
  json: any;
}

let runner: ChildProcess | undefined;
let count = 0;
const waiting = new Map<number, { resolve(result: Result): void; reject(error: Error): void }>();

/** The process that runs the commands of this test file. */
function startRunner(): ChildProcess {
  const child = fork(compiled('test/kit/command-runner.js'), {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    execArgv: ['--expose-gc'],
  });
  child.on('message', ({ id, result }: { id: number; result: Result }) => {
    waiting.get(id)?.resolve(result);
    waiting.delete(id);
    // It does not keep this process running while it has nothing to do.
    if (waiting.size === 0) child.channel?.unref();
  });
  child.once('exit', (code) => {
    for (const { reject } of waiting.values()) reject(new Error(`the commands ended with ${code}`));
  });
  child.unref();
  return child;
}

/** Runs a command to its end, with no environment but `PATH` and the given variables. */
export async function runProgram(
  program: Command['program'],
  args: string[],
  env: Record<string, string>,
  { cwd = process.cwd(), stdin = '' }: { cwd?: string; stdin?: string } = {},
): Promise<Typed> {
  runner ??= startRunner();
  const { channel } = runner;
  const command: Command = { program, args, env: { PATH: process.env['PATH'], ...env }, cwd, stdin };
  const result = await new Promise<Result>((resolve, reject) => {
    const id = ++count;
    waiting.set(id, { resolve, reject });
    channel?.ref();
    runner?.send({ id, command });
  });
  return { ...result, json: args.includes('--json') ? parseJson(result.out) : undefined };
}

/** A command on its own store, or on that of a server. */
export function commandLine(t: Test, env: Record<string, string> = {}) {
  const cwd = temporaryFolder(t);
  const file = join(cwd, 'data/idp.db');
  return {
    cwd,
    file,
    type: (args: string[], { stdin = '', more = {} as Record<string, string> } = {}): Promise<Typed> =>
      runProgram('idp', args, { ...env, ...more }, { cwd, stdin }),
  };
}
