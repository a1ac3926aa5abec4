import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { Test } from 'tap';
import { compiled } from './process.js';
import { temporaryFolder } from './tmp.js';

/** The result of a command. */
export interface Typed {
  code: number | null;
  out: string;
  err: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
  json: any;
}

/** Runs a program until it ends, with no environment but `PATH` and the given variables. */
export async function runProgram(
  program: 'idp' | 'saas-backend',
  args: string[],
  env: Record<string, string>,
  { cwd, stdin }: { cwd?: string; stdin?: string } = {},
): Promise<Typed> {
  const child = spawn(process.execPath, [compiled(`bin/${program}.js`), ...args], {
    ...(cwd !== undefined && { cwd }),
    env: { PATH: process.env['PATH'], ...env },
  });
  if (stdin !== undefined) child.stdin.end(stdin);
  const [out, err, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ]);
  const json = args.includes('--json') && code === 0 ? JSON.parse(out) : undefined;
  return { code: code as number | null, out, err, json };
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
